"""A supervisor: starts children in order, makes them again by its strategy when they fail, stops them in reverse.

Children are `Service`s, and that is all that it knows of them; a supervisor is itself a `Service`, so they nest. One
task takes all decisions, one after the other; `restart` holds the rules.
"""

from __future__ import annotations

import abc
import logging
import math
from collections.abc import Callable
from typing import TypeVar, get_args

import attrs
import trio

from rmq_actors.actors.restart import ESCALATE, Exit, Restart, Strategy, Terminated, affected
from rmq_actors.actors.services.child import Child, Kind
from rmq_actors.actors.services.exits import Exits, cause
from rmq_actors.actors.services.runtime import Runtime
from rmq_actors.actors.services.service import Service

_log = logging.getLogger(__name__)

S = TypeVar("S", bound="Supervisor")

_RESTART = Restart()


class NotSupervising(RuntimeError):
    """A child for a supervisor that is not running, or one that was asked to stop before it was ready."""


def _known(_: object, __: attrs.Attribute[Strategy], value: Strategy) -> None:
    if value not in get_args(Strategy):
        raise ValueError(f"a strategy is one of {', '.join(get_args(Strategy))}, not {value!r}")


@attrs.define(eq=False, repr=False)
class Supervisor:
    """Children and the rules for them. `restart` is for those that are started without one of their own.

    When it fails itself and is started again, it starts the same children again; their refs and queued messages stay.
    """

    name: str
    path: str
    _runtime: Runtime
    strategy: Strategy = attrs.field(default="one_for_one", validator=_known)
    restart: Restart = _RESTART
    _children: dict[str, Child] = attrs.field(factory=dict, init=False)
    _exits: Exits = attrs.field(factory=Exits, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _starting: trio.CancelScope | None = attrs.field(default=None, init=False)
    _stop_requested: bool = attrs.field(default=False, init=False)
    #: It stops in order to be started again.
    keeps_children: bool = attrs.field(default=False, init=False)
    _stopped: trio.Event = attrs.field(factory=trio.Event, init=False)

    # --- starting children --------------------------------------------------------------------------------------------

    async def start(self, service: Service, *, stop_budget_s: float | None = None) -> None:
        """Start a service, return when it is ready. A failure, or an end unasked, goes up: it cannot be made again."""
        await self._start_new(
            self._child(service.name, "service", lambda: service, ESCALATE, stop_budget_s, is_renewable=False)
        )

    async def start_supervised(
        self,
        name: str,
        make: Callable[[], Service],
        *,
        restart: Restart | None = None,
        stop_budget_s: float | None = None,
    ) -> None:
        """Start a service that `make` makes again after each crash that `restart` allows; return when it is ready."""
        await self._start_new(self._child(name, "service", make, restart, stop_budget_s))

    async def supervisor(
        self,
        name: str,
        *,
        strategy: Strategy = "one_for_one",
        restart: Restart | None = None,
        own_restart: Restart | None = None,
    ) -> Supervisor:
        """Start a supervisor below this one. `restart` is for its children; `own_restart` for when it fails itself."""
        below = Supervisor(name, self._path_of(name), self._runtime, strategy, restart or _RESTART)
        return await self._start_below(below, own_restart)

    async def _start_below(self, below: S, own_restart: Restart | None) -> S:
        """Start a supervisor that was made with a path below this one's."""

        def make() -> Service:
            return below

        await self._start_new(
            self._child(below.name, "supervisor", make, own_restart, 0.0, lambda _: below.terminate())
        )
        return below

    def stop_child(self, name: str) -> None:
        """Ask a child to stop for good; it is not made again. KeyError if there is none of that name."""
        self._request_stop_of(self._children[name])

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop_requested

    @property
    def children(self) -> tuple[Child, ...]:
        """Its children, in the order of their start."""
        return tuple(self._children.values())

    @property
    def stop_takes_s_max(self) -> float:
        """How long its children may take to stop, in seconds."""
        return sum(budget_s(child) + self._runtime.cancel_budget_s for child in self._children.values())

    # --- as a service -------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the children that it had when it failed, then supervise until it is asked to stop."""
        self._stop_requested = self.keeps_children = False
        self._stopped = trio.Event()
        self._exits.clear()
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    await self._start_again(self._nursery)
                    task_status.started()
                    await self._supervise()
                except (Exception, BaseExceptionGroup, trio.Cancelled) as error:
                    self._nursery.cancel_scope.cancel()
                    await self._outlast_cancelled()
                    if not isinstance(error, Exception):
                        raise
                    failure = error  # raised below, without the nursery's group around it
                self._stopped.set()
        except BaseException as cancelled:
            self._exits.failures_of_the_end(is_stop=False)
            if failure is not None:
                raise BaseExceptionGroup(f"{self.name}: cancelled, and failed", [failure, cancelled]) from None
            raise
        finally:
            self._nursery = None
            self._stopped.set()
        if failures := self._exits.failures_of_the_end(is_stop=failure is None):
            failure = ExceptionGroup(f"{self.name}: failures while stopping", failures)
        if failure is not None:
            raise failure

    def request_stop(self) -> None:
        """Stop the children, the last started first, then end."""
        self._stop_requested = True
        if self._starting is not None:
            self._starting.cancel()
        self._exits.changed.wakeup()

    async def stop(self) -> None:
        """Stop the children, the last started first, and wait until each has ended, or is named as stuck."""
        self.request_stop()
        if self._nursery is not None:
            await self._stopped.wait()

    def terminate(self) -> None:
        """It has ended for good, and its children with it."""
        for child in self.children:
            child.terminate(Terminated(child.path, "stopped"))
        self._children.clear()

    async def _start_again(self, nursery: trio.Nursery) -> None:
        for child in self.children:
            if child.stop_requested:
                self._remove(child, Exit("stopped"))
            else:
                child.forget_past()
                await child.start(nursery, self._exits.report)

    async def _outlast_cancelled(self) -> None:
        """Wait for the end of the children, which are cancelled, and name those that do not for their budget."""
        for child in self.children:
            child.cancel()  # those that are being spawned live in their spawner's task
        with trio.move_on_after(self._runtime.cancel_budget_s, shield=True):
            for child in self.children:
                await child.wait_ended()
        for child in self.children:
            child.name_stuck()

    # --- decisions ----------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while not self._stop_requested:
            if self._exits:
                await self._on_exit(*self._exits.next())
                continue
            due = min((child.due for child in self._children.values() if child.due is not None), default=math.inf)
            if due <= trio.current_time():
                await self._start_due()
            else:
                await self._exits.changed.wait_for_running(due)
        await self._stop_all()

    async def _on_exit(self, child: Child, ended: Exit) -> None:
        if child.verdict(ended) == "remove":
            self._remove(child, ended)
            return
        pause_s = child.history.pause_s(child.restart, trio.current_time(), self._runtime.chance())
        if pause_s is None:
            _log.error(
                "%s: more than %d restarts in %g s", child.path, child.restart.restarts_max, child.restart.within_s
            )
            raise child.error_of(ended)
        _log.warning("%s %s, starts again in %.2f s: %r", child.path, ended.kind, pause_s, cause(ended))
        for member in await self._take_down(child):
            member.start_at(trio.current_time() + pause_s)

    async def _take_down(self, ended: Child) -> list[Child]:
        """Stop those that a restart of `ended` takes along, the last started first; all that are to be made again."""
        members = [
            child
            for child in affected(self.strategy, list(self._children.values()), ended)
            if child is ended or child.state != "starting"
        ]
        for child in reversed(members):
            if child is not ended:
                await self._stop_child(child, for_good=False)
            while child.is_up and not self._stop_requested:
                await self._exits.changed.wait_for_running(math.inf)
        # What ended by itself meanwhile is made again with the others, unless it says otherwise.
        for other, how in self._exits.take_those_of(members):
            if other.verdict(how) == "remove":
                self._remove(other, how)
        for child in members:
            if child is not ended and (child.stop_requested or child.restart.type == "temporary"):
                self._remove(child, Exit("stopped"))
        return [child for child in members if self._children.get(child.name) is child]

    async def _start_due(self) -> None:
        assert self._nursery is not None
        now = trio.current_time()
        for child in [child for child in self._children.values() if child.due is not None and child.due <= now]:
            with trio.CancelScope() as self._starting:
                try:
                    await child.start(self._nursery, self._exits.report)
                except Exception as error:  # noqa: BLE001  # an exit like any other, which the next decision is about
                    stopped = child.stop_requested
                    self._exits.add(child, Exit("stopped") if stopped else child.failed_to_start(error))
            self._starting = None
            if self._exits or self._stop_requested:
                return

    async def _stop_all(self) -> None:
        """Stop the children, the last started first."""
        for child in reversed(self.children):
            await self._stop_child(child, for_good=not self.keeps_children)
            if not self.keeps_children:
                child.terminate(Terminated(child.path, "stopped"))

    async def _stop_child(self, child: Child, *, for_good: bool) -> None:
        child.is_awaited = True
        if isinstance(child.service, Supervisor):
            child.service.keeps_children = not for_good
        await child.stop(budget_s(child))

    def _remove(self, child: Child, ended: Exit) -> None:
        if ended.error is not None:
            _log.error("%s crashed, and is not started again: %r", child.path, cause(ended))
        if self._children.get(child.name) is child:
            del self._children[child.name]
        child.terminate(Terminated(child.path, ended.kind, ended.error))

    # --- children -----------------------------------------------------------------------------------------------------

    def _request_stop_of(self, child: Child) -> None:
        child.stop_requested = True
        if self._nursery is None:
            self._remove(child, Exit("stopped"))
        elif self._stop_requested:
            return
        elif child.is_up:
            self._nursery.start_soon(child.stop, budget_s(child))
        elif child.due is not None:
            child.due = None
            self._exits.add(child, Exit("stopped"))
            self._exits.changed.wakeup()

    async def _start_new(self, child: Child) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # the cancellation may have ended this supervisor already
        if self._nursery is None or self.is_stopping:
            raise NotSupervising(f"{child.path} cannot start: {self.path or self.name} is not running")
        self._children[child.name] = child
        try:
            await child.start(self._nursery, self._exits.report)
        except BaseException as error:
            self._children.pop(child.name, None)
            ends = self._stop_requested or self._nursery is None or self._nursery.cancel_scope.cancel_called
            stopped = ends or child.stop_requested
            if stopped or not isinstance(error, Exception):
                child.terminate(Terminated(child.path, "stopped"))
            else:
                child.terminate(Terminated(child.path, "crashed", error))
            if stopped and isinstance(error, Exception):
                why = f"{self.path or self.name} stops" if ends else "it was asked to stop"
                raise NotSupervising(f"{child.path} did not start: {why}") from error
            raise

    def _child(
        self,
        name: str,
        kind: Kind,
        make: Callable[[], Service],
        restart: Restart | None,
        stop_budget_s: float | None,
        terminate: Callable[[Terminated], None] = lambda _: None,
        *,
        is_renewable: bool = True,
    ) -> Child:
        path = self._path_of(name)
        budget_s = self._stop_budget_s(stop_budget_s)
        restart = restart or self.restart
        return Child(name, path, kind, make, restart, budget_s, terminate, self._runtime, is_renewable)

    def _stop_budget_s(self, own_s: float | None) -> float:
        return self._runtime.stop_budget_s if own_s is None else own_s

    def _path_of(self, name: str) -> str:
        if not name or "/" in name:
            raise ValueError(f"the name of an actor is not empty and has no slash: {name!r}")
        if name in self._children:
            raise ValueError(f"{self.path or self.name} has a child {name} already")
        return f"{self.path}/{name}" if self.path else name


class Parent(abc.ABC):
    """A service that runs a supervisor for children of its own: these get their budgets too when it is stopped."""

    __slots__ = ()

    @abc.abstractmethod
    def supervisor_of_children(self) -> Supervisor | None:
        """The supervisor of its children; None while there is none."""


def budget_s(child: Child) -> float:
    """How long a child may take to stop in order, those below it included, in seconds."""
    below = nested(child)
    return child.stop_budget_s + (0.0 if below is None else below.stop_takes_s_max)


def nested(child: Child) -> Supervisor | None:
    """The supervisor that a child is, or has for children of its own; None while there is none."""
    service = child.service
    if isinstance(service, Supervisor):
        return service
    return service.supervisor_of_children() if isinstance(service, Parent) else None
