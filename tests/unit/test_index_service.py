"""The index, rule by rule: bytes, names, keys, repeats, queries, cleaning, what recovery keeps and what it asks for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.index_file import IndexFile, IndexFileError, IndexKey
from rmq_actors.store.dispatch.index_service import IndexService, QueryOffsetResult
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_key_hash, index_keys
from rmq_actors.wire.java_string import java_hash_code
from tests.worlds.index_files import (
    EPOCH_MS,
    GOLDEN,
    RECORD_BYTES,
    FailingDisk,
    SteppingClock,
    contents,
    golden_requests,
    message,
)

GOLDEN_CONFIG = MessageStoreConfig(max_hash_slot_num=500, max_index_num=2000)
#: 40 bytes of header, 7 slots, 10 entries: a file takes nine keys.
TINY = MessageStoreConfig(max_hash_slot_num=7, max_index_num=10)


def messages(count: int, first: int = 0) -> list[DispatchRequest]:
    return [message(number, f"k{number}") for number in range(first, first + count)]


def open_index(
    root: Path, config: MessageStoreConfig = TINY, *, clock: SteppingClock | None = None, durable_to: int = 0, **kw: Any
) -> IndexService:
    service = IndexService(OsDisk(root), config, clock or SteppingClock(), **kw)
    service.recover(durable_to)
    return service


def query(
    service: IndexService, key: str, max_num: int = 64, begin_ms: int = 0, end_ms: int = 1 << 60, **kw: Any
) -> QueryOffsetResult:
    async def ask() -> QueryOffsetResult:
        return await service.query_offset("T", key, max_num, begin_ms, end_ms, **kw)

    return trio.run(ask)


def numbers(result: QueryOffsetResult) -> list[int]:
    return [offset // RECORD_BYTES for offset in result.physical_offsets]


# --- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["store_slave_clean", "store_master_killed"])
def test_the_golden_log_gives_the_golden_file(tmp_path: Path, store: str) -> None:
    service = open_index(tmp_path, GOLDEN_CONFIG)
    requests = golden_requests(store)
    for begin in range(0, len(requests), 7):
        service.dispatch(requests[begin : begin + 7])
    golden = next((GOLDEN / store / "index").iterdir()).read_bytes()
    assert contents(tmp_path) == [golden]
    if store == "store_slave_clean":
        assert struct.unpack_from(">ii", golden, 32) == (242, 376)


def test_a_following_file_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch(messages(9))
    service.dispatch([message(20, "x"), message(21, "x")])
    first, second = contents(tmp_path)
    assert struct.unpack_from(">qqqqii", first)[:4] == (EPOCH_MS, EPOCH_MS + 8000, 0, 800)
    assert struct.unpack_from(">qqqqii", second)[:4] == (EPOCH_MS + 20_000, EPOCH_MS + 21_000, 2000, 2100)
    # RocketMQ counts the first entry's time from the end of the file before, the others' from its own.
    assert [struct.unpack_from(">iqii", second, 40 + 4 * 7 + 20 * number)[2] for number in (1, 2)] == [12, 1]


def test_the_hash_of_a_key_is_not_negative() -> None:
    assert java_hash_code("T#a") == 2_639 * 31 + ord("a") == index_key_hash("T", "a")
    assert java_hash_code("T#zzzz") == -index_key_hash("T", "zzzz")
    assert java_hash_code("T#ajvakuzm") == -(1 << 31)
    assert index_key_hash("T", "ajvakuzm") == 0


# --- names ----------------------------------------------------------------------------------------------------------


def test_a_file_is_named_after_local_time(tmp_path: Path) -> None:
    clock = SteppingClock(offset_s=8 * 3600, ms=1_700_000_000_007)
    open_index(tmp_path, clock=clock).dispatch(messages(1))
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["20231115061320007"]


def test_names_grow_though_the_clock_stands_still_or_jumps_back(tmp_path: Path) -> None:
    clock = SteppingClock([EPOCH_MS, EPOCH_MS, EPOCH_MS - 90_000_000, EPOCH_MS + 5])
    service = open_index(tmp_path, clock=clock)
    service.dispatch(messages(36))
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert names == ["20231114221320000", "20231114221320001", "20231114221320002", "20231114221320005"]
    assert [file.file.path.rpartition("/")[2] for file in service.files] == names
    service.close()
    service = open_index(tmp_path, clock=SteppingClock(ms=0), durable_to=3600)
    service.dispatch(messages(1, 36))
    assert service.files[-1].file.path == "index/20231114221320006"


def test_a_stranger_in_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").touch()
    with pytest.raises(StoreLayoutError, match=r"index/notes\.txt: not the name of an index file"):
        open_index(tmp_path)


def test_files_of_other_settings_are_refused(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch(messages(1))
    service.close()
    with pytest.raises(StoreLayoutError, match="maxHashSlotNum 8 and maxIndexNum 10 make 272"):
        open_index(tmp_path, MessageStoreConfig(max_hash_slot_num=8, max_index_num=10), durable_to=100)


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unique_key", "keys", "expected"),
    [
        (None, "", []),
        ("u", "", ["u"]),
        ("", "", [""]),
        (None, "a", ["a"]),
        ("u", " a  b ", ["u", "a", "b"]),
        ("u", "u a a", ["u", "u", "a", "a"]),
        (None, "a\tb", ["a\tb"]),
        (None, "  ", []),
    ],
)
def test_keys_are_split_on_blanks(unique_key: str | None, keys: str, expected: list[str]) -> None:
    assert index_keys(message(0, keys, unique_key)) == expected


@pytest.mark.parametrize(("sys_flag", "is_indexed"), [(0, True), (4, True), (8, True), (12, False), (12 | 1, False)])
def test_what_was_rolled_back_is_not_indexed(tmp_path: Path, sys_flag: int, is_indexed: bool) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(0, "a", sys_flag=sys_flag)])
    assert numbers(query(service, "a")) == [0] * is_indexed


def test_nothing_is_made_for_messages_without_keys(tmp_path: Path) -> None:
    open_index(tmp_path).dispatch([message(0)])
    assert not (tmp_path / "index").exists()


def test_with_messageIndexEnable_off_nothing_is_taken_and_queries_go_on(tmp_path: Path) -> None:  # noqa: N802
    service = open_index(tmp_path)
    service.dispatch(messages(2))
    service.close()
    off = attrs.evolve(TINY, message_index_enable=False)
    service = open_index(tmp_path, off, durable_to=1000)
    service.dispatch(messages(5))
    assert numbers(query(service, "k1")) == [1]
    assert numbers(query(service, "k3")) == []


def test_a_file_of_the_default_size_is_a_hole(tmp_path: Path) -> None:
    service = open_index(tmp_path, MessageStoreConfig())
    service.dispatch(messages(3))
    status = next((tmp_path / "index").iterdir()).stat()
    assert status.st_size == 420_000_040
    assert status.st_blocks * 512 < 100_000
    service.close()
    assert numbers(query(open_index(tmp_path, MessageStoreConfig(), durable_to=300), "k1")) == [1]


# --- repeats --------------------------------------------------------------------------------------------------------


def test_a_record_that_comes_again_is_taken_once(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(0, "a b", "u"), message(1, "c c")])
    once = contents(tmp_path)
    service.dispatch([message(0, "a b", "u"), message(1, "c c")])
    service.dispatch([message(1, "c c")])
    assert contents(tmp_path) == once


def test_an_error_anywhere_in_a_batch_adds_no_key_twice_and_loses_none(tmp_path: Path) -> None:
    batch: Sequence[DispatchRequest] = [message(number, "a b c a", f"u{number}") for number in range(12)]
    (tmp_path / "whole").mkdir()
    open_index(tmp_path / "whole").dispatch(batch)
    for nth in range(1, 100):
        root = tmp_path / str(nth)
        root.mkdir()
        disk = FailingDisk(root)
        service = IndexService(disk, TINY, SteppingClock())
        service.recover(0)
        disk.operations_left = nth
        try:
            service.dispatch(batch)
            break
        except OSError:
            if nth % 2:  # a shorter batch: slots name entries that are not counted yet
                service.dispatch(batch[: nth % 12])
            else:
                found = query(service, "a")
                assert list(found.physical_offsets) == sorted(found.physical_offsets, reverse=True)
        service.dispatch(batch)
        assert contents(root) == contents(tmp_path / "whole"), nth
    assert nth > 20


# --- queries --------------------------------------------------------------------------------------------------------


def test_a_query_finds_the_newest_first_across_files(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(number, "k") for number in range(20)])
    assert len(service.files) == 3
    assert numbers(query(service, "k")) == list(range(19, -1, -1))
    assert numbers(query(service, "k", 5)) == [19, 18, 17, 16, 15]
    assert query(service, "k", 5)[1:] == (EPOCH_MS + 19_000, 1900)
    assert query(service, "other") == ((), EPOCH_MS + 19_000, 1900)


def test_an_empty_index_answers(tmp_path: Path) -> None:
    assert query(open_index(tmp_path), "k") == ((), 0, 0)


@pytest.mark.parametrize(
    ("begin_s", "end_s", "expected"),
    [
        (0, 2, [2, 1, 0]),
        (5, 7, [7, 6, 5]),
        (8, 10, [10, 9, 8]),
        (9, 9, [9]),
        (19, 100, [19]),
        (20, 100, []),
        (-5, -1, []),
    ],
)
def test_a_query_is_bounded_by_time(tmp_path: Path, begin_s: int, end_s: int, expected: list[int]) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(number, "k") for number in range(20)])
    begin_ms, end_ms = EPOCH_MS + 1000 * begin_s, EPOCH_MS + 1000 * end_s
    assert numbers(query(service, "k", 64, begin_ms, end_ms)) == expected


def test_a_record_that_has_a_key_twice_is_found_once(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(0, "k k", "k"), message(1, "k")])
    assert numbers(query(service, "k")) == [1, 0]


def test_other_keys_of_the_same_hash_are_filtered_by_the_caller(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    log = [message(0, "AaAa"), message(1, "BBBB"), message(2, "AaAa"), message(3, "AaBB")]
    service.dispatch(log)
    assert numbers(query(service, "AaAa")) == [3, 2, 1, 0]
    mine = query(service, "AaAa", 2, is_match=lambda offset: "AaAa" in index_keys(log[offset // RECORD_BYTES]))
    assert numbers(mine) == [2, 0]


@pytest.mark.parametrize("before", [3, 7, -1])
def test_a_chain_that_does_not_go_down_is_an_error(tmp_path: Path, before: int) -> None:
    service = open_index(tmp_path)
    service.dispatch([message(number, "k") for number in range(5)])
    service.files[0].file.write_at(40 + 4 * 7 + 20 * 3 + 16, struct.pack(">i", before))
    with pytest.raises(IndexFileError, match=rf"index/\d+: entry 3 names {before} as the one before it"):
        query(service, "k")


def test_others_run_while_a_long_chain_is_walked(tmp_path: Path) -> None:
    service = open_index(tmp_path, MessageStoreConfig(max_hash_slot_num=3, max_index_num=5000))
    service.dispatch([message(number, "k") for number in range(4000)])
    turns: list[None] = []

    async def others() -> None:
        while True:
            turns.append(None)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            await service.query_offset("T", "k", 1, 0, 1 << 60, is_match=lambda _: False)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert len(turns) >= 4


# --- cleaning -------------------------------------------------------------------------------------------------------


def test_files_of_deleted_records_go_but_never_the_last(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch(messages(30))
    assert service.delete_expired(10_000) == 0, "nothing of it is durable yet"
    trio.run(service.flush)
    assert service.delete_expired(800) == 0
    assert service.delete_expired(801) == 1
    assert service.delete_expired(10_000) == 2
    assert service.file_count == 1
    assert len(contents(tmp_path)) == 1
    assert numbers(query(service, "k29")) == [29]


def test_rebuilding_begins_with_nothing(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch(messages(30))
    before = contents(tmp_path)
    service.rebuild()
    assert service.file_count == 0
    assert contents(tmp_path) == []
    service.dispatch(messages(30))
    assert contents(tmp_path) == before


# --- recovery -------------------------------------------------------------------------------------------------------


def written(root: Path, count: int = 25) -> list[bytes]:
    service = open_index(root)
    service.dispatch(messages(count))
    service.close()
    return contents(root)


@pytest.mark.parametrize("is_orderly", [False, True])
@pytest.mark.parametrize("durable_to", [0, 100, 850, 900, 901, 1000, 1800, 2450, 2500])
def test_what_recovery_cuts_can_be_dispatched_again(tmp_path: Path, durable_to: int, is_orderly: bool) -> None:
    before = written(tmp_path)
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock(), is_orderly=is_orderly)
    redo_from = service.recover(durable_to)
    assert redo_from <= durable_to
    assert redo_from > durable_to - 2 * RECORD_BYTES
    for number in range(25):
        assert bool(numbers(query(service, f"k{number}"))) == (number * RECORD_BYTES < durable_to), number
    service.dispatch(messages(25)[redo_from // RECORD_BYTES :])
    assert contents(tmp_path) == before


def test_an_orderly_stop_changes_nothing(tmp_path: Path) -> None:
    before = written(tmp_path)
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock(), is_orderly=True)
    assert service.recover(2500) == 2500
    assert contents(tmp_path) == before


def test_the_newest_file_survives_a_crash(tmp_path: Path) -> None:
    """RocketMQ's #3868, #8007 and #4463: it drops the newest file, and makes only what was recovered again."""
    written(tmp_path)
    service = open_index(tmp_path, durable_to=2500)
    assert [numbers(query(service, f"k{number}")) for number in range(25)] == [[number] for number in range(25)]


