"""What producers and consumers ask a broker over its port: send, pull and wait, heartbeats, offsets, locks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.client_housekeeping_service import SCAN_INTERVAL_S
from rmq_actors.protocols.consumer_groups import EXPIRED_S
from rmq_actors.protocols.held_pulls import HeldPulls
from rmq_actors.protocols.offset_moved_event import EVENT_INTERVAL_S
from rmq_actors.protocols.queue_locks import LOCK_LIVES_S
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits, RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.testing.thin_client import ThinClient, send_request, subscription
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.store import PutBegin
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds import name_server_world
from tests.worlds.fed_frames import feed
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

TOPIC = "TopicOfAClient"
TIMEOUT_MS = 40_000
Use = Callable[["Clients"], Awaitable[None]]


@attrs.define(eq=False)
class Clients:
    """Clients of one broker, each with a connection of its own."""

    servers: RoleWorld
    #: By the client's id: the groups that it was told have changed.
    told: dict[str, list[str]] = attrs.field(factory=dict)

    @contextlib.asynccontextmanager
    async def client(self, client_id: str = "c-1", group: str = "CG", node: str = "a-0") -> AsyncIterator[ThinClient]:
        told = self.told.setdefault(client_id, [])
        own, address = self.servers.nodes[CLIENT], self.servers.brokers[node].address
        tracer = self.servers.recorder.tracer(CLIENT)
        processors = ProcessorTable(tracer)

        def note(request: RemotingRequest) -> RemotingCommand | None:
            told.append((request.command.ext_fields or {})["consumerGroup"])
            return None

        processors.register([RequestCode.NOTIFY_CONSUMER_IDS_CHANGED], note)
        async with open_actor_system(client_id, tracer, entropy=own.entropy) as system:
            remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, processors)
            await system.start(remoting)
            yield ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), client_id, group)


def run(use: Use, slaves: int = 0, settings: dict[str, Any] | None = None, **store: Any) -> RoleWorld:
    """Have clients use broker "a-0" of a fresh cluster."""
    role = BrokerRole.SYNC_MASTER if slaves else BrokerRole.ASYNC_MASTER
    servers = RoleWorld.of(slaves, **{"broker_role": role, **store})
    servers.settings = settings or {}
    servers.run_well(lambda: servers.on_node(CLIENT, lambda: use(Clients(servers))))
    return servers


def placed(answer: tuple[int, SendMessageResponseHeader | str | None]) -> SendMessageResponseHeader:
    code, header = answer
    assert code == ResponseCode.SUCCESS, header
    assert isinstance(header, SendMessageResponseHeader)
    return header


# --- send -------------------------------------------------------------------------------------------------------------


def test_a_message_is_stored_as_it_was_sent_and_its_topic_made() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            sent = placed(await client.send(TOPIC, b"first", 3, {"KEYS": "k", "UNIQ_KEY": "u", "WAIT": "true"}, flag=7))
            assert (sent.queue_id, sent.queue_offset) == (3, 0)
            address, offset = decode_message_id(sent.msg_id)
            assert (address, offset) == (clients.servers.brokers["a-0"].address, 0)
            await trio.sleep(0.1)
            (message,) = (await client.pull(TOPIC, 0, 3)).messages
            assert (message.body, message.flag, message.born_timestamp_ms) == (b"first", 7, 1)
            assert message.properties == {"KEYS": "k", "UNIQ_KEY": "u", "CLUSTER": "DefaultCluster"}
            assert message.store_host == address
            assert message.born_host.startswith(clients.servers.nodes[CLIENT].address)
        topic = clients.servers.controller("a-0").remoting.topic_config_manager.select_topic_config(TOPIC)  # type: ignore[union-attr]
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)

    servers = run(use)
    assert servers.crashes == []


def test_traces_name_the_topic_of_messages_and_the_id_of_a_single_one() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic", properties={"UNIQ_KEY": "general door"}))
            placed(await client.send(TOPIC, b"x", properties={"UNIQ_KEY": "lane"}))
            placed(await client.send(TOPIC, b"x"))
            placed(await client.send(TOPIC, b"x", properties={"UNIQ_KEY": "delayed", "DELAY": "18"}))
            assert (await client.send_batch(TOPIC, [b"one", b"two"])).code == ResponseCode.SUCCESS

    begun = of_kind(run(use).recorder.events, PutBegin)
    assert [(event.topic, event.message_id) for event in begun] == [
        (TOPIC, "general door"),
        (TOPIC, "lane"),
        (TOPIC, None),
        ("SCHEDULE_TOPIC_XXXX", "delayed"),
        (TOPIC, None),
    ]


def test_a_new_topic_is_known_to_name_servers() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"x"))
        await trio.sleep(1)

    servers = run(use)
    assert servers.crashes == []


def test_messages_of_one_receive_are_answered_in_order_and_all_stored() -> None:
    async def use(clients: Clients) -> None:
        offsets: dict[bytes, int] = {}
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic"))

            async def send(body: bytes) -> None:
                offsets[body] = placed(await client.send(TOPIC, body)).queue_offset

            async with trio.open_nursery() as nursery:
                for number in range(18):  # a read ends with the queue's file
                    nursery.start_soon(send, b"%d" % number)
            await trio.sleep(0.1)
            pulled = (await client.pull(TOPIC, 1)).messages
            assert {message.body: message.queue_offset for message in pulled} == offsets

    run(use)


def test_a_batch_is_stored_whole_and_its_ids_told() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic"))
            answer = await client.send_batch(TOPIC, [b"a", b"b", b"c"])
            assert answer.code == ResponseCode.SUCCESS, answer
            assert len((answer.ext_fields or {})["msgId"].split(",")) == 3
            await trio.sleep(0.1)
            assert (await client.pull(TOPIC, 1)).bodies == [b"a", b"b", b"c"]

    run(use)


@pytest.mark.parametrize(
    ("topic", "fields", "code", "remark"),
    [
        (" ", {}, ResponseCode.SYSTEM_ERROR, "The specified topic is blank."),
        ("a.b", {}, ResponseCode.SYSTEM_ERROR, "illegal characters"),
        ("x" * 128, {}, ResponseCode.SYSTEM_ERROR, "longer than topic max length"),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION, "Sending message to topic"),
        ("OFFSET_MOVED_EVENT", {}, ResponseCode.NO_PERMISSION, "Sending message to topic"),
        ("Other", {"default_topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST, "apply first please"),
        ("BenchmarkTest", {"queue_id": 1024}, ResponseCode.SYSTEM_ERROR, r"queueId\[1024\] is illegal, TopicConfig \["),
        ("BenchmarkTest", {"properties": {"DELAY": "soon"}}, ResponseCode.MESSAGE_ILLEGAL, "'soon', not a level"),
        ("BenchmarkTest", {"sys_flag": 4}, ResponseCode.MESSAGE_ILLEGAL, "system flag 4 says"),
        ("BenchmarkTest", {"properties": {"TRAN_MSG": "true"}, "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "a batch"),
    ],
)
def test_what_a_broker_does_not_take_is_refused_and_makes_nothing(
    topic: str, fields: dict[str, object], code: int, remark: str
) -> None:
    async def use(clients: Clients) -> None:
        broker = clients.servers.controller("a-0")
        before, end = broker.remoting.topic_config_manager.wrapper(), broker.store.commit_log.max_offset  # type: ignore[union-attr]
        async with clients.client() as client:
            answer = await client.ask(send_request(topic, b"body", **fields))  # type: ignore[arg-type]
            assert answer.code == code, answer
            assert remark.replace("\\", "") in (answer.remark or ""), answer
        after = broker.remoting.topic_config_manager.wrapper()  # type: ignore[union-attr]
        assert (after, broker.store.commit_log.max_offset) == (before, end)

    servers = run(use)
    assert servers.crashes == []


def test_a_body_that_is_too_long_is_refused_with_the_limit() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic"))
            code, remark = await client.send(TOPIC, bytes(3000))
            assert (code, "msg body length limit 2000B" in str(remark)) == (ResponseCode.MESSAGE_ILLEGAL, True), remark

    run(use, max_message_size_bytes=2000)


def test_a_slave_takes_no_messages_and_makes_no_topics() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(node="a-1") as client:
            code, remark = await client.send(TOPIC, b"x")
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE, remark
        topics = clients.servers.controller("a-1").remoting.topic_config_manager  # type: ignore[union-attr]
        assert topics.select_topic_config(TOPIC) is None

    run(use, slaves=1)


def test_what_was_consumed_too_often_goes_to_the_dead_letters_of_its_group() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await client.heartbeat(subscription(TOPIC))
            sent = placed(await client.send("%RETRY%CG", b"bad", reconsume_times=16))
            assert sent.queue_id == 0
            await trio.sleep(0.1)
            assert (await client.pull("%DLQ%CG", 0)).bodies == [b"bad"]
            placed(await client.send("%RETRY%CG", b"again", reconsume_times=16, max_reconsume_times=20))
            await trio.sleep(0.1)
            assert (await client.pull("%RETRY%CG", 0)).bodies == [b"again"]

    run(use)


def test_a_sync_put_is_answered_when_the_slave_has_it() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            assert placed(await client.send(TOPIC, b"x")).queue_offset == 0
            clients.servers.nodes["a-1"].pause()
            code, _ = await client.send(TOPIC, b"y")
            assert code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            clients.servers.nodes["a-1"].resume()

    run(use, slaves=1, slave_timeout_ms=500)


# --- pull -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_held_pull_is_answered_as_soon_as_its_message_may_be_seen(flush: FlushDiskType) -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as producer, clients.client("c-2") as consumer:
            placed(await producer.send(TOPIC, b"old"))
            await trio.sleep(0.1)
            took: list[float] = []

            async def wait() -> None:
                began = trio.current_time()
                assert (await consumer.pull(TOPIC, 1, hold_ms=15_000)).bodies == [b"new"]
                took.append(trio.current_time() - began)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(3)
                placed(await producer.send(TOPIC, b"other queue", 1))
                await trio.sleep(1)
                placed(await producer.send(TOPIC, b"new"))
            assert 4 <= took[0] < 4.2

    run(use, flush_disk_type=flush)


def test_a_message_that_comes_has_nobody_look_at_other_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[list[tuple[str, int]] | None] = []
    take_arrived = HeldPulls.take_arrived

    def note(held: HeldPulls[Any], end: Any, queues: Any = None) -> Iterator[Any]:
        looked_at.append(None if queues is None else list(queues))
        return take_arrived(held, end, queues)

    monkeypatch.setattr(HeldPulls, "take_arrived", note)

    async def use(clients: Clients) -> None:
        async with clients.client() as producer, clients.client("c-2") as consumer, trio.open_nursery() as nursery:
            placed(await producer.send(TOPIC, b"old"))
            await trio.sleep(0.1)
            got: list[list[bytes]] = []

            async def wait(queue_id: int) -> None:
                got.append((await consumer.pull(TOPIC, 0, queue_id, hold_ms=15_000)).bodies)

            for queue_id in (1, 2, 3):
                nursery.start_soon(wait, queue_id)
            await trio.sleep(1)
            looked_at.clear()
            for queue_id in (0, 0, 2):
                placed(await producer.send(TOPIC, b"new", queue_id))
                await trio.sleep(1)
            assert got == [[b"new"]]
            assert [queues for queues in looked_at if queues] == [[(TOPIC, 0)], [(TOPIC, 0)], [(TOPIC, 2)]]
            assert None not in looked_at
            nursery.cancel_scope.cancel()

    run(use)


def test_a_held_pull_is_answered_on_a_slave_too_which_rocketmq_does_5_s_later() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as producer, clients.client("c-2", node="a-1") as consumer:
            placed(await producer.send(TOPIC, b"old"))
            await trio.sleep(15)  # the slave has asked for the topics again

            async with trio.open_nursery() as nursery:
                began = trio.current_time()
                nursery.start_soon(producer.send, TOPIC, b"new")
                assert (await consumer.pull(TOPIC, 1, hold_ms=15_000)).bodies == [b"new"]
                assert trio.current_time() - began < 0.5

    run(use, slaves=1)


def test_a_pull_that_waits_in_vain_is_answered_when_its_time_is_up() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"old"))
            await trio.sleep(0.1)
            began = trio.current_time()
            pulled = await client.pull(TOPIC, 1, hold_ms=2_000)
            assert pulled.code == ResponseCode.PULL_NOT_FOUND
            assert pulled.header is not None
            assert (pulled.header.next_begin_offset, pulled.header.max_offset) == (1, 1)
            assert 2 <= trio.current_time() - began < 2.2

    run(use)


def test_pulls_of_a_connection_that_has_ended_are_let_go() -> None:
    async def use(clients: Clients) -> None:
        broker = clients.servers.controller("a-0").remoting
        assert broker is not None
        async with clients.client() as producer:
            placed(await producer.send(TOPIC, b"old"))
            await trio.sleep(0.1)
            with trio.move_on_after(1):
                async with clients.client("c-2") as consumer:
                    await consumer.pull(TOPIC, 1, hold_ms=60_000)
            await trio.sleep(1)
            assert broker.held_pulls == 0

    run(use)


@pytest.mark.parametrize("is_new_group", [False, True])
def test_a_peer_that_reads_nothing_gets_no_more_messages_than_wait_for_it(is_new_group: bool) -> None:
    """A hundred pulls that are answered later: held ones, or those of a group that is made first."""
    count, body = 100, bytes(200_000)

    async def use(clients: Clients) -> None:
        broker = clients.servers.controller("a-0").remoting
        assert broker is not None
        async with clients.client() as producer:
            placed(await producer.send(TOPIC, b"old"))
            if is_new_group:
                placed(await producer.send(TOPIC, body))
            else:
                await producer.pull(TOPIC, 0)  # makes the group
            await trio.sleep(0.1)
            host, _, port = clients.servers.brokers["a-0"].address.rpartition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                header = PullMessageRequestHeader("CG", TOPIC, 0, 1, 32, 6, 0, 60_000, 0, "*")
                pulls = [
                    RemotingCommand(RequestCode.PULL_MESSAGE, encode_header(header), opaque=number)
                    for number in range(count)
                ]
                await stream.send_all(b"".join(map(encode_command, pulls)))
                await trio.sleep(1)
                if not is_new_group:
                    assert broker.held_pulls == count
                    placed(await producer.send(TOPIC, body))
                    await trio.sleep(1)
                connections = broker.remoting_server.connections.values()
                most = ConnectionLimits().write_buffer_high_water_mark_bytes + 2 * len(body)
                assert 2 * len(body) < max(each.outgoing_bytes for each in connections) < most
                answers = dict[int, RemotingCommand]()
                reader = FrameReader()
                while len(answers) < count:
                    feed(reader, bytes(await stream.receive_some()))
                    while commands := reader.commands():
                        answers.update({command.opaque: command for command in commands})
            full = [answer for answer in answers.values() if answer.code == ResponseCode.SUCCESS]
            again = [answer for answer in answers.values() if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY]
            assert len(full) > 2
            assert len(full) + len(again) == count
            assert {(answer.ext_fields or {})["nextBeginOffset"] for answer in again} == {"1"}
            assert {(answer.ext_fields or {})["nextBeginOffset"] for answer in full} == {"2"}

    run(use, mapped_file_size_commit_log_bytes=1024 * 1024)


def test_a_pull_from_elsewhere_is_told_where_the_queue_is() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"one"))
            await trio.sleep(0.1)
            badly = await client.pull(TOPIC, 7)
            assert (badly.code, badly.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
            assert badly.header is not None
            assert badly.header.next_begin_offset == 1
            await trio.sleep(0.1)
            (event,) = await all_events(client)
            assert json.loads(event) == {
                "consumerGroup": "CG",
                "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": TOPIC},
                "offsetNew": 1,
                "offsetRequest": 7,
            }
            empty = await client.pull(TOPIC, 0, 1)
            assert empty.code == ResponseCode.PULL_NOT_FOUND
            assert (await client.pull(TOPIC, 0, 9)).code == ResponseCode.SYSTEM_ERROR
            assert (await client.pull("NoTopic", 0)).code == ResponseCode.TOPIC_NOT_EXIST

    run(use)


def test_of_pulls_from_elsewhere_one_is_noted_for_each_group_and_queue_in_some_seconds() -> None:
    """A client that may only read has the broker write no more than that."""

    async def use(clients: Clients) -> None:
        async with clients.client() as client, clients.client("c-2", "Other") as other:
            placed(await client.send(TOPIC, b"one"))
            await trio.sleep(0.1)
            for offset in (7, 8, 9):
                assert (await client.pull(TOPIC, offset)).code == ResponseCode.PULL_OFFSET_MOVED
            assert (await other.pull(TOPIC, 7)).code == ResponseCode.PULL_OFFSET_MOVED
            await trio.sleep(EVENT_INTERVAL_S)
            assert (await client.pull(TOPIC, 10)).code == ResponseCode.PULL_OFFSET_MOVED
            await trio.sleep(0.1)
            events = [json.loads(event) for event in await all_events(client)]
            assert [(event["consumerGroup"], event["offsetRequest"]) for event in events] == [
                ("CG", 7),
                ("Other", 7),
                ("CG", 10),
            ]

    run(use)


async def all_events(client: ThinClient) -> list[bytes]:
    """The bodies of the broker's messages about offsets that it has moved."""
    return (await client.pull("OFFSET_MOVED_EVENT", 0)).bodies


