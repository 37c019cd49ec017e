"""A nursery with a name: children start in order and stop in reverse, each given a budget of time to stop in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import attrs
import trio

from rmq_actors.actors.census import Census, take_census
from rmq_actors.actors.messages.cell import Messaging
from rmq_actors.actors.messages.dead_letters import DeadLetters
from rmq_actors.actors.messages.spawner import Spawner
from rmq_actors.actors.restart import Restart, Strategy
from rmq_actors.actors.services.runtime import Chance, Runtime
from rmq_actors.actors.tracer import ActorTracer


@attrs.define(eq=False, repr=False)
class ActorSystem(Spawner):
    """The root of a tree of actors, and a supervisor like the others below it."""

    @property
    def dead_letters(self) -> DeadLetters:
        """Every message of this system that was not handled."""
        return self._messaging.dead_letters

    def census(self) -> Census:
        """The tree as it is now."""
        return take_census(self, self.dead_letters.count)


@contextlib.asynccontextmanager
async def open_actor_system(
    name: str,
    tracer: ActorTracer | None = None,
    *,
    entropy: Chance | None = None,
    strategy: Strategy = "one_for_one",
    restart: Restart | None = None,
    stop_budget_s: float = 5.0,
    cancel_budget_s: float = 5.0,
    dead_letters_max: int = 256,
    trace_messages: bool = False,
    shield: bool = False,
) -> AsyncIterator[ActorSystem]:
    """An actor system for the length of a block: stopped in order on a normal end, cancelled on an error.

    `stop_budget_s` is how long each child may take to stop in order before it is cancelled; one that still runs
    `cancel_budget_s` later is named in the log and the trace, with the place where it waits, and the others are stopped
    all the same. Without `entropy` the pauses between restarts have no jitter. With `trace_messages`, messages, replies
    and dead letters are traced too. With `shield`, a cancellation from outside reaches the children only after the
    block has ended, so that what the block does in its end can still ask them; what it does there must be short.
    """
    runtime = Runtime(name, tracer, entropy, stop_budget_s, cancel_budget_s)
    messaging = Messaging(tracer, DeadLetters(dead_letters_max), trace_messages)
    system = ActorSystem(name, "", runtime, strategy, restart or Restart(), messaging=messaging)
    scope = trio.CancelScope()

    async def run(task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await system.run(task_status=task_status)

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            try:
                scope.shield = shield
                yield system
                await system.stop()
            except BaseException:
                scope.cancel()
                raise
    finally:
        system.terminate()
