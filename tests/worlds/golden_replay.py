"""Sends a broker of a simulated world what was captured between RocketMQ 4.9.7 and its clients, and compares."""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import msgspec
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.topics import TopicConfigManager
from rmq_actors.protocols.offset_moved_event import OFFSET_MOVED_EVENT_TOPIC
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.batch import decode_batch
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.message_queues import LockBatchResponseBody, MessageQueue
from rmq_actors.wire.bodies.offsets import (
    ConsumeStats,
    TopicStatsTable,
)
from rmq_actors.wire.dispatch_request import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, Message, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.golden_capture import golden_log
from tests.worlds.golden_requests import (
    ADDRESS_DIGITS,
    Exchange,
    Key,
    commands,
    exchanges,
    frame,
    key_of,
    told,
)
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
HEARTBEAT_S = 30
#: What commitOrRollback says.
UNKNOWN, ROLLBACK = "0", "12"
#: Longer than any pull is held.
TIMEOUT_MS = 40_000


def tables_of(answer: RemotingCommand, kind: type[TopicStatsTable | ConsumeStats]) -> dict[MessageQueue, object]:
    """What is said about each queue, but times."""
    return {
        queue: msgspec.structs.replace(said, **{name: 0 for name in said.__struct_fields__ if name.startswith("last_")})
        for queue, said in decode_body(kind, answer.body).offset_table.items()
    }


@functools.cache
def sends() -> Mapping[tuple[str, str], Exchange]:
    """The sends, by topic and the unique key of the message, or of a batch's first."""
    found = {}
    for each in (*exchanges("rem.1"), *exchanges("rem.2")):
        if each.request.code in SENDS:
            header = each.request.ext_fields or {}
            properties = decode_properties(header["i"].encode())
            if each.request.code == RequestCode.SEND_BATCH_MESSAGE:
                properties = decode_properties(next(decode_batch(each.request.body)).properties)
            found[header["b"], properties["UNIQ_KEY"]] = each
    return found


@attrs.define(eq=False)
class Replay:
    """Requests to the broker of one world, whose answers are compared."""

    servers: RoleWorld
    remoting: RemotingClient
    #: Those that were sent, and are the same.
    done: set[Key]
    #: What the broker has asked of this client.
    asked: list[RemotingCommand] = attrs.field(factory=list)

    async def answer(self, each: Exchange) -> RemotingCommand:
        """The broker's."""
        return await self.remoting.invoke(self.servers.brokers["a-0"].address, copy.copy(each.request), TIMEOUT_MS)

    async def compare(self, each: Exchange, what: Callable[[RemotingCommand], object] = told) -> None:
        """`what` is all that is said in an answer, but times, addresses and the order of Java's hash tables."""
        assert each.answer is not None
        answer = await self.answer(each)
        assert what(answer) == what(each.answer), each.request
        self.done.add(key_of(each.request))

    async def compare_tables(self, each: Exchange, kind: type[TopicStatsTable | ConsumeStats]) -> None:
        """The same for an answer whose body is a table by queues."""
        await self.compare(each, lambda answer: (answer.code, answer.remark, tables_of(answer, kind)))

    async def compare_locks(self, each: Exchange) -> None:
        """The same for an answer that is a set of queues, in no order."""
        await self.compare(each, lambda answer: {*decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set})

    async def ask_oneway(self, request: RemotingCommand) -> None:
        await self.remoting.invoke_oneway(self.servers.brokers["a-0"].address, copy.copy(request), TIMEOUT_MS)
        self.done.add(key_of(request))

    def compare_asked(self, connection: str) -> None:
        """What the broker has asked of this client, and RocketMQ's of that one: they say nothing but a group."""
        asked = asked_of_clients(connection)
        assert [(each.code, each.flag, each.ext_fields) for each in self.asked] == [
            (each.code, each.flag, each.ext_fields) for each in asked
        ]
        self.done.update(map(key_of, asked))

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

    def records(self, begin: int) -> list[StoredMessage]:
        """Those of the broker's log from there."""
        found, records = [], self.servers.controller("a-0").store.records
        while begin < self.end:
            message = records.look_message_by_offset(begin)
            assert message is not None
            found.append(message)
            begin += message.total_size
        return found

    @property
    def end(self) -> int:
        """Of the broker's log."""
        return self.servers.brokers["a-0"].log.max_offset

    def next_record(self) -> bytes:
        """The one of the golden log that stands where the broker's log ends."""
        log, at = golden_log(), self.end
        size, magic = BLANK.unpack_from(log, at)
        if magic == BLANK_MAGIC:
            at += size  # the next message begins a file
        return log[at : at + BLANK.unpack_from(log, at)[0]]

    async def fill(self, ends: list[Exchange], after_each: Callable[[], Awaitable[None]], before: int) -> None:
        """Make the golden log until there, by requests: `ends` are those of transactions, the others are looked up."""
        moved = [each for each in exchanges("rem.22") if is_moved(each)]
        while self.end < before:
            at, record = self.end, self.next_record()
            message = decode_message(memoryview(record))
            if message.topic == OFFSET_MOVED_EVENT_TOPIC:
                await self.compare(moved.pop(0))
            elif "RETRY_TOPIC" in message.properties and message.topic == SCHEDULE_TOPIC:
                await self.compare(frame(RequestCode.CONSUMER_SEND_MSG_BACK))
            elif (send := send_of(message)) is not None and send.answer is not None:
                await self.compare(send)
            elif send is not None:
                await self.ask_oneway(send.request)
            elif (end := end_of(message, ends)) is not None:
                ends.remove(end)
                await self.ask_oneway(end.request)
            else:
                result = await self.servers.controller("a-0").put_message(as_put(message))
                assert result.append is not None
            while ends and (ends[0].request.ext_fields or {})["commitOrRollback"] == UNKNOWN:
                await self.ask_oneway(ends.pop(0).request)
            await trio.sleep(0.05)  # a one-way request arrives, and queues get the message
            if message.topic != OP_HALF_TOPIC:  # two threads of RocketMQ's have ended transactions
                mine = self.servers.controller("a-0").store.records.look_message_by_offset(message.physical_offset)
                assert mine is not None, at
                assert nowhere(mine) == nowhere(message)
            await after_each()


