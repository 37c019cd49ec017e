"""The same functions of a `Cluster`, on real sockets and files and in a simulated world."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rmq_actors import BrokerDown, Cluster, ExchangeFailed, Message, PutStatus, TopicConfig, Unsupported, open_cluster
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing import PLANTED_BUGS, REPLICATION_INVARIANTS, SIM_STORE, ClusterBroken, NotWell, SimCluster
from rmq_actors.wire.address import parse_address
from sim_net import DiskError, On, Schedule

Body = Callable[[Cluster], Awaitable[None]]
Topology = Mapping[str, str | None]

PAIR: Topology = {"a": None, "b": "a"}
#: A master with two slaves, one of which has a slave of its own, and another master.
TWO_GROUPS: Topology = {"leaf": "middle", "other": None, "a": None, "middle": "a", "second": "a"}


async def put_ok(cluster: Cluster, *bodies: bytes, to: str | None = None) -> None:
    for body in bodies:
        assert (await cluster.put(Message("Topic", body), to=to)).status is PutStatus.PUT_OK


def bodies(cluster: Cluster, name: str) -> list[bytes]:
    return [message.body for message in cluster.messages(name)]


async def exchange_and_back(cluster: Cluster) -> None:
    await put_ok(cluster, b"one", b"two")
    await cluster.exchange("b")
    assert cluster.follows == {"a": "b", "b": None}
    assert cluster.status("b").role is BrokerRole.SYNC_MASTER
    await cluster.wait_until_connected()
    assert cluster.status("a").is_following
    assert cluster.status("b").slaves == 1
    await put_ok(cluster, b"three")
    await cluster.exchange("a")
    await cluster.wait_until_connected()
    await put_ok(cluster, b"four")
    await cluster.wait_until_replicated()
    assert bodies(cluster, "a") == bodies(cluster, "b") == [b"one", b"two", b"three", b"four"]
    assert cluster.status("a").term == cluster.status("b").term == 3


async def lose_the_master(cluster: Cluster) -> None:
    await put_ok(cluster, b"one")
    await cluster.kill("a")
    assert cluster.running == ["b"]
    with pytest.raises(BrokerDown, match="a is not running"):
        await cluster.put(Message("Topic", b"nobody takes it"))
    await cluster.promote("b")
    assert (await cluster.put(Message("Topic", b"two"))).status is PutStatus.SLAVE_NOT_AVAILABLE
    await cluster.start("a")
    await cluster.wait_until_connected()
    await put_ok(cluster, b"three")
    await cluster.wait_until_replicated()
    assert bodies(cluster, "a") == bodies(cluster, "b") == [b"one", b"two", b"three"]


async def restart_and_stop(cluster: Cluster) -> None:
    await put_ok(cluster, b"one")
    await cluster.restart("a")
    await cluster.wait_until_connected()
    await put_ok(cluster, b"two")
    await cluster.stop("b")
    with pytest.raises(BrokerDown):
        cluster.status("b")
    await cluster.restart("b")
    await cluster.wait_until_connected()
    await cluster.wait_until_replicated()
    assert bodies(cluster, "b") == [b"one", b"two"]


async def promote_the_middle(cluster: Cluster) -> None:
    await put_ok(cluster, b"one", to="a")
    alone = await cluster.put(Message("Topic", b"not for them"), to="other")
    assert alone.status is PutStatus.SLAVE_NOT_AVAILABLE
    with pytest.raises(ValueError, match="several masters, other, a"):
        await cluster.put(Message("Topic", b"which?"))
    await cluster.wait_until_replicated()
    await cluster.promote("middle")
    assert cluster.follows == {
        "leaf": "middle",
        "other": None,
        "a": "middle",
        "middle": None,
        "second": "middle",
    }
    await cluster.wait_until_connected()
    await put_ok(cluster, b"two", to="middle")
    await cluster.wait_until_replicated()
    for name in ("leaf", "a", "middle", "second"):
        assert bodies(cluster, name) == [b"one", b"two"], name
    assert bodies(cluster, "other") == [b"not for them"]


async def exchange_beside_a_second_slave(cluster: Cluster) -> None:
    await put_ok(cluster, b"one", to="a")
    await cluster.wait_until_replicated()
    await cluster.exchange("second")
    assert [cluster.follows[name] for name in ("a", "second", "middle", "leaf")] == ["second", None, "second", "middle"]
    await cluster.wait_until_connected()
    assert cluster.status("second").slaves == 2
    await put_ok(cluster, b"two", to="second")
    await cluster.wait_until_replicated()
    for name in ("a", "second", "middle", "leaf"):
        assert bodies(cluster, name) == [b"one", b"two"], name


async def what_cannot_be(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="no broker 'c': there are a, b"):
        await cluster.start("c")
    with pytest.raises(ValueError, match="b is running"):
        await cluster.start("b")
    with pytest.raises(ValueError, match="a is the master already"):
        await cluster.promote("a")
    with pytest.raises(ValueError, match="a is no slave of a master"):
        await cluster.exchange("a")
    await cluster.stop("b")
    with pytest.raises(BrokerDown):
        await cluster.stop("b")
    with pytest.raises(BrokerDown):
        await cluster.promote("b")
    with pytest.raises(ExchangeFailed):
        await cluster.exchange("b", limit_s=1.0)
    assert cluster.follows == PAIR


#: What to do, with which brokers, and whether they have a name server. That knows masters alone: a slave of a slave is
#: configured by address.
async def delete_a_topic_and_make_it_again(cluster: Cluster) -> None:
    topic = TopicConfig(topic_name="Again", read_queue_nums=1, write_queue_nums=1)
    async with cluster.admin() as admin, cluster.producer() as producer:
        await admin.create_topic(topic)
        await producer.send(Message("Again", b"before"))
        await cluster.wait_until_replicated()
        await admin.delete_topic("Again")
        await admin.create_topic(topic)
        sent = await producer.send(Message("Again", b"after"))
        assert sent.queue_offset == 0
        await cluster.wait_until_replicated()


CASES: list[tuple[Body, Topology, bool]] = [
    (promote_the_middle, TWO_GROUPS, False),
    (exchange_beside_a_second_slave, TWO_GROUPS, False),
    (delete_a_topic_and_make_it_again, PAIR, True),
    *(
        (body, PAIR, name_server)
        for body in (exchange_and_back, lose_the_master, restart_and_stop, what_cannot_be)
        for name_server in (False, True)
    ),
]
IN_TWO_WORLDS = pytest.mark.parametrize(
    ("body", "follows", "name_server"),
    [pytest.param(*case, id=f"{case[0].__name__}-{'name-server' if case[2] else 'addresses'}") for case in CASES],
)


@IN_TWO_WORLDS
@pytest.mark.trio
async def test_on_real_sockets(body: Body, follows: Topology, name_server: bool, tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_cluster(tmp_path, follows=follows, name_server=name_server) as cluster:
            await body(cluster)


@IN_TWO_WORLDS
def test_in_a_simulated_world(body: Body, follows: Topology, name_server: bool) -> None:
    for seed in range(3):
        SimCluster(follows, seed=seed, name_server=name_server).run(body)


@pytest.mark.trio
async def test_a_kill_is_no_stop(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        await put_ok(cluster, b"one")
        await cluster.stop("slave-1")
        assert not (tmp_path / "slave-1" / "abort").exists()
        await cluster.kill("master")
        assert (tmp_path / "master" / "abort").exists()
        await cluster.start("master")
        assert bodies(cluster, "master") == [b"one"]


@pytest.mark.trio
async def test_what_a_real_cluster_cannot_do_it_refuses(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        with pytest.raises(Unsupported, match="SimCluster"):
            await cluster.power_loss("master")
        refused: list[Callable[[], Any]] = [
            lambda: cluster.pause("master"),
            lambda: cluster.resume("master"),
            lambda: cluster.partition("master", "slave-1"),
        ]
        for call in refused:
            with pytest.raises(Unsupported, match="SimCluster"):
                call()
        await put_ok(cluster, b"nothing has happened")


def test_a_power_loss_takes_what_was_not_synced() -> None:
    async def body(cluster: Cluster) -> None:
        await put_ok(cluster, b"one")
        await cluster.power_loss("a")
        await cluster.power_loss("b")
        await cluster.start("a")
        assert bodies(cluster, "a") in ([], [b"one"])
        lost.append(not bodies(cluster, "a"))

    lost: list[bool] = []
    for seed in range(5):
        SimCluster(PAIR, seed=seed).run(body)
    assert any(lost)


def test_nobody_hears_of_a_put_across_a_partition() -> None:
    async def body(cluster: Cluster) -> None:
        cluster.partition("a", "b")
        result = await cluster.put(Message("Topic", b"one"))
        assert result.status is not PutStatus.PUT_OK
        assert bodies(cluster, "b") == []
        cluster.heal()
        await cluster.wait_until_replicated()
        assert bodies(cluster, "b") == [b"one"]

    SimCluster(PAIR, SIM_STORE).run(body)


def test_when_the_time_is_over_it_is_told_what_was_lacking() -> None:
    async def body(cluster: SimCluster) -> None:
        cluster.partition("a", "b")
        await cluster.put(Message("Topic", b"one"))
        with pytest.raises(trio.TooSlowError, match=r"after 5 s: b has 0 of \d+ bytes of a$"):
            await cluster.wait_until_replicated(5)
        await trio.sleep(30)
        with pytest.raises(trio.TooSlowError, match=r"after 5 s: a has 0 of 1 slaves; b does not follow a$"):
            await cluster.wait_until_connected(5)

    SimCluster().run(body)


def test_a_put_that_waits_for_a_paused_slave_hears_that_its_broker_died() -> None:
    async def body(cluster: Cluster) -> None:
        cluster.pause("b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_answer, cluster)
            await trio.sleep(1.0)
            await cluster.kill("a")
        cluster.resume("b")

    async def expect_no_answer(cluster: Cluster) -> None:
        with pytest.raises(BrokerDown, match="a died before it answered"):
            await cluster.put(Message("Topic", b"one"))

    SimCluster(PAIR).run(body)


def test_who_waits_for_an_exchange_hears_that_its_master_stops() -> None:
    async def body(cluster: Cluster) -> None:
        cluster.pause("b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_exchange, cluster)
            await trio.sleep(1.0)
            with trio.fail_after(5):
                await cluster.stop("a")
        cluster.resume("b")

    async def expect_no_exchange(cluster: Cluster) -> None:
        with pytest.raises(ExchangeFailed, match="not over yet, step check"):
            await cluster.exchange("b", limit_s=300.0)

    SimCluster(PAIR).run(body)


def test_the_same_seed_is_the_same_run() -> None:
    digests = []
    for seed in (1, 1, 2):
        cluster = SimCluster(PAIR, seed=seed)
        cluster.run(lose_the_master)
        digests.append(cluster.world.digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("follows", "wrong"),
    [
        ({}, "one broker or more"),
        ({"": None}, "must be a directory's name"),
        ({"a/b": None}, "must be a directory's name"),
        ({"a": "b"}, "a follows 'b', which is no broker"),
        ({"a": "b", "b": "a"}, "a follows b follows a: one of them must be a master"),
        ({"m": None, "a": "a"}, "a follows a"),
    ],
)
def test_brokers_that_cannot_be(follows: Topology, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        SimCluster(follows)


def test_the_invariants_of_replication_find_a_planted_bug() -> None:
    cluster = SimCluster(PAIR, make_machines=PLANTED_BUGS["any_ack"].make_machines)
    with pytest.raises(ClusterBroken, match="replicated"):
        cluster.run(restart_and_stop)


def test_a_store_that_has_failed_is_started_again_at_the_end() -> None:
    """As an operator does: it takes nothing more before, and its queues lack what it could not write."""

    async def body(cluster: Cluster) -> None:
        await cluster.put(Message("Topic", b"one"))
        result = await cluster.put(Message("Topic", b"two"))
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE

    error = DiskError(0.0, duration_s=0.5, node="a", error="EIO", operation="", path="", nth=1, every=1, count=100)
    SimCluster(PAIR, schedule=Schedule((attrs.evolve(error, on=On("log.append", "a")),))).run(body)


def test_a_cluster_that_does_not_come_back_says_what_is_so() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.kill("b")

    with pytest.raises(NotWell, match=r"0\.001 s after the last fault: .*b is down"):
        SimCluster(PAIR, converges_s=0.001).run(body)


def test_invariants_are_about_one_master_and_its_slaves() -> None:
    with pytest.raises(ValueError, match="about one master and its slaves"):
        SimCluster(TWO_GROUPS, invariants=REPLICATION_INVARIANTS)
    with pytest.raises(ValueError, match="that is the name server's"):
        SimCluster({"namesrv": None})


@pytest.mark.trio
async def test_ports_of_a_broker_that_is_down_are_kept_for_it(tmp_path: Path) -> None:
    """Linux may give a free one to any connection that somebody opens."""
    async with open_cluster(tmp_path, follows={"a": None}) as cluster:
        remoting = cluster.broker("a").remoting
        assert remoting is not None
        address = "127.0.0.1", parse_address(remoting.broker_addr)[1]
        await cluster.kill("a")
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(address)
        await cluster.start("a")
        await cluster.restart("a")
        assert cluster.running == ["a"]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)
