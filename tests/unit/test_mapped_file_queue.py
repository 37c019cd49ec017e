"""MappedFileQueue: which directories are a log, and what loading and truncating change."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.ports.disk import DiskFile
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.layout import file_name, parse_file_name
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError, sync_directories
from tests.worlds.faulty_disk import FaultyDisk

SIZE = 100


def write(root: Path, files: dict[str, bytes]) -> None:
    (root / "log").mkdir()
    for name, data in files.items():
        (root / "log" / name).write_bytes(data)


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "log").iterdir()}


def queue(root: Path | FaultyDisk) -> MappedFileQueue:
    return MappedFileQueue(OsDisk(root) if isinstance(root, Path) else root, "log", SIZE)


def begins_before(durable_to: int) -> Callable[[int, DiskFile], bool]:
    return lambda offset, _: offset < durable_to


def test_names() -> None:
    assert file_name(262144) == "00000000000000262144"
    assert parse_file_name("00000000000000262144") == 262144
    for name in ("262144", "0000000000000026214x", "00000000000000262144.bak", "\u0660" * 20, ""):
        assert parse_file_name(name) is None


def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    log = queue(tmp_path)
    log.load()
    assert (log.files, log.min_offset, log.max_offset, log.find(0)) == ([], 0, 0, None)


@pytest.mark.trio
async def test_names_that_a_killed_process_has_removed_are_synced_too(tmp_path: Path) -> None:
    """A power loss brought the only file back, before one that came much later: no start took that for a log."""
    (tmp_path / "log").mkdir()
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.load()
    await log.flush()
    assert "log/" in disk.syncs


def test_finding(tmp_path: Path) -> None:
    write(tmp_path, {file_name(offset): bytes(SIZE) for offset in (200, 300)})
    log = queue(tmp_path)
    log.load()
    assert (log.min_offset, log.max_offset) == (200, 400)
    found = {offset: log.find(offset) for offset in (199, 200, 299, 300, 399, 400)}
    assert [file and file.from_offset for file in found.values()] == [None, 200, 200, 300, 300, None]
    log.close()


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({file_name(0): bytes(99)}, f"log/{file_name(0)} is 99 bytes long, mappedFileSizeCommitLog is 100"),
        ({file_name(0): bytes(SIZE), file_name(100): bytes(101)}, f"log/{file_name(100)} is 101 bytes long"),
        ({file_name(0): b"", file_name(100): bytes(SIZE)}, f"log/{file_name(0)} is 0 bytes long"),
        (
            {file_name(0): bytes(SIZE), file_name(200): bytes(SIZE)},
            f"log/{file_name(200)} follows a gap: .* ends at 100",
        ),
        ({file_name(0): bytes(SIZE), file_name(50): bytes(SIZE)}, f"log/{file_name(50)} follows a gap"),
        ({file_name(0): bytes(SIZE), "notes.txt": b"hello"}, "log/notes.txt: not the name of a log file"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_log_is_named_and_left_alone(
    tmp_path: Path, files: dict[str, bytes], text: str, read_only: bool
) -> None:
    write(tmp_path, files)
    log = queue(tmp_path)
    with pytest.raises(StoreLayoutError, match=text):
        log.load(read_only=read_only)
    log.close()
    assert contents(tmp_path) == files


@pytest.mark.parametrize("read_only", [False, True])
def test_a_last_file_of_length_zero_is_dropped(tmp_path: Path, read_only: bool) -> None:
    """Known bug #6904: a crash between creating and allocating."""
    write(tmp_path, {file_name(0): bytes(SIZE), file_name(100): b""})
    log = queue(tmp_path)
    log.load(read_only=read_only)
    assert log.max_offset == 100
    log.close()
    assert (file_name(100) in contents(tmp_path)) is read_only


def test_truncating_zeroes_the_rest_and_removes_later_files(tmp_path: Path) -> None:
    write(tmp_path, {file_name(offset): b"x" * SIZE for offset in (0, 100, 200)})
    log = queue(tmp_path)
    log.load()
    log.truncate(140)
    assert log.max_offset == 140
    assert contents(tmp_path) == {file_name(0): b"x" * SIZE, file_name(100): b"x" * 40 + bytes(60)}
    assert log.dirty_directories
    log.close()


@pytest.mark.parametrize(("end", "left"), [(100, 1), (0, 1), (101, 2)])
def test_truncating_at_a_files_edge(tmp_path: Path, end: int, left: int) -> None:
    write(tmp_path, {file_name(offset): b"x" * SIZE for offset in (0, 100)})
    log = queue(tmp_path)
    log.load()
    log.truncate(end)
    assert (log.max_offset, len(log.files)) == (end, left)
    log.close()


def test_a_file_that_is_there_is_never_begun_again(tmp_path: Path) -> None:
    write(tmp_path, {file_name(0): b"x" * SIZE})
    log = queue(tmp_path)
    with pytest.raises(FileExistsError, match=file_name(0)):
        log.add_file(0)
    assert contents(tmp_path) == {file_name(0): b"x" * SIZE}


