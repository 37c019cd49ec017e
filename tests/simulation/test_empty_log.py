"""A slave whose log has a first file, and nothing in it, begins where its master's log does."""

from __future__ import annotations

import contextlib

import pytest
import trio

from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, file_name
from sim_net import DiskError, On, PowerLoss, Schedule, SimFile
from tests.worlds.ha_world import FILE_BYTES, SMALL_STORE, HaCluster


def first_file(cluster: HaCluster, begin: int) -> SimFile:
    return cluster.node("slave").disk.open(f"{COMMIT_LOG_DIRECTORY}/{file_name(begin)}", allocate_bytes=FILE_BYTES)


async def clean_master(cluster: HaCluster, files: int) -> None:
    """Remove its oldest files, once there is a checkpoint after them."""
    log = cluster.master.store.commit_log
    await trio.sleep(20)
    for _ in range(files):
        await log.sync_names()
        assert log.remove_oldest_file()
    await log.sync_names()


async def check_slave(cluster: HaCluster) -> None:
    """It gets what its master has, and what is put then; its store is sound after a kill and a start."""
    slave, master = cluster.brokers["slave"].store.commit_log, cluster.master.store.commit_log
    for count in (0, 9):
        await cluster.put_many(count)
        with trio.fail_after(60):
            while slave.max_offset < master.max_offset:
                await trio.sleep(0.1)
        assert slave.min_offset == master.min_offset
        assert slave.ranges(slave.min_offset, slave.max_offset) == master.ranges(master.min_offset, master.max_offset)
    cluster.node("slave").kill()
    slave = (await cluster.start("slave")).store.commit_log
    assert (slave.min_offset, slave.max_offset) == (master.min_offset, master.max_offset)
    await trio.sleep(20)
    await cluster.stop("slave")
    findings = check_store(cluster.node("slave").disk, max_hash_slot_num=SMALL_STORE.max_hash_slot_num)
    assert [each for each in findings if each.severity == "error"] == []


@pytest.mark.parametrize(("gone_before", "gone_since"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
@pytest.mark.parametrize("flush", FlushDiskType)
def test_a_first_file_without_anything_in_it(flush: FlushDiskType, gone_before: int, gone_since: int) -> None:
    """A power loss leaves it so, which takes what was written and not synced, but not the file's name and length."""
    cluster = HaCluster(store={"flush_disk_type": flush})

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        await cluster.put_many(10 * gone_before)
        await clean_master(cluster, gone_before)
        loss = PowerLoss(0.0, "slave", 3600, on=On("log.append", "slave"))
        cluster.node("slave")
        cluster.world.start_schedule(Schedule((loss,)))
        await cluster.start("slave")
        await cluster.put()
        await trio.sleep(1)
        with contextlib.closing(first_file(cluster, gone_before * FILE_BYTES)) as file:
            file.truncate(FILE_BYTES)
            file.write_at(0, bytes(FILE_BYTES))
        await cluster.put_many(25)
        await clean_master(cluster, gone_since)
        await cluster.start("slave")
        await check_slave(cluster)

    cluster.run(main)


def test_a_power_loss_leaves_such_a_file() -> None:
    for seed in range(60):
        cluster = HaCluster(seed)
        cluster.node("slave")

        async def main(cluster: HaCluster) -> None:
            loss = PowerLoss(0.0, "slave", 3600, on=On("log.append", "slave"))
            cluster.world.start_schedule(Schedule((loss,)))
            await cluster.start_pair()
            await cluster.put()
            await trio.sleep(1)

        cluster.run(main)
        if not cluster.node("slave").disk.exists(f"{COMMIT_LOG_DIRECTORY}/{file_name(0)}"):
            continue
        with contextlib.closing(first_file(cluster, 0)) as file:
            if file.size_bytes == FILE_BYTES and not any(file.map()):
                return
    pytest.fail("none does")


@pytest.mark.parametrize("operations", [["write"], ["write", "remove"]])
def test_a_first_file_that_could_not_be_written(operations: list[str]) -> None:
    """The disk takes its name, and nothing more, for as long as the master has that file."""
    cluster = HaCluster()

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        faults = [
            DiskError(0.0, 50.0, "slave", operation=each, path=COMMIT_LOG_DIRECTORY, count=10_000)
            for each in operations
        ]
        cluster.world.start_schedule(Schedule(tuple(faults)))
        await cluster.put_many(25)
        await clean_master(cluster, 1)
        assert "append_refused" in cluster.closed("slave")
        await trio.sleep(40)
        await check_slave(cluster)

    cluster.run(main)
