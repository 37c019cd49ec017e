"""A nursery with a name: actors start in order and stop in reverse, each given a budget of time to stop in."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

import attrs
import trio

from rmq_actors.actors.service import Service
from rmq_actors.actors.supervisor import first_leaf
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)


class ActorEnded(RuntimeError):
    """An actor returned from `run` unasked: the others would go on without it and never know."""


@attrs.define(eq=False)
class _Running:
    service: Service
    stop_requested: bool = False
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class ActorSystem:
    """The actors of one broker. `stop_budget_s` is how long each may take to stop in order before it is cancelled."""

    name: str
    tracer: Tracer
    stop_budget_s: float
    _nursery: trio.Nursery
    _running: list[_Running] = attrs.field(factory=list, init=False)

    async def start(self, service: Service) -> None:
        """Start an actor and return when it is ready. A failure, now or later, ends the whole system."""
        running = _Running(service)
        await self._nursery.start(self._run, running)
        self._running.append(running)

    @property
    def census(self) -> list[str]:
        """The names of the actors that run, in the order of their start."""
        return [running.service.name for running in self._running if not running.ended.is_set()]

    async def _run(self, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        name = running.service.name
        try:
            await self._run_until_stopped(running, task_status)
            self.tracer.emit("actor.stop", name)
        except Exception as error:
            cause = first_leaf(error)
            self.tracer.emit("actor.crash", name, status=type(cause).__name__, attributes={"detail": str(cause)})
            raise
        finally:
            running.ended.set()

    async def _run_until_stopped(self, running: _Running, task_status: trio.TaskStatus[None]) -> None:
        with running.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(running.service.run)
                self.tracer.emit("actor.start", running.service.name)
                task_status.started()
        if not running.stop_requested:
            raise ActorEnded(f"{running.service.name} ended, and nobody had asked it to")

    async def stop(self) -> None:
        """Stop all actors, the last started first."""
        for running in reversed(self._running):
            running.stop_requested = True
            running.service.request_stop()
            with trio.move_on_after(self.stop_budget_s):
                await running.ended.wait()
            if not running.ended.is_set():
                _log.warning("%s: %s did not stop within %g s", self.name, running.service.name, self.stop_budget_s)
                running.scope.cancel()
                await running.ended.wait()
        self._running.clear()


@contextlib.asynccontextmanager
async def open_actor_system(name: str, tracer: Tracer, *, stop_budget_s: float = 5.0) -> AsyncIterator[ActorSystem]:
    """An actor system for the length of a block: stopped in order on a normal end, cancelled on an error."""
    async with trio.open_nursery() as nursery:
        system = ActorSystem(name, tracer, stop_budget_s, nursery)
        yield system
        await system.stop()
