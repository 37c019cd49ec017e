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

    def utc_offset_s(self, at_ms: int) -> int:
        """By the machine's local time zone."""
        return time.localtime(at_ms // 1000).tm_gmtoff
