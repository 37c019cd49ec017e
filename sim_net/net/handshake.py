"""How a connection begins: the three segments of its handshake, from the side that asks and from the one that answers.

With a full backlog the third segment counts as lost, as on Linux: the second one is sent again, after 1, 2, 4, ... s.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sim_net.net.segment import ACK, SYN, SYN_ACK, SYN_AGAIN_S
from sim_net.net.tcp_state import Event

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel
    from sim_net.net.lane import Lane
    from sim_net.net.stream import Stream


class Backlog(Protocol):
    """What a handshake asks the listener that answers."""

    @property
    def backlog_full(self) -> bool:
        """Whether connection requests are ignored for now."""


class Handshake:
    """The handshake of one end; `opened` is called when it is over there."""

    __slots__ = ("_accept", "_answers", "_kernel", "_lane", "_listener", "_opened", "_stream")

    def __init__(self, kernel: Kernel, stream: Stream, lane: Lane, opened: Callable[[], object]) -> None:
        self._kernel = kernel
        self._stream = stream
        self._lane = lane
        self._opened = opened
        self._listener: Backlog | None = None
        self._accept: Callable[[], object] | None = None
        #: How often the second segment was sent.
        self._answers = 0

    def ask(self) -> None:
        """Send the first segment."""
        self._lane.transmit(SYN, 0)

    def answer(self, listener: Backlog, accept: Callable[[], object]) -> None:
        """A request has arrived for `listener`: send the second segment. Once all is over, `accept` is called."""
        self._listener, self._accept = listener, accept
        self._stream.step(Event.SYN)
        self._answer()

    def meet_itself(self) -> None:
        """The request has arrived where it came from: a simultaneous open of one socket (RFC 9293, 3.5)."""
        self._stream.step(Event.SYN)
        self._stream.step(Event.ACK)
        self._opened()
        self._stream.wake()

    def give_up(self) -> None:
        """The attempt has taken too long."""
        stream = self._stream
        if stream.state.connects and stream.error is None:
            stream.error = errno.ETIMEDOUT
            stream.wake()

    def receive_second(self) -> None:
        """The other side has answered; perhaps again, as it had no room for what was answered to that."""
        stream = self._stream
        is_first = stream.state.connects
        step = stream.step(Event.SYN_ACK)
        if is_first:
            self._opened()
            stream.wake()
        if step.answers:
            self._lane.transmit(ACK, 0)

    def receive_third(self) -> None:
        """The side that asked knows of the answer; or, later on, it asks for the window."""
        if not self._stream.state.connects:
            self._stream.step(Event.ACK)
            return
        listener, accept = self._listener, self._accept
        assert listener is not None, "only a listener answers a handshake"
        assert accept is not None
        if listener.backlog_full:
            again_s = SYN_AGAIN_S * 2 ** (self._answers - 1)
            self._kernel.call_at(self._kernel.now_s + again_s, self._answer_again)
            return
        self._listener = self._accept = None
        self._stream.step(Event.ACK)
        self._opened()
        accept()

    def _answer(self) -> None:
        self._answers += 1
        self._lane.transmit(SYN_ACK, 0)

    def _answer_again(self) -> None:
        if not self._stream.state.is_over:
            self._answer()
