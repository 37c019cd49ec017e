"""Requests that RocketMQ's clients have sent to RocketMQ 4.9.7, sent again: each has the same answer.

The broker's store becomes the golden one on the way: each record of the golden log is what a request makes, or is put
as it stands there, where RocketMQ's broker has made it itself (delivered delayed messages, transactions) or this broker
refuses the request. So every message must get the offset that it has there, in the log and in its queue. A pull is sent
as soon as its queue is as long as it was when RocketMQ answered, a query as soon as the index is.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import msgspec
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.topics import TopicConfigManager
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.batch import decode_batch
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.message_queues import LockBatchResponseBody, MessageQueue
from rmq_actors.wire.bodies.offsets import ConsumeStats, TopicStatsTable
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, Message, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.golden_capture import FILE_SIZE_BYTES, GOLDEN, golden_log
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
SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
#: The digits of a message id that are the broker's address.
ADDRESS_DIGITS = 16
#: Those whose messages this broker does not take.
TOPICS_OF_REFUSED = ("TopicTx",)
#: No delayed message is due: the records that RocketMQ delivered are put as they stand in its log.
NO_DELIVERY = " ".join(["365d"] * 18)
HEARTBEAT_S = 30
#: Longer than any pull is held.
TIMEOUT_MS = 40_000


@attrs.frozen
class Exchange:
    """A request, and RocketMQ's answer; None for a request that is one way."""

    request: RemotingCommand
    answer: RemotingCommand | None


