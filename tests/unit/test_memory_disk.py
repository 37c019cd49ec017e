"""The disk port in memory, beyond what the parity cases show."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from rmq_actors.real_io.memory_disk import MemoryDisk
from rmq_actors.real_io.os_disk import OsDisk


def test_nobody_sees_another_ones_files() -> None:
    first, second = MemoryDisk(), MemoryDisk()
    first.open("d/f", allocate_bytes=4)
    assert (first.list("d"), second.list("d")) == (["f"], [])


def test_what_is_written_counts_as_used_and_no_hole_does() -> None:
    disk = MemoryDisk()
    file = disk.open("f", allocate_bytes=1 << 30)
    assert disk.usage().used_bytes == 0
    file.write_at(1 << 20, b"x" * 10_000)
    used, available = disk.usage()
    assert 10_000 <= used < 1 << 20
    assert used + available == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_memory_is_given_back_with_the_last_name_handle_and_view() -> None:
    def mapped_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

    size, before = 1 << 30, mapped_bytes()  # all else is less than a half of it
    disk = MemoryDisk()
    removed, replaced = disk.open("removed", allocate_bytes=size), disk.open("replaced", allocate_bytes=size)
    disk.open("new", allocate_bytes=1).close()
    view = removed.map()
    disk.remove("removed")
    disk.rename("new", "replaced")
    seen = [mapped_bytes()]
    for last in (replaced.close, removed.close, view.release):
        last()
        seen.append(mapped_bytes())
    assert [round((each - before) / size) for each in seen] == [2, 1, 1, 0]


def test_a_file_takes_no_descriptor() -> None:
    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    disk, before = MemoryDisk(), descriptors()
    files = [disk.open(f"queue/{number}", allocate_bytes=100_000) for number in range(100)]
    views = [file.map() for file in files]
    assert (descriptors(), len(views)) == (before, 100)


def test_a_file_that_grows_and_shrinks_takes_what_it_holds() -> None:
    disk = MemoryDisk()
    file = disk.open("f", allocate_bytes=1 << 20)
    file.write_at(300_000, b"kept")
    file.write_at(600_000, b"lost")
    file.write_at(9 << 20, b"far")
    file.truncate(600_002)
    file.truncate(8 << 20)
    assert file.written_end() < 1 << 20
    assert disk.usage().used_bytes < 30_000
    view = file.map()
    assert bytes(view[300_000:300_005]) == b"kept\0"
    assert bytes(view[599_999:600_004]) == b"\0lo\0\0"


@pytest.mark.trio
async def test_files_of_another_disk_are_not_synced(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the files of this disk"):
        await MemoryDisk().sync_files([OsDisk(tmp_path).open("f", allocate_bytes=1)])
