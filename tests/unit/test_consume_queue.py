"""ConsumeQueue: entry k stands at index k, whatever comes, and a cut finds its place without reading everything."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.consume_queue import (
    GAP_UNITS_MAX,
    ConsumeQueue,
    QueueEntry,
)
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.files.formats import BLANK_ENTRY, BLANK_SIZE, CQ_STORE_UNIT_SIZE
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.queue_files import held

UNITS = 5
SIZE = UNITS * CQ_STORE_UNIT_SIZE


def open_queue(root: Path | FaultyDisk, durable_to: int = 0, units: int = UNITS) -> ConsumeQueue:
    disk = OsDisk(root) if isinstance(root, Path) else root
    files = MappedFileQueue(disk, "q", units * CQ_STORE_UNIT_SIZE, "mappedFileSizeConsumeQueue")
    queue = ConsumeQueue("T", 0, files)
    queue.recover(durable_to)
    return queue


def entries(begin: int, end: int, *, offset: int = 0) -> list[QueueEntry]:
    """Entries of records of 100 bytes, one after the other; that with index 0 would be at `offset`."""
    return [QueueEntry(index, offset + 100 * index, 100, -index) for index in range(begin, end)]


def stored(begin: int, end: int, *, offset: int = 0) -> list[tuple[int, int, int] | None]:
    return [entry[1:4] for entry in entries(begin, end, offset=offset)]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "q").iterdir())


def test_an_entry_is_twenty_bytes_as_rocketmq_writes_them(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([QueueEntry(0, 0x0102030405060708, 0x090A0B0C, -2)])
    assert (tmp_path / "q" / file_name(0)).read_bytes() == (
        bytes.fromhex("0102030405060708 090a0b0c fffffffffffffffe") + bytes(SIZE - 20)
    )
    queue.close()


def test_reading(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue, queue.max_physic_offset) == (0, 0, -1)
    queue.put_message_position_info(entries(0, 12))
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue, queue.max_physic_offset) == (0, 12, 1200)
    assert [queue.entry(index) for index in range(-1, 13)] == [None, *stored(0, 12), None]
    data = b"".join((tmp_path / "q" / name).read_bytes() for name in names(tmp_path))
    for begin in range(12):
        for units in (1, 3, 100):
            end = min(begin + units, queue.roll_next_file(begin), 12)
            assert bytes(queue.entries(begin, units)) == data[20 * begin : 20 * end]
    assert [len(queue.entries(index, 9)) for index in (-1, 12, 13)] == [0, 0, 0]
    queue.close()


def test_known_bug_rocketmq_265_a_record_that_comes_again_gets_no_second_entry(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 7))
    queue.put_message_position_info(entries(3, 9))
    queue.put_message_position_info(entries(0, 9))
    assert (held(queue), queue.repeats, queue.refused) == (stored(0, 9), 4 + 9, 0)
    queue.close()


@pytest.mark.parametrize("first", [1, 4, 5, 13])
def test_a_queue_may_begin_late(tmp_path: Path, first: int) -> None:
    """A slave that began in the middle: the file is the one that 4.9 makes, blank before the first entry."""
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(first, first + 2))
    blanks = first % UNITS
    assert held(queue) == [None] * blanks + stored(first, first + 2)
    assert names(tmp_path)[0] == file_name(first // UNITS * SIZE)
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (first, first + 2)
    assert [queue.entry(index) for index in (first - 1, first)] == [None, stored(first, first + 1)[0]]
    queue.close()
    again = open_queue(tmp_path, 10_000)
    assert (again.min_offset_in_queue, again.max_offset_in_queue) == (first, first + 2)
    assert again.max_physic_offset == 100 * (first + 2)
    again.close()


def test_a_blank_entry_is_rocketmqs(tmp_path: Path) -> None:
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == BLANK_ENTRY
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(2, 3))
    assert (tmp_path / "q" / file_name(0)).read_bytes()[:40] == 2 * BLANK_ENTRY
    assert int.from_bytes(queue.entries(2, 1)[8:12], "big") != BLANK_SIZE
    queue.close()


@pytest.mark.parametrize("gap", [1, 2, 5, 11])
def test_a_gap_is_filled_so_that_entry_k_stands_at_index_k(
    tmp_path: Path, gap: int, caplog: pytest.LogCaptureFixture
) -> None:
    """4.9 logs "logic queue order maybe wrong" and appends at the wrong index."""
    queue = open_queue(tmp_path)
    queue.put_message_position_info([*entries(0, 3), *entries(3 + gap, 5 + gap)])
    assert held(queue) == [*stored(0, 3), *[None] * gap, *stored(3 + gap, 5 + gap)]
    assert [queue.entry(index) for index in (2, 3, 3 + gap)] == [stored(2, 3)[0], None, stored(3 + gap, 4 + gap)[0]]
    assert f"the record at {100 * (3 + gap)} is number {3 + gap} of its queue, which ends at 3" in caplog.text
    queue.put_message_position_info(entries(6 + gap, 7 + gap))
    assert (queue.gaps, len(caplog.messages)) == (2, 1), "each further one would be a line"
    queue.close()


@pytest.mark.parametrize("index", [1, 4, -1, 5 + GAP_UNITS_MAX + 1, 1 << 62])
def test_an_index_that_no_good_record_has_gets_no_entry(
    tmp_path: Path, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([*entries(0, 5), QueueEntry(index, 500, 100, 0), *entries(5, 6, offset=100)])
    assert (held(queue), queue.refused) == ([*stored(0, 5), *stored(5, 6, offset=100)], 1)
    assert f"the record at 500 is number {index} of its queue, which ends at 5: it gets no entry" in caplog.text
    queue.close()


def test_number_0_again_is_a_queue_that_begins_again(tmp_path: Path) -> None:
    """Nothing of it is taken: what stands before it must go first."""
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 5))
    with pytest.raises(QueueBeginsAgain, match="begins again at log offset 500") as found:
        queue.put_message_position_info([QueueEntry(0, 500, 100, 0), QueueEntry(1, 600, 100, 0)])
    assert (found.value.offset, held(queue)) == (500, stored(0, 5))
    queue.remove_files()
    queue.put_message_position_info([QueueEntry(0, 500, 100, 0), QueueEntry(1, 600, 100, 0)])
    assert (queue.first_physic_offset, queue.max_offset_in_queue) == (500, 2)
    queue.close()


def test_number_0_again_takes_nothing_from_the_queue_of_a_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has given the numbers itself: that one is a defect, and messages that can be read must not go for it."""
    queue = open_queue(tmp_path)
    queue.own_from = 500
    queue.put_message_position_info(entries(0, 5))
    queue.put_message_position_info([QueueEntry(0, 500, 100, 0), *entries(5, 6, offset=100)])
    assert (held(queue), queue.refused) == ([*stored(0, 5), *stored(5, 6, offset=100)], 1)
    assert "the record at 500 is number 0 of its queue, which ends at 5: it gets no entry" in caplog.text
    queue.close()


