"""`rmq-actors demo`: replicate real data, break replication in a simulated world, analyse both in Spark."""

from __future__ import annotations

import importlib.resources
import logging
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import attrs
import trio
import typer
from rich.console import Console
from rich.table import Table

from rmq_actors.cli.chaos import print_failure, progress_bar
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.embedding.cluster import Cluster, log_sha256, open_cluster, real_recorder
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.bug_hunt import Caught, Hunt, hunt_bug
from rmq_actors.testing.observation import OBSERVABLE
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenarios import SCENARIO
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.record import Message

_GOLDEN_STORE = "golden/store_master_clean"
#: mappedFileSizeCommitLog of the RocketMQ that wrote it.
_GOLDEN_FILE_BYTES = 262_144
_WRITERS = 8
_PUTS_PER_WRITER = 300
_PLANTED_BUG = "stale_frame"
_CAMPAIGN = "demo"


class DemoFailed(Exception):
    """A step did not show what it should."""


@attrs.frozen
class Replicated:
    """What step 1 showed."""

    messages: int
    size_bytes: int
    files_rolled: int
    sha256_master: str
    sha256_slave: str
    seconds: float

    @property
    def identical(self) -> bool:
        """Whether both logs are the same bytes."""
        return self.sha256_master == self.sha256_slave


def copy_golden_store(target: Path) -> None:
    """Put a copy of the store that RocketMQ 4.9.7 wrote at `target`."""
    source = importlib.resources.files("rmq_actors.testing").joinpath(_GOLDEN_STORE)
    with importlib.resources.as_file(source) as path:
        shutil.copytree(path, target)


async def _replicate(directory: Path, recorder_of: Callable[[], object], on_put: Callable[[], object]) -> Replicated:
    began = time.monotonic()
    copy_golden_store(directory / "master")
    store = MessageStoreConfig(
        broker_role=BrokerRole.SYNC_MASTER, mapped_file_size_commit_log_bytes=_GOLDEN_FILE_BYTES
    )
    recorder = recorder_of()
    async with open_cluster(directory, slaves=1, store=store, recorder=recorder) as cluster:  # type: ignore[arg-type]
        await cluster.wait_until_replicated()
        before = cluster.master.store.commit_log.max_offset
        async with trio.open_nursery() as nursery:
            for writer in range(_WRITERS):
                nursery.start_soon(_write, cluster, writer, on_put)
        await cluster.wait_until_replicated()
        log, slave_log = cluster.master.store.commit_log, cluster.slaves[0].store.commit_log
        return Replicated(
            _WRITERS * _PUTS_PER_WRITER,
            log.max_offset - log.min_offset,
            log.max_offset // _GOLDEN_FILE_BYTES - before // _GOLDEN_FILE_BYTES,
            log_sha256(log),
            log_sha256(slave_log),
            time.monotonic() - began,
        )


async def _write(cluster: Cluster, writer: int, on_put: Callable[[], object]) -> None:
    for number in range(_PUTS_PER_WRITER):
        body = f"message {number} of writer {writer} ".encode() * (1 + number % 20)
        result = await cluster.master.put_message(Message("Demo", body, writer, {"KEYS": f"{writer}-{number}"}))
        if result.status is not PutStatus.PUT_OK:
            raise DemoFailed(f"put {number} of writer {writer} was answered {result.status.value} {result.reason}")
        on_put()
