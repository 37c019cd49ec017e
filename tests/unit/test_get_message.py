"""getMessage: each status and where it sends the consumer on, each limit, what is passed over."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch.consume_queue import QueueEntry
from rmq_actors.store.dispatch.consume_queue_ext import CqExtUnit
from rmq_actors.store.files.formats import BLANK_ENTRY
from rmq_actors.store.read import get_message
from rmq_actors.store.read.get_message import DefaultMessageFilter, GetMessageResult, GetMessageStatus, ReadEnd
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import decode_record
from tests.worlds.read_store import ReadStore, open_read_store

#: A record of topic T with an empty body; with a tag of one letter.
RECORD_BYTES = 92
TAGGED_BYTES = RECORD_BYTES + 6


@contextlib.contextmanager
def a_store(**settings: Any) -> Iterator[ReadStore]:
    with tempfile.TemporaryDirectory() as root:
        store = open_read_store(Path(root), **settings)
        with contextlib.closing(store):
            yield store


def bodies(result: GetMessageResult) -> list[bytes]:
    return [decode_record(record, 0, int.from_bytes(record[28:36], "big")).body for record in result.messages]


def outcome(result: GetMessageResult) -> tuple[str, int, int, int]:
    assert result.status is GetMessageStatus.FOUND or not result.messages
    return result.status.value, result.next_begin_offset, result.min_offset, result.max_offset


def _entry(offset: int, size: int) -> bytes:
    return struct.pack(">qiq", offset, size, 0)


@attrs.frozen
class ByBody:
    """A filter as SQL92's: by the record alone."""

    body: bytes

    def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
        return True

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        return self.body in bytes(record)

    @property
    def is_exhausted(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, ("OFFSET_TOO_SMALL", 0, 0, 3)),
        (0, ("FOUND", 3, 0, 3)),
        (2, ("FOUND", 3, 0, 3)),
        (3, ("OFFSET_OVERFLOW_ONE", 3, 0, 3)),
        (4, ("OFFSET_OVERFLOW_BADLY", 3, 0, 3)),
        (1 << 62, ("OFFSET_OVERFLOW_BADLY", 3, 0, 3)),
    ],
)
def test_a_status_for_each_place(offset: int, expected: tuple[str, int, int, int]) -> None:
    with a_store() as store:
        for number in range(3):
            store.put("T", body=b"%d" % number)
        result = store.reads.get_message("T", 0, offset, 32)
        assert outcome(result) == expected
        assert bodies(result) == [b"0", b"1", b"2"][max(0, offset) : 3 if expected[0] == "FOUND" else 0]
        assert result.buffer_total_size == sum(map(len, result.messages))
        found = expected[0] == "FOUND"
        assert (store.stats.get_message_times_total_found, store.stats.get_message_times_total_miss) == (
            found,
            not found,
        )
        assert store.stats.get_message_transferred_msg_count == result.message_count


