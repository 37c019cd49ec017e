"""CommitLog: appending, rolling, reopening, raw bytes, durability."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
    MessageIllegal,
    check_record,
    decode_record,
    encode_message,
)
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_tracer

SIZE = 1000


def open_log(root: Path, size: int = SIZE) -> CommitLog:
    return CommitLog.open(OsDisk(root), size, new_tracer())


def append(log: CommitLog, body: bytes, topic: str = "T", queue_id: int = 0, sys_flag: int = 0) -> int:
    encoded = encode_message(Message(topic, body, queue_id, sys_flag=sys_flag))
    return log.append_message(encoded, 1_700_000_000_000).queue_offset


def log_bytes(log: CommitLog) -> bytes:
    return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))


def bodies(log: CommitLog) -> list[bytes]:
    """Every body in order, read with nothing but the record format."""
    found, offset = [], log.min_offset
    while offset < log.max_offset:
        end_of_file = min(log.max_offset, offset - offset % log.file_size_bytes + log.file_size_bytes)
        view = log.select(offset, end_of_file - offset)
        check = check_record(view, 0, offset)
        assert check.what != "invalid"
        if check.what == "message":
            found.append(decode_record(view, 0, offset).body)
        offset += check.size
    return found


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(0, 892), min_size=1, max_size=40), reopen_every=st.integers(1, 15))
def test_round_trip_over_rolls_and_reopens(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], reopen_every: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    log, next_offsets = open_log(root), dict.fromkeys(range(3), 0)
    for number, size in enumerate(sizes):
        queue_id = number % 3
        assert append(log, bytes([number + 1]) * size, queue_id=queue_id) == next_offsets[queue_id]
        next_offsets[queue_id] += 1
        if number % reopen_every == 0:
            before = (log.max_offset, log_bytes(log))
            log.close()
            log = open_log(root)
            assert (log.max_offset, log_bytes(log)) == before
    assert bodies(log) == [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    log.close()
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {SIZE}


def test_a_record_fits_a_file_to_the_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    # 91 bytes and a topic of 1 byte around the body; 8 bytes stay for the blank.
    append(log, bytes(SIZE - 92 - 8))
    assert log.max_offset == SIZE - 8
    append(log, b"next")
    assert log.select(SIZE - 8, 8) == bytes([0, 0, 0, 8]) + bytes.fromhex("CBD43194")
    assert log.max_offset == SIZE + 96
    with pytest.raises(MessageIllegal, match="a record of 993 bytes does not fit a file of 1000 bytes"):
        append(log, bytes(SIZE - 92 - 8 + 1))
    assert log.max_offset == SIZE + 96
    log.close()


def test_queue_offsets_are_a_row_a_queue_and_transactions_take_theirs_at_commit(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [append(log, b"x", "A") for _ in range(3)] == [0, 1, 2]
    assert [append(log, b"x", "A", 1), append(log, b"x", "B")] == [0, 0]
    assert append(log, b"x", "A", sys_flag=TRANSACTION_PREPARED_TYPE) == 0
    assert append(log, b"x", "A", sys_flag=TRANSACTION_ROLLBACK_TYPE) == 0
    assert append(log, b"x", "A", sys_flag=TRANSACTION_COMMIT_TYPE) == 3
    log.close()
    again = open_log(tmp_path)
    assert [append(again, b"x", "A"), append(again, b"x", "A", 1), append(again, b"x", "B")] == [4, 1, 1]
    again.close()


def test_reads_outside_of_the_log_are_our_mistake(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"x")
    for offset, size in ((0, 94), (93, 1), (1000, 1), (-1, 1)):
        with pytest.raises(ValueError, match=r"not in"):
            log.select(offset, size)
    assert log.ranges(93, 93) == []
    log.close()


def whole_log(root: Path) -> bytes:
    """A master's log over four files."""
    log = open_log(root)
    for number in range(12):
        append(log, bytes([number]) * (150 + 20 * number))
    data = log_bytes(log)
    log.close()
    assert len(data) > 3 * SIZE
    return data


