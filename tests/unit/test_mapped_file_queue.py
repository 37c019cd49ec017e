"""MappedFileQueue: which directories are a log, and what loading and truncating change."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.layout import file_name, parse_file_name
from rmq_actors.store.mapped_file import MappedFile
from rmq_actors.store.mapped_file_queue import MappedFileQueue, StoreLayoutError

SIZE = 100


def write(root: Path, files: dict[str, bytes]) -> None:
    (root / "log").mkdir()
    for name, data in files.items():
        (root / "log" / name).write_bytes(data)


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "log").iterdir()}


def queue(root: Path) -> MappedFileQueue:
    return MappedFileQueue(OsDisk(root), "log", SIZE)


def test_names() -> None:
    assert file_name(262144) == "00000000000000262144"
    assert parse_file_name("00000000000000262144") == 262144
    for name in ("262144", "0000000000000026214x", "00000000000000262144.bak", "\u0660" * 20, ""):
        assert parse_file_name(name) is None


def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    log = queue(tmp_path)
    log.load()
    assert (log.files, log.min_offset, log.max_offset, log.find(0)) == ([], 0, 0, None)


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
    assert log.directory_is_dirty
    log.close()


@pytest.mark.parametrize(("end", "left"), [(100, 1), (0, 1), (101, 2)])
def test_truncating_at_a_files_edge(tmp_path: Path, end: int, left: int) -> None:
    write(tmp_path, {file_name(offset): b"x" * SIZE for offset in (0, 100)})
    log = queue(tmp_path)
    log.load()
    log.truncate(end)
    assert (log.max_offset, len(log.files)) == (end, left)
    log.close()


def test_a_file_that_is_there_is_never_begun_anew(tmp_path: Path) -> None:
    write(tmp_path, {file_name(0): b"x" * SIZE})
    log = queue(tmp_path)
    with pytest.raises(FileExistsError, match=file_name(0)):
        log.add_file(0)
    assert contents(tmp_path) == {file_name(0): b"x" * SIZE}


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


def test_a_cut_zeroes_what_stands_behind_it(tmp_path: Path) -> None:
    mapped_file = MappedFile(OsDisk(tmp_path).open("log", allocate_bytes=100), 0)
    mapped_file.append(b"0123456789")
    assert mapped_file.used_bytes() == 10
    mapped_file.cut(4)
    assert (mapped_file.end_offset, mapped_file.used_bytes(), bytes(mapped_file.whole()[:12])) == (
        4,
        4,
        b"0123" + bytes(8),
    )