@pytest.mark.parametrize("is_master", [True, False])
def test_a_pull_from_elsewhere_is_noted_by_a_master_and_answered_though_it_cannot_be_noted(is_master: bool) -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"one"))
            await clients.servers.wait_replicated("a-1")
            await trio.sleep(15)  # the slave has copied the topic
            master = clients.servers.controller("a-0")
            if is_master:
                master.store.running_flags.set(RunningFlag.DISK_FULL, "a test")
        async with clients.client(node="a-0" if is_master else "a-1") as client:
            code = ResponseCode.PULL_OFFSET_MOVED if is_master else ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (await client.pull(TOPIC, 7)).code == code
            await trio.sleep(0.1)
            assert await all_events(client) == []

    run(use, slaves=1)


def test_tags_are_chosen_by_the_pull_or_by_the_groups_heartbeats() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            for tag in ("A", "B", "C"):
                placed(await client.send(TOPIC, tag.encode(), 0, {"TAGS": tag}))
            await trio.sleep(0.1)
            assert (await client.pull(TOPIC, 0, tags="A || C")).bodies == [b"A", b"C"]
            refused = await client.pull(TOPIC, 0, tags=None)
            assert refused.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            await client.heartbeat(subscription(TOPIC, "*"))
            assert (await client.pull(TOPIC, 0, tags=None)).bodies == [b"A", b"B", b"C"]

    run(use)


