"""Many records of the log at once, as columns: what consume queues and the index need of them, read with numpy.

What a record is, and what is read from it, says `wire.dispatch_request`: here the same is done for thousands of records
a step, and each record that is not of the common kind is read by it. Importing this imports numpy, which takes a while:
its users do so once many records are there.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from rmq_actors.wire.dispatch_request import (
    PROPERTY_INNER_MULTI_DISPATCH,
    SCHEDULE_TOPIC,
    TRANSACTION_TOPICS,
    DispatchRequest,
    read_dispatch_request,
)
from rmq_actors.wire.index_key import index_key_hash, index_keys, index_topic_code
from rmq_actors.wire.record import (
    BLANK,
    BODY_CRC_MASK,
    BORNHOST_V6_FLAG,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    text_span,
)
from rmq_actors.wire.record_runs import RUN_AFTER, RUN_RECORDS, run_length

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_ByteArray = npt.NDArray[np.uint8]
_Heads = npt.NDArray[np.void]

#: Fewer records are read with less work by the scalar reader.
BATCH_RECORDS_MIN = 64
#: How many bytes of the log one batch spans at most: its columns, and what is in between, take a part of it.
_BATCH_BYTES_MAX = 16 * 1024 * 1024
#: How many bytes of properties: finding texts in them takes up to fifty times as many. `BATCH_RECORDS_MIN` legal
#: records have no more.
_PROPERTIES_BYTES_MAX = 2 * 1024 * 1024

#: All that stands before the body of a record with IPv4 hosts.
_HEAD = np.dtype(
    {
        "names": [
            "body_crc",
            "queue_id",
            "queue_offset",
            "physical_offset",
            "sys_flag",
            "store_timestamp",
            "body_length",
        ],
        "formats": [">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i4"],
        "offsets": [8, 12, 20, 28, 36, 56, 84],
        "itemsize": 88,
    }
)
_UNUSUAL_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG

_UNIQ_KEY_NAME = int.from_bytes(b"UNIQ_KEY", "little")
_KEYS_NAME = int.from_bytes(b"KEYS", "little")
_TAGS_NAME = int.from_bytes(b"TAGS", "little")
_INNER_MULTI_DISPATCH = int.from_bytes(PROPERTY_INNER_MULTI_DISPATCH[:8].encode(), "little")
_NAME_VALUE_SEPARATOR = 1
_BLANK = ord(" ")

#: A record with a longer key is read by itself; before a batch's properties as many zeros stand.
_HASHED_BYTES_MAX = 256
#: Texts up to each of these lengths are hashed together.
_HASH_WIDTHS = (8, 16, 32, 64, 128, _HASHED_BYTES_MAX)
#: What the bytes of a text weigh in its hash code, by how many follow them, from the longest text's first byte on.
_POWERS = np.array([pow(31, exponent, 1 << 32) for exponent in range(_HASHED_BYTES_MAX, -1, -1)], np.uint32)


@attrs.frozen(eq=False)
class DispatchBatch:
    """Records of the log as columns, in the log's order: entry i of each array is of record i.

    Each of them takes a queue offset, has no part in a transaction and names no further queues; none is passed over.
    The columns mean what the fields of `DispatchRequest` do.
    """

    #: The distinct topics.
    topics: Sequence[str]
    #: Indexes into `topics`.
    topic_ids: Int32Array
    queue_ids: Int32Array
    commit_log_offsets: Int64Array
    msg_sizes: Int32Array
    tags_codes: Int64Array
    store_timestamps_ms: Int64Array
    consume_queue_offsets: Int64Array
    #: The keys' hashes for the index, record by record, as `index_key_hash` gives them; UNIQ_KEY comes first.
    key_hashes: Int32Array
    #: The number of each key's record.
    key_records: Int32Array
    #: The last record, read one by one.
    last: DispatchRequest

    def __len__(self) -> int:
        return len(self.commit_log_offsets)


def read_dispatch_batch(
    view: memoryview,
    position: int,
    physical_offset: int,
    limit_position: int,
    max_records: int,
    *,
    delay_levels_ms: Sequence[int],
    check_crc: bool = False,
    min_records: int = BATCH_RECORDS_MIN,
) -> DispatchBatch | None:
    """The records from `position` of a commit-log file's bytes on that end at or before `limit_position`.

    The batch ends before whatever is not valid, is no message, is passed over, has a part in a transaction, or names
    further queues; with `check_crc` also before a text with a NUL, which may be a torn one. None if there are less than
    `min_records`.
    """
    limit_position = min(limit_position, len(view), position + _BATCH_BYTES_MAX)
    starts, ends = _find_records(view, position, limit_position, max_records)
    if len(starts) < min_records:
        return None
    reader = _Reader(view, physical_offset - position, starts, ends, delay_levels_ms, check_crc)
    return reader.read(min_records)


def _find_records(view: memoryview, position: int, limit: int, max_records: int) -> tuple[Int64Array, Int64Array]:
    """Where records begin and end, by their sizes and magic numbers alone."""
    parts: list[Int64Array] = []
    starts: list[int] = []
    room, before, repeats = max_records, 0, 0
    unpack_from, last = BLANK.unpack_from, limit - RECORD_OVERHEAD_BYTES
    while room > 0 and position <= last:
        found: tuple[int, int] = unpack_from(view, position)
        size, magic = found
        if magic != MESSAGE_MAGIC or size < RECORD_OVERHEAD_BYTES or position + size > limit:
            break
        if size != before:
            before, repeats, run_records = size, 0, RUN_RECORDS
        elif repeats >= RUN_AFTER:
            count = run_length(view, position, size, min(room, run_records, (limit - position) // size))
            parts += (np.array(starts, np.int64), position + size * np.arange(count))
            starts = []
            position += count * size
            room -= count
            run_records *= 4
            continue
        repeats += 1
        starts.append(position)
        position += size
        room -= 1
    all_starts = np.concatenate((*parts, np.array([*starts, position], np.int64)))
    return all_starts[:-1], all_starts[1:]


def _gather(buffer: memoryview | _ByteArray, positions: Int64Array, width: int) -> npt.NDArray[np.void]:
    """The `width` bytes at each position."""
    overlapping = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer=buffer, strides=(1,))
    found: npt.NDArray[np.void] = overlapping[positions]
    return found


def _words(data: _ByteArray, positions: Int64Array, dtype: str) -> npt.NDArray[Any]:
    """The little-endian number at each position."""
    width = np.dtype(dtype).itemsize
    overlapping: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), dtype, buffer=data, strides=(1,))
    found: npt.NDArray[Any] = overlapping[positions]
    return found


@attrs.define(eq=False, repr=False)
class _Texts:
    """Texts as parts of `data`, each with the number of its record, in the records' order."""

    data: _ByteArray
    records: Int64Array
    begins: Int64Array
    ends: Int64Array

    def pick(self, which: _BoolArray | Int64Array | slice) -> _Texts:
        """Some of them."""
        return _Texts(self.data, self.records[which], self.begins[which], self.ends[which])

    def before(self, record: int) -> _Texts:
        """Those of the records before this one."""
        return self.pick(slice(int(np.searchsorted(self.records, record))))

    def last_of_record(self) -> _Texts:
        """The last text of each record."""
        is_last = np.ones(len(self.records), np.bool_)
        np.not_equal(self.records[1:], self.records[:-1], out=is_last[:-1])
        return self if is_last.all() else self.pick(is_last)

    def split(self, separator: int) -> _Texts:
        """What stands between separators, but for empty parts."""
        found = np.flatnonzero(self.data == separator)
        texts = np.searchsorted(self.ends, found, "right")
        found, texts = found[texts < len(self.ends)], texts[texts < len(self.ends)]
        if not len(found):
            return self
        # Texts stand one after the other: the nth begin belongs to the nth end. A separator between two texts makes an
        # empty part.
        records = np.sort(np.concatenate((self.records, self.records[texts])), kind="stable")
        begins = np.sort(np.concatenate((self.begins, found + 1)), kind="stable")
        ends = np.sort(np.concatenate((self.ends, found)), kind="stable")
        return _Texts(self.data, records, begins, ends).pick(begins < ends)

    def hash_codes(self) -> npt.NDArray[np.uint32]:
        """Java's hash code of each, the bits as an unsigned number; all ASCII, and of `_HASHED_BYTES_MAX` at most."""
        lengths = self.ends - self.begins
        codes = np.zeros(len(lengths), np.uint32)
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        above = 0
        for width in _HASH_WIDTHS:
            if above < longest and shortest <= width:
                if shortest > above and longest <= width:
                    return _hash_together(self)
                which = np.flatnonzero((lengths > above) & (lengths <= width))
                if len(which):
                    codes[which] = _hash_together(self.pick(which))
            above = width
        return codes


