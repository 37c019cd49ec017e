"""What has arrived at one end of a connection and was not read yet, and the window that the peer may fill."""

from __future__ import annotations


class ReceiveBuffer:
    """At most `window_bytes` bytes: the peer never sends more than it was told there is room for."""

    __slots__ = ("_unannounced", "data", "ends", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.data = bytearray()
        #: Whether a read finds the end after `data`: the peer has ended what it sends, or reading was shut down here.
        self.ends = False
        self.window_bytes = window_bytes
        #: How much was read since the peer was last told of room.
        self._unannounced = 0

    def took(self, size: int) -> int:
        """`size` bytes were read: drop them. By how much the window opens again: half a buffer at a time, or 0."""
        del self.data[:size]
        self._unannounced += size
        if self._unannounced * 2 < self.window_bytes:
            return 0
        announced, self._unannounced = self._unannounced, 0
        return announced