def send_of(message: StoredMessage) -> Exchange | None:
    """The client's request that made this record; None where the broker made it."""
    properties, topic = message.properties, message.topic
    if topic in {SCHEDULE_TOPIC, HALF_TOPIC}:
        topic = properties["REAL_TOPIC"]
    elif "DELAY" in properties or "TRAN_MSG" in properties:
        return None  # it was delivered, or committed
    if "TRANSACTION_CHECK_TIMES" in properties:
        return None
    return sends().get((topic, properties.get("UNIQ_KEY", "")))


def end_of(message: StoredMessage, ends: Sequence[Exchange]) -> Exchange | None:
    """The end of a transaction that makes this record: a commit that message, a rollback its mark alone."""
    for each in ends:
        fields = each.request.ext_fields or {}
        if message.topic == OP_HALF_TOPIC and fields["commitOrRollback"] == ROLLBACK:
            return each
        if message.sys_flag & 8 and int(fields["commitLogOffset"]) == message.prepared_transaction_offset:
            return each
    return None


def nowhere(message: StoredMessage) -> StoredMessage:
    """All of a record but times and addresses; when it was born is the client's word, except in the broker's own."""
    properties = dict(message.properties)
    if "ORIGIN_MESSAGE_ID" in properties:
        properties["ORIGIN_MESSAGE_ID"] = properties["ORIGIN_MESSAGE_ID"][ADDRESS_DIGITS:]
    born_ms = 0 if message.topic == OFFSET_MOVED_EVENT_TOPIC else message.born_timestamp_ms
    return attrs.evolve(
        message,
        born_timestamp_ms=born_ms,
        born_host="",
        store_host="",
        store_timestamp_ms=0,
        properties=properties,
    )


def made_of(message: StoredMessage) -> tuple[str, bytes, int, int, int, list[tuple[str, str]]]:
    """What a record says, wherever it stands: RocketMQ ended transactions in two threads."""
    fields = message.topic, message.body, message.queue_id, message.sys_flag, message.prepared_transaction_offset
    return *fields, sorted(nowhere(message).properties.items())


def golden_records() -> list[StoredMessage]:
    """The messages of the golden log."""
    log, at, found = golden_log(), 0, []
    while at < len(log):
        size, magic = BLANK.unpack_from(log, at)
        if magic != BLANK_MAGIC:
            found.append(decode_message(memoryview(log[at : at + size])))
        at += size
    return found


def question_of(request: RemotingCommand) -> tuple[object, ...]:
    """What a producer is asked, but the address in the message's id."""
    fields = dict(request.ext_fields or {})
    fields["offsetMsgId"] = fields["offsetMsgId"][ADDRESS_DIGITS:]
    return request.flag, fields, nowhere(decode_message(memoryview(request.body)))


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


def is_moved(each: Exchange) -> bool:
    """Whether RocketMQ moved the offset that was pulled, and wrote an OFFSET_MOVED_EVENT."""
    return is_answered_pull(each) and code_of(each) == ResponseCode.PULL_OFFSET_MOVED


def is_answered_pull(each: Exchange) -> bool:
    return each.request.code == RequestCode.PULL_MESSAGE and each.answer is not None


def code_of(each: Exchange) -> int:
    assert each.answer is not None
    return each.answer.code


async def with_a_client(servers: RoleWorld, done: set[Key], use: Callable[[Replay], Awaitable[None]]) -> None:
    """A client with a connection of its own, that notes what it is asked."""
    own, tracer = servers.nodes[CLIENT], servers.recorder.tracer(CLIENT)
    asked: list[RemotingCommand] = []

    def note(request: RemotingRequest) -> None:
        asked.append(request.command)

    async with open_actor_system("golden", tracer, entropy=own.entropy) as system:
        processors = ProcessorTable(tracer)
        processors.register([RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CHECK_TRANSACTION_STATE], note)
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, processors)
        await system.start(remoting)
        await use(Replay(servers, remoting, done, asked))


def of_code(connection: str, *codes: RequestCode) -> list[Exchange]:
    """What was asked on a connection, of these codes."""
    return [each for each in exchanges(connection) if each.request.code in codes]


def asked_of_clients(connection: str) -> list[RemotingCommand]:
    """What RocketMQ's broker has asked of a client."""
    return [each for each in commands(f"{connection}.s2c.bin") if not each.flag & 1]
