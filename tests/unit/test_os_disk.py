"""The disk port on real files."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmq_actors.real_io import os_disk
from rmq_actors.real_io.os_disk import OsDisk, OsFile


def test_a_new_file_is_zeros_and_an_existing_one_stays(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    file = disk.open("a/b/log", allocate_bytes=100)
    assert (file.path, file.size_bytes, bytes(file.map())) == ("a/b/log", 100, bytes(100))
    file.write_at(90, b"0123456789")
    file.close()
    again = disk.open("a/b/log", allocate_bytes=50)
    assert bytes(again.map()) == bytes(90) + b"0123456789"
    again.close()


def test_a_mapping_sees_later_writes_and_outlives_the_file(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=10)
    view = file.map()
    file.write_at(3, memoryview(b"xyz"))
    assert bytes(view) == b"\0\0\0xyz\0\0\0\0"
    file.close()
    file.close()
    assert bytes(view[3:6]) == b"xyz"
    assert view.readonly


def test_growing_and_shrinking(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=0)
    assert bytes(file.map()) == b""
    file.write_at(2, b"ab")
    assert (file.size_bytes, bytes(file.map())) == (4, b"\0\0ab")
    file.truncate(3)
    assert (file.size_bytes, bytes(file.map())) == (3, b"\0\0a")
    file.close()


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="log"):
        OsDisk(tmp_path).open("log")


def test_a_read_only_file_takes_no_writes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc")
    file = OsDisk(tmp_path).open("log", read_only=True)
    assert bytes(file.map()) == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, b"x")
    file.close()


def test_a_file_that_cannot_be_allocated_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = OsDisk(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", no_space)
        with pytest.raises(OSError, match="No space"):
            disk.open("log", allocate_bytes=100)
    assert disk.list("") == []
    disk.open("log", allocate_bytes=100).close()
    assert (tmp_path / "log").stat().st_size == 100


def test_a_new_file_has_its_length_before_its_name_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start over a log file of length 0, which a process left that was killed in between."""
    seen, truncate = list[list[str]](), os.ftruncate

    def killed(fd: int, size: int) -> None:
        seen.append([each.name for each in (tmp_path / "d").iterdir()])
        truncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", killed)
    disk = OsDisk(tmp_path)
    file = disk.open("d/log", allocate_bytes=100, exclusive=True, private=True)
    assert seen == [[]]
    assert (disk.list("d"), file.size_bytes, bytes(file.map())) == (["log"], 100, bytes(100))
    status = (tmp_path / "d/log").stat()
    assert (status.st_size, status.st_nlink, stat.S_IMODE(status.st_mode)) == (100, 1, 0o600)
    assert Path(f"/proc/self/fd/{file._fd}").readlink() == tmp_path / "d/log"
    file.write_at(98, b"abcd")
    assert (tmp_path / "d/log").read_bytes()[-4:] == b"abcd"
    with pytest.raises(FileExistsError):
        disk.open("d/log", allocate_bytes=1, exclusive=True)


