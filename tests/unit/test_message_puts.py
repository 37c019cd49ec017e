"""MessagePuts: what of a message is stored where, what is refused and with which status, and what is told to whom."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.log.commit_log import AppendMessageResult
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.dispatch_request import OP_HALF_TOPIC
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
    StoredMessage,
    decode_record,
)
from tests.worlds.faulty_disk import FaultyFile
from tests.worlds.golden_capture import END_OFFSET, FILE_SIZE_BYTES, golden_log, golden_messages
from tests.worlds.log_puts import LogPuts


def put(appended: LogPuts, body: bytes = b"body", topic: str = "T", **fields: Any) -> PutResult:
    """A put under ASYNC_FLUSH and ASYNC_MASTER is answered at once."""
    pending = appended.puts.async_put_message(Message(topic, body, **fields))
    assert pending.result is not None
    return pending.result


def append_of(result: PutResult) -> AppendMessageResult:
    assert result.status is PutStatus.PUT_OK, result.reason
    assert result.append is not None
    return result.append


# --- RocketMQ's own bytes ---------------------------------------------------------------------------------------------


def golden_records() -> list[StoredMessage]:
    views = [memoryview(golden_log())[:FILE_SIZE_BYTES], memoryview(golden_log())[FILE_SIZE_BYTES:]]
    found = []
    for row in golden_messages():
        number, position = divmod(row["phyOffset"], FILE_SIZE_BYTES)
        found.append(decode_record(views[number], position, row["phyOffset"]))
    return found


def as_put(stored: StoredMessage) -> Message:
    """What RocketMQ's broker put: not delayed yet; or delivered after its delay, which DELAY still tells."""
    properties, topic, queue_id = dict(stored.properties), stored.topic, stored.queue_id
    delay_time_level: int | None = 0
    if topic == "SCHEDULE_TOPIC_XXXX":
        topic, queue_id, delay_time_level = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID")), None
    return Message(
        topic,
        stored.body,
        queue_id,
        properties,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp_ms,
        stored.born_host,
        stored.store_host,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        delay_time_level,
    )


def as_batch(stored: list[StoredMessage]) -> MessageBatch:
    common = {"CLUSTER": "DefaultCluster", "WAIT": "true"}
    own = [{name: value for name, value in each.properties.items() if name != "CLUSTER"} for each in stored]
    body = encode_batch((each.body, each.flag, properties) for each, properties in zip(stored, own, strict=True))
    first = stored[0]
    return MessageBatch(
        first.topic,
        body,
        first.queue_id,
        common,
        first.sys_flag,
        first.born_timestamp_ms,
        first.born_host,
        first.store_host,
    )


@pytest.mark.trio
async def test_the_golden_messages_put_again_make_the_golden_log(tmp_path: Path) -> None:
    """Every field of every record, WAIT kept or dropped, the blank, batches, delays, half messages.

    Only the order of properties may differ: Java's is that of its HashMap.
    """
    appended = LogPuts.open(tmp_path, FILE_SIZE_BYTES)
    records = golden_records()
    while records:
        count = 10 if records[0].topic == "TopicBatch" else 1
        group, records = records[:count], records[count:]
        appended.clock.ms = group[0].store_timestamp_ms
        if count > 1:
            result = await appended.puts.put_messages(as_batch(group))
        else:
            result = await appended.puts.put_message(as_put(group[0]))
        append = append_of(result)
        assert (append.offset, append.queue_offset) == (group[0].physical_offset, group[0].queue_offset)
        assert [append.offset + start for start in append.starts] == [each.physical_offset for each in group]
        assert append.msg_id.split(",")[-1] == f"7F00000100002A9F{group[-1].physical_offset:016X}"
    assert appended.messages() == golden_records()
    assert appended.log.max_offset == END_OFFSET
    assert bytes(appended.log.select(234867, 27277)) == golden_log()[234867:FILE_SIZE_BYTES]
    appended.log.close()


