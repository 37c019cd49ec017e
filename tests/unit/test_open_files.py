"""OpenFiles: a bounded number of clean files stays open, and none with un-synced writes is closed."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
import trio
import trio.testing

from rmq_actors.store.files.open_files import ManagedFile, OpenFiles
from tests.worlds.faulty_disk import FaultyDisk, FaultyFile


@attrs.define(eq=False)
class WatchedDisk(FaultyDisk):
    """Knows which files are open."""

    opened: list[FaultyFile] = attrs.field(factory=list)

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> FaultyFile:
        file = super().open(
            path, allocate_bytes=allocate_bytes, read_only=read_only, exclusive=exclusive, private=private
        )
        self.opened.append(file)
        return file

    def names(self) -> str:
        return "".join(file.path for file in self.opened if file.inner._fd >= 0)


def open_some(root: Path, names: str, clean_files_max: int = 2) -> tuple[WatchedDisk, dict[str, ManagedFile]]:
    disk = WatchedDisk(root)
    files = OpenFiles(disk, clean_files_max)
    return disk, {name: files.adopt(disk.open(name, allocate_bytes=10)) for name in names}


def test_the_files_used_last_are_open(tmp_path: Path) -> None:
    disk, files = open_some(tmp_path, "abcd")
    assert disk.names() == "cd"
    for name, expected in (("a", "da"), ("d", "da"), ("b", "db")):
        assert bytes(files[name].map()) == bytes(10)
        assert disk.names() == expected
    assert files["c"].written_end() <= 10
    assert disk.names() == "bc"


def test_a_view_outlives_its_file_and_sees_later_writes(tmp_path: Path) -> None:
    _, files = open_some(tmp_path, "a", 1)
    view = files["a"].map()
    files["a"].give_up()
    files["a"].write_at(3, b"xyz")
    assert bytes(view) == b"\0\0\0xyz" + bytes(4)
    files["a"].truncate(20)
    assert (files["a"].size_bytes, len(files["a"].map())) == (20, 20)
    files["a"].write_at(18, b"12345")
    assert files["a"].size_bytes == 23
    files["a"].write_scattered(np.array([0, 21]), np.array([-2, 258], np.int32))
    assert bytes(files["a"].map()) == b"\xff\xff\xff\xfeyz" + bytes(12) + b"123\0\0\1\2"
    assert files["a"].size_bytes == 25


@pytest.mark.trio
async def test_a_file_with_unsynced_writes_stays_open(tmp_path: Path) -> None:
    disk, files = open_some(tmp_path, "abcd", 1)
    for name in "ab":
        files[name].write_at(0, b"x")
    files["c"].write_scattered(np.array([4]), np.array([1], np.int32))
    files["d"].map()
    assert disk.names() == "abcd"
    await files["b"].sync()
    assert disk.names() == "abc", "d was used before"
    files["d"].map()
    assert disk.names() == "acd"
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        await files["a"].sync()
    files["d"].map()
    assert disk.names() == "acd"


@pytest.mark.trio
async def test_a_file_stays_open_while_it_is_synced_and_if_it_was_written_meanwhile(tmp_path: Path) -> None:
    disk, files = open_some(tmp_path, "abc", 1)
    files["a"].write_at(0, b"x")
    disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files["a"].sync)
        nursery.start_soon(files["b"].sync)
        await trio.testing.wait_all_tasks_blocked()
        files["c"].map()
        assert sorted(disk.names()) == ["a", "b", "c"]
        files["a"].write_at(1, b"y")
        disk.sync_gate.set()
    assert sorted(disk.names()) == ["a", "b"], "one is dirty, the other was used last"
    await files["a"].sync()
    assert disk.names() == "a"


@pytest.mark.trio
async def test_a_closed_file_stays_closed_and_takes_no_place(tmp_path: Path) -> None:
    disk, files = open_some(tmp_path, "ab", 1)
    disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files["a"].sync)
        await trio.testing.wait_all_tasks_blocked()
        files["a"].close()
        files["b"].map()
        disk.sync_gate.set()
    files["a"].close()
    for use in (files["a"].map, files["a"].written_end, lambda: files["a"].write_at(0, b"x")):
        with pytest.raises(OSError, match="the file is closed"):
            use()
    assert disk.names() == "b"
