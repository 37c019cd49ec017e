"""What a program has written to a connection and the wire does not have yet: it leaves as the peer's window allows.

Silly windows are avoided at both ends: a window is reopened by half a buffer at a time, and a waiting sender is woken
when a third of its buffer is free. Without that a run takes a hundred times as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from sim_net.net.segment import ACK, DATA, FIN
from sim_net.net.window_probe import WindowProbe

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel
    from sim_net.net.lane import Lane
    from sim_net.net.link import Link


class Writer(Protocol):
    """What a send buffer asks and tells the end that it is of."""

    @property
    def peer_is_gone(self) -> bool:
        """Whether the other end would answer by a reset."""

    def wait_for_acks(self) -> None:
        """Something waits that nothing acknowledges for now."""

    def left(self) -> None:
        """Some of what was written may have left: there may be room again."""

    def record(self, kind: str, **attributes: str | float) -> None:
        """Journal an entry."""


class SendBuffer:
    """At most `size_bytes` bytes, and perhaps the end after them."""

    __slots__ = (
        "_cut",
        "_data",
        "_end_is_due",
        "_journaled_held",
        "_lane",
        "_link",
        "_probe",
        "_segment_bytes",
        "_size_bytes",
        "_transmit",
        "_window_bytes",
        "_writer",
    )

    def __init__(
        self,
        kernel: Kernel,
        writer: Writer,
        link: Link,
        lane: Lane,
        cut: Callable[[int], int],
        *,
        size_bytes: int,
        segment_bytes: int,
    ) -> None:
        self._writer = writer
        self._link = link
        self._lane = lane
        self._transmit = lane.transmit
        #: How many of so many bytes a call moves now.
        self._cut = cut
        self._size_bytes = size_bytes
        self._segment_bytes = segment_bytes
        self._data = bytearray()
        #: How much the peer takes.
        self._window_bytes = 0
        self._end_is_due = False
        self._journaled_held = False
        self._probe = WindowProbe(kernel, self.ask_for_window)

    @property
    def is_empty(self) -> bool:
        """Whether all that was written has left."""
        return not self._data

    @property
    def has_room(self) -> bool:
        """Whether there is room worth waking a writer for."""
        return (self._size_bytes - len(self._data)) * 3 >= self._size_bytes

    def put(self, views: Sequence[memoryview], offered: int) -> int | None:
        """Take some of the `offered` bytes of `views`: how many, or None when there is no room."""
        data = self._data
        room = self._size_bytes - len(data)
        if room <= 0:
            return None
        taken = self._cut(min(offered, room))
        in_one_segment = taken == offered <= self._window_bytes and offered <= self._segment_bytes
        if in_one_segment and not data and not self._link.stalls:
            self._window_bytes -= offered
            self._transmit(DATA, bytes(views[0]) if len(views) == 1 else b"".join(views))
            return taken
        if taken < offered:
            self._writer.record("net.partial_write", size=taken)
            left = taken
            for view in views:
                data += view[:left]
                left -= min(left, len(view))
                if not left:
                    break
        else:
            for view in views:
                data += view
        self.pump()
        return taken

    def end(self) -> None:
        """Nothing more is written: the end follows what is here."""
        self._end_is_due = True
        self.pump()

    def opened(self, window_bytes: int) -> None:
        """The handshake is over: the peer takes so much."""
        self._window_bytes = window_bytes

    def reopened(self, by_bytes: int) -> None:
        """The peer takes so much more."""
        self._window_bytes += by_bytes
        self._probe.stop()
        self.pump()

    def pump(self) -> None:
        """Put on the wire what the peer's window allows, and let a waiting writer go on."""
        data = self._data
        if data:
            if self._link.stalls:
                if not self._journaled_held:
                    self._journaled_held = True
                    self._writer.record("net.held", size=len(data))
                self._probe.wait(peer_is_gone=self._writer.peer_is_gone)
                return
            self._journaled_held = False
            segment_bytes = self._segment_bytes
            while data and self._window_bytes:
                size = min(len(data), segment_bytes, self._window_bytes)
                segment = bytes(data) if size == len(data) else bytes(memoryview(data)[:size])
                del data[:size]
                self._window_bytes -= size
                self._transmit(DATA, segment)
            if not data:
                self._probe.stop()
            else:
                self._probe.wait(peer_is_gone=self._writer.peer_is_gone)
                if self._link.cuts:
                    self._writer.wait_for_acks()
        if self._end_is_due and not data:
            self._end_is_due = False
            self._transmit(FIN, 0)
        self._writer.left()

    def drop(self) -> None:
        """Nothing leaves any more."""
        self._data.clear()
        self._end_is_due = False
        self._probe.stop()

    def peer_has_gone(self) -> None:
        """The peer has ended without ceremony: what waits for its window finds that out by a probe."""
        if self._data:
            self._probe.wait(peer_is_gone=True)

    def ask_for_window(self, after_s: float = 0.0) -> None:
        """Probe the window, if data waits for one: a peer that is no more answers by a reset."""
        if self._data and self._writer.peer_is_gone and not self._link.blocked:
            self._lane.transmit_in(after_s, ACK, 0)
