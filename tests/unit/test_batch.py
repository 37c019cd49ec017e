"""Batches: the client's body, and its messages as records, compared with RocketMQ's."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.batch import BatchItem, MessageBatch, decode_batch, encode_batch, encode_message_batch
from rmq_actors.wire.properties import IllegalProperty, decode_properties, encode_properties
from rmq_actors.wire.record import MessageIllegal, PropertiesSizeExceeded, check_record, decode_record
from tests.worlds.golden_capture import golden_log, golden_messages

text = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=12)
properties = st.dictionaries(text, text, max_size=3)
items = st.lists(st.tuples(st.binary(max_size=40), st.integers(-(1 << 31), (1 << 31) - 1), properties), max_size=6)
PLACE: dict[str, Any] = {"queue_offset": 5, "physical_offset": 1000, "store_timestamp_ms": 1_700_000_000_000}


@given(items)
def test_a_body_comes_back(items: list[tuple[bytes, int, dict[str, str]]]) -> None:
    assert list(decode_batch(encode_batch(items))) == [
        BatchItem(flag, body, encode_properties(properties)) for body, flag, properties in items
    ]


@given(items.filter(bool), st.data())
def test_a_body_that_is_cut_names_the_message(
    items: list[tuple[bytes, int, dict[str, str]]], data: st.DataObject
) -> None:
    whole = encode_batch(items)
    ends = [len(encode_batch(items[:number])) for number in range(len(items) + 1)]
    cut = data.draw(st.integers(1, len(whole) - 1))
    if cut in ends:
        assert len(list(decode_batch(whole[:cut]))) == ends.index(cut)
    else:
        number = sum(end <= cut for end in ends) - 1
        with pytest.raises(MessageIllegal, match=f"^message {number} of the batch"):
            list(decode_batch(whole[:cut]))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_illegal(body: bytes) -> None:
    with contextlib.suppress(MessageIllegal):
        for item in decode_batch(body):
            assert len(item.body) + len(item.properties) <= len(body)


@pytest.mark.parametrize(
    ("body_bytes", "properties_bytes", "problem"),
    [(-1, 0, "bodyLen -1 of 12"), (11, 0, "bodyLen 11 of 12"), (2, -1, "propsLen -1 of 8"), (2, 9, "propsLen 9 of 8")],
)
def test_lengths_that_do_not_fit_are_named(body_bytes: int, properties_bytes: int, problem: str) -> None:
    body = struct.pack(">iiiii2sh", 0, 0, 0, 0, body_bytes, b"xx", properties_bytes) + bytes(8)
    with pytest.raises(MessageIllegal, match=f"message 0 of the batch: {problem}"):
        list(decode_batch(body))


def test_the_golden_batches_come_out_byte_for_byte() -> None:
    """Ten messages each, sent together: their own properties, a separator, the batch's with WAIT once more."""
    rows = [row for row in golden_messages() if row["topic"] == "TopicBatch"]
    log = golden_log()
    for first in range(0, 30, 10):
        stored = [
            decode_record(memoryview(log), row["phyOffset"], row["phyOffset"]) for row in rows[first : first + 10]
        ]
        begin, end = stored[0].physical_offset, stored[-1].physical_offset + stored[-1].total_size
        own = []
        for message in stored:
            raw = log[message.physical_offset : message.physical_offset + message.total_size]
            text = raw[raw.index(b"TopicBatch") + 12 :].removesuffix(b"\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true")
            assert text.count(b"WAIT\x01true") == 1
            own.append((message.body, message.flag, decode_properties(text)))
        batch = MessageBatch(
            "TopicBatch",
            encode_batch(own),
            stored[0].queue_id,
            {"CLUSTER": "DefaultCluster", "WAIT": "true"},
            born_timestamp_ms=stored[0].born_timestamp_ms,
            born_host=stored[0].born_host,
            store_host=stored[0].store_host,
        )
        encoded = encode_message_batch(batch)
        encoded.place(
            queue_offset=stored[0].queue_offset,
            physical_offset=begin,
            store_timestamp_ms=stored[0].store_timestamp_ms,
        )
        assert bytes(encoded.data) == log[begin:end]


