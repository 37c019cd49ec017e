"""The files of a store in a directory: opened without services, ended in order or as by a kill, then checked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from rmq_actors.ports.environment import Environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.check.finding import Finding
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.lifecycle.store_files import StoreFiles
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import NoEntropy, StillClock

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=2048,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=8,
    max_index_num=16,
)


@contextlib.asynccontextmanager
async def opened(
    root: Path, config: MessageStoreConfig = CONFIG, *, disk: FaultyDisk | None = None, orderly: bool = True
) -> AsyncIterator[StoreFiles]:
    """The files of a store; at the end they are shut down, or left as a kill leaves them."""
    environment = Environment(disk or OsDisk(root), StillClock(), NoEntropy())
    files = await StoreFiles.open(config, environment, new_tracer())
    try:
        yield files
        if orderly:
            await files.shut_down()
    finally:
        files.close()


def wrong(root: Path, config: MessageStoreConfig = CONFIG) -> list[Finding]:
    findings = check_store(OsDisk(root), max_hash_slot_num=config.max_hash_slot_num)
    return [finding for finding in findings if finding.severity != "note"]
