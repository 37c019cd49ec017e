"""The clock as event kernel.

Trio asks its clock for the time to sleep only when no task can run. There the kernel takes the next event of the
simulated world from one heap, or jumps to Trio's next deadline, and answers "do not sleep". So a packet is a
callback, no task polls, and virtual time moves exactly when nothing is left to do. The kernel is also the Trio
instrument that counts and digests every task step. It knows nothing of networks, disks or nodes.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Final

import trio

from sim_net.kernel import determinism
from sim_net.kernel.digest import digest_factory
from sim_net.kernel.task_tree import describe_task, format_task_tree, task_token

if TYPE_CHECKING:
    from trio.lowlevel import Task

_pack_time = struct.Struct("<d").pack
_TALLY_STEPS: Final = 256
#: A simulated run depends on nothing but its seed, so garbage with finalizers is collected at certain steps, as time
#: moves on. So many steps leave some MB of garbage at most; most runs are shorter.
_STEPS_A_COLLECTION: Final = 8192
_STEPS_TO_UNWIND: Final = 20_000
_TIME_TO_UNWIND_S: Final = 3600.0
_FORCED_MAX: Final = 4


class SimulationError(Exception):
    """The world could not go on; the base of what `World.run` raises on its own account."""


class Deadlock(SimulationError):
    """Every task waits and nothing is left that could wake one; the message holds the task tree."""


class Livelock(SimulationError):
    """Too many steps at one instant; the message names the task that spins."""


class StepsExceeded(SimulationError):
    """The run took more than `WorldConfig.steps_max` task steps."""


class VirtualTimeExceeded(SimulationError):
    """The run went past `WorldConfig.virtual_time_max_s`."""


class TasksIgnoreCancellation(BaseException):
    """Raised out of Trio's loop when a failed run cannot be unwound; `World.run` reports the failure itself."""


class Timer:
    """A callback that the kernel will make; see `Kernel.call_at`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Do not call back any more; harmless after the fact."""
        self.callback = None


