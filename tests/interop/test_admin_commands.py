"""Each command of mqadmin 4.9.7 that operators know, asked of this project's broker and name server; what it prints."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.java_gateway import API_TIMEOUT_MS, CommandFailed, JavaGateway
from tests.interop.servers import Servers
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP, CLUSTER, NAME = "TopicAdminAll", "GroupAdminAll", "DefaultCluster", "broker-a"
MESSAGES = 12
#: Of which RocketMQ's index may give at most 64 a broker (maxMsgsNumBatch).
OF_ONE_KEY = 70


@attrs.frozen
class Admin:
    """mqadmin, and what it looks at: messages of a topic, each consumed once by a group that is online."""

    gateway: JavaGateway
    name_server: str
    broker: BrokerCommand
    #: The ids that the producer has made, and those of offsets in the log.
    sent: list[tuple[str, str]]
    consumed: list[tuple[int, bytes]]

    def __call__(self, command: str, *options: str) -> str:
        return self.gateway.mqadmin(self.name_server, command, *options)

    def wait_for(self, pattern: str, command: str, *options: str, timeout_s: float = 60) -> str:
        """What it prints once that matches; committed offsets and rates come seconds later."""
        shown = ""

        def matches() -> bool:
            nonlocal shown
            shown = self(command, *options)
            return re.search(pattern, shown, re.MULTILINE) is not None

        try:
            wait_until(matches, timeout_s, f"{pattern} in what {command} prints")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{shown}") from error
        return shown


@pytest.fixture(scope="module")
def admin(java_gateway: JavaGateway, module_servers: Servers) -> Iterator[Admin]:
    name_server = module_servers.name_server("namesrv")
    name_server.start()
    broker = module_servers.broker_command("broker", brokerName=NAME, namesrvAddr=name_server.address)
    broker.start()
    java_gateway.mqadmin(name_server.address, "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    java_gateway.mqadmin(name_server.address, "updateSubGroup", "-c", CLUSTER, "-g", GROUP, "-q", "2", "-r", "5")
    producer = java_gateway.jvm.org.apache.rocketmq.client.producer.DefaultMQProducer("PG_admin")
    producer.setNamesrvAddr(name_server.address)
    producer.setInstanceName("admin-commands")
    producer.setSendMsgTimeout(API_TIMEOUT_MS)
    producer.start()
    message = java_gateway.jvm.org.apache.rocketmq.common.message.Message
    sent = []
    with java_gateway.push_consumer(name_server.address, GROUP, TOPIC) as consumed:
        for number in range(MESSAGES):
            result = producer.send(message(TOPIC, "TagA", f"key{number % 3}", bytearray(b"%d" % number)))
            assert result.getSendStatus().name() == "SEND_OK", str(result)
            sent.append((str(result.getMsgId()), str(result.getOffsetMsgId())))
        wait_until(lambda: len(consumed) == MESSAGES, 120, "all are consumed")
        yield Admin(java_gateway, name_server.address, broker, sent, consumed)
    producer.shutdown()


def test_what_there_is(admin: Admin) -> None:
    shown = admin("clusterList")
    row = rf"{CLUSTER} +{NAME} +0 +{admin.broker.address} +V4_9_7 +[\d.]+\(0,0ms\) +[\d.]+\(0,0ms\) +0 +[\d.]+ +0\.\d+"
    assert re.search(row, shown), shown
    # Yesterday's, then today's.
    admin.wait_for(rf"{CLUSTER} +{NAME} +0 +0 +{MESSAGES} +{MESSAGES}$", "clusterList", "-m")
    assert {TOPIC, f"%RETRY%{GROUP}", "TBW102", CLUSTER, NAME} <= {*admin("topicList").splitlines()}
    assert re.search(rf"{CLUSTER} +{TOPIC} +{GROUP}", admin("topicList", "-c"))
    shown = admin("topicStatus", "-t", TOPIC)
    assert re.findall(rf"^{NAME} +(\d) +0 +(\d+) +20\d\d-", shown, re.MULTILINE) == [("0", "6"), ("1", "6")], shown
    assert admin.broker.address in admin("topicRoute", "-t", TOPIC)
    assert re.search(rf"{CLUSTER} +{NAME} +.*{admin.broker.address}.* +2 +2 +6", admin("topicRoute", "-l", "-t", TOPIC))
    assert admin("topicClusterList", "-t", TOPIC).strip() == CLUSTER
    assert re.search("retryMaxTimes += +5", admin("getConsumerConfig", "-g", GROUP))


def test_who_consumes_and_how_far(admin: Admin) -> None:
    progress = rf"{TOPIC} +{NAME} +0 +6 +6 .*0 +20\d\d-.*\n{TOPIC} +{NAME} +1 +6 +6 "
    shown = admin.wait_for(progress, "consumerProgress", "-g", GROUP)
    assert "Diff Total: 0" in shown
    assert re.search(rf"{GROUP} +1 +V4_9_7 +PUSH +CLUSTERING +\d+ +0", admin("consumerProgress"))
    assert re.search(rf"{TOPIC} +{GROUP} +{NAME} +0 +6 +6 +0", admin("brokerConsumeStats", "-b", admin.broker.address))
    ordered = admin("brokerConsumeStats", "-b", admin.broker.address, "-o", "true")
    assert TOPIC not in ordered  # it is not an ordered one
    assert "Diff Total: 0" in ordered
    (client,) = re.findall(r"^(\S+@\S+) +127", admin("consumerConnection", "-g", GROUP), re.MULTILINE)
    assert "MessageModel: CLUSTERING" in admin("consumerConnection", "-g", GROUP)
    shown = admin("consumerStatus", "-g", GROUP, "-i", client)
    assert "#Consumer Properties#" in shown
    assert re.search(rf"Topic: {TOPIC} .*SubExpression: \*", shown), shown
    unique_id, offset_id = admin.sent[0]
    assert "CR_SUCCESS" in admin("queryMsgById", "-i", offset_id, "-g", GROUP, "-d", client)
    directly = ("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id, "-g", GROUP, "-d")
    assert "CR_SUCCESS" in admin(*directly, client)
    with pytest.raises(CommandFailed, match=f"The Consumer <{GROUP}> <nobody> not online"):
        admin(*directly, "nobody")
    assert re.search(r"^0001 +\S+@\S+", admin("producerConnection", "-g", "PG_admin", "-t", TOPIC))
    assert "producer group (PG_admin)" in admin("producer", "-b", admin.broker.address)


def test_messages_are_found_by_id_by_key_and_by_offset(admin: Admin) -> None:
    unique_id, offset_id = admin.sent[0]
    properties = rf"Properties: +\{{.*KEYS=key0.*UNIQ_KEY={unique_id}.*\}}"
    for command, *options in (
        ("queryMsgById", "-i", offset_id),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id),
    ):
        shown = admin(command, *options)
        assert re.search(properties, shown), shown
        assert re.search(rf"MessageTrack \[consumerGroup={GROUP}, trackType=CONSUMED, ", shown), shown
    shown = admin("queryMsgByKey", "-t", TOPIC, "-k", "key1")
    assert {found.split()[0] for found in shown.splitlines()[1:] if found} == {
        unique for number, (unique, _) in enumerate(admin.sent) if number % 3 == 1
    }
    assert "Queue Offset:        5" in admin("queryMsgByOffset", "-t", TOPIC, "-b", NAME, "-i", "1", "-o", "5")
    assert admin("printMsg", "-t", TOPIC).count("MSGID: ") == MESSAGES
    assert admin("consumeMessage", "-t", TOPIC).count("MSGID: ") == MESSAGES
    by_queue = admin("printMsgByQueue", "-t", TOPIC, "-a", NAME, "-i", "0", "-p", "true", "-f", "true")
    assert by_queue.count("MSGID: ") == MESSAGES // 2


def test_messages_are_sent_by_command_and_their_traces_found(admin: Admin) -> None:
    topic = "TopicAdminSent"
    admin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "2", "-w", "2")
    row = r"^Pub +\S+ +\S+ +20\d\d-\S+ \S+ +\d+ms +success"
    sent = 0

    def is_traced() -> bool:
        # The command's client sends its traces as it ends, into a topic that is made then; it waits for that for half a
        # second at most, which is too short on a machine with much to do.
        nonlocal sent
        sent += 1
        shown = admin("sendMessage", "-t", topic, "-p", "hello", "-k", "k", "-b", NAME, "-i", "1", "-m", "true")
        (unique_id,) = re.findall(rf"^{NAME} +1 +SEND_OK +(\w+)", shown, re.MULTILINE)
        try:
            admin.wait_for(row, "queryMsgTraceById", "-i", unique_id, timeout_s=10)
        except (TimeoutError, CommandFailed):
            return False
        return True

    wait_until(is_traced, 120, "a trace of a message that was sent by command")
    admin.wait_for("^RMQ_SYS_TRACE_TOPIC$", "topicList")
    shown = admin("checkMsgSendRT", "-t", topic, "-a", "4", "-s", "10")
    assert len(re.findall(rf"^{NAME} +[01] +true +\d+", shown, re.MULTILINE)) == 4, shown
    assert admin("printMsg", "-t", topic).count("MSGID: ") == 4 + sent


def test_queues_are_shared_out(admin: Admin) -> None:
    shared = json.loads(admin("allocateMQ", "-t", TOPIC, "-i", "a,b"))["result"]
    assert sorted([queue["queueId"] for queue in queues] for queues in shared.values()) == [[0], [1]]


def test_how_the_broker_is(admin: Admin) -> None:
    for where in (("-b", admin.broker.address), ("-c", CLUSTER)):
        shown = admin("brokerStatus", *where)
        for key, value in (
            ("putMessageTimesTotal", r"[1-9]\d*"),
            ("msgPutTotalTodayNow", r"[1-9]\d*"),
            ("msgGetTotalTodayNow", r"[1-9]\d*"),
            ("pageCacheLockTimeMills", "0"),
            ("commitLogDiskRatio", r"0\.\d+"),
            ("brokerVersionDesc", "V4_9_7"),
        ):
            assert re.search(rf"{key} *: {value}$", shown, re.MULTILINE), (key, shown)
    # The sampling is every 10 s.
    row = rf"{TOPIC} +{GROUP} +0 +[\d.]+ +[\d.]+ +{MESSAGES} +{MESSAGES}$"
    admin.wait_for(row, "statsAll", "-t", TOPIC)
    assert re.search(row, admin("statsAll", "-a"), re.MULTILINE)
    assert "SendResult" in admin("sendMsgStatus", "-b", NAME, "-s", "10", "-c", "3")


def test_settings_change_and_are_exported(admin: Admin, tmp_path: Path) -> None:
    changed = admin("updateBrokerConfig", "-c", CLUSTER, "-k", "fileReservedTime", "-v", "71")
    assert changed == f"update broker config success, {admin.broker.address}\n"
    assert re.search("^fileReservedTime += +71$", admin("getBrokerConfig", "-c", CLUSTER), re.MULTILINE)
    for command, file in (
        ("exportConfigs", "configs.json"),
        ("exportMetrics", "metrics.json"),
        ("exportMetadata", "metadata.json"),
    ):
        assert "success" in admin(command, "-c", CLUSTER, "-f", str(tmp_path))
        assert NAME in (tmp_path / file).read_text() or TOPIC in (tmp_path / file).read_text()
    exported = json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"][NAME]
    assert (exported["fileReservedTime"], exported["useTLS"]) == ("71", "false")


def test_offsets_are_reset_and_cloned(admin: Admin) -> None:
    # Of a group that is online: its consumer takes all again.
    before = len(admin.consumed)
    shown = admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    assert re.findall(rf"^{NAME} +(\d) +0 *$", shown, re.MULTILINE) in (["0", "1"], ["1", "0"]), shown
    wait_until(lambda: len(admin.consumed) >= before + MESSAGES, 60, "all are consumed again")
    progress = rf"{TOPIC} +{NAME} +0 +6 +6 .*\n{TOPIC} +{NAME} +1 +6 +6 "
    admin.wait_for(progress, "consumerProgress", "-g", GROUP)
    cloned = admin("cloneGroupOffset", "-s", GROUP, "-d", "GroupCloned", "-t", TOPIC, "-o", "false")
    assert cloned == f"clone group offset success. srcGroup[{GROUP}], destGroup=[GroupCloned], topic[{TOPIC}]"
    # Of one that is not.
    admin("updateSubGroup", "-b", admin.broker.address, "-g", "GroupCloned")
    row = rf"{NAME} +[01] +6 +6 +0 +0 *$"
    shown = admin("resetOffsetByTime", "-g", "GroupCloned", "-t", TOPIC, "-s", "0")
    assert len(re.findall(row, shown, re.MULTILINE)) == 2, shown
    shown = admin("skipAccumulatedMessage", "-g", "GroupCloned", "-t", TOPIC)
    assert len(re.findall(rf"{NAME} +[01] +6 +0 +6 +6 *$", shown, re.MULTILINE)) == 2, shown
    assert "success" in admin("deleteSubGroup", "-c", CLUSTER, "-g", "GroupCloned")


def test_topics_and_permissions_change(admin: Admin) -> None:
    topic = "TopicAdminMade"
    # As programs make topics: with the settings of the topic that is called like the cluster.
    ext = admin.gateway.jvm.org.apache.rocketmq.tools.admin.DefaultMQAdminExt()
    ext.setNamesrvAddr(admin.name_server)
    ext.setInstanceName("admin-ext")
    ext.start()
    try:
        ext.createTopic(CLUSTER, topic, 8)
        admin.wait_for(f"^{topic}$", "topicList")
        assert ext.examineTopicStats(topic).getOffsetTable().size() == 8
    finally:
        ext.shutdown()
    assert "update topic perm from 6 to 4" in admin("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", "4")
    admin.wait_for('"perm":4', "topicRoute", "-t", topic)
    admin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "8", "-w", "8", "-o", "true")
    assert f"{NAME}:8" in admin("updateOrderConf", "-m", "get", "-t", topic)

    def has_perm(perm: int, command: str) -> bool:
        assert "OK, " in admin(command, "-b", NAME)
        return f'"perm":{perm}' in admin("topicRoute", "-t", TOPIC)

    # A registration of the broker, such as the one with the changed topic, gives the permission back.
    for perm, command in ((4, "wipeWritePerm"), (6, "addWritePerm")):
        wait_until(functools.partial(has_perm, perm, command), 30, f"{command} has its effect")
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in admin(command, "-c", CLUSTER)
    deleted = admin("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert deleted == (
        f"delete topic [{topic}] from cluster [{CLUSTER}] success.\ndelete topic [{topic}] from NameServer success.\n"
    )
    assert topic not in admin("topicList").splitlines()


def test_a_producer_finds_its_messages_and_long_properties_are_kept(admin: Admin) -> None:
    jvm = admin.gateway.jvm
    producer = jvm.org.apache.rocketmq.client.producer.DefaultMQProducer("PG_admin_query")
    producer.setNamesrvAddr(admin.name_server)
    producer.setInstanceName("admin-query")
    producer.start()
    message = jvm.org.apache.rocketmq.common.message.Message
    try:
        batch = jvm.java.util.ArrayList()
        for number in range(OF_ONE_KEY):
            batch.add(message("TopicAdminQuery", "", "that-key", bytearray(b"%d" % number)))
        result = producer.send(batch)
        offset_ids = str(result.getOffsetMsgId()).split(",")
        long = message("TopicAdminQuery", bytearray(b"long"))
        long.putUserProperty("key", "\u6c34" * 10_240)
        assert producer.send(long).getSendStatus().name() == "SEND_OK"
        found = find(lambda: producer.queryMessage("TopicAdminQuery", "that-key", 500, 0, 2**62), 64)
        assert {str(each.getKeys()) for each in found} == {"that-key"}
        first = producer.viewMessage(offset_ids[0])
        assert (bytes(first.getBody()), first.getKeys()) == (b"0", "that-key")
        assert {bytes(producer.viewMessage(each).getBody()) for each in offset_ids} == {
            b"%d" % number for number in range(OF_ONE_KEY)
        }
    finally:
        producer.shutdown()


def find(query: Callable[[], Any], count: int) -> list[Any]:
    """The messages of a query, once there are so many; the index comes after the log."""
    found: list[Any] = []

    def has_all() -> bool:
        found[:] = query().getMessageList()
        return len(found) == count

    wait_until(has_all, 30, f"{count} messages are found")
    return found