def test_a_queue_that_is_not_there_or_has_nothing() -> None:
    with a_store() as store:
        assert outcome(store.reads.get_message("T", 0, 7, 32)) == ("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
        store.queues.find_or_create("T", 0)
        assert outcome(store.reads.get_message("T", 0, 7, 32)) == ("NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize("checks", [False, True])
def test_a_slave_leaves_the_offset_as_it_was_unless_it_is_told_to_check(checks: bool) -> None:
    with a_store(broker_role=BrokerRole.SLAVE, offset_check_in_slave=checks) as store:
        assert store.reads.get_message("T", 0, 7, 32).next_begin_offset == (0 if checks else 7)
        store.put("T")
        for asked, corrected in ((7, 1), (-3, 0)):
            assert store.reads.get_message("T", 0, asked, 32).next_begin_offset == (corrected if checks else asked)
        assert outcome(store.reads.get_message("T", 0, 0, 32)) == ("FOUND", 1, 0, 1)


def test_entries_that_cannot_be_reached_send_the_reader_to_the_next_file(caplog: pytest.LogCaptureFixture) -> None:
    with a_store() as store:
        for _ in range(25):
            store.put("T")
        queue = store.queues.find("T", 0)
        assert queue is not None
        del queue.queue.files[1:]
        queue.queue.files[0].wrote_position = 60
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(queue), "max_offset_in_queue", property(lambda _: 25))
            patch.setattr(type(queue), "entries", lambda *_: memoryview(b""))
            assert outcome(store.reads.get_message("T", 0, 3, 32)) == ("OFFSET_FOUND_NULL", 10, 0, 25)
    assert "T queue 0 has 0 to 25, but no entry 3" in caplog.text


def test_tags_are_matched_by_their_hash_code() -> None:
    with a_store() as store:
        for number in range(9):
            store.put("T", body=b"%d" % number, TAGS="ABC"[number % 3])
        only = DefaultMessageFilter(frozenset({java_hash_code("A"), java_hash_code("C")}))
        assert bodies(store.reads.get_message("T", 0, 0, 32, only)) == [b"0", b"2", b"3", b"5", b"6", b"8"]
        nothing = store.reads.get_message("T", 0, 2, 32, DefaultMessageFilter(frozenset({1})))
        assert outcome(nothing) == ("NO_MATCHED_MESSAGE", 9, 0, 9)
        # Two tags of one code: the consumer tells them apart.
        assert java_hash_code("Aa") == java_hash_code("BB")
        store.put("T", body=b"BB", TAGS="BB")
        assert bodies(store.reads.get_message("T", 0, 9, 32, DefaultMessageFilter({java_hash_code("Aa")}))) == [b"BB"]


def test_a_filter_may_look_at_the_record() -> None:
    with a_store() as store:
        for body in (b"x", b"y", b"x"):
            store.put("T", body=body)
        assert bodies(store.reads.get_message("T", 0, 0, 32, ByBody(b"x"))) == [b"x", b"x"]
        assert outcome(store.reads.get_message("T", 0, 0, 32, ByBody(b"z"))) == ("NO_MATCHED_MESSAGE", 3, 0, 3)


def test_tags_codes_come_from_the_extension_file_where_there_is_one() -> None:
    seen: list[tuple[int | None, int | None]] = []

    class Noting(DefaultMessageFilter):
        def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
            seen.append((tags_code, unit.msg_store_time_ms if unit is not None else None))
            return super().is_matched_by_consume_queue(tags_code, unit)

    with a_store(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext_bytes=2000) as store:
        store.put("T", body=b"a", TAGS="A", at_ms=5)
        store.put("T", body=b"b", TAGS="B", at_ms=6)
        assert bodies(store.reads.get_message("T", 0, 0, 32, Noting({java_hash_code("B")}))) == [b"b"]
        assert seen == [(java_hash_code("A"), 1_700_000_000_005), (java_hash_code("B"), 1_700_000_000_006)]
        queue = store.queues.find("T", 0)
        assert queue is not None
        assert queue.ext is not None
        # What the extension has lost is let pass: the consumer compares the tags, too.
        seen.clear()
        queue.ext.truncate_by_max_address(None)
        assert bodies(store.reads.get_message("T", 0, 0, 32, Noting({java_hash_code("B")}))) == [b"a", b"b"]
        assert seen == [(None, None), (None, None)]


@pytest.mark.parametrize(
    ("settings", "max_msg_nums", "count"),
    [
        ({}, 5, 5),
        ({}, 0, 1),
        ({"max_transfer_count_on_message_in_memory": 3}, 5, 3),
        ({"max_transfer_bytes_on_message_in_memory": 3 * RECORD_BYTES}, 5, 3),
        ({"max_transfer_bytes_on_message_in_memory": 3 * RECORD_BYTES - 1}, 5, 2),
        ({"max_transfer_bytes_on_message_in_memory": 1}, 5, 1),
        # What is older than 4 records counts as on the disk: the first two.
        ({"memory_bytes": 10 * RECORD_BYTES * 4 // 10, "access_message_in_memory_max_ratio": 100,
          "max_transfer_count_on_message_in_disk": 2}, 6, 6),
        ({"memory_bytes": 4 * RECORD_BYTES, "access_message_in_memory_max_ratio": 50,
          "max_transfer_count_on_message_in_disk": 2}, 6, 2),
        ({"memory_bytes": 0, "max_transfer_bytes_on_message_in_disk": 4 * RECORD_BYTES}, 6, 4),
        ({"memory_bytes": 0, "max_transfer_count_on_message_in_disk": 1}, 6, 1),
    ],
)  # fmt: skip
def test_what_a_transfer_may_take(settings: dict[str, Any], max_msg_nums: int, count: int) -> None:
    with a_store(**settings) as store:
        for _ in range(6):
            store.put("T")
        result = store.reads.get_message("T", 0, 0, max_msg_nums)
        assert (result.message_count, result.next_begin_offset) == (count, count)


@pytest.mark.parametrize(("offset", "far"), [(0, True), (1, False), (5, False)])
def test_a_slave_is_suggested_when_the_log_ends_farther_away_than_40_percent_of_memory(
    offset: int, *, far: bool
) -> None:
    """From the last entry that was looked at, one more than was asked for; 40 % is accessMessageInMemoryMaxRatio."""
    with a_store(memory_bytes=10 * RECORD_BYTES) as store:
        for _ in range(6):
            store.put("T")
        assert store.reads.get_message("T", 0, offset, 1).suggest_pulling_from_slave is far


@pytest.mark.parametrize(
    ("settings", "max_msg_nums", "ended_by"),
    [
        ({}, 6, ReadEnd.QUEUE_END),
        ({}, 1000, ReadEnd.QUEUE_END),
        ({}, 5, ReadEnd.MAX_MSG_NUMS),
        ({"max_transfer_count_on_message_in_memory": 3}, 1000, ReadEnd.COUNT_IN_MEMORY),
        ({"max_transfer_bytes_on_message_in_memory": 3 * RECORD_BYTES}, 1000, ReadEnd.BYTES_IN_MEMORY),
        ({"memory_bytes": 0, "max_transfer_count_on_message_in_disk": 3}, 1000, ReadEnd.COUNT_IN_DISK),
        ({"memory_bytes": 0, "max_transfer_bytes_on_message_in_disk": 3 * RECORD_BYTES}, 1000, ReadEnd.BYTES_IN_DISK),
        ({"mapped_file_size_consume_queue_bytes": 60}, 1000, ReadEnd.ENTRIES_LOOKED_AT),
    ],
)
def test_a_result_says_which_limit_ended_the_read(
    settings: dict[str, Any], max_msg_nums: int, ended_by: ReadEnd
) -> None:
    """Whoever asked for 1,000 got 32, and nothing told them why."""
    with a_store(**settings) as store:
        for _ in range(6):
            store.put("T")
        result = store.reads.get_message("T", 0, 0, max_msg_nums)
        assert result.ended_by is ended_by
        assert (result.next_begin_offset == 6) == (ended_by is ReadEnd.QUEUE_END)
        # Whoever goes on at `next_begin_offset` sees all.
        seen = result.message_count
        while result.next_begin_offset < 6:
            result = store.reads.get_message("T", 0, result.next_begin_offset, max_msg_nums)
            seen += result.message_count
        assert (seen, result.ended_by) == (6, ReadEnd.QUEUE_END)
        nothing = store.reads.get_message("T", 0, 6, max_msg_nums)
        assert (nothing.status, nothing.ended_by) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, None)


