"""Checking index files against the log: entries stand in the log's order, so both are read side by side.

Each entry must be one of a record's keys, each key of a record must have its entry, and the chains of a file must be
what putting its entries one after the other makes. Memory: four bytes for each hash slot of one file.
"""

from __future__ import annotations

import itertools
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.finding import CANNOT_BE_OPENED, PAST_THE_LOG, REFUSED, CheckContext, Finding, Severity
from rmq_actors.store.files.layout import INDEX_DIRECTORY
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_key_hash, index_keys
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE

HEADER_BYTES = 40
SLOT_BYTES = 4
# beginTimestamp endTimestamp beginPhyOffset endPhyOffset hashSlotCount indexCount
_HEADER = struct.Struct(">qqqqii")
# keyHash phyOffset timeDiff prevIndex
_ENTRY = struct.Struct(">iqii")
_DEFAULT_SLOTS = 5_000_000
_DEFAULT_BYTES = HEADER_BYTES + _DEFAULT_SLOTS * SLOT_BYTES + 20_000_000 * _ENTRY.size
_ENTRIES_AT_ONCE = 4096
_NAME_DIGITS = 17
_LOST_HASHES_MAX = 4096
#: So many of a file's first and last entries say how many slots it has.
_SCORED_ENTRIES = 16


@attrs.frozen
class _File:
    """One index file; `count` is its indexCount, one more than it has entries."""

    path: str
    size_bytes: int
    slots: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_in_use: int
    count: int

    def position(self, number: int) -> int:
        """Where entry `number` stands."""
        return HEADER_BYTES + self.slots * SLOT_BYTES + number * _ENTRY.size


class _Entry(NamedTuple):
    file: _File
    number: int
    hash: int
    offset: int
    seconds: int

    def finding(self, severity: Severity, text: str) -> Finding:
        return Finding(self.file.path, self.file.position(self.number), severity, f"entry {self.number} {text}")


@attrs.define(eq=False, repr=False)
class _MissingKeys:
    first_offset: int
    last_offset: int
    first_key: str
    keys: int
    severity: Severity


