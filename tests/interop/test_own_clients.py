"""Each kind of this project's consumers at brokers of RocketMQ 4.9.7 and 5.3.1, and clients where access is checked.

A Java producer has written what they consume, except where a message needs properties.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rmq_actors import (
    Admin,
    ClientConfig,
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageModel,
    Orderly,
    ProducerConfig,
    PullConsumerConfig,
    PushConsumerConfig,
    SendFailed,
    SessionCredentials,
    TopicConfig,
    open_admin,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
)
from rmq_actors.embedding.properties_file import read_properties_file
from rmq_actors.protocols.filter_api import SQL92
from rmq_actors.remoting.tls import TlsConfig, tls_client
from tests.interop.java_gateway import API_TIMEOUT_MS, JavaGateway
from tests.interop.servers import Servers
from tests.worlds.java_process import JavaRuntime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
WAIT_S = 90.0
QUEUES = 4

ACCOUNTS = """\
accounts:
- accessKey: orders-service
  secretKey: its-secret-key
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Guarded=PUB|SUB
  groupPerms:
  - CG_guarded=PUB|SUB
- accessKey: operator
  secretKey: operators-key
  admin: true
"""
SERVICE = SessionCredentials("orders-service", "its-secret-key")
OPERATOR = SessionCredentials("operator", "operators-key")


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.3.1", marks=pytest.mark.long)])
def runtime(request: pytest.FixtureRequest, java_runtime: JavaRuntime, java_runtime_5: JavaRuntime) -> JavaRuntime:
    return java_runtime if request.param == "4.9.7" else java_runtime_5


@pytest.fixture(scope="module")
def name_server(module_servers: Servers, runtime: JavaRuntime) -> Iterator[str]:
    """A name server of this project, at which a broker of this version is registered."""
    version = "java-4" if runtime is module_servers.java_runtime else "java-5"
    server = module_servers.name_server(f"names-of-{version}")
    server.start()
    broker = module_servers.java_broker(
        version, runtime, namesrvAddr=server.address, enablePropertyFilter="true", messageDelayLevel="1s 2s"
    )
    broker.start()
    yield server.address
    broker.stop()
    server.stop()


@attrs.define
class Seen:
    """What consumers got, by the consumer's name, in order."""

    bodies: dict[str, list[bytes]] = attrs.field(factory=lambda: collections.defaultdict(list))
    offsets: dict[int, list[int]] = attrs.field(factory=lambda: collections.defaultdict(list))
    times: list[int] = attrs.field(factory=list)

    def concurrently(self, name: str) -> Concurrently:
        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
            self.bodies[name] += [message.body for message in messages]

        return Concurrently(listener)


def client(name_server: str) -> ClientConfig:
    return ClientConfig(name_server, mq_client_api_timeout_ms=API_TIMEOUT_MS, poll_name_server_interval_ms=1_000)


def push(group: str, **settings: Any) -> PushConsumerConfig:
    return PushConsumerConfig(group, consume_from_where=FIRST, **settings)


async def wait_for(condition: Callable[[], object], what: str) -> None:
    """Poll with a deadline."""
    with trio.move_on_after(WAIT_S):
        while not condition():
            await trio.sleep(0.05)
        return
    raise AssertionError(f"{WAIT_S:g} s, and not {what}")


async def make_topic(admin: Admin, topic: str) -> None:
    """The broker may not be registered yet."""
    with trio.fail_after(WAIT_S):
        while not (await admin.cluster_info()).broker_addr_table:
            await trio.sleep(0.05)
    await admin.create_topic(TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES))


