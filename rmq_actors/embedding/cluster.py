"""A master and its slaves in this process, on loopback and real directories: see `examples/embedded_cluster.py`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import open_name_server
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.commit_log import CommitLog
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder

#: The settings of a cluster unless it is given others: RocketMQ's, but for small files, as those of a test are thrown
#: away. (RocketMQ's log has files of 1 GiB, its index of 420 MB. They are sparse, but quotas and copies count them
#: whole.) Other settings with such files: `attrs.evolve(CLUSTER_STORE, flush_disk_type=FlushDiskType.SYNC_FLUSH)`.
CLUSTER_STORE = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=16 * 1024 * 1024,
    mapped_file_size_consume_queue_bytes=10_000 * 20,
    max_hash_slot_num=50_000,
    max_index_num=200_000,
)


def real_recorder(run: RunInfo, *, keep: bool = False) -> Recorder:
    """A recorder on the machine's clock. It keeps nothing unless told: subscribe a spool to it."""
    return Recorder(run, lambda: (None, time.time_ns()), keep=keep)


def log_sha256(commit_log: CommitLog) -> str:
    """SHA-256 of the log's bytes from its minimum to its maximum offset, in hex."""
    digest = hashlib.sha256()
    for view in commit_log.ranges(commit_log.min_offset, commit_log.max_offset):
        digest.update(view)
    return digest.hexdigest()


@attrs.define(eq=False)
class Cluster:
    """A running master and its running slaves, and where their name server is ("host:port"), if they have one."""

    master: BrokerController
    slaves: list[BrokerController]
    name_server_address: str | None = None

    async def wait_until_connected(self, timeout_s: float = 30.0) -> None:
        """Return when the master serves every slave. Raises `trio.TooSlowError`."""
        with trio.fail_after(timeout_s):
            await self.master.store.wait_for_slaves(len(self.slaves))

    async def wait_until_registered(self, timeout_s: float = 30.0) -> None:
        """Return when the name server has every broker. Raises `trio.TooSlowError`."""
        with trio.fail_after(timeout_s):
            for broker in (self.master, *self.slaves):
                if broker.remoting is not None and broker.remoting.registration is not None:
                    await broker.remoting.registration.wait_until_registered()

    async def wait_until_replicated(self, timeout_s: float = 30.0) -> None:
        """Return when every slave has all that the master had at the call. Raises `trio.TooSlowError`."""
        end = self.master.store.commit_log.max_offset
        with trio.fail_after(timeout_s):
            for slave in self.slaves:
                log = slave.store.commit_log
                with slave.store.log_end.subscribe() as growth:
                    while log.max_offset < end:
                        await growth.receive()


@contextlib.asynccontextmanager
async def open_cluster(
    directory: str | os.PathLike[str],
    *,
    slaves: int = 1,
    store: MessageStoreConfig = CLUSTER_STORE,
    recorder: Recorder | None = None,
    name_server: bool = False,
    wait_connected: bool = True,
) -> AsyncIterator[Cluster]:
    """A cluster whose stores are `directory`/master and `directory`/slave-1, -2, ...; it stops in order at the end.

    The master serves every slave when the block begins, unless `wait_connected` is false: before that it answers
    SLAVE_NOT_AVAILABLE. `store` holds the settings of all of them but for the slaves' role; by default a SYNC_MASTER
    with small files (`CLUSTER_STORE`). With a `name_server` the brokers listen for clients too, on free ports; they are
    registered with it when the block begins, and slaves learn from it where their master is.

    Raises what `open_broker` raises. A slave that is not connected after 30 s is a `trio.TooSlowError`, in an exception
    group as what fails within the block.
    """
    directory = Path(directory)
    recorder = recorder or real_recorder(RunInfo("embedding", "cluster", 0, source="broker"))
    async with contextlib.AsyncExitStack() as stack:
        namesrv_addr = await _open_name_server(directory, recorder, stack) if name_server else None

        async def start(name: str, broker_id: int, master_address: str | None) -> BrokerController:
            config = BrokerConfig(
                # The brokers of one name are a master and its slaves, for a name server.
                name if namesrv_addr is None else "broker-a",
                attrs.evolve(store, broker_role=BrokerRole.SLAVE if broker_id else store.broker_role),
                HaConfig(ha_listen_port=0, ha_master_address=master_address),
                remoting=None if namesrv_addr is None else RemotingServerConfig(listen_port=0),
                broker_id=broker_id,
                namesrv_addr=namesrv_addr,
            )
            tracer = recorder.tracer(name)
            broker = await stack.enter_async_context(open_broker(config, real_environment(directory / name), tracer))
            tracer.emit("node.boot", "BrokerController")
            return broker

        master = await start("master", 0, None)
        address = None if name_server else master.ha_address
        followers = [await start(f"slave-{number}", number, address) for number in range(1, slaves + 1)]
        cluster = Cluster(master, followers, namesrv_addr)
        await cluster.wait_until_registered()
        if wait_connected:
            await cluster.wait_until_connected()
        yield cluster


async def _open_name_server(directory: Path, recorder: Recorder, stack: contextlib.AsyncExitStack) -> str:
    """A name server on a free port, with its files below `directory`/namesrv; its address."""
    config = NamesrvConfig(remoting=RemotingServerConfig(listen_port=0))
    tracer = recorder.tracer("namesrv")
    controller = await stack.enter_async_context(open_name_server(config, real_environment(directory), tracer))
    return controller.address
