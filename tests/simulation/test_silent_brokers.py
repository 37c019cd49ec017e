"""Consumers of several brokers of which one is silent: what belongs to the others goes on."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from rmq_actors.client.consumer_config import PushConsumerConfig
from rmq_actors.client.group_member import make_requests
from rmq_actors.client.push_consumer import run_push_consumer
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.allocation import AllocateMessageQueueAveragelyByCircle
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from sim_net import Partition
from tests.simulation.test_push_consumer import GROUP, TOPIC, Consumed, bodies, config, send
from tests.worlds.client_world import ClientWorld

STORE = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)


def test_queues_that_another_member_has_now_are_committed_at_once_though_one_broker_is_silent() -> None:
    settings = PushConsumerConfig(GROUP, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    by_circle: dict[str, Any] = {"strategy": AllocateMessageQueueAveragelyByCircle()}
    seldom: dict[str, Any] = {"persist_consumer_offset_interval_ms": 600_000}

    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.cluster.admin() as admin:
            await admin.create_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=8, write_queue_nums=8))
        async with world.instance(**seldom) as one, world.instance(**seldom) as two, world.instance() as asks:
            await send(one, bodies(160))
            requests = make_requests(asks, config())
            await asks.routes.update(TOPIC, deadline_after(3_000))

            async def committed_at_b() -> int:
                queues = [MessageQueue(topic=TOPIC, broker_name="broker-b", queue_id=number) for number in range(8)]
                found = [await requests.query_consumer_offset(queue, deadline_after(3_000)) for queue in queues]
                return sum(offset == 10 for offset in found)

            async with run_push_consumer(one, settings, {TOPIC: "*"}, consumed.concurrently(), **by_circle):
                await consumed.wait_for(bodies(160))
                heal = Partition(0.0, 1e9, "a", world.node.name).begin(world.cluster.world)
                began_s = trio.current_time()
                async with run_push_consumer(two, settings, {TOPIC: "*"}, Consumed().concurrently(), **by_circle):
                    while await committed_at_b() < 4:
                        assert trio.current_time() - began_s < 8
                        await trio.sleep(0.1)
                    heal()

    ClientWorld.run(use, {"a": None, "b": None}, store=STORE)