def entry_at(number: int, slots: int) -> int:
    return 40 + 4 * slots + 20 * number


def test_entries_that_a_power_cut_took_are_written_again(tmp_path: Path) -> None:
    """The header and the slots, on other sectors, have survived, and name them."""
    config = MessageStoreConfig(max_hash_slot_num=128, max_index_num=100)
    service = open_index(tmp_path, config)
    service.dispatch(messages(90))
    service.close()
    (before,) = contents(tmp_path)
    path = next((tmp_path / "index").iterdir())
    lost = entry_at(51, 128)
    path.write_bytes(before[:lost].ljust(len(before), b"\0"))
    service = open_index(tmp_path, config, durable_to=5000)
    assert list(service.files[0].problems()) == []
    assert [bool(numbers(query(service, f"k{number}"))) for number in range(90)] == [True] * 50 + [False] * 40
    service.dispatch(messages(90)[49:])
    assert contents(tmp_path) == [before]


@pytest.mark.parametrize("is_first_half_lost", [True, False])
@pytest.mark.parametrize("at", [4, 8, 12, 16])
def test_an_entry_torn_between_two_sectors_proves_nothing(tmp_path: Path, at: int, is_first_half_lost: bool) -> None:
    # So many slots that `at` bytes of entry 20 are in one sector, and the rest in the next.
    slots = next(each for each in range(128, 300) if (entry_at(20, each) + at) % 512 == 0)
    base = 1 << 32
    config = MessageStoreConfig(max_hash_slot_num=slots, max_index_num=100)
    log = [message(number, f"k{number}", commit_log_offset=base + number * 100) for number in range(30)]
    service = open_index(tmp_path, config)
    service.dispatch(log)
    service.close()
    (before,) = contents(tmp_path)
    begin, end = entry_at(20, slots), entry_at(31, slots)
    torn = bytearray(before)
    torn[begin + at : end] = bytes(end - begin - at)
    if is_first_half_lost:
        torn[begin : begin + at] = bytes(at)
        torn[begin + at : end] = before[begin + at : end]
    next((tmp_path / "index").iterdir()).write_bytes(torn)
    service = IndexService(OsDisk(tmp_path), config, SteppingClock())
    assert service.recover(base + 1900) == base + 1800
    service.dispatch(log[18:])
    assert contents(tmp_path) == [before]


