"""Topics that are deleted and made again: they begin at 0 on the master and its slaves, whenever a broker dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import pytest
import trio

from rmq_actors.broker import slave_synchronize
from rmq_actors.broker.followed_deletions import ToldDeletions, ask_deletions
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.dispatch_request import PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Kill, On, PowerLoss, Schedule
from tests.simulation.test_send_and_pull import Clients, placed
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld, outcome_of, queue_bodies

T = TypeVar("T")

TOPIC, OTHER = "TopicThatGoes", "TopicThatStays"
OK = ResponseCode.SUCCESS
#: A round of SlaveSynchronize, and what it takes.
ROUND_S = 12.0
QUEUES = 2
#: The deletion has ended before so many disk operations.
LAST_OPERATION = 100


async def use(servers: RoleWorld, call: Callable[[ThinClient], Awaitable[T]], node: str = "a-0") -> T:
    """What a client does on one connection."""

    async def main() -> T:
        async with Clients(servers).client(node=node) as client:
            return await call(client)

    return await servers.on_node(CLIENT, main)


async def create(client: ThinClient, topic: str = TOPIC) -> None:
    header = CreateTopicRequestHeader(topic, "TBW102", QUEUES, QUEUES, 6, "SINGLE_TAG")
    answer = await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == OK, answer.remark


async def delete(client: ThinClient, topic: str = TOPIC) -> None:
    answer = await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert answer.code == OK, answer.remark


async def fill(client: ThinClient, text: bytes, count: int = 50) -> None:
    """Messages in both queues of a new topic, and some of another topic between them."""
    await create(client)
    for number in range(count):
        for queue_id in range(QUEUES):
            sent = placed(await client.send(TOPIC, b"%b-%d" % (text, number), queue_id))
            assert sent.queue_offset == number
        await client.send(OTHER, text)


def bounds(servers: RoleWorld, node: str, topic: str = TOPIC, queue_id: int = 0) -> tuple[int, int]:
    offsets = servers.controller(node).store.offsets
    return offsets.get_min_offset_in_queue(topic, queue_id), offsets.get_max_offset_in_queue(topic, queue_id)


def lives(*nodes: str, servers: RoleWorld) -> list[list[bytes]]:
    """What is in the topic's queues, by broker and queue."""
    return [queue_bodies(servers.controller(node), TOPIC, queue) for node in nodes for queue in range(QUEUES)]


async def restart(servers: RoleWorld, node: str) -> None:
    servers.nodes[node].kill()
    servers.boot(node)
    await servers.converge()
    await trio.sleep(3)


def told(text: bytes, count: int) -> list[bytes]:
    return [b"%b-%d" % (text, number) for number in range(count)]


@pytest.mark.parametrize("between_s", [0.002, 0.005, 0.02])
def test_a_deletion_does_not_wait_for_the_time_of_a_little_log(between_s: float) -> None:
    """Under ASYNC_FLUSH a little of the log is synced after ten seconds by itself; others put it meanwhile."""
    servers = RoleWorld.of(0, broker_role=BrokerRole.ASYNC_MASTER, flush_disk_type=FlushDiskType.ASYNC_FLUSH)

    async def put(client: ThinClient) -> None:
        for _ in range(int(1.0 / between_s)):
            await client.send(OTHER, b"while it is deleted")
            await trio.sleep(between_s)

    async def scenario() -> None:
        await use(servers, create)
        await use(servers, lambda client: client.send(TOPIC, b"one"))
        servers.nodes["a-0"].disk.slow_down(0.05)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, servers, put)
            await trio.sleep(0.2)
            with trio.fail_after(2):
                await use(servers, delete)

    servers.run_well(scenario)


