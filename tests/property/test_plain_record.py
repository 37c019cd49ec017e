"""A message that is decoded when it is read is the message that is decoded at once; what is no record is no message."""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.client.client_error import BadAnswer
from rmq_actors.client.consumer_requests import decode_messages
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.wire.body_compression import COMPRESSED_FLAG
from rmq_actors.wire.plain_record import cut_plain_record
from rmq_actors.wire.record import (
    MessageIllegal,
    RecordError,
    decode_message,
    encode_host,
    record_parts,
    sys_flag_for_hosts,
)

FIELDS = tuple(field.name for field in attrs.fields(MessageExt))
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
HOSTS = st.one_of(
    st.sampled_from(("127.0.0.1:10911", "10.1.2.3:0", "[::1]:10911", "[::ffff:1.2.3.4]:65535")).map(encode_host),
    st.binary(min_size=8, max_size=8),  # a port is four bytes, two of which are none
    st.builds(bytes.__add__, st.binary(min_size=4, max_size=4), st.just(b"\0\0\xff\xff")),
)
PROPERTIES = st.one_of(
    st.sampled_from(
        (
            b"",
            b"TAGS\x01a\x02KEYS\x01one two\x02UNIQ_KEY\x01ID\x02",
            b"TAGS\x01a\x02UNIQ_KEY\x01\x02\x01x\x02TAGS\x01b",
            "UNIQ_KEY\x01ö\x02x\x01\U0001f600".encode(),
            b"x" * 32_767,
            b"x" * 32_768,
            b"\xed\xa0\x80\x01\xff",
        )
    ),
    st.binary(max_size=60),
)
TOPICS = st.one_of(st.sampled_from((b"Orders", b"%RETRY%group", b"t" * 127, b"")), st.binary(max_size=127))


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record as RocketMQ or anybody may have written it, whose lengths and checksum are right."""
    born_host, store_host = draw(HOSTS), draw(HOSTS)
    is_compressed = draw(st.booleans())
    body = draw(st.sampled_from((b"", b"body", bytes(300), zlib.compress(b"x" * 5_000))))
    topic, properties = draw(TOPICS), draw(PROPERTIES)
    flags = draw(INT32) & ~COMPRESSED_FLAG | is_compressed
    head, *parts = record_parts(
        draw(INT32),
        draw(INT32),
        sys_flag_for_hosts(flags, born_host, store_host),
        draw(INT64),
        born_host,
        store_host,
        draw(INT32),
        draw(INT64),
        body,
        bytes((len(topic),)) + topic,
        b"",
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        store_timestamp_ms=draw(INT64),
    )
    parts[-2:] = [len(properties).to_bytes(2, "big"), properties]
    record = bytearray(b"".join((head, *parts)))
    record[:4] = len(record).to_bytes(4, "big")
    return bytes(record)


def decoded_at_once(answer: bytes) -> list[MessageExt]:
    """What `decode_messages` says, with every field of every message decoded before the next record is looked at."""
    found, at = list[MessageExt](), 0
    while at < len(answer):
        size = int.from_bytes(answer[at : at + 4], "big")
        if not 0 < size <= len(answer) - at:
            raise BadAnswer(f"the broker b gives a record of {size} bytes where {len(answer) - at} are left")
        try:
            found.append(MessageExt.of(decode_message(memoryview(answer)[at : at + size]), "b"))
        except (RecordError, MessageIllegal) as error:
            raise BadAnswer(f"the broker b gives what is not a record: {error}") from error
        at += size
    return found


def outcome(decode: Callable[[bytes], list[MessageExt]], answer: bytes) -> str | list[list[object]]:
    """What an answer is for a consumer: its messages with all their fields, or the text of an error."""
    try:
        found = decode(answer)
    except BadAnswer as error:
        return str(error)
    return [values(message) for message in found]


def check(answer: bytes) -> None:
    """Both ways give the same messages, or raise the same error; and then reading raises nothing."""
    assert outcome(lambda data: decode_messages(data, "b"), answer) == outcome(decoded_at_once, answer)


def values(message: MessageExt) -> list[object]:
    return [type(message), *(getattr(message, name) for name in FIELDS), message.tags, message.keys]


@given(st.lists(records(), max_size=4))
def test_a_message_has_the_same_fields_whenever_they_are_decoded(answer: list[bytes]) -> None:
    check(b"".join(answer))


@given(records(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3))
def test_spoiled_bytes_are_the_same_message_or_the_same_error_at_the_pull(
    record: bytes, changes: list[tuple[int, int]]
) -> None:
    spoiled = bytearray(record)
    for at, value in changes:
        spoiled[at % len(spoiled)] = value
    check(record + bytes(spoiled) + record)


@given(records(), st.integers(0, 200))
def test_a_cut_record_is_the_same_error_at_the_pull(record: bytes, left_bytes: int) -> None:
    check(record + record[:left_bytes])
    cut = bytearray(record[: max(4, len(record) - left_bytes)])
    cut[:4] = len(cut).to_bytes(4, "big")
    check(bytes(cut) + record)


PLAIN = b"".join(
    record_parts(
        3,
        5,
        0,
        1_700_000_000_000,
        encode_host("10.0.0.1:4711"),
        encode_host("127.0.0.1:10911"),
        2,
        0,
        b"body",
        b"\x06Orders",
        b"TAGS\x01a\x02UNIQ_KEY\x01ID\x02",
        queue_offset=7,
        physical_offset=11,
        store_timestamp_ms=1_700_000_000_001,
    )
)


def plain() -> MessageExt:
    """A message of which nothing was read."""
    (message,) = decode_messages(PLAIN, "b")
    return message


def test_the_record_of_these_tests_is_decoded_late() -> None:
    assert cut_plain_record(PLAIN, 0, len(PLAIN)) is not None


@given(st.permutations(FIELDS))
def test_fields_may_be_read_in_any_order(order: list[str]) -> None:
    message, expected = plain(), decoded_at_once(PLAIN)[0]
    for name in order:
        assert getattr(message, name) == getattr(expected, name)
        assert getattr(message, name) is getattr(message, name)


def test_a_message_that_nobody_has_read_is_what_it_was_to_programs() -> None:
    expected = decoded_at_once(PLAIN)[0]
    assert plain() == expected == plain()
    assert repr(plain()) == repr(expected)
    assert pickle.loads(pickle.dumps(plain())) == expected
    assert copy.copy(plain()) == copy.deepcopy(plain()) == expected
    assert attrs.evolve(plain(), topic="Other") == attrs.evolve(expected, topic="Other")
    assert attrs.asdict(plain()) == attrs.asdict(expected)
    assert type(plain()) is MessageExt
    assert plain() != attrs.evolve(expected, queue_offset=8)


def test_a_message_stays_frozen_and_has_no_other_attributes() -> None:
    message = plain()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.topic = "Other"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="'MessageExt' object has no attribute 'topics'") as raised:
        message.topics  # type: ignore[attr-defined] # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("topics", message)
    with pytest.raises(AttributeError):
        object.__new__(MessageExt).topic  # noqa: B018
    assert not hasattr(message, "__dict__")