@pytest.mark.parametrize(
    "lost",
    [
        {file_name(100): b""},
        {file_name(100): b"x" * 99, file_name(200): b"x" * SIZE},
        {file_name(200): b"x" * SIZE},
        {file_name(200): b"", file_name(300): b"x"},
        {file_name(100): b"x" * 101},
    ],
)
def test_what_a_power_loss_leaves_of_unsynced_files_is_removed(tmp_path: Path, lost: dict[str, bytes]) -> None:
    """Lengths and names, too, are lost without a sync: any shorter file, and one that follows a missing one."""
    write(tmp_path, {file_name(0): b"x" * SIZE, **lost})
    log = queue(tmp_path)
    log.load(holds_durable=begins_before(100))
    assert contents(tmp_path) == {file_name(0): b"x" * SIZE}
    assert (log.max_offset, log.flushed_where) == (100, 100)
    assert "log" in log.dirty_directories
    log.close()


@pytest.mark.parametrize(
    "files",
    [
        {file_name(0): bytes(99), file_name(100): bytes(SIZE)},
        {file_name(0): bytes(SIZE), file_name(200): bytes(SIZE)},
        {file_name(0): bytes(SIZE), file_name(100): b"", file_name(200): bytes(SIZE)},
    ],
)
@pytest.mark.parametrize("durable_to", [201, 300])
def test_no_power_loss_takes_a_synced_file(tmp_path: Path, files: dict[str, bytes], durable_to: int) -> None:
    write(tmp_path, files)
    log = queue(tmp_path)
    with pytest.raises(StoreLayoutError, match=r"follows a gap|bytes long"):
        log.load(holds_durable=begins_before(durable_to))
    log.close()
    assert contents(tmp_path) == files


def test_read_only_nothing_is_removed(tmp_path: Path) -> None:
    files = {file_name(0): bytes(SIZE), file_name(200): bytes(SIZE)}
    write(tmp_path, files)
    log = queue(tmp_path)
    log.load(read_only=True, holds_durable=begins_before(0))
    assert (log.max_offset, contents(tmp_path)) == (100, files)
    log.close()


def test_the_size_setting_is_named(tmp_path: Path) -> None:
    write(tmp_path, {file_name(0): bytes(99)})
    with pytest.raises(StoreLayoutError, match="is 99 bytes long, mappedFileSizeConsumeQueue is 100"):
        MappedFileQueue(OsDisk(tmp_path), "log", SIZE, "mappedFileSizeConsumeQueue").load()


def test_known_bug_rocketmq_332_finding_is_right_while_the_oldest_files_go(tmp_path: Path) -> None:
    """It took the index of a file from a list that was shrinking. Here `find` is one call without an await."""
    write(tmp_path, {file_name(offset): bytes(SIZE) for offset in (0, 100, 200, 300)})
    log = queue(tmp_path)
    log.load()
    for gone in (100, 200, 300):
        log.dirty_directories.clear()
        assert log.remove_first_file()
        found = [log.find(offset) for offset in range(400)]
        assert [file and file.from_offset for file in found] == [
            None if offset < gone else offset - offset % SIZE for offset in range(400)
        ]
    log.close()


def test_removing_the_oldest_files_stops_at_the_last(tmp_path: Path) -> None:
    write(tmp_path, {file_name(offset): bytes(SIZE) for offset in (0, 100, 200)})
    log = queue(tmp_path)
    log.load()
    assert not log.remove_first_file(), "names that may not be durable"
    for left in (2, 1, 1):
        log.dirty_directories.clear()
        log.remove_first_file()
        assert len(log.files) == len(contents(tmp_path)) == left
    log.dirty_directories.clear()
    assert not log.remove_first_file()
    assert log.remove_last_file()
    assert not log.remove_last_file()
    assert (contents(tmp_path), log.min_offset, log.max_offset) == ({}, 0, 0)


def test_a_removal_that_fails_leaves_the_file_in_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {file_name(offset): b"x" * SIZE for offset in (0, 100)})
    log = queue(tmp_path)
    log.load()

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "remove", fail)
        with pytest.raises(OSError, match="Input/output error"):
            log.truncate(50)
    assert log.max_offset == 200
    log.truncate(50)
    assert (log.max_offset, contents(tmp_path)) == (50, {file_name(0): b"x" * 50 + bytes(50)})
    log.close()