class Kernel(trio.abc.Clock, trio.abc.Instrument):
    """Virtual time, the heap of events, the step counter and the digest of one run."""

    def __init__(self, *, steps_max: int, steps_at_one_instant_max: int, virtual_time_max_s: float) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.events = 0
        self.digest = digest_factory.get()(self)
        self.failure: BaseException | None = None
        #: Called once, when the run has failed: cancel everything.
        self.on_failure: Callable[[], None] = lambda: None
        #: The last events of each node in words, for reports.
        self.describe_history: Callable[[], str] = lambda: ""
        #: A callback sets this when it may have made a task runnable or moved a deadline.
        self.woken = False
        #: Trio's callbacks that are not yet in a task; while there are any, time stands still.
        self.run_sync_soon_queues: tuple[Sized, Sized] = ((), ())
        #: Tasks that wait until none has run for some seconds (the first part of the key), the shortest time first.
        self.waiting_for_idle: Mapping[tuple[float, int], object] = {}
        self._heap: list[tuple[float, int, Callable[[], object] | Timer]] = []
        self._scheduled = 0
        self._steps_max = steps_max
        self._steps_at_one_instant_max = steps_at_one_instant_max
        self._virtual_time_max_s = virtual_time_max_s
        self._time_limit_s = virtual_time_max_s
        self._steps_limit = min(steps_max, steps_at_one_instant_max)
        self._events_limit = steps_at_one_instant_max
        self._tally: dict[Task, int] = {}
        self._tasks_spawned = 0
        self._numbers: dict[Task, int] = {}
        self._tokens: dict[Task, bytes] = {}
        self._add_step = self.digest.add_step
        self._add_steps = self.digest.add_steps
        self._add_time = self.digest.add_time
        self._collect_at = _STEPS_A_COLLECTION
        self._collections = 0
        self._last_step = 0
        self._idle_since_s = 0.0
        self._forced = 0
        self._hopeless = False

    # --- time and events --------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time since the start of the run, in ns."""
        return round(self.now_s * 1e9)

    def call_at(self, time_s: float, callback: Callable[[], object]) -> None:
        """Call `callback` at virtual time `time_s` (now, if that is past), outside any task.

        Callbacks for one instant run in the order they were asked for. One that wakes a task, cancels a scope or moves
        a deadline must set `woken`.
        """
        self._scheduled += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._scheduled, callback))

    def timer_at(self, time_s: float, callback: Callable[[], object]) -> Timer:
        """Like `call_at`, for a callback that may be called off."""
        timer = Timer(callback)
        self._scheduled += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._scheduled, timer))
        return timer

    def wake(self, task: Task) -> None:
        """Make a task runnable that blocks in `trio.lowlevel.wait_task_rescheduled`."""
        self.woken = True
        trio.lowlevel.reschedule(task)

    def fail(self, error: BaseException) -> None:
        """End the run with `error`; the first failure wins. Everything is cancelled."""
        if self.failure is not None:
            return
        self.failure = error
        self.woken = True
        self._tally.clear()
        self._steps_limit = self.steps + _STEPS_TO_UNWIND
        self._time_limit_s = self.now_s + _TIME_TO_UNWIND_S
        self.on_failure()

    # --- trio.abc.Clock ---------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Trio's run begins."""

    def current_time(self) -> float:
        """Virtual seconds since the start."""
        if self._hopeless:
            raise TasksIgnoreCancellation
        return self.now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """No task can run: let the world go on until one can, or until `deadline`. Trio does not sleep in a world.

        "Sleep" as the answer lets those go on who wait for all tasks to be blocked: nothing has run for as long as
        they want, in virtual time.
        """
        queue, idempotent_queue = self.run_sync_soon_queues
        if queue or idempotent_queue:
            return 0.0  # a task waits for the operating system to say so
        heap = self._heap
        self.woken = False
        idle_at_s = self._find_idle_at_s() if self.waiting_for_idle else math.inf
        is_idle = idle_at_s < deadline
        if is_idle:
            deadline = idle_at_s
        while heap and heap[0][0] <= deadline:
            time_s, _, callback = heapq.heappop(heap)
            if type(callback) is Timer:
                if callback.callback is None:
                    continue
                callback = callback.callback
            if time_s > self.now_s and not self._advance(time_s):
                return 0.0
            self.events += 1
            if self.events >= self._events_limit:
                self._events_exceeded()
                return 0.0
            try:
                callback()  # type: ignore[operator]
            except BaseException as error:  # noqa: BLE001 - out of a clock it would be a TrioInternalError
                self.fail(error)
            if self.woken:
                return 0.0
        if deadline == math.inf:
            self._nothing_left()
        elif deadline > self.now_s:
            is_idle &= self._advance(deadline)
        return math.inf if is_idle else 0.0

    def _find_idle_at_s(self) -> float:
        """When the next task that waits for all others to be blocked goes on, if none runs till then."""
        if self._last_step != self.steps:  # a wake-up of the loop alone does not count
            self._last_step, self._idle_since_s = self.steps, self.now_s
        idle_s = next(iter(self.waiting_for_idle))[0]
        return self._idle_since_s + idle_s if idle_s < determinism.LONGEST_SLEEP_S else math.inf

    def _advance(self, time_s: float) -> bool:
        if time_s > self._time_limit_s:
            if self.failure is not None:
                self._force_unwinding()
                return False
            self.fail(
                VirtualTimeExceeded(
                    f"virtual time would pass the limit of {self._virtual_time_max_s} s (next event at {time_s} s)"
                    f"{self._describe_state()}"
                )
            )
            return False
        self.now_s = float(time_s)  # a deadline may be an int
        self._add_time(_pack_time(time_s))
        self.digest.flush_when_full()
        if self.failure is None:
            self._steps_limit = min(self._steps_max, self.steps + self._steps_at_one_instant_max)
            if self._tally:
                self._tally.clear()
        self._events_limit = self.events + self._steps_at_one_instant_max
        if self.steps >= self._collect_at:
            self._collect_at = self.steps + _STEPS_A_COLLECTION
            self._collections += 1
            determinism.collect_cycles(self._collections)
        return True

    def _nothing_left(self) -> None:
        if self.failure is not None:
            self._force_unwinding()
            return
        self.fail(Deadlock(f"deadlock at {self.now_s} s: every task waits for another{self._describe_state()}"))

    def _force_unwinding(self) -> None:
        """The run has failed, and tasks stay in shields: break those. Give up on tasks that swallow cancellation."""
        self._forced += 1
        if self._forced > _FORCED_MAX:
            self._hopeless = True
        determinism.break_shields(list(self._numbers))

    # --- trio.abc.Instrument ----------------------------------------------------------------------------------------

    def task_spawned(self, task: Task) -> None:
        """Number the task; number, name and node stand for it in the digest."""
        number = self._tasks_spawned
        self._tasks_spawned = number + 1
        self._numbers[task] = number
        self._tokens[task] = task_token(number, task)

    def task_exited(self, task: Task) -> None:
        """Forget the task."""
        del self._numbers[task]
        del self._tokens[task]

    def take_batch(self, batch: list[Task]) -> None:
        """Count and digest the steps that Trio is about to run, the last of `batch` first."""
        tokens = self._tokens
        if len(batch) == 1:
            self.steps = steps = self.steps + 1
            self._add_step(tokens[batch[0]])
        else:
            self.steps = steps = self.steps + len(batch)
            self._add_steps([tokens[task] for task in batch])
        if steps >= self._steps_limit:
            self._steps_exceeded(batch)

    def tasks(self) -> Mapping[Task, int]:
        """The tasks that live, with their numbers."""
        return self._numbers

    def task_number(self, task: Task) -> int:
        """The task's number in order of spawning; 0 is Trio's own first task."""
        return self._numbers[task]

    def _events_exceeded(self) -> None:
        """Callbacks that ask for callbacks at the same instant, for ever: nothing can run on, not even the end."""
        self._heap.clear()
        many = self._steps_at_one_instant_max
        self.fail(
            Livelock(
                f"livelock at {self.now_s} s: {many} kernel events without progress of time{self._describe_state()}"
            )
        )

    def _steps_exceeded(self, batch: list[Task]) -> None:
        """A limit on steps was reached: report it; for a livelock, with a tally of who took the last steps."""
        if self.failure is not None:
            if self.steps >= self._steps_limit:
                self._steps_limit = self.steps + _STEPS_TO_UNWIND
                self._force_unwinding()
            return
        if self.steps >= self._steps_max:
            self.fail(
                StepsExceeded(
                    f"the run took {self.steps} task steps (steps_max), at {self.now_s} s of virtual time"
                    f"{self._describe_state()}"
                )
            )
            return
        for task in batch:
            self._tally[task] = self._tally.get(task, 0) + 1
        if sum(self._tally.values()) < _TALLY_STEPS:
            return
        spinner = max(self._tally, key=lambda each: (self._tally[each], -self._numbers.get(each, 0)))
        many, his = self._steps_at_one_instant_max, self._tally[spinner]
        who = describe_task(spinner, self._numbers.get(spinner))
        what = f"more than {many} task steps without progress of time; {his} of the last {_TALLY_STEPS} by {who}"
        self.fail(Livelock(f"livelock at {self.now_s} s: {what}{self._describe_state()}"))

    def _describe_state(self) -> str:
        """The end of a report: the tasks, and what the nodes did last."""
        history = self.describe_history()
        return f"; tasks:\n{format_task_tree(self._numbers)}" + (f"\nlast events:\n{history}" if history else "")
