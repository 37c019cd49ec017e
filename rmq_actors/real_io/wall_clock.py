"""The machine's wall clock."""

from __future__ import annotations

import time

import attrs


@attrs.frozen
class SystemWallClock:
    """`ports.WallClock` by the operating system."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
