"""What a pull consumer's calls give counts as consumed, and nothing that a cancelled call has taken."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.asyncio_host import TrioGuest, open_trio_guest
from rmq_actors.client.consumer_config import PullConsumerConfig
from rmq_actors.client.found_messages import FoundMessages
from rmq_actors.client.group_member import GroupMember
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.embedding.asyncio_consumers import AsyncioPullConsumer
from rmq_actors.protocols.offset_table import OffsetTable
from rmq_actors.protocols.process_queue import ProcessQueue
from rmq_actors.wire.bodies.message_queues import MessageQueue

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


@attrs.frozen
class M:
    queue_offset: int
    body: bytes = b""


@attrs.define
class _Store:
    table: OffsetTable = attrs.field(factory=OffsetTable)


@attrs.define
class _Member:
    """What a consumer needs of its membership for messages that are there already."""

    offset_store: _Store = attrs.field(factory=_Store)

    def check_open(self) -> None: ...


def held_queue() -> HeldQueue:
    return HeldQueue(QUEUE, ProcessQueue(last_pull_s=0.0), 0)


@attrs.define
class Consumer:
    """A consumer of one queue, to which messages come as a test says."""

    batch_size: int = 32
    found: FoundMessages = attrs.field(factory=FoundMessages)
    held: HeldQueue = attrs.field(factory=held_queue)
    member: _Member = attrs.field(factory=_Member)
    pulls: PullConsumer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        config = PullConsumerConfig("CG", poll_batch_size=self.batch_size)
        self.pulls = PullConsumer(config, cast("GroupMember", self.member), self.found)

    def come(self, *offsets: int) -> None:
        messages = cast("Sequence[MessageExt]", [M(offset) for offset in offsets])
        self.held.process_queue.put_messages(messages)
        self.found.add(self.held, list(messages))

    @property
    def committed(self) -> int | None:
        """What a commit of now would tell."""
        self.pulls._note_consumed()
        return self.member.offset_store.table.read_offset(QUEUE)


async def by_poll(consumer: PullConsumer | AsyncioPullConsumer) -> list[int]:
    return [message.queue_offset for message in await consumer.poll(100_000)]


async def by_iteration(consumer: PullConsumer | AsyncioPullConsumer) -> list[int]:
    async for message in consumer:
        return [message.queue_offset]
    return []


Gives = Callable[[Any], Awaitable[list[int]]]
BOTH = pytest.mark.parametrize("gives", [by_poll, by_iteration])


@BOTH
def test_what_a_call_gave_is_consumed_at_the_commit_after_it(gives: Gives) -> None:
    async def main() -> None:
        consumer = Consumer(batch_size=1)
        consumer.come(0, 1)
        assert await gives(consumer.pulls) == [0]
        assert consumer.committed == 1
        assert await gives(consumer.pulls) == [1]
        assert consumer.committed == 2

    trio.run(main)


@BOTH
def test_a_call_is_given_what_the_cancelled_one_before_it_had_taken(gives: Gives) -> None:
    """Trio cancels at every step between what comes and what the call returns."""

    async def main(steps: int, *, comes_first: bool) -> bool:
        consumer, got = Consumer(batch_size=1), list[int]()

        async def call() -> None:
            with scope:
                got.extend(await gives(consumer.pulls))

        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            moves: list[Callable[[], None]] = [functools.partial(consumer.come, 0, 1), scope.cancel]
            for move in moves if comes_first else reversed(moves):
                move()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
        assert consumer.committed == (1 if got else None)
        if not got:
            if not comes_first:
                assert await gives(consumer.pulls) == [0]
                return False
            assert await gives(consumer.pulls) == [0]
            assert consumer.committed == 1
        return bool(got)

    for comes_first in (True, False):
        outcomes = {trio.run(functools.partial(main, steps, comes_first=comes_first)) for steps in range(4)}
        assert outcomes == {comes_first}


async def begin(call: Awaitable[list[int]]) -> asyncio.Task[list[int]]:
    """A task of asyncio's that waits for messages."""
    task = asyncio.create_task(cast("Any", call))
    for _ in range(50):
        await asyncio.sleep(0)
    return task


async def come_and_be_taken(consumer: Consumer, steps: int) -> None:
    """Messages come, and Trio's side of the call takes one; then some steps of asyncio's loop. -1: they just come."""
    consumer.come(0, 1)
    if steps >= 0:
        while len(consumer.found.waiting) == 2:
            await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)


def asyncio_run(gives: Gives, steps: int, *, goes_away: bool = False) -> bool:
    """Messages come, and after some steps the asyncio task is cancelled; whether it got one."""

    async def main() -> bool:
        consumer = Consumer(batch_size=1)
        async with open_trio_guest() as guest:
            facade = AsyncioPullConsumer(guest, consumer.pulls)
            task = await begin(gives(facade))
            await come_and_be_taken(consumer, steps)
            task.cancel()
            got = (await asyncio.gather(task, return_exceptions=True))[0]
            was_given = got == [0]
            assert was_given or isinstance(got, asyncio.CancelledError)
            assert await in_trio(guest, lambda: consumer.committed) == (1 if was_given else None)
            if goes_away and not was_given:
                consumer.held.process_queue.dropped = True
                consumer.held = held_queue()
                consumer.come(0, 1)
            assert await gives(facade) == ([1] if was_given else [0])
            assert await in_trio(guest, lambda: consumer.committed) == (2 if was_given else 1)
            return was_given

    return asyncio.run(main())


async def in_trio(guest: TrioGuest, look: Callable[[], int | None]) -> int | None:
    async def there() -> int | None:
        return look()

    return await guest.run(there)


@BOTH
@pytest.mark.parametrize("goes_away", [False, True])
def test_a_message_that_comes_as_asyncio_cancels_the_call_is_given_to_the_next_one(
    gives: Gives, goes_away: bool
) -> None:
    """At every step of asyncio's loop; `goes_away`: another member had the queue in between."""
    outcomes = [asyncio_run(gives, steps, goes_away=goes_away) for steps in range(-1, 8)]
    assert outcomes[:2] == [False, False]  # before Trio's side has it, and while asyncio's has not
    assert outcomes[-1] is True


def test_while_an_asyncio_task_does_not_have_its_messages_yet_nobody_else_polls_or_commits_them() -> None:
    async def main(steps: int) -> bool:
        consumer = Consumer(batch_size=1)
        async with open_trio_guest() as guest:
            facade = AsyncioPullConsumer(guest, consumer.pulls)
            task = await begin(by_poll(facade))
            await come_and_be_taken(consumer, steps)
            before = task.done()
            if not before:
                with pytest.raises(trio.BusyResourceError):
                    await facade.poll(0)
                assert consumer.committed is None
            assert await task == [0]
            assert await in_trio(guest, lambda: consumer.committed) == 1
            return before

    assert {asyncio.run(main(steps)) for steps in range(8)} == {True, False}


def test_messages_of_queues_that_were_given_up_do_not_pile_up_behind_those_that_wait() -> None:
    """A queue that is sought again and again is another `HeldQueue` each time; nobody polls."""

    async def main() -> None:
        consumer = Consumer()
        consumer.come(*range(20))
        sought = held_queue()
        for _ in range(1000):
            sought.process_queue.dropped = True
            sought = held_queue()
            consumer.found.add(sought, cast("Sequence[MessageExt]", [M(offset) for offset in range(32)]))
            assert len(consumer.found.waiting) <= 2 * (20 + 32) + 64 + 32
        consumer.found.take(1000)
        assert not consumer.found.waiting

    trio.run(main)