def _hash_together(texts: _Texts) -> npt.NDArray[np.uint32]:
    """The hash codes of texts of similar length: zeros before a text do not change its hash code."""
    lengths = texts.ends - texts.begins
    width = int(lengths.max())
    rows = _gather(texts.data, texts.ends - width, width).view(np.uint8).reshape(len(lengths), width)
    if int(lengths.min()) < width:
        rows *= np.arange(width) >= (width - lengths)[:, None]
    codes: npt.NDArray[np.uint32] = rows.astype(np.uint32) @ _POWERS[-width:]
    return codes


@attrs.frozen(eq=False)
class _Properties:
    """What is asked of properties. `unusual`: which of the records are to be read one by one."""

    unusual: Int64Array
    unique_keys: _Texts
    keys: _Texts
    tags: _Texts

    def before(self, record: int) -> _Properties:
        """Those of the records before this one."""
        return _Properties(
            self.unusual, self.unique_keys.before(record), self.keys.before(record), self.tags.before(record)
        )


def _find_properties(data: _ByteArray, records: Int64Array, lengths: Int64Array, *, no_nul: bool) -> _Properties:
    """Find the texts in encoded properties, which stand one after the other in `data`, after zeros."""
    ends = np.cumsum(lengths) + _HASHED_BYTES_MAX
    begins = ends - lengths
    unusual = np.zeros(len(records), np.bool_)
    odd_bytes = data >= 0x80
    if no_nul:
        odd_bytes[_HASHED_BYTES_MAX:] |= data[_HASHED_BYTES_MAX:] == 0
    if odd_bytes.any():
        unusual[np.searchsorted(ends, np.flatnonzero(odd_bytes), "right")] = True
    # Separators that alternate, a name's first, cut a record into entries; what comes after the last one is none.
    marks = np.flatnonzero(data - np.uint8(_NAME_VALUE_SEPARATOR) < 2)
    firsts = np.searchsorted(marks, begins)
    counts = np.diff(firsts, append=len(marks))
    owners = np.repeat(np.arange(len(records)), counts)
    ranks = np.arange(len(marks)) - np.repeat(firsts, counts)
    unusual[owners[data[marks] != _NAME_VALUE_SEPARATOR + (ranks & 1)]] = True

    entries = np.flatnonzero((ranks & 1 == 0) & ~unusual[owners])
    owners, values = owners[entries], marks[entries] + 1
    names = np.maximum(np.concatenate(([0], marks + 1))[entries], begins[owners])
    value_ends = np.minimum(np.append(marks[1:], len(data))[entries], ends[owners])
    name_lengths = np.where(values < value_ends, values - 1 - names, 0)
    long, short = np.flatnonzero(name_lengths == 8), np.flatnonzero(name_lengths == 4)
    short_names = _words(data, names[short], "<u4")
    entries_of = _Texts(data, owners, values, value_ends)
    unique_keys = entries_of.pick(long[_words(data, names[long], "<u8") == _UNIQ_KEY_NAME]).last_of_record()
    keys = entries_of.pick(short[short_names == _KEYS_NAME]).last_of_record().split(_BLANK)
    tags = entries_of.pick(short[short_names == _TAGS_NAME]).last_of_record()
    inner = np.flatnonzero(name_lengths == len(PROPERTY_INNER_MULTI_DISPATCH))
    unusual[owners[inner[_words(data, names[inner], "<u8") == _INNER_MULTI_DISPATCH]]] = True
    found = []
    for texts in (unique_keys, keys, tags):
        unusual[texts.records[texts.ends - texts.begins > _HASHED_BYTES_MAX]] = True
        found.append(texts)
    if unusual.any():
        found = [texts.pick(~unusual[texts.records]) for texts in found]
    for texts in found:
        texts.records = records[texts.records]
    return _Properties(records[unusual], *found)