def test_the_first_index_is_one_that_a_file_name_can_hold(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([QueueEntry(1 << 62, 0, 100, 0), QueueEntry(-1, 100, 100, 0)])
    assert (queue.refused, queue.max_offset_in_queue, (tmp_path / "q").exists()) == (2, 0, False)


@pytest.mark.parametrize("space", range(0, 12 * 20, 7))
def test_a_full_disk_leaves_a_prefix_and_the_rest_comes_again(tmp_path: Path, space: int) -> None:
    disk = FaultyDisk(tmp_path)
    queue = open_queue(disk)
    queue.put_message_position_info(entries(0, 2))
    disk.space_bytes = space
    with pytest.raises(OSError, match="No space left"):
        queue.put_message_position_info(entries(2, 14))
    count = len(held(queue))
    assert held(queue) == stored(0, count)
    assert queue.max_physic_offset == 100 * count
    disk.space_bytes = None
    queue.put_message_position_info(entries(2, 14))
    assert (held(queue), queue.max_physic_offset, queue.refused) == (stored(0, 14), 1400, 0)
    queue.close()


def test_a_file_that_cannot_be_made_is_made_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = open_queue(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "open", refuse)
        with pytest.raises(OSError, match="No space left"):
            queue.put_message_position_info(entries(7, 9))
    assert (queue.max_offset_in_queue, queue.max_physic_offset) == (0, -1)
    queue.put_message_position_info(entries(7, 9))
    assert held(queue) == [None, None, *stored(7, 9)]
    queue.close()


def test_known_bug_10108_and_8753_the_minimum_is_found_wherever_it_is(tmp_path: Path) -> None:
    """4.9 raises at the start, or leaves a minimum whose record is gone, if the first file has no live entry."""
    queue = open_queue(tmp_path)
    queue.correct_min_offset(700)
    assert queue.min_offset_in_queue == 0
    queue.put_message_position_info(entries(0, 12))
    for log_min_offset, expected in ((0, 0), (1, 1), (100, 1), (101, 2), (799, 8), (1100, 11), (1101, 12), (9999, 12)):
        queue.correct_min_offset(log_min_offset)
        assert queue.min_offset_in_queue == expected, log_min_offset
    queue.put_message_position_info(entries(12, 14, offset=9_000))
    queue.correct_min_offset(9_999)
    assert queue.min_offset_in_queue == 12
    queue.close()


def test_a_cut_that_takes_the_minimum_away_moves_it_to_the_end(tmp_path: Path) -> None:
    """Known bug #10108: its position was beyond the file's limit after a truncation."""
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 12))
    queue.correct_min_offset(900)
    queue.truncate_dirty_logic_files(300)
    queue.correct_min_offset(900)
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (3, 3)
    queue.close()
    again = open_queue(tmp_path, 100)
    again.correct_min_offset(5_000)
    assert (again.min_offset_in_queue, again.max_offset_in_queue) == (1, 1)
    again.close()


