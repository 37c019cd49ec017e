"""Delayed messages from their producer to their consumer, in a simulated world."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.testing.thin_client import ThinClient, subscription
from rmq_actors.tracing.events.broker import BrokerDeliver
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.record import MAX_PROPERTIES_BYTES, Message, StoredMessage
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

TOPIC = "TopicOfDelays"
TIMEOUT_MS = 40_000
#: Levels 1 to 3.
LEVELS = "1s 3s 10s"


@contextlib.asynccontextmanager
async def client_of(servers: RoleWorld, node: str = "a-0") -> AsyncIterator[ThinClient]:
    own, address = servers.nodes[CLIENT], servers.brokers[node].address
    tracer = servers.recorder.tracer(CLIENT)
    async with open_actor_system("delays", tracer, entropy=own.entropy) as system:
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, ProcessorTable(tracer))
        await system.start(remoting)
        yield ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), "c-1", "CG")


def world(slaves: int = 0, seed: int = 1, **store: Any) -> RoleWorld:
    role = BrokerRole.SYNC_MASTER if slaves else BrokerRole.ASYNC_MASTER
    return RoleWorld.of(slaves, seed=seed, **{"broker_role": role, "message_delay_level": LEVELS, **store})


def run(use: Callable[[RoleWorld], Awaitable[None]], slaves: int = 0, seed: int = 1, **store: Any) -> RoleWorld:
    servers = world(slaves, seed, **store)
    servers.run_well(lambda: servers.on_node(CLIENT, lambda: use(servers)))
    return servers


async def send(client: ThinClient, body: bytes, level: int, queue_id: int = 0) -> None:
    code, placed = await client.send(TOPIC, body, queue_id, {"DELAY": str(level), "UNIQ_KEY": body.decode()})
    assert code == ResponseCode.SUCCESS, placed


async def pull_all(client: ThinClient, topic: str = TOPIC, queue_id: int = 0) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while pulled := (await client.pull(topic, len(found), queue_id)).messages:
        found += pulled
    return found


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def live_offsets(servers: RoleWorld, node: str = "a-0") -> dict[int, int]:
    remoting = servers.controller(node).remoting
    assert remoting is not None
    return remoting.metadata.delay_offsets.offset_table


def test_a_first_message_of_a_level_comes_after_a_topic_was_deleted() -> None:
    """There are as many queues as before: one is gone, and the level's has been made."""

    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            code, _ = await client.send("Gone", b"at once", 0, {"UNIQ_KEY": "1"})
            assert code == ResponseCode.SUCCESS
            assert (await client.pull("Gone", 0, 0)).bodies == [b"at once"]
            await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Gone"))
            await send(client, b"later", 1)
            assert (await client.pull(TOPIC, 0, 0, hold_ms=20_000)).bodies == [b"later"]

    run(use)


def test_a_delayed_message_comes_when_its_delay_is_over_and_no_earlier() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            sent_s = trio.current_time()
            await send(client, b"later", 2, queue_id=3)
            pulled = await client.pull(TOPIC, 0, 3, hold_ms=20_000)
            assert pulled.bodies == [b"later"]
            assert 3 <= trio.current_time() - sent_s < 3.2
            (message,) = pulled.messages
            assert message.properties == {
                "DELAY": "2",
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "3",
                "UNIQ_KEY": "later",
                "CLUSTER": "DefaultCluster",
            }
            assert (message.topic, message.queue_id, message.queue_offset) == (TOPIC, 3, 0)

    assert run(use).crashes == []


def test_many_due_at_once_are_delivered_in_order_and_each_once() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            for number in range(100):
                await send(client, b"%d" % number, 2)
            await trio.sleep(3.5)
            assert bodies(await pull_all(client)) == [b"%d" % number for number in range(100)]
        assert live_offsets(servers) == {2: 100}

    assert run(use).crashes == []


