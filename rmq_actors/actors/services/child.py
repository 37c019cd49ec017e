"""One child of a supervisor: its lives one after the other, and its end with budgets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Literal

import attrs
import trio

from rmq_actors.actors.restart import Exit, History, Restart, Terminated, first_leaf
from rmq_actors.actors.services.runtime import Runtime
from rmq_actors.actors.services.service import Service

_log = logging.getLogger(__name__)

#: `stuck`: it was cancelled, and still runs after its budget.
State = Literal["starting", "running", "restarting", "stopping", "stuck", "ended"]

Kind = Literal["actor", "service", "supervisor"]


@attrs.define(eq=False)
class _Ready(trio.TaskStatus[None]):
    """A task status that tells a child."""

    _on_started: Callable[[], None]

    def started(self, value: None = None) -> None:
        self._on_started()


@attrs.define(eq=False)
class Child:
    """What a supervisor knows of one child. `is_renewable`: `make` makes a fresh one each time."""

    name: str
    path: str
    kind: Kind
    make: Callable[[], Service]
    restart: Restart
    stop_budget_s: float
    #: Called when it has ended for good.
    terminate: Callable[[Terminated], None]
    _runtime: Runtime
    is_renewable: bool = attrs.field(default=True, init=False)
    state: State = attrs.field(default="ended", init=False)
    service: Service | None = attrs.field(default=None, init=False)
    restarts: int = attrs.field(default=0, init=False)
    history: History = attrs.field(factory=History, init=False)
    #: When it is to be started again, in trio time.
    due: float | None = attrs.field(default=None, init=False)
    #: Somebody wants it to end for good.
    stop_requested: bool = attrs.field(default=False, init=False)
    #: Its supervisor made this life end, and needs no report of it unless it failed.
    is_awaited: bool = attrs.field(default=False, init=False)
    #: The trace's number of its latest exit: the cause of the next restart.
    exit_seq: int | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope | None = attrs.field(default=None, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _task: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _asked: bool = attrs.field(default=False, init=False)
    _is_ready: bool = attrs.field(default=False, init=False)
    #: The task that waits until it is ready; whether that was cancelled; and why it ended before it was ready.
    _starter: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _is_abandoned: bool = attrs.field(default=False, init=False)
    _start_failure: Exception | None = attrs.field(default=None, init=False)

    @property
    def is_up(self) -> bool:
        """Whether a life of it has begun and not ended."""
        return self._scope is not None

    def goes_up(self, ended: Exit) -> bool:
        """Whether an exit is more than this child's supervisor can mend."""
        return not self.is_renewable or self.restart.verdict(ended) == "escalate"

    async def start(self, nursery: trio.Nursery, report: Callable[[Child, Exit], None]) -> None:
        """Begin a life in `nursery`, and return when it is ready; its end is `report`ed.

        Raises what it fails with before, RuntimeError if it ends without being ready. So does `nursery.start`, which
        opens a nursery for each start, and that costs more than all else here.
        """
        self._ended, self._start_failure, self._is_ready, self._is_abandoned = trio.Event(), None, False, False
        self._starter = trio.lowlevel.current_task()
        nursery.start_soon(self._live, report)
        try:
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        except BaseException:
            with trio.CancelScope(shield=True):
                self.cancel()
                await self._ended.wait()
            self._check_start()
            raise
        self._check_start()
        if not self._is_ready:
            raise RuntimeError("child exited without calling task_status.started()")

    def _check_start(self) -> None:
        if self._start_failure is not None:
            raise self._start_failure from None

    def _abandon(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._starter, self._is_abandoned = None, True
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_starter(self) -> None:
        starter, self._starter = self._starter, None
        if starter is not None:
            trio.lowlevel.reschedule(starter)

    async def _live(self, report: Callable[[Child, Exit], None]) -> None:
        self.state, self._task = "starting", trio.lowlevel.current_task()
        self._asked = self.is_awaited = False
        try:
            with trio.CancelScope() as self._scope:
                if self._is_abandoned:
                    self._scope.cancel()
                self.service = self.make()
                await self.service.run(task_status=_Ready(self._started))
            ended = Exit("stopped" if self._asked or self._scope.cancelled_caught else "finished")
        except Exception as error:  # noqa: BLE001  # told to whoever starts it, or to its supervisor
            ended = Exit("crashed", error)
            if not self._is_ready:
                self._start_failure = error
        finally:
            self.state, self.service, self._scope, self._task = "ended", None, None, None
            self._ended.set()
            self._wake_starter()
        if self._is_ready:
            self._trace_exit(ended)
            report(self, ended)

    async def stop(self, budget_s: float) -> None:
        """Ask for an orderly end, and cancel after `budget_s`. Returns when it has ended, or is named as stuck.

        Called again while it stops, it waits too.
        """
        if self._scope is None:
            return
        ended, name = self._ended, self.path
        if not self._asked:
            self._asked = True
            if self.state == "starting" or self.service is None:
                self._scope.cancel()
            else:
                self.state = "stopping"
                self.service.request_stop()
        with trio.move_on_after(budget_s):
            await ended.wait()
        if ended.is_set():
            return
        _log.warning("%s: %s did not stop within %g s", self._runtime.system_name, name, budget_s)
        self._scope.cancel()
        with trio.move_on_after(self._runtime.cancel_budget_s):
            await ended.wait()
        if not ended.is_set():
            self.name_stuck()

    def cancel(self) -> None:
        """Cancel the present life, one that is not ready yet included."""
        if self._scope is not None:
            self._scope.cancel()

    async def wait_ended(self) -> None:
        """Wait for the end of the present life."""
        if self.is_up:
            await self._ended.wait()

    def name_stuck(self) -> None:
        """It was cancelled and still runs, though its budget is over: say where it waits."""
        if self._task is None:
            return
        self.state = "stuck"
        where = "; ".join(waits_at(self._task))
        _log.error(
            "%s: %s ignores its cancellation after %g s, at %s",
            self._runtime.system_name,
            self.path,
            self._runtime.cancel_budget_s,
            where,
        )
        if self._runtime.tracer is not None:
            self._runtime.tracer.actor_stuck(self.path, where)

    def forget_past(self) -> None:
        """Its supervisor is started again, and starts it with a clean record."""
        self.restarts += 1
        self.history, self.due = History(), None

    def failed_to_start(self, error: Exception) -> Exit:
        """Trace a life that ended before it was ready."""
        ended = Exit("crashed", error)
        self._trace_exit(ended)
        return ended

    def _started(self) -> None:
        if self._is_ready:
            raise RuntimeError("called 'started' twice on the same task status")
        if self._is_abandoned:
            return  # it ends as one that was never ready
        tracer = self._runtime.tracer
        if tracer is not None and self.restarts:
            tracer.actor_restarted(self.path, self.exit_seq)
        elif tracer is not None:
            tracer.actor_started(self.path)
        self._is_ready = True
        self._wake_starter()
        if self.state == "starting":
            self.state = "running"

    def _trace_exit(self, ended: Exit) -> None:
        tracer = self._runtime.tracer
        if tracer is None:
            self.exit_seq = None
        elif ended.error is None:
            self.exit_seq = tracer.actor_stopped(self.path, None if ended.kind == "stopped" else ended.kind)
        else:
            self.exit_seq = tracer.actor_crashed(self.path, first_leaf(ended.error))


def waits_at(task: trio.lowlevel.Task) -> Iterator[str]:
    """Where a task waits, as "module:line in function" of its innermost frame that is not Trio's.

    A task that waits for its nurseries gives where the tasks in them wait.
    """
    inner = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    if inner:
        yield from sorted(where for child in inner for where in waits_at(child))
        return
    place = task.name
    for frame, line in task.iter_await_frames():
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("trio."):
            place = f"{module}:{line} in {frame.f_code.co_qualname}"
    yield place