@attrs.define(eq=False, repr=False)
class IndexCheck:
    """All files below `index/`. `slots`: maxHashSlotNum, which no file names; None to find out.

    Longer than 300 lines because a header, its slots and its entries prove each other, and the log proves all of
    them.
    """

    _disk: Disk
    _context: CheckContext
    _log_min_offset: int
    _slots: int | None = None
    _files: list[_File] = attrs.field(factory=list, init=False)
    _entries: Iterator[_Entry] = attrs.field(default=iter(()), init=False)
    _next: _Entry | None = attrs.field(default=None, init=False)
    #: What the entries themselves show to be wrong, on its way out.
    _found: list[Finding] = attrs.field(factory=list, init=False)
    #: Hashes of entries that were reported: their records are not reported again.
    _lost_hashes: Counter[int] = attrs.field(factory=Counter, init=False)
    _missing: _MissingKeys | None = attrs.field(default=None, init=False)
    #: Records with keys before the first entry, and where the first of them stands.
    _before: int = attrs.field(default=0, init=False)
    _first_before: int = attrs.field(default=0, init=False)
    _begin_offset: int | None = attrs.field(default=None, init=False)

    def load(self) -> Iterator[Finding]:
        """List the files and read their headers."""
        names = self._disk.list(INDEX_DIRECTORY)
        sizes: dict[str, int] = {}
        for name in names:
            path = f"{INDEX_DIRECTORY}/{name}"
            if not (len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()):
                text = f"not the name of an index file (yyyyMMddHHmmssSSS): {REFUSED}"
                yield Finding(path, 0, "error", text)
                continue
            self._context.summary.files += 1
            try:
                mapped_file = self._open(path)
            except OSError as error:
                yield Finding(path, 0, "error", f"{CANNOT_BE_OPENED}: {error.strerror}")
                continue
            sizes[path] = mapped_file.size_bytes
            try:
                yield from self._load_file(mapped_file, is_last=name == names[-1])
            finally:
                mapped_file.file.close()
        yield from _of_other_lengths(sizes)
        self._entries = self._stream()
        self._next = next(self._entries, None)
        self._begin_offset = None if self._next is None else self._next.offset

    def _open(self, path: str) -> MappedFile:
        return MappedFile(self._disk.open(path, read_only=True), 0)

    def _load_file(self, mapped_file: MappedFile, *, is_last: bool) -> Iterator[Finding]:
        path, view = mapped_file.file.path, mapped_file.whole()
        if len(view) < HEADER_BYTES:
            empty = not len(view) and is_last
            text = "an empty file: it was created, and never got its length" if empty else "too short for a header"
            yield Finding(path, 0, "note" if empty else "error", text)
            return
        header = _HEADER.unpack_from(view)
        count = header[-1]
        if count <= 1:
            if mapped_file.used_bytes() > HEADER_BYTES:
                text = f"indexCount {count} says that there are no entries, but there are"
                yield Finding(path, 36, self._severity_of_tail(), text)
            return
        slots = self._find_slots(mapped_file, header)
        if slots is None:
            yield Finding(path, 0, "error", f"no number of hash slots fits this header: {header}")
            return
        self._slots = slots
        file = _File(path, len(view), slots, *header)
        if (len(view) - file.position(0)) % _ENTRY.size:
            text = f"the file is {len(view)} bytes long, and not made of whole entries"
            yield Finding(path, 0, self._severity_of_tail(), text)
        if file.position(count) > len(view):
            yield Finding(path, 36, self._severity_of_tail(), f"indexCount {count} is more than the file has room for")
            count = (len(view) - file.position(0)) // _ENTRY.size
            file = attrs.evolve(file, count=count)
        if any(view[file.position(0) : file.position(1)]):
            yield Finding(path, file.position(0), "note", "entry 0, which is not used, is not zero")
        behind = mapped_file.used_bytes() - file.position(file.count)
        if behind > 0:
            text = f"{behind} bytes after the last entry, {file.count - 1}, are not zero"
            yield Finding(path, file.position(file.count), self._severity_of_tail(), text)
        self._files.append(file)

    def _severity_of_tail(self) -> Severity:
        return "error" if self._context.recover_from is None else "recoverable"

    def _find_slots(self, mapped_file: MappedFile, header: tuple[int, ...]) -> int | None:
        """How many slots the file has: what its entries agree with best."""
        view, end, count = mapped_file.whole(), header[3], header[5]
        candidates = [] if self._slots is None else [self._slots]
        if len(view) == _DEFAULT_BYTES:
            candidates.append(_DEFAULT_SLOTS)
        # RocketMQ's defaults, and most settings, have four entries a slot.
        candidates.append((len(view) - HEADER_BYTES) // 84)
        # After the last entry nothing stands, and it ends with a few zeros itself.
        slots_bytes = mapped_file.used_bytes() - HEADER_BYTES - count * _ENTRY.size
        candidates += [(slots_bytes + zeros) // SLOT_BYTES for zeros in range(3, 3 + _ENTRY.size, SLOT_BYTES)]
        if end:
            wanted = end.to_bytes(8, "big", signed=True)
            at = _find(view, wanted, HEADER_BYTES)
            while at >= 0 and len(candidates) < 64:
                candidates.append((at - 4 - (count - 1) * _ENTRY.size - HEADER_BYTES) // SLOT_BYTES)
                at = _find(view, wanted, at + 1)
        best, best_score = 0, 2
        for slots in dict.fromkeys(candidates):
            score = _score(view, slots, header)
            if score > best_score:
                best, best_score = slots, score
                if score == _full_score(count):
                    break
        return best or None

    def take(self, record: DispatchRequest) -> Iterator[Finding]:
        """Compare a record of the log with its entries: what is wrong."""
        offset = record.commit_log_offset
        while self._next is not None and self._next.offset < offset:
            yield from self._stray(self._next)
            self._advance()
        is_rollback = record.sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE
        keys = [] if is_rollback else index_keys(record)
        if not keys and (self._next is None or self._next.offset > offset):
            return
        if self._begin_offset is None or offset < self._begin_offset:
            if not self._before:
                self._first_before = offset
            self._before += 1
            return
        yield from self._compare(record, {index_key_hash(record.topic, key): key for key in keys})
        if self._found:
            yield from self._drain()

    def _compare(self, record: DispatchRequest, expected: dict[int, str]) -> Iterator[Finding]:
        offset, severity = record.commit_log_offset, self._context.severity_at(record.commit_log_offset)
        missing = dict(expected)
        wrong = 0
        while self._next is not None and self._next.offset == offset:
            entry = self._next
            if entry.hash not in expected:
                wrong += 1
                text = f"has hash {entry.hash}, which is of no key of its record, at {offset}"
                yield entry.finding(severity, text)
            else:
                missing.pop(entry.hash, None)
                self._context.summary.keys += 1
                seconds = self._seconds(entry.file, record.store_timestamp_ms)
                # In RocketMQ the first entry counts from the end of the file before its own.
                if entry.seconds != seconds and entry.number > 1:
                    text = f"says {entry.seconds} s after the file's first, its record, at {offset}, says {seconds} s"
                    yield entry.finding(severity, text)
            yield from self._check_time(entry, record.store_timestamp_ms, severity)
            self._advance()
        for hash_code in list(missing):
            if wrong or self._lost_hashes[hash_code]:
                wrong -= 1 if wrong else 0
                self._lost_hashes[hash_code] -= 1
                del missing[hash_code]
            elif self._next is not None and self._next.hash == hash_code and self._next.offset < record.end_offset:
                yield self._next.finding(severity, f"is of offset {self._next.offset}; its record stands at {offset}")
                del missing[hash_code]
                self._advance()
        if offset == self._begin_offset:
            # The file before this one, which is gone, may have had the first of its keys.
            missing.clear()
        yield from self._miss(record, [expected[hash_code] for hash_code in missing], severity)

    @staticmethod
    def _check_time(entry: _Entry, stored_ms: int, severity: Severity) -> Iterator[Finding]:
        """The header says when the records of its first and last entry were stored."""
        file = entry.file
        if entry.number == 1 and file.begin_ms != stored_ms:
            text = f"beginTimestamp {file.begin_ms} in the header; the first entry's record was stored at {stored_ms}"
            yield Finding(file.path, 0, severity, text)
        if entry.number == file.count - 1 and file.end_ms != stored_ms:
            text = f"endTimestamp {file.end_ms} in the header; the last entry's record was stored at {stored_ms}"
            yield Finding(file.path, 8, severity, text)

    @staticmethod
    def _seconds(file: _File, stored_ms: int) -> int:
        return min(max(stored_ms - file.begin_ms, 0) // 1000, 0x7FFFFFFF) if file.begin_ms > 0 else 0

    def _miss(self, record: DispatchRequest, keys: list[str], severity: Severity) -> Iterator[Finding]:
        if not keys or (self._missing is not None and self._missing.severity != severity):
            yield from self._end_missing()
        if not keys:
            return
        if self._missing is None:
            first_key = f"{record.topic}#{keys[0]}"
            self._missing = _MissingKeys(record.commit_log_offset, 0, first_key, 0, severity)
        self._missing.last_offset = record.commit_log_offset
        self._missing.keys += len(keys)

    def _end_missing(self) -> Iterator[Finding]:
        run, self._missing = self._missing, None
        if run is None:
            return
        if run.keys == 1:
            text = f"key {run.first_key!r} of the record at {run.first_offset} is not in the index"
        else:
            where = f"the record at {run.first_offset}"
            if run.last_offset != run.first_offset:
                where = f"records at {run.first_offset} to {run.last_offset}"
            text = f"{run.keys} keys of {where} are not in the index; the first is {run.first_key!r}"
        yield Finding(self._files[-1].path if self._files else INDEX_DIRECTORY, 0, run.severity, text)

    def _stray(self, entry: _Entry) -> Iterator[Finding]:
        """An entry of an offset where no record begins."""
        if entry.offset in self._context.damaged or entry.offset < self._log_min_offset:
            return
        self._lose(entry.hash)
        yield entry.finding(
            self._context.severity_at(entry.offset), f"is of offset {entry.offset}, where no record begins"
        )

    def _lose(self, hash_code: int) -> None:
        if len(self._lost_hashes) < _LOST_HASHES_MAX:
            self._lost_hashes[hash_code] += 1

    def _advance(self) -> None:
        self._next = next(self._entries, None)

    def _drain(self) -> Iterator[Finding]:
        found, self._found = self._found, []
        yield from found

    def finish(self, log_end_offset: int) -> Iterator[Finding]:
        """What is left when the whole log was read: entries of records past its end."""
        yield from self._end_missing()
        while self._next is not None:
            first, count = self._next, 0
            while self._next is not None and self._next.file is first.file and self._next.offset >= log_end_offset:
                count += 1
                self._advance()
            if count:
                text = f"and {count - 1} after it are of records {PAST_THE_LOG}, {log_end_offset}"
                yield first.finding(self._context.severity_at(first.offset), text)
            else:
                yield from self._stray(first)
                self._advance()
        yield from self._drain()
        if self._before:
            until = "there is no index" if self._begin_offset is None else f"the index begins at {self._begin_offset}"
            text = f"keys of {self._before} records from offset {self._first_before} on cannot be found: {until}"
            yield Finding(INDEX_DIRECTORY, 0, "note", text)

    def _stream(self) -> Iterator[_Entry]:
        """Every entry whose offset is in order, oldest first. What is wrong within a file goes to `_found`."""
        before = 0
        for file in self._files:
            mapped_file = self._open(file.path)
            view = mapped_file.whole()
            mapped_file.file.close()
            # What each slot leads to, as entries are put one after the other.
            chains = array("i", bytes(file.slots * SLOT_BYTES))
            numbers = range(1, file.count)
            for number, (code, offset, seconds, previous) in zip(numbers, _unpack(view, file), strict=True):
                slot = code % file.slots
                entry = _Entry(file, number, code, offset, seconds)
                if previous != chains[slot]:
                    text = f"leads on to entry {previous}; the one before it in its slot, {slot}, is {chains[slot]}"
                    self._found.append(entry.finding(self._context.severity_at(offset), text))
                chains[slot] = number
                if number + 1 < file.count:
                    behind = _ENTRY.unpack_from(view, file.position(number + 1))[1]
                else:
                    behind = file.end_offset
                if offset < before or offset > behind >= before:
                    self._lose(code)
                    text = f"is of offset {offset}, out of order between {before} and {behind}"
                    self._found.append(entry.finding(self._context.severity_at(max(before, behind)), text))
                    continue
                before = offset
                yield entry
            self._found += self._check_slots(file, view, chains)
            self._found += self._check_header(file, view, len(chains) - chains.count(0))

    def _check_slots(self, file: _File, view: memoryview, chains: array[int]) -> Iterator[Finding]:
        if sys.byteorder == "little":
            chains.byteswap()
        stored = bytes(view[HEADER_BYTES : file.position(0)])
        expected = chains.tobytes()
        if sys.byteorder == "little":
            chains.byteswap()
        if stored == expected:
            return
        for slot, (value,) in enumerate(struct.iter_unpack(">i", stored)):
            if value != chains[slot]:
                text = f"hash slot {slot} leads to entry {value}; the last entry in it is {chains[slot]}"
                position = HEADER_BYTES + slot * SLOT_BYTES
                yield Finding(file.path, position, self._context.severity_at(file.end_offset), text)

    def _check_header(self, file: _File, view: memoryview, slots_in_use: int) -> Iterator[Finding]:
        first = _ENTRY.unpack_from(view, file.position(1))
        last = _ENTRY.unpack_from(view, file.position(file.count - 1))
        # Older brokers count a slot each time that they write to it.
        slots_counted = file.count - 1 if file.slots_in_use == file.count - 1 else slots_in_use
        for position, name, stored, expected in (
            (16, "beginPhyOffset", file.begin_offset, first[1]),
            (24, "endPhyOffset", file.end_offset, last[1]),
            (32, "hashSlotCount", file.slots_in_use, slots_counted),
        ):
            if stored != expected:
                text = f"{name} {stored} in the header; by the entries it is {expected}"
                yield Finding(file.path, position, self._context.severity_at(file.end_offset), text)


def _score(view: memoryview, slots: int, header: tuple[int, ...]) -> int:
    """How well a number of slots fits a file: 5, and 1 for each entry of its first and last ones, if all is right."""
    begin, end, count = header[2], header[3], header[5]
    room = (len(view) - HEADER_BYTES - slots * SLOT_BYTES) // _ENTRY.size
    if slots < 1 or room < 2:
        return 0
    at = HEADER_BYTES + slots * SLOT_BYTES

    def entry(number: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = _ENTRY.unpack_from(view, at + number * _ENTRY.size)
        return found

    def head(code: int) -> int:
        (number,) = struct.unpack_from(">i", view, HEADER_BYTES + code % slots * SLOT_BYTES)
        return int(number)

    def fits(number: int) -> bool:
        code, offset, seconds, previous = entry(number)
        return (
            code > 0
            and begin <= offset <= end
            and seconds >= 0
            and number <= head(code) < count
            and 0 <= previous < number
            and (not previous or entry(previous)[0] % slots == code % slots)
        )

    last_number = min(count, room) - 1
    first, last = entry(1), entry(last_number)
    rules = (
        not any(view[at : at + _ENTRY.size]),
        first[1] == begin,
        first[3] == 0,
        last[1] == end,
        head(last[0]) == last_number,
    )
    return sum(rules) + sum(map(fits, _scored(last_number)))


def _scored(last_number: int) -> set[int]:
    return {
        *range(1, min(last_number, _SCORED_ENTRIES) + 1),
        *range(max(1, last_number - _SCORED_ENTRIES), last_number + 1),
    }


def _full_score(count: int) -> int:
    """That of a number of slots with which all is right: no other has more."""
    return 5 + len(_scored(count - 1))


def _unpack(view: memoryview, file: _File) -> Iterator[tuple[int, int, int, int]]:
    for first in range(1, file.count, _ENTRIES_AT_ONCE):
        end = min(first + _ENTRIES_AT_ONCE, file.count)
        yield from _ENTRY.iter_unpack(view[file.position(first) : file.position(end)])


def _of_other_lengths(sizes: Mapping[str, int]) -> Iterator[Finding]:
    """Settings say how long a file is, and a start takes no other: the length is that of most files, or the longest.

    It looks at no file after an empty one.
    """
    files = Counter(filter(None, sizes.values()))
    expected = max(files, key=lambda size: (files[size], size), default=0)
    for path, size in itertools.takewhile(lambda item: item[1], sizes.items()):
        if size != expected or size < HEADER_BYTES:
            others = "" if size == expected else f", the others are {expected}"
            text = f"the file is {size} bytes long{others}: {REFUSED}"
            yield Finding(path, 0, "error", text)


def _find(view: memoryview, wanted: bytes, position: int) -> int:
    """Where `wanted` stands from `position` on, or -1; reads a chunk at a time."""
    chunk_bytes = 1024 * 1024
    while position < len(view):
        at = bytes(view[position : position + chunk_bytes + len(wanted)]).find(wanted)
        if at >= 0:
            return position + at
        position += chunk_bytes
    return -1
