"""The retransmission time-out of one end: how long a sender goes on without an acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel, Timer


class AckTimer:
    """Calls `give_up` once something was not acknowledged for `timeout_s`."""

    __slots__ = ("_give_up", "_kernel", "_timeout_s", "_timer")

    def __init__(self, kernel: Kernel, timeout_s: float, give_up: Callable[[], object]) -> None:
        self._kernel = kernel
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._timer: Timer | None = None

    def wait(self) -> None:
        """Something is not acknowledged, perhaps for a while already."""
        if self._timer is None:
            self._timer = self._kernel.timer_at(self._kernel.now_s + self._timeout_s, self._is_due)

    def stop(self) -> None:
        """Acknowledgements get through, or nothing waits for one any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_due(self) -> None:
        self._timer = None
        self._give_up()
