"""Consumers of queues that end sooner than they were pulled, as a master was lost that had more: nothing is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.consumer_requests import PullResult
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import Concurrently, MessageListener, Orderly
from rmq_actors.client.producer import run_producer
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.client.pulling import Puller
from rmq_actors.client.rebalancing import Rebalancer
from rmq_actors.protocols.pull_results import PullStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import Message
from tests.simulation.test_pull_consumer import consumer_of
from tests.simulation.test_push_consumer import TOPIC, bodies
from tests.simulation.test_push_consumer import consumer_of as push_consumer_of
from tests.worlds.client_world import ClientWorld

STORE = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)
QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
#: What the slave has, what it lacks, and what the new master is sent.
KEPT, LOST, LATER = bodies(6, "kept"), bodies(4, "lost"), bodies(3, "later")


async def send(client: MQClientInstance, sent: Sequence[bytes]) -> None:
    async with run_producer(client, ProducerConfig("PG")) as producer:
        assert QUEUE in await producer.queues_of(TOPIC)
        for body in sent:
            await producer.send(Message(TOPIC, body), queue=QUEUE)


@contextlib.asynccontextmanager
async def queue_of_ten(world: ClientWorld) -> AsyncIterator[MQClientInstance]:
    """A queue of ten messages; its broker's slave has the first six of them."""
    async with world.instance() as client:
        await send(client, KEPT)
        await world.cluster.wait_until_replicated()
        await trio.sleep(11)  # the slave has copied the topics, too
        world.cluster.partition("a", "b")
        await send(client, LOST)
        yield client


async def fail_over(world: ClientWorld) -> None:
    await world.cluster.kill("a")
    world.cluster.heal()
    await world.cluster.promote("b")


async def rest_of(consumer: PullConsumer, last: bytes) -> list[bytes]:
    found = list[bytes]()
    with trio.fail_after(120):
        async for message in consumer:
            found.append(message.body)
            if message.body == last:
                return found
    raise AssertionError("a pull consumer does not end")


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("passed", [1, 3, 8])
def test_a_pull_consumer_goes_on_after_what_it_has_consumed(passed: int, auto_commit: bool) -> None:
    async def use(world: ClientWorld) -> None:
        async with queue_of_ten(world) as client:
            async with consumer_of(client, None, auto_commit=auto_commit, poll_batch_size=1) as consumer:
                consumer.assign([QUEUE])
                for body in (KEPT + LOST)[:passed]:
                    assert [message.body for message in await consumer.poll()] == [body]
                await consumer.commit()
                assert await consumer.committed(QUEUE) == passed
                await fail_over(world)
                await trio.sleep(40)
                await send(client, LATER[:1])
                rest = await rest_of(consumer, LATER[0])
                await consumer.commit()
                assert await consumer.committed(QUEUE) == len(KEPT) + 1
            # What was polled with what is lost now is over; of all else each message comes, and none that was passed.
            assert rest == [*KEPT[passed:], LATER[0]]

    ClientWorld.run(use, store=STORE)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_push_consumer_gives_its_listener_all_that_is_there(orderly: bool) -> None:
    async def use(world: ClientWorld) -> None:
        given, is_slow = list[bytes](), True

        async def listen(messages: Sequence[object], _: object) -> None:
            given.extend(message.body for message in messages)  # type: ignore[attr-defined]
            await trio.sleep(30 if is_slow else 0)

        listener: MessageListener = Orderly(listen) if orderly else Concurrently(listen)
        async with queue_of_ten(world) as client:
            async with push_consumer_of(client, listener, consume_thread_max=1):
                while not given:
                    await trio.sleep(0.1)
                await fail_over(world)
                await trio.sleep(25)
                is_slow = False
                await trio.sleep(40)
                await send(client, LATER)
                with trio.fail_after(120):
                    while LATER[-1] not in given:
                        await trio.sleep(0.1)
            assert set(KEPT) <= set(given)
            assert given[-9:] == [*KEPT, *LATER] or given[-8:] == [*KEPT[1:], *LATER]

    ClientWorld.run(use, store=STORE)


def test_what_was_pulled_of_a_queue_that_begins_later_now_is_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    pull, pulls = Puller._pull, list[int]()

    async def second_is_illegal(puller: Puller, held: HeldQueue, *rest: Any) -> PullResult:
        pulls.append(held.next_offset)
        if len(pulls) == 2:
            return PullResult(PullStatus.OFFSET_ILLEGAL, 4, 4, 6)
        return await pull(puller, held, *rest)

    monkeypatch.setattr(Puller, "_pull", second_is_illegal)

    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, KEPT)
            async with consumer_of(client, None, pull_batch_size=2) as consumer:
                consumer.assign([QUEUE])
                await trio.sleep(30)
                assert await rest_of(consumer, KEPT[-1]) == [*KEPT[:2], *KEPT[4:]]
        assert pulls[:3] == [0, 2, 4]

    ClientWorld.run(use)


def test_with_order_a_queue_whose_lock_is_not_to_be_had_then_is_taken_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_again, lock, refused = Rebalancer.take_again, Rebalancer._lock, list[MessageQueue]()

    async def refuse(*_: object) -> bool:
        return False

    async def without_its_lock(rebalancer: Rebalancer, held: HeldQueue, offset: int) -> bool:
        refused.append(held.queue)
        monkeypatch.setattr(Rebalancer, "_lock", refuse)
        try:
            return await take_again(rebalancer, held, offset)
        finally:
            monkeypatch.setattr(Rebalancer, "_lock", lock)

    monkeypatch.setattr(Rebalancer, "take_again", without_its_lock)

    async def use(world: ClientWorld) -> None:
        given = list[bytes]()

        async def listen(messages: Sequence[MessageExt], _: object) -> None:
            given.extend(message.body for message in messages)

        async with queue_of_ten(world) as client, push_consumer_of(client, Orderly(listen)):
            while len(given) < 10:
                await trio.sleep(0.1)
            await fail_over(world)
            await trio.sleep(60)
            await send(client, LATER)
            with trio.fail_after(60):
                while LATER[-1] not in given:
                    await trio.sleep(0.1)
        assert refused == [QUEUE]
        assert given[10:] == LATER

    ClientWorld.run(use, store=STORE)
