"""The administrator's client against this project's brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.client.client_error import MessageRefused, NoRoute
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing import SimCluster
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import Message

TOPIC = "Orders"


def run(body: Callable[[SimCluster], Awaitable[None]]) -> None:
    """Two masters, and their clients."""
    store = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)
    SimCluster({"a": None, "b": None}, store, name_server=True).run(body)


def queue_of(name: str, number: int = 0) -> MessageQueue:
    return MessageQueue(topic=TOPIC, broker_name=name, queue_id=number)


def test_topics_are_made_shown_and_removed_at_every_master() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.admin() as admin, cluster.producer() as producer:
            await admin.create_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2))
            assert TOPIC in await admin.topics()
            assert {data.broker_name for data in (await admin.route(TOPIC)).queue_datas} == {"broker-a", "broker-b"}
            await producer.send(Message(TOPIC, b"x"), queue=queue_of("broker-b", 1))
            status = await admin.topic_status(TOPIC)
            assert {queue: bounds.max_offset for queue, bounds in status.items() if bounds.max_offset} == {
                queue_of("broker-b", 1): 1
            }
            await admin.delete_topic(TOPIC)
            await trio.sleep(1)
            with pytest.raises(NoRoute):
                await admin.route(TOPIC)
            with pytest.raises(MessageRefused, match="illegal characters"):
                await admin.create_topic(TopicConfig(topic_name="a b"))
            with pytest.raises(NoRoute, match="cluster Elsewhere"):
                await admin.create_topic(TopicConfig(topic_name=TOPIC), cluster="Elsewhere")

    run(body)


def test_groups_are_made_shown_and_removed() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.admin() as admin:
            await admin.create_group(SubscriptionGroupConfig(group_name="CG", retry_max_times=3))
            assert (await admin.groups())["CG"].retry_max_times == 3
            await admin.delete_group("CG")
            assert "CG" not in await admin.groups()
            with pytest.raises(MessageRefused):
                await admin.create_group(SubscriptionGroupConfig(group_name=""))

    run(body)


def test_offsets_are_read_and_set_back_by_time() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.admin() as admin, cluster.producer() as producer:
            await admin.create_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1))
            await admin.create_group(SubscriptionGroupConfig(group_name="CG"))
            await trio.sleep(1)
            queue = queue_of("broker-a")
            for number in range(5):
                await producer.send(Message(TOPIC, b"%d" % number), queue=queue)
                await trio.sleep(1)
            third_ms = cluster.messages("a")[2].store_timestamp_ms
            assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 5)
            assert await admin.search_offset(queue, third_ms) == 2
            await admin.update_consumer_offset("CG", queue, 5)
            assert await admin.consumer_offset("CG", queue) == 5
            found = await admin.reset_offset_by_timestamp("CG", TOPIC, third_ms)
            assert found == {queue: 2, queue_of("broker-b"): 0}
            assert await admin.consumer_offset("CG", queue) == 2
            assert (await admin.reset_offset_by_timestamp("CG", TOPIC, third_ms + 1_500, force=False))[queue] == 2
            stats = await admin.consume_stats("CG", TOPIC)
            assert (stats[queue].broker_offset, stats[queue].consumer_offset) == (5, 2)
            with pytest.raises(MessageRefused, match="message id"):
                await admin.message_by_id("nonsense")

    run(body)
