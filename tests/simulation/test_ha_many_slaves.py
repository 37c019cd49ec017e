"""Many slaves, slow ones, some that read nothing, and strangers: none disturbs the others, and none stays."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.ha.ha_connection import HAConnection
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.wire.ha_frames import encode_report
from sim_net import WorldConfig
from sim_net.node import Node
from tests.worlds.ha_world import HA_PORT, RECORD_BYTES, HaCluster

SLAVES = 50
FILE_BYTES = 1 << 20
#: What the master hands to a socket at a time.
GROUP_BYTES = 1 << 20
#: No journal: it grows with the run, and is no part of the master.
WORLD = WorldConfig(journal_keep=False)


def cluster(**ha: object) -> HaCluster:
    return HaCluster(1, WORLD, store={"mapped_file_size_commit_log_bytes": FILE_BYTES}, ha=dict(ha))


async def resources(cluster: HaCluster) -> tuple[int, int, int]:
    """The master's connections and subscriptions, and the tasks of all."""
    await trio.sleep(1)
    store, service = cluster.master.store, cluster.master.ha_service
    return (
        len(service.connections),
        store.log_end.receivers + store.flush_outcomes.receivers,
        trio.lowlevel.current_statistics().tasks_living,
    )


def test_slow_slaves_and_such_as_read_nothing_disturb_no_other() -> None:
    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        before = await resources(cluster)
        for _ in range(70):
            await cluster.put(bytes(32 << 10))
        fast = [cluster.visit(f"fast-{number}", follows=True) for number in range(SLAVES - 10)]
        slow = [cluster.visit(f"slow-{number}", follows=True, pause_s=0.2) for number in range(5)]
        for number in range(5):
            cluster.visit(f"stuck-{number}", encode_report(0), heartbeat=0, reads=False)
        await trio.sleep(1)
        assert cluster.connections == SLAVES
        assert {peer.end for peer in fast} == {cluster.master_end}
        waited_s: list[float] = []
        for _ in range(20):
            began = trio.current_time()
            assert await cluster.put(bytes(32 << 10)) is PutStatus.PUT_OK
            waited_s.append(trio.current_time() - began)
            await trio.sleep(0.05)
        assert max(waited_s) < 0.1
        # What is held for a slave that reads nothing is one group of frames, whatever it lacks.
        assert cluster.master_end > 2 * GROUP_BYTES
        lag = [status for status in master.ha_service.slave_statuses() if status.ack_offset == 0]
        assert len(lag) == 5
        assert all(status.sent_bytes < GROUP_BYTES + (256 << 10) for status in lag)
        await trio.sleep(2)
        assert {peer.end for peer in fast} == {cluster.master_end}
        assert all(peer.end > 0 for peer in slow)
        # They report, so they are not silent; but they do not stay for ever.
        await trio.sleep(30)
        assert cluster.counters.ends == {"transfer_stuck": 5}
        while any(peer.end < cluster.master_end for peer in slow):
            await trio.sleep(1)
        for node in cluster.nodes.values():
            if node is not cluster.node("master"):
                node.kill()
        after = await resources(cluster)
        assert after == before

    cluster().run(main)