def test_a_level_past_the_last_is_the_last_and_level_0_and_less_are_no_delay() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await send(client, b"now", 0)
            await send(client, b"now too", -1)
            await send(client, b"last level", 9)
            await trio.sleep(0.5)
            assert bodies(await pull_all(client)) == [b"now", b"now too"]
            await trio.sleep(10)
            assert bodies(await pull_all(client)) == [b"now", b"now too", b"last level"]

    assert run(use).crashes == []


@pytest.mark.parametrize("ahead_s", [-3600.0, -2.0, 2.0, 3600.0])
def test_a_clock_that_jumps_makes_no_message_come_early_nor_late(ahead_s: float) -> None:
    """RocketMQ delivers at once what a clock that went back makes due after more than its delay, or what it skips."""

    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            sent_s = dict[bytes, float]()
            for number in range(3):
                if number == 1:
                    servers.nodes["a-0"].wall_clock.jump(round(1000 * ahead_s))
                sent_s[b"%d" % number] = trio.current_time()
                await send(client, b"%d" % number, 2)
            for number in range(3):
                (message,) = (await client.pull(TOPIC, number, hold_ms=20_000, max_messages=1)).messages
                assert 3 <= trio.current_time() - sent_s[message.body] < 3.3

    assert run(use).crashes == []


@pytest.mark.parametrize("ahead_s", [-3600.0, -10.0, -1.0, 1.0, 3600.0])
def test_a_clock_that_is_wrong_only_while_a_message_is_stamped_makes_it_neither_early_nor_late(ahead_s: float) -> None:
    """It is right again by the time the message is on the disk, and in its queue."""

    async def use(servers: RoleWorld) -> None:
        broker = servers.nodes["a-0"]
        async with client_of(servers) as client:
            await send(client, b"0", 2)
            await trio.sleep(5)
            broker.disk.slow_down(0.5)
            broker.wall_clock.jump(round(1000 * ahead_s))
            sent_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, client, b"1", 2)
                await trio.sleep(0.2)
                broker.wall_clock.jump(-round(1000 * ahead_s))
            assert trio.current_time() - sent_s > 0.5
            assert (await client.pull(TOPIC, 1, hold_ms=20_000)).bodies == [b"1"]
            assert 3 <= trio.current_time() - sent_s < 3.3 + 3 * 0.5

    assert run(use, flush_disk_type=FlushDiskType.SYNC_FLUSH).crashes == []


@pytest.mark.parametrize("how", ["kill", "power_loss", "stop"])
def test_a_broker_that_starts_again_delivers_what_was_due_meanwhile_and_the_rest_in_time(how: str) -> None:
    async def use(servers: RoleWorld) -> None:
        sent_s = trio.current_time()
        async with client_of(servers) as client:
            await send(client, b"while it is down", 2)
            await send(client, b"later", 3)
            await trio.sleep(1)
        if how == "stop":
            await servers.stop_broker("a-0")
        else:
            getattr(servers.nodes["a-0"], how)()
        await trio.sleep(3)
        servers.boot("a-0")
        await trio.sleep(2)
        async with client_of(servers) as client:
            assert bodies(await pull_all(client)) == [b"while it is down"]
            pulled = await client.pull(TOPIC, 1, hold_ms=20_000)
            assert pulled.bodies == [b"later"]
            assert 10 <= trio.current_time() - sent_s < 10.2

    run(use, flush_disk_type=FlushDiskType.SYNC_FLUSH)


def test_a_put_that_is_refused_is_tried_again_and_the_level_waits_for_it() -> None:
    """#9248: RocketMQ 5 went on with the next one, and the message was lost."""

    async def use(servers: RoleWorld) -> None:
        flags = servers.controller("a-0").store.running_flags
        async with client_of(servers) as client:
            for number in range(3):
                await send(client, b"%d" % number, 1)
            flags.set(RunningFlag.NOT_WRITEABLE, "a test")
            await trio.sleep(5)
            assert bodies(await pull_all(client)) == []
            assert live_offsets(servers) == {}
            flags.clear(RunningFlag.NOT_WRITEABLE)
            await trio.sleep(2)
            assert bodies(await pull_all(client)) == [b"0", b"1", b"2"]

    servers = run(use)
    retried = servers.events(BrokerDeliver, status="retried")
    assert {(event.queue_offset, event.queue_offset_next) for event in retried} == {(0, 0)}
    assert 4 <= len(retried) <= 8


