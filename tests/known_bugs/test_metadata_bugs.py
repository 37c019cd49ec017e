"""RocketMQ's bugs of what a slave takes over beside the log: each test bears the number that the bug has there.

A test fails when the bug's cause is planted here: docs/known-bugs.md names the diff that does.
"""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.ha.followed_master import FollowedMaster
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.headers.namesrv import RegisterBrokerResponseHeader
from rmq_actors.wire.record import Message
from tests.worlds.metadata_world import (
    CLIENT,
    FILES,
    FIRST_SYNC_S,
    PERIOD_S,
    MetadataCluster,
    change_everything,
    delete_everything,
    metadata_of,
    run,
    tables_of,
)
from tests.worlds.registration_world import Broker, NameServer

#: Of the delay levels, one whose messages are not due in these tests: 2 h.
LEVEL = 18


async def put_delayed(broker: Broker, count: int) -> None:
    for number in range(count):
        await broker.controller.put_message(Message("Topic", b"%d" % number, delay_time_level=LEVEL))


async def deliver(master: Broker, count: int) -> None:
    """Put as many messages as are delivered, and two more."""
    await put_delayed(master, count + 2)
    metadata_of(master).delay_offsets.delivered(LEVEL, count, 0)


async def promote(slave: Broker) -> dict[int, int]:
    """Start the slave as a master; its delay offsets."""
    store = attrs.evolve(slave.config.store, broker_role=BrokerRole.ASYNC_MASTER)
    ha = attrs.evolve(slave.config.ha, ha_master_address=None)
    slave.config = attrs.evolve(slave.config, store=store, ha=ha, broker_id=0)
    await slave.start()
    return metadata_of(slave).delay_offsets.offset_table


def test_1094_an_offset_never_goes_back_by_a_sync() -> None:
    """What a slave served while the master was away was overwritten, and consumed again."""

    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        on_master = metadata_of(cluster.master).consumer_offsets
        for queue_id in range(2):
            on_master.commit_offset(CLIENT, "G", "T", queue_id, 5)
        await trio.sleep(11)
        cluster.master.node.kill()
        on_slave = metadata_of(cluster.slave).consumer_offsets
        on_slave.commit_offset(CLIENT, "G", "T", 0, 90)
        await cluster.master.start()
        metadata_of(cluster.master).consumer_offsets.commit_offset(CLIENT, "G", "T", 1, 6)
        await trio.sleep(2 * PERIOD_S)
        assert tables_of(cluster.slave)[2] == {"T@G": {0: 90, 1: 6}}

    run(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_s13_a_group_that_the_master_deleted_does_not_come_back(restarts: bool) -> None:
    """A slave added the master's offsets to its own, and deleted none."""

    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        await change_everything(cluster.master, 2)
        await trio.sleep(FIRST_SYNC_S)
        await delete_everything(cluster.master, 1)
        if restarts:
            cluster.slave.node.kill()
            await cluster.slave.start()
        await trio.sleep(PERIOD_S)
        assert list(tables_of(cluster.slave)[2]) == ["Topic-2@Group-2"]
        cluster.slave.node.power_loss()
        await cluster.slave.start()
        assert list(tables_of(cluster.slave)[2]) == ["Topic-2@Group-2"]

    run(main)


def test_74_a_table_of_an_equal_version_is_not_written_again() -> None:
    """Versions were compared as objects, and every table was written every 10 s."""

    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        disk = cluster.slave.node.disk
        for name in FILES:
            disk.remove(f"config/{name}.json")
        await trio.sleep(3 * PERIOD_S)
        assert not [name for name in FILES if disk.exists(f"config/{name}.json")]

    cluster = run(main)
    assert cluster.statuses("topics") == ["changed", *["unchanged"] * 3]
    assert cluster.statuses("subscription_groups") == ["changed", *["unchanged"] * 3]


def test_s11_a_name_server_that_forgot_the_master_does_not_stop_the_sync() -> None:
    """masterAddr became null, and nothing but the log reached the slave any more."""

    async def main(cluster: MetadataCluster) -> None:
        name_server = NameServer(cluster.world.node("ns1"))
        name_server.boot()
        await trio.sleep(1)
        for broker in (cluster.master, cluster.slave):
            broker.config = attrs.evolve(broker.config, namesrv_addr=name_server.address, master_addr=None)
            await broker.start()
        await change_everything(cluster.master, 1)
        await trio.sleep(PERIOD_S)
        assert cluster.is_synchronized()
        name_server.says = RegisterBrokerResponseHeader()
        await trio.sleep(60)
        await change_everything(cluster.master, 2)
        await trio.sleep(PERIOD_S)
        assert cluster.is_synchronized()

    run(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_2259_a_promoted_slave_does_not_deliver_again_what_its_master_delivered(restarts: bool) -> None:
    """Also #1934, #2357. A slave wrote the offsets to the file alone, and was promoted with those of its start."""

    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await deliver(cluster.master, 6)
        await trio.sleep(FIRST_SYNC_S)
        assert metadata_of(cluster.slave).delay_offsets.offset_table == {LEVEL: 6}
        cluster.master.node.kill()
        if restarts:
            cluster.slave.node.power_loss()
            assert await promote(cluster.slave) == {LEVEL: 6}
        else:
            await cluster.slave.controller.change_role(BrokerRole.ASYNC_MASTER)
            assert metadata_of(cluster.slave).delay_offsets.offset_table == {LEVEL: 6}

    run(main)


def test_1869_a_level_whose_offset_is_behind_its_queue_does_not_stand_still() -> None:
    """The file was newer than the log: nothing was found at the offset, for ever."""

    async def main(cluster: MetadataCluster) -> None:
        await cluster.master.start()
        await put_delayed(cluster.master, 7)
        metadata_of(cluster.master).delay_offsets.offset_table.update({LEVEL: 100, LEVEL - 1: 9})
        await cluster.master.stop()
        await cluster.master.start()
        assert metadata_of(cluster.master).delay_offsets.offset_table == {LEVEL: 7, LEVEL - 1: 0}

    run(main)


@pytest.mark.parametrize("catches_up", [False, True])
def test_7077_a_slave_whose_log_is_shorter_than_its_masters_offsets_delivers_what_it_has(
    catches_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's offsets came after the correction, and a promoted slave stood still.

    Corrected before it has caught up, a slave would deliver again what its master has delivered.
    """

    # Its tables come, its log does not: so it is between two masters that are followed for a moment.
    monkeypatch.setattr(FollowedMaster, "is_followed", property(lambda _: True, lambda _, __: None))

    async def main(cluster: MetadataCluster) -> None:
        followed = cluster.slave.config.ha
        nowhere = attrs.evolve(followed, ha_master_address=f"{cluster.master.node.address}:9")
        cluster.slave.config = attrs.evolve(cluster.slave.config, ha=nowhere)
        await cluster.start()
        await deliver(cluster.master, 6)
        await trio.sleep(FIRST_SYNC_S)
        assert cluster.slave.log_end == 0
        cluster.slave.node.kill()
        if catches_up:
            cluster.slave.config = attrs.evolve(cluster.slave.config, ha=followed, master_addr=None)
            await cluster.slave.start()
            await trio.sleep(12)  # what it holds is written
            assert cluster.slave.log_end == cluster.master.log_end > 0
            cluster.slave.node.kill()
        cluster.master.node.kill()
        assert await promote(cluster.slave) == {LEVEL: 6 if catches_up else 0}

    run(main)