@given(items.filter(bool), properties, st.sampled_from(["127.0.0.1:1", "[::1]:65535"]))
def test_each_message_is_a_record_of_its_own(
    items: list[tuple[bytes, int, dict[str, str]]], common: dict[str, str], host: str
) -> None:
    batch = MessageBatch("T", encode_batch(items), 3, common, born_host=host, reconsume_times=2)
    encoded = encode_message_batch(batch)
    encoded.place(**PLACE)
    view, ends = memoryview(encoded.data), [*encoded.starts[1:], len(encoded.data)]
    for number, (start, end, (body, flag, own)) in enumerate(zip(encoded.starts, ends, items, strict=True)):
        assert check_record(view, start, 1000 + start).size == end - start
        stored = decode_record(view, start, 1000 + start)
        assert (stored.topic, stored.queue_id, stored.body, stored.flag) == ("T", 3, body, flag)
        assert (stored.queue_offset, stored.store_timestamp_ms) == (5 + number, 1_700_000_000_000)
        assert (stored.born_host, stored.reconsume_times, stored.prepared_transaction_offset) == (host, 2, 0)
        assert stored.properties == {**own, **common}


def with_raw_properties(data: bytes) -> bytes:
    return struct.pack(">iiiiih", 0, 0, 0, 0, 0, len(data)) + data


def test_a_separator_at_the_end_of_a_message_is_not_doubled() -> None:
    """Clients before 4.9.1 write one; 4.9.1 itself forgot to (#3476)."""
    for own in (b"a\x01b", b"a\x01b\x02"):
        encoded = encode_message_batch(MessageBatch("T", with_raw_properties(own), properties={"C": "d"}))
        assert encoded.data.endswith(b"\x00\x07a\x01b\x02C\x01d")
    assert encode_message_batch(MessageBatch("T", with_raw_properties(b"a\x01b\x02"))).data.endswith(
        b"\x00\x04a\x01b\x02"
    )


BATCH = MessageBatch("T", encode_batch([(b"x", 0, {"a": "b"}), (b"y", 0, {})]), properties={"C": "d"})


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"body": b""}, MessageIllegal, "a batch without a message"),
        ({"topic": ""}, MessageIllegal, "topic of 0 bytes"),
        ({"queue_id": 1 << 31}, MessageIllegal, "does not fit its field"),
        ({"body": bytes(101)}, MessageIllegal, "batch of 101 bytes: at most 100"),
        ({"properties": {"a": "\x01"}}, IllegalProperty, "property 'a'"),
        ({"properties": {"a": "v" * 32763}}, PropertiesSizeExceeded, "message 0 of the batch: properties of 32769"),
        ({"body": with_raw_properties(b"a\x01\xff")}, IllegalProperty, "message 0 .*: property 'a' is not UTF-8: "),
        (
            {"body": with_raw_properties(b"a\x01b\x02\xff\xc3\x01c")},
            IllegalProperty,
            "property '\ufffd\ufffd' is not UTF-8",
        ),
        ({"body": with_raw_properties(b"a\x01\0"), "properties": {}}, IllegalProperty, "message 0 .*ends in 0x00"),
    ],
)
def test_what_the_log_must_not_take(change: dict[str, Any], error: type[ValueError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        encode_message_batch(attrs.evolve(BATCH, **change), max_message_size_bytes=100)


def test_what_a_small_body_becomes_is_bounded_before_it_is_made() -> None:
    """Each message repeats the batch's properties: 4 MiB of body could become gigabytes."""
    batch = MessageBatch("T", encode_batch([(b"", 0, {})] * 100), properties={"a": "v" * 32_000})
    record_bytes = 91 + len("T") + 32_002
    for max_total_bytes, number in ((record_bytes - 1, 0), (10 * record_bytes, 10), (100 * record_bytes - 1, 99)):
        with pytest.raises(MessageIllegal, match=f"message {number} of the batch: .* more than {max_total_bytes} "):
            encode_message_batch(batch, max_total_bytes=max_total_bytes)
    assert len(encode_message_batch(batch, max_total_bytes=100 * record_bytes).data) == 100 * record_bytes


def test_what_looks_torn_to_recovery_is_refused_wherever_it_stands() -> None:
    zeros = bytes(512)
    for own in (b"\0a\x01b", b"a\x01b\0", b"a\x01" + zeros + b"b"):
        with pytest.raises(IllegalProperty, match="torn record"):
            encode_message_batch(MessageBatch("T", with_raw_properties(own)))
    encode_message_batch(MessageBatch("T", with_raw_properties(b"a\x01" + zeros[1:] + b"b")))