def test_a_connection_that_is_over_at_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is registered only once it is served would be so after its end, and count for ever (RocketMQ's order).

    Here the end takes no step at all, so that it comes before whatever is done a step later.
    """

    async def over_at_once(connection: HAConnection) -> str:
        with connection._socket:
            return "peer_closed"

    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        monkeypatch.setattr(HAConnection, "run", over_at_once)
        for number in range(10):
            cluster.visit(f"hasty-{number}", encode_report(0))
        await trio.sleep(5)
        assert cluster.counters.ends == {"peer_closed": 10}
        assert master.ha_service.connections == {}
        assert master.ha_service.slave_statuses() == []
        assert master.ha_service.replicas().there == 1

    cluster().run(main)


def test_a_flood_of_connections_is_bounded_and_leaves_nothing() -> None:
    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        before = await resources(cluster)
        slave = cluster.visit("slave", follows=True)
        await trio.sleep(0.1)
        flood = [cluster.visit(f"flood-{number}", heartbeat=0) for number in range(300)]
        await trio.sleep(1)
        assert cluster.connections == 20
        assert cluster.counters.refused_connections == 300 - 19
        assert [peer.is_closed for peer in flood].count(True) == 300 - 19
        # Neither the refused nor the idle acknowledge anything; the slave does.
        assert await cluster.put() is PutStatus.PUT_OK
        assert slave.end == RECORD_BYTES
        for number in range(300):
            cluster.node(f"flood-{number}").kill()
        await trio.sleep(1)
        assert cluster.connections == 1
        other = cluster.visit("other", follows=True)
        assert await cluster.put() is PutStatus.PUT_OK
        await trio.sleep(0.1)
        assert other.end == slave.end == 2 * RECORD_BYTES
        for name in ("slave", "other"):
            cluster.node(name).kill()
        assert await resources(cluster) == before

    cluster(connections_max=20).run(main)


def test_who_says_nothing_is_gone_after_a_while() -> None:
    """Connections that only take room: none says even what it wants."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        before = await resources(cluster)
        for number in range(20):
            cluster.visit(f"mute-{number}")
        await trio.sleep(15)
        assert cluster.connections == 20
        await trio.sleep(10)
        assert cluster.counters.ends == {"housekeeping": 20}
        for number in range(20):
            cluster.node(f"mute-{number}").kill()
        assert await resources(cluster) == before
        assert await cluster.put() is PutStatus.SLAVE_NOT_AVAILABLE

    cluster(connections_max=20).run(main)


def test_silent_peers_of_one_address_lock_no_slave_of_another_out() -> None:
    """64 of them took all that haConnectionsMax lets in, again and again."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        address, streams = cluster.node("master").address, list[trio.SocketStream]()

        async def flood(_: Node) -> None:
            while len(streams) < 64:
                streams.append(await trio.open_tcp_stream(address, HA_PORT))
            await trio.sleep_forever()

        cluster.node("flood").boot(flood)
        await trio.sleep(1)
        assert len(streams) == 64
        assert cluster.connections == 16
        assert cluster.counters.refused_connections == 48
        await cluster.start("slave")
        await trio.sleep(1)
        assert cluster.connections == 17
        assert await cluster.put() is PutStatus.PUT_OK
        # Those that are gone leave room for others of that address.
        await trio.sleep(20)
        assert cluster.counters.ends == {"housekeeping": 16}
        cluster.node("flood").kill()
        streams.clear()
        cluster.node("flood").boot(flood)
        await trio.sleep(1)
        assert cluster.connections == 17

    cluster().run(main)


def test_how_many_of_one_address_may_be_connected_is_set() -> None:
    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        address = cluster.node("master").address

        async def two(_: Node) -> None:
            async with await trio.open_tcp_stream(address, HA_PORT), await trio.open_tcp_stream(address, HA_PORT):
                await trio.sleep_forever()

        for name in ("a", "b"):
            cluster.node(name).boot(two)
        await trio.sleep(1)
        assert cluster.connections == 2
        assert cluster.counters.refused_connections == 2

    cluster(connections_max_per_address=1).run(main)


def test_single_bytes_keep_no_place() -> None:
    """Before its first report is whole a peer has not shown that it is a slave."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        address = cluster.node("master").address

        async def dribble(_: Node) -> None:
            async with await trio.open_tcp_stream(address, HA_PORT) as stream:
                for _byte in range(7):
                    await stream.send_all(b"\0")
                    await trio.sleep(15)

        cluster.node("dribble").boot(dribble)
        await trio.sleep(19)
        assert cluster.connections == 1
        await trio.sleep(2)
        assert cluster.counters.ends == {"housekeeping": 1}

    cluster().run(main)