def test_a_pull_commits_the_offset_that_it_carries() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"one"))
            await trio.sleep(0.1)
            assert await client.committed(TOPIC) == 0  # a young queue is consumed from its first message
            await client.pull(TOPIC, 0, commit=1)
            assert await client.committed(TOPIC) == 1
            await client.commit(TOPIC, 5)
            assert await client.committed(TOPIC) == 5

    run(use)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_members_of_a_group_are_told_who_comes_and_goes() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client("c-1") as first:
            assert await first.members() is None
            await first.heartbeat(subscription(TOPIC))
            assert await first.members() == ["c-1"]
            async with clients.client("c-2") as second:
                await second.heartbeat(subscription(TOPIC))
                await trio.sleep(0.1)
                assert clients.told == {"c-1": ["CG", "CG"], "c-2": ["CG"]}
                assert await first.members() == ["c-1", "c-2"]
                await second.heartbeat(subscription(TOPIC))  # nothing new
                await trio.sleep(0.1)
                assert clients.told == {"c-1": ["CG", "CG"], "c-2": ["CG"]}
            await trio.sleep(0.1)  # its connection has ended
            assert clients.told["c-1"] == ["CG"] * 3
            assert await first.members() == ["c-1"]
            await first.leave()
            assert await first.members() is None

    run(use)


