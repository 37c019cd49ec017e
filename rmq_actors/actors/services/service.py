"""A ServiceThread as an actor: a loop that waits for an interval or a wake-up, whichever comes first."""

from __future__ import annotations

import abc
import math
from typing import Protocol

import attrs
import trio

from rmq_actors.actors.tracer import ActorTracer


class Service(Protocol):
    """An actor: something with a name that runs until it is cancelled, or asked to stop, or fails."""

    @property
    def name(self) -> str:
        """RocketMQ's name for it; what traces and logs call it."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Call `task_status.started()` once ready, then work. Raising is a crash, which the supervisor sees."""
        ...

    def request_stop(self) -> None:
        """Ask for an orderly end: finish what is under way, then return from `run`."""
        ...


@attrs.define(eq=False, repr=False)
class ServiceThread(abc.ABC):
    """A service that does `work` until it is asked to stop, and is cancelled in it then.

    What is to be done after that, or whatever happened, a service does in a `run` of its own, around this one's.
    """

    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False, repr=False)
    _failure: Exception | None = attrs.field(default=None, init=False, repr=False)

    @abc.abstractmethod
    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Call `task_status.started()` once ready, then work, for as long as there is anything to do."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until asked to stop."""
        with self._scope:
            await self.work(task_status)
        if self._failure is not None:
            raise self._failure

    def fail(self, error: Exception) -> None:
        """End the work with `error`: something has failed that is done for this service elsewhere."""
        if self._failure is None:
            self._failure = error
        self._scope.cancel()

    def request_stop(self) -> None:
        """Cancel the work."""
        self._scope.cancel()


@attrs.define(eq=False, repr=False)
class WakeUp:
    """RocketMQ's wakeup and waitForRunning: a wake-up before the wait is not lost, and many are one.

    With a tracer, each end of a wait is traced under `name`, with what caused it.
    """

    name: str = ""
    _tracer: ActorTracer | None = None
    _event: trio.Event = attrs.field(factory=trio.Event, init=False)
    _cause: str = attrs.field(default="", init=False)

    def wakeup(self, cause: str = "wakeup") -> None:
        """End the present wait, or the next one at once. Of many, the first is the cause."""
        if not self._event.is_set():
            self._cause = cause
            self._event.set()

    async def wait_for_running(self, deadline: float) -> bool:
        """Wait for a wake-up until `deadline` (trio time); True if it was a wake-up. A checkpoint."""
        if deadline == math.inf:
            await self._event.wait()  # a cancel scope costs as much as four steps
        else:
            with trio.move_on_at(deadline):
                await self._event.wait()
        woken = self._event.is_set()
        if woken:
            self._event = trio.Event()
        if self._tracer is not None:
            self._tracer.actor_woke(self.name, self._cause if woken else "interval")
        return woken
