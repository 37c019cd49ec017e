"""Every private name and undocumented fact of Trio that sim_net leans on; nowhere else.

Each fact has a guard test of the same number in `tests/simulation/test_sim_guard.py`, which fails when Trio changes.

1. Trio shuffles each batch of runnable tasks with `trio._core._run._r`, and sorts it by order of spawning before that
   only if `_ALLOW_DETERMINISTIC_SCHEDULING` is set. Both are read at each batch. Either alone leaves several
   schedules for one seed. The batch is a list of which every task takes one step, the last one first.
2. Worker threads come from `trio._core._thread_cache.THREAD_CACHE`, looked up at each use.
3. `Clock.deadline_to_sleep_time` is called only when no task can run, with the next deadline, `inf` if there is none.
4. From within that call tasks may be rescheduled and spawned and scopes cancelled; expired deadlines are looked for
   afterwards.
5. An exception from `Clock.current_time` in Trio's loop ends the run as a `TrioInternalError`.
6. `run_sync_soon` wakes the loop through a real socket pair, so "nothing left to do" must look at its queue, which is
   `runner.entry_queue`.
7. The I/O manager is an object of the runner, whose class may be swapped for a subclass without fields; its
   `get_events` may answer "none", and only Trio's own wake-up socket waits in it.
8. The instruments' `task_spawned` and the batches come in the same order in every process for one seed
   (`task_scheduled` does not: it follows sets ordered by address). So the functions that undo a wait must be
   commutative.
9. `task._cancel_status` and its parents lead to the cancel scopes around a task; clearing their `shield` lets a
   pending cancellation through.
10. `runner.runq` is a deque that is looked up at each use; a task becomes runnable by its `append` alone, and one that
    is kept out of it does not run, is not counted as runnable, and may be appended later.
11. Scopes may be cancelled from within the instruments' `before_task_step` and `after_task_step`; after the step of a
    task that begins to wait, that aborts its wait.
12. A task that waits in `wait_all_tasks_blocked` is a key of `runner.waiting_for_idle`, a sorted mapping; its first
    entry is the shortest time for which nothing may run. When the clock tells Trio to sleep for longer, and no task
    becomes runnable by an expired deadline, those of that time go on. Trio sleeps for a day at most: longer waits have
    no end.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from trio import CancelScope
from trio._core import _run, _thread_cache
from trio.lowlevel import Task

_scheduler: Final[dict[str, Any]] = vars(_run)
_threads: Final[dict[str, Any]] = vars(_thread_cache)

LONGEST_SLEEP_S: Final = 86_400
_RUNS_A_COLLECTION: Final = 16
_RUNS_A_COLLECTION_OF_MANY: Final = 4
_COLLECTIONS_A_FULL_ONE: Final = 16
_runs = 0
_many = False
_collects = False

#: Stands in for Trio's thread cache; called with a description of what was asked for.
RefuseThread = Callable[[str], NoReturn]


class _NoThreads:
    def __init__(self, refuse: RefuseThread) -> None:
        self._refuse = refuse

    def start_thread_soon(self, fn: Callable[[], object], deliver: object, name: str | None = None) -> NoReturn:
        """Refuse, naming what should have run, if Trio knows: it calls a function without a name "None"."""
        known = name and not name.startswith("None from ")
        self._refuse(f"a worker thread for {name if known else 'a function without a name'}")


class _Scheduler:
    """Stands in for Trio's generator: decides the order of each batch, and shows it before its tasks run."""

    __slots__ = ("random", "shuffle", "uniform")

    def __init__(self, seed: str, take_batch: Callable[[list[Task]], object]) -> None:
        generator = random.Random(seed)
        getrandbits = generator.getrandbits
        self.random = generator.random
        self.uniform = generator.uniform

        def shuffle(batch: list[Task]) -> None:
            for last in range(len(batch) - 1, 0, -1):
                bits = (last + 1).bit_length()
                chosen = getrandbits(bits)
                while chosen > last:
                    chosen = getrandbits(bits)
                batch[last], batch[chosen] = batch[chosen], batch[last]
            take_batch(batch)

        self.shuffle = shuffle


