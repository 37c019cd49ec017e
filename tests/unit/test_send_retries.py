"""When a producer sends again, and what it refuses to send at all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.message_checks import check_batch, check_consumer_group, check_message, check_producer_group
from rmq_actors.protocols.send_requests import Outgoing, outgoing_batch, outgoing_message, send_command
from rmq_actors.protocols.send_retries import SendRetries, SendStatus
from rmq_actors.wire.batch import decode_batch
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.body_compression import (
    COMPRESSED_FLAG,
    CompressedBodyError,
    compress_body,
    decompress_body,
)
from rmq_actors.wire.headers.codec import encode_header
from rmq_actors.wire.headers.messages import SendMessageRequestHeaderV2
from rmq_actors.wire.properties import IllegalProperty, decode_properties
from rmq_actors.wire.record import Message
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from rmq_actors.wire.unique_id import UniqueIds, month_began_ms


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, True),
        (ResponseCode.SERVICE_NOT_AVAILABLE, True),
        (ResponseCode.SYSTEM_ERROR, True),
        (ResponseCode.NO_PERMISSION, True),
        (ResponseCode.NO_BUYER_ID, True),
        (ResponseCode.NOT_IN_CURRENT_UNIT, True),
        (ResponseCode.SYSTEM_BUSY, False),
        (ResponseCode.MESSAGE_ILLEGAL, False),
        (ResponseCode.VERSION_NOT_SUPPORTED, False),
    ],
)
def test_a_refusal_is_retried_if_another_broker_may_not_refuse(code: int, again: bool) -> None:
    assert SendRetries(2).after_refusal(code) == again


def test_there_are_one_attempt_and_retry_times_when_send_failed_more() -> None:
    retries = SendRetries(2)
    assert [retries.after_failure() for _ in range(3)] == [True, True, False]
    assert not SendRetries(0).after_failure()


@pytest.mark.parametrize("status", list(SendStatus))
def test_what_is_not_stored_as_safely_as_asked_is_sent_to_another_broker_only_if_that_is_wanted(
    status: SendStatus,
) -> None:
    assert not SendRetries(2).after_stored(status)
    wanted = SendRetries(2, retry_another_broker_when_not_store_ok=True)
    assert wanted.after_stored(status) == (status is not SendStatus.SEND_OK)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("", b"x"), "blank"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("t" * 128, b"x"), "longer than topic max length"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "forbidden"),
        (Message("T", b""), "length is zero"),
        (Message("T", b"x" * 11), "has 11 bytes, at most 10"),
    ],
)
def test_a_message_that_no_broker_would_take_is_not_sent(message: Message, why: str) -> None:
    found = check_message(message, 10)
    assert found is not None
    assert why in found
    assert check_message(Message("t" * 127, b"x" * 10), 10) is None


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "one message or more"),
        ([Message("T", b"1"), Message("U", b"2")], "message 1 of the batch: its topic is U"),
        ([Message("T", b"1", properties={"DELAY": "3"})], "cannot be delayed"),
        ([Message("%RETRY%G", b"1")], "retries"),
        ([Message("T", b"1"), Message("T", b"2", properties={"WAIT": "false"})], "WAIT"),
        ([Message("T", b"1"), Message("T", b"")], "message 1 of the batch: the message body length is zero"),
    ],
)
def test_a_batch_is_of_one_topic_and_not_delayed(messages: list[Message], why: str) -> None:
    found = check_batch(messages, 10)
    assert found is not None
    assert why in found


@pytest.mark.parametrize("group", ["", "  ", "a b", "g" * 256, "DEFAULT_PRODUCER"])
def test_a_group_that_cannot_be(group: str) -> None:
    assert check_producer_group(group) is not None
    assert check_consumer_group(group.replace("PRODUCER", "CONSUMER")) is not None
    assert check_producer_group("g" * 255) is check_consumer_group("g" * 255) is None


def test_a_message_is_compressed_from_compress_msg_body_over_howmuch_on() -> None:
    short = outgoing_message(Message("T", b"x" * 99), "ID", 100, 5)
    assert (short.body, short.sys_flag) == (b"x" * 99, 0)
    long = outgoing_message(Message("T", b"x" * 100), "ID", 100, 5)
    assert long.sys_flag == 0x301  # COMPRESSED_FLAG, and zlib as 4.9 says it
    assert decompress_body(long.body, long.sys_flag, 100) == b"x" * 100


def test_a_message_that_compressing_makes_no_shorter_is_sent_as_it_is() -> None:
    """A picture, or what is compressed already: a body of just maxMessageSize would be refused by the broker."""
    body = random.Random(1).randbytes(4 * 1024 * 1024)
    sent = outgoing_message(Message("T", body), "ID", 4096, 5)
    assert (len(sent.body), sent.sys_flag) == (len(body), 0)
    assert sent.body == body


@pytest.mark.parametrize("name", ["RECONSUME_TIME", "MAX_RECONSUME_TIMES"])
def test_what_a_consumer_counts_is_a_number(name: str) -> None:
    """The error named neither the property nor what is wrong with it."""
    with pytest.raises(IllegalProperty, match=f"property {name}: 'twice' is no number"):
        outgoing_message(Message("%RETRY%G", b"x", properties={name: "twice"}), "ID", 100, 5)
    # Elsewhere it is a property as any other.
    assert "twice" in outgoing_message(Message("T", b"x", properties={name: "twice"}), "ID", 100, 5).properties


def test_a_body_that_decompresses_to_too_much_or_not_at_all_is_refused() -> None:
    body, flags = compress_body(b"x" * 1_000_000)
    with pytest.raises(CompressedBodyError, match="more than 999999 bytes"):
        decompress_body(body, flags, 999_999)
    with pytest.raises(CompressedBodyError, match="cut"):
        decompress_body(body[:-1], flags, 10_000_000)
    with pytest.raises(CompressedBodyError, match="not what zlib writes"):
        decompress_body(b"plain", COMPRESSED_FLAG, 100)
    with pytest.raises(CompressedBodyError, match="LZ4 or ZSTD"):
        decompress_body(body, COMPRESSED_FLAG | 0x100, 10_000_000)


def test_a_message_keeps_the_id_that_it_has() -> None:
    assert outgoing_message(Message("T", b"x"), "ID", 100, 5).properties == "UNIQ_KEY\x01ID"
    had = outgoing_message(Message("T", b"x", properties={"UNIQ_KEY": "OLD"}), "ID", 100, 5)
    assert had.msg_id == "OLD"


def test_the_request_of_a_message_and_of_a_batch() -> None:
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=3)
    plain = outgoing_message(Message("T", b"x", flag=7, properties={"TAGS": "a", "TRAN_MSG": "true"}), "ID", 100, 5)
    command = send_command(plain, queue, "PG", 17, default_topic="TBW102", default_topic_queue_nums=4)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    fields = command.ext_fields or {}
    assert {name: fields[name] for name in "abcdefghjmn"} == {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "4",
        "g": "17",
        "h": "7",
        "j": "0",
        "m": "false",
        "n": "broker-a",
    }
    batch = outgoing_batch([Message("T", b"1"), Message("T", b"2" * 5_000)], ["A", "B"])
    command = send_command(batch, queue, "PG", 17, default_topic="TBW102", default_topic_queue_nums=4)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert [(item.body, decode_properties(item.properties)) for item in decode_batch(command.body)] == [
        (b"1", {"UNIQ_KEY": "A"}),
        (b"2" * 5_000, {"UNIQ_KEY": "B"}),
    ]
    assert batch.msg_id == "A,B"


@given(
    queue_id=st.integers(-1, 2**31 - 1),
    born_timestamp_ms=st.integers(0, 2**63 - 1),
    sys_flag=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties=st.text(max_size=20),
    is_batch=st.booleans(),
    reconsume_times=st.integers(0, 20),
    max_reconsume_times=st.none() | st.integers(0, 20),
)
def test_a_request_carries_the_header_of_its_type(
    queue_id: int,
    born_timestamp_ms: int,
    sys_flag: int,
    flag: int,
    properties: str,
    is_batch: bool,
    reconsume_times: int,
    max_reconsume_times: int | None,
) -> None:
    outgoing = Outgoing("T", "ID", b"x", properties, sys_flag, flag, is_batch, reconsume_times, max_reconsume_times)
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=queue_id)
    command = send_command(outgoing, queue, "PG", born_timestamp_ms, default_topic="TBW102", default_topic_queue_nums=4)
    expected = SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp_ms,
        flag=flag,
        properties=properties,
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times,
        batch=is_batch,
        broker_name="broker-a",
    )
    assert command.ext_fields == encode_header(expected)


# --- unique ids ------------------------------------------------------------------------------------------------------

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("now_ms", "offset_s", "began_ms"),
    [
        (0, 0, 0),
        (31 * DAY_MS - 1, 0, 0),
        (31 * DAY_MS, 0, 31 * DAY_MS),
        (1_704_067_200_000, 0, 1_704_067_200_000),  # 2024-01-01
        (1_709_164_800_000, 0, 1_706_745_600_000),  # 2024-02-29 in February
        (1_704_067_200_000, -3_600, 1_701_392_400_000),  # still December, an hour west
        (1_704_063_600_000, 3_600, 1_704_063_600_000),  # January already, an hour east
    ],
)
def test_ids_count_the_ms_of_the_local_month(now_ms: int, offset_s: int, began_ms: int) -> None:
    assert month_began_ms(now_ms, offset_s) == began_ms


def _utc(_at_ms: int) -> int:
    return 0


def test_an_id_says_address_process_time_and_number() -> None:
    ids = UniqueIds("10.1.2.3", b"\x00\x01\x02\x03\x04\x05")
    assert ids.next(1_704_067_200_000 + 258, _utc) == "0A0102030001020304050000" + "0102" + "0000"
    assert ids.next(1_704_067_200_000 + 258, _utc)[-4:] == "0001"
    assert len(UniqueIds("::1", bytes(6)).next(0, _utc)) == 56


def test_ids_differ_within_a_ms_and_the_next_month_begins_again() -> None:
    ids = UniqueIds("10.1.2.3", bytes(6))
    assert len({ids.next(5, _utc) for _ in range(65_536)}) == 65_536
    assert ids.next(31 * DAY_MS + 1, _utc)[20:28] == "00000001"
    assert ids.next(31 * DAY_MS - 500, _utc)[20:28] == "00000000", "a clock that was set back a little stands still"
