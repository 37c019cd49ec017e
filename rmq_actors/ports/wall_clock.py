"""The wall clock, for record time stamps only: time-outs come from Trio's clock, so a jump expires nothing."""

from __future__ import annotations

from typing import Protocol


class WallClock(Protocol):
    """Milliseconds since the Unix epoch, as this node believes them; may jump or drift."""

    def now_ms(self) -> int:
        """The node's present time, in ms since the epoch."""
        ...

    def utc_offset_s(self, at_ms: int) -> int:
        """How many seconds the node's local time is ahead of UTC at `at_ms`, ms since the epoch."""
        ...