def test_a_deleted_topic_is_gone_with_its_queues_its_offsets_and_the_pulls_that_wait() -> None:
    servers = RoleWorld.of(0, broker_role=BrokerRole.ASYNC_MASTER)

    async def scenario() -> None:
        async def life(client: ThinClient) -> None:
            await fill(client, b"one")
            await client.commit(TOPIC, 20)
            await client.commit(OTHER, 7)
            held: list[int] = []

            async def hold() -> None:
                held.append((await client.pull(TOPIC, 50, hold_ms=20_000)).code)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(hold)
                await trio.sleep(1)
                await delete(client)
                with trio.fail_after(1):
                    while not held:
                        await trio.sleep(0.1)
            assert held == [ResponseCode.TOPIC_NOT_EXIST]
            assert bounds(servers, "a-0") == (0, 0)
            assert await client.committed(OTHER) == 7
            await client.commit(TOPIC, 20)  # a consumer that has not heard of it yet
            await create(client)
            assert await client.committed(TOPIC) == 0
            assert (await client.pull(TOPIC, 0)).code == ResponseCode.PULL_NOT_FOUND
            assert placed(await client.send(TOPIC, b"two-0")).queue_offset == 0
            await trio.sleep(0.2)
            assert (await client.pull(TOPIC, 0)).bodies == [b"two-0"]

        await use(servers, life)
        disk = servers.nodes["a-0"].disk
        assert disk.list(f"consumequeue/{TOPIC}") == ["0"]

    servers.run_well(scenario)


def test_what_is_no_topic_of_clients_cannot_be_deleted() -> None:
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        async def ask(client: ThinClient) -> list[int]:
            headers = [DeleteTopicRequestHeader(topic) for topic in ("TBW102", "SCHEDULE_TOPIC_XXXX", "no topic!", "")]
            return [(await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, each)).code for each in headers]

        assert await use(servers, ask) == [ResponseCode.SYSTEM_ERROR] * 4
        assert await use(servers, ask, "a-1") == [ResponseCode.SYSTEM_ERROR] * 4
        await use(servers, lambda client: delete(client, "NoSuchTopic"))

    servers.run_well(scenario)


@pytest.mark.parametrize("after_s", [0.0, 2.0, 25.0])
def test_a_topic_made_again_begins_at_0_on_both_through_kills(after_s: float) -> None:
    """Tried by hand: the slave kept serving 50 deleted messages, and a kill 25 s later brought them back."""
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        await use(servers, lambda client: fill(client, b"one"))
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        await use(servers, delete)
        await trio.sleep(ROUND_S)
        assert bounds(servers, "a-0") == bounds(servers, "a-1") == (0, 0)
        await use(servers, lambda client: fill(client, b"two", 3))
        await trio.sleep(after_s)
        await restart(servers, "a-0")
        await restart(servers, "a-1")
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        assert lives("a-0", "a-1", servers=servers) == [told(b"two", 3)] * 4

    servers.run_well(scenario)


def test_a_topic_made_again_between_two_rounds_begins_at_0_on_the_slave_too() -> None:
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        await use(servers, lambda client: fill(client, b"one"))
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)

        async def again(client: ThinClient) -> None:
            await delete(client)
            await create(client)
            for number in range(3):
                assert placed(await client.send(TOPIC, b"two-%d" % number)).queue_offset == number

        await use(servers, again)
        await servers.wait_replicated("a-1")
        await trio.sleep(0.5)
        assert queue_bodies(servers.controller("a-1"), TOPIC) == told(b"two", 3)  # the log says so
        await trio.sleep(ROUND_S)
        assert lives("a-0", "a-1", servers=servers) == [told(b"two", 3), [], told(b"two", 3), []]
        await restart(servers, "a-1")
        assert lives("a-1", servers=servers) == [told(b"two", 3), []]

    servers.run_well(scenario)


