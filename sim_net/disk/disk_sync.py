"""The syncs of a disk that are under way: how long each takes, what holds it up, and what it leaves when it is over.

A sync runs in the kernel of its node, as `fsync` does that a worker thread has called: the task that waits for it
cannot be cancelled, and it goes on when the process is killed. Only power loss stops it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from sim_net.disk.directory import Directory
    from sim_net.disk.page_cache import CachedFile
    from sim_net.kernel.journal import Journal
    from sim_net.kernel.kernel import Kernel
    from sim_net.node import Incarnation


class DiskSyncs:
    """Those of one node. `draw_s` gives the time that the next one takes, while no fault is at work."""

    def __init__(self, kernel: Kernel, journal: Journal, node: str, draw_s: Callable[[], float]) -> None:
        self._kernel = kernel
        self._journal = journal
        self._node = node
        self._draw_s = draw_s
        self._extras_s: list[float] = []
        self._stuck = 0
        self._held: list[_Sync] = []
        self._power_losses = 0

    async def wait(self, operation: str, path: str, target: CachedFile | Directory, error: int | None) -> None:
        """Make what was done to `target` so far durable, or fail with errno `error`, in the disk's time."""
        kernel, incarnation = self._kernel, current_incarnation.get()
        took_s = self._draw_s()
        if self._extras_s:
            extra_s = sum(self._extras_s)
            took_s += extra_s
            self._journal.record(self._node, "storage.slow", path=path, operation=operation, extra_s=extra_s)
        sync = _Sync(operation, path, target, error, incarnation, self._power_losses)
        kernel.call_at(kernel.now_s + took_s, lambda: self._complete(sync))
        await trio.lowlevel.wait_task_rescheduled(sync.abort)
        if incarnation is not None and incarnation.fenced:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)
        if sync.error is not None:
            raise OSError(sync.error, os.strerror(sync.error), path)

    # --- faults -----------------------------------------------------------------------------------------------------

    def slow_down(self, extra_s: float) -> None:
        """Let each sync that begins from now on take `extra_s` longer."""
        self._extras_s.append(extra_s)

    def speed_up(self, extra_s: float) -> None:
        """Undo one `slow_down`."""
        if extra_s in self._extras_s:
            self._extras_s.remove(extra_s)

    def stick(self) -> None:
        """Let no sync come to its end until `unstick`."""
        self._stuck += 1

    def unstick(self) -> None:
        """Undo one `stick`; after the last, those that were held end at once, in the order of their time."""
        self._stuck = max(0, self._stuck - 1)
        if not self._stuck:
            held, self._held = self._held, []
            for sync in held:
                self._complete(sync)

    def end_faults(self) -> None:
        """Undo all of them."""
        self._extras_s.clear()
        self._stuck = 0
        self.unstick()

    def power_off(self) -> None:
        """Stop everything that is under way, with nothing done; EIO for those who wait, and live."""
        self._power_losses += 1
        held, self._held = self._held, []
        for sync in held:
            self._complete(sync)

    # --- below ------------------------------------------------------------------------------------------------------

    def _complete(self, sync: _Sync) -> None:
        if sync.power_losses != self._power_losses:
            sync.error = errno.EIO
        elif self._stuck:
            self._held.append(sync)
            self._journal.record(self._node, "storage.stuck", path=sync.path, operation=sync.operation)
            sync.let_go_when_killed(self._kernel)
            return
        elif sync.error is not None:
            sync.target.fail_sync(sync.mark)
            status = errno.errorcode[sync.error]
            self._journal.record(self._node, "storage.error", path=sync.path, operation=sync.operation, status=status)
        else:
            sync.target.settle(sync.mark)
        sync.wake(self._kernel)


class _Sync:
    __slots__ = ("error", "incarnation", "mark", "operation", "path", "power_losses", "target", "task")

    def __init__(
        self,
        operation: str,
        path: str,
        target: CachedFile | Directory,
        error: int | None,
        incarnation: Incarnation | None,
        power_losses: int,
    ) -> None:
        self.operation = operation
        self.path = path
        self.target = target
        self.mark = target.mark()
        self.error = error
        self.incarnation = incarnation
        self.power_losses = power_losses
        #: The task that waits; None once woken or aborted.
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if self.incarnation is None or not self.incarnation.fenced:
            return trio.lowlevel.Abort.FAILED
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self, kernel: Kernel) -> None:
        if self.task is not None:
            task, self.task = self.task, None
            kernel.wake(task)

    def let_go_when_killed(self, kernel: Kernel) -> None:
        """It may never end: so its task must hear of the kill even behind a shield."""
        if self.incarnation is None:
            return
        if self.incarnation.fenced:
            self.wake(kernel)
        else:
            self.incarnation.fence_callbacks.append(lambda: self.wake(kernel))
