"""A commit log, queues and an index over it, without services: for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from rmq_actors.actors.services.timer import Timer
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.read.get_message import MessageReads
from rmq_actors.store.read.query_message import RecordLookup
from rmq_actors.store.read.queue_offsets import QueueOffsets
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from rmq_actors.wire.record import Message, check_record, encode_message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_recorder
from tests.worlds.running_store import StillClock

EPOCH_MS = 1_700_000_000_000


@attrs.define(eq=False)
class ReadStore:
    """What was put is dispatched when asked; `readable_to` is the log's end unless it is set."""

    config: MessageStoreConfig
    disk: FaultyDisk
    log: CommitLog
    queues: ConsumeQueues
    index: IndexService
    stats: StoreStatsService
    reads: MessageReads = attrs.field(init=False)
    offsets: QueueOffsets = attrs.field(init=False)
    lookup: RecordLookup = attrs.field(init=False)
    hidden_from: int | None = None
    memory_bytes: int = 1 << 30
    _dispatched: int = 0

    def __attrs_post_init__(self) -> None:
        self.reads = MessageReads.create(
            self.config, self.log, self.queues.find, self.readable_to, self.stats, self.memory_bytes, lambda: 0.0
        )
        self.offsets = QueueOffsets(self.log, self.queues.find, self.reads)
        self.lookup = RecordLookup(self.log, self.readable_to)

    def readable_to(self) -> int:
        return self.log.max_offset if self.hidden_from is None else self.hidden_from

    def put(self, topic: str, queue_id: int = 0, body: bytes = b"", at_ms: int = 0, **properties: str) -> int:
        """Append and dispatch; the record's offset in the log."""
        message = Message(topic, body, queue_id, properties)
        appended = self.log.append_message(encode_message(message), EPOCH_MS + at_ms)
        self.dispatch()
        return appended.offset

    def dispatch(self) -> None:
        requests = list(self._requests())
        self.queues.dispatch(requests)
        self.index.dispatch(requests)

    def _requests(self) -> Iterator[DispatchRequest]:
        while self._dispatched < self.log.max_offset:
            view, begin = self.log.file_at(self._dispatched)
            found = read_dispatch_request(view, self._dispatched - begin, self._dispatched)
            if isinstance(found, DispatchRequest):
                yield found
                self._dispatched = found.end_offset
            else:
                self._dispatched += check_record(view, self._dispatched - begin, self._dispatched).size

    def remove_oldest_file(self) -> None:
        """The log loses a file, and nobody has told the queues."""
        self.log._queue.dirty_directories.clear()
        assert self.log.remove_oldest_file()

    def close(self) -> None:
        self.index.close()
        self.queues.close()
        self.log.close()


def open_read_store(root: Path, *, memory_bytes: int = 1 << 30, dispatched_to: int = 0, **settings: Any) -> ReadStore:
    """A store of small files: an empty one, or one whose queues and index know all before `dispatched_to`."""
    config = MessageStoreConfig(
        **{
            "mapped_file_size_commit_log_bytes": 2000,
            "mapped_file_size_consume_queue_bytes": 200,
            "max_hash_slot_num": 50,
            "max_index_num": 100,
            **settings,
        }
    )
    disk = FaultyDisk(root)
    log = CommitLog.open(disk, config.mapped_file_size_commit_log_bytes, new_recorder().tracer("node"))
    stats = StoreStatsService(StillClock(), Timer())
    queues, index = ConsumeQueues(disk, config), IndexService(disk, config, StillClock())
    queues.recover(dispatched_to)
    index.recover(dispatched_to)
    return ReadStore(config, disk, log, queues, index, stats, memory_bytes=memory_bytes)