def test_an_offset_of_a_life_that_is_over_is_gone_from_the_slave() -> None:
    """A chaos run found it: a slave's offsets never go back, and so this one stayed for the next life."""
    servers = RoleWorld.of(1)

    def offset_at(node: str) -> int:
        remoting = servers.controller(node).remoting
        assert remoting is not None
        return remoting.metadata.consumer_offsets.query_offset("CG", TOPIC, 0)

    async def scenario() -> None:
        async def first(client: ThinClient) -> None:
            await fill(client, b"one")
            await client.commit(TOPIC, 20)

        await use(servers, first)
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        assert offset_at("a-1") == 20

        async def second(client: ThinClient) -> None:
            await delete(client)
            await fill(client, b"two", 5)
            await client.commit(TOPIC, 3)

        await use(servers, second)
        await trio.sleep(ROUND_S)
        assert offset_at("a-1") == 3
        await use(servers, lambda client: client.commit(TOPIC, 20), "a-1")  # it serves readers, too
        await use(servers, delete)
        await trio.sleep(ROUND_S)
        assert offset_at("a-1") == -1

    servers.run_well(scenario)


def test_a_master_that_dies_while_it_deletes_and_comes_back_as_a_slave_has_no_old_offset() -> None:
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        async def first(client: ThinClient) -> None:
            await fill(client, b"one", 5)
            await client.commit(TOPIC, 4)

        await use(servers, first)
        await servers.wait_replicated("a-1")
        store = servers.controller("a-0").store
        await servers.on_node("a-0", lambda: store.topic_deletion.delete([TOPIC]))
        await trio.sleep(ROUND_S)  # the slave is told, and offsets are on the disk
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
        assert servers.controller("a-1").store.topic_deletion.points.keys() == {TOPIC}
        servers.configure("a-0", broker_id=1)
        servers.boot("a-0")
        await servers.converge()
        remoting = servers.controller("a-0").remoting
        assert remoting is not None
        assert remoting.metadata.consumer_offsets.query_offset("CG", TOPIC, 0) == -1

    servers.run_well(scenario)


def test_a_topic_that_is_gone_from_rocketmqs_table_is_gone_with_its_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ's master does not tell where a life begins."""

    async def ask_rocketmq(*to: Any) -> ToldDeletions:
        return attrs.evolve(await ask_deletions(*to), told=None)

    monkeypatch.setattr(slave_synchronize, "ask_deletions", ask_rocketmq)
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        await use(servers, lambda client: fill(client, b"one"))
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        await use(servers, delete)
        await trio.sleep(ROUND_S)
        assert lives("a-1", servers=servers) == [[], []]
        await restart(servers, "a-1")
        assert lives("a-1", servers=servers) == [[], []]
        await use(servers, lambda client: fill(client, b"two", 2))
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        assert lives("a-1", servers=servers) == [told(b"two", 2)] * 2

    servers.run_well(scenario)


def test_a_promoted_slave_goes_on_where_the_master_was() -> None:
    servers = RoleWorld.of(1)

    async def scenario() -> None:
        await use(servers, lambda client: fill(client, b"one"))
        await servers.wait_replicated("a-1")
        await trio.sleep(ROUND_S)
        await use(servers, delete)
        await trio.sleep(ROUND_S)
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
        remoting = servers.controller("a-1").remoting
        assert remoting is not None
        assert remoting.metadata.topics.select_topic_config(TOPIC) is None
        await use(servers, lambda client: fill(client, b"two", 2), "a-1")
        await trio.sleep(0.5)
        assert lives("a-1", servers=servers) == [told(b"two", 2)] * 2

    servers.run_well(scenario)