def test_blanks_are_never_the_minimum(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([*entries(2, 3), *entries(9, 11)])
    for log_min_offset, expected in ((0, 2), (200, 2), (201, 9), (901, 10), (1001, 11)):
        queue.correct_min_offset(log_min_offset)
        assert queue.min_offset_in_queue == expected
    queue.close()


@pytest.mark.trio
async def test_a_file_goes_when_its_last_record_is_gone_but_never_the_last_file(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queue = open_queue(disk)
    queue.put_message_position_info(entries(0, 12))
    await queue.queue.flush()
    assert (queue.delete_expired_file(400), names(tmp_path)[0]) == (0, file_name(0))
    assert queue.min_offset_in_queue == 4
    assert (queue.delete_expired_file(9_999), names(tmp_path)) == (1, [file_name(SIZE), file_name(2 * SIZE)])
    assert queue.delete_expired_file(9_999) == 0, "of two un-synced removals a power loss could undo the first"
    await queue.queue.flush()
    assert queue.delete_expired_file(9_999) == 1
    await queue.queue.flush()
    assert (queue.delete_expired_file(9_999), names(tmp_path)) == (0, [file_name(2 * SIZE)])
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (12, 12)
    queue.put_message_position_info(entries(12, 13))
    assert held(queue) == stored(10, 13)
    queue.close()


@pytest.mark.trio
async def test_a_file_that_ends_in_blanks_goes_with_its_last_record(tmp_path: Path) -> None:
    queue = open_queue(FaultyDisk(tmp_path))
    queue.put_message_position_info([*entries(0, 3), *entries(7, 8)])
    await queue.queue.flush()
    assert queue.delete_expired_file(200) == 0
    assert queue.delete_expired_file(201) == 1
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (7, 8)
    queue.close()


@pytest.mark.parametrize("units", [5, 30, 1000])
@pytest.mark.parametrize("durable_to", [0, 1, 100, 300, 301, 499, 500, 2599, 2600, 4200, 99_999])
def test_recovery_cuts_at_a_record_and_leaves_zeros(tmp_path: Path, units: int, durable_to: int) -> None:
    queue = open_queue(tmp_path, units=units)
    queue.put_message_position_info(entries(0, 42))
    queue.close()
    again = open_queue(tmp_path, durable_to, units)
    kept = min(42, -(-durable_to // 100))
    assert (held(again), again.max_physic_offset) == (stored(0, kept), 100 * kept or -1)
    last = (tmp_path / "q" / names(tmp_path)[-1]).read_bytes()
    assert not any(last[20 * (kept - (len(names(tmp_path)) - 1) * units) :])
    again.put_message_position_info(entries(0, 42))
    assert held(again) == stored(0, 42)
    again.close()


def test_an_entry_that_a_power_loss_tore_is_not_believed(tmp_path: Path) -> None:
    """The unit at byte 500 crosses a sector's edge; its first half was lost, so that its offset seems smaller."""
    queue = open_queue(tmp_path, units=1000)
    queue.put_message_position_info(entries(0, 40))
    queue.close()
    path = tmp_path / "q" / file_name(0)
    data = bytearray(path.read_bytes())
    assert data[500:508] == (2500).to_bytes(8, "big")
    data[500:508] = bytes(8)
    path.write_bytes(data)
    again = open_queue(tmp_path, 2500, units=1000)
    assert held(again) == stored(0, 25)
    again.close()


@pytest.mark.parametrize("length", [0, 1, 19, 20, 60])
@pytest.mark.parametrize("lost_name", [0, 1, 2])
def test_names_and_lengths_that_a_power_loss_took_are_after_the_cut(
    tmp_path: Path, length: int, lost_name: int
) -> None:
    """Three files that nobody synced after one that somebody did."""
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 18))
    queue.close()
    before = {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)}
    (tmp_path / "q" / file_name((1 + lost_name) * SIZE)).unlink()
    shorter = tmp_path / "q" / file_name((1 + (lost_name + 1) % 3) * SIZE)
    shorter.write_bytes(shorter.read_bytes()[:length])
    again = open_queue(tmp_path, 400)
    assert held(again) == stored(0, 4)
    again.put_message_position_info(entries(4, 18))
    assert {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)} == before
    again.close()


