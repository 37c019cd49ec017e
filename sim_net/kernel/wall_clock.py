"""A node's wall clock: the world's epoch plus virtual time, plus what this clock is off by: skew, jumps, drift.

Trio's clock is one for the whole world: time-outs and sleeps are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel

_MILLION: Final = 1_000_000


class SimWallClock:
    """Milliseconds since the Unix epoch, as one node believes them."""

    def __init__(self, kernel: Kernel, epoch_ms: int) -> None:
        self._kernel = kernel
        self._epoch_ms = epoch_ms
        #: How far this node's clock is ahead of the world's, in ms, apart from drift; may be set at any time.
        self.skew_ms = 0
        self._rates_ppm: list[float] = []
        self._drifting_since_ns = 0
        self._drifted_ns = 0

    def now_ms(self) -> int:
        """The node's present time, in ms since the epoch."""
        now_ns = self._kernel.now_ns
        drifted_ns = self._drifted_ns_at(now_ns) if self._rates_ppm else self._drifted_ns
        return self._epoch_ms + self.skew_ms + (now_ns + drifted_ns) // _MILLION

    def utc_offset_s(self, at_ms: int) -> int:
        """0: every node is in UTC."""
        return 0

    def jump(self, by_ms: int) -> None:
        """Set the clock forward by `by_ms`, or back if that is negative."""
        self.skew_ms += by_ms

    def begin_drift(self, rate_ppm: float) -> None:
        """Gain `rate_ppm` us a second from now on, or lose them; rates add up, but the clock never runs backwards."""
        self._settle()
        self._rates_ppm.append(rate_ppm)

    def end_drift(self, rate_ppm: float) -> None:
        """Undo one `begin_drift`. What was gained or lost stays."""
        self._settle()
        self._rates_ppm.remove(rate_ppm)

    def _settle(self) -> None:
        now_ns = self._kernel.now_ns
        self._drifted_ns = self._drifted_ns_at(now_ns)
        self._drifting_since_ns = now_ns

    def _drifted_ns_at(self, now_ns: int) -> int:
        rate_ppm = max(sum(self._rates_ppm), -_MILLION)
        return self._drifted_ns + round((now_ns - self._drifting_since_ns) * rate_ppm / _MILLION)