@pytest.mark.parametrize(
    ("flush", "fault"),
    [
        (FlushDiskType.SYNC_FLUSH, PowerLoss),
        pytest.param(FlushDiskType.SYNC_FLUSH, Kill, marks=pytest.mark.long),
        pytest.param(FlushDiskType.ASYNC_FLUSH, PowerLoss, marks=pytest.mark.long),
        (FlushDiskType.ASYNC_FLUSH, Kill),
    ],
)
def test_a_broker_that_dies_while_it_deletes_has_all_of_the_topic_or_nothing(
    flush: FlushDiskType, fault: type[Kill | PowerLoss]
) -> None:
    """At every disk operation of the deletion, and a little after its answer."""
    left: list[int] = []
    for operation in range(1, LAST_OPERATION):
        found = die_at(operation, flush, fault)
        if found is None:
            break
        left.append(found)
    assert set(left) == {0, 5}
    assert len(left) < LAST_OPERATION - 1
    assert left == sorted(left, reverse=True), "a deletion that had begun was undone later"


def die_at(operation: int, flush: FlushDiskType, fault: type[Kill | PowerLoss]) -> int | None:
    """How many messages of the first life are there after the next start; None if the deletion had ended before."""
    servers = RoleWorld.of(0, seed=operation, broker_role=BrokerRole.ASYNC_MASTER, flush_disk_type=flush)
    left: list[int | None] = []

    async def scenario() -> None:
        async def begin(client: ThinClient) -> None:
            await fill(client, b"one", 5)
            await client.commit(TOPIC, 4)

        await use(servers, begin)
        await trio.sleep(16)  # everything is durable
        node = servers.nodes["a-0"]
        when = On("disk.*", node.name, operation)
        servers.world.start_schedule(Schedule((fault(0.0, node.name, 1000.0, on=when),)))
        answer = await use(servers, lambda client: outcome_of(delete(client)))
        if node.is_up:
            assert answer is None
            left.append(None)
            return
        servers.boot("a-0")
        await servers.converge()
        await trio.sleep(1)
        found = lives("a-0", servers=servers)
        assert found in ([told(b"one", 5)] * 2, [[], []])
        left.append(len(found[0]))
        remoting = servers.controller("a-0").remoting
        assert remoting is not None
        topics, offsets = remoting.metadata.topics, remoting.metadata.consumer_offsets
        assert (topics.select_topic_config(TOPIC) is not None) is bool(found[0])
        assert offsets.query_offset("CG", TOPIC, 0) == (4 if found[0] else -1)
        if found[0]:
            await use(servers, delete)
        else:
            assert answer is not None or fault is PowerLoss
        await use(servers, lambda client: fill(client, b"two", 2))
        await restart(servers, "a-0")
        assert lives("a-0", servers=servers) == [told(b"two", 2)] * 2

    servers.run_well(scenario)
    return left[0]


@pytest.mark.parametrize("restart", ["", "stop", "kill"])
def test_a_slave_has_all_of_a_light_queue_that_was_deleted_and_named_again(restart: str) -> None:
    """Before it hears of the deletion, new messages have the numbers of old ones, and it gives them no entry.

    Nothing of that is known any more if it is started again meanwhile.
    """
    light = "%LMQ%goes"
    servers = RoleWorld.of(1, broker_role=BrokerRole.ASYNC_MASTER, enable_lmq=True, enable_multi_dispatch=True)

    async def name(client: ThinClient, text: bytes, count: int) -> None:
        for number in range(count):
            properties = {PROPERTY_INNER_MULTI_DISPATCH: light}
            placed(await client.send(OTHER, b"%b-%d" % (text, number), 0, properties))

    async def begin_again(client: ThinClient) -> None:
        await create(client, light)
        await name(client, b"old", 3)
        await trio.sleep(1)
        await delete(client, light)
        await create(client, light)
        await name(client, b"new", 2)

    async def main() -> None:
        await use(servers, begin_again)
        if restart == "stop":
            await trio.sleep(3)
            await servers.stop_broker("a-1")
        elif restart == "kill":
            servers.nodes["a-1"].kill()
        if restart:
            servers.boot("a-1")
            await servers.converge()
        await trio.sleep(2 * ROUND_S)
        for node in ("a-0", "a-1"):
            assert queue_bodies(servers.controller(node), light, 0) == told(b"new", 2)

    servers.run_well(main)
