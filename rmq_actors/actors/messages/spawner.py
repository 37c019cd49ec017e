"""`Spawner`: the supervisor that runs actors. To the supervisor below it an incarnation is a service like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from rmq_actors.actors.messages.actor import Actor, ActorSupervisor
from rmq_actors.actors.messages.cell import HANDLING, Cell, Messaging
from rmq_actors.actors.messages.incarnation import Incarnation
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.restart import Restart, Strategy, Terminated
from rmq_actors.actors.services.child import Child, Kind
from rmq_actors.actors.services.service import Service

M = TypeVar("M")

_LIMITS = MailboxLimits()
_RESTART = Restart()


@attrs.define(eq=False, repr=False)
class ActorChild(Child):
    """What a supervisor knows of an actor: its cell too, which outlives each incarnation."""

    cell: Cell = attrs.field(kw_only=True)


@attrs.define(eq=False, repr=False)
class Spawner(ActorSupervisor):
    """A supervisor of actors and services."""

    _messaging: Messaging = attrs.field(kw_only=True, alias="messaging")

    async def spawn(
        self,
        name: str,
        make: Callable[[], Actor[M]],
        *,
        restart: Restart | None = None,
        mailbox: MailboxLimits | None = None,
        log_and_go_on_after: tuple[type[Exception], ...] = (),
        stop_budget_s: float | None = None,
    ) -> ActorRef[M]:
        """Start an actor, and return when it is ready; see `ActorSupervisor.spawn`."""
        path = self._path_of(name)
        cell = Cell(path, self._messaging, mailbox or _LIMITS)

        def make_incarnation() -> Service:
            HANDLING.set(None)  # see `_child`
            return Incarnation(cell, make(), log_and_go_on_after, self._supervisor_of_actor)

        child = ActorChild(
            name,
            path,
            "actor",
            make_incarnation,
            restart or self.restart,
            self._stop_budget_s(stop_budget_s),
            cell.terminate,
            self._runtime,
            cell=cell,
        )
        cell.request_stop = lambda: self._request_stop_of(child)
        await self._start_new(child)
        return ActorRef(cell)

    async def supervisor(
        self,
        name: str,
        *,
        strategy: Strategy = "one_for_one",
        restart: Restart | None = None,
        own_restart: Restart | None = None,
    ) -> ActorSupervisor:
        """Start a supervisor below this one. `restart` is for its children; `own_restart` for when it fails itself."""
        path = self._path_of(name)
        below = Spawner(name, path, self._runtime, strategy, restart or _RESTART, messaging=self._messaging)
        return await self._start_below(below, own_restart)

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
        def make_beside_handlers() -> Service:
            # A child that a handler starts does not work for the message of that moment.
            HANDLING.set(None)
            return make()

        return super()._child(
            name, kind, make_beside_handlers, restart, stop_budget_s, terminate, is_renewable=is_renewable
        )

    def _supervisor_of_actor(self, path: str) -> ActorSupervisor:
        return Spawner(path, path, self._runtime, messaging=self._messaging)
