"""This project's producer and administrator with brokers of RocketMQ 4.9.7 and 5.3.1, and ours. Java reads it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs
import pytest
import trio

from rmq_actors import (
    Admin,
    BrokerRefused,
    ClientConfig,
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    SendStatus,
    StoredMessage,
    SubscriptionGroupConfig,
    TopicConfig,
    open_admin,
    open_producer,
    select_message_queue_by_hash,
)
from tests.interop.java_gateway import API_TIMEOUT_MS, JavaGateway
from tests.interop.servers import Servers
from tests.worlds.java_process import JavaRuntime
from tests.worlds.server_process import ServerProcess

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

MEGABYTE = 1024 * 1024
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16 * MEGABYTE,
    "messageDelayLevel": "1s 2s",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
}
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
#: What the listener says at once, and when it is asked.
EXECUTES = {b"commit": COMMIT, b"rollback": ROLLBACK}
CHECKS = {b"commit later": COMMIT, b"rollback later": ROLLBACK}


@attrs.frozen
class Cluster:
    """A name server, and a broker of this name."""

    name_server: str
    broker: str


@pytest.fixture(scope="module", params=["java", "java-5", "own"])
def cluster(
    request: pytest.FixtureRequest, module_servers: Servers, java_runtime: JavaRuntime, java_runtime_5: JavaRuntime
) -> Iterator[Cluster]:
    kind = str(request.param)
    name = f"broker-{kind}-produced"
    if kind.startswith("java"):
        names = module_servers.java_name_server(f"{kind}-names-produced")
        names.start()
        address = f"127.0.0.1:{names.listen_port}"
        runtime = java_runtime_5 if kind == "java-5" else java_runtime
        server: ServerProcess = module_servers.java_broker(
            name, runtime, brokerName=name, namesrvAddr=address, **SETTINGS
        )
    else:
        own_names = module_servers.name_server("own-names-produced")
        own_names.start()
        address = own_names.address
        server = module_servers.broker_command(name, brokerName=name, namesrvAddr=address, **SETTINGS)
    server.start()
    yield Cluster(address, name)
    server.stop()


def config(cluster: Cluster) -> ClientConfig:
    return ClientConfig(
        cluster.name_server, mq_client_api_timeout_ms=API_TIMEOUT_MS, poll_name_server_interval_ms=1_000
    )


@attrs.define
class Listener:
    asked: set[bytes] = attrs.field(factory=set)

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return EXECUTES.get(message.body, LocalTransactionState.UNKNOW)

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        self.asked.add(message.body)
        return CHECKS[message.body]


async def make_topic(admin: Admin, topic: str) -> None:
    """The broker may not be registered yet."""
    with trio.fail_after(60):
        while not (await admin.cluster_info()).broker_addr_table:
            await trio.sleep(0.1)
    await admin.create_topic(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4))


async def send_each_kind(producer: Producer, cluster: Cluster) -> list[bytes]:
    """The bodies that were sent."""
    queue = MessageQueue(topic="OwnKinds", broker_name=cluster.broker, queue_id=3)
    long = [bytes(100_000), Random(1).randbytes(3_000_000)]
    plain = Message("OwnKinds", b"plain", flag=7, properties={"TAGS": "a", "KEYS": "key-1", "grüße": "Straße 日本 🙂"})
    results = [await producer.send(plain)]
    results += [await producer.send(Message("OwnKinds", body)) for body in long]
    results.append(await producer.send(Message("OwnKinds", b"to a queue"), queue=queue))
    assert results[-1].queue == queue
    results += [
        await producer.send_by_selector(Message("OwnKinds", b"ordered"), select_message_queue_by_hash, "order-1")
        for _ in range(2)
    ]
    batch = [b"batch %d" % number for number in range(10)]
    results.append(await producer.send_batch([Message("OwnKinds", body) for body in batch]))
    results.append(await producer.send(Message("OwnKinds", b"delayed", properties={"DELAY": "1"})))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    await producer.send_oneway(Message("OwnKinds", b"one way"))
    return [b"plain", *long, b"to a queue", b"ordered", b"ordered", *batch, b"delayed", b"one way"]


async def send_together(admin: Admin, cluster: Cluster) -> list[bytes]:
    """Messages of concurrent tasks with autoBatch, each found by its own id: the bodies that were sent."""
    own = ProducerConfig("PG_own_together", send_msg_timeout_ms=API_TIMEOUT_MS, auto_batch=True)
    bodies = [b"together %d" % number for number in range(20)]

    async def send(producer: Producer, body: bytes) -> None:
        result = await producer.send(Message("OwnKinds", body, properties={"KEYS": body.decode()}))
        found = await admin.message_by_id(result.offset_msg_id)
        assert (found.body, found.queue_id, found.queue_offset) == (body, result.queue.queue_id, result.queue_offset)
        assert found.properties["UNIQ_KEY"] == result.msg_id

    async with open_producer(config(cluster), own) as producer, trio.open_nursery() as nursery:
        for body in bodies:
            nursery.start_soon(send, producer, body)
    return bodies


def test_every_kind_of_message_is_consumed_by_java(cluster: Cluster, java_gateway: JavaGateway) -> None:
    async def produce() -> list[bytes]:
        own = ProducerConfig("PG_own", send_msg_timeout_ms=API_TIMEOUT_MS)
        async with open_admin(config(cluster)) as admin, open_producer(config(cluster), own) as producer:
            await make_topic(admin, "OwnKinds")
            sent = await send_each_kind(producer, cluster) + await send_together(admin, cluster)
            outside = MessageQueue(topic="OwnKinds", broker_name=cluster.broker, queue_id=99)
            with pytest.raises(BrokerRefused, match="queueId"):
                await producer.send(Message("OwnKinds", b"nowhere"), queue=outside)
            return sent

    sent = trio.run(produce)
    assert sorted(java_gateway.consume(cluster.name_server, "OwnKinds", len(sent))) == sorted(sent)


def test_transactions_end_as_the_listener_says_and_the_broker_asks(cluster: Cluster, java_gateway: JavaGateway) -> None:
    listener = Listener()

    async def produce() -> None:
        own = ProducerConfig("PG_own_transactions", send_msg_timeout_ms=API_TIMEOUT_MS)
        async with (
            open_admin(config(cluster)) as admin,
            open_producer(config(cluster), own, transaction_listener=listener) as producer,
        ):
            await make_topic(admin, "OwnTransactions")
            for body in (*EXECUTES, *CHECKS):
                result = await producer.send_in_transaction(Message("OwnTransactions", body))
                assert result.local_transaction_state is EXECUTES.get(body, LocalTransactionState.UNKNOW)
            with trio.fail_after(120):
                while listener.asked < CHECKS.keys():
                    await trio.sleep(0.1)
            await producer.send(Message("OwnTransactions", b"after"))

    trio.run(produce)
    found = java_gateway.consume(cluster.name_server, "OwnTransactions", 3)
    assert sorted(found) == [b"after", b"commit", b"commit later"]


def test_topics_groups_offsets_and_messages_are_found_by_the_administrator(cluster: Cluster) -> None:
    async def administer() -> None:
        async with open_admin(config(cluster)) as admin, open_producer(config(cluster), "PG_own_admin") as producer:
            await make_topic(admin, "OwnAdmin")
            assert "OwnAdmin" in await admin.topics()
            queue = MessageQueue(topic="OwnAdmin", broker_name=cluster.broker, queue_id=0)
            sent = [
                await producer.send(Message("OwnAdmin", b"%d" % n * 2_000, properties={"KEYS": f"k{n}"}), queue=queue)
                for n in range(3)
            ]
            assert (await admin.message_by_id(sent[1].offset_msg_id)).body == b"1" * 2_000
            with trio.fail_after(60):
                while not await admin.messages_by_key("OwnAdmin", "k2"):
                    await trio.sleep(0.1)
            (found,) = await admin.messages_by_unique_id("OwnAdmin", sent[2].msg_id)
            assert found.body == b"2" * 2_000
            assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 3)
            assert (await admin.topic_status("OwnAdmin"))[queue].max_offset == 3
            await admin.create_group(SubscriptionGroupConfig(group_name="CG_own_admin", retry_max_times=3))
            assert (await admin.groups())["CG_own_admin"].retry_max_times == 3
            await admin.update_consumer_offset("CG_own_admin", queue, 3)
            assert await admin.consumer_offset("CG_own_admin", queue) == 3
            assert (await admin.consume_stats("CG_own_admin", "OwnAdmin"))[queue].consumer_offset == 3
            assert (await admin.reset_offset_by_timestamp("CG_own_admin", "OwnAdmin", 0))[queue] == 0
            assert await admin.consumer_offset("CG_own_admin", queue) == 0
            await admin.delete_group("CG_own_admin")
            await admin.delete_topic("OwnAdmin")
            assert "OwnAdmin" not in await admin.topics()

    trio.run(administer)
