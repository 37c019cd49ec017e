"""A disk that fails when told: the operating system's files below, faults above, and a log of the calls that matter."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt
import trio

from rmq_actors.ports.disk import BytesLike, DiskFile
from rmq_actors.real_io.os_disk import OsDisk, OsDiskUsage, OsFile, OsLock


@attrs.define(eq=False)
class FaultyFile:
    """An `OsFile` whose reads, writes and syncs may fail. Its sync makes no thread: a mock clock would run past it."""

    inner: OsFile
    disk: FaultyDisk

    @property
    def path(self) -> str:
        return self.inner.path

    @property
    def size_bytes(self) -> int:
        return self.inner.size_bytes

    def write_at(self, offset: int, data: BytesLike) -> None:
        self.disk.take_space(len(data))
        self.inner.write_at(offset, data)
        self.disk.written_bytes[self.path] = self.disk.written_bytes.get(self.path, 0) + len(data)

    def write_scattered(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        for offset, value in zip(offsets.tolist(), values.tolist(), strict=True):
            self.write_at(offset, value.to_bytes(4, "big", signed=True))

    def map(self) -> memoryview:
        if self.disk.failing_maps:
            self.disk.failing_maps -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), self.path)
        return self.inner.map()

    def written_end(self) -> int:
        return self.inner.written_end()

    async def sync(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.disk.sync_gate is not None:
            await self.disk.sync_gate.wait()
        if self.path == self.disk.path_that_cannot_be_synced:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        if self.disk.failing_syncs:
            self.disk.failing_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self.disk.syncs.append(self.path)

    def truncate(self, size_bytes: int) -> None:
        self.inner.truncate(size_bytes)

    def close(self) -> None:
        self.inner.close()


@attrs.define(eq=False)
class FaultyDisk:
    """`failing_syncs` counts the syncs still to fail, `failing_maps` the reads.

    `space_bytes` is what may still be written, None for no bound.
    """

    root: Path
    failing_syncs: int = 0
    failing_maps: int = 0
    space_bytes: int | None = None
    path_that_cannot_be_synced: str = ""
    sync_gate: trio.Event | None = None
    syncs: list[str] = attrs.field(factory=list)
    #: How many were synced by each call of `sync_files` and `sync_directories`.
    sync_sizes: list[int] = attrs.field(factory=list)
    written_bytes: dict[str, int] = attrs.field(factory=dict)
    _inner: OsDisk = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._inner = OsDisk(self.root)

    def take_space(self, size_bytes: int) -> None:
        if self.space_bytes is not None:
            if size_bytes > self.space_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.space_bytes -= size_bytes

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> FaultyFile:
        inner = self._inner.open(
            path, allocate_bytes=allocate_bytes, read_only=read_only, exclusive=exclusive, private=private
        )
        return FaultyFile(inner, self)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def list(self, directory: str) -> list[str]:
        return self._inner.list(directory)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def remove_directory(self, path: str) -> None:
        self._inner.remove_directory(path)

    async def sync_directory(self, directory: str) -> None:
        await trio.lowlevel.checkpoint()
        self.syncs.append(f"{directory}/")

    async def sync_files(self, files: Sequence[DiskFile]) -> None:
        self.sync_sizes.append(len(files))
        for file in files:
            await file.sync()

    async def sync_directories(self, directories: Sequence[str]) -> None:
        self.sync_sizes.append(len(directories))
        for directory in directories:
            await self.sync_directory(directory)

    def lock(self, path: str) -> OsLock:
        return self._inner.lock(path)

    def usage(self) -> OsDiskUsage:
        return self._inner.usage()
