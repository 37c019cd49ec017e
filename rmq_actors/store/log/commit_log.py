"""The commit log: bytes over files of one size, appended as records by a master, as they come by a slave (CommitLog).

Passive and synchronous: no await stands between taking an offset and writing the record. It is written by
`MessageStore` alone; anyone may read. Durability is tracked here (`flushed_where`) and produced by the flush services.

With the transient store pool, records are first appended to a buffer in memory (`append_offset`); readers, dispatchers,
slaves and flushes see what `commit` has written to the file since, up to `max_offset`. Only the last file has such a
buffer: a file is committed before the next one begins.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import attrs

from rmq_actors.ports.disk import BytesLike, Disk, DiskFile
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file import MappedFile, PreparedFile
from rmq_actors.store.files.mapped_file_queue import PAGE_BYTES, MappedFileQueue, sync_directories
from rmq_actors.store.files.topic_names import is_lmq
from rmq_actors.store.log.log_walk import LogEnd, LogWalk
from rmq_actors.store.log.received_records import AppendRefused, FileSizeMismatch, follow_records
from rmq_actors.tracing.events.store import LogAppend, LogRoll, StoreOpen
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.message_rows import EncodedRows
from rmq_actors.wire.record import (
    END_FILE_MIN_BLANK_LENGTH,
    EncodedMessage,
    MessageIllegal,
    encode_blank,
)

#: The next queue offset of each (topic, queue id), light queues (%LMQ%) among them, which RocketMQ keeps in a table of
#: their own.
TopicQueueTable = dict[tuple[str, int], int]


class AppendMessageResult(NamedTuple):
    """Where a message, or a batch, went. `starts`: where each of its records begins, from `offset` on."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp_ms: int
    store_host: str = ""
    starts: Sequence[int] = (0,)

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.offset + self.size

    @property
    def msg_id(self) -> str:
        """The id of the message; those of a batch with commas between them."""
        return ",".join(create_message_id(self.store_host, self.offset + start) for start in self.starts)


