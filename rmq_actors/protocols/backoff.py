"""How long to wait before the next attempt: doubling, bounded, with jitter."""

from __future__ import annotations

import attrs


@attrs.define(eq=False, repr=False)
class Backoff:
    """Pauses in seconds, from `pause_min_s` doubling to `pause_max_s`."""

    pause_min_s: float
    pause_max_s: float
    _failures: int = attrs.field(default=0, init=False)

    def next_pause_s(self, chance: float) -> float:
        """The pause after another failure: half of it fixed, half scaled by `chance` in [0, 1)."""
        pause_s = min(self.pause_min_s * 2.0 ** min(self._failures, 32), self.pause_max_s)
        self._failures += 1
        return pause_s * (0.5 + chance / 2)

    def succeeded(self) -> None:
        """Begin again with the shortest pause."""
        self._failures = 0
