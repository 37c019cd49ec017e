"""Requests that RocketMQ's clients have sent to RocketMQ 4.9.7, sent again: each has the same answer.

The broker's store becomes the golden one on the way: each record of the golden log is what a request makes, or is put
as it stands there, where RocketMQ's broker has made it itself (delivered delayed messages, transactions) or this broker
refuses the request. So every message must get the offset that it has there, in the log and in its queue. A pull is sent
as soon as its queue is as long as it was when RocketMQ answered, a query as soon as the index is.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import msgspec
import trio

from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node
from tests.simulation.test_golden_name_server_requests import ASKED
from tests.worlds.golden_capture import FILE_SIZE_BYTES, STORE_MASTER_CLEAN, golden_log
from tests.worlds.golden_replay import (
    Pulls,
    Replay,
    asked_of_clients,
    code_of,
    golden_records,
    is_answered_pull,
    is_moved,
    made_of,
    of_code,
    question_of,
    sends,
    with_a_client,
)
from tests.worlds.golden_requests import (
    Exchange,
    Key,
    captured,
    command_of,
    count_of,
    exchanges,
    frame,
    key_of,
)
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

#: What a pull consumer asks about queues and its own offsets, once all messages are there. A search by time is not
#: among them: messages are not stored at the times at which RocketMQ stored them.
OF_QUEUES = (
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.QUERY_CONSUMER_OFFSET,
)
#: No delayed message is due: the records that RocketMQ delivered are put as they stand in its log.
DEFAULT_LEVELS = MessageStoreConfig().message_delay_level
NO_DELIVERY = " ".join(["365d"] * 18)
#: How many transactions ended as their producer was asked about them.
OF_CHECKS = 3
CHECK_INTERVAL_MS = 30_000
SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
#: Settings that are an address, a directory, or another on purpose, or whose default is another here.
SET_ELSEWHERE = {
    "brokerIP1": "an address",
    "brokerIP2": "an address",
    "namesrvAddr": "an address",
    "rocketmqHome": "a directory",
    "storePathRootDir": "a directory; a simulated disk has none",
    "haListenPort": "any port, in this world",
    "brokerRole": "no slave is in this world",
    "transactionCheckInterval": "the golden broker's file sets it",
    "flushConsumeQueueThoroughInterval": "the default is another: docs/settings.md",
    "slaveTimeout": "the default is another: docs/settings.md",
    "syncFlushTimeout": "the default is another: docs/settings.md",
    "writeBufferHighWaterMark": "the default is another: docs/settings.md",
}
#: What brokerStatus tells here alone: docs/admin-requests.md.
OWN_FIGURES = {
    "brokerId",
    "brokerName",
    "brokerRole",
    "flushDiskType",
    "haConnectionEnds",
    "haConnections",
    "haListenAddress",
    "haRefusedConnections",
    "haReplicas",
    "haSentBytes",
    "haSlaves",
    "remainHowManyDataToCommit",
    *(f"transactions{what}" for what in ("Asked", "Committed", "GivenUp", "Open", "RolledBack")),
}
#: What brokerStatus measures since the broker began, of its load, its disk and its clock.
FIGURES_OF_A_RUN = {
    "bootTimestamp",
    "commitLogDirCapacity",
    "commitLogDiskRatio",
    "commitLogMaxOffset",  # it was asked before the last messages came
    "consumeQueueDiskRatio",
    "earliestMessageTimeStamp",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferedTps",
    "msgGetTotalTodayNow",
    "msgPutTotalTodayNow",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "putTps",
    "runtime",
}
#: How many requests of each code are the same: those of the test that makes the golden log ...
MADE: Counter[int] = Counter(
    {
        RequestCode.PULL_MESSAGE: 86,
        RequestCode.QUERY_MESSAGE: 1,
        RequestCode.QUERY_CONSUMER_OFFSET: 33,
        RequestCode.UPDATE_CONSUMER_OFFSET: 175,
        RequestCode.UPDATE_AND_CREATE_TOPIC: 2,
        RequestCode.GET_ALL_TOPIC_CONFIG: 1,
        RequestCode.GET_MAX_OFFSET: 4,
        RequestCode.GET_MIN_OFFSET: 4,
        RequestCode.GET_EARLIEST_MSG_STORETIME: 4,
        RequestCode.VIEW_MESSAGE_BY_ID: 1,
        RequestCode.HEART_BEAT: 16,
        RequestCode.UNREGISTER_CLIENT: 3,
        RequestCode.CONSUMER_SEND_MSG_BACK: 1,
        RequestCode.END_TRANSACTION: 9,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: 28,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: 2,
        RequestCode.LOCK_BATCH_MQ: 1,
        RequestCode.UNLOCK_BATCH_MQ: 1,
        RequestCode.GET_ALL_CONSUMER_OFFSET: 2,
        RequestCode.GET_ALL_DELAY_OFFSET: 2,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: 1,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 2,
        RequestCode.GET_TOPIC_STATS_INFO: 1,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: 1,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: 1,
        RequestCode.GET_CONSUME_STATS: 1,
        RequestCode.DELETE_TOPIC_IN_BROKER: 1,
        RequestCode.SEND_MESSAGE_V2: 151,
        RequestCode.SEND_BATCH_MESSAGE: 3,
    }
)
#: ... those of the test that has transactions asked about, ...
CHECKED: Counter[int] = Counter(
    {RequestCode.END_TRANSACTION: OF_CHECKS, RequestCode.CHECK_TRANSACTION_STATE: OF_CHECKS}
)
#: ... and those that are asked of a broker on the golden store.
STORED: Counter[int] = Counter(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG: 1,
        RequestCode.GET_BROKER_CONFIG: 1,
        RequestCode.GET_BROKER_RUNTIME_INFO: 1,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: 4,
        RequestCode.GET_ALL_CONSUMER_OFFSET: 1,
        RequestCode.GET_ALL_DELAY_OFFSET: 3,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 1,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: 1,
        RequestCode.VIEW_BROKER_STATS_DATA: 2,
    }
)
_UNANSWERED = "RocketMQ's answer was not captured"
_OF_A_MOMENT = "asked during the run: neither a new broker nor the golden store is in that state"
#: The captured requests that no test replays: how many, and why.
NOT_REPLAYED: Mapping[int, tuple[int, str]] = {
    RequestCode.PULL_MESSAGE: (29, _UNANSWERED),
    RequestCode.GET_ALL_TOPIC_CONFIG: (5, _OF_A_MOMENT),
    RequestCode.GET_BROKER_RUNTIME_INFO: (1, _UNANSWERED),
    RequestCode.GET_ALL_CONSUMER_OFFSET: (4, _OF_A_MOMENT),
    RequestCode.GET_ALL_DELAY_OFFSET: (1, _OF_A_MOMENT),
    RequestCode.REGISTER_BROKER: (1, _UNANSWERED),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (4, _OF_A_MOMENT),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (1, _UNANSWERED),
}


def body_of(answer: RemotingCommand) -> object:
    """An answer whose body is text of one order."""
    return answer.code, answer.remark, answer.ext_fields or {}, answer.body


def table_of_groups_or_topics(answer: RemotingCommand) -> object:
    """A table and how often it has changed."""
    body = msgspec.json.decode(answer.body)
    body["dataVersion"].pop("timestamp")
    body["dataVersion"].pop("stateVersion", None)
    return answer.code, answer.remark, body


def offsets_of(answer: RemotingCommand) -> object:
    """The tables of offsets, by text or number."""
    kind = ConsumerOffsetSerializeWrapper if b"@" in answer.body else DelayOffsetSerializeWrapper
    return answer.code, answer.remark, decode_body(kind, answer.body)


def settings_of(answer: RemotingCommand) -> object:
    """What is set of the settings that work in both; and how often they were changed."""
    lines = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    works = re.findall(r"^\| `(\w+)` \| works", SETTINGS_PAGE.read_text(), re.MULTILINE)
    version = json.loads((answer.ext_fields or {})["version"])["counter"]
    return answer.code, version, {key: lines[key] for key in works if key in lines and key not in SET_ELSEWHERE}


def runtime_info_of(answer: RemotingCommand) -> object:
    """What the broker is and holds, and which figures it tells besides."""
    table = msgspec.json.decode(answer.body)["table"]
    figures = {key.partition("_/")[0] for key in table} - OWN_FIGURES
    return answer.code, answer.remark, figures, {key: table[key] for key in figures - FIGURES_OF_A_RUN}


#: What a broker that is new is asked by its slave, once or twice.
OF_TABLES: Mapping[RequestCode, Callable[[RemotingCommand], object]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: table_of_groups_or_topics,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: table_of_groups_or_topics,
    RequestCode.GET_ALL_CONSUMER_OFFSET: offsets_of,
    RequestCode.GET_ALL_DELAY_OFFSET: offsets_of,
}


def golden_world(kind: type[RoleWorld] = RoleWorld, levels: str = NO_DELIVERY) -> RoleWorld:
    """A broker with the settings of the golden one, as far as files tell them."""
    return kind.of(
        0,
        broker_role=BrokerRole.ASYNC_MASTER,
        message_delay_level=levels,
        mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
        mapped_file_size_consume_queue_bytes=2000,
        max_hash_slot_num=500,
        max_index_num=2000,
    )


def pulls_of_push_and_pull() -> list[Exchange]:
    """Those of both consumers, but those that RocketMQ did not answer."""
    return [each for each in (*exchanges("rem.22"), *exchanges("rem.3")) if is_answered_pull(each)]


def is_too_old(each: Exchange) -> bool:
    """Whether a pull is refused until its heartbeat has come."""
    return code_of(each) == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def be_new(replay: Replay) -> None:
    await replay.compare(of_code("vip.0", RequestCode.GET_ALL_TOPIC_CONFIG)[0], table_of_groups_or_topics)
    for code, what in OF_TABLES.items():
        for each in of_code("rem.0", code)[:2]:
            await replay.compare(each, what)


async def fill_and_pull(replay: Replay) -> None:
    (query,) = of_code("rem.1", RequestCode.QUERY_MESSAGE)
    commits = of_code("rem.3", RequestCode.UPDATE_CONSUMER_OFFSET)
    due = [each for each in pulls_of_push_and_pull() if not is_too_old(each) and not is_moved(each)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replay.beat, of_code("rem.3", RequestCode.HEART_BEAT))
        waiting = Pulls(replay, due)
        await trio.sleep(1)
        for each in of_code("rem.3", RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_CONSUMER_OFFSET):
            await replay.compare(each, body_of)

        async def read() -> None:
            await waiting.send_due()
            await replay.query_when_due(query, commits)

        ends = of_code("rem.2", RequestCode.END_TRANSACTION)[:-OF_CHECKS]
        await replay.fill(ends, read, len(golden_log()))
        assert ends == []
        await replay.compare(frame(RequestCode.VIEW_MESSAGE_BY_ID))
        for each in of_code("rem.22", *OF_QUEUES):
            await replay.compare(each)
        nursery.cancel_scope.cancel()
    assert waiting.waiting == []
    replay.compare_asked("rem.3")


async def pull_by_hand(replay: Replay) -> None:
    """A consumer that says what it wants in its pulls; its queues are as long as they ever were."""
    for each in of_code("rem.22", RequestCode.HEART_BEAT):
        await replay.compare(each)
    for each in of_code("rem.22", RequestCode.GET_CONSUMER_LIST_BY_GROUP):
        await replay.compare(each, body_of)
    await trio.sleep(1)
    replay.compare_asked("rem.22")
    for each in of_code("rem.22", RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UNREGISTER_CLIENT):
        await replay.compare(each)
    await replay.compare(frame(RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND))
    await replay.ask_oneway(command_of("15_req"))


async def administer(replay: Replay) -> None:
    await replay.compare(frame(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE))
    await replay.compare(frame(RequestCode.UPDATE_AND_CREATE_TOPIC))
    await replay.compare(frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP))
    await replay.compare(frame(RequestCode.DELETE_TOPIC_IN_BROKER))
    await replay.compare_locks(frame(RequestCode.LOCK_BATCH_MQ))
    await replay.compare(frame(RequestCode.UNLOCK_BATCH_MQ))
    await replay.compare(frame(RequestCode.UNREGISTER_CLIENT))


async def pull_too_early(replay: Replay) -> None:
    await replay.compare(of_code("rem.3", RequestCode.HEART_BEAT)[0])
    for each in filter(is_too_old, pulls_of_push_and_pull()):
        await replay.compare(each)
    await replay.compare(frame(RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_LATEST))


async def consume_together(replay: Replay) -> None:
    """Two consumers of a group, by the ids that they had."""

    async def list_both(second: Replay) -> None:
        for each, client_id in ((replay, "127.0.0.1@30597#2167958135920"), (second, "127.0.0.1@second")):
            heartbeat = copy.copy(of_code("rem.3", RequestCode.HEART_BEAT)[0].request)
            heartbeat.body = msgspec.json.encode({**msgspec.json.decode(heartbeat.body), "clientID": client_id})
            await each.answer(Exchange(heartbeat, None))
        await replay.compare(frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP), body_of)

    await with_a_client(replay.servers, replay.done, list_both)


async def produce(replay: Replay) -> None:
    for each in (*of_code("rem.1", RequestCode.HEART_BEAT), *of_code("rem.2", RequestCode.HEART_BEAT)):
        await replay.compare(each)


async def list_lost_producers(replay: Replay) -> None:
    await replay.compare(frame(RequestCode.GET_PRODUCER_CONNECTION_LIST), body_of)


#: One client after the other.
CLIENTS = (
    be_new,
    fill_and_pull,
    pull_by_hand,
    administer,
    pull_too_early,
    consume_together,
    produce,
    list_lost_producers,
)


def test_requests_have_the_answers_that_rocketmq_gave() -> None:
    servers, done = golden_world(), set[Key]()

    async def with_clients() -> None:
        for use in CLIENTS:
            await with_a_client(servers, done, use)
            await trio.sleep(1)

    servers.run_well(lambda: servers.on_node(CLIENT, with_clients))
    assert count_of(done) == MADE


def test_transactions_are_ended_and_asked_about_as_by_rocketmq() -> None:
    """The producer ends nine, is asked about the three whose state it did not know, and ends those."""
    servers, done = golden_world(), set[Key]()
    servers.settings = {"transaction_check_interval_ms": CHECK_INTERVAL_MS}
    asked, ends = asked_of_clients("rem.2"), of_code("rem.2", RequestCode.END_TRANSACTION)
    first = int((ends[0].request.ext_fields or {})["commitLogOffset"])
    first_asked = int((asked[0].ext_fields or {})["commitLogOffset"])

    async def produce(replay: Replay) -> None:
        await replay.fill(ends[:-OF_CHECKS], trio.lowlevel.checkpoint, first_asked)
        await replay.compare(of_code("rem.2", RequestCode.HEART_BEAT)[0])
        done.clear()  # the other test counts them
        await trio.sleep(CHECK_INTERVAL_MS / 1000)
        assert [question_of(each) for each in replay.asked] == [question_of(each) for each in asked]
        replay.done.update(map(key_of, asked))
        for each in ends[-OF_CHECKS:]:
            await replay.ask_oneway(each.request)
        await trio.sleep(1)
        golden = [message for message in golden_records() if first <= message.physical_offset < replay.end]
        assert sorted(map(made_of, replay.records(first))) == sorted(map(made_of, golden))

    servers.run_well(lambda: servers.on_node(CLIENT, lambda: with_a_client(servers, done, produce)))
    assert count_of(done) == CHECKED


@attrs.define(eq=False, repr=False)
class GoldenStoreWorld(RoleWorld):
    """The broker starts on RocketMQ's files."""

    async def _serve_broker(self, node: Node) -> None:
        for path in (each for each in sorted(STORE_MASTER_CLEAN.rglob("*")) if each.is_file()):
            data = path.read_bytes()
            file = node.disk.open(str(path.relative_to(STORE_MASTER_CLEAN)), allocate_bytes=len(data))
            file.write_at(0, data)
            file.close()
        await super()._serve_broker(node)


