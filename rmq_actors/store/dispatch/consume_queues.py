"""All consume queues of a store (consumeQueueTable): `consumequeue/<topic>/<queue id>/`, written by dispatch.

Topics come out of records, so they are checked before they become directory names: one that cannot be a name gets no
queue, is counted and named in the log, and holds up nobody else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queue import NEVER_OWN, ConsumeQueue, QueueEntry, parse_queue_offset
from rmq_actors.store.dispatch.consume_queue_ext import ConsumeQueueExt
from rmq_actors.store.dispatch.queue_rows import queue_entry, rows_by_queue
from rmq_actors.store.files.deleted_topics import DeletedTopics, QueueBeginsAgain
from rmq_actors.store.files.formats import CQ_STORE_UNIT_SIZE
from rmq_actors.store.files.layout import CONSUME_QUEUE_DIRECTORY, CONSUME_QUEUE_EXT_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import (
    SYNCED_ALONE_MAX,
    DirtyDirectories,
    MappedFileQueue,
    mark_directory,
    sync_directories,
)
from rmq_actors.store.files.open_files import ManagedFile, OpenFiles
from rmq_actors.store.files.topic_names import IllegalTopic, check_topic, is_lmq
from rmq_actors.wire.dispatch_request import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    DispatchRequest,
    split_multi_dispatch,
)

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)

_NAMES_IN_LOG_MAX = 1000

_Batches = dict[ConsumeQueue, list[QueueEntry]]


@attrs.define(eq=False, repr=False)
class ConsumeQueues:
    """The queues of the store on `disk`. A `CommitLogDispatcher`.

    Longer than 300 lines because finding queues, dispatching to them, flushing and removing them keep the same few
    tables of queues, and each must be right after each.
    """

    disk: Disk
    config: MessageStoreConfig
    #: Which records get no entry, as their topic was deleted since.
    deleted: DeletedTopics = attrs.field()
    #: What is below `consumequeue/` and is no queue.
    strays: list[str] = attrs.field(factory=list, init=False)
    #: Records without an entry, because of their topic or of what they say of further queues.
    refused: int = attrs.field(default=0, init=False)
    _queues: dict[tuple[str, int], ConsumeQueue] = attrs.field(factory=dict, init=False)
    #: How many queues were made and removed in all: who looks for a queue need not, as long as that stays.
    changes: int = attrs.field(default=0, init=False)
    #: Those with un-synced bytes, and perhaps others.
    _dirty_queues: dict[ConsumeQueue, None] = attrs.field(factory=dict, init=False)
    #: Where each queue with an entry ended when the ends were last added up, and those that may end later by now.
    _ends: dict[ConsumeQueue, int] = attrs.field(factory=dict, init=False)
    _ends_sum: int = attrs.field(default=0, init=False)
    _grown_queues: dict[ConsumeQueue, None] = attrs.field(factory=dict, init=False)
    #: See `ConsumeQueue.own_from`.
    _own_from: int = attrs.field(default=NEVER_OWN, init=False)
    #: Those that may have grown since somebody who waits for that has looked; None: nobody waits.
    _looked_for: dict[ConsumeQueue, None] | None = attrs.field(default=None, init=False)
    _dirty_directories: DirtyDirectories = attrs.field(factory=dict, init=False)
    _refused_topics: dict[str, None] = attrs.field(factory=dict, init=False)
    _open_files: OpenFiles = attrs.field(init=False)

    @deleted.default
    def _load_deleted(self) -> DeletedTopics:
        return DeletedTopics.load(self.disk)

    def __attrs_post_init__(self) -> None:
        self._open_files = OpenFiles(self.disk)

    @property
    def name(self) -> str:
        """RocketMQ's name of this dispatcher."""
        return "CommitLogDispatcherBuildConsumeQueue"

    # Look-up.

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Every queue, by topic and queue id."""
        for key in sorted(self._queues):
            yield self._queues[key]

    def __len__(self) -> int:
        return len(self._queues)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if there is one (getConsumeQueue)."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no file until its first entry (findConsumeQueue). Raises `IllegalTopic`."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            check_topic(topic)
            queue = self._queues[topic, queue_id] = self._new_queue(topic, queue_id)
            self.changes += 1
        return queue

    def topic_queue_table(self) -> dict[tuple[str, int], int]:
        """The next queue offset of every (topic, queue id), light message queues included."""
        return {(queue.topic, queue.queue_id): queue.max_offset_in_queue for queue in self}

    def add_up_ends(self) -> tuple[int, int]:
        """How many queues have an entry, or had one, and the ends of all queues (maxOffsetInQueue), added up.

        Takes time with the number of queues that have grown since the last call.
        """
        for queue in self._grown_queues:
            end = queue.max_offset_in_queue
            if end:
                self._ends_sum += end - self._ends.get(queue, 0)
                self._ends[queue] = end
        self._grown_queues.clear()
        return len(self._ends), self._ends_sum

    def begin_own(self, offset: int) -> None:
        """From there on the log has what this master puts: see `ConsumeQueue.own_from`."""
        self._own_from = offset
        for queue in self:
            queue.own_from = offset

    @contextlib.contextmanager
    def growth(self) -> Iterator[Callable[[], list[tuple[str, int]]]]:
        """For one that waits for entries: a function that says which queues may have grown since its last call.

        Takes time with their number.
        """
        assert self._looked_for is None, "somebody else waits"
        self._looked_for = {}
        try:
            yield self._take_grown
        finally:
            self._looked_for = None

    def _take_grown(self) -> list[tuple[str, int]]:
        grown = [(queue.topic, queue.queue_id) for queue in self._looked_for or ()]
        self._looked_for = {}
        return grown

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        config = self.config
        units = -(-config.mapped_file_size_consume_queue_bytes // CQ_STORE_UNIT_SIZE)
        files = MappedFileQueue(
            self.disk,
            f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}",
            units * CQ_STORE_UNIT_SIZE,
            "mappedFileSizeConsumeQueue",
            self._open_files,
            self._dirty_directories,
        )
        # While its topic is deleted, the broker itself may put messages of its old life and of its next one.
        own_from = NEVER_OWN if topic in self.deleted.deleting else self._own_from
        if not config.enable_consume_queue_ext:
            return ConsumeQueue(topic, queue_id, files, own_from=own_from)
        ext_files = MappedFileQueue(
            self.disk,
            f"{CONSUME_QUEUE_EXT_DIRECTORY}/{topic}/{queue_id}",
            config.mapped_file_size_consume_queue_ext_bytes,
            "mappedFileSizeConsumeQueueExt",
            self._open_files,
            self._dirty_directories,
        )
        return ConsumeQueue(topic, queue_id, files, ConsumeQueueExt(ext_files), own_from=own_from)

    # CommitLogDispatcher.

    def recover(self, durable_to: int) -> int:
        """Open every queue, and drop every entry of a record at `durable_to` or after it.

        Returns the end of the last record that any queue knows, at most `durable_to`; 0 if there is none: a queue may
        know less than there is, where RocketMQ wrote it. Of a deleted topic's queue, whose files a crash may have left,
        only what came since stays. Raises `StoreLayoutError`, `OSError`.
        """
        known_to = 0
        for topic in self.disk.list(CONSUME_QUEUE_DIRECTORY):
            names = self.disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic}")
            if not names and self._is_file(f"{CONSUME_QUEUE_DIRECTORY}/{topic}"):
                self._name_stray(f"{CONSUME_QUEUE_DIRECTORY}/{topic}")
            for name in names:
                queue_id = parse_queue_id(name)
                queue = None if queue_id is None else self._create(topic, queue_id)
                if queue is None:
                    self._name_stray(f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{name}")
                    continue
                begin = self.deleted.begin_of(topic, queue.queue_id)
                queue.recover(durable_to, begin)
                known_to = max(known_to, queue.max_physic_offset)
                if 0 <= queue.first_physic_offset < begin:
                    if queue.max_physic_offset > begin:  # what came since is dispatched again
                        durable_to = min(durable_to, begin)
                    self.forget(topic, queue.queue_id)
                    continue
                self._dirty_queues[queue] = self._grown_queues[queue] = None
        if self.config.enable_consume_queue_ext:
            self._remove_lone_extensions()
        return min(durable_to, known_to)

    def _remove_lone_extensions(self) -> None:
        """Remove extension files whose queue is gone: it will be made again, and they with it."""
        for topic in self.disk.list(CONSUME_QUEUE_EXT_DIRECTORY):
            for name in self.disk.list(f"{CONSUME_QUEUE_EXT_DIRECTORY}/{topic}"):
                queue_id = parse_queue_id(name)
                if queue_id is not None and (topic, queue_id) not in self._queues:
                    self._new_queue(topic, queue_id).recover(0)

    def _is_file(self, path: str) -> bool:
        try:
            self.disk.open(path, read_only=True).close()
        except IsADirectoryError:
            return False
        return True

    def _name_stray(self, path: str) -> None:
        self.strays.append(path)
        _log.warning("%s is no consume queue; it is left alone", path)

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Append the entries of records, in the log's order; one write a queue and batch.

        Raises `OSError`, `QueueBeginsAgain`.
        """
        batches: _Batches = {}
        queues, multi_dispatch, deleted = self._queues, self.config.enable_multi_dispatch, self.deleted
        may_hide = bool(requests) and requests[0].commit_log_offset < deleted.newest
        for request in requests:
            if not request.takes_queue_offset:
                continue
            if may_hide and deleted.hides(request.topic, request.queue_id, request.commit_log_offset):
                self._multi_dispatch_lmq_queue(request, batches)
                continue
            queue = queues.get((request.topic, request.queue_id)) or self._create(request.topic, request.queue_id)
            if queue is None:
                continue
            entry = queue_entry(request)
            batch = batches.get(queue)
            if batch is None:
                batches[queue] = [entry]
            else:
                batch.append(entry)
            if multi_dispatch and PROPERTY_INNER_MULTI_DISPATCH in request.properties:
                self._multi_dispatch_lmq_queue(request, batches)
        for queue, entries in batches.items():
            self._dirty_queues[queue] = self._grown_queues[queue] = None
            if self._looked_for is not None:
                self._looked_for[queue] = None
            queue.put_message_position_info(entries)

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`: consumers wait for their entries. Raises `OSError`, `QueueBeginsAgain`."""
        deleted = self.deleted
        if requests and requests[0].commit_log_offset < deleted.newest:  # they waited for a sync meanwhile
            requests = [row for row in requests if not deleted.hides(row.topic, row.queue_id, row.commit_log_offset)]
        for each in rows_by_queue(requests):
            queue = self._queues.get((each.topic, each.queue_id)) or self._create(each.topic, each.queue_id)
            if queue is None:
                continue
            self._dirty_queues[queue] = self._grown_queues[queue] = None
            if self._looked_for is not None:
                self._looked_for[queue] = None
            first, last, units = each.rows[0], each.rows[-1], each.units
            if units is None or not queue.put_units(
                units, first.consume_queue_offset, first.commit_log_offset, last.end_offset
            ):
                queue.put_message_position_info(each.entries())

    def drain(self) -> None:
        """See `CommitLogDispatcher`: nothing lags."""

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """`dispatch` of records as columns. Raises `OSError`, `QueueBeginsAgain`."""
        # This imports numpy, which takes a while: a broker that dispatches single records does without.
        from rmq_actors.store.dispatch.queue_columns import entries_by_queue  # noqa: PLC0415

        deleted = self.deleted
        for each in entries_by_queue(batch):
            begin = deleted.begin_of(each.topic, each.queue_id) if each.first_physical_offset < deleted.newest else 0
            if each.end_physical_offset <= begin:
                continue
            queue = self._queues.get((each.topic, each.queue_id)) or self._create(each.topic, each.queue_id)
            if queue is None:
                self.refused += len(each) - 1
                continue
            self._dirty_queues[queue] = self._grown_queues[queue] = None
            if self._looked_for is not None:
                self._looked_for[queue] = None
            if each.first_physical_offset < begin:
                queue.put_message_position_info([entry for entry in each.entries() if entry.physical_offset >= begin])
            elif each.units is None or not queue.put_units(
                each.units, each.first_index, each.first_physical_offset, each.end_physical_offset
            ):
                queue.put_message_position_info(each.entries())

    def _create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        try:
            return self.find_or_create(topic, queue_id)
        except IllegalTopic as error:
            self.refused += 1
            if topic not in self._refused_topics and len(self._refused_topics) < _NAMES_IN_LOG_MAX:
                self._refused_topics[topic] = None
                _log.warning("%s: its records get no queue", error)
            return None

    def _multi_dispatch_lmq_queue(self, request: DispatchRequest, batches: _Batches) -> None:
        """Entries in further queues (multiDispatchLmqQueue)."""
        for name, queue_id, number in self.further_entries(request):
            queue = self._create(name, queue_id)
            if queue is not None:
                entry = QueueEntry(
                    number, request.commit_log_offset, request.msg_size, request.tags_code, is_further=True
                )
                batches.setdefault(queue, []).append(entry)

    def further_entries(self, request: DispatchRequest) -> Sequence[tuple[str, int, int]]:
        """The further queues that a record names (topic, queue id), and its index in each.

        Those that were deleted since are not among them.
        """
        if not self.config.enable_multi_dispatch or PROPERTY_INNER_MULTI_DISPATCH not in request.properties:
            return ()
        names = split_multi_dispatch(request.properties[PROPERTY_INNER_MULTI_DISPATCH])
        indexes = split_multi_dispatch(request.properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, ""))
        if not names or not indexes:
            return ()
        numbers = [number for number in map(parse_queue_offset, indexes) if number is not None]
        if not len(names) == len(indexes) == len(numbers):
            self.refused += 1
            _log.warning(
                "the record at %d names %d further queues and the offsets %s: it gets no entry there",
                *(request.commit_log_offset, len(names), indexes),
            )
            return ()
        entries = [
            (name, 0 if self.config.enable_lmq and is_lmq(name) else request.queue_id, number)
            for name, number in zip(names, numbers, strict=True)
        ]
        offset = request.commit_log_offset
        if offset >= self.deleted.newest:
            return entries
        return [entry for entry in entries if not self.deleted.hides(entry[0], entry[1], offset)]

    async def flush(self, least_pages: int = 0) -> None:
        """Return when everything dispatched before the call is durable. Raises `OSError`.

        With `least_pages`, queues that have fewer new pages are left for later, and names are not synced.
        """
        dirty = list(self._dirty_queues)
        if len(dirty) > SYNCED_ALONE_MAX:
            await self._flush_together(dirty, least_pages)
        for queue in dirty:
            await queue.flush_files(least_pages)
            if not queue.is_dirty:
                self._dirty_queues.pop(queue, None)
        if not least_pages:
            await sync_directories(self.disk, self._dirty_directories)

    async def _flush_together(self, queues: Sequence[ConsumeQueue], least_pages: int) -> None:
        due = {
            each.mapped_file.file: each for queue in queues for row in queue.rows for each in row.due_syncs(least_pages)
        }
        files = [file for file in due if isinstance(file, ManagedFile)]
        await self._open_files.sync(files)
        for file in files:
            due[file].is_over()

    def delete_expired(self, log_min_offset: int) -> int:
        """Drop the oldest file of each queue that names no record at or after `log_min_offset`; correct the minima.

        How many files were removed: at most one per queue, see `MappedFileQueue.remove_first_file`. Raises `OSError`.
        """
        return sum(queue.delete_expired_file(log_min_offset) for queue in self)

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Let every queue begin with its first record at or after `log_min_offset`."""
        for queue in self:
            queue.correct_min_offset(log_min_offset)

    def mark_dirty(self) -> None:
        """Let the next flush sync every file and name: those of a store whose last writer promised nothing."""
        for queue in self:
            queue.mark_dirty()
            self._dirty_queues[queue] = None

    async def destroy(self, topic: str) -> int:
        """Remove every queue of a topic; how many there were. No record of it may be dispatched meanwhile.

        A power loss leaves a part of a queue that begins where it did. Raises `OSError`.
        """
        queues = [queue for queue in self if queue.topic == topic]
        for queue in queues:
            self._ends_sum -= self._ends.pop(queue, 0)
            self._grown_queues.pop(queue, None)
            await queue.destroy()
            for files in queue.rows:
                await self._remove_directory(files.directory)
            del self._queues[queue.topic, queue.queue_id]
            self.changes += 1
        for directory in (CONSUME_QUEUE_DIRECTORY, CONSUME_QUEUE_EXT_DIRECTORY):
            await self._remove_directory(f"{directory}/{topic}")
        return len(queues)

    def forget(self, topic: str, queue_id: int) -> None:
        """Remove a queue now. After a power loss any of its files may be there again: `deleted` must say so before.

        Raises `OSError`; it may be called again then.
        """
        queue = self._queues[topic, queue_id]
        queue.remove_files()
        self._ends_sum -= self._ends.pop(queue, 0)
        self._grown_queues.pop(queue, None)
        self._dirty_queues.pop(queue, None)
        del self._queues[topic, queue_id]
        self.changes += 1
        for files in queue.rows:
            for directory in (files.directory, files.directory.rpartition("/")[0]):
                if self.disk.exists(directory) and not self.disk.list(directory):
                    self.disk.remove_directory(directory)
                    self._dirty_directories.pop(directory, None)
                    mark_directory(self._dirty_directories, directory.rpartition("/")[0])

    async def begin_again(self, found: QueueBeginsAgain) -> None:
        """Let a queue begin with the record that says so, durably. Raises `OSError`; `ValueError` for too many."""
        _log.warning("%s: the entries before it are dropped", found)
        await self.deleted.raise_to(found.topic, found.queue_id, found.offset)
        if (found.topic, found.queue_id) in self._queues:
            self.forget(found.topic, found.queue_id)

    async def _remove_directory(self, directory: str) -> None:
        """Remove a directory, durably, if it is there and empty."""
        if self.disk.exists(directory) and not self.disk.list(directory):
            self.disk.remove_directory(directory)
            self._dirty_directories.pop(directory, None)
            await self.disk.sync_directory(directory.rpartition("/")[0])

    def close(self) -> None:
        """Close the files; later writes are `OSError`."""
        for queue in self:
            queue.close()


def parse_queue_id(name: str) -> int | None:
    """The queue whose directory has this name; None if it is not that of a queue."""
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10 or str(int(name)) != name:
        return None
    return int(name) if -(1 << 31) <= int(name) < 1 << 31 else None