def commands(name: str) -> list[RemotingCommand]:
    """The frames of one direction of a connection."""
    stream = (GOLDEN / "remoting" / "streams" / name).read_bytes()
    found, at = [], 0
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        found.append(decode_command(stream[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


@functools.cache
def exchanges(connection: str) -> Sequence[Exchange]:
    """What a client asked, in order."""
    answers = {each.opaque: each for each in commands(f"{connection}.s2c.bin") if each.flag & 1}
    asked = [each for each in commands(f"{connection}.c2s.bin") if not each.flag & 1]
    return [Exchange(each, None if each.flag & 2 else answers.get(each.opaque)) for each in asked]


def frame(code: int, answered: int = ResponseCode.SUCCESS) -> Exchange:
    """What mqadmin asked, and what it was answered."""
    frames = GOLDEN / "remoting" / "frames"
    request = (frames / f"{code}_req_for_{answered}.bin").read_bytes()
    answer = (frames / f"{code}_resp_{answered}.bin").read_bytes()
    return Exchange(decode_command(request[4:]), decode_command(answer[4:]))


def tables_of(answer: RemotingCommand, kind: type[TopicStatsTable | ConsumeStats]) -> dict[MessageQueue, object]:
    """What is said about each queue, but times."""
    return {
        queue: msgspec.structs.replace(said, **{name: 0 for name in said.__struct_fields__ if name.startswith("last_")})
        for queue, said in decode_body(kind, answer.body).offset_table.items()
    }


def without_times_and_addresses(record: bytes) -> StoredMessage:
    """A message; its properties are in no order, as RocketMQ's come in that of a Java HashMap."""
    return attrs.evolve(decode_message(memoryview(record)), born_host="", store_host="", store_timestamp_ms=0)


def told(answer: RemotingCommand) -> tuple[object, ...]:
    """All of an answer but times, addresses and which program it is from."""
    fields = dict(answer.ext_fields or {})
    if "msgId" in fields:
        fields["msgId"] = ",".join(each[ADDRESS_DIGITS:] for each in fields["msgId"].split(","))
    for time in ("indexLastUpdateTimestamp", "timestamp"):
        fields.pop(time, None)
    body, bodies = answer.body, []
    while body:
        size = int.from_bytes(body[:4], "big")
        bodies.append(without_times_and_addresses(body[:size]))
        body = body[size:]
    return answer.code, answer.flag, answer.remark, fields, bodies


@functools.cache
def sends() -> Mapping[tuple[str, str], Exchange]:
    """The sends that this broker takes, by topic and the unique key of the message, or of a batch's first."""
    found = {}
    for each in (*exchanges("rem.1"), *exchanges("rem.2")):
        if each.request.code in SENDS:
            header = each.request.ext_fields or {}
            properties = decode_properties(header["i"].encode())
            if each.request.code == RequestCode.SEND_BATCH_MESSAGE:
                properties = decode_properties(next(decode_batch(each.request.body)).properties)
            if "TRAN_MSG" not in properties:
                found[header["b"], properties["UNIQ_KEY"]] = each
    return found


@attrs.define(eq=False)
class Replay:
    """Requests to the broker of one world, whose answers are compared."""

    servers: RoleWorld
    remoting: RemotingClient
    same: Counter[tuple[int, int]] = attrs.field(factory=Counter)

    async def compare(self, each: Exchange) -> None:
        assert each.answer is not None
        address = self.servers.brokers["a-0"].address
        asked = copy.copy(each.request)
        answer = await self.remoting.invoke(address, asked, TIMEOUT_MS)
        assert told(answer) == told(each.answer), each.request
        self.same[each.request.code, answer.code] += 1

    async def compare_tables(self, each: Exchange, kind: type[TopicStatsTable | ConsumeStats]) -> None:
        """The same for an answer whose body is JSON."""
        assert each.answer is not None
        answer = await self.remoting.invoke(self.servers.brokers["a-0"].address, copy.copy(each.request), TIMEOUT_MS)
        expected = tables_of(each.answer, kind)
        assert expected
        assert tables_of(answer, kind) == expected, each.request
        assert answer.remark == each.answer.remark
        self.same[each.request.code, answer.code] += 1

    async def compare_locks(self, each: Exchange) -> None:
        """The same for an answer that is a set of queues, in no order."""
        assert each.answer is not None
        answer = await self.remoting.invoke(self.servers.brokers["a-0"].address, copy.copy(each.request), TIMEOUT_MS)
        mine, theirs = (decode_body(LockBatchResponseBody, one.body) for one in (answer, each.answer))
        assert {*mine.lock_ok_mq_set} == {*theirs.lock_ok_mq_set} != set()
        self.same[each.request.code, answer.code] += 1

    async def ask_oneway(self, request: RemotingCommand) -> None:
        await self.remoting.invoke_oneway(self.servers.brokers["a-0"].address, copy.copy(request), TIMEOUT_MS)

    async def beat(self, heartbeats: Sequence[Exchange]) -> None:
        """All that there are, and then the last one again and again."""
        while True:
            for each in heartbeats:
                await self.compare(each)
            heartbeats = heartbeats[-1:]
            await trio.sleep(HEARTBEAT_S)

    @property
    def topics(self) -> TopicConfigManager:
        remoting = self.servers.controller("a-0").remoting
        assert remoting is not None
        return remoting.topic_config_manager

    async def query_when_due(self, each: Exchange, commits: Sequence[Exchange]) -> None:
        """Once the index has its last message of then, and no other one; and what mqadmin asked at that time."""
        assert each.answer is not None
        end = int((each.answer.ext_fields or {})["indexLastUpdatePhyoffset"])
        if self.servers.controller("a-0").store.files.index_service.files[-1].end_phy_offset == end:
            await self.compare(each)
            for commit in commits:
                await self.ask_oneway(commit.request)
            await trio.sleep(0.1)
            await self.compare_tables(frame(RequestCode.GET_TOPIC_STATS_INFO), TopicStatsTable)
            await self.compare_tables(frame(RequestCode.GET_CONSUME_STATS), ConsumeStats)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.servers.controller("a-0").store.offsets.get_max_offset_in_queue(topic, queue_id)

    async def fill(self, after_each: Callable[[], Awaitable[None]]) -> None:
        """Make the golden log, by requests where the broker takes them."""
        log, broker = golden_log(), self.servers.controller("a-0")
        while (at := self.servers.brokers["a-0"].log.max_offset) < len(log):
            size, magic = BLANK.unpack_from(log, at)
            if magic == BLANK_MAGIC:
                at += size  # the next message begins a file
            record = log[at : at + BLANK.unpack_from(log, at)[0]]
            message = decode_message(memoryview(record))
            topic = message.properties["REAL_TOPIC"] if message.topic == SCHEDULE_TOPIC else message.topic
            is_delivered = topic == message.topic and "DELAY" in message.properties
            send = None if is_delivered else sends().get((topic, message.properties.get("UNIQ_KEY", "")))
            if "RETRY_TOPIC" in message.properties and not is_delivered:
                await self.compare(frame(RequestCode.CONSUMER_SEND_MSG_BACK))
            elif send is None:
                result = await broker.put_message(as_put(message))
                assert result.append is not None
            elif send.answer is not None:
                await self.compare(send)
            else:
                await self.ask_oneway(send.request)
            await trio.sleep(0.05)  # a one-way request arrives, and queues get the message
            await after_each()


def as_put(message: StoredMessage) -> Message:
    """What becomes this record."""
    return Message(
        message.topic,
        message.body,
        message.queue_id,
        message.properties,
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        delay_time_level=0,
    )


@attrs.define(eq=False)
class Pulls:
    """The pulls that RocketMQ has answered, each of which waits for its queue to be as long as it was then."""

    replay: Replay
    waiting: list[Exchange]

    async def send_due(self) -> None:
        """Those whose queue is so long now; one that finds nothing is held until its time is over."""
        due = [each for each in self.waiting if self.is_due(each)]
        self.waiting = [each for each in self.waiting if each not in due]
        async with trio.open_nursery() as nursery:
            for each in due:
                nursery.start_soon(self.replay.compare, each)

    def is_due(self, each: Exchange) -> bool:
        assert each.answer is not None
        asked, fields = each.request.ext_fields or {}, each.answer.ext_fields or {}
        is_known = self.replay.topics.select_topic_config(asked["topic"]) is not None
        return is_known and int(fields["maxOffset"]) == self.replay.max_offset(asked["topic"], int(asked["queueId"]))


def is_answered_pull(each: Exchange) -> bool:
    return each.request.code == RequestCode.PULL_MESSAGE and each.answer is not None


def code_of(each: Exchange) -> int:
    assert each.answer is not None
    return each.answer.code


async def with_a_client(servers: RoleWorld, use: Callable[[RemotingClient], Awaitable[None]]) -> None:
    """A client with a connection of its own."""
    own, tracer = servers.nodes[CLIENT], servers.recorder.tracer(CLIENT)
    async with open_actor_system("golden", tracer, entropy=own.entropy) as system:
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, ProcessorTable(tracer))
        await system.start(remoting)
        await use(remoting)


def test_requests_have_the_answers_that_rocketmq_gave() -> None:
    servers = RoleWorld.of(
        0,
        broker_role=BrokerRole.ASYNC_MASTER,
        message_delay_level=NO_DELIVERY,
        mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
        mapped_file_size_consume_queue_bytes=2000,
    )
    same: Counter[tuple[int, int]] = Counter()

    pulls = [each for each in (*exchanges("rem.22"), *exchanges("rem.3")) if is_answered_pull(each)]
    too_old = [each for each in pulls if code_of(each) == ResponseCode.SUBSCRIPTION_NOT_LATEST]
    (query,) = [each for each in exchanges("rem.1") if each.request.code == RequestCode.QUERY_MESSAGE]
    commits = [each for each in exchanges("rem.3") if each.request.code == RequestCode.UPDATE_CONSUMER_OFFSET]
    first, *others = [each for each in exchanges("rem.3") if each.request.code == RequestCode.HEART_BEAT]

    async def fill_and_pull(remoting: RemotingClient) -> None:
        replay = Replay(servers, remoting, same)
        for topic in TOPICS_OF_REFUSED:
            await replay.topics.update_topic_config(
                TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
            )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replay.beat, (first, *others))
            waiting = Pulls(replay, [each for each in pulls if each not in too_old])

            async def read() -> None:
                await waiting.send_due()
                await replay.query_when_due(query, commits)

            await replay.fill(read)
            await replay.compare(frame(RequestCode.VIEW_MESSAGE_BY_ID))
            for each in exchanges("rem.22"):
                if each.request.code in OF_QUEUES:
                    await replay.compare(each)
            nursery.cancel_scope.cancel()
        assert waiting.waiting == []

    async def administer(remoting: RemotingClient) -> None:
        replay = Replay(servers, remoting, same)
        offline = ResponseCode.CONSUMER_NOT_ONLINE
        await replay.compare(frame(RequestCode.GET_CONSUMER_CONNECTION_LIST, offline))
        await replay.compare(frame(RequestCode.UPDATE_AND_CREATE_TOPIC))
        await replay.compare(frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP))
        await replay.compare(frame(RequestCode.DELETE_TOPIC_IN_BROKER))
        await replay.compare_locks(frame(RequestCode.LOCK_BATCH_MQ))
        await replay.compare(frame(RequestCode.UNLOCK_BATCH_MQ))
        await replay.compare(frame(RequestCode.UNREGISTER_CLIENT))

    async def pull_too_early(remoting: RemotingClient) -> None:
        replay = Replay(servers, remoting, same)
        for each in (first, *too_old):
            await replay.compare(each)

    async def with_clients() -> None:
        for use in (fill_and_pull, administer, pull_too_early):
            await with_a_client(servers, use)

    servers.run_well(lambda: servers.on_node(CLIENT, with_clients))
    found = {(RequestCode(request), ResponseCode(code)): count for (request, code), count in same.items()}
    del found[RequestCode.HEART_BEAT, ResponseCode.SUCCESS]
    assert found == {
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS): 138,
        (RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SUCCESS): 3,
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SUCCESS): 1,
        (RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS): 37,
        (RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND): 29,
        (RequestCode.PULL_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY): 6,
        (RequestCode.PULL_MESSAGE, ResponseCode.PULL_OFFSET_MOVED): 4,
        (RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_LATEST): 8,
        (RequestCode.QUERY_MESSAGE, ResponseCode.SUCCESS): 1,
        (RequestCode.VIEW_MESSAGE_BY_ID, ResponseCode.SUCCESS): 1,
        **{(code, ResponseCode.SUCCESS): 4 for code in OF_QUEUES},
        (RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.SUCCESS): 1,
        (RequestCode.LOCK_BATCH_MQ, ResponseCode.SUCCESS): 1,
        (RequestCode.UNLOCK_BATCH_MQ, ResponseCode.SUCCESS): 1,
        (RequestCode.UNREGISTER_CLIENT, ResponseCode.SUCCESS): 1,
        (RequestCode.GET_TOPIC_STATS_INFO, ResponseCode.SUCCESS): 1,
        (RequestCode.GET_CONSUME_STATS, ResponseCode.SUCCESS): 1,
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE): 1,
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SUCCESS): 1,
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, ResponseCode.SUCCESS): 1,
    }