@attrs.define(eq=False, repr=False)
class CommitLog:
    """An open log. `flushed_where`: everything before it survives a power cut.

    Longer than 300 lines because a master that encodes, a slave that copies, flushing, preparing files and cleaning
    all move the same few offsets, and the invariants below must hold after each of them.
    """

    _queue: MappedFileQueue
    _topic_queue_table: TopicQueueTable
    _tracer: Tracer
    #: It never falls: what was promised of it stays true until the log is opened again.
    flushed_where: int
    #: Where the first record begins whose header is not in the log yet: bytes that are appended as they come may end
    #: inside of a record. It is `append_offset` if the log ends with a whole record.
    _next_record_offset: int
    #: Called when the first byte of a log is not at 0; what it returns is synced with the log.
    _on_begin: Callable[[int], DiskFile | None] = lambda _: None
    #: The file that comes next, if somebody has offered one. It begins at `next_file_offset`, or is of no use any more.
    _prepared: PreparedFile | None = attrs.field(default=None, init=False)
    #: A sync of bytes of this log that failed elsewhere: every flush fails from then on.
    _failed_sync: OSError | None = attrs.field(default=None, init=False)
    _begin: DiskFile | None = attrs.field(default=None, init=False)
    #: Whether it was called: a first file that could not be written is gone, and the next one may begin at 0.
    _has_begun_late: bool = attrs.field(default=False, init=False)
    lmq_num: int = attrs.field(init=False)
    #: What the transient store pool holds: it comes after the last file's valid bytes.
    _uncommitted: bytearray = attrs.field(factory=bytearray, init=False)
    _commit_failed: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    @lmq_num.default
    def _count_lmqs(self) -> int:
        return sum(is_lmq(topic) for topic, _ in self._topic_queue_table)

    @classmethod
    def open(cls, disk: Disk, file_size_bytes: int, tracer: Tracer) -> CommitLog:
        """Open a log that stands alone, without queues: all of it is read, and a torn tail cut.

        What was found is in the page cache and counts as unflushed until the next sync. Raises `StoreLayoutError`,
        `DamagedLog`, `OSError`.
        """
        queue = MappedFileQueue(disk, COMMIT_LOG_DIRECTORY, file_size_bytes)
        table: TopicQueueTable = {}
        try:
            queue.load()
            walk = LogWalk(queue, queue.min_offset, queue.min_offset, after_crash=False)
            for batch in walk.batches():
                table.update(
                    ((request.topic, request.queue_id), request.consume_queue_offset + 1)
                    for request in batch
                    if request.takes_queue_offset
                )
            return cls.recovered(queue, walk.found_end, table, queue.min_offset, tracer)
        except BaseException:
            queue.close()
            raise

    @classmethod
    def recovered(
        cls,
        queue: MappedFileQueue,
        end: LogEnd,
        table: TopicQueueTable,
        flushed_where: int,
        tracer: Tracer,
        *,
        on_begin: Callable[[int], DiskFile | None] = lambda _: None,
    ) -> CommitLog:
        """The log of these files, cut at `end`; `table` has the next offset of each queue. Raises `OSError`."""
        queue.truncate(end.end_offset)
        queue.mark_unflushed(flushed_where)
        tracer.emit(
            StoreOpen(offset=end.end_offset, size=end.cut_bytes, status="torn_tail_cut" if end.cut_bytes else "clean")
        )
        return cls(queue, table, tracer, flushed_where, queue.max_offset, on_begin)

    # Reads.

    @property
    def min_offset(self) -> int:
        """The offset of the first byte."""
        return self._queue.min_offset

    @property
    def max_offset(self) -> int:
        """The offset after the last byte that may be read."""
        return self._queue.max_offset

    @property
    def append_offset(self) -> int:
        """Where the next record begins, if its file has room: after `max_offset` while something is not committed."""
        return self._queue.max_offset + len(self._uncommitted)

    @property
    def next_file_offset(self) -> int | None:
        """Where the file after the last one begins; None while there is no file."""
        files = self._queue.files
        return files[-1].from_offset + self._queue.file_size_bytes if files else None

    @property
    def file_size_bytes(self) -> int:
        """The size of each file (mappedFileSizeCommitLog)."""
        return self._queue.file_size_bytes

    def select(self, offset: int, size: int) -> memoryview:
        """A view of `size` bytes that lie in one file, without a copy. Raises `ValueError` outside of the log."""
        mapped_file = self._queue.find(offset)
        if mapped_file is None:
            raise ValueError(f"offset {offset} is not in the log, which is {self.min_offset} to {self.max_offset}")
        return mapped_file.select(offset, size)

    def file_at(self, offset: int) -> tuple[memoryview, int]:
        """All bytes of the file that holds `offset`, valid or not, and its first byte's offset. Raises `ValueError`."""
        mapped_file = self._queue.find(offset)
        if mapped_file is None:
            raise ValueError(f"offset {offset} is not in the log, which is {self.min_offset} to {self.max_offset}")
        return mapped_file.whole(), mapped_file.from_offset

    def ranges(self, begin: int, end: int) -> list[memoryview]:
        """Views of everything from `begin` to `end`, one per file."""
        views = []
        while begin < end:
            size = min(end, begin - begin % self.file_size_bytes + self.file_size_bytes) - begin
            views.append(self.select(begin, size))
            begin += size
        return views

    # Writes: for the one writer, `MessageStore`.

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message of a queue takes."""
        return self._topic_queue_table.get((topic, queue_id), 0)

    def queue_offsets(self, topics: Collection[str]) -> TopicQueueTable:
        """The queue offset that the next message of each queue of these topics takes."""
        return {each: offset for each, offset in self._topic_queue_table.items() if each[0] in topics}

    def forget_queue_offsets(self, topics: Collection[str]) -> None:
        """Let the queues of these topics begin at 0 (removeQueueFromTopicQueueTable)."""
        for each in self.queue_offsets(topics):
            del self._topic_queue_table[each]
            self.lmq_num -= is_lmq(each[0])

    def append_message(
        self, encoded: EncodedMessage, store_timestamp_ms: int, *, store_host: str = "", to_pool: bool = False
    ) -> AppendMessageResult:
        """Give a message, or a batch, its offsets and write it, rolling to the next file when this one has no room.

        With `to_pool` it goes to the transient store pool. Raises `MessageIllegal` if no file could hold it, `OSError`
        with nothing appended but, at most, a file's blank end.
        """
        size = len(encoded.data)
        if size + END_FILE_MIN_BLANK_LENGTH > self.file_size_bytes:
            raise MessageIllegal(f"a record of {size} bytes does not fit a file of {self.file_size_bytes} bytes")
        if self._commit_failed or (self._uncommitted and not to_pool):
            self.commit()
        mapped_file = self._file_with_room()
        if size + END_FILE_MIN_BLANK_LENGTH > mapped_file.room_bytes - len(self._uncommitted):
            self.commit()
            self._end_file(mapped_file)
            mapped_file = self._file_with_room()
        offset = mapped_file.end_offset + len(self._uncommitted)
        takes_queue_offset, table = encoded.takes_queue_offset, self._topic_queue_table
        queue_offset = table.get(encoded.topic_queue, 0) if takes_queue_offset else 0
        encoded.place(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=store_timestamp_ms)
        if to_pool:
            self._uncommitted += encoded.data
        else:
            mapped_file.append(encoded.data)
        self._next_record_offset = offset + size
        if takes_queue_offset:
            table[encoded.topic_queue] = queue_offset + len(encoded.starts)
            if encoded.multi_queues:
                self._count_multi_queues(encoded)
        if not to_pool:
            self._tracer.emit(LogAppend(offset=offset, size=size))
        return AppendMessageResult(offset, size, queue_offset, store_timestamp_ms, store_host, encoded.starts)

    @property
    def room_for_rows_bytes(self) -> int:
        """How many bytes of whole records the last file takes as it is: none while something must be done first."""
        files = self._queue.files
        if not files or self._closed or self._uncommitted or self._commit_failed:
            return 0
        return files[-1].room_bytes - END_FILE_MIN_BLANK_LENGTH

    def append_rows(self, encoded: EncodedRows) -> None:
        """Write the records of rows, which were encoded for `append_offset` and have room; then count their queues.

        Raises `OSError` with nothing appended.
        """
        offset, size = encoded.begin_offset, len(encoded.data)
        assert offset == self.append_offset
        assert size <= self.room_for_rows_bytes
        self._queue.files[-1].append(encoded.data)
        self._next_record_offset = offset + size
        self._topic_queue_table.update(encoded.next_queue_offsets)
        self._tracer.emit(LogAppend(offset=offset, size=size))

    def _count_multi_queues(self, encoded: EncodedMessage) -> None:
        table = self._topic_queue_table
        # A queue that is named twice, or is the message's own, gets the message once.
        for topic_queue in dict.fromkeys(encoded.multi_queues):
            if topic_queue == encoded.topic_queue:
                continue
            if topic_queue not in table and is_lmq(topic_queue[0]):
                self.lmq_num += 1
            table[topic_queue] = table.get(topic_queue, 0) + 1

    def commit(self) -> None:
        """Write what the transient store pool holds to the file. Raises `OSError` with all of it still in the pool.

        Until a commit succeeds again, every append begins with one: the pool does not grow while the disk is full.
        """
        if not self._uncommitted:
            return
        offset, size = self.max_offset, len(self._uncommitted)
        try:
            self._queue.files[-1].append(self._uncommitted)
        except OSError:
            self._commit_failed = True
            raise
        self._commit_failed = False
        self._uncommitted = bytearray()
        self._tracer.emit(LogAppend(offset=offset, size=size))

    def append_data(self, offset: int, data: BytesLike, *, whole_records: bool = False) -> int:
        """Append a master's bytes as they are; they lie in one of its files. Where the log ends now.

        With `whole_records` that is the end of a record, or of a file: what comes after, a part of the next record, is
        left to the caller, and a log that ended with a whole record does so again. Without, they may end anywhere, as
        they do in RocketMQ's slaves. Raises `AppendRefused` if the bytes do not continue this log, or the disk fails;
        `FileSizeMismatch`.
        """
        try:
            return self._append_data(offset, data, whole_records)
        except OSError as error:
            raise AppendRefused(f"{len(data)} bytes at offset {offset}: {error}") from error

    def _append_data(self, offset: int, data: BytesLike, whole_records: bool) -> int:
        if self._uncommitted:
            self.commit()  # of a master that has become a slave
        files, size_bytes, next_record_offset = self._queue.files, len(data), self._next_record_offset
        is_first = not files
        begin = 0 if is_first else files[-1].end_offset
        if is_first:
            if offset % self.file_size_bytes:
                raise FileSizeMismatch(
                    f"the master's log begins at {offset}, no multiple of the file size {self.file_size_bytes} here: "
                    "is mappedFileSizeCommitLog the same on both?"
                )
            begin = next_record_offset = offset
        if offset != begin:
            raise AppendRefused(f"bytes for offset {offset}, this log ends at {begin}")
        file_size_bytes = self._queue.file_size_bytes
        if size_bytes > file_size_bytes - offset % file_size_bytes:
            raise FileSizeMismatch(
                f"{size_bytes} bytes at offset {offset} cross the end of a file of {file_size_bytes} bytes: "
                "is mappedFileSizeCommitLog the same on both?"
            )
        last_record, next_record_offset = follow_records(next_record_offset, offset, data, self.select, file_size_bytes)
        end = offset + size_bytes
        if whole_records and next_record_offset != end:
            end = next_record_offset = max(offset, last_record)
            if end == offset:
                return end
            data = memoryview(data)[: end - offset]
        if is_first and (offset or self._has_begun_late):
            self._has_begun_late = True
            self._begin = self._on_begin(offset)
        mapped_file = self._add_file(offset) if is_first else self._file_with_room()
        mapped_file.append(data)
        self._next_record_offset = next_record_offset
        self._tracer.emit(LogAppend(offset=offset, size=len(data)))
        return end

    async def remove_unwritten_file(self) -> None:
        """Remove a slave's first file where nothing could be written to it: the master may have cleaned its own by now.

        Durably: where the log begins next must not come to the disk before. Does nothing to a log that holds something.
        Raises `AppendRefused` if the disk fails.
        """
        files = self._queue.files
        if len(files) > 1 or (files and files[0].wrote_position):
            return
        try:
            self._queue.remove_last_file()
            await self.sync_names()
        except OSError as error:
            raise AppendRefused(f"the log's first file, which holds nothing, cannot be removed: {error}") from error

    def _file_with_room(self) -> MappedFile:
        files = self._queue.files
        if files and files[-1].room_bytes:
            return files[-1]
        return self._add_file(files[-1].end_offset if files else 0)

    def _add_file(self, from_offset: int) -> MappedFile:
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed")
        prepared = self._prepared
        if prepared is not None and prepared.from_offset == from_offset:
            self._prepared = None
            mapped_file = self._queue.add_created_file(prepared.take(), from_offset)
        else:
            mapped_file = self._queue.add_file(from_offset)
        self._tracer.emit(LogRoll(offset=from_offset))
        return mapped_file

    # The next file, prepared: for AllocateMappedFileService.

    @property
    def prepared(self) -> PreparedFile | None:
        """The file that was offered and not taken yet."""
        return self._prepared

    def offer(self, prepared: PreparedFile) -> None:
        """Have this file taken when the log needs one that begins there."""
        self._prepared = prepared

    def withdraw(self) -> None:
        """Take the offer back: the log makes its next file itself."""
        self._prepared = None

    def _end_file(self, mapped_file: MappedFile) -> None:
        offset, room = mapped_file.end_offset, mapped_file.room_bytes
        mapped_file.append(encode_blank(room), advance=room)
        self._tracer.emit(LogAppend(offset=offset, size=room))

    # Durability: for the flush services.

    async def flush(self) -> int:
        """Make durable what was appended before the call; return the new `flushed_where`. Raises `OSError`.

        `flushed_where` moves only after every sync has succeeded.
        """
        target = self.max_offset
        if self._begin is not None:
            await self._begin.sync()
            self._begin = None
        await self._queue.flush()
        if self._failed_sync is not None:
            raise self._failed_sync
        # A slave's first file, to which nothing could be written, may have gone meanwhile, and its offset with it.
        self.flushed_where = max(self.flushed_where, min(target, self.max_offset))
        return self.flushed_where

    def note_failed_sync(self, error: OSError) -> None:
        """A sync of this log's bytes has failed elsewhere: from now on every flush raises `error`."""
        self._failed_sync = error

    def uncommitted_pages(self) -> int:
        """How many pages of 4,096 bytes a commit would move the end by."""
        return self.append_offset // PAGE_BYTES - self.max_offset // PAGE_BYTES

    def unflushed_pages(self) -> int:
        """How many pages a flush would move `flushed_where` by."""
        return self.max_offset // PAGE_BYTES - self.flushed_where // PAGE_BYTES

    # Cleaning: for CleanCommitLogService.

    def remove_oldest_file(self) -> bool:
        """Remove the oldest file; whether that was done: never the last one, nor while a name is not synced.

        Raises `OSError`.
        """
        return self._queue.remove_first_file()

    async def sync_names(self) -> None:
        """Make the names of the log's files durable. Raises `OSError`. A checkpoint only if they were not."""
        await sync_directories(self._queue.disk, self._queue.dirty_directories)

    def close(self) -> None:
        """Close the files; every later append is an `OSError`. Nothing is committed or flushed here."""
        self._closed = True
        self._queue.close()
        if self._prepared is not None:
            self._prepared.file.close()
