"""The segments of one end that are on the wire, in order: what a link does to them, and when each one arrives.

Each segment is in the outbox until it arrives. Its arrival event in the kernel takes whatever is oldest, so order holds
by construction. A blocked link parks segments; a loss costs a retransmission time-out, unless a later segment gets
through first. A reset is not sent again after a loss, unless it answers a segment, as the segment itself is sent again.

Nothing here knows what a segment means to its connection: the sender's end is told what became of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from sim_net.net.segment import NO_CONNECTION, RESET, SYN, SYN_ACK, SYN_AGAIN_S, Payload, pack_arrival

if TYPE_CHECKING:
    from sim_net.net.link import Link
    from sim_net.net.network import Network
    from sim_net.net.tcp_state import State

# Linux's first and longest retransmission time-out, each twice the last (TCP_RTO_MIN, TCP_RTO_MAX); a handshake begins
# with `SYN_AGAIN_S`.
_SEND_AGAIN_S: Final = 0.2
_AGAIN_MAX_S: Final = 120.0


class Sender(Protocol):
    """What a lane asks and tells the end whose segments it carries."""

    @property
    def state(self) -> State:
        """The state of the end: of one that refuses what arrives a cut link takes what it has on the wire."""

    def arrived(self, kind: int, payload: Payload) -> None:
        """The segment is at the other end now."""

    def held(self, kind: int, payload: Payload) -> None:
        """The segment waits until the link lets it pass."""

    def queued(self, size: int, wait_s: float) -> None:
        """The segment waits for its turn on a link whose bandwidth a fault limits."""

    def lost(self, kind: int, payload: Payload, count: int) -> None:
        """The segment was lost; it is the loss number `count` since one got through."""

    def wait_for_acks(self) -> None:
        """Something is on the wire that nothing acknowledges for now."""

    def stop_waiting_for_acks(self) -> None:
        """A segment got through after losses."""

    def forget(self) -> None:
        """An aborted end has nothing on the wire any more."""


class Lane:
    """What one end has on the wire. 0 <= parked <= len(outbox): the parked ones are the oldest."""

    __slots__ = ("_draw", "_kernel", "_last_arrival_s", "_link", "_losses", "_outbox", "_parked", "_sender", "_serial")

    def __init__(self, network: Network, link: Link, sender: Sender, serial: int) -> None:
        self._kernel = network.kernel
        self._draw = network.draw
        self._link = link
        self._sender = sender
        self._serial = serial
        self._outbox: deque[tuple[int, Payload]] = deque()
        #: How many of the oldest wait until the link lets them pass. Each other one has an arrival event.
        self._parked = 0
        #: How many segments in a row were lost.
        self._losses = 0
        self._last_arrival_s = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on the wire."""
        return not self._outbox

    # --- for the endpoint -------------------------------------------------------------------------------------------

    def transmit(self, kind: int, payload: Payload) -> None:
        """Put a segment on the wire, after those that are there."""
        link = self._link
        if link.impeded:
            self._transmit_impeded(kind, payload)
            return
        self._outbox.append((kind, payload))
        kernel = self._kernel
        at = kernel.now_s + link.least_s + link.span_s * self._draw()
        if at < self._last_arrival_s:
            at = self._last_arrival_s
        else:
            self._last_arrival_s = at
        kernel.call_at(at, self._arrive)

    def transmit_in(self, after_s: float, kind: int, payload: Payload) -> None:
        """Put a segment on the wire that leaves in `after_s` seconds, whatever the bandwidth is."""
        self._outbox.append((kind, payload))
        self._arrive_in(after_s + self._link.latency_s())

    def send_again(self, after_s: float, kind: int, payload: Payload) -> None:
        """Let a segment that was not answered arrive once more, in `after_s` seconds."""
        self._outbox.append((kind, payload))
        self._kernel.call_at(self._kernel.now_s + after_s, self._arrive)

    def go_on(self, after_s: float) -> bool:
        """The link passes again: let the parked ones leave in `after_s` seconds, in order. Whether there are any."""
        parked, self._parked = self._parked, 0
        for _ in range(parked):
            self._arrive_in(after_s + self._link.latency_s())
        return parked > 0

    def clear(self) -> None:
        """Take everything from the wire."""
        self._outbox.clear()
        self._parked = 0

    def lose_parked(self) -> None:
        """Nobody is left to send again what was lost, and what follows it on the wire cannot be delivered either."""
        if self._parked and self._link.cuts:
            self.clear()

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _transmit_impeded(self, kind: int, payload: Payload) -> None:
        """Like `transmit`, on a link that a fault is at work on or whose bandwidth is limited."""
        link = self._link
        if link.cuts and kind == RESET and payload != NO_CONNECTION:
            return
        self._outbox.append((kind, payload))
        if link.blocked:
            self._hold(kind, payload)
            return
        size = len(payload) if type(payload) is bytes else 0
        wait_s = link.queueing_s(size)
        if size and wait_s and link.throttled:
            self._sender.queued(size, wait_s)
        self._arrive_in(wait_s + link.latency_s())

    def _arrive_in(self, after_s: float) -> None:
        """Let a segment arrive in `after_s` seconds, or later, in its turn."""
        kernel = self._kernel
        self._last_arrival_s = max(self._last_arrival_s, kernel.now_s + after_s)
        kernel.call_at(self._last_arrival_s, self._arrive)

    def _hold(self, kind: int, payload: Payload) -> None:
        """Keep the segment after those that wait already: it passes once the link lets it."""
        self._parked += 1
        assert self._parked <= len(self._outbox), "a segment that waits is on the wire"
        self._sender.held(kind, payload)

    def _arrive(self) -> None:
        """The arrival event of one segment: it takes whatever is oldest on the wire."""
        outbox = self._outbox
        if len(outbox) <= self._parked:
            return
        if self._link.impeded and not self._gets_through():
            return
        kind, payload = outbox.popleft()
        if self._losses:
            self._end_losses()
        if type(payload) is bytes:
            self._kernel.digest.add(pack_arrival(kind, self._serial, len(payload), crc32(payload)))
        else:
            self._kernel.digest.add(pack_arrival(kind, self._serial, 0, 0))
        sender = self._sender
        sender.arrived(kind, payload)
        if not outbox and sender.state.refuses:
            sender.forget()

    def _end_losses(self) -> None:
        """A segment got through: what comes after it does not wait for the time-outs that the losses have set."""
        self._losses = 0
        self._sender.stop_waiting_for_acks()
        if self._outbox:
            self._kernel.call_at(self._kernel.now_s + self._link.latency_s(), self._after_losses)

    def _after_losses(self) -> None:
        """Let arrive what is on the wire, up to the first segment that is lost again."""
        outbox = self._outbox
        for _ in range(len(outbox) - self._parked):
            waiting = len(outbox)
            self._arrive()
            if len(outbox) >= waiting:
                return

    def _gets_through(self) -> bool:
        """Whether the oldest segment on the wire arrives. The link may have been cut or held meanwhile, or lose it."""
        link, sender = self._link, self._sender
        kind, payload = self._outbox[self._parked]
        if link.blocked:
            if sender.state.refuses and link.cuts and payload != NO_CONNECTION:
                self.clear()
                sender.forget()
            else:
                self._hold(kind, payload)
            return False
        if not link.loses():
            return True
        self._losses += 1
        sender.lost(kind, payload, self._losses)
        if kind == RESET and payload != NO_CONNECTION:
            self._outbox.popleft()
            if not self._outbox:
                sender.forget()
            return False
        # What comes after it may arrive first: that is its turn then, as with TCP's fast retransmission.
        again_s = SYN_AGAIN_S if kind in (SYN, SYN_ACK) else _SEND_AGAIN_S
        kernel = self._kernel
        kernel.call_at(kernel.now_s + min(again_s * 2 ** (self._losses - 1), _AGAIN_MAX_S), self._arrive)
        sender.wait_for_acks()
        return False
