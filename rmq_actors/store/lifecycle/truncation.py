"""Cutting a slave's log where its master's goes on in another way, while nobody has the store open.

A power cut at any time leaves whole records: all of the log, or what is cut now and more after it; and in any case
what was taken out is in `cut/`. So does a disk error: what is left still diverges, so the slave halts and is cut again.
Only the log is cut here: the next opening brings all that is derived from it there. But the delay offsets are lowered
before: that opening could not tell what they count.
"""

from __future__ import annotations

import contextlib
import logging

import attrs

from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.files.store_checkpoint import REBUILDING, Checkpoint, RecoveryPoint, StoreCheckpoint
from rmq_actors.store.lifecycle.recovery import keep_aside
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.store.log.log_walk import LogEnd
from rmq_actors.store.read.log_records import LogRecords
from rmq_actors.tracing.events.store import LogTruncate
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request

_log = logging.getLogger(__name__)


class TruncationRefused(ValueError):
    """The log cannot be cut there: says why. Nothing was changed."""


async def truncate_store(
    config: MessageStoreConfig, environment: Environment, tracer: Tracer, end_offset: int, delay_offsets: DelayOffsets
) -> int:
    """Cut the log of a closed store at the end of a record, or at its beginning; how many bytes were kept aside.

    `delay_offsets` are those of its broker: first they are lowered, so that they do not count what is cut.

    Durable on return. The file `abort` stays: the next opening recovers, from `end_offset` on. Raises
    `TruncationRefused`, `OSError` (`BlockingIOError`: the store is open), and what opening a store raises.
    """
    files = await StoreFiles.open(config, environment, tracer)
    with contextlib.closing(files):
        record = await _record_before(files, end_offset)
        await files.make_durable()
        await delay_offsets.cut_log(end_offset)
        return await _Truncation(files, environment, tracer, end_offset).run(record)


async def _record_before(files: StoreFiles, end_offset: int) -> DispatchRequest | None:
    """The record that ends at `end_offset`; None at the log's first byte. Raises `TruncationRefused`."""
    log, records = files.commit_log, LogRecords(files.commit_log)
    if not log.min_offset <= end_offset <= log.max_offset:
        raise TruncationRefused(f"offset {end_offset} is not in the log, which is {log.min_offset} to {log.max_offset}")
    if end_offset == log.min_offset:
        return None
    offsets, _ = await records.from_offset(end_offset - 1 - (end_offset - 1 - log.min_offset) % log.file_size_bytes)
    for offset in reversed(offsets):
        if offset + len(records.at(offset)) == end_offset:
            view, begin = log.file_at(offset)
            found = read_dispatch_request(view, offset - begin, offset)
            if isinstance(found, DispatchRequest):
                return found
    raise TruncationRefused(f"no record ends at offset {end_offset}")


@attrs.frozen
class _Truncation:
    """The steps. `files` has the store's lock, and nothing else is done with it."""

    files: StoreFiles
    environment: Environment
    tracer: Tracer
    end_offset: int

    async def run(self, record: DispatchRequest | None) -> int:
        log = self.files.commit_log
        size = log.max_offset - self.end_offset
        queue = MappedFileQueue(self.environment.disk, COMMIT_LOG_DIRECTORY, log.file_size_bytes)
        with contextlib.closing(queue):
            queue.load(holds_durable=lambda *_: True)
            await keep_aside(self.environment.disk, queue, LogEnd(self.end_offset), log.max_offset)
            try:
                await self._move_recovery_point(record)
                queue.truncate(self.end_offset)
                await queue.flush()
            except OSError as error:
                log.note_failed_sync(error)
                raise
        self.tracer.emit(LogTruncate(offset=self.end_offset, size=size))
        _log.warning("the log is cut at %d; %d bytes after it are kept in cut/", self.end_offset, size)
        return size

    async def _move_recovery_point(self, record: DispatchRequest | None) -> None:
        """To the cut: true before it too, as everything is durable.

        How many queues and index files there will be is not known: none is missed.
        """
        store_checkpoint = StoreCheckpoint.open(self.environment.disk)
        with contextlib.closing(store_checkpoint):
            before, file_size = store_checkpoint.checkpoint, self.files.commit_log.file_size_bytes
            point = RecoveryPoint(file_size, self.end_offset)
            if record is not None:
                point = RecoveryPoint.behind(record, file_size, self.end_offset)
            if self.files.deleted_topics.newest > self.end_offset:
                # What these points have removed comes again, as far as the master's log goes on with it.
                point = attrs.evolve(point, queues=REBUILDING)
            stamps = (before.physic_msg_timestamp_ms, before.logics_msg_timestamp_ms, before.index_msg_timestamp_ms)
            stamp = min(*stamps, point.record_store_timestamp_ms)
            await store_checkpoint.write(Checkpoint(stamp, stamp, stamp, point))
        await self.files.deleted_topics.forget_from(self.end_offset)