def test_the_limits_that_the_docs_name_are_the_defaults() -> None:
    config = MessageStoreConfig()
    assert config.max_transfer_count_on_message_in_memory == 32
    assert config.max_transfer_bytes_on_message_in_memory == 256 * 1024
    assert config.max_transfer_count_on_message_in_disk == 8
    assert config.max_transfer_bytes_on_message_in_disk == 64 * 1024
    page = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()
    for limit in ReadEnd:
        if limit.value.isidentifier():
            assert f"| `{limit.value}` |" in page, limit


def test_the_docs_say_of_each_status_whether_the_message_is_stored() -> None:
    page = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()
    for status in PutStatus:
        assert f"| {status.value} |" in page, status


def test_a_slave_is_suggested_for_what_is_far_behind() -> None:
    # Memory for four records of 92 bytes: 40 % of 920.
    with a_store(memory_bytes=10 * RECORD_BYTES) as store:
        for _ in range(8):
            store.put("T")
        results = [store.reads.get_message("T", 0, offset, 1) for offset in range(8)]
        # The entry at which the batch was full is the last one looked at.
        assert [result.fall_behind_bytes for result in results] == [RECORD_BYTES * n for n in (7, 6, 5, 4, 3, 2, 1, 1)]
        assert [result.suggest_pulling_from_slave for result in results] == [True] * 3 + [False] * 5
        in_disk = [store.offsets.check_in_disk_by_consume_offset("T", 0, offset) for offset in range(-1, 9)]
        assert in_disk == [False, *[True] * 4, *[False] * 5]
        assert not store.offsets.check_in_disk_by_consume_offset("U", 0, 0)


