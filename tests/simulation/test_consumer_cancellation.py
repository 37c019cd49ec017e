"""Consumers and administrators that are cancelled wherever they can be: nothing stays, and no message is lost."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import attrs
import pytest
import trio

from rmq_actors.client.admin import Admin
from rmq_actors.client.client_error import BrokerRefused, NoRoute
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.consumer_config import PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import Concurrently, MessageListener, Orderly
from rmq_actors.client.producer import run_producer
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.testing import SimCluster
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import Message
from sim_net import CancelInjection, cancel_at_every_checkpoint
from tests.simulation.test_client_cancellation import STORE, TOPIC, at_rest

GROUP = "CG"
BODIES = [b"0", b"1", b"2"]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@attrs.define(eq=False)
class Taken:
    """What listeners were given."""

    bodies: list[bytes] = attrs.field(factory=list)
    came: trio.Event = attrs.field(factory=trio.Event)

    async def listen(self, messages: Sequence[MessageExt], _: object) -> None:
        await trio.sleep(0.01)
        self.take(message.body for message in messages)

    def take(self, bodies: Iterable[bytes]) -> None:
        self.bodies += bodies
        if set(BODIES) <= set(self.bodies):
            self.came.set()


Use = Callable[[SimCluster, Taken], Awaitable[None]]


def push(listener: Callable[[Taken], MessageListener], model: MessageModel = MessageModel.CLUSTERING) -> Use:
    async def use(cluster: SimCluster, taken: Taken) -> None:
        config = PushConsumerConfig(GROUP, message_model=model, consume_from_where=FIRST)
        async with cluster.push_consumer(config, {TOPIC: "*"}, listener(taken)):
            await taken.came.wait()

    return use


async def poll(cluster: SimCluster, taken: Taken) -> None:
    config = PullConsumerConfig(GROUP, consume_from_where=FIRST)
    async with cluster.consumer(config, {TOPIC: "*"}) as consumer:
        while not taken.came.is_set():
            taken.take([message.body for message in await consumer.poll(1000)])
            await consumer.commit()


async def iterate(cluster: SimCluster, taken: Taken) -> None:
    config = PullConsumerConfig(GROUP, consume_from_where=FIRST)
    async with cluster.consumer(config, {TOPIC: "*"}) as consumer:
        async for message in consumer:
            taken.take([message.body])
            if taken.came.is_set():
                return


KINDS: Mapping[str, Use] = {
    "concurrent": push(lambda taken: Concurrently(taken.listen)),
    "orderly": push(lambda taken: Orderly(taken.listen)),
    "broadcasting": push(lambda taken: Concurrently(taken.listen), MessageModel.BROADCASTING),
    "poll": poll,
    "async for": iterate,
}


async def produce(cluster: SimCluster) -> None:
    async with cluster.producer() as producer:
        for body in BODIES:
            await producer.send(Message(TOPIC, body))


async def check_left_nothing(cluster: SimCluster) -> None:
    """No machine of a client has a task or a socket, and the broker knows no member and no lock."""
    await trio.sleep(0.5)  # what the client has sent last is on its way
    for node in cluster.world.nodes.values():
        if node.name.startswith("client-"):
            assert not node.is_up
            assert node.left_open == []
    remoting = cluster.broker("a").remoting
    assert remoting is not None
    assert remoting.consumers == 0
    assert remoting._housekeeping.locks.count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_is_cancelled_leaves_nothing_and_loses_nothing(kind: str) -> None:
    def run(injection: CancelInjection) -> None:
        async def body(cluster: SimCluster) -> None:
            await produce(cluster)
            taken = Taken()
            with injection:
                await KINDS[kind](cluster, taken)
            await check_left_nothing(cluster)
            # The next member has what this one has not consumed.
            if kind != "broadcasting" and not taken.came.is_set():
                await KINDS[kind](cluster, taken)
            assert kind == "broadcasting" or set(taken.bodies) == set(BODIES)

        SimCluster({"a": None}, STORE, name_server=True).run(body)

    assert cancel_at_every_checkpoint(run) >= 8


QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
PullCall = Callable[[PullConsumer], Awaitable[object]]


async def take(consumer: PullConsumer) -> None:
    """What the asyncio facade does."""
    with consumer.polling():
        await consumer.take(500)


async def take_one(consumer: PullConsumer) -> None:
    with consumer.polling():
        await consumer.take_one()


GIVING_CALLS: Mapping[str, PullCall] = {
    "poll": lambda consumer: consumer.poll(500),
    "__anext__": lambda consumer: consumer.__anext__(),
    "take": take,
    "take_one": take_one,
}
PULL_CALLS: Mapping[str, PullCall] = {
    **GIVING_CALLS,
    "commit": lambda consumer: consumer.commit(),
    "fetch_message_queues": lambda consumer: consumer.fetch_message_queues(TOPIC),
    "pull": lambda consumer: consumer.pull(QUEUE, 99, block_if_not_found=True),
    "committed": lambda consumer: consumer.committed(QUEUE),
    "update_consume_offset": lambda consumer: consumer.update_consume_offset(QUEUE, 0),
    "max_offset": lambda consumer: consumer.max_offset(QUEUE),
    "min_offset": lambda consumer: consumer.min_offset(QUEUE),
    "offset_for_timestamp": lambda consumer: consumer.offset_for_timestamp(QUEUE, 0),
}
AdminCall = Callable[[Admin], Awaitable[object]]
ADMIN_CALLS: Mapping[str, AdminCall] = {
    "cluster_info": lambda admin: admin.cluster_info(),
    "topics": lambda admin: admin.topics(),
    "route": lambda admin: admin.route(TOPIC),
    "create_topic": lambda admin: admin.create_topic(TopicConfig(topic_name="New")),
    "delete_topic": lambda admin: admin.delete_topic("Other"),
    "topic_status": lambda admin: admin.topic_status(TOPIC),
    "create_group": lambda admin: admin.create_group(SubscriptionGroupConfig(group_name="NewGroup")),
    "delete_group": lambda admin: admin.delete_group("OtherGroup"),
    "groups": lambda admin: admin.groups(),
    "consume_stats": lambda admin: admin.consume_stats(GROUP, TOPIC),
    "consumer_offset": lambda admin: admin.consumer_offset(GROUP, QUEUE),
    "update_consumer_offset": lambda admin: admin.update_consumer_offset(GROUP, QUEUE, 0),
    "reset_offset_by_timestamp": lambda admin: admin.reset_offset_by_timestamp(GROUP, TOPIC, 0),
    "search_offset": lambda admin: admin.search_offset(QUEUE, 0),
    "max_offset": lambda admin: admin.max_offset(QUEUE),
    "min_offset": lambda admin: admin.min_offset(QUEUE),
    "message_by_id": lambda admin: admin.message_by_id("0A00000100002A9F0000000000000000"),
    "messages_by_key": lambda admin: admin.messages_by_key(TOPIC, "key"),
    "messages_by_unique_id": lambda admin: admin.messages_by_unique_id(TOPIC, "0A000001"),
}


def test_every_call_is_cancelled() -> None:
    for tried, of in ((PULL_CALLS, PullConsumer), (ADMIN_CALLS, Admin)):
        calls = {name for name, call in vars(of).items() if inspect.iscoroutinefunction(call)}
        public = {name for name in calls if not name.startswith("_") or name == "__anext__"}
        assert set(tried) == public


@pytest.mark.parametrize("name", PULL_CALLS)
def test_a_call_of_a_pull_consumer_that_is_cancelled_leaves_nothing(name: str) -> None:
    def run(injection: CancelInjection) -> None:
        async def body(cluster: SimCluster) -> None:
            await produce(cluster)
            async with cluster.client() as client:
                config = PullConsumerConfig(GROUP, consume_from_where=FIRST)
                async with run_pull_consumer(client, config, {TOPIC: "*"}) as consumer:
                    taken = Taken()
                    if name == "commit":
                        taken.take([message.body for message in await consumer.poll(1000)])
                    with injection:
                        await PULL_CALLS[name](consumer)
                    with trio.move_on_after(60):
                        while not taken.came.is_set() and name not in GIVING_CALLS:
                            taken.take([message.body for message in await consumer.poll(1000)])
                    await consumer.commit()
                # The pulls of its queues have ended with it.
                await trio.sleep(0.5)
                assert at_rest(client) == (0, 0, False)
            await check_left_nothing(cluster)

        SimCluster({"a": None}, STORE, name_server=True).run(body)

    assert cancel_at_every_checkpoint(run) >= 1


#: Of each way to ask: a name server, all masters, a queue's one, by two requests.
SOME_ADMIN_CALLS = (
    "topics",
    "create_topic",
    "delete_group",
    "consume_stats",
    "max_offset",
    "reset_offset_by_timestamp",
)


@pytest.mark.parametrize(
    "name",
    [name if name in SOME_ADMIN_CALLS else pytest.param(name, marks=pytest.mark.long) for name in ADMIN_CALLS],
)
def test_a_call_of_an_administrator_that_is_cancelled_leaves_nothing(name: str) -> None:
    def run(injection: CancelInjection) -> None:
        async def body(cluster: SimCluster) -> None:
            await produce(cluster)
            async with cluster.client() as client:
                admin = Admin(client)
                # Some ask for what there is not.
                with injection, contextlib.suppress(BrokerRefused, NoRoute):
                    await ADMIN_CALLS[name](admin)
                await trio.sleep(0.5)
                assert at_rest(client) == (0, 0, False)
                assert TOPIC in await admin.topics()
                async with run_producer(client, ProducerConfig("PG")) as producer:
                    assert (await producer.send(Message(TOPIC, b"after"))).queue.topic == TOPIC
            await check_left_nothing(cluster)

        SimCluster({"a": None}, STORE, name_server=True).run(body)

    assert cancel_at_every_checkpoint(run) >= 2


def test_a_group_is_unregistered_at_every_broker_that_had_a_heartbeat() -> None:
    """Also where no route names that broker any more, and where the next heartbeats are just about to be sent."""

    async def body(cluster: SimCluster) -> None:
        await produce(cluster)
        remoting = cluster.broker("a").remoting
        assert remoting is not None
        async with cluster.client() as client:
            config = PullConsumerConfig(GROUP, consume_from_where=FIRST)
            async with run_pull_consumer(client, config, {TOPIC: "*"}) as consumer:
                await consumer.poll(1000)
                assert remoting.consumers == 1
                client.routes._brokers.clear()
                client.heartbeats.groups_changed()
            await trio.sleep(0.5)
            assert remoting.consumers == 0

    SimCluster({"a": None}, STORE, name_server=True).run(body)