# --- Delayed messages and transactions --------------------------------------------------------------------------------


@pytest.mark.trio
@pytest.mark.parametrize(
    ("delay", "level"), [("1", 1), ("3", 3), ("+3", 3), ("18", 18), ("19", 18), ("2147483647", 18)]
)
async def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path: Path, delay: str, level: int) -> None:
    appended = LogPuts.open(tmp_path)
    append_of(put(appended, queue_id=7, properties={"a": "b", "DELAY": delay, "WAIT": "true"}))
    (stored,) = appended.messages()
    assert (stored.topic, stored.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    assert stored.properties == {"a": "b", "DELAY": str(level), "WAIT": "true", "REAL_TOPIC": "T", "REAL_QID": "7"}


@pytest.mark.trio
async def test_what_is_not_delayed(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    for fields in (
        {"properties": {"DELAY": "0"}},
        {"properties": {"DELAY": "-1"}},
        {"properties": {"DELAY": "3"}, "delay_time_level": 0},
        {"properties": {"DELAY": "3"}, "sys_flag": TRANSACTION_PREPARED_TYPE},
        {"properties": {"DELAY": "3"}, "sys_flag": TRANSACTION_ROLLBACK_TYPE},
    ):
        append_of(put(appended, **fields))
    assert {(stored.topic, stored.properties["DELAY"]) for stored in appended.messages()} == {
        ("T", "0"),
        ("T", "-1"),
        ("T", "3"),
    }
    for delay in ("", "x", "3 ", "1_0", "1e1", "9" * 11):
        refused = put(appended, properties={"DELAY": delay})
        assert (refused.status, refused.append) == (PutStatus.MESSAGE_ILLEGAL, None)
        assert refused.reason == f"property DELAY is {delay!r}, not a level"


@pytest.mark.trio
async def test_the_levels_are_those_of_the_setting_and_a_committed_message_may_be_delayed(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, message_delay_level="1s 1d")
    append_of(put(appended, properties={"DELAY": "5"}, sys_flag=TRANSACTION_COMMIT_TYPE))
    append_of(put(appended, delay_time_level=1))
    assert [(each.queue_id, each.properties["DELAY"]) for each in appended.messages()] == [(1, "2"), (0, "1")]


@pytest.mark.trio
async def test_prepared_and_rolled_back_messages_take_no_queue_offset(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    flags = (0, TRANSACTION_PREPARED_TYPE, 0, TRANSACTION_ROLLBACK_TYPE, TRANSACTION_COMMIT_TYPE)
    assert [append_of(put(appended, sys_flag=flag)).queue_offset for flag in flags] == [0, 0, 1, 0, 2]


# --- Batches ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.integers(0, 800),
)
def test_a_batch_lies_in_one_file_with_consecutive_queue_offsets(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], before: int
) -> None:
    async def main() -> None:
        appended = LogPuts.open(tmp_path_factory.mktemp("store"), 2000)
        first = append_of(put(appended, bytes(before)))
        body = encode_batch((bytes([number]) * size, number, {}) for number, size in enumerate(sizes))
        append = append_of(await appended.puts.put_messages(MessageBatch("T", body)))
        assert append.offset in {first.end_offset, 2000}
        assert append.offset // 2000 == (append.end_offset - 1) // 2000
        assert append.end_offset % 2000 <= 2000 - 8
        assert append.offset == first.end_offset or first.end_offset + append.size + 8 > 2000
        stored = appended.messages()[1:]
        assert [(each.queue_offset, each.flag, each.body) for each in stored] == [
            (number + 1, number, bytes([number]) * size) for number, size in enumerate(sizes)
        ]
        assert append_of(put(appended)).queue_offset == len(sizes) + 1
        appended.log.close()

    trio.run(main)


#: Entry 0 of another topic's queue, if it were believed.
FORGED = {"INNER_MULTI_DISPATCH": "Victim", "INNER_MULTI_QUEUE_OFFSET": "0"}
FORGED_IN_BATCH = "message 1 of the batch: property INNER_MULTI_QUEUE_OFFSET is the broker's"


@pytest.mark.trio
async def test_batches_that_are_refused_leave_nothing(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, max_message_size_bytes=5000)
    good = MessageBatch("T", encode_batch([(b"x", 0, {}), (b"y", 0, {})]))
    for change, status, reason in (
        ({"properties": {"DELAY": "1"}}, PutStatus.MESSAGE_ILLEGAL, "cannot be delayed"),
        ({"sys_flag": TRANSACTION_PREPARED_TYPE}, PutStatus.MESSAGE_ILLEGAL, "cannot be part of a transaction"),
        ({"sys_flag": TRANSACTION_COMMIT_TYPE}, PutStatus.MESSAGE_ILLEGAL, "cannot be part of a transaction"),
        ({"body": good.body[:-1]}, PutStatus.MESSAGE_ILLEGAL, "message 1 of the batch"),
        ({"body": b""}, PutStatus.MESSAGE_ILLEGAL, "a batch without a message"),
        ({"body": bytes(5001)}, PutStatus.MESSAGE_ILLEGAL, "at most 5000"),
        ({"body": encode_batch([(bytes(100), 0, {})] * 6)}, PutStatus.MESSAGE_ILLEGAL, "more than 992 bytes"),
        ({"topic": "../T"}, PutStatus.MESSAGE_ILLEGAL, "cannot be a directory's name"),
        ({"queue_id": -1}, PutStatus.MESSAGE_ILLEGAL, "queue -1: queues are counted from 0"),
        ({"properties": {"a": "v" * 40_000}}, PutStatus.PROPERTIES_SIZE_EXCEEDED, "message 0 of the batch"),
        ({"body": encode_batch([(b"x", 0, {}), (b"y", 0, FORGED)])}, PutStatus.MESSAGE_ILLEGAL, FORGED_IN_BATCH),
        ({"properties": FORGED}, PutStatus.MESSAGE_ILLEGAL, FORGED_IN_BATCH.replace("1", "0")),
    ):
        result = await appended.puts.put_messages(attrs.evolve(good, **change))
        assert (result.status, result.append) == (status, None)
        assert reason in result.reason
    assert (appended.log.max_offset, appended.messages()) == (0, [])
    assert append_of(await appended.puts.put_messages(good)).msg_id.count(",") == 1


@pytest.mark.trio
@pytest.mark.parametrize(
    "fields", [{}, {"properties": {"DELAY": "1"}}, {"sys_flag": TRANSACTION_PREPARED_TYPE}], ids=str
)
async def test_there_is_no_queue_below_0(tmp_path: Path, fields: dict[str, Any]) -> None:
    """A message was stored there, and no consumer had that queue."""
    appended = LogPuts.open(tmp_path)
    refused = put(appended, queue_id=-1, **fields)
    assert (refused.status, refused.append) == (PutStatus.MESSAGE_ILLEGAL, None)
    assert refused.reason == "queue -1: queues are counted from 0"
    assert appended.log.max_offset == 0


@pytest.mark.trio
async def test_a_refused_put_takes_no_queue_offset(tmp_path: Path) -> None:
    """A consumer would wait at the gap, and the queue's next entry stand after blank ones."""
    appended = LogPuts.open(tmp_path, max_message_size_bytes=5000, **LMQ)
    batch = MessageBatch("T", encode_batch([(bytes(700), 0, {})] * 2))
    assert append_of(put(appended)).queue_offset == 0
    for refused in (
        put(appended, bytes(5001)),  # more than maxMessageSize
        put(appended, bytes(2000)),  # more than a file of the log holds
        put(appended, bytes(2000), properties={"INNER_MULTI_DISPATCH": "%LMQ%a,T"}),
        put(appended, properties={"a": "v" * 40_000}),
        put(appended, properties={"a": chr(1)}),
        await appended.puts.put_messages(batch),
        await appended.puts.put_messages(attrs.evolve(batch, body=batch.body[:-1])),
    ):
        assert refused.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}, refused
        assert appended.log.next_queue_offset("T", 0) == 1
        assert appended.log.next_queue_offset("%LMQ%a", 0) == 0
    assert append_of(put(appended)).queue_offset == 1
    assert [stored.queue_offset for stored in appended.messages()] == [0, 1]
    appended.log.close()