def test_a_scan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_message, "_SCAN_UNITS_MAX", 950)
    with a_store(mapped_file_size_consume_queue_bytes=40_000) as store:
        for number in range(1000):
            store.put("T", TAGS="A" if number < 999 else "B")
        only = DefaultMessageFilter({java_hash_code("B")})
        assert outcome(store.reads.get_message("T", 0, 0, 32, only)) == ("NO_MATCHED_MESSAGE", 800, 0, 1000)
        assert outcome(store.reads.get_message("T", 0, 0, 900, only)) == ("NO_MATCHED_MESSAGE", 900, 0, 1000)
        assert outcome(store.reads.get_message("T", 0, 0, 2**31 - 1, only)) == ("NO_MATCHED_MESSAGE", 950, 0, 1000)
        assert outcome(store.reads.get_message("T", 0, 800, 32, only)) == ("FOUND", 1000, 0, 1000)


def test_records_that_are_gone_are_passed_over() -> None:
    with a_store() as store:
        for number in range(50):
            store.put("T", body=b"%d" % number)
        store.remove_oldest_file()
        gone = next(n for n in range(50) if store.offsets.get_commit_log_offset_in_queue("T", 0, n) >= 2000)
        # The queue does not know yet. Its first file has ten entries, all of them of the file that is gone.
        assert outcome(store.reads.get_message("T", 0, 0, 32)) == ("MESSAGE_WAS_REMOVING", 10, 0, 50)
        assert 20 < gone < 30
        assert bodies(store.reads.get_message("T", 0, 20, 32)) == [b"%d" % n for n in range(gone, 30)]
        assert outcome(store.reads.get_message("T", 0, 20, 32, ByBody(b"none"))) == ("NO_MATCHED_MESSAGE", 30, 0, 50)
        store.queues.correct_min_offset(store.log.min_offset)
        assert outcome(store.reads.get_message("T", 0, 0, 32)) == ("OFFSET_TOO_SMALL", gone, gone, 50)
        views = store.reads.get_message("T", 0, gone, 32).messages
        content = [bytes(view) for view in views]
        store.remove_oldest_file()
        assert [bytes(view) for view in views] == content


@pytest.mark.parametrize(("last_tag", "status"), [("A", "FOUND"), ("B", "NO_MATCHED_MESSAGE")])
def test_what_is_there_after_what_is_gone_has_the_last_word(last_tag: str, status: str) -> None:
    with a_store() as store:
        for tag in ("A", "A", last_tag):
            store.put("T", body=bytes(800), TAGS=tag)
        store.remove_oldest_file()
        only = DefaultMessageFilter({java_hash_code("A")})
        assert outcome(store.reads.get_message("T", 0, 0, 32, only)) == (status, 3, 0, 3)


def test_blank_entries_are_passed_over() -> None:
    with a_store() as store:
        store.put("T", body=b"0")
        queue = store.queues.find("T", 0)
        assert queue is not None
        offset = store.put("U", body=b"3")
        queue.put_message_position_info([QueueEntry(3, offset, RECORD_BYTES + 1, 0)])
        assert bytes(queue.entries(1, 2)) == 2 * BLANK_ENTRY
        result = store.reads.get_message("T", 0, 0, 32)
        assert (outcome(result), bodies(result)) == (("FOUND", 4, 0, 4), [b"0", b"3"])
        assert outcome(store.reads.get_message("T", 0, 1, 32)) == ("FOUND", 4, 0, 4)
        queue.queue.truncate(60)
        assert outcome(store.reads.get_message("T", 0, 1, 32)) == ("MESSAGE_WAS_REMOVING", 3, 0, 3)


def test_an_entry_of_no_record_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    with a_store() as store:
        for number in range(3):
            store.put("T", body=b"%d" % number)
        queue = store.queues.find("T", 0)
        assert queue is not None
        for wrong in ((94, 93), (93, 92), (93, -5), (93, 3), (-1, 93), (1 << 40, 93), (1 << 40, -93)):
            queue.queue.files[0].file.write_at(20, _entry(*wrong))
            result = store.reads.get_message("T", 0, 0, 32)
            assert (outcome(result), bodies(result)) == (("FOUND", 3, 0, 3), [b"0", b"2"])
            if wrong[0] < 0:
                continue  # as if it were cleaned
            assert f"an entry of {wrong[1]} bytes at offset {wrong[0]} of the log: no such" in caplog.text


def test_what_looks_like_a_record_inside_of_a_body_is_none() -> None:
    with a_store() as store:
        store.put("T", body=(48).to_bytes(4, "big") + bytes(96))
        queue = store.queues.find("T", 0)
        assert queue is not None
        queue.queue.files[0].append(_entry(88, 48))
        assert outcome(store.reads.get_message("T", 0, 1, 32)) == ("NO_MATCHED_MESSAGE", 2, 0, 2)


