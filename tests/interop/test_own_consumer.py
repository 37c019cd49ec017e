"""Consumers of this project at unmodified brokers of RocketMQ 4.9.7 and 5.3.1, and in one group with Java's."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import trio

from rmq_actors import (
    ClientConfig,
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeFromWhere,
    MessageExt,
    Orderly,
    PullConsumerConfig,
    PushConsumerConfig,
    open_admin,
    open_pull_consumer,
    open_push_consumer,
)
from rmq_actors.protocols.allocation import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    sorted_ids,
    sorted_queues,
)
from rmq_actors.wire.bodies.message_queues import MessageQueue
from tests.interop.java_gateway import CommandFailed, JavaGateway
from tests.interop.servers import Servers
from tests.worlds.java_process import JavaRuntime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
WAIT_S = 60.0


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.3.1", marks=pytest.mark.long)])
def name_server(
    request: pytest.FixtureRequest, module_servers: Servers, java_runtime: JavaRuntime, java_runtime_5: JavaRuntime
) -> Iterator[str]:
    """A name server of this project, at which a Java broker is registered."""
    is_5 = request.param == "5.3.1"
    name = "broker-java-5" if is_5 else "broker-java"
    server = module_servers.name_server(f"namesrv-of-{name}")
    server.start()
    runtime = java_runtime_5 if is_5 else java_runtime
    broker = module_servers.java_broker(name, runtime, namesrvAddr=server.address, autoCreateTopicEnable="true")
    broker.start()
    trio.run(wait_until_topics_are_made, server.address)
    yield server.address
    broker.stop()
    server.stop()


async def wait_until_topics_are_made(name_server: str) -> None:
    """The broker is registered, with the topic by which a first message makes others."""
    async with open_admin(name_server) as admin:
        with trio.fail_after(WAIT_S):
            while "TBW102" not in await admin.topics():
                await trio.sleep(0.1)


async def wait_for(condition: Callable[[], object], what: str) -> None:
    """Poll with a deadline."""
    with trio.move_on_after(WAIT_S):
        while not condition():
            await trio.sleep(0.1)
        return
    raise AssertionError(f"{WAIT_S:g} s, and not {what}")


def bodies(count: int, prefix: str) -> list[bytes]:
    return [f"{prefix}{number:03}".encode() for number in range(count)]


def push(group: str, **settings: Any) -> PushConsumerConfig:
    return PushConsumerConfig(group, consume_from_where=FIRST, **settings)


@pytest.mark.trio
async def test_what_javas_producer_wrote_is_consumed_once_and_committed(
    java_gateway: JavaGateway, name_server: str
) -> None:
    sent, seen = bodies(40, "c"), list[MessageExt]()
    java_gateway.produce(name_server, "OwnConsumed", sent)

    async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
        seen.extend(messages)

    async with open_push_consumer(
        name_server, push("CG_own"), {"OwnConsumed": "*"}, Concurrently(listener)
    ) as consumer:
        await wait_for(lambda: len(seen) >= len(sent), "consumed all")
        status = await mqadmin(java_gateway, name_server, "consumerStatus", "-g", "CG_own", "-s")
        assert "V4_9_7" in status, status
        connections = await mqadmin(java_gateway, name_server, "consumerConnection", "-g", "CG_own")
        assert consumer.client_id in connections, connections
    assert sorted(message.body for message in seen) == sent
    await check_committed(name_server, len(sent))


@pytest.mark.trio
async def test_an_operator_resets_offsets_and_has_a_message_consumed_directly(
    java_gateway: JavaGateway, name_server: str
) -> None:
    topic, group, sent, seen = "OwnReset", "CG_reset", bodies(8, "r"), list[MessageExt]()
    java_gateway.produce(name_server, topic, sent)

    async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
        seen.extend(messages)

    client = ClientConfig(name_server, persist_consumer_offset_interval_ms=200)
    async with open_push_consumer(client, push(group), {topic: "*"}, Concurrently(listener)) as consumer:
        await wait_for(lambda: len(seen) >= len(sent), "consumed all")
        # The broker resets only offsets that it has.
        with trio.move_on_after(WAIT_S):
            while True:
                try:
                    await mqadmin(java_gateway, name_server, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
                    break
                except CommandFailed as error:
                    if "not exist" not in str(error):
                        raise
                    await trio.sleep(0.2)
        await wait_for(lambda: len(seen) >= 2 * len(sent), "consumed all again")
        found = await mqadmin(
            java_gateway,
            name_server,
            "queryMsgById",
            "-i",
            seen[0].offset_msg_id,
            "-g",
            group,
            "-d",
            consumer.client_id,
        )
        assert "CR_SUCCESS" in found, found
        assert [message.body for message in seen[2 * len(sent) :]] == [seen[0].body]


async def mqadmin(java_gateway: JavaGateway, name_server: str, command: str, *options: str) -> str:
    """What an mqadmin command prints, while the consumers of this process go on."""
    return await trio.to_thread.run_sync(java_gateway.mqadmin, name_server, command, *options)


async def check_committed(name_server: str, count: int) -> None:
    """All of the first test's messages are committed."""
    config = PullConsumerConfig("CG_own", consume_from_where=FIRST)
    async with open_pull_consumer(name_server, config) as consumer:
        queues = await consumer.fetch_message_queues("OwnConsumed")
        committed = [await consumer.committed(queue) for queue in queues]
        assert committed == [await consumer.max_offset(queue) for queue in queues]
        assert sum(offset or 0 for offset in committed) == count