def test_a_gap_among_durable_files_is_no_power_loss(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 18))
    queue.close()
    (tmp_path / "q" / file_name(SIZE)).unlink()
    before = names(tmp_path)
    with pytest.raises(StoreLayoutError, match=f"q/{file_name(2 * SIZE)} follows a gap"):
        open_queue(tmp_path, 1100)
    assert names(tmp_path) == before


def test_another_file_size_is_named(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 3))
    queue.close()
    with pytest.raises(StoreLayoutError, match="is 100 bytes long, mappedFileSizeConsumeQueue is 200"):
        open_queue(tmp_path, 100, units=10)


def test_blanks_after_the_cut_go_with_the_entry_that_they_are_for(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([*entries(3, 5), *entries(16, 18)])
    queue.close()
    before = {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)}
    again = open_queue(tmp_path, 500)
    assert held(again) == [None] * 3 + stored(3, 5)
    again.put_message_position_info(entries(16, 18))
    assert {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)} == before
    again.close()


@pytest.mark.parametrize("left", [1, 2])
def test_blanks_whose_entry_was_lost_with_its_file_go_too(tmp_path: Path, left: int) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info([*entries(0, 3), *entries(12, 13)])
    queue.close()
    before = {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)}
    for name in names(tmp_path)[left:]:
        (tmp_path / "q" / name).unlink()
    again = open_queue(tmp_path, 300)
    assert (held(again), again.max_physic_offset) == (stored(0, 3), 300)
    again.put_message_position_info(entries(12, 13))
    assert {name: (tmp_path / "q" / name).read_bytes() for name in names(tmp_path)} == before
    again.close()


def test_a_queue_of_which_nothing_is_durable_keeps_its_place_until_a_record_says_otherwise(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(7, 9))
    queue.close()
    again = open_queue(tmp_path, 0)
    assert (again.min_offset_in_queue, again.max_offset_in_queue, again.max_physic_offset) == (5, 5, -1)
    again.put_message_position_info(entries(2, 4))
    assert (names(tmp_path), held(again)) == ([file_name(0)], [None, None, *stored(2, 4)])
    again.close()


# The store times of the records: 0, 100, ... as their offsets, but some are equal.
@pytest.mark.parametrize(
    ("timestamp_ms", "log_min_offset", "expected"),
    [
        (-1, 0, 0),
        (0, 0, 0),
        (50, 0, 0),
        (51, 0, 1),
        (149, 0, 1),
        (150, 0, 1),
        (151, 0, 2),
        (550, 0, 5),
        (551, 0, 6),
        (1100, 0, 11),
        (9999, 0, 11),
        (0, 250, 3),
        (9999, 250, 11),
        (9999, 9999, 0),
    ],
)
def test_by_time_the_nearest_is_found_and_of_two_the_older(
    tmp_path: Path, timestamp_ms: int, log_min_offset: int, expected: int
) -> None:
    queue = open_queue(tmp_path)
    queue.put_message_position_info(entries(0, 12))
    assert queue.offset_in_queue_by_time(timestamp_ms, log_min_offset, lambda offset, _: offset) == expected
    assert queue.offset_in_queue_by_time(timestamp_ms, 0, lambda _, __: -1) == 0, "the log does not have the record"
    queue.close()


def test_by_time_blanks_are_stepped_over(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    assert queue.offset_in_queue_by_time(5, 0, lambda offset, _: offset) == 0
    queue.put_message_position_info([*entries(2, 4), *entries(9, 12)])
    for timestamp_ms, expected in ((0, 2), (300, 3), (500, 3), (700, 9), (1050, 10), (1051, 11)):
        assert queue.offset_in_queue_by_time(timestamp_ms, 0, lambda offset, _: offset) == expected
    queue.close()


@pytest.mark.trio
async def test_the_least_pages_of_a_flush(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queue = open_queue(disk, units=1000)
    queue.put_message_position_info(entries(0, 204))
    await queue.flush_files(1)
    assert (disk.syncs, queue.is_dirty) == ([], True), "4,080 bytes touch no further page"
    queue.put_message_position_info(entries(204, 205))
    await queue.flush_files(2)
    assert disk.syncs == []
    await queue.flush_files(1)
    assert (disk.syncs, queue.is_dirty) == ([f"q/{file_name(0)}"], False)
    queue.put_message_position_info(entries(205, 1001))
    await queue.flush_files(5)
    assert disk.syncs == 2 * [f"q/{file_name(0)}"], "a full file is synced whatever it has"
    await queue.flush_files()
    assert (disk.syncs[2:], queue.is_dirty) == ([f"q/{file_name(20_000)}"], False)
    queue.close()
