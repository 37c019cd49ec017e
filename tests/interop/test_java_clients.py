"""Java's clients 4.9.7, unmodified, with this project's broker: they send, pull, share out queues, and commit."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.java_gateway import API_TIMEOUT_MS, JavaGateway
from tests.interop.servers import Servers
from tests.worlds.java_broker import JavaBroker
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MEGABYTE = 1024 * 1024
NAME = "broker-own"
#: A message that is consumed in vain comes again with level 3, then 4.
DELAY_LEVELS = "1s 2s 1s 1s 1s"


@pytest.fixture(scope="module")
def name_server(module_servers: Servers) -> str:
    """A name server of this project."""
    server = module_servers.name_server("namesrv")
    server.start()
    return server.address


@pytest.fixture(scope="module", autouse=True)
def broker(module_servers: Servers, name_server: str) -> BrokerCommand:
    """A broker as `rmq-actors broker` runs it."""
    broker = module_servers.broker_command(
        NAME,
        brokerName=NAME,
        namesrvAddr=name_server,
        mappedFileSizeCommitLog=16 * MEGABYTE,
        messageDelayLevel=DELAY_LEVELS,
        transactionCheckInterval=1000,
        transactionTimeOut=1000,
        transactionCheckMax=3,
        enablePropertyFilter="true",
    )
    broker.start()
    return broker


@pytest.fixture(scope="module")
def producer(java_gateway: JavaGateway, name_server: str) -> Iterator[Any]:
    producer = java_gateway.jvm.org.apache.rocketmq.client.producer.DefaultMQProducer("PG_java")
    producer.setNamesrvAddr(name_server)
    producer.setInstanceName("java-clients")
    producer.setSendMsgTimeout(API_TIMEOUT_MS)
    producer.setMaxMessageSize(4 * MEGABYTE)
    producer.start()
    yield producer
    producer.shutdown()


def message(gateway: JavaGateway, topic: str, body: bytes, **properties: str) -> Any:
    made = gateway.jvm.org.apache.rocketmq.common.message.Message(topic, bytearray(body))
    for name, value in properties.items():
        made.putUserProperty(name, value)
    return made


def send_ok(result: Any) -> Any:
    assert result.getSendStatus().name() == "SEND_OK", str(result)
    return result


def test_a_topic_is_made_by_its_first_message_and_consumed_from_the_first_on(
    java_gateway: JavaGateway, name_server: str
) -> None:
    bodies = [b"%d" % number for number in range(50)]
    assert java_gateway.produce(name_server, "JavaFirst", bodies) == [NAME] * 50
    assert sorted(java_gateway.consume(name_server, "JavaFirst", 50)) == sorted(bodies)


def test_text_of_every_kind_and_large_bodies_come_back_as_they_were(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    texts = {"grüße": "Straße 日本 🙂", "plain": "x"}
    # The client compresses the bodies; that makes the last one a little longer than it was.
    large = [bytes(100_000), bytes(range(256)) * 16_000, Random(1).randbytes(4_000_000)]
    for body in large:
        send_ok(producer.send(message(java_gateway, "JavaLarge", body, **texts)))
    assert sorted(java_gateway.consume(name_server, "JavaLarge", 3)) == sorted(large)


def test_batches_and_one_way_messages_and_chosen_queues(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    jvm = java_gateway.jvm
    send_ok(producer.send(message(java_gateway, "JavaKinds", b"first")))
    batch = jvm.java.util.ArrayList()
    for number in range(10):
        batch.add(message(java_gateway, "JavaKinds", b"batch %d" % number))
    assert len(str(send_ok(producer.send(batch)).getOffsetMsgId()).split(",")) == 10
    queue = jvm.org.apache.rocketmq.common.message.MessageQueue("JavaKinds", NAME, 2)
    before = producer.maxOffset(queue)
    offsets = [
        send_ok(producer.send(message(java_gateway, "JavaKinds", b"queue %d" % number), queue)).getQueueOffset()
        for number in range(5)
    ]
    assert offsets == list(range(before, before + 5))
    producer.sendOneway(message(java_gateway, "JavaKinds", b"one way"))
    found = java_gateway.consume(name_server, "JavaKinds", 17)
    assert sorted(found) == sorted(
        [b"first", b"one way", *(b"batch %d" % n for n in range(10)), *(b"queue %d" % n for n in range(5))]
    )


class SendCallback:
    """Notes how each asynchronous send ended."""

    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    def onSuccess(self, result: Any) -> None:  # noqa: N802 - Java's name
        self._ended.append(str(result.getSendStatus().name()))

    def onException(self, error: Any) -> None:  # noqa: N802 - Java's name
        self._ended.append(str(error))

    class Java:
        implements: ClassVar = ["org.apache.rocketmq.client.producer.SendCallback"]


def test_asynchronous_sends_are_answered_each(java_gateway: JavaGateway, name_server: str, producer: Any) -> None:
    send_ok(producer.send(message(java_gateway, "JavaAsync", b"first")))
    ended: list[str] = []
    for number in range(30):
        producer.send(message(java_gateway, "JavaAsync", b"%d" % number), SendCallback(ended))
    wait_until(lambda: len(ended) == 30, 60, "an answer for each")
    assert ended == ["SEND_OK"] * 30
    found = java_gateway.consume(name_server, "JavaAsync", 31)
    assert sorted(found) == sorted([b"first", *(b"%d" % number for number in range(30))])


def test_messages_of_one_key_have_one_queue_which_a_pull_consumer_reads_in_order(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    client = java_gateway.jvm.org.apache.rocketmq.client
    by_hash = client.producer.selector.SelectMessageQueueByHash()
    send_ok(producer.send(message(java_gateway, "JavaPulled", b"first")))
    for number in range(40):
        send_ok(producer.send(message(java_gateway, "JavaPulled", b"%d" % number), by_hash, f"order-{number % 5}"))
    consumer = client.consumer.DefaultMQPullConsumer("CG_pulled")
    consumer.setNamesrvAddr(name_server)
    consumer.setInstanceName("pulled")
    consumer.start()
    read: dict[int, list[int]] = {}
    try:
        for queue in consumer.fetchSubscribeMessageQueues("JavaPulled"):
            end = consumer.maxOffset(queue)
            at = consumer.minOffset(queue)
            bodies = read.setdefault(queue.getQueueId(), [])
            while at < end:
                pulled = consumer.pull(queue, "*", at, 3)
                assert pulled.getPullStatus().name() == "FOUND"
                bodies += [
                    int(text) for each in pulled.getMsgFoundList() if (text := bytes(each.getBody())) != b"first"
                ]
                at = pulled.getNextBeginOffset()
            consumer.updateConsumeOffset(queue, at)
            assert consumer.fetchConsumeOffset(queue, False) == end
    finally:
        consumer.shutdown()
    assert sorted(number for bodies in read.values() for number in bodies) == list(range(40))
    for key in range(5):
        holders = [bodies for bodies in read.values() if key in {number % 5 for number in bodies}]
        assert [[number for number in bodies if number % 5 == key] for bodies in holders] == [list(range(key, 40, 5))]


def lite_pull(gateway: JavaGateway, name_server: str, group: str, topic: str, instance: str) -> Any:
    consumer = gateway.jvm.org.apache.rocketmq.client.consumer.DefaultLitePullConsumer(group)
    consumer.setNamesrvAddr(name_server)
    consumer.setInstanceName(instance)
    consumer.setMqClientApiTimeout(API_TIMEOUT_MS)
    consumer.setConsumeFromWhere(
        gateway.jvm.org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic, "*")
    consumer.start()
    return consumer


def queues_of(consumer: Any) -> int:
    return int(consumer.assignment().size())


def test_two_consumers_of_a_group_share_the_queues_and_what_one_leaves_the_other_gets(
    java_gateway: JavaGateway, name_server: str
) -> None:
    java_gateway.produce(name_server, "JavaShared", [b"x"])
    first = lite_pull(java_gateway, name_server, "CG_shared", "JavaShared", "shared-1")
    try:
        wait_until(lambda: queues_of(first) == 4, 120, "one consumer has all four queues")
        second = lite_pull(java_gateway, name_server, "CG_shared", "JavaShared", "shared-2")
        try:
            # The broker tells the first one at once; by itself it looks every 20 s.
            wait_until(lambda: (queues_of(first), queues_of(second)) == (2, 2), 15, "they share the queues")
        finally:
            second.shutdown()
        wait_until(lambda: queues_of(first) == 4, 15, "it has all queues again")
    finally:
        first.shutdown()


def test_a_group_goes_on_where_it_was_after_the_broker_has_started_again(
    java_gateway: JavaGateway, name_server: str, broker: BrokerCommand
) -> None:
    java_gateway.produce(name_server, "JavaAgain", [b"a", b"b", b"c"])
    consumer = lite_pull(java_gateway, name_server, "CG_again", "JavaAgain", "again-1")
    found: list[bytes] = []

    def poll() -> int:
        found.extend(bytes(each.getBody()) for each in consumer.poll(500))
        return len(found)

    try:
        wait_until(lambda: poll() == 3, 120, "three messages")
        consumer.commitSync()
    finally:
        consumer.shutdown()
    broker.stop()
    broker.start()
    java_gateway.produce(name_server, "JavaAgain", [b"d"])
    consumer = lite_pull(java_gateway, name_server, "CG_again", "JavaAgain", "again-2")
    try:
        wait_until(lambda: poll() == 4, 120, "the fourth message")
    finally:
        consumer.shutdown()
    assert sorted(found) == [b"a", b"b", b"c", b"d"]


def test_a_push_consumer_is_given_new_messages_at_once(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    send_ok(producer.send(message(java_gateway, "JavaPush", b"0")))
    with java_gateway.push_consumer(name_server, "CG_push", "JavaPush") as consumed:
        wait_until(lambda: len(consumed) == 1, 120, "the first message")
        for number in range(1, 40):
            send_ok(producer.send(message(java_gateway, "JavaPush", b"%d" % number)))
        # Its pulls are held: nothing waits for the next look, which would come seconds later.
        wait_until(lambda: len(consumed) == 40, 3, "what was just sent")
    assert sorted(int(body) for _, body in consumed) == list(range(40))


def test_an_orderly_consumer_has_each_queue_in_order(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    queue_of = java_gateway.jvm.org.apache.rocketmq.common.message.MessageQueue
    send_ok(producer.send(message(java_gateway, "JavaOrder", b"-1")))
    for number in range(60):
        send_ok(
            producer.send(message(java_gateway, "JavaOrder", b"%d" % number), queue_of("JavaOrder", NAME, number % 3))
        )
    failed: set[bytes] = set()

    def fails_once(body: bytes) -> bool:
        if body in failed or int(body) % 20:
            return False
        failed.add(body)
        return True

    with java_gateway.push_consumer(name_server, "CG_order", "JavaOrder", orderly=True, fails=fails_once) as consumed:
        wait_until(lambda: {int(body) for _, body in consumed} >= set(range(60)), 120, "all in order")
        wait_until(lambda: failed <= {b"0", b"20", b"40", b"-1"} and len(consumed) >= 64, 60, "what failed comes again")
    for queue in range(3):
        of_queue = [int(body) for queue_id, body in consumed if queue_id == queue and body != b"-1"]
        assert list(dict.fromkeys(of_queue)) == [number for number in range(60) if number % 3 == queue]


def test_each_consumer_of_a_broadcast_gets_every_message(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    for number in range(10):
        send_ok(producer.send(message(java_gateway, "JavaAll", b"%d" % number)))
    with (
        java_gateway.push_consumer(name_server, "CG_all", "JavaAll", broadcast=True) as first,
        java_gateway.push_consumer(name_server, "CG_all", "JavaAll", broadcast=True) as second,
    ):
        wait_until(lambda: len(first) >= 10 and len(second) >= 10, 120, "ten messages each")
    assert sorted(first) == sorted(second)


def test_a_delayed_message_is_consumed_when_its_delay_is_over(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    send_ok(producer.send(message(java_gateway, "JavaDelay", b"at once")))
    stored_ms, found_ms = dict[int, int](), dict[int, int]()
    with java_gateway.push_consumer(name_server, "CG_delay", "JavaDelay") as consumed:
        wait_until(lambda: len(consumed) == 1, 120, "the first message")
        for level in (2, 1):
            delayed = message(java_gateway, "JavaDelay", b"level %d" % level)
            delayed.setDelayTimeLevel(level)
            stored_ms[level] = time.monotonic_ns() // 1_000_000
            send_ok(producer.send(delayed))

        def note() -> bool:
            for _, body in consumed[1:]:
                found_ms.setdefault(int(body.split()[1]), time.monotonic_ns() // 1_000_000)
            return len(found_ms) == 2

        wait_until(note, 60, "the delayed messages")
    assert [body for _, body in consumed] == [b"at once", b"level 1", b"level 2"]
    for level, delay_ms in ((1, 1_000), (2, 2_000)):
        assert found_ms[level] - stored_ms[level] >= delay_ms


def test_what_a_push_consumer_cannot_consume_comes_again_and_then_goes_to_the_dead_letters(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    send_ok(producer.send(message(java_gateway, "JavaRetry", b"good")))
    send_ok(producer.send(message(java_gateway, "JavaRetry", b"bad")))
    with java_gateway.push_consumer(
        name_server, "CG_retry", "JavaRetry", fails=lambda body: body == b"bad", max_reconsume_times=2
    ) as consumed:
        wait_until(lambda: [body for _, body in consumed].count(b"bad") == 3, 120, "once, and two retries")
        dead = lite_pull(java_gateway, name_server, "CG_dead", "%DLQ%CG_retry", "dead-1")
        letters: list[Any] = []

        def poll_dead() -> bool:
            letters.extend(dead.poll(500))
            return bool(letters)

        try:
            wait_until(poll_dead, 120, "a dead letter")
        finally:
            dead.shutdown()
    assert sorted(body for _, body in consumed) == [b"bad"] * 3 + [b"good"]
    (letter,) = letters
    assert bytes(letter.getBody()) == b"bad"
    assert (letter.getReconsumeTimes(), letter.getProperty("RETRY_TOPIC")) == (3, "JavaRetry")


def test_a_consumer_of_tags_gets_those_alone(java_gateway: JavaGateway, name_server: str, producer: Any) -> None:
    made = java_gateway.jvm.org.apache.rocketmq.common.message.Message
    for number in range(30):
        send_ok(producer.send(made("JavaTags", f"Tag{number % 3}", bytearray(b"%d" % number))))
    with java_gateway.push_consumer(name_server, "CG_tags", "JavaTags", tags="Tag0 || Tag2") as consumed:
        wait_until(lambda: len(consumed) >= 20, 120, "two tags of three")
    assert {int(body) % 3 for _, body in consumed} == {0, 2}


def test_a_consumer_of_an_expression_gets_what_meets_it(
    java_gateway: JavaGateway, name_server: str, producer: Any
) -> None:
    client = java_gateway.jvm.org.apache.rocketmq.client
    for number in range(30):
        colour = "red" if number % 2 else "blue"
        send_ok(producer.send(message(java_gateway, "JavaSql", b"%d" % number, number=str(number), colour=colour)))
    consumer = client.consumer.DefaultLitePullConsumer("CG_sql")
    consumer.setNamesrvAddr(name_server)
    consumer.setInstanceName("sql")
    consumer.setConsumeFromWhere(
        java_gateway.jvm.org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe("JavaSql", client.consumer.MessageSelector.bySql("number >= 10 AND colour = 'red'"))
    consumer.start()
    found: list[int] = []

    def poll() -> int:
        found.extend(int(bytes(each.getBody())) for each in consumer.poll(500))
        return len(found)

    try:
        wait_until(lambda: poll() >= 10, 120, "ten of thirty messages")
    finally:
        consumer.shutdown()
    assert sorted(found) == list(range(11, 30, 2))


def test_an_expression_that_is_wrong_is_refused_when_its_consumer_starts(
    java_gateway: JavaGateway, name_server: str
) -> None:
    client = java_gateway.jvm.org.apache.rocketmq.client
    consumer = client.consumer.DefaultMQPushConsumer("CG_wrong_sql")
    consumer.setNamesrvAddr(name_server)
    consumer.setInstanceName("wrong-sql")
    consumer.subscribe("JavaSql", client.consumer.MessageSelector.bySql("number >= "))
    consumer.registerMessageListener(_Replies(java_gateway, None))
    with pytest.raises(Py4JJavaError, match="is wrong at its end"):
        consumer.start()
    consumer.shutdown()


class _Replies:
    """Answers each request message, in upper case."""

    def __init__(self, gateway: JavaGateway, producer: Any) -> None:
        self._gateway, self._producer = gateway, producer

    def consumeMessage(self, messages: Any, _: Any) -> Any:  # noqa: N802 - Java's name
        client = self._gateway.jvm.org.apache.rocketmq.client
        for message in messages:
            body = bytearray(bytes(message.getBody()).upper())
            send_ok(self._producer.send(client.utils.MessageUtil.createReplyMessage(message, body), API_TIMEOUT_MS))
        return client.consumer.listener.ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    class Java:
        implements: ClassVar = ["org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently"]


def test_a_request_message_has_its_reply(java_gateway: JavaGateway, name_server: str, producer: Any) -> None:
    send_ok(producer.send(message(java_gateway, "JavaAsks", b"makes the topic")))
    consumer = java_gateway.jvm.org.apache.rocketmq.client.consumer.DefaultMQPushConsumer("CG_replies")
    consumer.setNamesrvAddr(name_server)
    consumer.setInstanceName("replies")
    consumer.subscribe("JavaAsks", "*")
    consumer.registerMessageListener(_Replies(java_gateway, producer))
    consumer.start()
    try:
        for number in range(3):
            reply = producer.request(message(java_gateway, "JavaAsks", b"question %d" % number), API_TIMEOUT_MS)
            assert bytes(reply.getBody()) == b"QUESTION %d" % number
    finally:
        consumer.shutdown()


def test_what_a_transaction_commits_is_consumed_and_what_it_rolls_back_is_not(
    java_gateway: JavaGateway, name_server: str
) -> None:
    ends = ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    bodies = [b"%s then %s" % (end.encode(), then.encode()) for end in ends for then in ends]

    def execute(body: bytes) -> str:
        return body.split()[0].decode()

    def check(body: bytes) -> str:
        return body.split()[2].decode()

    made = java_gateway.jvm.org.apache.rocketmq.common.message.Message
    with java_gateway.transaction_producer(name_server, "PG_tx", execute, check) as (producer, asked):
        for body in bodies:
            sent = producer.sendMessageInTransaction(made("JavaTx", "TagT", bytearray(body)), None)
            assert sent.getSendStatus().name() == "SEND_OK"
        committed = {body for body in bodies if execute(body) == "COMMIT_MESSAGE"} | {b"UNKNOW then COMMIT_MESSAGE"}
        with java_gateway.push_consumer(name_server, "CG_tx", "JavaTx", tags="TagT") as consumed:
            wait_until(lambda: {body for _, body in consumed} >= committed, 120, "what was committed")
            # Given up after three checks, it can be read in a topic of its own, and is not asked about again.
            given_up = java_gateway.consume(name_server, "TRANS_CHECK_MAX_TIME_TOPIC", 1)
    assert given_up == [b"UNKNOW then UNKNOW"]
    assert sorted(body for _, body in consumed) == sorted(committed)
    assert sorted(asked) == sorted(
        [b"UNKNOW then COMMIT_MESSAGE", b"UNKNOW then ROLLBACK_MESSAGE", *[b"UNKNOW then UNKNOW"] * 3]
    )


@pytest.mark.long
@pytest.mark.parametrize(("first", "then"), [("java", "own"), ("own", "java")])
def test_a_store_moves_between_both_in_mid_transaction(
    java_gateway: JavaGateway, module_servers: Servers, first: str, then: str
) -> None:
    make: dict[str, Callable[..., BrokerCommand | JavaBroker]] = {
        "own": module_servers.broker_command,
        "java": module_servers.java_broker,
    }
    name_server = module_servers.name_server(f"namesrv-moves-{first}")
    name_server.start()
    common: dict[str, str | int] = {
        "brokerName": "broker-moves",
        "namesrvAddr": name_server.address,
        "mappedFileSizeCommitLog": 16 * MEGABYTE,
        "transactionTimeOut": 1000,
    }
    before = make[first](f"moves-{first}-0", **common, transactionCheckInterval=600_000)
    before.start()
    bodies = [b"COMMIT_MESSAGE then x", b"ROLLBACK_MESSAGE then x", b"UNKNOW then COMMIT_MESSAGE"] * 3
    bodies = [body + b" %d" % number for number, body in enumerate([*bodies, b"UNKNOW then ROLLBACK_MESSAGE"])]
    topic = f"JavaMoves{first}"

    def execute(body: bytes) -> str:
        return body.split()[0].decode()

    def check(body: bytes) -> str:
        return body.split()[2].decode()

    made = java_gateway.jvm.org.apache.rocketmq.common.message.Message
    wait_until(lambda: "TBW102" in java_gateway.mqadmin(name_server.address, "topicList"), 60, "it is registered")
    with java_gateway.transaction_producer(name_server.address, "PG_moves", execute, check) as (producer, asked):
        for body in bodies:
            producer.sendMessageInTransaction(made(topic, "TagT", bytearray(body)), None)
        before.stop()
        assert asked == []
        after = make[then](f"moves-{first}-1", **common, transactionCheckInterval=1000)
        shutil.copytree(before.store, after.store, dirs_exist_ok=True)
        after.start()
        committed = [body for body in bodies if b"COMMIT_MESSAGE" in body]
        with java_gateway.push_consumer(name_server.address, "CG_moves", topic) as consumed:
            wait_until(lambda: len(consumed) >= len(committed), 120, "what was committed before and after")
            wait_until(lambda: len(asked) >= 4, 60, "all without an end are asked about")
    assert sorted(body for _, body in consumed) == sorted(committed)
    assert sorted(asked) == sorted(body for body in bodies if body.startswith(b"UNKNOW"))
    after.stop()


def test_clients_find_the_broker_through_rocketmqs_own_name_server(
    java_gateway: JavaGateway, module_servers: Servers
) -> None:
    name_server = module_servers.java_name_server("java-namesrv")
    name_server.start()
    broker = module_servers.broker_command(
        "broker-of-java-namesrv",
        brokerName="broker-elsewhere",
        namesrvAddr=name_server.address,
        mappedFileSizeCommitLog=MEGABYTE,
    )
    broker.start()
    bodies = [b"%d" % number for number in range(20)]
    assert java_gateway.produce(name_server.address, "JavaRouted", bodies) == ["broker-elsewhere"] * 20
    with java_gateway.push_consumer(name_server.address, "CG_routed", "JavaRouted") as consumed:
        wait_until(lambda: len(consumed) == 20, 120, "all messages")
    assert sorted(body for _, body in consumed) == sorted(bodies)
    broker.stop()


def records_in(store: Path, topic: bytes) -> int:
    """How many records of a topic are in a log of one file, about."""
    return sum(file.read_bytes().count(topic) for file in (store / "commitlog").glob("0*"))


@pytest.mark.parametrize(("master_is", "slave_is"), [("own", "own"), ("own", "java"), ("java", "own")])
def test_consumers_go_on_at_the_slave_when_the_master_is_stopped(
    java_gateway: JavaGateway, module_servers: Servers, master_is: str, slave_is: str
) -> None:
    make: dict[str, Callable[..., BrokerCommand | JavaBroker]] = {
        "own": module_servers.broker_command,
        "java": module_servers.java_broker,
    }
    case = f"{master_is}-{slave_is}"
    name_server = module_servers.name_server(f"namesrv-{case}")
    name_server.start()
    common: dict[str, str | int] = {
        "brokerName": "broker-pair",
        "namesrvAddr": name_server.address,
        "mappedFileSizeCommitLog": 16 * MEGABYTE,
    }
    master = make[master_is](f"{case}-0", **common)
    master.start()
    slave = make[slave_is](f"{case}-1", **common, brokerRole="SLAVE", brokerId=1)
    slave.start()
    bodies = [b"%d" % number for number in range(20)]
    java_gateway.produce(name_server.address, "JavaPair", bodies)
    with java_gateway.push_consumer(name_server.address, "CG_pair", "JavaPair") as consumed:
        wait_until(lambda: len(consumed) == 20, 120, "all from the master")
    topics = slave.store / "config" / "topics.json"
    wait_until(lambda: topics.exists() and "JavaPair" in topics.read_text(), 60, "the slave has the topic")
    # A Java slave may hear of its master's HA port 30 s after its start.
    wait_until(lambda: records_in(slave.store, b"JavaPair") >= 20, 90, "the slave has the messages")
    master.stop()
    with java_gateway.push_consumer(name_server.address, "CG_later", "JavaPair") as consumed:
        wait_until(lambda: len(consumed) == 20, 120, "all from the slave")
    assert sorted(body for _, body in consumed) == sorted(bodies)
