"""Every reader of records says the same of any bytes: what is a record, how long it is, its topic, tags code and keys.

There are three: `check_record` with `decode_record`, `read_dispatch_request`, and `read_dispatch_batch`, which reads
columns. What they say is compared with what RocketMQ's reader (CommitLog.checkMessageAndReturnSize), written down here
once more in its own order of steps, makes of the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC, DispatchRequest, read_dispatch_request
from rmq_actors.wire.index_key import index_keys
from rmq_actors.wire.java_string import decode_utf8, java_hash_code
from rmq_actors.wire.record import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    EncodedMessage,
    body_crc,
    check_record,
    decode_record,
    encode_blank,
)
from tests.worlds.dispatch_batches import BEGIN, check
from tests.worlds.foreign_records import encode_foreign

INT_EXTREMES = (0, 1, -1, 7, 8, 90, 91, 127, 128, 32_767, 32_768, 65_535, 2**31 - 1, -(2**31))
LONG_EXTREMES = (0, -1, BEGIN, BEGIN + 1, 2**31, 2**63 - 1, -(2**63))
#: Whole and cut characters, what would be surrogates, bytes that are never UTF-8, and what separates properties.
ASCII_PIECES = b"a|T| |TAGS|KEYS|UNIQ_KEY|DELAY|3|INNER_MULTI_DISPATCH".split(b"|")
SEPARATORS = (b"\1", b"\1", b"\2", b"\2", b"\1\1", b"\2\2", b"\0")
UTF8_PIECES = (b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80")
NO_UTF8_PIECES = tuple(map(bytes.fromhex, ["ff", "c3", "e282", "f09f98", "eda080", "eda0", "edbfbf", "c080", "80"]))
ENTRIES = (b"TAGS\1a\2", b"TAGS\1\xff\2", b"KEYS\1k j\2", b"KEYS\1k\xed\xa0\x80\2", b"UNIQ_KEY\1u\2")
PIECES = (*ASCII_PIECES, *SEPARATORS, *UTF8_PIECES, *NO_UTF8_PIECES, *ENTRIES, *ENTRIES)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
TOPICS = st.one_of(
    st.just(b"T"),
    st.sampled_from(
        [
            b"",
            b"Topic",
            b"T\xff",
            b"T\xed\xa0\x80",
            b"t" * 127,
            b"t" * 128,
            b"t" * 255,
            b"%RETRY%g",
            SCHEDULE_TOPIC.encode(),
        ]
    ),
    TEXTS.map(lambda text: text[:255]),
)
PROPERTIES = st.one_of(
    TEXTS,
    TEXTS,
    st.tuples(TEXTS, st.sampled_from([255, 256, 32_766, 32_767, 32_768, 40_000, 65_535])).map(
        lambda each: (each[0] + b"\2X\1").ljust(each[1], b"x")[: each[1]]
    ),
)
HOSTS = st.sampled_from(["127.0.0.1:1", "127.0.0.1:1", "[::1]:1"])
RECORDS = st.builds(
    encode_foreign,
    TOPICS,
    PROPERTIES,
    st.sampled_from([b"", b"body", b"b" * 200]),
    sys_flag=st.sampled_from([*[0] * 12, 4, 8, 12]),
    born_host=HOSTS,
    store_host=HOSTS,
)


PLAIN = encode_foreign(b"T", b"TAGS\1a\2KEYS\1k j")


class Change(NamedTuple):
    """What is written into a record: `form` at a field's place, or, of a length, `by` more than it says."""

    field: str
    form: Literal[">i", ">q", "B", ">H"]
    value: int
    is_added: bool


def _changes(field: str, form: Literal[">i", ">q", "B", ">H"], values: tuple[int, ...]) -> st.SearchStrategy[Change]:
    return st.builds(Change, st.just(field), st.just(form), st.sampled_from(values), st.just(False))


def _near(field: str, form: Literal[">i", "B", ">H"]) -> st.SearchStrategy[Change]:
    return st.builds(Change, st.just(field), st.just(form), st.sampled_from([-2, -1, 1, 2, 12]), st.just(True))