@pytest.mark.parametrize("at", [4, 8, 12, 16])
def test_an_entry_that_a_recovery_was_writing_again_is_not_trusted_by_the_next(tmp_path: Path, at: int) -> None:
    """It was durable, and last before two sectors' end: a recovery zeroes it and writes it again, and dies between."""
    slots = next(each for each in range(128, 300) if (entry_at(20, each) + at) % 512 == 0)
    config = MessageStoreConfig(max_hash_slot_num=slots, max_index_num=100)
    service = open_index(tmp_path, config)
    service.dispatch(messages(20))
    service.close()
    (before,) = contents(tmp_path)
    begin, end = entry_at(20, slots), entry_at(21, slots)
    torn = before[: begin + at] + bytes(20 - at) + before[end:]
    next((tmp_path / "index").iterdir()).write_bytes(torn)
    service = IndexService(OsDisk(tmp_path), config, SteppingClock())
    assert service.recover(2500) == 1800
    service.dispatch(messages(20)[18:])
    assert contents(tmp_path) == [before]


def test_a_missing_newest_file_is_dispatched_again(tmp_path: Path) -> None:
    before = written(tmp_path)
    max((tmp_path / "index").iterdir()).unlink()
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock())
    assert service.recover(2500) == 1700
    service.dispatch(messages(25)[17:])
    assert contents(tmp_path) == before


