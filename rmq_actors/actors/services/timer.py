"""One task for all that a broker does from time to time (RocketMQ's scheduled executors): a deadline for many jobs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp

#: What is due so soon after something else runs with it: the loop wakes once for both.
_SLACK_S = 0.01


@attrs.define(eq=False, repr=False)
class _Job:
    run: Callable[[], None]
    owner: ServiceThread
    interval_s: float
    due_s: float


@attrs.define(eq=False, repr=False)
class Timer(ServiceThread):
    """Runs jobs of services at their times, one after the other.

    A job is a plain function, so that none keeps another waiting: what syncs a disk or asks a peer wakes its service,
    which does that in its own task. A job that raises is a failure of its service.
    """

    name = "Timer"
    _jobs: list[_Job] = attrs.field(factory=list, init=False)
    _wakes_at_s: float = attrs.field(default=math.inf, init=False)
    _sooner: WakeUp = attrs.field(factory=WakeUp, init=False)

    @contextlib.contextmanager
    def every(
        self, interval_s: float, run: Callable[[], None], owner: ServiceThread, *, first_after_s: float | None = None
    ) -> Iterator[None]:
        """Run a job once an interval, for as long as the context lasts; after a pause once, not as often as was missed.

        `first_after_s` from now for the first time, an interval by default.
        """
        job = _Job(
            run, owner, interval_s, trio.current_time() + (interval_s if first_after_s is None else first_after_s)
        )
        self._jobs.append(job)
        if job.due_s < self._wakes_at_s:
            self._sooner.wakeup()
        try:
            yield
        finally:
            if job in self._jobs:
                self._jobs.remove(job)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Sleep until a job is due, and run it."""
        task_status.started()
        while True:
            self._wakes_at_s = min((job.due_s for job in self._jobs), default=math.inf)
            if not await self._sooner.wait_for_running(self._wakes_at_s):
                self._run_due(trio.current_time())

    def _run_due(self, now_s: float) -> None:
        due = [job for job in self._jobs if job.due_s <= now_s + _SLACK_S]
        if len(due) > 1:
            due.sort(key=lambda job: job.due_s)
        for job in due:
            job.due_s += job.interval_s * max(1, 1 + math.floor((now_s - job.due_s) / job.interval_s))
            if job not in self._jobs:
                continue  # its service has ended by what another job did
            try:
                job.run()
            except Exception as error:  # noqa: BLE001  # its service crashes by it
                self._jobs.remove(job)
                job.owner.fail(error)