CHANGES = st.one_of(
    _changes("total_size", ">i", INT_EXTREMES),
    _near("total_size", ">i"),
    _changes("magic", ">i", (0, -1, MESSAGE_MAGIC - 2**32, BLANK_MAGIC - 2**32)),
    _changes("crc", ">i", INT_EXTREMES),
    _changes("queue_id", ">i", INT_EXTREMES),
    _changes("queue_offset", ">q", LONG_EXTREMES),
    _changes("physical_offset", ">q", LONG_EXTREMES),
    _changes("sys_flag", ">i", (0, 4, 8, 12, 0x10, 0x20, 0x30, -1)),
    _changes("body_length", ">i", INT_EXTREMES),
    _near("body_length", ">i"),
    _changes("topic_length", "B", (0, 1, 126, 127, 128, 254, 255)),
    _near("topic_length", "B"),
    _changes("properties_length", ">H", (0, 1, 32_767, 32_768, 65_534, 65_535)),
    _near("properties_length", ">H"),
)


def place_of(field: str, data: bytearray) -> int:
    """Where a field of a whole record stands."""
    fixed = {"total_size": 0, "magic": 4, "crc": 8, "queue_id": 12, "queue_offset": 20, "physical_offset": 28}
    if field in fixed:
        return fixed[field]
    if field == "sys_flag":
        return 36
    flag = struct.unpack_from(">i", data, 36)[0]
    at = 48 + (20 if flag & 0x10 else 8) + 8 + (20 if flag & 0x20 else 8) + 12
    if field == "body_length":
        return at
    at += 4 + int.from_bytes(data[at : at + 4], "big")
    return at if field == "topic_length" else at + 1 + data[at]


def write(change: Change, data: bytearray, at: int) -> None:
    """Write the change into the field at `at`, as many bits of it as that has."""
    bits = 8 * struct.calcsize(change.form)
    value = change.value + (struct.unpack_from(change.form, data, at)[0] if change.is_added else 0)
    low = 0 if change.form in {"B", ">H"} else -(1 << bits - 1)
    struct.pack_into(change.form, data, at, (value - low) % (1 << bits) + low)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A part of a log from `BEGIN` on, and where something begins in it."""
    kinds: list[EncodedMessage] = draw(st.lists(RECORDS, min_size=1, max_size=4))
    data, begins = bytearray(), list[int]()
    for number in range(draw(st.integers(3, 16))):
        record = draw(st.sampled_from(kinds)) if number > 2 else PLAIN
        record.place(queue_offset=number, physical_offset=BEGIN + len(data), store_timestamp_ms=1_700_000_000_000)
        part = bytearray(record.data)
        for change in draw(st.lists(CHANGES, max_size=2)) if draw(st.integers(0, 3)) == 3 else ():
            write(change, part, place_of(change.field, record.data))
        begins.append(len(data))
        data += part
    if draw(st.booleans()):
        begins.append(len(data))
        data += encode_blank(20) + bytes(draw(st.sampled_from([12, 12, 11])))
    end = draw(st.one_of(st.just(len(data)), st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:end]), begins


class JavaRead(NamedTuple):
    """What RocketMQ's reader says: a record (`success`), one of that size to skip, or -1; a blank has size 0."""

    success: bool
    size: int
    topic: str = ""
    tags: str | None = None
    keys: tuple[str, ...] = ()