def test_what_a_power_cut_can_take_back_is_not_given_out() -> None:
    """RocketMQ's #8239: under SYNC_FLUSH a consumer had a message that was gone after the crash."""
    with a_store() as store:
        places = [store.put("T", body=b"%d" % number) for number in range(4)]
        for visible, end in enumerate([*places, store.log.max_offset]):
            store.hidden_from = end
            for offset in range(4):
                result = store.reads.get_message("T", 0, offset, 32)
                assert bodies(result) == [b"%d" % n for n in range(offset, visible)]
                if offset >= visible:
                    assert outcome(result) == ("OFFSET_OVERFLOW_ONE", offset, 0, offset)
            store.hidden_from = end + RECORD_BYTES  # a part of a record
            assert len(store.reads.get_message("T", 0, 0, 32).messages) in {visible, 4}


def test_large_messages_count_for_several() -> None:
    with a_store(mapped_file_size_commit_log_bytes=1 << 20) as store:
        store.put("T", body=bytes(100))
        store.put("T", body=bytes(2 * 65536))
        assert store.reads.get_message("T", 0, 0, 32).msg_count_4_commercial == 1 + 3


PUTS = st.lists(st.tuples(st.sampled_from("TU"), st.integers(0, 1), st.sampled_from("AB")), max_size=60)


@given(
    PUTS,
    st.integers(0, 2),
    st.sampled_from([None, "A", "B", "C"]),
    st.lists(st.tuples(st.sampled_from("TU"), st.integers(0, 1), st.integers(-2, 40), st.integers(0, 12)), min_size=1),
)
def test_reads_equal_those_of_a_list(
    puts: list[tuple[str, int, str]], cleaned: int, tag: str | None, reads: list[tuple[str, int, int, int]]
) -> None:
    model: dict[tuple[str, int], list[tuple[int, bytes, str]]] = {}
    with a_store(mapped_file_size_consume_queue_bytes=2000) as store:
        for number, (topic, queue_id, tags) in enumerate(puts):
            place = store.put(topic, queue_id, b"%d" % number, TAGS=tags)
            model.setdefault((topic, queue_id), []).append((place, b"%d" % number, tags))
        for _ in range(cleaned):
            if store.log.min_offset + 2000 < store.log.max_offset:
                store.remove_oldest_file()
        store.queues.correct_min_offset(store.log.min_offset)
        only = DefaultMessageFilter({java_hash_code(tag)}) if tag is not None else None
        for topic, queue_id, offset, max_num in reads:
            queue = model.get((topic, queue_id), [])
            first = next((n for n, (place, _, _) in enumerate(queue) if place >= store.log.min_offset), len(queue))
            result = store.reads.get_message(topic, queue_id, offset, max_num, only)
            assert (result.min_offset, result.max_offset) == ((first, len(queue)) if queue else (0, 0))
            if not first <= offset < len(queue):
                assert not result.messages
                assert result.next_begin_offset == min(max(offset, first), len(queue))
                continue
            wanted = [n for n in range(offset, len(queue)) if tag in {None, queue[n][2]}]
            taken = wanted[: max(1, max_num)]
            assert bodies(result) == [queue[n][1] for n in taken]
            assert (result.status is GetMessageStatus.FOUND) == bool(taken)
            is_full = len(taken) == max(1, max_num)
            assert result.next_begin_offset == (taken[-1] + 1 if is_full else len(queue))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(-1, 40),
    st.integers(1, 4_000),
    st.sampled_from([0, 2_000, 1 << 20]),
    st.integers(0, 5_000),
)
def test_a_read_of_everything_equals_one_whose_filter_takes_everything(
    sizes: list[int], offset: int, max_num: int, bytes_max: int, memory_bytes: int, hidden_from: int
) -> None:
    """Entries that need no second look are taken without one, where there is no filter."""
    assume(len(sizes) % 10)  # the queue's last file has room for one more entry
    settings = {"max_transfer_bytes_on_message_in_memory": bytes_max, "max_transfer_count_on_message_in_memory": 20}
    with a_store(memory_bytes=memory_bytes, **settings) as store:
        for size in sizes:
            store.put("T", body=bytes(size))
        queue = store.queues.find("T", 0)
        assert queue is not None
        queue.queue.files[-1].append(_entry(store.log.max_offset - 100, 100))  # of no record
        store.hidden_from = hidden_from
        read, filtered = (store.reads.get_message("T", 0, offset, max_num, only) for only in (None, ByBody(body=b"")))
        assert read == filtered