def test_a_client_that_says_nothing_for_too_long_is_cut_off_and_the_others_told() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client("c-1") as talks, clients.client("c-2") as silent:
            await silent.heartbeat(subscription(TOPIC))
            deadline = trio.current_time() + EXPIRED_S + 2 * SCAN_INTERVAL_S
            while trio.current_time() < deadline:
                await talks.heartbeat(subscription(TOPIC))
                await trio.sleep(30)
            assert await talks.members() == ["c-1"]
            assert clients.told["c-1"] == ["CG", "CG"]

    run(use)


def test_a_queue_is_one_consumers_until_it_gives_it_back_or_lets_it_expire() -> None:
    queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
    other = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=1)

    async def use(clients: Clients) -> None:
        async with clients.client("c-1") as first, clients.client("c-2") as second:
            assert await first.lock(queue) == [queue]
            assert await second.lock(queue, other) == [other]
            await first.unlock(queue, other)
            assert await first.lock(other) == []
            assert await second.lock(queue, other) == [queue, other]
            await trio.sleep(LOCK_LIVES_S / 2)
            assert await second.lock(queue) == [queue]
            await trio.sleep(LOCK_LIVES_S - 1)
            assert await first.lock(queue, other) == [other]
            await trio.sleep(2)
            assert await first.lock(queue) == [queue]

    run(use)