@pytest.mark.trio
async def test_a_flush_syncs_what_is_dirty_and_nothing_else(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.load()
    log.add_file(0).append(b"x" * SIZE)
    log.add_file(100).append(b"x" * 10)
    await log.flush()
    assert disk.syncs == [f"log/{file_name(0)}", f"log/{file_name(100)}", "log/", "/"]
    assert log.flushed_where == 110
    disk.syncs.clear()
    await log.flush()
    log.files[1].append(b"x")
    await log.flush()
    assert disk.syncs == [f"log/{file_name(100)}"]
    disk.syncs.clear()
    log.files[0].file.write_at(5, b"y")
    log.mark_rewritten(log.files[0])
    await log.flush()
    assert (disk.syncs, log.is_dirty) == ([f"log/{file_name(0)}"], False)
    log.close()


@pytest.mark.trio
async def test_zeros_that_a_cut_writes_are_synced(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.add_file(0).append(b"x" * SIZE)
    log.add_file(100).append(b"x" * 10)
    await log.flush()
    disk.syncs.clear()
    log.truncate(40)
    assert (log.flushed_where, log.is_dirty) == (40, True)
    await log.flush()
    assert (disk.syncs, log.is_dirty) == ([f"log/{file_name(0)}", "log/"], False)
    log.close()


@pytest.mark.trio
@pytest.mark.parametrize("change", ["append", "rewrite", "truncate"])
async def test_what_changes_during_a_sync_is_synced_again(tmp_path: Path, change: str) -> None:
    disk = FaultyDisk(tmp_path, sync_gate=trio.Event())
    log = queue(disk)
    log.add_file(0).append(b"x" * 50)
    assert disk.sync_gate is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.flush_files)
        await trio.testing.wait_all_tasks_blocked()
        if change == "append":
            log.files[0].append(b"x")
        elif change == "rewrite":
            log.mark_rewritten(log.files[0])
        else:
            log.truncate(10)
        disk.sync_gate.set()
    assert log.is_dirty
    await log.flush_files()
    assert (disk.syncs, log.is_dirty) == (2 * [f"log/{file_name(0)}"], False)
    log.close()


@pytest.mark.trio
async def test_the_sync_of_a_file_that_a_truncation_removed_says_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.add_file(0).append(b"x" * SIZE)
    await log.flush_files()
    log.add_file(100).append(b"x" * 50)
    disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.flush_files)
        await trio.testing.wait_all_tasks_blocked()
        log.truncate(40)
        disk.sync_gate.set()
    assert log.flushed_where == 40
    log.close()


@pytest.mark.trio
@pytest.mark.parametrize("removed", [False, True])
async def test_a_failed_sync_counts_only_for_a_file_that_is_still_there(tmp_path: Path, removed: bool) -> None:
    disk = FaultyDisk(tmp_path, failing_syncs=1, sync_gate=trio.Event())
    log = queue(disk)
    log.add_file(0).append(b"x" * 50)
    failures: list[OSError] = []

    async def flush() -> None:
        try:
            await log.flush_files()
        except OSError as error:
            failures.append(error)

    assert disk.sync_gate is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        if removed:
            log.remove_last_file()
        disk.sync_gate.set()
    assert (len(failures), log.is_dirty, log.flushed_where) == (not removed, not removed, 0)
    log.close()


@pytest.mark.trio
async def test_a_directory_that_changes_during_its_sync_stays_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.add_file(0).append(b"x" * SIZE)

    async def sync_directory(_: FaultyDisk, directory: str) -> None:
        if directory == "log":
            log.add_file(100)

    with monkeypatch.context() as patched:
        patched.setattr(FaultyDisk, "sync_directory", sync_directory)
        await sync_directories(disk, log.dirty_directories)
    assert list(log.dirty_directories) == ["log"]
    await sync_directories(disk, log.dirty_directories)
    assert (disk.syncs, log.dirty_directories) == (["log/"], {})
    log.close()


@pytest.mark.trio
async def test_of_two_syncs_of_a_directory_the_later_end_hides_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush and the cleaning sync names at the same time: what changes after the first is not of the second."""
    disk = FaultyDisk(tmp_path)
    log = queue(disk)
    log.add_file(0).append(b"x" * SIZE)
    ends = [trio.Event(), trio.Event()]
    waiting = iter(ends)

    async def sync_directory(_: FaultyDisk, directory: str) -> None:
        if directory == "log":
            await next(waiting).wait()

    with monkeypatch.context() as patched:
        patched.setattr(FaultyDisk, "sync_directory", sync_directory)
        async with trio.open_nursery() as nursery:
            for _ in ends:
                nursery.start_soon(sync_directories, disk, log.dirty_directories)
                await trio.testing.wait_all_tasks_blocked()
            ends[0].set()
            await trio.testing.wait_all_tasks_blocked()
            assert "log" not in log.dirty_directories
            log.add_file(100)
            ends[1].set()
    assert list(log.dirty_directories) == ["log"]
    log.close()


def test_the_search_for_the_last_byte_reads_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=4096)
    mapped_file = MappedFile(file, 0)
    mapped_file.append(b"record")
    file.write_at(3000, b"what no file system would call a hole")
    assert mapped_file.used_bytes() == 3037
    monkeypatch.setattr(type(file), "written_end", lambda _: 1000)
    assert mapped_file.used_bytes() == 3037, "it is found once"
    mapped_file.append(b"another")
    assert mapped_file.used_bytes() == 13


def test_a_cut_zeroes_what_stands_after_it(tmp_path: Path) -> None:
    mapped_file = MappedFile(OsDisk(tmp_path).open("log", allocate_bytes=100), 0)
    mapped_file.append(b"0123456789")
    assert mapped_file.used_bytes() == 10
    mapped_file.cut(4)
    assert (mapped_file.end_offset, mapped_file.used_bytes(), bytes(mapped_file.whole()[:12])) == (
        4,
        4,
        b"0123" + bytes(8),
    )
