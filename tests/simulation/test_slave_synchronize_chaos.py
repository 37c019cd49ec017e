"""Whatever happens to a master, its slaves and the network: afterwards their metadata are the master's."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
import trio

from sim_net import Partition, Schedule
from tests.worlds.metadata_world import (
    CLIENT,
    HEALED_S,
    MetadataCluster,
    change_everything,
    delete_everything,
    metadata_of,
    run,
    tables_of,
    tables_on,
)
from tests.worlds.registration_world import Broker

STEPS = 12
_OPERATIONS: tuple[Literal["write", "sync", "rename", "sync_directory"], ...] = (
    "write",
    "sync",
    "rename",
    "sync_directory",
)


class Offsets:
    """What a slave shows of consumer offsets: in one life no offset goes back; a key may only go as a whole."""

    def __init__(self, slave: Broker) -> None:
        self._slave = slave
        self._life = 0
        self._last: dict[str, dict[int, int]] = {}

    def check(self) -> None:
        if not self._slave.node.is_up or not self._slave.ready.is_set():
            return
        now = tables_of(self._slave)[2]
        if self._life == self._slave.node.incarnation:
            for key in self._last.keys() & now.keys():
                for queue_id, offset in self._last[key].items():
                    assert now[key][queue_id] >= offset, (self._slave.node.name, key, self._last[key], now[key])
        self._life, self._last = self._slave.node.incarnation, now


class Chaos:
    """Random steps over a cluster; what is up, and which topics there are."""

    def __init__(self, cluster: MetadataCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.made = 0
        self.there: list[int] = []
        self.commits = 0
        self.committed_on_slaves: set[str] = set()

    async def step(self) -> None:
        operations: list[Callable[[], Awaitable[None]]] = [
            self.change,
            self.change,
            self.delete,
            self.commit_on_slave,
            self.restart_master,
            self.restart_slave,
            self.cut_network,
            self.break_disk,
        ]
        await self.random.choice(operations)()
        await trio.sleep(self.random.choice([0.0, 0.5, 4.0, 12.0]))

    async def change(self) -> None:
        self.made += 1
        await change_everything(self.cluster.master, self.made)
        self.there.append(self.made)

    async def delete(self) -> None:
        if self.there:
            number = self.there.pop(self.random.randrange(len(self.there)))
            await delete_everything(self.cluster.master, number)

    async def commit_on_slave(self) -> None:
        """As consumers do while they cannot reach the master."""
        self.commits += 1
        if self.there:
            number = self.random.choice(self.there)
            slave = metadata_of(self.random.choice(self.cluster.slaves))
            before = slave.consumer_offsets.query_offset(f"Group-{number}", f"Topic-{number}", 0)
            self.committed_on_slaves.add(f"Topic-{number}@Group-{number}")
            slave.consumer_offsets.commit_offset(CLIENT, f"Group-{number}", f"Topic-{number}", 0, before + self.commits)

    async def restart_master(self) -> None:
        await self.restart(self.cluster.master)

    async def restart_slave(self) -> None:
        await self.restart(self.random.choice(self.cluster.slaves))

    async def restart(self, broker: Broker) -> None:
        how = self.random.choice(["kill", "power_loss", "stop"])
        if how == "stop":
            await broker.stop()
        else:
            getattr(broker.node, how)()
        await trio.sleep(self.random.choice([0.0, 2.0, 15.0]))
        await broker.start()

    async def cut_network(self) -> None:
        slave = self.random.choice(self.cluster.slaves).node.name
        cut = Partition(trio.current_time(), self.random.choice([1.0, 8.0, 40.0]), "master", slave)
        self.cluster.world.start_schedule(Schedule((cut,)))

    async def break_disk(self) -> None:
        disk = self.random.choice(self.cluster.slaves).node.disk
        operation = self.random.choice(_OPERATIONS)
        disk.fail(errno.ENOSPC, operation=operation, path="config", count=self.random.randrange(1, 5))


@pytest.mark.parametrize("seed", range(12))
def test_after_the_last_fault_every_slave_has_the_masters_tables(seed: int) -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        offsets = [Offsets(slave) for slave in cluster.slaves]
        chaos = Chaos(cluster, seed)

        async def watch() -> None:
            while True:
                for each in offsets:
                    each.check()
                await trio.sleep(0.25)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for _ in range(STEPS):
                await chaos.step()
            await trio.sleep(40 + HEALED_S)
            nursery.cancel_scope.cancel()
        topics, groups, committed, delays = tables_of(cluster.master)
        for slave in cluster.slaves:
            for has in (tables_of(slave), tables_on(slave.node.disk, slave.config)):
                assert has[:2] == (topics, groups)
                assert has[3] == delays
                assert has[2].keys() <= committed.keys() | chaos.committed_on_slaves
                for key, queues in committed.items():
                    assert all(has[2][key][queue_id] >= offset for queue_id, offset in queues.items())

    run(main, seed=seed, slaves=2)
