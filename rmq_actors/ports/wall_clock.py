"""The wall clock: record time stamps only. Time-outs come from Trio's clock, so a jumping wall clock expires nothing."""

from __future__ import annotations

from typing import Protocol


class WallClock(Protocol):
    """Milliseconds since the Unix epoch, as this node believes them; may jump or drift."""

    def now_ms(self) -> int:
        """The node's present time, in ms since the epoch."""
        ...