@pytest.mark.trio
async def test_each_kind_of_consumer_gets_what_java_wrote(
    java_gateway: JavaGateway, name_server: str, tmp_path: Path
) -> None:
    topic, seen = "EachKind", Seen()
    sent = [b"message %02d" % number for number in range(32)]

    async def orderly(messages: Sequence[MessageExt], _: object) -> None:
        for message in messages:
            seen.bodies["orderly"].append(message.body)
            seen.offsets[message.queue_id].append(message.queue_offset)

    async def once_more(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
        for message in messages:
            if message.body == sent[3]:
                seen.times.append(message.reconsume_times)
                if not message.reconsume_times:
                    raise RuntimeError("to be consumed later")

    async def pull_all(group: str) -> None:
        """By `async for`, and queue by queue."""
        config = PullConsumerConfig(group, consume_from_where=FIRST)
        async with open_pull_consumer(client(name_server), config, {topic: "*"}) as consumer:
            async for message in consumer:
                seen.bodies["pull"].append(message.body)
                if len(seen.bodies["pull"]) == len(sent):
                    break
            await consumer.commit()
            queues = await consumer.fetch_message_queues(topic)
            assert sum([await consumer.committed(queue) or 0 for queue in queues]) == len(sent)
            found = [await consumer.pull(queue, 0) for queue in queues]
            assert sorted(message.body for each in found for message in each.messages) == sent

    async with open_admin(client(name_server)) as admin:
        await make_topic(admin, topic)
        everybody = {topic: "*"}
        broadcast = MessageModel.BROADCASTING
        async with (
            open_push_consumer(client(name_server), push("CG_each"), everybody, seen.concurrently("concurrent")),
            open_push_consumer(client(name_server), push("CG_each_order"), everybody, Orderly(orderly)),
            open_push_consumer(client(name_server), push("CG_each_retry"), everybody, Concurrently(once_more)),
            open_push_consumer(
                client(name_server),
                push("CG_each_cast", message_model=broadcast),
                everybody,
                seen.concurrently("broadcast 1"),
                directory=tmp_path / "1",
            ),
            open_push_consumer(
                client(name_server),
                push("CG_each_cast", message_model=broadcast),
                everybody,
                seen.concurrently("broadcast 2"),
                directory=tmp_path / "2",
            ),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(pull_all, "CG_each_pull")
            await trio.to_thread.run_sync(java_gateway.produce, name_server, topic, sent)
            names = ("concurrent", "orderly", "broadcast 1", "broadcast 2", "pull")
            await wait_for(lambda: all(len(seen.bodies[name]) >= len(sent) for name in names), "consumed by all")
            await wait_for(lambda: len(seen.times) >= 2, "consumed again")
    assert {name: sorted(bodies) for name, bodies in seen.bodies.items()} == dict.fromkeys(names, sent)
    assert all(offsets == list(range(len(offsets))) for offsets in seen.offsets.values())
    assert seen.times == [0, 1]


@pytest.mark.trio
async def test_tags_and_sql92_choose_what_comes_and_a_delayed_message_comes_later(name_server: str) -> None:
    topic, seen = "Chosen", Seen()
    own = ProducerConfig("PG_chosen", send_msg_timeout_ms=API_TIMEOUT_MS)
    async with open_admin(client(name_server)) as admin, open_producer(client(name_server), own) as producer:
        await make_topic(admin, topic)
        async with (
            open_push_consumer(client(name_server), push("CG_tags"), {topic: "new || paid"}, seen.concurrently("tags")),
            open_push_consumer(client(name_server), push("CG_sql"), {}, seen.concurrently("sql")) as by_sql,
        ):
            by_sql.subscribe(topic, "amount > 5 AND (TAGS IS NOT NULL OR country IN ('de', 'jp'))", SQL92)
            for number, tag in enumerate(("new", "old", "paid", "new")):
                properties = {"TAGS": tag, "amount": str(4 + number), "DELAY": "1" if number == 3 else "0"}
                await producer.send(Message(topic, b"%s %d" % (tag.encode(), number), properties=properties))
            await wait_for(lambda: len(seen.bodies["tags"]) >= 3 and len(seen.bodies["sql"]) >= 2, "chosen")
    assert sorted(seen.bodies["tags"]) == [b"new 0", b"new 3", b"paid 2"]
    assert sorted(seen.bodies["sql"]) == [b"new 3", b"paid 2"]


@pytest.mark.trio
@pytest.mark.parametrize("runtime", ["4.9.7", pytest.param("5.3.1", marks=pytest.mark.long)], indirect=True)
async def test_where_a_tls_broker_checks_access_an_account_does_what_it_may(
    module_servers: Servers, runtime: JavaRuntime, tls_config_file: Path
) -> None:
    version = "guarded-4" if runtime is module_servers.java_runtime else "guarded-5"
    names = module_servers.name_server(
        f"names-of-{version}", **{"tls.server.mode": "enforcing", "tls.config.file": str(tls_config_file)}
    )
    names.start()
    options = ("-Dtls.server.mode=enforcing", "-Dtls.enable=true", f"-Dtls.config.file={tls_config_file}")
    broker = module_servers.java_broker(version, runtime, options, namesrvAddr=names.address, aclEnable="true")
    (broker.directory / "conf").mkdir(exist_ok=True)
    (broker.directory / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    broker.start()
    tls = tls_client(attrs.evolve(TlsConfig.from_properties(read_properties_file(tls_config_file)), enable=True))
    config, own = client(names.address), ProducerConfig("PG_guarded", send_msg_timeout_ms=API_TIMEOUT_MS)
    sent = [b"guarded %d" % number for number in range(4)]
    async with open_admin(config, credentials=OPERATOR, tls=tls) as admin:
        await make_topic(admin, "Guarded")
        await make_topic(admin, "Forbidden")
    seen = Seen()
    async with (
        open_producer(config, own, credentials=SERVICE, tls=tls) as producer,
        open_push_consumer(
            config, push("CG_guarded"), {"Guarded": "*"}, seen.concurrently("all"), credentials=SERVICE, tls=tls
        ),
    ):
        for body in sent[:2]:
            await producer.send(Message("Guarded", body))
        await producer.send_batch([Message("Guarded", body) for body in sent[2:]])
        # RocketMQ refuses with SYSTEM_ERROR, after which a producer tries again.
        with pytest.raises(SendFailed, match="No default permission for topic:Forbidden"):
            await producer.send(Message("Forbidden", b"no"))
        await wait_for(lambda: len(seen.bodies["all"]) >= len(sent), "consumed")
    assert sorted(seen.bodies["all"]) == sent
    for credentials in (None, SessionCredentials("orders-service", "a wrong key")):
        async with open_producer(config, own, credentials=credentials, tls=tls) as producer:
            with pytest.raises(SendFailed, match="AclException"):
                await producer.send(Message("Guarded", b"no"))
    broker.stop()
    names.stop()