def cut_as_frames(data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """Cut as a master does: anywhere, and at each file's end."""
    edges = sorted({0, len(data), *range(SIZE, len(data), SIZE), *(cut for cut in cuts if cut < len(data))})
    return [(begin, data[begin:end]) for begin, end in itertools.pairwise(edges)]


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(1, 3800), max_size=40))
def test_raw_bytes_in_any_frames_make_the_same_log(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    data = whole_log(tmp_path_factory.mktemp("master"))
    root = tmp_path_factory.mktemp("slave")
    log = open_log(root)
    for offset, frame in cut_as_frames(data, cuts):
        log.append_data(offset, frame)
        assert log.max_offset == offset + len(frame)
    assert log_bytes(log) == data
    log.close()
    again = open_log(root)
    assert log_bytes(again) == data
    # What a promoted slave gives next: the master wrote 12 messages of this queue.
    assert append(again, b"x") == 12
    again.close()


def ends_of_records(data: bytes) -> list[int]:
    """Where records and blanks end in a log that begins at 0."""
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    return ends


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(1, 3800), max_size=40))
def test_a_slaves_log_ends_with_a_whole_record(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    """A part of one is nobody's promise: the next master may have another record there, or none."""
    data = whole_log(tmp_path_factory.mktemp("master"))
    ends = ends_of_records(data)
    log, held = open_log(tmp_path_factory.mktemp("slave")), b""
    for offset, frame in cut_as_frames(data, cuts):
        begin = offset - len(held)
        end = log.append_data(begin, held + frame, whole_records=True)
        held = (held + frame)[end - begin :]
        assert end == log.max_offset == max(each for each in ends if each <= offset + len(frame))
    assert not held
    assert log_bytes(log) == data
    assert append(log, b"x") >= 0
    log.close()


def test_of_a_first_record_that_came_in_part_there_is_no_file(tmp_path: Path) -> None:
    data = whole_log(tmp_path / "master")
    log = open_log(tmp_path / "slave")
    for size in range(1, ends_of_records(data)[1]):
        assert log.append_data(0, data[:size], whole_records=True) == 0
    assert not (tmp_path / "slave" / "commitlog").exists()
    log.close()


def test_raw_bytes_a_byte_at_a_time(tmp_path: Path) -> None:
    data = whole_log(tmp_path / "master")
    log = open_log(tmp_path / "slave")
    for offset, byte in enumerate(data):
        log.append_data(offset, bytes((byte,)))
    assert log_bytes(log) == data
    log.close()


def test_a_slave_may_begin_at_any_file(tmp_path: Path) -> None:
    data = whole_log(tmp_path / "master")
    log = open_log(tmp_path / "slave")
    log.append_data(2 * SIZE, data[2 * SIZE : 3 * SIZE])
    assert (log.min_offset, log.max_offset) == (2 * SIZE, 3 * SIZE)
    log.close()
    assert sorted(path.name for path in (tmp_path / "slave" / "commitlog").iterdir()) == [file_name(2 * SIZE)]


def refuse(log: CommitLog, offset: int, data: bytes, text: str) -> None:
    before = (log.max_offset, log_bytes(log))
    with pytest.raises(AppendRefused, match=text):
        log.append_data(offset, data)
    assert (log.max_offset, log_bytes(log)) == before


def test_raw_bytes_that_do_not_continue_the_log(tmp_path: Path) -> None:
    data = whole_log(tmp_path / "master")
    log = open_log(tmp_path / "slave")
    refuse(log, 500, data[500:600], "begins at 500, no multiple of the file size 1000.*mappedFileSizeCommitLog")
    log.append_data(0, data[:600])
    for offset in (0, 599, 601, 1000):
        refuse(log, offset, data[offset : offset + 10], f"bytes for offset {offset}, this log ends at 600")
    refuse(
        log,
        600,
        data[600:1001],
        "401 bytes at offset 600 cross the end of a file of 1000 bytes.*mappedFileSizeCommitLog",
    )
    log.close()


@pytest.mark.parametrize("slave_size", [500, 700, 999, 1001, 2000, 3000])
@pytest.mark.parametrize("batch", [1, 7, 50, 100, 500, 1000])
def test_known_bug_s3_another_file_size_is_refused_before_it_does_harm(
    tmp_path: Path, slave_size: int, batch: int
) -> None:
    """Frames may happen to fit the slave's files: the records in them do not."""
    data = whole_log(tmp_path / "master")
    log = open_log(tmp_path / "slave", slave_size)
    frames = cut_as_frames(data, list(range(0, len(data), batch)))

    def append_all() -> None:
        for offset, frame in frames:
            log.append_data(offset, frame)

    with pytest.raises(AppendRefused, match="mappedFileSizeCommitLog"):
        append_all()
    # Whatever came before is a good log.
    end = log.max_offset
    assert log_bytes(log) == data[:end]
    log.close()
    again = open_log(tmp_path / "slave", slave_size)
    assert again.max_offset <= end
    again.close()


def test_raw_bytes_that_are_no_records_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    refuse(log, 0, b"GET / HTTP/1.1\r\n\r\n", "offset 0")
    refuse(log, 3 * SIZE, bytes(100), "offset 3000: no record .*totalSize 0, magic 0x00000000")
    # A refused beginning is no beginning: the log is as empty as before.
    assert not (tmp_path / "commitlog").exists()
    append(log, b"x")
    refuse(log, log.max_offset, bytes(40), f"offset {log.max_offset}")
    log.close()


def test_nothing_is_written_once_the_log_is_closed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"first")
    log.close()
    before = (tmp_path / "commitlog" / file_name(0)).read_bytes()
    with pytest.raises(OSError, match="closed"):
        append(log, b"second")
    record = encode_message(Message("T", b"x"))
    record.place(queue_offset=0, physical_offset=2 * SIZE, store_timestamp_ms=0)
    for offset, data in ((0, before[:97]), (2 * SIZE, bytes(record.data))):
        with pytest.raises(AppendRefused, match="closed"):
            log.append_data(offset, data)
    assert {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()} == {file_name(0): before}


