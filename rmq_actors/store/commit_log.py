"""The commit log: one sequence of bytes over files of one size, records for a master, raw bytes for a slave (CommitLog).

Passive and synchronous: no await stands between taking an offset and writing the record. It is written by `MessageStore`
alone; anyone may read. Durability is tracked here (`flushed_where`) and produced by the flush services.
"""

from __future__ import annotations

import attrs

from rmq_actors.ports.disk import BytesLike, Disk
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.mapped_file import MappedFile
from rmq_actors.store.mapped_file_queue import MappedFileQueue
from rmq_actors.store.recovery import Recovered, TopicQueueTable, recover
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import END_FILE_MIN_BLANK_LENGTH, EncodedMessage, MessageIllegal, encode_blank

_ACTOR = "CommitLog"


class AppendRefused(ValueError):
    """Raw bytes that cannot continue this log: the master's log has another shape. Nothing was written."""


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

    @classmethod
    def open(cls, disk: Disk, file_size_bytes: int, tracer: Tracer) -> CommitLog:
        """Open the log below `commitlog/`, cutting a torn tail.

        What was found is in the page cache and counts as unflushed until the next sync. Raises `StoreLayoutError`, `DamagedLog`,
        `OSError`.
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
        return cls(queue, recovered.topic_queue_table, tracer, queue.min_offset)

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

        Raises `MessageIllegal` if no file could hold it, `OSError` with nothing appended but, at most, a file's blank end.
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
        if encoded.takes_queue_offset:
            self._topic_queue_table[encoded.topic_queue] = queue_offset + 1
        self._tracer.emit("log.append", _ACTOR, offset=offset, size=size)
        return AppendMessageResult(offset, size, queue_offset, store_timestamp_ms)

    def append_data(self, offset: int, data: BytesLike) -> None:
        """Append a master's bytes as they are; they lie in one of its files.

        Raises `AppendRefused` if they do not continue this log or do not fit its files, `OSError` with nothing appended.
        """
        if not self._queue.files:
            if offset % self.file_size_bytes:
                raise AppendRefused(
                    f"the master's log begins at {offset}, no multiple of this store's file size {self.file_size_bytes}: "
                    "is mappedFileSizeCommitLog the same on both?"
                )
            self._add_file(offset)
        if offset != self.max_offset:
            raise AppendRefused(f"bytes for offset {offset}, this log ends at {self.max_offset}")
        mapped_file = self._file_with_room()
        if len(data) > mapped_file.room_bytes:
            raise AppendRefused(
                f"{len(data)} bytes at offset {offset} cross the end of a file of {self.file_size_bytes} bytes: "
                "is mappedFileSizeCommitLog the same on both?"
            )
        mapped_file.append(data)
        self._tracer.emit("log.append", _ACTOR, offset=offset, size=len(data))

    def _file_with_room(self) -> MappedFile:
        files = self._queue.files
        if files and files[-1].room_bytes:
            return files[-1]
        return self._add_file(files[-1].end_offset if files else 0)

    def _add_file(self, from_offset: int) -> MappedFile:
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
        except BaseException:
            self._queue.directory_is_dirty |= directory_was_dirty
            raise
        self.flushed_where = max(self.flushed_where, target)
        return self.flushed_where

    def close(self) -> None:
        """Close the files. Nothing is flushed here."""
        self._queue.close()
