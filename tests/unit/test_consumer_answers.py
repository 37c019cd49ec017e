"""What a consumer makes of answers: when it pulls again, bytes that are no records, compressed bodies, figures."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.client.client_error import BadAnswer
from rmq_actors.client.consumer_requests import decode_messages, decode_messages_within
from rmq_actors.protocols.consumer_stats import ConsumerStats
from rmq_actors.protocols.pull_results import ImmediateRetries
from rmq_actors.wire.body_compression import COMPRESSED_FLAG
from rmq_actors.wire.record import Message, encode_message

TWO = b"".join(
    bytes(encode_message(Message("T", body, properties={"TAGS": "a", "UNIQ_KEY": "ID"})).data) for body in (b"1", b"2")
)


def test_an_answer_that_moves_the_offset_is_followed_by_a_pull_at_once() -> None:
    retries = ImmediateRetries()
    assert [retries.pause_s(True, 0.001 * number) for number in range(5)] == [0.0] * 5


def test_retry_immediately_is_followed_at_once_and_then_by_pauses_that_double_up_to_a_second() -> None:
    retries, now_s, pauses = ImmediateRetries(), 0.0, []
    for _ in range(9):
        pauses.append(retries.pause_s(False, now_s))
        now_s += pauses[-1] + 0.001
    assert pauses == [0.0, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert retries.pause_s(True, now_s) == 0.0
    assert retries.pause_s(False, now_s) == 0.02


def test_an_answer_that_the_broker_has_held_is_followed_at_once() -> None:
    retries = ImmediateRetries()
    assert [retries.pause_s(False, 15.0 * number) for number in range(4)] == [0.0] * 4


def test_messages_say_where_they_come_from() -> None:
    one, two = decode_messages(TWO, "broker-a")
    assert (one.body, two.body, one.tags, one.msg_id, one.broker_name) == (b"1", b"2", "a", "ID", "broker-a")
    assert len(one.offset_msg_id) == 32
    assert decode_messages(b"", "broker-a") == []


@given(st.integers(0, len(TWO) - 1), st.integers(1, 255))
def test_bytes_that_are_no_records_are_a_bad_answer(at: int, flip: int) -> None:
    spoiled = bytearray(TWO)
    spoiled[at] ^= flip
    try:
        found = decode_messages(bytes(spoiled), "broker-a")
    except BadAnswer:
        return
    assert len(found) == 2  # what no checksum covers


def test_a_body_that_is_not_what_was_stored_is_a_bad_answer() -> None:
    spoiled = TWO.replace(b"2", b"3")
    with pytest.raises(BadAnswer, match=r"the broker broker-a gives what is not a record: .* bodyCRC"):
        decode_messages(spoiled, "broker-a")


@given(st.integers(1, len(TWO) - 1))
def test_an_answer_that_is_cut_is_a_bad_answer(end: int) -> None:
    if end == len(TWO) // 2:
        return
    with pytest.raises(BadAnswer, match="broker-a"):
        decode_messages(TWO[:end], "broker-a")


def test_a_compressed_body_is_decompressed_and_one_that_cannot_be_comes_as_it_is() -> None:
    def message(body: bytes) -> bytes:
        return bytes(encode_message(Message("T", body, sys_flag=COMPRESSED_FLAG)).data)

    (good,) = decode_messages(message(zlib.compress(b"x" * 5000)), "broker-a")
    assert (good.body, good.is_compressed) == (b"x" * 5000, False)
    (bad,) = decode_messages(message(b"not zlib"), "broker-a")
    assert (bad.body, bad.is_compressed) == (b"not zlib", True)


def test_bodies_are_decompressed_up_to_a_limit_and_the_first_that_is_beyond_it_is_named() -> None:
    def message(body: bytes, offset: int, flags: int = COMPRESSED_FLAG) -> bytes:
        record = encode_message(Message("T", body, sys_flag=flags)).data
        record[20:28] = offset.to_bytes(8, "big")
        return bytes(record)

    def lengths(*records: bytes) -> tuple[list[int], int | None]:
        found, left_out = decode_messages_within(b"".join(records), "broker-a", 1000)
        return [len(each.body) for each in found], None if left_out is None else left_out.queue_offset

    long, half = zlib.compress(bytes(1001)), zlib.compress(bytes(500))
    assert lengths(message(half, 7), message(half, 8), message(b"plain", 9, 0), message(half, 10)) == (
        [500, 500, 5],
        10,
    )
    # One that is longer than all of the limit comes alone.
    assert lengths(message(long, 7), message(half, 8)) == ([1001], 8)
    # What cannot be decompressed takes nothing of the limit.
    lz4 = COMPRESSED_FLAG | 0x100
    assert lengths(message(b"lz4", 7, lz4), message(b"bad", 8), message(half, 9)) == ([3, 3, 500], None)


def test_figures_are_of_the_last_minute_and_failures_of_the_last_hour() -> None:
    stats = ConsumerStats()
    assert stats.status("T", 0.0).consume_ok_tps == 0.0
    stats.pulled("T", 30, 0.05, 0.0)
    for second in range(20):
        stats.consumed("T", 3, 1, 0.5, float(second))
    status = stats.status("T", 20.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.consume_rt) == (3.0, 1.0, 500.0)
    assert (status.pull_tps, status.pull_rt, status.consume_failed_msgs) == (1.5, 50.0, 20)
    later = stats.status("T", 600.0)
    assert (later.consume_ok_tps, later.consume_failed_msgs) == (0.0, 20)
    assert stats.status("T", 4000.0).consume_failed_msgs == 0
    assert stats.status("U", 0.0).consume_ok_tps == 0.0
