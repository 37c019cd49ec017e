"""One child of a supervisor: its lives one after the other, and its end with budgets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Literal

import attrs
import trio

from rmq_actors.actors.restart import Exit, History, Restart, Terminated, Verdict, first_leaf
from rmq_actors.actors.services.life import Life
from rmq_actors.actors.services.runtime import Runtime
from rmq_actors.actors.services.service import Service

_log = logging.getLogger(__name__)

#: `stuck`: it was cancelled, and still runs after its budget.
State = Literal["starting", "running", "restarting", "stopping", "stuck", "ended"]

Kind = Literal["actor", "service", "supervisor"]


@attrs.define(eq=False, repr=False)
class _Ready(trio.TaskStatus[None]):
    """A task status that tells a child."""

    _on_started: Callable[[], None]

    def started(self, value: None = None) -> None:
        self._on_started()


class ActorEnded(RuntimeError):
    """A child returned by itself and cannot be made again: the others would go on without it and never know."""


@attrs.define(eq=False, repr=False)
class Child:
    """What a supervisor knows of one child, through all its lives."""

    name: str
    path: str
    kind: Kind
    make: Callable[[], Service]
    restart: Restart
    stop_budget_s: float
    #: Called when it has ended for good.
    terminate: Callable[[Terminated], None]
    _runtime: Runtime
    #: Whether `make` makes a fresh one each time.
    is_renewable: bool = True
    state: State = attrs.field(default="ended", init=False)
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
    #: The present life, or the last one.
    _life: Life = attrs.field(factory=Life, init=False)

    @property
    def is_up(self) -> bool:
        """Whether a life of it has begun and not ended."""
        return self._life.is_up

    @property
    def service(self) -> Service | None:
        """What it lives as now; None while it does not."""
        return self._life.service

    def goes_up(self, ended: Exit) -> bool:
        """Whether an exit is more than this child's supervisor can mend."""
        return not self.is_renewable or self.restart.verdict(ended) == "escalate"

    def verdict(self, ended: Exit) -> Verdict:
        """Whether to restart or remove it; raises what goes up."""
        if self.stop_requested:
            return "remove"
        if self.goes_up(ended):
            raise self.error_of(ended)
        return self.restart.verdict(ended)

    def error_of(self, ended: Exit) -> Exception:
        """What is raised for an exit that goes up."""
        if ended.error is not None:
            return ended.error
        why = "ended too often" if self.is_renewable else "ended, and nobody had asked it to"
        return ActorEnded(f"{self.path} {why}")

    def start_at(self, due: float) -> None:
        """It is to be made again at `due`, in trio time."""
        self.restarts += 1
        self.state, self.due = "restarting", due

    async def start(self, nursery: trio.Nursery, report: Callable[[Child, Exit], None]) -> None:
        """Begin a life in `nursery`, and return when it is ready; its end is `report`ed. Raises as `Life.until_ready`.

        It must not be up: a child has one life at a time.
        """
        assert not self.is_up
        self.due = None
        life = self._life = Life()
        nursery.start_soon(self._live, life, report)
        await life.until_ready()

    async def _live(self, life: Life, report: Callable[[Child, Exit], None]) -> None:
        self.state, self.is_awaited = "starting", False
        life.begin()
        try:
            with life.scope:
                await life.run_as(self.make()).run(task_status=_Ready(self._started))
            ended = Exit("stopped" if life.is_asked or life.scope.cancelled_caught else "finished")
        except Exception as error:  # noqa: BLE001  # told to whoever starts it, or to its supervisor
            ended = Exit("crashed", error)
            life.fail(error)
        finally:
            self.state = "ended"
            life.end()
        if life.is_ready:
            self._trace_exit(ended)
            report(self, ended)

    async def stop(self, budget_s: float) -> None:
        """Ask for an orderly end, and cancel after `budget_s`. Returns when it has ended, or is named as stuck.

        Called again while it stops, it waits too.
        """
        life = self._life
        if not life.is_up:
            return
        if not life.is_asked:
            life.is_asked = True
            if self.state == "starting" or life.service is None:
                life.cancel()
            else:
                self.state = "stopping"
                life.service.request_stop()
        with trio.move_on_after(budget_s):
            await life.ended.wait()
        if life.ended.is_set():
            return
        _log.warning("%s: %s did not stop within %g s", self._runtime.system_name, self.path, budget_s)
        life.cancel()
        with trio.move_on_after(self._runtime.cancel_budget_s):
            await life.ended.wait()
        if not life.ended.is_set():
            self.name_stuck()

    def cancel(self) -> None:
        """Cancel the present life, one that is not ready yet included."""
        self._life.cancel()

    async def wait_ended(self) -> None:
        """Wait for the end of the present life."""
        if self.is_up:
            await self._life.ended.wait()

    def name_stuck(self) -> None:
        """It was cancelled and still runs, though its budget is over: say where it waits."""
        task = self._life.task
        if task is None:
            return
        self.state = "stuck"
        where = "; ".join(waits_at(task))
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
        life = self._life
        if life.is_ready:
            raise RuntimeError("called 'started' twice on the same task status")
        if life.is_abandoned:
            return  # it ends as one that was never ready
        tracer = self._runtime.tracer
        if tracer is not None and self.restarts:
            tracer.actor_restarted(self.path, self.exit_seq)
        elif tracer is not None:
            tracer.actor_started(self.path)
        life.ready()
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
