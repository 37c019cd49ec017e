"""One file of the index (IndexFile): a hash table from keys to log offsets, appended to and then full.

A header of 40 bytes, `hash_slot_num` slots of 4 and `index_num` entries of 20. A slot names the newest entry of its
chain, an entry the one before it; entry 0 is not used, and stands for none. A file is large and sparse: nothing here
reads all of it but a recovery after a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import attrs

from rmq_actors.ports.disk import DiskFile
from rmq_actors.store.files.formats import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, crosses_sectors

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import Int32Array, Int64Array

_INT_MAX = 0x7FFF_FFFF
#: Past it an entry's seconds might overflow.
_TIMESTAMP_MAX_MS = 1 << 62
#: How many slots or entries are looked at together.
_CHUNK = 16 * 1024
_ZEROS = bytes(1024 * 1024)


class IndexFileError(ValueError):
    """What an index file holds cannot be: says which file, and where."""


class IndexKey(NamedTuple):
    """One key of one record, as an entry has it."""

    key_hash: int
    physical_offset: int
    store_timestamp_ms: int


def index_file_size_bytes(hash_slot_num: int, index_num: int) -> int:
    """How long a file is: by default 420,000,040 bytes."""
    return INDEX_HEADER.size + hash_slot_num * INDEX_SLOT.size + index_num * INDEX_ENTRY.size


@cache
def _struct_of_slots(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


@cache
def _struct_of_hashes(count: int) -> struct.Struct:
    return struct.Struct(">" + "i16x" * count)


@attrs.define(eq=False, repr=False)
class IndexFile:
    """An open file of the index. The header's numbers are kept here, and count only what is wholly written.

    The entries of a batch are written first, then their slots, then the header: what a failure leaves in between is
    after `index_count`, and written over with the same bytes when the batch comes again.

    Longer than 300 lines because keys are written one by one and as columns, and both must leave the same bytes,
    header and slots included.
    """

    file: DiskFile
    hash_slot_num: int
    index_num: int
    begin_timestamp_ms: int = attrs.field(default=0, init=False)
    end_timestamp_ms: int = attrs.field(default=0, init=False)
    begin_phy_offset: int = attrs.field(default=0, init=False)
    end_phy_offset: int = attrs.field(default=0, init=False)
    #: Slots in use.
    hash_slot_count: int = attrs.field(default=0, init=False)
    #: The number of the next entry: 1 in an empty file.
    index_count: int = attrs.field(default=1, init=False)
    _view: memoryview = attrs.field(init=False)
    #: Writes, and how many of them a sync has covered.
    _writes: int = attrs.field(default=0, init=False)
    _synced_writes: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._view = self.file.map()

    def follow(self, end_phy_offset: int, end_timestamp_ms: int) -> None:
        """Begin, empty, where the file before ends: the first entry's time counts from there, as RocketMQ's does."""
        self.begin_phy_offset = self.end_phy_offset = end_phy_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = end_timestamp_ms

    def load(self, *, is_durable: bool) -> None:
        """Read the header. Raises `IndexFileError` for one that no file has."""
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            index_count,
        ) = INDEX_HEADER.unpack_from(self._view)
        self.index_count = max(1, index_count)
        self._writes += not is_durable
        if (
            index_count > self.index_num
            or not 0 <= self.begin_phy_offset <= self.end_phy_offset
            or not 0 <= self.begin_timestamp_ms <= _TIMESTAMP_MAX_MS
        ):
            raise IndexFileError(
                f"{self.file.path}: {index_count} entries from {self.begin_phy_offset} to {self.end_phy_offset}, "
                f"of at most {self.index_num}"
            )

    @property
    def room(self) -> int:
        """How many more keys the file takes."""
        return self.index_num - self.index_count

    @property
    def is_dirty(self) -> bool:
        """Whether something was written that is not known to be durable."""
        return self._synced_writes < self._writes

    # --- writing ----------------------------------------------------------------------------------------------------

    def put_keys(self, keys: Sequence[IndexKey]) -> None:
        """Append an entry for each key; at most `room`. Raises `OSError` with none of them counted."""
        assert len(keys) <= self.room
        begin_ms, hash_slot_count, number = self.begin_timestamp_ms, self.hash_slot_count, self.index_count
        heads: dict[int, int] = {}
        entries = bytearray(INDEX_ENTRY.size * len(keys))
        for position, (key_hash, offset, timestamp_ms) in enumerate(keys):
            slot = key_hash % self.hash_slot_num
            head = heads.get(slot)
            if head is None:
                head = self._head(slot)
            seconds = min(max(timestamp_ms - begin_ms, 0) // 1000, _INT_MAX) if begin_ms > 0 else 0
            INDEX_ENTRY.pack_into(entries, INDEX_ENTRY.size * position, key_hash, offset, seconds, head)
            if number == 1:
                begin_ms = timestamp_ms
            if head == 0:
                hash_slot_count += 1
            heads[slot] = number
            number += 1
        self._writes += 1
        write_at = self.file.write_at
        write_at(self._entry_position(self.index_count), entries)
        for slot, head in heads.items():
            write_at(INDEX_HEADER.size + INDEX_SLOT.size * slot, INDEX_SLOT.pack(head))
        begin_phy_offset = keys[0].physical_offset if self.index_count == 1 else self.begin_phy_offset
        end = keys[-1]
        self._write_header(
            begin_ms, end.store_timestamp_ms, begin_phy_offset, end.physical_offset, hash_slot_count, number
        )

    def put_key_columns(
        self, key_hashes: Int32Array, physical_offsets: Int64Array, store_timestamps_ms: Int64Array
    ) -> None:
        """`put_keys` of many keys, as columns. Raises `OSError` with none of them counted."""
        # It imports numpy, which takes a while: single keys are put without it.
        from rmq_actors.store.dispatch import index_columns as columns  # noqa: PLC0415

        assert 0 < len(key_hashes) <= self.room
        begin_ms, begin_phy_offset = self.begin_timestamp_ms, self.begin_phy_offset
        seconds = columns.seconds_since(begin_ms, store_timestamps_ms)
        if self.index_count == 1:  # the first counts from the end of the file before, the others from the first
            begin_ms, begin_phy_offset = int(store_timestamps_ms[0]), int(physical_offsets[0])
            seconds[1:] = columns.seconds_since(begin_ms, store_timestamps_ms[1:])
        chains = columns.chain_entries(key_hashes, self.hash_slot_num, self.index_count, self._heads)
        entries = columns.encode_entries(key_hashes, physical_offsets, seconds, chains.before)
        self._writes += 1
        self.file.write_at(self._entry_position(self.index_count), entries)
        self.file.write_scattered(INDEX_HEADER.size + INDEX_SLOT.size * chains.slots, chains.newest)
        self._write_header(
            begin_ms,
            int(store_timestamps_ms[-1]),
            begin_phy_offset,
            int(physical_offsets[-1]),
            self.hash_slot_count + chains.new_slots,
            self.index_count + len(key_hashes),
        )

    def correct_end_timestamp(self, end_timestamp_ms: int) -> None:
        """Say exactly when the last record was stored: a cut leaves it known by the second. Raises `OSError`."""
        if self.end_timestamp_ms != end_timestamp_ms:
            self._write_header(
                self.begin_timestamp_ms,
                end_timestamp_ms,
                self.begin_phy_offset,
                self.end_phy_offset,
                self.hash_slot_count,
                self.index_count,
            )

    def _write_header(
        self,
        begin_timestamp_ms: int,
        end_timestamp_ms: int,
        begin_phy_offset: int,
        end_phy_offset: int,
        hash_slot_count: int,
        index_count: int,
    ) -> None:
        header = INDEX_HEADER.pack(
            begin_timestamp_ms, end_timestamp_ms, begin_phy_offset, end_phy_offset, hash_slot_count, index_count
        )
        if header != self._view[: INDEX_HEADER.size]:
            self._writes += 1
            self.file.write_at(0, header)
        self.begin_timestamp_ms, self.end_timestamp_ms = begin_timestamp_ms, end_timestamp_ms
        self.begin_phy_offset, self.end_phy_offset = begin_phy_offset, end_phy_offset
        self.hash_slot_count, self.index_count = hash_slot_count, index_count

    async def sync(self) -> None:
        """Return when everything written before the call is durable. Raises `OSError`."""
        writes = self._writes
        await self.file.sync()
        self._synced_writes = writes

    # --- reading ----------------------------------------------------------------------------------------------------

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether something in the file may be of that time, both ends included (IndexFile.isTimeMatched)."""
        return end_ms >= self.begin_timestamp_ms and begin_ms <= max(self.begin_timestamp_ms, self.end_timestamp_ms)

    def walk(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Go down the key's chain, newest first: the log offset of each entry that matches, None for one that does not.

        Times are whole seconds from the file's first one on. Raises `IndexFileError` for a chain that does not go down.
        """
        number = self._head(key_hash % self.hash_slot_num)
        while number:
            entry_hash, offset, seconds, before = self.entry(number)
            time_ms = self.begin_timestamp_ms + (seconds * 1000 if number > 1 else 0)
            yield offset if entry_hash == key_hash and begin_ms <= time_ms <= end_ms else None
            if time_ms < begin_ms:
                return
            if not 0 <= before < number:
                raise IndexFileError(f"{self.file.path}: entry {number} names {before} as the one before it")
            number = before

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, log offset, seconds since the file's first time stamp, number of the entry before in its chain."""
        hash_offset_seconds_before: tuple[int, int, int, int] = INDEX_ENTRY.unpack_from(
            self._view, self._entry_position(number)
        )
        return hash_offset_seconds_before

    def _head(self, slot: int) -> int:
        """The newest counted entry of a slot, 0 if there is none."""
        (head,) = INDEX_SLOT.unpack_from(self._view, INDEX_HEADER.size + INDEX_SLOT.size * slot)
        while head >= self.index_count:  # of a batch that failed: its entries were written before its slots
            before = self.entry(head)[3] if head < self.index_num else 0
            head = before if before < head else 0
        return max(0, int(head))

    def _heads(self, slots: Int64Array) -> Int64Array:
        """`_head` of many slots."""
        from rmq_actors.store.dispatch import index_columns as columns  # noqa: PLC0415 - see `put_key_columns`

        heads = columns.read_slots(self._view, INDEX_HEADER.size, self.hash_slot_num, slots)
        for place in ((heads < 0) | (heads >= self.index_count)).nonzero()[0].tolist():
            heads[place] = self._head(int(slots[place]))
        return heads

    def _entry_position(self, number: int) -> int:
        return INDEX_HEADER.size + INDEX_SLOT.size * self.hash_slot_num + INDEX_ENTRY.size * number

    # --- after a crash ----------------------------------------------------------------------------------------------

    def last_before(self, durable_to: int) -> int:
        """The number of the last entry that is surely of a record before `durable_to`; the first one must be.

        After those, sectors may be lost, torn apart, or of an earlier life. Only entries within one sector are asked:
        they are as they were written, or zeros. One across two sectors, right at the end, is left to be written again.
        """
        low, high = 1, self.index_count
        while high - low > 1:
            middle = (low + high) // 2
            if self._crosses_sectors(middle):
                middle += 1 if middle + 1 < high else -1
            if middle == low:
                break
            key_hash, offset, seconds, before = self.entry(middle)
            if offset < durable_to and (key_hash or offset or seconds or before):
                low = middle
            else:
                high = middle
        return low

    def _crosses_sectors(self, number: int) -> bool:
        return crosses_sectors(self._entry_position(number), INDEX_ENTRY.size)

    def cut(self, last: int) -> None:
        """Make `last` the last entry: zero what stands after it, set right the slots and the header. Raises `OSError`.

        Also where nothing has to go: a crash may have left slots that name entries that were lost.
        """
        self._zero_from(self._entry_position(last + 1))
        hash_slot_count = self._repair_slots(last + 1)
        _, end_phy_offset, seconds, _ = self.entry(last)
        end_timestamp_ms = self.end_timestamp_ms
        if last + 1 < self.index_count:
            end_timestamp_ms = self.begin_timestamp_ms + (seconds * 1000 if last > 1 else 0)
        self._write_header(
            self.begin_timestamp_ms, end_timestamp_ms, self.begin_phy_offset, end_phy_offset, hash_slot_count, last + 1
        )

    def _zero_from(self, position: int) -> None:
        end = min(self.file.size_bytes, self.file.written_end())
        for begin in range(position, end, len(_ZEROS)):
            zeros = _ZEROS[: end - begin]
            if self._view[begin : begin + len(zeros)].tobytes() != zeros:
                self._writes += 1
                self.file.write_at(begin, zeros)

    def _repair_slots(self, index_count: int) -> int:
        """Let every slot name an entry before `index_count`, the newest of its chain; how many are in use.

        What a flush has covered is right, and later writes to a slot only ever named later entries.
        """
        used, lost = 0, list[int]()
        for begin, heads in self._slots():
            used += len(heads) - heads.count(0)
            if max(heads) >= index_count:
                lost += [begin + place for place, head in enumerate(heads) if head >= index_count]
        newest = dict.fromkeys(lost, 0)
        if newest:
            for begin, hashes in self._hashes(index_count):
                for number, key_hash in enumerate(hashes, begin):
                    slot = key_hash % self.hash_slot_num
                    if slot in newest:
                        newest[slot] = number
            self._writes += 1
        for slot, number in newest.items():
            self.file.write_at(INDEX_HEADER.size + INDEX_SLOT.size * slot, INDEX_SLOT.pack(number))
            if not number:
                used -= 1
        return used

    def _slots(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The slots' heads in chunks, each with its first slot's number. Chunks of zeros are left out."""
        for begin in range(0, self.hash_slot_num, _CHUNK):
            count = min(_CHUNK, self.hash_slot_num - begin)
            position = INDEX_HEADER.size + INDEX_SLOT.size * begin
            chunk = self._view[position : position + INDEX_SLOT.size * count].tobytes()
            if chunk != _ZEROS[: len(chunk)]:
                yield begin, _struct_of_slots(count).unpack(chunk)

    def _hashes(self, index_count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The entries' key hashes in chunks, each with its first entry's number."""
        for begin in range(1, index_count, _CHUNK):
            count = min(_CHUNK, index_count - begin)
            yield begin, _struct_of_hashes(count).unpack_from(self._view, self._entry_position(begin))

    def problems(self) -> Iterator[str]:
        """What is wrong with the file, read as a whole: nothing, if it was written in order and is complete."""
        path = self.file.path
        heads: dict[int, int] = {}
        last_offset = self.begin_phy_offset
        for number in range(1, self.index_count):
            key_hash, offset, seconds, before = self.entry(number)
            slot = key_hash % self.hash_slot_num
            if key_hash < 0 or seconds < 0:
                yield f"{path}: entry {number} has key hash {key_hash} and time {seconds} s"
            if offset < last_offset or (number == 1 and offset != last_offset):
                yield f"{path}: entry {number} is of offset {offset}, the one before of {last_offset}"
            chain = heads.get(slot, 0)
            if before != chain:
                yield f"{path}: entry {number} names {before} as the one before it in slot {slot}, not {chain}"
            heads[slot], last_offset = number, offset
        if last_offset != self.end_phy_offset:
            yield f"{path}: the last entry is of offset {last_offset}, endPhyOffset is {self.end_phy_offset}"
        if len(heads) != self.hash_slot_count:
            yield f"{path}: {len(heads)} slots are in use, hashSlotCount is {self.hash_slot_count}"
        for begin, chunk in self._slots():
            for slot, head in enumerate(chunk, begin):
                if head != heads.pop(slot, 0):
                    yield f"{path}: slot {slot} names entry {head}, which is not the newest of its chain"
        for slot, head in heads.items():
            yield f"{path}: slot {slot} is empty, entry {head} belongs to it"