@attrs.define(eq=False, repr=False)
class _Reader:
    """The columns of one batch in the making: of `count` records, or of fewer where one ends the batch."""

    view: memoryview
    #: What a position in `view` lacks to an offset of the log.
    shift: int
    starts: Int64Array
    ends: Int64Array
    delay_levels_ms: Sequence[int]
    check_crc: bool
    count: int = attrs.field(init=False)
    data: _ByteArray = attrs.field(init=False)
    heads: _Heads = attrs.field(init=False)
    #: Their places in `topics`.
    topic_numbers: dict[str, int] = attrs.field(factory=dict, init=False)
    topic_ids: Int32Array = attrs.field(init=False)
    #: Which records are read one by one.
    unusual: _BoolArray = attrs.field(init=False)

    def read(self, min_records: int) -> DispatchBatch | None:
        """The batch; None if less than `min_records` are left of it."""
        self.data = np.frombuffer(self.view, np.uint8)
        self.count = len(self.starts)
        self.heads = _gather(self.view, self.starts, _HEAD.itemsize).view(_HEAD)
        self._end_before(self.heads["sys_flag"] & TRANSACTION_ROLLBACK_TYPE != 0)
        if self.count < min_records:
            return None
        topics_at, properties_at = self._find_texts()
        self._read_topics(topics_at, properties_at)
        if self.count < min_records:
            return None
        usual = np.flatnonzero(~self.unusual)
        properties = self._read_properties(usual, properties_at[usual])
        self.unusual[properties.unusual] = True
        requests = self._read_one_by_one()
        if self.count < min_records:
            return None
        return self._batch(properties.before(self.count), requests)

    def _end_before(self, which: _BoolArray) -> None:
        """End the batch before the first record that is meant."""
        if which.any():
            self.count = int(which.argmax())
            self.starts, self.ends = self.starts[: self.count], self.ends[: self.count]
            self.heads = self.heads[: self.count]

    def _find_texts(self) -> tuple[Int64Array, Int64Array]:
        """Where topics and properties begin. Records that are not as common ones are become `unusual`."""
        heads, starts, ends, data = self.heads, self.starts, self.ends, self.data
        body_lengths = heads["body_length"].astype(np.int64)
        length_at = starts + _HEAD.itemsize + body_lengths
        usual = (
            (heads["physical_offset"] == starts + self.shift)
            & (heads["sys_flag"] & _UNUSUAL_FLAGS == 0)
            & (body_lengths >= 0)
            & (length_at + 3 <= ends)
        )
        length_at = np.where(usual, length_at, starts)
        properties_at = length_at + 3 + data[length_at]
        usual &= (data[length_at] <= MAX_TOPIC_BYTES) & (properties_at <= ends)
        properties_at = np.where(usual, properties_at, starts + 2)
        properties_lengths = data[properties_at - 2].astype(np.int64) << 8 | data[properties_at - 1]
        usual &= (properties_lengths == ends - properties_at) & (properties_lengths <= MAX_PROPERTIES_BYTES)
        if self.check_crc:
            which = np.flatnonzero(usual & (body_lengths > 0))
            # Two million bodies are checked after a crash: no line of Python for each of them.
            parts = map(slice, (starts[which] + _HEAD.itemsize).tolist(), length_at[which].tolist())
            crcs = np.fromiter(map(zlib.crc32, map(self.view.__getitem__, parts)), np.uint32, len(which))
            usual[which] = crcs & BODY_CRC_MASK == heads["body_crc"][which]
        self.unusual = ~usual
        return length_at + 1, properties_at

    def _read_topics(self, topics_at: Int64Array, properties_at: Int64Array) -> None:
        """Fill `topic_ids`; unusual topics make unusual records.

        Those of transactions end the batch, and so does more of properties than it may hold.
        """
        self.topic_ids = np.full(self.count, -1, np.int32)
        lengths = properties_at - 2 - topics_at
        lengths[self.unusual] = 0
        ends_batch = np.cumsum(np.where(self.unusual, 0, self.ends - properties_at)) > _PROPERTIES_BYTES_MAX
        for length in np.unique(lengths).tolist():
            which = np.flatnonzero(lengths == length)
            if not length:
                self.unusual[which] = True
                continue
            rows = _gather(self.view, topics_at[which], length)
            matrix = rows.view(np.uint8).reshape(len(which), length)
            if (matrix == matrix[0]).all():
                self.topic_ids[which] = self._topic_id(matrix[0].tobytes())
            else:
                # numpy takes zeros off the end of such a text: of texts of one length it makes no equal ones.
                texts = rows.view(f"S{length}").tolist()
                ids = {text: self._topic_id(text.ljust(length, b"\0")) for text in dict.fromkeys(texts)}
                self.topic_ids[which] = [ids[text] for text in texts]
        self.unusual |= self.topic_ids < 0
        for topic in TRANSACTION_TOPICS & self.topic_numbers.keys():
            ends_batch |= self.topic_ids == self.topic_numbers[topic]
        self._end_before(ends_batch)
        self.topic_ids, self.unusual = self.topic_ids[: self.count], self.unusual[: self.count]

    def _topic_id(self, topic: bytes) -> int:
        """Its place in `topics`; -1 if its records are to be read one by one."""
        try:
            text = topic.decode()
        except UnicodeDecodeError:
            return -1
        if text == SCHEDULE_TOPIC or (self.check_crc and "\0" in text):
            return -1
        return self._topic_number(text)

    def _topic_number(self, topic: str) -> int:
        return self.topic_numbers.setdefault(topic, len(self.topic_numbers))

    def _read_properties(self, records: Int64Array, begins: Int64Array) -> _Properties:
        """Find keys and tags of these records."""
        ends = self.ends[records]
        lengths = ends - begins
        zeros = np.zeros(_HASHED_BYTES_MAX, np.uint8)
        if len(records) and (lengths == lengths[0]).all() and lengths[0]:
            data = np.concatenate((zeros, _gather(self.view, begins, int(lengths[0])).view(np.uint8)))
        else:
            parts = [self.view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
            data = np.frombuffer(b"".join((zeros.tobytes(), *parts)), np.uint8)
        return _find_properties(data, records, lengths, no_nul=self.check_crc)

    def _read_one_by_one(self) -> dict[int, DispatchRequest]:
        """The unusual records, by their numbers; one that the columns cannot hold ends the batch."""
        requests: dict[int, DispatchRequest] = {}
        for each in np.flatnonzero(self.unusual).tolist():
            request = self._read_one(each)
            if request is None:
                self.count = each
                break
            requests[each] = request
        return requests

    def _read_one(self, number: int) -> DispatchRequest | None:
        position = int(self.starts[number])
        found = read_dispatch_request(
            self.view,
            position,
            position + self.shift,
            check_crc=self.check_crc,
            delay_levels_ms=self.delay_levels_ms,
        )
        if not isinstance(found, DispatchRequest):
            return None
        if (
            found.sys_flag & TRANSACTION_ROLLBACK_TYPE
            or found.topic in TRANSACTION_TOPICS
            or PROPERTY_INNER_MULTI_DISPATCH in found.properties
            or found.is_passed_over
        ):
            return None
        if self.check_crc and any(0 in bytes(self.view[begin:end]) for begin, end in text_span(self.view, position)):
            return None
        return found

    def _batch(self, properties: _Properties, requests: Mapping[int, DispatchRequest]) -> DispatchBatch:
        """The columns of the first `count` records, of which `requests` were read one by one."""
        count, heads = self.count, self.heads[: self.count]
        topic_ids = self.topic_ids[:count]
        queue_ids = heads["queue_id"].astype(np.int32)
        tags_codes = np.zeros(count, np.int64)
        store_timestamps_ms = heads["store_timestamp"].astype(np.int64)
        queue_offsets = heads["queue_offset"].astype(np.int64)
        tags_codes[properties.tags.records] = properties.tags.hash_codes().view(np.int32)
        hashes_of: dict[int, list[int]] = {}
        for number, request in requests.items():
            topic_ids[number] = self._topic_number(request.topic)
            queue_ids[number] = request.queue_id
            tags_codes[number] = request.tags_code
            store_timestamps_ms[number] = request.store_timestamp_ms
            queue_offsets[number] = request.consume_queue_offset
            hashes_of[number] = [index_key_hash(request.topic, key) for key in index_keys(request)]
        last = self._read_one(count - 1)
        assert last is not None
        topics = list(self.topic_numbers)
        hashes, records = _join_keys(topics, topic_ids, properties, hashes_of)
        return DispatchBatch(
            topics,
            topic_ids,
            queue_ids,
            self.starts[:count] + self.shift,
            (self.ends[:count] - self.starts[:count]).astype(np.int32),
            tags_codes,
            store_timestamps_ms,
            queue_offsets,
            hashes,
            records,
            last,
        )


def _join_keys(
    topics: Sequence[str], topic_ids: Int32Array, properties: _Properties, hashes_of: Mapping[int, Sequence[int]]
) -> tuple[Int32Array, Int32Array]:
    """The hashes of all keys, record by record, and of which record each is; `hashes_of` are those known already."""
    topic_codes = np.array([index_topic_code(topic) & 0xFFFF_FFFF for topic in topics], np.uint32)
    first, further = properties.unique_keys, properties.keys
    first_counts = np.bincount(first.records, minlength=len(topic_ids))
    further_counts = np.bincount(further.records, minlength=len(topic_ids))
    counts = first_counts + further_counts
    for number, hashes in hashes_of.items():
        counts[number] = len(hashes)
    places = np.cumsum(counts) - counts
    joined = np.zeros(int(counts.sum()), np.int32)
    joined[places[first.records]] = _key_hashes(topic_codes[topic_ids[first.records]], first)
    ranks = np.arange(len(further.records)) - (np.cumsum(further_counts) - further_counts)[further.records]
    at = (places + first_counts)[further.records] + ranks
    joined[at] = _key_hashes(topic_codes[topic_ids[further.records]], further)
    for number, hashes in hashes_of.items():
        joined[places[number] : places[number] + len(hashes)] = hashes
    return joined, np.repeat(np.arange(len(topic_ids), dtype=np.int32), counts)


def hash_keys(topics: Sequence[str], keys: Sequence[Sequence[str]], counts: Int64Array) -> Int32Array:
    """`index_key_hash` of the keys of records, record by record; of each its topic, its keys, and how many they are."""
    texts = list(chain.from_iterable(keys))
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    joined = "".join(texts)
    if not joined.isascii() or (texts and int(lengths.max()) > _HASHED_BYTES_MAX):
        hashes = [index_key_hash(topic, key) for topic, each in zip(topics, keys, strict=True) for key in each]
        return np.array(hashes, np.int32)
    data = np.frombuffer(bytes(_HASHED_BYTES_MAX) + joined.encode(), np.uint8)
    ends = lengths.cumsum() + _HASHED_BYTES_MAX
    codes = np.fromiter((index_topic_code(topic) & 0xFFFF_FFFF for topic in topics), np.uint32, len(topics))
    return _key_hashes(codes.repeat(counts), _Texts(data, ends, ends - lengths, ends))


def _key_hashes(topic_codes: npt.NDArray[np.uint32], keys: _Texts) -> Int32Array:
    """`index_key_hash` of each key, by the code of what stands before it."""
    codes = topic_codes * _POWERS[_HASHED_BYTES_MAX - (keys.ends - keys.begins)] + keys.hash_codes()
    hashes: Int32Array = np.abs(codes.view(np.int32))
    # The one number without a counterpart.
    return np.where(hashes < 0, np.int32(0), hashes)
