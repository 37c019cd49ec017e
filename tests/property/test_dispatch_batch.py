"""A batch of columns says of every record what the reader of single records says, and ends where it must."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq_actors.wire.dispatch_batch import read_dispatch_batch
from rmq_actors.wire.dispatch_request import (
    DELAY_LEVELS_MS,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
)
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    EncodedMessage,
    Message,
    encode_blank,
    encode_message,
)
from tests.worlds.dispatch_batches import BEGIN, check
from tests.worlds.foreign_records import LONG_PROPERTIES, NO_UTF8_PROPERTIES, encode_foreign

TIMESTAMP_MS = 1_700_000_000_000
NAMES = (
    "UNIQ_KEY",
    "KEYS",
    "TAGS",
    "DELAY",
    "WAIT",
    "unit_key",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_DISPATCh",
    "k",
    "",
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "a", "TagA", "a b", " a  b ", "true", "3", "7F00000100002A9F0000000000000001", "ajvakuzm"]
    ),
    st.text(st.sampled_from("abcXYZ 0"), max_size=70),
    st.integers(250, 520).map("x".__mul__),
    st.text(max_size=6),
)
#: Entries that no writer of properties makes are among them.
RAW_PROPERTIES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["\1", "\1", "\1", "", "\1\1"]), TEXTS).map("".join),
        st.text(max_size=4),
    ),
    max_size=6,
).map("\2".join)
ENDS = st.sampled_from(["", "", "\2", "\2\2"])
TOPICS = st.one_of(
    st.sampled_from(["T", "U", "TopicTest", SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, "Tö", "a\0", "a"]),
    st.text("TU", min_size=1, max_size=3),
)
COMMON = st.builds(
    lambda topic, queue_id, tag, key, size: encode_message(
        Message(topic, b"b" * size, queue_id, {"KEYS": key, "UNIQ_KEY": key * 2, "WAIT": "true", "TAGS": tag})
    ),
    st.sampled_from(["T", "U", "Topic"]),
    st.integers(0, 3),
    st.sampled_from(["", "TagA", "TagB"]),
    st.sampled_from(["order-1", "order-2", "a b", "c"]),
    st.sampled_from([0, 10, 10, 100]),
)


@st.composite
def odd_records(draw: st.DrawFn) -> EncodedMessage:
    """Records of every kind, with any properties."""
    properties = (draw(RAW_PROPERTIES) + draw(ENDS)).encode(errors="replace")
    kinds = [0] * 6 + [TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE]
    topic = draw(st.one_of(TOPICS, st.just("T")))
    message = Message(
        "T" if topic.endswith("\0") else topic,
        draw(st.binary(max_size=5)),
        draw(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])),
        sys_flag=draw(st.sampled_from(kinds)),
        born_host=draw(st.sampled_from(["127.0.0.1:1", "127.0.0.1:1", "[::1]:1"])),
        store_host=draw(st.sampled_from(["127.0.0.1:1", "127.0.0.1:1", "[::1]:1"])),
    )
    return encode_message(message, properties=properties)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """The bytes of a file's part that begins at offset `BEGIN`, and where the records end."""
    kinds = draw(st.lists(st.one_of(COMMON, COMMON, odd_records()), min_size=1, max_size=6))
    runs = draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 40)), min_size=1, max_size=8))
    data, ends = bytearray(), list[int]()
    for kind, count in runs:
        for _ in range(count):
            number = len(ends)
            timestamp_ms = draw(st.sampled_from([TIMESTAMP_MS + number, 0, -1])) if number < 4 else TIMESTAMP_MS
            kind.place(queue_offset=number // 2, physical_offset=BEGIN + len(data), store_timestamp_ms=timestamp_ms)
            data += kind.data
            ends.append(len(data))
    if draw(st.booleans()):
        room = draw(st.integers(8, 40))
        data += encode_blank(room) + bytes(room - 8)
    for position, bit in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 7)), max_size=2)):
        data[position] ^= 1 << bit
    if draw(st.booleans()):
        begin = draw(st.integers(0, len(data)))
        data[begin : begin + 512] = bytes(len(data[begin : begin + 512]))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data), ends


@given(
    log=logs(),
    max_records=st.sampled_from([1, 5, 50, 1000]),
    min_records=st.integers(1, 3),
    check_crc=st.booleans(),
    choice=st.data(),
)
def test_the_columns_are_what_single_records_say_and_end_where_they_must(
    log: tuple[bytes, Sequence[int]], max_records: int, min_records: int, check_crc: bool, choice: st.DataObject
) -> None:
    data, ends = log
    limit = choice.draw(st.one_of(st.just(len(data)), st.integers(0, len(data) + 50), st.sampled_from(ends)))
    check(data, limit, max_records, min_records, check_crc=check_crc)


