"""A message store with its services, on a disk that a test may break, in a clock that a test may jump."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs

from rmq_actors.actors.system import open_actor_system
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import Message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_recorder


@attrs.frozen
class StillClock:
    """A wall clock that stands."""

    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def utc_offset_s(self, at_ms: int) -> int:
        return 0


@attrs.frozen
class NoEntropy:
    """Always the same chance."""

    def random(self) -> float:
        return 0.0

    def token_bytes(self, size: int) -> bytes:
        return bytes(size)


@attrs.define(eq=False)
class RunningStore:
    """The store under test and what stands around it."""

    store: MessageStore
    disk: FaultyDisk
    recorder: Recorder


@contextlib.asynccontextmanager
async def running_store(
    root: Path,
    *,
    sync_flush: bool = False,
    sync_master: bool = False,
    recorder: Recorder | None = None,
    **settings: Any,
) -> AsyncIterator[RunningStore]:
    """A started store of 1000-byte files with time-outs of 2 s (flush) and 3 s (slave)."""
    config = MessageStoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
        **{
            "broker_role": BrokerRole.SYNC_MASTER if sync_master else BrokerRole.ASYNC_MASTER,
            "mapped_file_size_commit_log_bytes": 1000,
            "sync_flush_timeout_ms": 2000,
            "slave_timeout_ms": 3000,
            **settings,
        },
    )
    disk, recorder = FaultyDisk(root), recorder or new_recorder()
    tracer = recorder.tracer("node")
    store = await MessageStore.open(config, Environment(disk, StillClock(), NoEntropy()), tracer)
    with contextlib.closing(store):
        async with open_actor_system("store", tracer) as system:
            await store.start(system)
            yield RunningStore(store, disk, recorder)


def message(body: bytes = b"body", **fields: Any) -> Message:
    """A message of topic T."""
    return Message("T", body, **fields)