class _ByteBuffer:
    """Java's, as far as the reader uses it: all numbers are signed, and an IndexError is its exception."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._at = data, position

    def get(self, form: str) -> Any:
        size = struct.calcsize(form)
        return struct.unpack(form, self.get_bytes(size))[0]

    def get_bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise IndexError
        self._at += count
        return self._data[self._at - count : self._at]


def java_reads(data: bytes, position: int, *, check_crc: bool) -> JavaRead:
    """`checkMessageAndReturnSize`; what it reads into must have room: totalSize bytes."""
    try:
        return _java_reads(_ByteBuffer(data, position), check_crc=check_crc)
    except IndexError:
        return JavaRead(False, -1)


def _java_reads(buffer: _ByteBuffer, *, check_crc: bool) -> JavaRead:
    total_size, magic = buffer.get(">i"), buffer.get(">I")
    if magic == BLANK_MAGIC:
        return JavaRead(True, 0)
    if magic != MESSAGE_MAGIC or total_size < 0:
        return JavaRead(False, -1)

    def read(count: int) -> bytes:
        if count > total_size:
            raise IndexError
        return buffer.get_bytes(count)

    crc = buffer.get(">i")
    buffer.get_bytes(4 + 4 + 8 + 8)
    sys_flag = buffer.get(">i")
    buffer.get_bytes(8)
    hosts = (20 if sys_flag & 0x10 else 8, 20 if sys_flag & 0x20 else 8)
    read(hosts[0])
    buffer.get_bytes(8)
    read(hosts[1])
    buffer.get_bytes(4 + 8)
    body_length = buffer.get(">i")
    body = read(body_length) if body_length > 0 else b""
    if body_length > 0 and check_crc and body_crc(body) != crc:
        return JavaRead(False, -1)
    topic_length = buffer.get(">b")
    topic = decode_utf8(read(topic_length))
    properties_length = buffer.get(">h")
    tags, keys = None, list[str]()
    if properties_length > 0:
        properties = _java_properties(decode_utf8(read(properties_length)))
        tags = properties.get("TAGS")
        keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        keys += [key for key in properties.get("KEYS", "").split(" ") if key]
    read_length = 83 - 8 - 8 + sum(hosts) + 8 + max(0, body_length) + topic_length + max(0, properties_length)
    if total_size != read_length:
        return JavaRead(False, total_size)
    return JavaRead(True, total_size, topic, tags, tuple(keys))


def _java_properties(text: str) -> dict[str, str]:
    """`MessageDecoder.string2messageProperties`."""
    properties: dict[str, str] = {}
    index = 0
    while index < len(text):
        new_index = text.find("\2", index)
        new_index = len(text) if new_index < 0 else new_index
        if new_index - index >= 3:
            separator = text.find("\1", index)
            if index < separator < new_index - 1:
                properties[text[index:separator]] = text[separator + 1 : new_index]
        index = new_index + 1
    return properties


def said(found: DispatchRequest) -> tuple[object, ...]:
    """What is compared of a record."""
    return (found.topic, found.msg_size, found.tags_code, tuple(index_keys(found)), found.is_passed_over)


@settings(max_examples=400)
@given(log=logs(), check_crc=st.booleans())
def test_single_records_are_what_the_checker_and_java_say(log: tuple[bytes, list[int]], check_crc: bool) -> None:
    data, begins = log
    view = memoryview(data)
    for position in begins:
        checked = check_record(view, position, BEGIN + position, check_crc=check_crc)
        found = read_dispatch_request(view, position, BEGIN + position, check_crc=check_crc)
        java = java_reads(data, position, check_crc=check_crc)
        if not isinstance(found, DispatchRequest):
            assert found == checked
            assert found.what == "blank" or found.reason
        if checked.what == "invalid":
            # What is stricter here: a blank ends its file, and a record stands where it says.
            if java.success and java.size:
                assert struct.unpack_from(">q", data, position + 28)[0] != BEGIN + position
        elif checked.what == "blank":
            assert java == JavaRead(True, 0)
        else:
            assert isinstance(found, DispatchRequest)
            stored = decode_record(view, position, BEGIN + position, check=checked)
            assert (stored.topic, stored.total_size) == (found.topic, found.msg_size)
            assert stored.is_passed_over == found.is_passed_over == checked.is_passed_over
            assert found.end_offset == BEGIN + position + checked.size
            if checked.is_passed_over:
                assert java == JavaRead(False, checked.size)
                assert said(found)[2:] == (0, (), True)
            else:
                assert stored.properties == found.properties
                assert java.success
                assert said(found) == (java.topic, java.size, _tags_code(found, java), java.keys, False)


def _tags_code(found: DispatchRequest, java: JavaRead) -> int:
    if found.topic == SCHEDULE_TOPIC:
        return found.tags_code
    return java_hash_code(java.tags) if java.tags else 0


@settings(max_examples=400)
@given(log=logs(), check_crc=st.booleans())
def test_columns_are_what_single_records_are(log: tuple[bytes, list[int]], check_crc: bool) -> None:
    data, _ = log
    check(data, len(data), 1000, 1, check_crc=check_crc)