def plain(number: int, body: bytes = b"body") -> EncodedMessage:
    """What producers write."""
    properties = {"UNIQ_KEY": f"{number:032X}", "WAIT": "true", "TAGS": "TagA", "KEYS": f"order-{number:03}"}
    return encode_message(Message("T", body, number % 4, properties))


def joined(records: Sequence[EncodedMessage | bytes]) -> bytes:
    """A log of them, but for what is bytes already."""
    data = bytearray()
    for number, record in enumerate(records):
        if isinstance(record, EncodedMessage):
            timestamp_ms = TIMESTAMP_MS + 700 * number
            record.place(queue_offset=number, physical_offset=BEGIN + len(data), store_timestamp_ms=timestamp_ms)
            data += record.data
        else:
            data += record
    return bytes(data)


def changed(old: bytes, new: bytes, **properties: str) -> EncodedMessage:
    """A record with other bytes, of the same number, somewhere in it."""
    record = encode_message(Message("Topic", b"body", 0, {"UNIQ_KEY": "u", **properties}))
    assert record.data.count(old) == 1
    assert len(old) == len(new)
    record.data = record.data.replace(old, new)
    return record


BODY_LENGTH, TOPIC_LENGTH = b"\0\0\0\4body", b"\5Topic"
ODD_RECORDS: dict[str, EncodedMessage | bytes] = {
    "IPv6": encode_message(Message("T", b"", properties={"KEYS": "a b"}, born_host="[::1]:1", store_host="[::1]:1")),
    "delayed": encode_message(Message(SCHEDULE_TOPIC, b"", 2, {"DELAY": "3", "TAGS": "TagA"})),
    "prepared": encode_message(Message("T", b"", sys_flag=TRANSACTION_PREPARED_TYPE)),
    "committed": encode_message(Message("T", b"", sys_flag=TRANSACTION_COMMIT_TYPE)),
    "rolled back": encode_message(Message("T", b"", sys_flag=TRANSACTION_ROLLBACK_TYPE)),
    "half": encode_message(Message(HALF_TOPIC, b"")),
    "of no property": encode_message(Message("T", b"")),
    "further queues": encode_message(Message("T", b"", 0, {"INNER_MULTI_DISPATCH": "a", "KEYS": "k"})),
    "a name of that length": encode_message(Message("T", b"", 0, {"INNER_MULTI_DISPATCh": "a", "KEYS": "k"})),
    "a name that long": encode_message(Message("T", b"", 0, {"20 bytes, other ones.": "a", "KEYS": "k"})),
    "not ASCII": encode_message(Message("T\u00f6", b"", 0, {"KEYS": "\u00f6 \U0001f600", "TAGS": "\u00f6"})),
    "not ASCII elsewhere": encode_message(Message("T", b"", 0, {"KEYS": "k", "NAME": "\u00f6"})),
    "no UTF-8": changed(b"value", b"v\xfflue", KEYS="value"),
    "a topic that is no UTF-8": changed(TOPIC_LENGTH, b"\5T\xffpic"),
    "more that is no UTF-8": encode_foreign(b"T\xed\xa0\x80\xff", NO_UTF8_PROPERTIES),
    "IPv6 and no UTF-8": encode_foreign(b"T\xff", NO_UTF8_PROPERTIES, born_host="[::1]:1"),
    "the longest properties": encode_foreign(b"T", LONG_PROPERTIES[:32_767]),
    "properties too long for Java": encode_foreign(b"T", LONG_PROPERTIES),
    "IPv6 and properties too long for Java": encode_foreign(b"T", LONG_PROPERTIES, store_host="[::1]:1"),
    "a topic too long for Java": encode_foreign(b"t" * 128, b"KEYS\1a"),
    "a topic that ends in zero": changed(TOPIC_LENGTH, b"\5Topi\0"),
    "a topic with a zero": changed(TOPIC_LENGTH, b"\5To\0ic"),
    "no topic": changed(TOPIC_LENGTH + b"\0\x2c", b"\0\0\x31Topic", KEYS="x" * 28),
    "a zero in a key": changed(b"value", b"v\0lue", KEYS="value"),
    "a zero at the end": changed(b"value", b"valu\0", KEYS="value"),
    "a checksum of others": changed(b"body", b"bodi"),
    "a long body": changed(BODY_LENGTH, b"\0\0\0\5body"),
    "a very long body": changed(BODY_LENGTH, b"\x7f\0\0\4body"),
    "a negative body": changed(BODY_LENGTH, b"\xff\xff\xff\xf4body"),
    "a long topic": changed(TOPIC_LENGTH, b"\xffTopic"),
    "a short topic": changed(TOPIC_LENGTH, b"\4Topic"),
    "the offset of another": bytes(encode_message(Message("T", b"")).data),
    "the magic of none": changed(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xa8"),
    "hash code -2^31": encode_message(Message("T", b"", 0, {"KEYS": "ajvakuzm", "UNIQ_KEY": "ajvakuzm"})),
    "a long key": encode_message(Message("T", b"", 0, {"KEYS": "x" * 300, "UNIQ_KEY": "u"})),
    "long keys": encode_message(Message("T", b"", 0, {"KEYS": "x y " * 300, "UNIQ_KEY": "u"})),
    "long tags": encode_message(Message("T", b"", 0, {"TAGS": "x" * 300, "UNIQ_KEY": "u"})),
    "blanks elsewhere": encode_message(Message("T", b"", 0, {"TAGS": "a b", "KEYS": "a b", "NAME": "a b"})),
    "a blank for a key": encode_message(Message("T", b"", 0, {"KEYS": " "})),
}


@pytest.mark.parametrize("odd", ODD_RECORDS.values(), ids=ODD_RECORDS)
@pytest.mark.parametrize("check_crc", [False, True])
def test_an_odd_record_among_common_ones_is_read_by_itself_or_ends_the_batch(
    odd: EncodedMessage | bytes, check_crc: bool
) -> None:
    for before in (0, 3, 99):
        records = [plain(number) for number in range(before)], [plain(number, b"other") for number in range(120)]
        other = encode_message(Message("Other", b"", 0, {"UNIQ_KEY": "u"}))
        data = joined([*records[0], odd, other, odd, *records[1], odd])
        check(data, len(data), 1000, 1, check_crc=check_crc)


def test_only_what_columns_cannot_hold_ends_a_batch() -> None:
    """So that a delayed message, or one of a producer that speaks IPv6, costs itself alone."""
    for name in (
        "IPv6",
        "delayed",
        "not ASCII",
        "a long key",
        "long keys",
        "a zero in a key",
        "of no property",
        "more that is no UTF-8",
        "IPv6 and no UTF-8",
    ):
        data = joined([*(plain(number) for number in range(70)), ODD_RECORDS[name], plain(70)])
        batch = read_dispatch_batch(memoryview(data), 0, BEGIN, len(data), 1000, delay_levels_ms=DELAY_LEVELS_MS)
        assert batch is not None
        assert len(batch) == 72


@given(entries=st.lists(st.tuples(RAW_PROPERTIES, ENDS), min_size=1, max_size=30), topic=TOPICS)
@example(entries=[("KEYS\1a\2KEYS\1\2UNIQ_KEY\1u", ""), ("KEYS\1a\2KEYS\1b c\2UNIQ_KEY\1u", "\2")], topic="T")
@example(entries=[("", "\2"), ("\1x", ""), ("KEYS", "\2"), ("KEYS\1 ", ""), ("INNER_MULTI_DISPATCH\1", "")], topic="T")
def test_any_properties_are_understood_as_by_the_single_reader(entries: Sequence[tuple[str, str]], topic: str) -> None:
    data = bytearray()
    for number, (text, end) in enumerate(entries):
        record = encode_message(Message(topic.strip("\0"), b""), properties=(text + end).encode(errors="replace"))
        record.place(queue_offset=number, physical_offset=BEGIN + len(data), store_timestamp_ms=TIMESTAMP_MS)
        data += record.data
    check(bytes(data), len(data), 1000, 1, check_crc=False)


@pytest.mark.parametrize("length", [*range(18), 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600])
def test_keys_and_tags_of_any_length_have_javas_hash_codes(length: int) -> None:
    """Beside others of other lengths, with bytes before the text that are no zeros."""
    data = bytearray()
    for number in range(40):
        text = "".join(chr(33 + (number * 7 + place * 5) % 94) for place in range(length - number % 3 % (length + 1)))
        properties = {"TAGS": text, "UNIQ_KEY": text, "KEYS": f"{text} b{text}"}
        record = encode_message(Message(f"Topic{number % 11}", b"", 0, properties))
        record.place(queue_offset=number, physical_offset=BEGIN + len(data), store_timestamp_ms=TIMESTAMP_MS)
        data += record.data
    check(bytes(data), len(data), 1000, 1, check_crc=True)


def test_a_batch_spans_a_bounded_part_of_the_log() -> None:
    record = encode_message(Message("T", bytes(1 << 20)))
    data = bytearray()
    for number in range(20):
        record.place(queue_offset=number, physical_offset=BEGIN + len(data), store_timestamp_ms=TIMESTAMP_MS)
        data += record.data
    batch = read_dispatch_batch(
        memoryview(data), 0, BEGIN, len(data), 1000, delay_levels_ms=DELAY_LEVELS_MS, min_records=1
    )
    assert batch is not None
    assert len(batch) == 15


def test_a_batch_holds_a_bounded_part_of_properties() -> None:
    """What keys and separators are made of takes fifty times their bytes."""
    data = joined([encode_message(Message("T", b""), properties=b"KEYS\1" + b"k " * 16_000) for _ in range(100)])
    batch = read_dispatch_batch(memoryview(data), 0, BEGIN, len(data), 1000, delay_levels_ms=DELAY_LEVELS_MS)
    assert batch is not None
    assert len(batch) == 65
