"""Every private name and undocumented fact of Trio that sim_net leans on; nowhere else.

Each fact has a guard test of the same number in `tests/simulation/test_sim_guard.py`, which fails when Trio changes.

1. Trio shuffles each batch of runnable tasks with `trio._core._run._r`, and sorts it by order of spawning before that
   only if `_ALLOW_DETERMINISTIC_SCHEDULING` is set. Both are read at each batch. Either alone leaves several
   schedules for one seed.
2. Worker threads come from `trio._core._thread_cache.THREAD_CACHE`, looked up at each use.
3. `Clock.deadline_to_sleep_time` is called only when no task can run, with the next deadline, `inf` if there is none.
4. From within that call tasks may be rescheduled and spawned and scopes cancelled; expired deadlines are looked for
   afterwards.
5. An exception from `Clock.current_time` in Trio's loop ends the run as a `TrioInternalError`.
6. `run_sync_soon` wakes the loop through a real socket pair, so "nothing left to do" must look at its queue, which is
   `runner.entry_queue`.
7. The I/O manager is an object of the runner, whose class may be swapped for a subclass without fields; its
   `get_events` may answer "none", and only Trio's own wake-up socket waits in it.
8. The instruments' `task_spawned` and `before_task_step` come in the same order in every process for one seed
   (`task_scheduled` does not: it follows sets ordered by address). So the functions that undo a wait must be
   commutative.
9. `task._cancel_status` and its parents lead to the cancel scopes around a task; clearing their `shield` lets a
   pending cancellation through.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from trio._core import _run, _thread_cache
from trio.lowlevel import Task

_scheduler: Final[dict[str, Any]] = vars(_run)
_threads: Final[dict[str, Any]] = vars(_thread_cache)

_RUNS_A_FULL_COLLECTION: Final = 64
_runs = 0

#: Stands in for Trio's thread cache; called with a description of what was asked for.
RefuseThread = Callable[[str], NoReturn]


class _NoThreads:
    def __init__(self, refuse: RefuseThread) -> None:
        self._refuse = refuse

    def start_thread_soon(self, fn: Callable[[], object], deliver: object, name: str | None = None) -> NoReturn:
        """Refuse, naming what should have run."""
        self._refuse(f"a worker thread for {name or getattr(fn, '__qualname__', type(fn).__name__)}")


@contextmanager
def deterministic_trio(seed: int, refuse_thread: RefuseThread) -> Iterator[None]:
    """Make a `trio.run` inside depend on `seed` alone: scheduler, `random`, no threads, no cyclic collector.

    Everything is put back afterwards. Cyclic garbage is collected between runs, where finalizers can change none: that
    of the last run, which is young, before each one; all of it now and then, as that costs more than a short run.
    """
    global _runs  # noqa: PLW0603 - of the process, not of a world
    _runs += 1
    allow = _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"]
    scheduler_state = _scheduler["_r"].getstate()
    random_state = random.getstate()
    cache = _threads["THREAD_CACHE"]
    collecting = gc.isenabled()
    if collecting:
        gc.collect(1 if _runs % _RUNS_A_FULL_COLLECTION else 2)
        gc.disable()
    try:
        _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
        _scheduler["_r"].seed(f"{seed}/scheduler")
        random.seed(f"{seed}/random")
        _threads["THREAD_CACHE"] = _NoThreads(refuse_thread)
        yield
    finally:
        _threads["THREAD_CACHE"] = cache
        random.setstate(random_state)
        _scheduler["_r"].setstate(scheduler_state)
        _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"] = allow
        if collecting:
            gc.enable()


def run_sync_soon_queues() -> tuple[Sized, Sized]:
    """Within a run: the callbacks (plain, idempotent) that the loop finds only by asking the operating system."""
    entry_queue = _run.GLOBAL_RUN_CONTEXT.runner.entry_queue
    return entry_queue.queue, entry_queue.idempotent_queue


def break_shields(tasks: Iterable[Task]) -> None:
    """Take the shield from every cancel scope around `tasks`, so that a run that has failed can be unwound."""
    for task in tasks:
        status: _run.CancelStatus | None = task._cancel_status
        while status is not None:
            if status._scope.shield:
                status._scope.shield = False
            status = status.parent


def leave_io_alone(refuse_io: Callable[[str], NoReturn]) -> None:
    """Within a run: ask the operating system for events only when Trio has woken itself, and refuse real descriptors.

    A simulated program has no real sockets, and a system call each pass is a sixth of the time of an idle step.
    """
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    manager = runner.io_manager
    entry_queue = runner.entry_queue
    real_class = type(manager)

    class SimulatedIOManager(real_class):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def get_events(self, timeout: float) -> Any:
            if timeout <= 0 and not entry_queue.queue and not entry_queue.idempotent_queue:
                return []
            return real_class.get_events(self, timeout)

        async def wait_readable(self, fd: Any) -> None:
            if fd is not entry_queue.wakeup.wakeup_sock:
                refuse_io(f"waiting for the real descriptor {fd!r} to become readable")
            await real_class.wait_readable(self, fd)

        async def wait_writable(self, fd: Any) -> None:
            refuse_io(f"waiting for the real descriptor {fd!r} to become writable")

    manager.__class__ = SimulatedIOManager
