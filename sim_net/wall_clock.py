"""A node's wall clock: the world's epoch plus virtual time plus the node's own skew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim_net.kernel import Kernel


class SimWallClock:
    """Milliseconds since the Unix epoch, as one node believes them."""

    def __init__(self, kernel: Kernel, epoch_ms: int) -> None:
        self._kernel = kernel
        self._epoch_ms = epoch_ms
        #: How far this node's clock is ahead of the world's, in ms; may be set at any time.
        self.skew_ms = 0

    def now_ms(self) -> int:
        """The node's present time, in ms since the epoch."""
        return self._epoch_ms + self.skew_ms + self._kernel.now_ns // 1_000_000