def test_a_file_gets_its_name_whatever_pythons_link_does_with_links_unless_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Python 3.13 it follows them where it calls linkat, from 3.14 on everywhere on Linux."""
    link, links = os.link, list[str]()

    def link_as_told(source: str, target: str, *, follow_symlinks: bool = False, **directories: int) -> None:
        link(source, target, follow_symlinks=follow_symlinks, **directories)
        links.append(Path(target).name)

    monkeypatch.setattr(os, "link", link_as_told)
    OsDisk(tmp_path).open("d/log", allocate_bytes=100).close()
    assert (links, (tmp_path / "d/log").is_symlink(), (tmp_path / "d/log").stat().st_size) == (["log"], False, 100)


@pytest.mark.parametrize("lacks", ["the file system", "/proc"])
def test_where_files_cannot_be_without_a_name_they_are_created_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    open_, tried = os.open, list[object]()

    def open_named(path: Path, flags: int, *rest: int) -> int:
        if lacks == "the file system" and flags & os.O_TMPFILE == os.O_TMPFILE:
            tried.append(path)
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return open_(path, flags, *rest)

    def link(source: str, *_: object, **__: object) -> None:
        tried.append(source)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    monkeypatch.setattr(os, "open", open_named)
    monkeypatch.setattr(os, "link", link)
    disk = OsDisk(tmp_path)
    disk.open("d/log", allocate_bytes=100, exclusive=True).close()
    assert len(tried) == 1
    assert (disk.list("d"), (tmp_path / "d/log").stat().st_size) == (["log"], 100)
    with pytest.raises(FileExistsError):
        disk.open("d/log", allocate_bytes=100, exclusive=True)


def test_names(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    assert disk.list("d") == []
    for name in ("d/b", "d/a"):
        disk.open(name, allocate_bytes=1).close()
    assert disk.list("d") == ["a", "b"]
    assert disk.exists("d")
    disk.rename("d/a", "d/b")
    assert (disk.list("d"), disk.exists("d/a")) == (["b"], False)
    disk.remove("d/b")
    assert disk.list("d") == []
    with pytest.raises(FileNotFoundError):
        disk.remove("d/b")


@pytest.mark.parametrize("path", ["../outside", "a/../../b", "/etc/passwd"])
def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is not inside the store's directory"):
        OsDisk(tmp_path).open(path, allocate_bytes=1)


@pytest.mark.trio
async def test_syncs_reach_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, calls = OsDisk(tmp_path), list[str]()
    monkeypatch.setattr(os, "fdatasync", lambda _: calls.append("file"))
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("directory"))
    file = disk.open("d/log", allocate_bytes=1)
    await file.sync()
    await disk.sync_directory("d")
    file.close()
    assert calls == ["file", "directory"]


@pytest.mark.trio
async def test_many_syncs_reach_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(tmp_path)
    files = [disk.open(f"{number}/f", allocate_bytes=1) for number in range(50)]
    closed, failing = files.pop(), files[30]._fd
    closed.close()
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(os, "fsync", synced.append)
    await disk.sync_files([*files, closed])
    assert sorted(synced) == sorted(file._fd for file in files), "one that is closed is left out"
    synced.clear()
    await disk.sync_directories([str(number) for number in range(50)])
    assert len(synced) == 50
    await disk.sync_files([])

    def fails(fd: int) -> None:
        if fd == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(OSError, match="Input/output error"):
        await disk.sync_files(files)
    files[30].close()
    await disk.sync_files(files)
    with pytest.raises(FileNotFoundError):
        await disk.sync_directories(["0", "missing"])
    for file in files:
        file.close()


@pytest.mark.trio
async def test_a_failed_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", failing)
    file = OsDisk(tmp_path).open("log", allocate_bytes=1)
    with pytest.raises(OSError, match="Input/output error"):
        await file.sync()
    file.close()


OFFSETS = np.arange(40, 40_000, 12)
VALUES = np.arange(1, len(OFFSETS) + 1, dtype=np.int32)


def file_for_mappings(root: Path, patch: pytest.MonkeyPatch) -> OsFile:
    patch.setattr(os_disk, "_file_system", lambda _: "ext4")
    return OsDisk(root).open("f", allocate_bytes=50_000)


def pwrite_fails(fd: int, data: bytes, offset: int) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def read_back(path: Path) -> list[int]:
    integers: list[int] = np.frombuffer(path.read_bytes(), ">i4", 12_500)[OFFSETS // 4].tolist()
    return integers


def knows_populate() -> bool:
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (5, 14)


needs_populate = pytest.mark.skipif(not knows_populate(), reason="no MADV_POPULATE_WRITE: a Linux before 5.14")


@needs_populate
def test_many_integers_are_written_without_a_call_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_for_mappings(tmp_path, monkeypatch)
    view = file.map()
    monkeypatch.setattr(os, "pwrite", pwrite_fails)
    file.write_scattered(OFFSETS, VALUES)
    assert np.frombuffer(view, ">i4")[OFFSETS // 4].tolist() == VALUES.tolist()
    assert int(np.count_nonzero(np.frombuffer(view, np.uint8)[40:])) == np.count_nonzero(VALUES.view(np.uint8))
    file.close()
    assert read_back(tmp_path / "f") == VALUES.tolist()


@pytest.mark.parametrize("refusal", ["file system", "proc", "kernel", "few"])
def test_where_no_mapping_is_safe_each_integer_is_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    file = file_for_mappings(tmp_path, monkeypatch)
    if refusal == "file system":
        monkeypatch.setattr(os_disk, "_file_system", lambda _: "btrfs")
    elif refusal == "proc":
        monkeypatch.setattr(os_disk, "_file_system", lambda _: (tmp_path / "mountinfo").read_text())
    elif refusal == "kernel":
        monkeypatch.setattr(os_disk, "_MADV_POPULATE_WRITE", 9999)
    else:
        monkeypatch.setattr(os_disk, "_SCATTERED_MIN", len(OFFSETS) + 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite_fails)
        with pytest.raises(OSError, match="Input/output error"):
            file.write_scattered(OFFSETS, VALUES)
    assert not bytes(file.map()).strip(b"\0")
    file.write_scattered(OFFSETS, VALUES)
    assert read_back(tmp_path / "f") == VALUES.tolist()


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param(OFFSETS[::-1], id="descending"),
        pytest.param(OFFSETS + 1, id="unaligned"),
        pytest.param(OFFSETS - 44, id="negative"),
        pytest.param(OFFSETS + 10_012, id="behind the end"),
        pytest.param(np.insert(OFFSETS, 100, OFFSETS[100]), id="repeated"),
        pytest.param(np.insert(OFFSETS, 100, 49_996), id="one out of order"),
        pytest.param(np.insert(OFFSETS, 100, 50_000), id="one behind the end"),
        pytest.param(np.insert(OFFSETS, 100, 1 << 40), id="one far behind it"),
        pytest.param(np.insert(OFFSETS, 100, -4), id="one negative"),
    ],
)
def test_only_ascending_offsets_within_the_file_go_through_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsets: np.ndarray[Any, np.dtype[np.int64]]
) -> None:
    file = file_for_mappings(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "pwrite", pwrite_fails)
    with pytest.raises(OSError, match="Input/output error"):
        file.write_scattered(offsets, np.ones(len(offsets), np.int32))
    assert not (tmp_path / "f").read_bytes().strip(b"\0")


@pytest.mark.trio
async def test_a_sync_comes_after_scattered_integers_and_more_may_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, synced = file_for_mappings(tmp_path, monkeypatch), list[list[int]]()
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append(read_back(tmp_path / "f")))
    file.write_scattered(OFFSETS, VALUES)
    await file.sync()
    file.write_scattered(OFFSETS, -VALUES)
    await file.sync()
    assert synced == [VALUES.tolist(), (-VALUES).tolist()]
    file.close()


def mappings_to_write_to(path: Path) -> int:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return sum(f" {path}" in line and "rw-s" in line for line in maps.splitlines())


@needs_populate
@pytest.mark.trio
async def test_a_file_can_be_written_to_in_memory_until_it_is_synced_or_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = file_for_mappings(tmp_path, monkeypatch), list[int]()
    for end in (file.sync, None):
        for _ in range(2):
            file.write_scattered(OFFSETS, VALUES)
            seen.append(mappings_to_write_to(tmp_path / "f"))
        if end is not None:
            await end()
        else:
            file.close()
        seen.append(mappings_to_write_to(tmp_path / "f"))
    assert seen == [1, 1, 0, 1, 1, 0]


def test_a_removed_file_takes_integers_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_for_mappings(tmp_path, monkeypatch)
    view = file.map()
    file.write_scattered(OFFSETS, VALUES)
    (tmp_path / "f").unlink()
    file.write_scattered(OFFSETS, -VALUES)
    file.close()
    assert np.frombuffer(view, ">i4")[OFFSETS // 4].tolist() == (-VALUES).tolist()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_scattered(OFFSETS, VALUES)


@needs_populate
def test_the_mapping_grows_with_the_offsets_up_to_the_files_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_disk, "_file_system", lambda _: "ext4")
    file = OsDisk(tmp_path).open("f", allocate_bytes=(2 << 20) + 6)
    for begin in (0, 1 << 20, (2 << 20) + 4 - 8000):
        file.write_scattered(np.arange(begin, begin + 8000, 4), np.arange(1, 2001, dtype=np.int32))
        assert np.frombuffer(file.map()[begin : begin + 8000], ">i4").tolist() == list(range(1, 2001))
    assert (tmp_path / "f").stat().st_size == (2 << 20) + 6
    file.close()


def test_the_file_system_is_named_as_proc_has_it(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    with (tmp_path / "f").open("wb") as file:
        assert os_disk._file_system(file.fileno()) in {"", *re.findall(r" - (\S+) ", mounts)}
    with Path("/proc/self/status").open("rb") as file:
        assert os_disk._file_system(file.fileno()) == "proc"


def test_behind_the_written_end_there_are_zeros_only(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=64 << 20)
    assert 0 <= file.written_end() <= 64 << 20
    for offset in (0, 5_000_000, 40_000_000):
        file.write_at(offset, b"record")
        assert offset + 6 <= file.written_end() <= 64 << 20
        assert not bytes(file.map()[file.written_end() :]).strip(b"\0")
    file.write_at((64 << 20) - 1, b"x")
    assert file.written_end() == 64 << 20


def test_what_somebody_wrote_through_a_mapping_is_before_the_written_end(tmp_path: Path) -> None:
    """RocketMQ writes so; what it has not synced when it is killed stands in no block of the disk yet."""
    file = OsDisk(tmp_path).open("log", allocate_bytes=8 << 20)
    with (tmp_path / "log").open("r+b") as raw, mmap.mmap(raw.fileno(), 8 << 20) as mapping:
        for offset in (100, 3_000_000, 7_000_000):
            mapping[offset : offset + 6] = b"record"
            assert file.written_end() >= offset + 6


def test_a_file_system_that_knows_no_holes_gives_the_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=4096)

    def lseek(*_: object) -> int:
        raise OSError(errno.EINVAL, "no such whence")

    monkeypatch.setattr(os, "lseek", lseek)
    assert file.written_end() == 4096


def test_a_closed_file_has_no_written_end(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("log", allocate_bytes=4096)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.written_end()


# What Java's FileLock does: a POSIX record lock. Ours is one of the open file.
_HOLD = """
import fcntl, os, struct, sys
file = open(sys.argv[1], "r+b")
if sys.argv[2] == "POSIX":
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
else:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
print("held", flush=True)
sys.stdin.read()
"""


def _hold(path: Path, kind: str = "POSIX") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("of_the_open_file", [True, False], ids=["OFD", "POSIX"])
def test_a_lock_excludes_other_processes_and_theirs_exclude_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_the_open_file: bool
) -> None:
    if not of_the_open_file:
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    disk = OsDisk(tmp_path)
    lock = disk.lock("lock")
    with _hold(tmp_path / "lock") as refused:
        out, _ = refused.communicate()
    assert (out, refused.returncode) == ("", 1)
    lock.close()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    with _hold(tmp_path / "lock") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match=rf"{tmp_path} is in use by process {other.pid} ") as info:
            disk.lock("lock")
        assert info.value.errno == errno.EAGAIN
        other.communicate()
    disk.lock("lock").close()


@pytest.mark.parametrize("kind", ["POSIX", "OFD"])
def test_a_locked_store_names_its_directory_and_the_process(tmp_path: Path, kind: str) -> None:
    (tmp_path / "lock").touch()
    with _hold(tmp_path / "lock", kind) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError) as info:
            OsDisk(tmp_path).lock("lock")
        assert re.fullmatch(
            rf"\[Errno 11\] {tmp_path} is in use by process {other.pid} \(python[\d.]*\): 'lock'", str(info.value)
        )
        other.communicate()


def test_a_store_that_this_process_has_open_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lock = OsDisk(Path("store")).lock("lock")
    with pytest.raises(BlockingIOError, match=f"{tmp_path}/store is in use by this process, {os.getpid()}: 'lock'"):
        OsDisk(Path("store")).lock("lock")
    lock.close()


def test_a_holder_that_cannot_be_found_is_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user, or of another container."""
    lock = OsDisk(tmp_path).lock("lock")

    def not_ours(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", not_ours)
    with pytest.raises(BlockingIOError, match=f"{tmp_path} is in use by another process: 'lock'"):
        OsDisk(tmp_path).lock("lock")
    lock.close()


def test_a_lock_whose_bytes_cannot_be_written_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = OsDisk(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_space)
        with pytest.raises(OSError, match="No space"):
            disk.lock("lock")
    disk.lock("lock").close()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_what_is_kept_for_root_is_neither_used_nor_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.statvfs_result((4096, 512, 1000, 300, 200, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    assert OsDisk(tmp_path).usage() == (700 * 512, 200 * 512)


def test_below_the_root_errors_name_the_absolute_path(tmp_path: Path) -> None:
    disk, path = OsDisk(Path("/")), str(tmp_path).lstrip("/")
    with pytest.raises(FileNotFoundError) as missing:
        disk.open(f"{path}/missing", read_only=True)
    assert missing.value.filename == f"{tmp_path}/missing"
    with pytest.raises(IsADirectoryError) as directory:
        disk.open(path, read_only=True)
    assert directory.value.filename == str(tmp_path)
    assert tmp_path.parts[1] in disk.list("")
    with pytest.raises(OSError, match="busy"):
        disk.remove_directory("")