# --- Multi-dispatch ---------------------------------------------------------------------------------------------------

LMQ = {"enable_multi_dispatch": True, "enable_lmq": True}


@pytest.mark.trio
async def test_a_message_for_further_queues_carries_its_offsets_in_them(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, 4000, **LMQ)
    append_of(put(appended, topic="other", queue_id=2))
    for names in ("%LMQ%a,other", "%LMQ%a", "%LMQ%a,%LMQ%b,%LMQ%a", "T,%LMQ%b,,"):
        append_of(put(appended, queue_id=2, properties={"INNER_MULTI_DISPATCH": names, "WAIT": "true"}))
    append_of(put(appended, queue_id=2))
    stored = appended.messages()[1:]
    assert [each.properties.get("INNER_MULTI_QUEUE_OFFSET") for each in stored] == ["0,1", "1", "2,0,2", "3,1", None]
    assert [each.queue_offset for each in stored] == [0, 1, 2, 3, 4]
    assert all("WAIT" not in each.properties for each in stored)
    # A light queue has the id 0, whatever that of the message is.
    assert (appended.log.next_queue_offset("%LMQ%a", 0), appended.log.next_queue_offset("other", 2)) == (3, 2)
    assert appended.log.lmq_num == 2


@pytest.mark.trio
async def test_without_the_setting_or_without_a_name_it_is_a_plain_message(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    append_of(put(appended, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    other = LogPuts.open(tmp_path / "other", **LMQ)
    for names in ("", " ", ",", ",,"):
        append_of(put(other, properties={"INNER_MULTI_DISPATCH": names}))
    for each in (*appended.messages(), *other.messages()):
        assert "INNER_MULTI_QUEUE_OFFSET" not in each.properties
    assert appended.log.lmq_num == other.log.lmq_num == 0


@pytest.mark.trio
@pytest.mark.parametrize(
    ("settings", "topic", "names", "expected"),
    [
        (LMQ, "Mine", "Victim", "1"),
        (LMQ, "Mine", " ", None),
        (LMQ, OP_HALF_TOPIC, "Victim", None),
        (LMQ, "SCHEDULE_TOPIC_XXXX", "Victim", None),
        (LMQ, "%RETRY%group", "Victim", None),
        (LMQ, "%DLQ%group", "Victim", None),
        ({}, "Mine", "Victim", None),
    ],
)
async def test_what_a_client_says_of_its_index_in_further_queues_is_not_stored(
    tmp_path: Path, settings: dict[str, Any], topic: str, names: str, expected: str | None
) -> None:
    """A store that is opened with the setting later believes it, and so does a slave that has it."""
    appended = LogPuts.open(tmp_path, **settings)
    append_of(put(appended, topic="Victim"))
    append_of(put(appended, topic=topic, properties={**FORGED, "INNER_MULTI_DISPATCH": names, "KEYS": "k"}))
    stored = appended.messages()[1].properties
    assert (stored.get("INNER_MULTI_QUEUE_OFFSET"), stored["KEYS"]) == (expected, "k")


@pytest.mark.trio
async def test_a_delayed_message_takes_offsets_in_further_queues_when_it_is_delivered(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, 80_000, max_lmq_consume_queue_num=1, **LMQ)
    delayed = {"INNER_MULTI_DISPATCH": "other,%LMQ%a", "DELAY": "5"}
    append_of(put(appended, queue_id=2, properties=delayed))
    (stored,) = appended.messages()
    assert (stored.topic, stored.queue_id, stored.properties["REAL_QID"]) == ("SCHEDULE_TOPIC_XXXX", 4, "2")
    assert "INNER_MULTI_QUEUE_OFFSET" not in stored.properties
    assert [appended.log.next_queue_offset("other", queue) for queue in (2, 4)] == [0, 0]
    append_of(put(appended, queue_id=2, properties=dict(stored.properties), delay_time_level=0))
    assert appended.messages()[1].properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert [appended.log.next_queue_offset("other", queue) for queue in (2, 4)] == [1, 0]
    # What could not be delivered is refused as it is sent.
    too_many = {"INNER_MULTI_DISPATCH": ",".join(["%LMQ%a"] * 4670), "DELAY": "5"}
    assert put(appended, properties=too_many).status is PutStatus.UNKNOWN_ERROR
    append_of(put(appended, properties={"INNER_MULTI_DISPATCH": "%LMQ%b"}))
    assert put(appended, properties=delayed).status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


@pytest.mark.trio
async def test_further_queues_that_are_refused_take_no_offset(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, 80_000, max_lmq_consume_queue_num=1, **LMQ)
    for names, status in (
        ("%LMQ%a,../../x", PutStatus.MESSAGE_ILLEGAL),
        ("%LMQ%a,,x", PutStatus.MESSAGE_ILLEGAL),
        ("%LMQ%a," + "n" * 256, PutStatus.MESSAGE_ILLEGAL),
        (",".join(["%LMQ%a"] * 4670), PutStatus.UNKNOWN_ERROR),
        (",".join(["%LMQ%a"] * 4700), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ):
        result = put(appended, properties={"INNER_MULTI_DISPATCH": names})
        assert (result.status, result.append) == (status, None)
    assert (appended.log.next_queue_offset("%LMQ%a", 0), appended.log.lmq_num, appended.log.max_offset) == (0, 0, 0)
    append_of(put(appended, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
    refused = put(appended, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert refused.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert refused.reason == "there are 2 light queues, maxLmqConsumeQueueNum is 1"
    append_of(put(appended))


# --- What is refused, and in which order ------------------------------------------------------------------------------


@pytest.mark.trio
async def test_a_message_with_several_faults_has_the_status_of_the_first(tmp_path: Path) -> None:
    """RocketMQ looks at the topic, then at the properties, then at the body."""
    appended = LogPuts.open(tmp_path, max_message_size_bytes=10)
    long = {"a": "v" * 40_000}
    for fields, status, reason in (
        ({"topic": "t" * 128, "properties": long}, PutStatus.MESSAGE_ILLEGAL, "topic"),
        ({"properties": long, "body": bytes(11)}, PutStatus.PROPERTIES_SIZE_EXCEEDED, "properties"),
        ({"body": bytes(11)}, PutStatus.MESSAGE_ILLEGAL, "body of 11 bytes: at most 10"),
        ({"topic": "a/b"}, PutStatus.MESSAGE_ILLEGAL, "cannot be a directory's name"),
        ({"topic": ".."}, PutStatus.MESSAGE_ILLEGAL, "cannot be a directory's name"),
        ({"topic": "\ud800"}, PutStatus.MESSAGE_ILLEGAL, "Unicode"),
    ):
        result = put(appended, **fields)
        assert (result.status, result.append) == (status, None)
        assert reason in result.reason
    appended.puts.running_flags.set(RunningFlag.DISK_FULL, "the disk is 95 % full")
    assert put(appended, topic="t" * 128).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.trio
async def test_a_store_that_is_not_writeable_says_why_until_it_is_again(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    flags = appended.puts.running_flags
    flags.set(RunningFlag.DISK_FULL, "the disk is 95 % full")
    flags.set(RunningFlag.WRITE_LOGICS_QUEUE_ERROR, "a queue cannot be written")
    refused = put(appended)
    assert (refused.status, refused.append) == (PutStatus.SERVICE_NOT_AVAILABLE, None)
    assert refused.reason == "the store is not writeable: a queue cannot be written; the disk is 95 % full"
    flags.clear(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
    assert put(appended).status is PutStatus.SERVICE_NOT_AVAILABLE
    flags.clear(RunningFlag.DISK_FULL)
    append_of(put(appended))


@pytest.mark.trio
async def test_a_put_after_the_stop_began_is_refused(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    append_of(put(appended))
    end = appended.log.max_offset
    appended.puts._flush_service.request_stop()  # pyright: ignore[reportPrivateUsage]
    assert put(appended)[::2] == (PutStatus.SERVICE_NOT_AVAILABLE, "the store is stopping")
    batch = MessageBatch("T", encode_batch([(b"x", 0, {})]))
    assert (await appended.puts.put_messages(batch)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert appended.log.max_offset == end
    stats = appended.puts.stats
    assert (stats.put_message_times_total, stats.put_message_failed_times) == (1, 2)
    assert stats.put_message_size_total == end


@pytest.mark.trio
async def test_after_an_append_that_held_up_everything_puts_pause(
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    appended = LogPuts.open(tmp_path, os_page_cache_busy_time_out_ms=500)
    write_at = FaultyFile.write_at

    def slow(file: FaultyFile, offset: int, data: bytes) -> None:
        mock_clock.jump(0.75)
        write_at(file, offset, data)

    with monkeypatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", slow)
        append_of(put(appended))  # itself it is stored
    busy = put(appended)
    assert (busy.status, busy.append) == (PutStatus.OS_PAGECACHE_BUSY, None)
    assert busy.reason == "an append took longer than 500 ms"
    assert "an append took 0.750 s: no puts for 0.500 s" in caplog.text
    mock_clock.jump(0.5)
    append_of(put(appended))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("wait", "waits"), [(None, True), ("true", True), ("TRUE", True), ("false", False), ("x", False)]
)
async def test_who_waits_for_the_disk(tmp_path: Path, wait: str | None, waits: bool) -> None:
    """Java's parseBoolean: all but "true" is false."""
    appended = LogPuts.open(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    pending = appended.puts.async_put_message(Message("T", b"", properties={} if wait is None else {"WAIT": wait}))
    assert (pending.result is None) == waits
    assert appended.messages()[0].properties == {}


# --- Failures in the middle -------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_known_bug_rocketmq_98_an_exception_in_an_append_leaves_the_store_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java never released the lock of puts. There is none here; nothing may be half-counted either."""
    appended = LogPuts.open(tmp_path, **LMQ)
    fields: dict[str, Any] = {"properties": {"INNER_MULTI_DISPATCH": "%LMQ%a"}}
    append_of(put(appended, **fields))
    before = (appended.log.append_offset, appended.log.lmq_num, appended.log.next_queue_offset("%LMQ%a", 0))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", broken)
        with pytest.raises(ZeroDivisionError):
            put(appended, **fields)
    assert (appended.log.append_offset, appended.log.lmq_num, appended.log.next_queue_offset("%LMQ%a", 0)) == before
    assert [append_of(put(appended, **fields)).queue_offset for _ in range(2)] == [1, 2]
    assert [each.properties["INNER_MULTI_QUEUE_OFFSET"] for each in appended.messages()] == ["0", "1", "2"]


@pytest.mark.trio
async def test_what_is_in_the_file_is_counted_even_if_its_trace_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = LogPuts.open(tmp_path)
    append_of(put(appended))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Tracer, "emit", broken)
        with pytest.raises(ZeroDivisionError):
            put(appended)
    assert append_of(put(appended)).queue_offset == 2
    assert [each.queue_offset for each in appended.messages()] == [0, 1, 2]


@pytest.mark.trio
async def test_a_blank_before_a_roll_that_fails_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended = LogPuts.open(tmp_path)
    append_of(put(appended, bytes(600)))
    with appended.puts._log_end.subscribe() as log_end:  # pyright: ignore[reportPrivateUsage]

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(type(appended.log._queue), "add_file", full)  # pyright: ignore[reportPrivateUsage]
            failed = put(appended, bytes(600))
        assert (failed.status, failed.append) == (PutStatus.CREATE_MAPPED_FILE_FAILED, None)
        assert log_end.receive_nowait() == appended.log.max_offset == 1000
        append = append_of(put(appended, bytes(600)))
        assert (append.offset, append.queue_offset) == (1000, 1)
        assert log_end.receive_nowait() == append.end_offset


@pytest.mark.trio
async def test_puts_that_fail_are_told_once_in_ten_seconds(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    appended = LogPuts.open(tmp_path)
    write_at, is_full = FaultyFile.write_at, True

    def full(file: FaultyFile, offset: int, data: bytes) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        write_at(file, offset, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", full)
        for _ in range(50):
            assert put(appended).status is PutStatus.CREATE_MAPPED_FILE_FAILED
            await trio.sleep(0.25)
        is_full = False
        append_of(put(appended))
        is_full = True
        put(appended)  # soon after: nothing is said
        is_full = False
        append_of(put(appended))
        append_of(put(appended))
    assert appended.puts.stats.put_message_failed_times == 51
    path, why = f"commitlog/{file_name(0)}", "[Errno 28] No space left on device"
    assert caplog.messages == [
        f"puts fail, the log cannot be written at offset 0: {path}: {why}",
        f"40 puts have failed in 10 s: {path}: {why}",
        "puts work again: 9 more have failed since the last warning",
    ]


@pytest.mark.trio
async def test_a_batch_that_was_written_in_part_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first records are whole: a later recovery must not find them past the end."""
    appended = LogPuts.open(tmp_path)
    append_of(put(appended))
    write_at = FaultyFile.write_at
    calls = []

    def short(file: FaultyFile, offset: int, data: bytes) -> None:
        calls.append(bytes(data))
        if len(calls) == 1:
            write_at(file, offset, data[:-1])
            raise OSError(28, "No space left on device")
        write_at(file, offset, data)

    batch = MessageBatch("T", encode_batch([(b"x", 0, {})] * 3))
    with monkeypatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", short)
        assert (await appended.puts.put_messages(batch)).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    end = appended.log.max_offset
    file = tmp_path / "commitlog" / ("0" * 20)
    assert file.read_bytes()[end:] == bytes(1000 - end)
    append_of(await appended.puts.put_messages(batch))


# --- What is told -----------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_many_puts_wake_each_follower_once(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, 4000)
    for _ in range(20):
        append_of(put(appended))
    requests = appended.puts._flush_service._requests  # pyright: ignore[reportPrivateUsage]
    assert isinstance(requests.receive_nowait(), int)
    with pytest.raises(trio.WouldBlock):
        requests.receive_nowait()
    assert appended.told_files.receive_nowait() == 4000
    with pytest.raises(trio.WouldBlock):
        appended.told_files.receive_nowait()
    with pytest.raises(trio.WouldBlock):
        appended.told_commits.receive_nowait()
    for _ in range(20):
        append_of(put(appended, bytes(100)))
    assert appended.told_files.receive_nowait() == 8000


@pytest.mark.parametrize("role", list(BrokerRole))
@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("enabled", [False, True])
def test_when_the_pool_is_used(role: BrokerRole, flush: FlushDiskType, enabled: bool) -> None:
    config = MessageStoreConfig(role, flush, transient_store_pool_enable=enabled)
    expected = enabled and flush is FlushDiskType.ASYNC_FLUSH and role is not BrokerRole.SLAVE
    assert config.uses_transient_store_pool is expected


@pytest.mark.parametrize("size_bytes", [181, 2**31])
def test_file_sizes_that_the_log_cannot_have(size_bytes: int) -> None:
    with pytest.raises(ValueError, match="mapped_file_size_commit_log_bytes"):
        MessageStoreConfig(mapped_file_size_commit_log_bytes=size_bytes)
