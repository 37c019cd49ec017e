"""The commit-log record: encoding equals RocketMQ's, checking finds what the format lets it find."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.properties import IllegalProperty
from rmq_actors.wire.record import (
    BLANK_MAGIC,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    STOREHOSTADDRESS_V6_FLAG,
    Message,
    MessageIllegal,
    PropertiesSizeExceeded,
    RecordCheck,
    RecordError,
    StoredMessage,
    body_crc,
    check_record,
    decode_host,
    decode_message,
    decode_record,
    encode_blank,
    encode_host,
    encode_message,
)
from tests.worlds.foreign_records import (
    NO_UTF8_KEYS,
    NO_UTF8_PROPERTIES,
    NO_UTF8_TAGS,
    NO_UTF8_UNIQ_KEY,
    encode_foreign,
)
from tests.worlds.golden_capture import (
    BLANK_OFFSET,
    END_OFFSET,
    FILE_SIZE_BYTES,
    golden_log,
    golden_messages,
    stored_bytes,
)


def golden_files() -> tuple[memoryview, memoryview]:
    log = memoryview(golden_log())
    return log[:FILE_SIZE_BYTES], log[FILE_SIZE_BYTES:]


def golden_records() -> Iterator[tuple[StoredMessage, bytes]]:
    for number, view in enumerate(golden_files()):
        position = 0
        while position < len(view):
            offset = number * FILE_SIZE_BYTES + position
            check = check_record(view, position, offset)
            if check.what == "message":
                yield decode_record(view, position, offset), bytes(view[position : position + check.size])
            else:
                assert (check.what, offset) == ("blank", BLANK_OFFSET)
            position += check.size


def as_row(message: StoredMessage) -> dict[str, Any]:
    """A decoded record under the names of messages.jsonl."""
    born_ip, born_port = message.born_host.rsplit(":", 1)
    store_ip, store_port = message.store_host.rsplit(":", 1)
    return {
        "total": message.total_size,
        "crc": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "phyOffset": message.physical_offset,
        "sysFlag": message.sys_flag,
        "born": message.born_timestamp_ms,
        "bornHost": [born_ip, int(born_port)],
        "store": message.store_timestamp_ms,
        "storeHost": [store_ip, int(store_port)],
        "reconsume": message.reconsume_times,
        "preparedTxOffset": message.prepared_transaction_offset,
        "bodyLen": len(message.body),
        "body": repr(message.body[:80]),
        "topic": message.topic,
        "props": dict(message.properties),
    }


def to_message(stored: StoredMessage) -> Message:
    return Message(
        topic=stored.topic,
        body=stored.body,
        queue_id=stored.queue_id,
        properties=stored.properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )


def encode_as_stored(stored: StoredMessage) -> bytes:
    encoded = encode_message(to_message(stored))
    encoded.place(
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        store_timestamp_ms=stored.store_timestamp_ms,
    )
    return bytes(encoded.data)


def test_the_215_golden_messages_decode_to_the_known_values() -> None:
    decoded = [message for message, _ in golden_records()]
    assert len(decoded) == 215
    for message, row in zip(decoded, golden_messages(), strict=True):
        assert as_row(message) == {name: row[name] for name in as_row(message)}
    assert decoded[-1].physical_offset + decoded[-1].total_size == END_OFFSET


def raw_properties(stored: StoredMessage, data: bytes) -> bytes:
    """The properties of a record with IPv4 hosts, as they are stored."""
    begin = RECORD_OVERHEAD_BYTES + len(stored.body) + len(stored.topic.encode())
    return data[begin:]


def test_the_golden_messages_encode_to_the_golden_bytes() -> None:
    repeats = 0
    for message, data in golden_records():
        raw = raw_properties(message, data)
        names = [entry.partition(b"\x01")[0] for entry in raw.split(b"\x02")]
        if len(names) == len(set(names)):
            assert encode_as_stored(message) == data
        else:
            # A batch's messages carry WAIT=true twice; a map holds it once. All else is the same.
            repeats += 1
            assert (names.count(b"WAIT"), len(names)) == (2, len(set(names)) + 1)
            longer = attrs.evolve(
                to_message(message), properties={"R": raw.decode().replace("\x01", "=").replace("\x02", ";")[2:]}
            )
            encoded = encode_message(longer)
            encoded.place(
                queue_offset=message.queue_offset,
                physical_offset=message.physical_offset,
                store_timestamp_ms=message.store_timestamp_ms,
            )
            assert encoded.data[: -len(raw)] == data[: -len(raw)]
    assert repeats == 30


def test_the_golden_properties_are_the_captured_ones() -> None:
    """messages.jsonl shows the first 80 bytes."""
    for (message, data), row in zip(golden_records(), golden_messages(), strict=True):
        assert raw_properties(message, data)[:80] == stored_bytes(row["propsRaw"])


def test_the_golden_blank() -> None:
    check = check_record(golden_files()[0], BLANK_OFFSET, BLANK_OFFSET)
    assert (check.what, check.size) == ("blank", FILE_SIZE_BYTES - BLANK_OFFSET)
    assert encode_blank(FILE_SIZE_BYTES - BLANK_OFFSET) == golden_log()[BLANK_OFFSET : BLANK_OFFSET + 8]


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
clean_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=12)
hosts = st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)) | st.builds(
    "[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)
)
messages = st.builds(
    Message,
    topic=clean_text,
    body=st.binary(max_size=60),
    queue_id=int32,
    properties=st.dictionaries(clean_text, clean_text, max_size=3),
    flag=int32,
    sys_flag=int32,
    born_timestamp_ms=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


@given(messages, int64, int64, int64, st.integers(0, 9), st.integers(0, 9))
def test_round_trip(message: Message, queue_offset: int, offset: int, stored_ms: int, before: int, after: int) -> None:
    encoded = encode_message(message)
    encoded.place(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=stored_ms)
    view = memoryview(bytes(before) + encoded.data + bytes(after))
    stored = decode_record(view, before, offset)
    v6 = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
    assert stored.sys_flag & v6 == (BORNHOST_V6_FLAG if message.born_host[0] == "[" else 0) | (
        STOREHOSTADDRESS_V6_FLAG if message.store_host[0] == "[" else 0
    )
    assert attrs.evolve(to_message(stored), sys_flag=stored.sys_flag & ~v6) == attrs.evolve(
        message, sys_flag=message.sys_flag & ~v6
    )
    assert (stored.queue_offset, stored.physical_offset, stored.store_timestamp_ms) == (queue_offset, offset, stored_ms)
    assert (stored.total_size, stored.body_crc) == (len(encoded.data), body_crc(message.body))
    assert encoded.takes_queue_offset == stored.takes_queue_offset


SAMPLE = Message(
    topic="TopicA",
    body=b"the body",
    queue_id=3,
    properties={"KEYS": "k1 k2", "TAGS": "t"},
    born_timestamp_ms=1_700_000_000_000,
    born_host="10.0.0.7:40000",
    store_host="10.0.0.8:10911",
)
SAMPLE_OFFSET = 4242


def sample() -> bytearray:
    encoded = encode_message(SAMPLE)
    encoded.place(queue_offset=7, physical_offset=SAMPLE_OFFSET, store_timestamp_ms=1_700_000_000_001)
    return encoded.data


#: What neither a checksum nor the structure covers: the format's limit, as in RocketMQ. First byte, past the last.
UNCHECKED = {
    "queueId": (12, 16),
    "flag": (16, 20),
    "queueOffset": (20, 28),
    "sysFlag but for the two IPv6 bits": (36, 40),
    "bornTimestamp": (40, 48),
    "bornHost": (48, 56),
    "storeTimestamp": (56, 64),
    "storeHost": (64, 72),
    "reconsumeTimes": (72, 76),
    "preparedTransactionOffset": (76, 84),
    "topic": (97, 103),
    "properties": (105, 105 + len("KEYS.k1 k2.TAGS.t")),
}


def test_any_change_of_one_bit_is_found_where_the_format_can_find_it() -> None:
    data = sample()
    assert check_record(memoryview(data), 0, SAMPLE_OFFSET).what == "message"
    unchecked = {at for begin, end in UNCHECKED.values() for at in range(begin, end)}
    for at in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            found = check_record(memoryview(bad), 0, SAMPLE_OFFSET).what == "invalid"
            v6_bit = at == 39 and 1 << bit in {BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG}
            assert found == (at not in unchecked or v6_bit), (at, bit)


@given(st.integers(0, 2000), st.integers(1, 255))
def test_any_change_of_a_body_is_found(at: int, change: int) -> None:
    encoded = encode_message(Message("T", bytes(range(256)) * 8))
    encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
    encoded.data[88 + at] ^= change
    check = check_record(memoryview(encoded.data), 0, 0)
    assert (check.what, check.reason[:7]) == ("invalid", "bodyCRC")
    assert check_record(memoryview(encoded.data), 0, 0, check_crc=False).what == "message"


def test_a_record_that_stands_elsewhere_is_invalid() -> None:
    check = check_record(memoryview(sample()), 0, SAMPLE_OFFSET + 1)
    assert check.reason == "physicalOffset 4242 in a record that stands at 4243"


@pytest.mark.parametrize("size", range(len(sample())))
def test_a_record_cut_anywhere_is_invalid(size: int) -> None:
    assert check_record(memoryview(sample()[:size]), 0, SAMPLE_OFFSET).what == "invalid"


@pytest.mark.parametrize(
    ("total", "magic", "room", "reason"),
    [
        (0, 0, 200, "magic 0x00000000"),
        (100, 0xDAA320A8, 200, "magic 0xDAA320A8"),
        (RECORD_OVERHEAD_BYTES - 1, MESSAGE_MAGIC, 200, "totalSize 90: 91 to 200 are possible"),
        (201, MESSAGE_MAGIC, 200, "totalSize 201"),
        (-5, MESSAGE_MAGIC, 200, "totalSize -5"),
        (199, BLANK_MAGIC, 200, "a blank record of 199 bytes where 200 are left"),
        (201, BLANK_MAGIC, 200, "a blank record of 201 bytes where 200 are left"),
        (7, BLANK_MAGIC, 7, "7 bytes are left"),
    ],
)
def test_what_is_no_record_says_why(total: int, magic: int, room: int, reason: str) -> None:
    view = memoryview((struct.pack(">iI", total, magic) + bytes(room))[:room])
    check = check_record(view, 0, 0)
    assert check.what == "invalid"
    assert check.reason.startswith(reason)
    with pytest.raises(RecordError, match="^offset 0: " + reason):
        decode_record(view, 0, 0)


def test_decoding_a_blank_is_an_error() -> None:
    with pytest.raises(RecordError, match="offset 10: a blank record, not a message"):
        decode_record(memoryview(encode_blank(8)), 0, 10)


def test_text_that_is_no_utf8_is_read_as_java_does() -> None:
    record = encode_foreign(b"T\xed\xa0\x80\xff", NO_UTF8_PROPERTIES, b"body")
    record.place(queue_offset=1, physical_offset=SAMPLE_OFFSET, store_timestamp_ms=2)
    found = decode_record(memoryview(record.data), 0, SAMPLE_OFFSET)
    assert (found.topic, found.body, found.is_passed_over) == ("T\ufffd\ufffd", b"body", False)
    keys = " ".join(NO_UTF8_KEYS)
    assert found.properties == {"TAGS": NO_UTF8_TAGS, "KEYS": keys, "UNIQ_KEY": NO_UTF8_UNIQ_KEY}


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
@pytest.mark.parametrize(
    ("length", "is_passed_over"), [(32_767, False), (32_768, True), (40_000, True), (65_535, True)]
)
def test_a_record_whose_properties_are_too_long_for_java_is_whole_and_passed_over(
    host: str, length: int, is_passed_over: bool
) -> None:
    """RocketMQ's master writes them, and its readers take their length for a negative one."""
    record = encode_foreign(b"T", b"KEYS\1k\2X\1".ljust(length, b"x"), born_host=host, store_host=host)
    record.place(queue_offset=1, physical_offset=SAMPLE_OFFSET, store_timestamp_ms=2)
    view = memoryview(record.data)
    assert check_record(view, 0, SAMPLE_OFFSET) == RecordCheck("message", len(view), is_passed_over=is_passed_over)
    found = decode_record(view, 0, SAMPLE_OFFSET)
    assert (found.is_passed_over, found.takes_queue_offset) == (is_passed_over, not is_passed_over)
    assert found.properties["KEYS"] == "k"