def test_a_file_that_a_crash_left_without_length_goes(tmp_path: Path) -> None:
    before = written(tmp_path, 9)
    (tmp_path / "index" / "20991231235959999").touch()
    open_index(tmp_path, durable_to=900)
    assert contents(tmp_path) == before


def test_an_index_of_rocketmq_is_used_from_its_end(tmp_path: Path) -> None:
    before = written(tmp_path)
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock(), is_orderly=True, is_trusted=False)
    assert service.recover(5000) == 2400
    assert contents(tmp_path) == before


def test_without_an_index_all_of_rocketmqs_log_is_dispatched(tmp_path: Path) -> None:
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock(), is_orderly=True, is_trusted=False)
    assert service.recover(5000) == 0


@pytest.mark.parametrize(
    ("file", "position", "value", "redo_from"),
    [
        (0, 40 + 28 + 20 * 3 + 4, struct.pack(">q", 0), 0),
        (1, 40 + 28 + 20 * 3 + 16, struct.pack(">i", 1), 800),
        (1, 40 + 28 + 20 * 3, struct.pack(">i", -5), 800),
        (1, 40 + 4 * 3, struct.pack(">i", 0), 800),
        (1, 36, struct.pack(">i", 11), 800),
        (2, 16, struct.pack(">q", -1), 1700),
        (2, 32, struct.pack(">i", 3), None),
    ],
)
def test_a_damaged_file_of_a_crashed_rocketmq_is_made_again(
    tmp_path: Path, file: int, position: int, value: bytes, redo_from: int | None
) -> None:
    before = written(tmp_path)
    path = sorted((tmp_path / "index").iterdir())[file]
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    path.write_bytes(data)
    service = IndexService(OsDisk(tmp_path), TINY, SteppingClock(), is_trusted=False)
    asked = service.recover(2500)
    assert asked == (2400 if redo_from is None else redo_from)
    service.dispatch(messages(25)[asked // RECORD_BYTES :])
    assert contents(tmp_path) == before


def test_problems_names_what_is_wrong(tmp_path: Path) -> None:
    service = open_index(tmp_path)
    service.dispatch(messages(5))
    file = service.files[0]
    assert list(file.problems()) == []
    file.file.write_at(40 + 28 + 20 * 5 + 4, struct.pack(">q", 1))
    assert [problem.partition(": ")[2] for problem in file.problems()] == [
        "entry 5 is of offset 1, the one before of 300",
        "the last entry is of offset 1, endPhyOffset is 400",
    ]


def test_records_with_many_keys_are_put_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a thousand records may have eight million keys: together they would take gigabytes."""
    counts: list[int] = []
    put_keys = IndexFile.put_keys

    def count_keys(file: IndexFile, keys: Sequence[IndexKey]) -> None:
        counts.append(len(keys))
        put_keys(file, keys)

    monkeypatch.setattr(IndexFile, "put_keys", count_keys)
    service = IndexService(OsDisk(tmp_path), MessageStoreConfig(max_hash_slot_num=7), SteppingClock())
    service.recover(0)
    service.dispatch([message(number, "k " * 1000) for number in range(50)])
    assert sum(counts) == 50_000
    assert max(counts) <= 5000
    assert next(service.files[0].problems(), None) is None