def test_no_space_appends_nothing_and_recovers(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = CommitLog.open(disk, SIZE, new_tracer())
    append(log, bytes(600))
    end = log.max_offset
    disk.space_bytes = 0
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            append(log, b"in this file")
        with pytest.raises(OSError, match="No space left"):
            append(log, bytes(800))
    assert log.max_offset == end
    # Room for the blank that ends the file, not for the record after it.
    disk.space_bytes = 8
    with pytest.raises(OSError, match="No space left"):
        append(log, bytes(800))
    disk.space_bytes = None
    assert [append(log, bytes(800)), append(log, b"x")] == [1, 2]
    assert bodies(log) == [bytes(600), bytes(800), b"x"]
    log.close()
    again = open_log(tmp_path)
    assert bodies(again) == [bytes(600), bytes(800), b"x"]
    again.close()


def test_no_space_for_a_masters_bytes_appends_nothing_and_recovers(tmp_path: Path) -> None:
    data = whole_log(tmp_path / "master")
    disk = FaultyDisk(tmp_path / "slave")
    log = CommitLog.open(disk, SIZE, new_tracer())
    disk.space_bytes = 0
    with pytest.raises(AppendRefused, match=r"offset 0: .*No space left"):
        log.append_data(0, data[:1000])
    assert log.max_offset == 0
    disk.space_bytes = None
    log.append_data(0, data[:1000])
    log.append_data(1000, data[1000:1500])
    assert log_bytes(log) == data[:1500]
    log.close()


@pytest.mark.trio
async def test_flushed_where_moves_only_after_success(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = CommitLog.open(disk, SIZE, new_tracer())
    append(log, b"x")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        await log.flush()
    assert (log.flushed_where, disk.syncs) == (0, [])
    assert await log.flush() == log.max_offset == log.flushed_where
    assert disk.syncs == [f"commitlog/{file_name(0)}", "commitlog/", "/"]
    log.close()


@pytest.mark.trio
async def test_a_flush_over_a_roll_syncs_both_files_and_the_directory(tmp_path: Path) -> None:
    """Known bug #3408: a message straddles the roll."""
    disk = FaultyDisk(tmp_path)
    log = CommitLog.open(disk, SIZE, new_tracer())
    append(log, bytes(600))
    await log.flush()
    disk.syncs.clear()
    append(log, bytes(600))
    assert await log.flush() == log.max_offset
    assert disk.syncs == [f"commitlog/{file_name(0)}", f"commitlog/{file_name(SIZE)}", "commitlog/"]
    disk.syncs.clear()
    append(log, b"x")
    await log.flush()
    assert disk.syncs == [f"commitlog/{file_name(SIZE)}"]
    log.close()


@pytest.mark.trio
async def test_a_failed_directory_sync_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk(tmp_path)
    log = CommitLog.open(disk, SIZE, new_tracer())
    append(log, b"x")

    async def failing(_: FaultyDisk, directory: str) -> None:
        raise OSError(5, directory)

    with monkeypatch.context() as patch:
        patch.setattr(FaultyDisk, "sync_directory", failing)
        with pytest.raises(OSError, match="commitlog"):
            await log.flush()
    assert log.flushed_where == 0
    await log.flush()
    assert disk.syncs[-2:] == ["commitlog/", "/"]
    log.close()


@pytest.mark.trio
async def test_known_bug_s6_what_recovery_found_is_not_flushed_until_it_is_synced(tmp_path: Path) -> None:
    """A kill leaves bytes, and names of files, in the page cache: a power cut later would take them."""
    log = open_log(tmp_path)
    append(log, bytes(600))
    append(log, bytes(600))
    log.close()
    disk = FaultyDisk(tmp_path)
    again = CommitLog.open(disk, SIZE, new_tracer())
    assert again.flushed_where == 0
    assert await again.flush() == again.max_offset
    assert disk.syncs == [f"commitlog/{file_name(0)}", f"commitlog/{file_name(SIZE)}", "commitlog/", "/"]
    again.close()


def test_another_file_size_is_refused_when_opening(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    log = open_log(tmp_path)
    append(log, b"x")
    log.close()
    with pytest.raises(StoreLayoutError, match=f"commitlog/{file_name(0)} is 1000 bytes long, .* is 2000"):
        open_log(tmp_path, 2000)