@pytest.mark.parametrize(("length", "is_possible"), [(127, True), (128, False), (255, False)])
def test_a_topic_that_is_too_long_for_java_is_refused(length: int, is_possible: bool) -> None:
    """Its master cannot write one; its readers take the length for a negative one, and find nothing behind it."""
    record = encode_foreign(b"t" * length, b"A\1b")
    record.place(queue_offset=1, physical_offset=SAMPLE_OFFSET, store_timestamp_ms=2)
    check = check_record(memoryview(record.data), 0, SAMPLE_OFFSET)
    reason = "" if is_possible else f"topicLen {length}: at most 127 are possible"
    assert (check.what, check.reason) == ("message" if is_possible else "invalid", reason)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"topic": ""}, MessageIllegal, "topic of 0 bytes"),
        ({"topic": "t" * 128}, MessageIllegal, "topic of 128 bytes: 1 to 127"),
        ({"topic": "\u00e9" * 64}, MessageIllegal, "topic of 128 bytes"),
        ({"topic": "\ud800"}, MessageIllegal, "topic"),
        ({"properties": {"a": "\ud800"}}, IllegalProperty, "property 'a' is no Unicode text"),
        ({"topic": "t\0"}, MessageIllegal, "ends in 0x00"),
        ({"topic": "\0t"}, MessageIllegal, "begins with 0x00"),
        ({"properties": {"\0a": "v"}}, IllegalProperty, "begins with 0x00"),
        ({"properties": {"a": "\0" * 512 + "v"}}, IllegalProperty, "512 times 0x00"),
        ({"properties": {"a": "v\0"}}, IllegalProperty, "ends in 0x00"),
        ({"properties": {"a": "\x01"}}, IllegalProperty, "property 'a'"),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, MessageIllegal, "body of 4194305 bytes: at most 4194304"),
        ({"properties": {"a": "v" * 32766}}, PropertiesSizeExceeded, "properties of 32768 bytes: at most 32767"),
        ({"queue_id": 1 << 31}, MessageIllegal, "does not fit its field"),
        ({"born_timestamp_ms": 1 << 63}, MessageIllegal, "does not fit its field"),
        ({"born_host": "localhost:1"}, MessageIllegal, "host 'localhost:1' is not an IP address"),
        ({"store_host": "10.0.0.1:65536"}, MessageIllegal, "the port is not in 0..65535"),
        ({"store_host": "10.0.0.1"}, MessageIllegal, "is not an IP address and a port"),
    ],
)
def test_what_the_log_must_not_take(change: dict[str, Any], error: type[ValueError], text: str) -> None:
    with pytest.raises(error, match=text):
        encode_message(attrs.evolve(SAMPLE, **change))


