"""One queue of one topic: where its messages are in the commit log (ConsumeQueue).

An entry is 20 bytes, `int64 commit-log offset | int32 size | int64 tags code`. Entry k stands at index k, always: where
RocketMQ would append an entry at the wrong index, blank entries fill the gap. An index is the consumer's offset.

Only `flush` yields. A record's offset is always its offset in the commit log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import attrs

from rmq_actors.ports.disk import DiskFile
from rmq_actors.store.dispatch.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.files.formats import (
    BLANK_ENTRY,
    BLANK_SIZE,
    CQ_STORE_UNIT_SIZE,
    QUEUE_ENTRY,
    QUEUE_ENTRY_HEAD,
    crosses_sectors,
)
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue

_log = logging.getLogger(__name__)

#: How many indexes of its queue a record may leave empty; one that leaves more is taken for damaged.
GAP_UNITS_MAX = 1_000_000
_UNITS_A_CHUNK = 4096
_INDEX_MAX = ((1 << 63) - 1) // CQ_STORE_UNIT_SIZE
#: No record is this broker's own.
NEVER_OWN: Final = 1 << 63
_NO_RECORD = -1
#: How many digits an int64 has.
_INDEX_DIGITS_MAX = 19


def parse_queue_offset(text: str) -> int | None:
    """A queue offset as records name it, in decimal; None for any other text, however long."""
    return int(text) if len(text) <= _INDEX_DIGITS_MAX and text.isascii() and text.isdigit() else None


class QueueEntry(NamedTuple):
    """What a record asks of a queue. Without a store time the entry gets no extension unit.

    `is_further`: the queue is not the record's own. What index the entry has there, properties of the record say.
    """

    consume_queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int | None = None
    is_further: bool = False


@attrs.define(eq=False, repr=False)
class ConsumeQueue:
    """A queue over its files. `max_physic_offset`: the end of the last record that it knows, -1 if none.

    Longer than 300 lines because entries are written one by one and as columns, read, repaired and cleaned, and each
    of these keeps the same few numbers true.
    """

    topic: str
    queue_id: int
    queue: MappedFileQueue
    ext: ConsumeQueueExt | None = None
    #: From this offset of the log on records are this broker's own, a master's: it has given them their indexes.
    own_from: int = attrs.field(default=NEVER_OWN, kw_only=True)
    max_physic_offset: int = attrs.field(default=_NO_RECORD, init=False)
    #: Entries that came again, and those whose index was taken or no index at all.
    repeats: int = attrs.field(default=0, init=False)
    refused: int = attrs.field(default=0, init=False)
    #: Entries that left indexes before them empty; the log names the first one.
    gaps: int = attrs.field(default=0, init=False)
    _min_index: int = attrs.field(default=0, init=False)
    #: The offset of the record at `_min_index`, -1 if it was not looked up.
    _min_record_offset: int = attrs.field(default=_NO_RECORD, init=False)

    # Reads.

    @property
    def min_offset_in_queue(self) -> int:
        """The index of the first entry whose record is still in the log; the queue's end if there is none."""
        return self._min_index

    @property
    def max_offset_in_queue(self) -> int:
        """The index after the last entry."""
        return self.queue.max_offset // CQ_STORE_UNIT_SIZE

    def entry(self, index: int) -> tuple[int, int, int] | None:
        """`(physical_offset, size, tags_code)`; None before the minimum, past the end, and where a blank stands."""
        if not self._min_index <= index < self.max_offset_in_queue:
            return None
        unit = self._unit(index)
        return None if unit[1] == BLANK_SIZE else unit

    def entries(self, index: int, units_max: int) -> memoryview:
        """The entries from `index` on, as they are stored, of one file and at most `units_max`; without a copy.

        Empty outside of the queue. Blanks may be among them: their size is `BLANK_SIZE`.
        """
        if not self._min_index <= index < self.max_offset_in_queue:
            return memoryview(b"")
        return self._units(index, units_max)

    def roll_next_file(self, index: int) -> int:
        """The first index of the file after the one that holds `index`."""
        units = self.queue.file_size_bytes // CQ_STORE_UNIT_SIZE
        return index + units - index % units

    def offset_in_queue_by_time(
        self, timestamp_ms: int, min_physical_offset: int, store_timestamp_of: Callable[[int, int], int]
    ) -> int:
        """The index of the message stored nearest to `timestamp_ms`; of two equally near ones the older.

        `store_timestamp_of(physical_offset, size)` gives the store time of a record, -1 if the log does not have it:
        the answer is 0 then. Unlike 4.9, which chooses a file by its modification time, all files are searched.
        """
        low, high = self._min_index, self.max_offset_in_queue - 1
        left, right = (-1, 0), (-1, 0)
        while low <= high:
            middle = (low + high) // 2
            found = self._next_entry(middle, high + 1)
            if found is None:
                high = middle - 1
                continue
            index, offset, size = found
            if offset < min_physical_offset:
                low = index + 1
                continue
            stored = store_timestamp_of(offset, size)
            if stored < 0:
                return 0
            if stored == timestamp_ms:
                return index
            if stored > timestamp_ms:
                high, right = middle - 1, (index, stored)
            else:
                low, left = index + 1, (index, stored)
        if left[0] < 0:
            return max(0, right[0])
        if right[0] < 0:
            return left[0]
        return right[0] if timestamp_ms - left[1] > right[1] - timestamp_ms else left[0]

    def _unit(self, index: int) -> tuple[int, int, int]:
        position = index * CQ_STORE_UNIT_SIZE
        mapped_file = self.queue.find(position)
        assert mapped_file is not None
        unit: tuple[int, int, int] = QUEUE_ENTRY.unpack_from(mapped_file.whole(), position - mapped_file.from_offset)
        return unit

    def _units(self, index: int, units_max: int) -> memoryview:
        position = index * CQ_STORE_UNIT_SIZE
        mapped_file = self.queue.find(position)
        assert mapped_file is not None
        begin = position - mapped_file.from_offset
        return mapped_file.whole()[begin : min(mapped_file.wrote_position, begin + units_max * CQ_STORE_UNIT_SIZE)]

    def _next_entry(self, index: int, end: int) -> tuple[int, int, int] | None:
        """The first entry that is not blank, from `index` on and before `end`: its index, offset and size."""
        while index < end:
            offset, size, _ = self._unit(index)
            if size != BLANK_SIZE:
                return index, offset, size
            units = self._units(index, min(_UNITS_A_CHUNK, end - index))
            count = len(units) // CQ_STORE_UNIT_SIZE
            if bytes(units) == BLANK_ENTRY * count:  # comparing views goes byte by byte
                index += count
            else:
                index += 1
        return None

    def _last_entry(self, end: int, begin: int) -> tuple[int, int, int] | None:
        """The last entry that is not blank, before `end` and from `begin` on."""
        while end > begin:
            end -= 1
            offset, size, _ = self._unit(end)
            if size != BLANK_SIZE:
                return end, offset, size
        return None

    @property
    def _first_index(self) -> int:
        return self.queue.min_offset // CQ_STORE_UNIT_SIZE

    # Writes: for the one owner, `ConsumeQueues`.

    def put_message_position_info(self, entries: Sequence[QueueEntry]) -> None:
        """Append entries, in the log's order. Those of records that the queue knows, or at a taken index, are ignored.

        Raises `OSError`, with any part of them appended; they may come again. Raises `QueueBeginsAgain`.
        """
        data: list[bytes] = []
        pack, ext = QUEUE_ENTRY.pack, self.ext
        expected, max_physic_offset = self.max_offset_in_queue, self.max_physic_offset
        for index, offset, size, tags_code, store_timestamp_ms, is_further in entries:
            end = offset + size
            if end <= max_physic_offset:
                self.repeats += 1
                continue
            if index != expected:
                if not self._takes(index, expected, offset, is_further=is_further):
                    continue
                if not data and self.queue.max_offset == self.queue.min_offset:
                    expected = self._begin_at(index)
                if index > expected:
                    data.append(BLANK_ENTRY * (index - expected))
                expected = index
            code = tags_code
            if ext is not None and store_timestamp_ms is not None:
                code = ext.put(CqExtUnit(tags_code, store_timestamp_ms, b"")) or tags_code
            data.append(pack(offset, size, code))
            expected += 1
            max_physic_offset = end
        if data:
            self._append(b"".join(data), max_physic_offset)

    def put_units(self, units: memoryview, first_index: int, first_physical_offset: int, end_offset: int) -> bool:
        """Append stored entries, of records from `first_physical_offset` to `end_offset`, at indexes one after another.

        False, with nothing done, where `put_message_position_info` must look at each entry. Raises `OSError` like it.
        """
        if (
            self.ext is not None
            or first_index != self.max_offset_in_queue
            or first_physical_offset < self.max_physic_offset
        ):
            return False
        self._append(units, end_offset)
        return True

    def _takes(self, index: int, expected: int, offset: int, *, is_further: bool) -> bool:
        """Whether an entry may stand at an index that is not the next one.

        Raises `QueueBeginsAgain`, but never because of what a record says of a queue that is not its own, nor
        because of one of a master's own: it knows which topics it has deleted, and another number 0 is a defect.
        """
        is_empty = self.queue.max_offset == self.queue.min_offset and expected == self.max_offset_in_queue
        if is_empty and 0 <= index <= _INDEX_MAX:
            return True
        if index == 0 and not is_further and offset < self.own_from:
            raise QueueBeginsAgain(self.topic, self.queue_id, offset)
        if 0 < index - expected <= GAP_UNITS_MAX:
            self.gaps += 1
            if self.gaps == 1:
                _log.warning(
                    "%s-%d: the record at %d is number %d of its queue, which ends at %d: blank entries fill the gap, "
                    "and others like it",
                    *(self.topic, self.queue_id, offset, index, expected),
                )
            return True
        self.refused += 1
        _log.warning(
            "%s-%d: the record at %d is number %d of its queue, which ends at %d: it gets no entry",
            *(self.topic, self.queue_id, offset, index, expected),
        )
        return False

    def _begin_at(self, index: int) -> int:
        """Let the first file of an empty queue be the one that holds `index`; the index that it begins with."""
        from_offset = index * CQ_STORE_UNIT_SIZE
        from_offset -= from_offset % self.queue.file_size_bytes
        if self.queue.files and self.queue.min_offset != from_offset:
            self.queue.remove_last_file()
        if not self.queue.files:
            self.queue.add_file(from_offset)
        self._min_index, self._min_record_offset = index, _NO_RECORD
        return from_offset // CQ_STORE_UNIT_SIZE

    def _append(self, data: bytes | memoryview, max_physic_offset: int) -> None:
        rest = memoryview(data)
        try:
            while rest:
                files = self.queue.files
                if not files or not files[-1].room_bytes:
                    self.queue.add_file(self.queue.max_offset)
                part = rest[: files[-1].room_bytes]
                files[-1].append(part)
                rest = rest[len(part) :]
            self.max_physic_offset = max_physic_offset
        except OSError:
            self._find_max_physic_offset()
            raise

    def _find_max_physic_offset(self) -> None:
        last = self._last_entry(self.max_offset_in_queue, self._first_index)
        self.max_physic_offset = _NO_RECORD if last is None else last[1] + last[2]

    # Recovery and cleaning.

    def recover(self, durable_to: int, begin: int = 0) -> None:
        """Open the files, and drop every entry of a record at `durable_to` or after it.

        All entries of records from `begin` to there must be there; of others anything may stand: those before `begin`
        were about to be removed. Raises `StoreLayoutError`, `OSError`.
        """

        def holds_durable(_: int, file: DiskFile) -> bool:
            return holds_record_between(file, begin, durable_to)

        self.queue.load(holds_durable=holds_durable)
        self._cut(self._find_cut(durable_to))
        if self.ext is not None:
            self.ext.recover(self._last_ext_address())

    def truncate_dirty_logic_files(self, physical_offset: int) -> None:
        """Drop every entry of a record at `physical_offset` or after it. Raises `OSError`."""
        self._cut(self._find_cut(physical_offset))
        if self.ext is not None:
            self.ext.truncate_by_max_address(self._last_ext_address())

    def _cut(self, end: int) -> None:
        if self.queue.files:
            self.queue.truncate(end * CQ_STORE_UNIT_SIZE)
        self._find_max_physic_offset()
        self.correct_min_offset(0)

    def _find_cut(self, physical_offset: int) -> int:
        """The index after the last entry of a record before `physical_offset`: those form a prefix of the queue.

        What stands there may be torn at sector edges, so an entry that crosses such an edge proves nothing, unless it
        is the next one. Blank entries belong to the entry after them.
        """
        end, low, high = self.max_offset_in_queue, self._first_index, self._first_index
        for mapped_file in reversed(self.queue.files):
            begin = mapped_file.from_offset // CQ_STORE_UNIT_SIZE
            found = self._next_entry(begin, end)
            if found is not None and self._is_before(found, physical_offset):
                # Past the written end are holes, which cost a lot to read.
                written_bytes = min(mapped_file.file.written_end(), mapped_file.wrote_position)
                low, high = found[0] + 1, begin + written_bytes // CQ_STORE_UNIT_SIZE
                break
        while low < high:
            middle = (low + high) // 2
            probe = middle - 1 if middle > low and self._crosses_sectors(middle) else middle
            found = self._next_entry(probe, end)
            if found is None or not self._is_before(found, physical_offset):
                high = probe
            else:
                low = found[0] + 1
        return low

    def _is_before(self, found: tuple[int, int, int], physical_offset: int) -> bool:
        index, offset, size = found
        if size <= 0 or not 0 <= offset < physical_offset:
            return False
        if not self._crosses_sectors(index):
            return True
        previous = self._last_entry(index, self._first_index)
        return previous is None or offset >= previous[1] + previous[2]

    def _crosses_sectors(self, index: int) -> bool:
        return crosses_sectors(index * CQ_STORE_UNIT_SIZE % self.queue.file_size_bytes, CQ_STORE_UNIT_SIZE)

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Move the minimum to the first entry of a record at `log_min_offset` or after it, or to the queue's end.

        The log's minimum never goes back: where nothing changed, the file is not even looked at.
        """
        low, end = max(self._min_index, self._first_index), self.max_offset_in_queue
        if low < end and self._min_record_offset >= log_min_offset:
            return
        found = self._next_entry(low, end)
        high = low if found is None or found[1] >= log_min_offset else end
        while low < high:
            middle = (low + high) // 2
            found = self._next_entry(middle, end)
            if found is None or found[1] >= log_min_offset:
                high = middle
            else:
                low = found[0] + 1
        found = self._next_entry(low, end)
        self._min_index, self._min_record_offset = (end, _NO_RECORD) if found is None else found[:2]

    def delete_expired_file(self, log_min_offset: int) -> int:
        """Remove the oldest file if its last record is before `log_min_offset`; how many were removed.

        Never the last file, and one at a time: see `MappedFileQueue.remove_first_file`. Raises `OSError`.
        """
        removed = 0
        if len(self.queue.files) > 1:
            end = self.queue.files[1].from_offset // CQ_STORE_UNIT_SIZE
            last = self._last_entry(end, self._first_index)
            if last is None or last[1] < log_min_offset:
                removed = int(self.queue.remove_first_file())
        self.correct_min_offset(log_min_offset)
        if self.ext is not None and self._min_index < self.max_offset_in_queue:
            self.ext.truncate_by_min_address(self._unit(self._min_index)[2])
        return removed

    def _last_ext_address(self) -> int | None:
        """The newest address of an extension unit in an entry, if any."""
        if self.ext is None:
            return None
        # Without its files either it is new, or somebody has removed them: then the newest entry has an address.
        end = self.max_offset_in_queue
        first = self._first_index if self.ext.has_files else max(self._first_index, end - 1)
        for index in range(end - 1, first - 1, -1):
            tags_code = self._unit(index)[2]
            if self.ext.is_ext_addr(tags_code):
                return tags_code
        return None

    def mark_dirty(self) -> None:
        """Let the next flush sync all files."""
        for files in self.rows:
            files.mark_dirty()

    @property
    def is_dirty(self) -> bool:
        """Whether there are un-synced bytes."""
        return any(files.is_dirty for files in self.rows)

    async def flush_files(self, least_pages: int = 0) -> None:
        """Make durable what was written before the call, but for the names of files. Raises `OSError`."""
        for files in self.rows:
            await files.flush_files(least_pages)

    @property
    def first_physic_offset(self) -> int:
        """The offset of the record of the first entry that it has a file for, -1 if none."""
        found = self._next_entry(self._first_index, self.max_offset_in_queue)
        return _NO_RECORD if found is None else found[1]

    async def destroy(self) -> None:
        """Remove all files, the newest first; each removal is durable before the next begins. Raises `OSError`."""
        for files in self.rows:
            while files.remove_last_file():
                await files.disk.sync_directory(files.directory)
        self._forget()

    def remove_files(self) -> None:
        """Remove all files now: after a power loss any of them may be there again. Raises `OSError`."""
        for files in self.rows:
            while files.remove_last_file():
                pass
        self._forget()

    def _forget(self) -> None:
        self.max_physic_offset, self._min_index, self._min_record_offset = _NO_RECORD, 0, _NO_RECORD

    @property
    def rows(self) -> list[MappedFileQueue]:
        """Its files, and those of its extension."""
        return [self.queue] if self.ext is None else [self.queue, self.ext.queue]

    def close(self) -> None:
        """Close the files."""
        self.queue.close()
        if self.ext is not None:
            self.ext.queue.close()


def holds_record_between(file: DiskFile, begin: int, physical_offset: int) -> bool:
    """Whether the first entry of a file that is not blank is of a record from `begin` on, before `physical_offset`."""
    view = file.map() if file.size_bytes else memoryview(b"")
    for position in range(0, len(view) - CQ_STORE_UNIT_SIZE + 1, CQ_STORE_UNIT_SIZE):
        offset, size = QUEUE_ENTRY_HEAD.unpack_from(view, position)
        if size != BLANK_SIZE:
            return bool(size > 0 and begin <= offset < physical_offset)
    return False