def test_what_names_no_queue_is_passed_over_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def use(servers: RoleWorld) -> None:
        await servers.put("a-0", b"forged", delay_time_level=0)
        forged = Message(SCHEDULE_TOPIC, b"names no topic", queue_id=0, delay_time_level=0)
        await servers.on_node("a-0", lambda: servers.controller("a-0").put_message(forged))
        async with client_of(servers) as client:
            await send(client, b"good", 1)
            await trio.sleep(2)
            assert bodies(await pull_all(client)) == [b"good"]

    run(use)
    assert "delay level 1: message 0 of its queue" in caplog.text
    assert "REAL_TOPIC None" in caplog.text


def test_a_delayed_message_is_in_further_queues_when_it_is_delivered_and_by_its_own_number() -> None:
    """It was in them at once, under the number of its level."""

    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            for topic in ("Other", TOPIC):
                await client.send(topic, b"first", 3)
            properties = {"DELAY": "1", "INNER_MULTI_DISPATCH": "Other,%LMQ%a"}
            assert (await client.send(TOPIC, b"late", 3, properties))[0] == ResponseCode.SUCCESS
            await trio.sleep(0.5)
            offsets = servers.controller("a-0").store.offsets
            assert [offsets.get_max_offset_in_queue("Other", queue) for queue in range(4)] == [0, 0, 0, 1]
            assert offsets.get_max_offset_in_queue("%LMQ%a", 0) == 0
            await trio.sleep(1)
            assert bodies(await pull_all(client, TOPIC, 3)) == [b"first", b"late"]
            assert bodies(await pull_all(client, "Other", 3)) == [b"first", b"late"]
            assert offsets.get_max_offset_in_queue("Other", 0) == 0
            assert offsets.get_max_offset_in_queue("%LMQ%a", 0) == 1

    run(use, enable_multi_dispatch=True, enable_lmq=True)


def test_retries_and_dead_letters_are_not_in_further_queues() -> None:
    """They are for their group: whoever reads the further queues would get the message again with each of them."""

    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await client.send(TOPIC, b"first")
            assert (await client.send(TOPIC, b"failed", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))[0] == 0
            await trio.sleep(0.1)
            await client.heartbeat(subscription(TOPIC))
            failed = (await pull_all(client))[1]
            assert (await client.send_back(failed, delay_level=1)).code == ResponseCode.SUCCESS
            await trio.sleep(1.5)
            (retry,) = await pull_all(client, "%RETRY%CG")
            assert retry.body == b"failed"
            assert (await client.send_back(retry, delay_level=-1)).code == ResponseCode.SUCCESS
            await trio.sleep(0.1)
            offsets = servers.controller("a-0").store.offsets
            assert offsets.get_max_offset_in_queue("%DLQ%CG", 0) == 1
            assert offsets.get_max_offset_in_queue("%LMQ%a", 0) == 1

    run(use, enable_multi_dispatch=True, enable_lmq=True)