@pytest.mark.parametrize(
    "change",
    [{"topic": "t" * 127}, {"body": bytes(4 * 1024 * 1024)}, {"properties": {"a": "v" * 32765}}, {"body": b""}],
)
def test_limits_themselves_are_allowed(change: dict[str, Any]) -> None:
    encoded = encode_message(attrs.evolve(SAMPLE, **change))
    encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
    assert check_record(memoryview(encoded.data), 0, 0).what == "message"


@pytest.mark.parametrize(
    ("sys_flag", "takes"),
    [(0x0, True), (0x1, True), (0x4, False), (0x5, False), (0x8, True), (0xC, False), (0x14, False)],
)
def test_prepared_and_rolled_back_records_take_no_queue_offset(sys_flag: int, takes: bool) -> None:
    assert encode_message(attrs.evolve(SAMPLE, sys_flag=sys_flag)).takes_queue_offset is takes


def test_hosts_in_bytes() -> None:
    assert encode_host("1.2.3.4:10911") == bytes([1, 2, 3, 4, 0, 0, 0x2A, 0x9F])
    assert len(encode_host("[::1]:1")) == 20
    assert decode_host(encode_host("[2001:db8::1]:65535")) == "[2001:db8::1]:65535"


def test_the_crc_has_no_sign() -> None:
    assert body_crc(b"") == 0
    assert body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def test_a_record_is_decoded_wherever_it_came_from() -> None:
    encoded = encode_message(Message("T", b"body", properties={"KEYS": "k"}))
    encoded.place(queue_offset=7, physical_offset=123_456, store_timestamp_ms=5)
    decoded = decode_message(memoryview(encoded.data))
    assert (decoded.physical_offset, decoded.queue_offset, decoded.body) == (123_456, 7, b"body")
    with pytest.raises(RecordError, match="90 bytes: a record has at least 91"):
        decode_message(memoryview(encoded.data)[:90])
    encoded.data[90] ^= 1
    with pytest.raises(RecordError, match="offset 123456"):
        decode_message(memoryview(encoded.data))
