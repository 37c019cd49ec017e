"""A master and its slaves in this process, on loopback and real directories: see `examples/embedded_cluster.py`."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.commit_log import CommitLog
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder


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
    """A running master and its running slaves."""

    master: BrokerController
    slaves: list[BrokerController]

    async def wait_until_connected(self, timeout_s: float = 30.0) -> None:
        """Return when the master serves every slave. Raises `trio.TooSlowError`."""
        with trio.fail_after(timeout_s):
            await self.master.store.wait_for_slaves(len(self.slaves))

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
    directory: Path,
    *,
    slaves: int = 1,
    store: MessageStoreConfig | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster whose stores are `directory`/master and `directory`/slave-1, -2, ...; it stops in order at the end.

    `store` holds the settings of all of them but for the slaves' role; a SYNC_MASTER by default. Raises what
    `open_broker` raises.
    """
    store = store or MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER)
    recorder = recorder or real_recorder(RunInfo("embedding", "cluster", 0, source="broker"))
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, role: BrokerRole, ha: HaConfig) -> BrokerController:
            config = BrokerConfig(name, attrs.evolve(store, broker_role=role), ha)
            tracer = recorder.tracer(name)
            broker = await stack.enter_async_context(open_broker(config, real_environment(directory / name), tracer))
            tracer.emit("node.boot", "BrokerController")
            return broker

        master = await start("master", store.broker_role, HaConfig(ha_listen_port=0))
        followers = [
            await start(
                f"slave-{number}",
                BrokerRole.SLAVE,
                HaConfig(ha_listen_port=0, ha_master_address=master.ha_address),
            )
            for number in range(1, slaves + 1)
        ]
        yield Cluster(master, followers)