@pytest.mark.parametrize("what", ["its properties have grown", "too many light queues"])
def test_what_further_queues_make_undeliverable_is_passed_over(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Retries of every group are on these levels too: they would wait for ever."""
    too_many = what == "too many light queues"

    async def use(servers: RoleWorld) -> None:
        async def put(body: bytes, topic: str = TOPIC, **properties: str) -> None:
            message = Message(topic, body, 0, properties, delay_time_level=0)
            result = await servers.on_node("a-0", lambda: servers.controller("a-0").put_message(message))
            assert result.status is PutStatus.PUT_OK, result.reason

        waiting = {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "DELAY": "1", "INNER_MULTI_DISPATCH": "%LMQ%a"}
        async with client_of(servers) as client:
            if too_many:
                await put(b"bad", SCHEDULE_TOPIC, **waiting)
                await put(b"plain", INNER_MULTI_DISPATCH="%LMQ%b,%LMQ%c")
            else:
                for _ in range(10):
                    await put(b"plain", INNER_MULTI_DISPATCH="%LMQ%a")
                stored = {**waiting, "pad": "", "INNER_MULTI_QUEUE_OFFSET": "9"}
                pad = "p" * (MAX_PROPERTIES_BYTES - len(encode_properties(stored)))
                await put(b"bad", SCHEDULE_TOPIC, **waiting, pad=pad)
            await send(client, b"good", 1)
            await trio.sleep(8)
            assert set(bodies(await pull_all(client))) == {b"plain", b"good"}

    settings = {"max_lmq_consume_queue_num": 1, "mapped_file_size_commit_log_bytes": 1 << 20}
    servers = run(use, enable_multi_dispatch=True, enable_lmq=True, **settings)
    (passed,) = servers.events(BrokerDeliver, status="passed_over")
    assert len(servers.events(BrokerDeliver, status="retried")) == (5 if too_many else 0)
    assert passed.detail in caplog.text
    assert "delay level 1: message 0 of its queue" in caplog.text


def test_a_promoted_slave_goes_on_where_its_master_has_stopped() -> None:
    """Also #2259: what the master has delivered and told does not come again."""

    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await send(client, b"delivered", 1)
            await trio.sleep(12)  # the slave has asked for the offsets since
            await send(client, b"waits", 3)
            await servers.wait_replicated("a-1")
        servers.nodes["a-0"].kill()
        await trio.sleep(2)
        assert await servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
        async with client_of(servers, "a-1") as client:
            await trio.sleep(10)
            assert bodies(await pull_all(client)) == [b"delivered", b"waits"]
        assert live_offsets(servers, "a-1") == {1: 1, 3: 1}

    run(use, slaves=1)


def test_a_slave_delivers_nothing() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await send(client, b"once", 1)
            await trio.sleep(14)  # the slave knows the topic by then
            assert bodies(await pull_all(client)) == [b"once"]
        async with client_of(servers, "a-1") as client:
            assert bodies(await pull_all(client)) == [b"once"]

    run(use, slaves=1)


# --- retries ----------------------------------------------------------------------------------------------------------


def test_a_message_sent_back_comes_again_and_after_its_last_retry_it_is_dead() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await client.heartbeat(subscription(TOPIC))
            await send(client, b"bad", 0)
            await trio.sleep(0.2)
            (failed,) = await pull_all(client)
            for times in range(1, 3):
                answer = await client.send_back(failed, delay_level=times, max_reconsume_times=2)
                assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, None)
                before_s, delay_s = trio.current_time(), (0, 1, 3)[times]
                (failed,) = (await client.pull("%RETRY%CG", times - 1, hold_ms=20_000)).messages
                assert delay_s - 0.1 <= trio.current_time() - before_s < delay_s + 0.2
                assert (failed.body, failed.reconsume_times) == (b"bad", times)
                assert failed.properties["RETRY_TOPIC"] == TOPIC
            answer = await client.send_back(failed, max_reconsume_times=2)
            assert answer.code == ResponseCode.SUCCESS
            await trio.sleep(0.5)
            (dead,) = await pull_all(client, "%DLQ%CG")
            assert (dead.body, dead.reconsume_times, dead.properties["WAIT"]) == (b"bad", 3, "false")
            assert len(await pull_all(client, "%RETRY%CG")) == 2

    assert run(use).crashes == []


def test_a_slave_and_a_wrong_offset_are_refused() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            await send(client, b"x", 0)
            await servers.wait_replicated("a-1")
            await trio.sleep(0.2)
            (message,) = await pull_all(client)
            wrong = await client.send_back(attrs.evolve(message, physical_offset=1))
            assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "look message by offset failed, 1")
        async with client_of(servers, "a-1") as client:
            answer = await client.send_back(message)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(use, slaves=1)
