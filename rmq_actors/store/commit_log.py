"""The commit log: bytes over files of one size, appended as records by a master, as they come by a slave (CommitLog).

Passive and synchronous: no await stands between taking an offset and writing the record. It is written by
`MessageStore` alone; anyone may read. Durability is tracked here (`flushed_where`) and produced by the flush services.
"""

from __future__ import annotations

import errno

import attrs

from rmq_actors.ports.disk import BytesLike, Disk
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.mapped_file import MappedFile
from rmq_actors.store.mapped_file_queue import MappedFileQueue
from rmq_actors.store.recovery import Recovered, TopicQueueTable, recover
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import (
    BLANK,
    BLANK_MAGIC,
    END_FILE_MIN_BLANK_LENGTH,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    EncodedMessage,
    MessageIllegal,
    encode_blank,
)

_ACTOR = "CommitLog"


class AppendRefused(ValueError):
    """A master's bytes that this log does not take: another shape, or a disk that fails. Nothing was written."""

    reason = "append_refused"


@attrs.frozen
class AppendMessageResult:
    """Where a message went. `end_offset` is the offset behind its last byte."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp_ms: int

    @property
    def end_offset(self) -> int:
        """The offset after the record."""
        return self.offset + self.size


@attrs.define(eq=False)
class CommitLog:
    """An open log. `flushed_where`: everything before it survives a power cut."""

    _queue: MappedFileQueue
    _topic_queue_table: TopicQueueTable
    _tracer: Tracer
    flushed_where: int
    #: Where the first record begins whose header is not in the log yet: raw bytes may end inside of a record.
    _next_record_offset: int
    _closed: bool = attrs.field(default=False, init=False)

    @classmethod
    def open(cls, disk: Disk, file_size_bytes: int, tracer: Tracer) -> CommitLog:
        """Open the log below `commitlog/`, cutting a torn tail.

        What was found is in the page cache and counts as unflushed until the next sync. Raises `StoreLayoutError`,
        `DamagedLog`, `OSError`.
        """
        queue = MappedFileQueue(disk, COMMIT_LOG_DIRECTORY, file_size_bytes)
        try:
            queue.load()
            recovered: Recovered = recover(queue)
            queue.truncate(recovered.end_offset)
        except BaseException:
            queue.close()
            raise
        tracer.emit(
            "store.open",
            _ACTOR,
            offset=recovered.end_offset,
            size=recovered.torn_bytes,
            status="torn_tail_cut" if recovered.torn_bytes else "clean",
        )
        return cls(queue, recovered.topic_queue_table, tracer, queue.min_offset, queue.max_offset)

    # Reads.

    @property
    def min_offset(self) -> int:
        """The offset of the first byte."""
        return self._queue.min_offset

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte."""
        return self._queue.max_offset

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

    def ranges(self, begin: int, end: int) -> list[memoryview]:
        """Views of everything from `begin` to `end`, one a file."""
        views = []
        while begin < end:
            size = min(end, begin - begin % self.file_size_bytes + self.file_size_bytes) - begin
            views.append(self.select(begin, size))
            begin += size
        return views

    # Writes: for the one writer, `MessageStore`.

    def append_message(self, encoded: EncodedMessage, store_timestamp_ms: int) -> AppendMessageResult:
        """Give a message its offsets and write it, rolling to the next file when this one has no room.

        Raises `MessageIllegal` if no file could hold it, `OSError` with nothing appended but, at most, a file's blank
        end.
        """
        size = len(encoded.data)
        if size + END_FILE_MIN_BLANK_LENGTH > self.file_size_bytes:
            raise MessageIllegal(f"a record of {size} bytes does not fit a file of {self.file_size_bytes} bytes")
        mapped_file = self._file_with_room()
        if size + END_FILE_MIN_BLANK_LENGTH > mapped_file.room_bytes:
            self._end_file(mapped_file)
            mapped_file = self._file_with_room()
        offset = mapped_file.end_offset
        queue_offset = self._topic_queue_table.get(encoded.topic_queue, 0) if encoded.takes_queue_offset else 0
        encoded.place(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=store_timestamp_ms)
        mapped_file.append(encoded.data)
        self._next_record_offset = mapped_file.end_offset
        if encoded.takes_queue_offset:
            self._topic_queue_table[encoded.topic_queue] = queue_offset + 1
        self._tracer.emit("log.append", _ACTOR, offset=offset, size=size)
        return AppendMessageResult(offset, size, queue_offset, store_timestamp_ms)

    def append_data(self, offset: int, data: BytesLike) -> None:
        """Append a master's bytes as they are; they lie in one of its files.

        Raises `AppendRefused` if they do not continue this log, do not fit its files, or the disk fails.
        """
        try:
            self._append_data(offset, data)
        except OSError as error:
            raise AppendRefused(f"{len(data)} bytes at offset {offset}: {error}") from error

    def _append_data(self, offset: int, data: BytesLike) -> None:
        begin, next_record_offset = self.max_offset, self._next_record_offset
        if not self._queue.files:
            if offset % self.file_size_bytes:
                raise AppendRefused(
                    f"the master's log begins at {offset}, no multiple of the file size {self.file_size_bytes} here: "
                    "is mappedFileSizeCommitLog the same on both?"
                )
            begin = next_record_offset = offset
        if offset != begin:
            raise AppendRefused(f"bytes for offset {offset}, this log ends at {begin}")
        if len(data) > self.file_size_bytes - offset % self.file_size_bytes:
            raise AppendRefused(
                f"{len(data)} bytes at offset {offset} cross the end of a file of {self.file_size_bytes} bytes: "
                "is mappedFileSizeCommitLog the same on both?"
            )
        next_record_offset = self._follow_records(next_record_offset, offset, data)
        mapped_file = self._file_with_room() if self._queue.files else self._add_file(offset)
        mapped_file.append(data)
        self._next_record_offset = next_record_offset
        self._tracer.emit("log.append", _ACTOR, offset=offset, size=len(data))

    def _follow_records(self, at: int, begin: int, data: BytesLike) -> int:
        """Where the next record begins once `data` is at `begin`; `at`: where before. Raises `AppendRefused`.

        A master with other file sizes may send frames that fit this log's files: the records in them then do not (S3).
        """
        file_end = begin - begin % self.file_size_bytes + self.file_size_bytes
        while at + BLANK.size <= begin + len(data):
            head = bytes(self.select(at, begin - at)) if at < begin else b""
            position = max(0, at - begin)
            total_size, magic = BLANK.unpack(head + bytes(data[position : position + BLANK.size - len(head)]))
            room = file_end - at
            is_message = (
                magic == MESSAGE_MAGIC and RECORD_OVERHEAD_BYTES <= total_size <= room - END_FILE_MIN_BLANK_LENGTH
            )
            if not is_message and not (magic == BLANK_MAGIC and total_size == room):
                raise AppendRefused(
                    f"offset {at}: no record that fits a file of {self.file_size_bytes} bytes (totalSize {total_size}, "
                    f"magic 0x{magic:08X}): is mappedFileSizeCommitLog the same on both?"
                )
            at += total_size
        return at

    def _file_with_room(self) -> MappedFile:
        files = self._queue.files
        if files and files[-1].room_bytes:
            return files[-1]
        return self._add_file(files[-1].end_offset if files else 0)

    def _add_file(self, from_offset: int) -> MappedFile:
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed")
        mapped_file = self._queue.add_file(from_offset)
        self._tracer.emit("log.roll", _ACTOR, offset=from_offset)
        return mapped_file

    def _end_file(self, mapped_file: MappedFile) -> None:
        offset, room = mapped_file.end_offset, mapped_file.room_bytes
        mapped_file.append(encode_blank(room), advance=room)
        self._tracer.emit("log.append", _ACTOR, offset=offset, size=room)

    # Durability: for the flush services.

    async def flush(self) -> int:
        """Make durable what was appended before the call; return the new `flushed_where`. Raises `OSError`.

        `flushed_where` moves only after every sync has succeeded.
        """
        target = self.max_offset
        directory_was_dirty, self._queue.directory_is_dirty = self._queue.directory_is_dirty, False
        try:
            for mapped_file in self._queue.files[:]:
                if mapped_file.end_offset > self.flushed_where:
                    await mapped_file.file.sync()
            if directory_was_dirty:
                await self._queue.disk.sync_directory(self._queue.directory)
                # The first file brought its directory along: that name, too, is lost if nobody syncs it.
                await self._queue.disk.sync_directory(self._queue.directory.rpartition("/")[0])
        except BaseException:
            self._queue.directory_is_dirty |= directory_was_dirty
            raise
        self.flushed_where = max(self.flushed_where, target)
        return self.flushed_where

    def close(self) -> None:
        """Close the files; every later append is an `OSError`. Nothing is flushed here."""
        self._closed = True
        self._queue.close()
