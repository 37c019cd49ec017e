"""The wall clock, for record time stamps only: time-outs come from Trio's, so a jump expires nothing."""

from __future__ import annotations

from typing import Protocol


class WallClock(Protocol):
    """Milliseconds since the Unix epoch, as this node believes them; may jump or drift."""

    def now_ms(self) -> int:
        """The node's present time, in ms since the epoch."""
        ...