def test_pulls_held_across_a_change_of_role_are_answered() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as producer, clients.client("c-2") as consumer:
            placed(await producer.send(TOPIC, b"old"))
            await trio.sleep(0.1)
            found: list[list[bytes]] = []

            async def wait() -> None:
                found.append((await consumer.pull(TOPIC, 1, hold_ms=20_000)).bodies)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                error = await clients.servers.change_role("a-0", BrokerRole.SYNC_MASTER)
                assert error is None
                await clients.servers.change_role("a-0", BrokerRole.ASYNC_MASTER)
                await trio.sleep(1)
                placed(await producer.send(TOPIC, b"new"))
            assert found == [[b"new"]]

    run(use)


# --- slaves -----------------------------------------------------------------------------------------------------------


def test_a_slave_goes_on_serving_when_its_master_is_gone() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as producer:
            for number in range(5):
                placed(await producer.send(TOPIC, b"%d" % number))
        await trio.sleep(15)  # the slave has asked for the topics again
        clients.servers.nodes["a-0"].power_loss()
        async with clients.client("c-2", node="a-1") as consumer:
            await consumer.heartbeat(subscription(TOPIC))
            pulled = await consumer.pull(TOPIC, 0, tags=None)
            assert pulled.bodies == [b"0", b"1", b"2", b"3", b"4"]
            assert pulled.header is not None
            assert pulled.header.suggest_which_broker_id == 0  # as RocketMQ: the master again, once it is back
            end = await consumer.pull(TOPIC, 9)
            assert (end.code, end.header and end.header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 9)
            await consumer.commit(TOPIC, 5)
            assert await consumer.committed(TOPIC) == 5

    run(use, slaves=1)