@contextmanager
def deterministic_trio(
    seed: int, refuse_thread: RefuseThread, take_batch: Callable[[list[Task]], object]
) -> Iterator[None]:
    """Make a `trio.run` inside depend on `seed` alone: scheduler, `random`, no threads, no automatic collector.

    `take_batch` is called with the tasks that are about to take a step each, in order from the last to the first.

    Everything is put back afterwards. Cyclic garbage of a run is collected by `collect_cycles` during it, which leaves
    out what was there before, and between runs: before one in a few. A run leaves as many young objects as a large
    program: the collector would walk them all as soon as it is let loose, so they are handed on as old ones.
    """
    global _runs, _collects  # noqa: PLW0603 - of the process, not of a world
    _runs += 1
    allow = _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"]
    generator = _scheduler["_r"]
    random_state = random.getstate()
    cache = _threads["THREAD_CACHE"]
    collecting = gc.isenabled()
    if (collecting and not _runs % _RUNS_A_COLLECTION) or (_many and not _runs % _RUNS_A_COLLECTION_OF_MANY):
        gc.collect()
    _collects = collecting or _many
    freezing = collecting and not gc.get_freeze_count()
    if collecting:
        gc.disable()
    if freezing:
        gc.freeze()
    try:
        _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
        _scheduler["_r"] = _Scheduler(f"{seed}/scheduler", take_batch)
        random.seed(f"{seed}/random")
        _threads["THREAD_CACHE"] = _NoThreads(refuse_thread)
        yield
    finally:
        _threads["THREAD_CACHE"] = cache
        random.setstate(random_state)
        _scheduler["_r"] = generator
        _scheduler["_ALLOW_DETERMINISTIC_SCHEDULING"] = allow
        _collects = False
        if freezing:
            gc.freeze()
            gc.unfreeze()
        if collecting:
            gc.enable()


def collect_cycles(count: int) -> None:
    """Within a run: collect its cyclic garbage, for the `count`-th time: the young, now and then all of it.

    Nothing, if the caller has turned the collector off.
    """
    if _collects:
        gc.collect(1 if count % _COLLECTIONS_A_FULL_ONE else 2)


@contextmanager
def many_runs() -> Iterator[None]:
    """For a block that does little but run worlds: what is there now is left out of every collection.

    A collection is the only thing in a run's price that grows with the process around it. Blocks may nest; a collector
    that somebody has disabled, or a heap that somebody has frozen, is left alone.
    """
    global _many  # noqa: PLW0603 - of the process, not of a world
    if _many or not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    _many = True
    try:
        yield
    finally:
        _many = False
        gc.unfreeze()
        gc.enable()


def run_sync_soon_queues() -> tuple[Sized, Sized]:
    """Within a run: the callbacks (plain, idempotent) that the loop finds only by asking the operating system."""
    entry_queue = _run.GLOBAL_RUN_CONTEXT.runner.entry_queue
    return entry_queue.queue, entry_queue.idempotent_queue


def waiting_for_idle() -> Mapping[tuple[float, int], Task]:
    """Within a run: tasks that wait until all are blocked; the keys begin with for how long, the shortest first."""
    waiting: Mapping[tuple[float, int], Task] = _run.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle
    return waiting


def cancel_scopes_around(task: Task) -> Iterator[CancelScope]:
    """The cancel scopes that a task is in, from the innermost; none if it has ended."""
    status: _run.CancelStatus | None = task._cancel_status
    while status is not None:
        yield status._scope
        status = status.parent


def break_shields(tasks: Iterable[Task]) -> None:
    """Take the shield from every cancel scope around `tasks`, so that a run that has failed can be unwound."""
    for task in tasks:
        for scope in cancel_scopes_around(task):
            if scope.shield:
                scope.shield = False


class _FilteredRunQueue(deque[Task]):
    """A run queue that keeps out the tasks that `keep_back` takes."""

    def __init__(self, tasks: Iterable[Task], keep_back: Callable[[Task], bool]) -> None:
        super().__init__()
        self._keep_back = keep_back
        for task in tasks:
            self.append(task)

    def append(self, task: Task) -> None:
        if not self._keep_back(task):
            super().append(task)


def filter_run_queue(keep_back: Callable[[Task], bool] | None) -> None:
    """Within a run: let `keep_back` take tasks that are or become runnable, by answering true; None ends that."""
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    runner.runq = deque(runner.runq) if keep_back is None else _FilteredRunQueue(runner.runq, keep_back)


def extend_run_queue(tasks: Iterable[Task]) -> None:
    """Within a run: let tasks run that were kept back."""
    _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(tasks)


def leave_io_alone(refuse_io: Callable[[str], NoReturn]) -> None:
    """Within a run: ask the operating system for events only when Trio has woken itself, and refuse real descriptors.

    Nothing is ever waited for: "sleep" is what the clock says for "no task can run" (see `waiting_for_idle`).

    A simulated program has no real sockets, and a system call each pass is a sixth of the time of an idle step.
    """
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    manager = runner.io_manager
    entry_queue = runner.entry_queue
    real_class = type(manager)

    class SimulatedIOManager(real_class):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def get_events(self, timeout: float) -> Any:
            if not entry_queue.queue and not entry_queue.idempotent_queue:
                return []
            return real_class.get_events(self, timeout)

        async def wait_readable(self, fd: Any) -> None:
            if fd is not entry_queue.wakeup.wakeup_sock:
                refuse_io(f"waiting for the real descriptor {fd!r} to become readable")
            await real_class.wait_readable(self, fd)

        async def wait_writable(self, fd: Any) -> None:
            refuse_io(f"waiting for the real descriptor {fd!r} to become writable")

    manager.__class__ = SimulatedIOManager
