"""What actors cost beside bare Trio: a hop, an ask, a supervised restart. `python -m tests.bench.actor_costs --help`.

CPU microseconds each. The bare counterpart of a hop is a memory channel's; of an ask, a channel with an Event for the
answer and a time-out; of a restart, a nursery child that is started, raises and is caught.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.messages.ref import Request
from rmq_actors.actors.restart import Restart
from rmq_actors.actors.system import open_actor_system
from tests.bench.measuring import Figure, arguments, measure, report

HOPS = 20_000
ASKS = 5_000
RESTARTS = 1_000
_CAPACITY = 64


def cost_us(times: int, main: Callable[[], Awaitable[None]]) -> Callable[[], float]:
    """Measures `main`, which does something `times` times: microseconds of CPU each."""

    def once() -> float:
        began = time.process_time()
        trio.run(main)
        return (time.process_time() - began) / times * 1e6

    return once


async def channel_hops() -> None:
    """A sender and a receiver on a memory channel."""
    send, receive = trio.open_memory_channel[int](_CAPACITY)

    async def take_all() -> None:
        async for _ in receive:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_all)
        with send:
            for number in range(HOPS):
                await send.send(number)


@attrs.define(eq=False)
class Counter(Actor[int]):
    """Counts until the last."""

    done: trio.Event

    async def handle(self, message: int, context: Context[int]) -> None:
        """Nothing, but for the last."""
        if message == HOPS - 1:
            self.done.set()


async def tells() -> None:
    """A task and an actor."""
    done = trio.Event()
    async with open_actor_system("bench") as system:
        ref = await system.spawn("counter", lambda: Counter(done), mailbox=MailboxLimits(_CAPACITY))
        for number in range(HOPS):
            await ref.tell(number)
        await done.wait()


async def try_tells() -> None:
    """A task that sends without waiting, and lets the actor run when the mailbox is full."""
    done = trio.Event()
    async with open_actor_system("bench") as system:
        ref = await system.spawn("counter", lambda: Counter(done), mailbox=MailboxLimits(_CAPACITY))
        for number in range(HOPS):
            while not ref.try_tell(number):
                await trio.lowlevel.checkpoint()
        await done.wait()


async def channel_asks() -> None:
    """A question on a memory channel, an Event for the answer, a time-out."""
    send, receive = trio.open_memory_channel[tuple[list[int], trio.Event]](_CAPACITY)

    async def answer_all() -> None:
        async for answers, answered in receive:
            answers.append(1)
            answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_all)
        with send:
            for _ in range(ASKS):
                answers: list[int] = []
                answered = trio.Event()
                with trio.fail_after(10):
                    await send.send((answers, answered))
                    await answered.wait()


@attrs.frozen
class Ping(Request[int]):
    """Answered with 1."""


class Pong(Actor[Ping]):
    """Answers."""

    async def handle(self, message: Ping, context: Context[Ping]) -> None:
        """Answer."""
        context.reply(message, 1)


async def asks() -> None:
    """The same of an actor."""
    async with open_actor_system("bench") as system:
        ref = await system.spawn("pong", Pong)
        for _ in range(ASKS):
            await ref.ask(Ping(), 10)


async def nursery_children() -> None:
    """A child that starts, is ready, and raises; in a nursery of its own, as nothing outlives a nursery's failure."""

    async def child(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise OSError

    for _ in range(RESTARTS):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(child)
        except* OSError:
            pass


@attrs.define(eq=False)
class Fragile(Actor[int]):
    """Crashes at once, until it is the last."""

    lives: list[int]
    done: trio.Event

    async def on_start(self, context: Context[int]) -> None:
        """One life less."""
        self.lives.append(1)
        if len(self.lives) > RESTARTS:
            self.done.set()
        else:
            context.ref.try_tell(1)

    async def handle(self, message: int, context: Context[int]) -> None:
        """Crash."""
        raise OSError


async def restarts() -> None:
    """An actor that crashes, without a pause and with a record that is forgotten at once."""
    done = trio.Event()
    lives: list[int] = []
    async with open_actor_system("bench") as system:
        restart = Restart(restarts_max=1, within_s=1e-9, initial_pause_s=0.0)
        await system.spawn("fragile", lambda: Fragile(lives, done), restart=restart)
        await done.wait()


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=9)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)

    def figure(name: str, times: int, run: Callable[[], Awaitable[None]]) -> Figure:
        return measure(name, "CPU us", cost_us(times, run), rounds=options.rounds)

    figures = [
        figure("memory channel hop", HOPS, channel_hops),
        figure("mailbox hop, tell", HOPS, tells),
        figure("mailbox hop, try_tell", HOPS, try_tells),
        figure("channel, Event and time-out", ASKS, channel_asks),
        figure("ask", ASKS, asks),
        figure("nursery, child, crash", RESTARTS, nursery_children),
        figure("supervised restart", RESTARTS, restarts),
    ]
    report(
        figures,
        notes=[
            f"{HOPS:,} hops, {ASKS:,} asks, {RESTARTS:,} restarts a round; mailboxes and channels hold {_CAPACITY}."
        ],
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