def test_a_broker_on_the_golden_store_answers_as_rocketmq_did_on_it() -> None:
    servers, done = golden_world(GoldenStoreWorld, DEFAULT_LEVELS), set[Key]()

    async def ask(replay: Replay) -> None:
        for code, what in OF_TABLES.items():
            await replay.compare(frame(code), what)
            told_then = [each for name in ("rem.0", "vip.0") for each in of_code(name, code)]
            for each in told_then:
                assert each.answer is not None
                if what(each.answer) == what(await replay.answer(each)):
                    await replay.compare(each, what)
        for each in of_code("rem.22", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
            await replay.compare(each)
        await replay.compare(frame(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO), body_of)
        await replay.compare(frame(RequestCode.GET_BROKER_CONFIG), settings_of)
        await replay.compare(frame(RequestCode.GET_BROKER_RUNTIME_INFO), runtime_info_of)
        await replay.compare(frame(RequestCode.VIEW_BROKER_STATS_DATA, ResponseCode.SYSTEM_ERROR), body_of)
        await replay.answer(next(each for (topic, _), each in sends().items() if topic == "TopicDelay"))
        await trio.sleep(90)  # its delivery counted as a put of its topic, more than a minute ago
        await replay.compare(frame(RequestCode.VIEW_BROKER_STATS_DATA), body_of)

    servers.run_well(lambda: servers.on_node(CLIENT, lambda: with_a_client(servers, done, ask)))
    assert count_of(done) == STORED


def test_every_captured_request_is_replayed_or_said_not_to_be() -> None:
    excepted = Counter({code: count for code, (count, _) in NOT_REPLAYED.items()})
    assert captured() == MADE + CHECKED + STORED + ASKED + excepted
