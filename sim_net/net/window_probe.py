"""When a sender asks for a window that is shut: TCP's persist timer (RFC 9293, 3.8.6.1), with Linux's times.

A peer that is there answers "still shut", which changes nothing, so that is not simulated: a world in which everybody
waits is a deadlock, and waiting costs nothing. A probe is sent once it finds something out: the other end is no more,
and the reset that said so was lost. From then on the probe, and the reset that answers it, are sent again like any
lost segment, until the sender knows or gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel, Timer

_FIRST_S: Final = 0.2
_LONGEST_S: Final = 120.0


def next_probe_s(shut_s: float, now_s: float) -> float:
    """When the next probe after `now_s` is due, of a window that is shut since `shut_s`: each waits twice as long."""
    due_s, wait_s = shut_s + _FIRST_S, _FIRST_S
    while due_s <= now_s:
        wait_s = min(2 * wait_s, _LONGEST_S)
        due_s += wait_s
    return due_s


class WindowProbe:
    """The persist timer of one end of a connection; `ask` sends a probe."""

    __slots__ = ("_ask", "_kernel", "_shut_s", "_timer")

    def __init__(self, kernel: Kernel, ask: Callable[[], object]) -> None:
        self._kernel = kernel
        self._ask = ask
        self._shut_s: float | None = None
        self._timer: Timer | None = None

    def wait(self, *, peer_is_gone: bool) -> None:
        """Something waits for the window, perhaps for a while already."""
        kernel = self._kernel
        if self._shut_s is None:
            self._shut_s = kernel.now_s
        if peer_is_gone and self._timer is None:
            self._timer = kernel.timer_at(next_probe_s(self._shut_s, kernel.now_s), self._is_due)

    def stop(self) -> None:
        """The window is open, or nothing waits for it any more."""
        self._shut_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_due(self) -> None:
        self._timer = None
        self._ask()