@pytest.mark.trio
async def test_one_group_has_a_java_and_a_python_consumer_and_each_takes_over_from_the_other(
    java_gateway: JavaGateway, name_server: str
) -> None:
    topic, group = "OwnShared", "CG_shared"
    seen = list[bytes]()
    java_gateway.produce(name_server, topic, bodies(1, "first"))

    async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
        seen.extend(message.body for message in messages)

    def of_topic(queues: Sequence[MessageQueue]) -> int:
        return sum(queue.topic == topic for queue in queues)

    async with open_push_consumer(name_server, push(group), {topic: "*"}, Concurrently(listener)) as consumer:
        await wait_for(lambda: seen, "consumed the first")
        everything = of_topic(consumer.queues)
        with java_gateway.push_consumer(name_server, group, topic) as java_seen:
            await wait_for(lambda: of_topic(consumer.queues) <= everything // 2, "gave a share to Java")
            assert of_topic(consumer.queues) == everything // 2
            both = bodies(16, "both")
            await trio.to_thread.run_sync(java_gateway.produce, name_server, topic, both)
            await wait_for(lambda: set(both) <= {*seen, *(body for _, body in java_seen)}, "consumed what both share")
            assert set(both) & set(seen)
            assert set(both) & {body for _, body in java_seen}
        await wait_for(lambda: of_topic(consumer.queues) == everything, "took Java's share over")
        alone = bodies(8, "alone")
        await trio.to_thread.run_sync(java_gateway.produce, name_server, topic, alone)
        await wait_for(lambda: set(alone) <= set(seen), "consumed alone")


@pytest.mark.trio
async def test_with_order_and_with_retries(java_gateway: JavaGateway, name_server: str) -> None:
    topic, sent = "OwnOrder", bodies(24, "o")
    java_gateway.produce(name_server, topic, sent)
    seen: dict[int, list[int]] = collections.defaultdict(list)
    again = list[int]()

    async def orderly(messages: Sequence[MessageExt], _: object) -> None:
        for message in messages:
            seen[message.queue_id].append(message.queue_offset)

    async def concurrently(messages: Sequence[MessageExt], _: object) -> None:
        for message in messages:
            if message.body == sent[3]:
                again.append(message.reconsume_times)
                if not message.reconsume_times:
                    raise RuntimeError("to be consumed later")

    async with (
        open_push_consumer(name_server, push("CG_order"), {topic: "*"}, Orderly(orderly)),
        open_push_consumer(name_server, push("CG_retry"), {topic: "*"}, Concurrently(concurrently)),
    ):
        await wait_for(lambda: sum(map(len, seen.values())) >= len(sent), "consumed in order")
        await wait_for(lambda: len(again) >= 2, "consumed again")
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())
    assert again == [0, 1]


@pytest.mark.parametrize(
    ("java_name", "strategy"),
    [
        ("AllocateMessageQueueAveragely", AllocateMessageQueueAveragely()),
        ("AllocateMessageQueueAveragelyByCircle", AllocateMessageQueueAveragelyByCircle()),
        ("AllocateMessageQueueConsistentHash", AllocateMessageQueueConsistentHash()),
        ("AllocateMessageQueueByMachineRoom", AllocateMessageQueueByMachineRoom(frozenset({"r1", "r2"}))),
    ],
)
def test_a_strategy_gives_what_javas_gives(
    java_gateway: JavaGateway, java_name: str, strategy: AllocateMessageQueueStrategy
) -> None:
    jvm = java_gateway.jvm
    java_strategy = getattr(jvm.org.apache.rocketmq.client.consumer.rebalance, java_name)()
    if java_name.endswith("Room"):
        rooms = jvm.java.util.HashSet()
        for room in ("r1", "r2"):
            rooms.add(room)
        java_strategy.setConsumeridcs(rooms)
    for count, members in ((1, 1), (5, 2), (16, 3), (3, 5), (9, 4)):
        queues = sorted_queues(
            MessageQueue(topic="Tä", broker_name=f"r{number % 3}@b{number % 2}", queue_id=number)
            for number in range(count)
        )
        cids = sorted_ids(f"10.0.0.{number}@{number * 7919:x}" for number in range(members))
        java_queues, java_cids = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        for each in queues:
            java_queues.add(
                jvm.org.apache.rocketmq.common.message.MessageQueue(each.topic, each.broker_name, each.queue_id)
            )
        for cid in cids:
            java_cids.add(cid)
        for cid in cids:
            found = java_strategy.allocate("G", cid, java_queues, java_cids)
            assert [str(each.toString()) for each in found] == [
                f"MessageQueue [topic={each.topic}, brokerName={each.broker_name}, queueId={each.queue_id}]"
                for each in strategy.allocate("G", cid, queues, cids)
            ], (count, members, cid)