def give_memory(monkeypatch: pytest.MonkeyPatch, memory_bytes: int) -> None:
    """To every machine."""
    environment = name_server_world._environment
    monkeypatch.setattr(
        name_server_world,
        "_environment",
        lambda node: attrs.evolve(environment(node), physical_memory_bytes=memory_bytes),
    )


def test_a_consumer_that_lags_beyond_the_memory_is_told_to_ask_a_slave(monkeypatch: pytest.MonkeyPatch) -> None:
    give_memory(monkeypatch, 2000)  # some ten messages

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            for number in range(30):
                placed(await client.send(TOPIC, b"%02d" % number))
            await trio.sleep(0.1)
            far = await client.pull(TOPIC, 0, max_messages=4)
            near = await client.pull(TOPIC, 29)
            assert far.header is not None
            assert near.header is not None
            assert (far.bodies, far.header.suggest_which_broker_id) == ([b"00", b"01", b"02", b"03"], 1)
            assert (near.bodies, near.header.suggest_which_broker_id) == ([b"29"], 0)

    run(use, settings={"slave_read_enable": True}, access_message_in_memory_max_ratio=100)


async def read_on(brokers: Sequence[ThinClient], begin: int, end: int) -> list[tuple[int, int]]:
    """Pull as a consumer does, each time from the broker that was suggested: from which one each message came.

    It begins at the master, broker 0.
    """
    found, suggested = list[tuple[int, int]](), 0
    while begin < end:
        pulled = await brokers[suggested].pull(TOPIC, begin, max_messages=4)
        assert pulled.header is not None
        found += [(int(body), suggested) for body in pulled.bodies]
        begin, suggested = pulled.header.next_begin_offset, pulled.header.suggest_which_broker_id
    return found


def test_reads_move_to_the_slave_and_back_as_a_consumer_lags_and_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    give_memory(monkeypatch, 10_000)

    async def use(clients: Clients) -> None:
        async with (
            clients.client("producer") as producer,
            clients.client("c-0") as master,
            clients.client("c-1", node="a-1") as slave,
        ):

            async def put(begin: int, end: int) -> None:
                for number in range(begin, end):
                    placed(await producer.send(TOPIC, b"%d" % number))

            await put(0, 100)
            await trio.sleep(15)  # the slave has asked for the topics again
            for begin, end in ((0, 100), (100, 104), (104, 200)):  # it lags, is up to date, and lags again
                await put(max(begin, 100), end)
                await trio.sleep(1)
                found = await read_on([master, slave], begin, end)
                assert [number for number, _ in found] == list(range(begin, end))
                of_slave = [number for number, broker in found if broker == 1]
                if end - begin == 4:
                    assert of_slave == []
                    continue
                # The first answer says so; and 4,000 bytes are left, 40 % of the memory, when the slave sends it back.
                assert of_slave[0] == begin + 4
                assert of_slave == list(range(begin + 4, of_slave[-1] + 1))
                record_bytes = clients.servers.brokers["a-1"].log.max_offset / end
                assert 4_000 / record_bytes - 4 <= end - of_slave[-1] <= 4_000 / record_bytes + 1

    run(use, slaves=1, settings={"slave_read_enable": True})
