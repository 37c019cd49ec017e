"""The disk port in memory, beyond what the parity cases show."""

from __future__ import annotations

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


def test_memory_is_given_back_with_the_last_name_and_handle() -> None:
    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    before, disk = descriptors(), MemoryDisk()
    removed, replaced = disk.open("removed", allocate_bytes=1), disk.open("replaced", allocate_bytes=1)
    disk.open("new", allocate_bytes=1).close()
    disk.remove("removed")
    disk.rename("new", "replaced")
    assert descriptors() == before + 3
    removed.close()
    replaced.close()
    assert descriptors() == before + 1
    del disk
    assert descriptors() == before


def test_where_the_system_has_no_such_memory_files_are_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    disk = MemoryDisk()
    file = disk.open("f", allocate_bytes=8)
    file.write_at(2, b"data")
    assert bytes(disk.open("f", read_only=True).map()) == b"\0\0data\0\0"


@pytest.mark.trio
async def test_files_of_another_disk_are_not_synced(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the files of this disk"):
        await MemoryDisk().sync_files([OsDisk(tmp_path).open("f", allocate_bytes=1)])
