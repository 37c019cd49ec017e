"""The disk port in this process's memory: its files end with it.

A file is a buffer of zeros, which takes memory page by page as it is written, and no descriptor: of those a program may
have as few as 1,024, and a store has some files for each queue. Names stand in a table. A sync waits for nothing:
nothing of it would outlive a power loss, and all of it outlives whatever had it open.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.ports.disk import BytesLike, DiskFile
from rmq_actors.real_io.os_disk import LOCK_BYTES, OsDiskUsage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NAME_MAX_BYTES = 255
_PAGE_BYTES = mmap.PAGESIZE
#: Smaller buffers are objects of Python: a process has 65,530 mappings at most.
_MAPPED_FROM_BYTES = 64 << 10
#: Fewer scattered integers than this are written one by one.
_SCATTERED_MIN = 64


class _Memory:
    """What a name stands for. Its memory is given back once no name, no open file and no view has it."""

    __slots__ = ("_data", "_pages", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        #: Zeros beyond the size; may be longer.
        self._data = _zeros(size_bytes)
        #: 1 for each page to which something was written.
        self._pages = bytearray(-(-size_bytes // _PAGE_BYTES))

    @property
    def written_end(self) -> int:
        return min(self.size_bytes, (self._pages.rfind(1) + 1) * _PAGE_BYTES)

    @property
    def used_bytes(self) -> int:
        return self._pages.count(1) * _PAGE_BYTES

    def view(self) -> memoryview:
        return self._data[: self.size_bytes].toreadonly()

    def write(self, offset: int, data: memoryview) -> None:
        end = offset + len(data)
        if end > len(self._data):
            self._move(max(end, 2 * len(self._data)))
        self._data[offset:end] = data
        first, after = offset // _PAGE_BYTES, -(-end // _PAGE_BYTES)
        self._pages[first:after] = b"\1" * (after - first)
        self.size_bytes = max(self.size_bytes, end)

    def write_integers(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        """Write to offsets within the file, all multiples of 4, none twice."""
        import numpy as np  # noqa: PLC0415 - the caller has it already; other users of a disk need not wait for it

        np.frombuffer(self._data, ">i4", len(self._data) // 4)[offsets >> 2] = values
        np.frombuffer(self._pages, np.uint8)[offsets // _PAGE_BYTES] = 1

    def truncate(self, size_bytes: int) -> None:
        if size_bytes != self.size_bytes:
            self.size_bytes = min(self.size_bytes, size_bytes)
            self._move(size_bytes)
            self.size_bytes = size_bytes

    def _move(self, capacity_bytes: int) -> None:
        """Go on in another buffer, with what the file holds. Views of the one before stay as they are."""
        written, self._data = [(begin, self._data[begin:end]) for begin, end in self._written()], _zeros(capacity_bytes)
        self._pages = bytearray(-(-capacity_bytes // _PAGE_BYTES))
        for begin, data in written:
            self.write(begin, data)

    def _written(self) -> Iterator[tuple[int, int]]:
        begin = self._pages.find(1)
        while 0 <= begin * _PAGE_BYTES < self.size_bytes:
            hole = self._pages.find(0, begin)
            end = hole if hole >= 0 else len(self._pages)
            yield begin * _PAGE_BYTES, min(end * _PAGE_BYTES, self.size_bytes)
            begin = self._pages.find(1, end)


@attrs.define(eq=False, repr=False)
class MemoryFile:
    """An open file."""

    path: str
    #: None once it is closed.
    _memory: _Memory | None
    _read_only: bool
    _closed_size_bytes: int = attrs.field(default=0, init=False)

    @property
    def size_bytes(self) -> int:
        """See `ports.disk.DiskFile`."""
        return self._closed_size_bytes if self._memory is None else self._memory.size_bytes

    def write_at(self, offset: int, data: BytesLike) -> None:
        """See `ports.disk.DiskFile`."""
        if offset < 0:
            raise _error(errno.EINVAL, self.path)
        memory, view = self._open(read_only=errno.EBADF), memoryview(data).cast("B")
        if view:
            memory.write(offset, view)

    def write_scattered(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        """See `ports.disk.DiskFile`."""
        memory = self._open(read_only=errno.EBADF)
        if (
            len(offsets) == len(values) >= _SCATTERED_MIN
            and 0 <= offsets[0] < offsets[-1] <= memory.size_bytes - 4
            and not (offsets & 3).any()
            and (offsets[1:] > offsets[:-1]).all()
        ):
            memory.write_integers(offsets, values)
            return
        for offset, value in zip(offsets.tolist(), values.tolist(), strict=True):
            self.write_at(offset, value.to_bytes(4, "big", signed=True))

    def map(self) -> memoryview:
        """See `ports.disk.DiskFile`."""
        return self._open().view()

    def written_end(self) -> int:
        """See `ports.disk.DiskFile`: the end of the last page that was written."""
        return self._open().written_end

    async def sync(self) -> None:
        """See `ports.disk.DiskFile`."""
        self._open()
        await _let_others_run()

    def truncate(self, size_bytes: int) -> None:
        """See `ports.disk.DiskFile`."""
        if size_bytes < 0:
            raise _error(errno.EINVAL, self.path)
        self._open(read_only=errno.EINVAL).truncate(size_bytes)

    def close(self) -> None:
        """See `ports.disk.DiskFile`."""
        self._closed_size_bytes, self._memory = self.size_bytes, None

    def _open(self, *, read_only: int = 0) -> _Memory:
        """`read_only` is the error that a file has which was opened to be read."""
        if self._memory is None:
            raise _error(errno.EBADF, self.path)
        if read_only and self._read_only:
            raise _error(read_only, self.path)
        return self._memory


_Directory = dict[str, "_Memory | _Directory"]


@attrs.define(eq=False, repr=False)
class MemoryLock:
    """A locked file."""

    _locked: set[_Memory]
    _memory: _Memory | None

    def close(self) -> None:
        """See `ports.disk.DiskLock`."""
        if self._memory is not None:
            self._locked.discard(self._memory)
            self._memory = None


@attrs.define(eq=False, repr=False)
class MemoryDisk:
    """Files that only those see who have this object. No path leads out of it."""

    _root: _Directory = attrs.field(factory=dict, init=False)
    _locked: set[_Memory] = attrs.field(factory=set, init=False)

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> MemoryFile:
        """See `ports.disk.Disk`."""
        if exclusive and allocate_bytes is None:
            raise ValueError("exclusive creation needs allocate_bytes")
        found = self._find(path)
        if found is None:
            if allocate_bytes is None:
                raise _error(errno.ENOENT, path)
            found = self._create(path, allocate_bytes)
        elif exclusive:
            raise _error(errno.EEXIST, path)
        elif isinstance(found, dict):
            raise _error(errno.EISDIR, path)
        return MemoryFile(path, found, read_only)

    def exists(self, path: str) -> bool:
        """See `ports.disk.Disk`."""
        try:
            return self._find(path) is not None
        except NotADirectoryError:
            return False

    def list(self, directory: str) -> list[str]:
        """See `ports.disk.Disk`."""
        try:
            found = self._find(directory)
        except NotADirectoryError:
            return []
        return sorted(found) if isinstance(found, dict) else []

    def rename(self, source: str, target: str) -> None:
        """See `ports.disk.Disk`."""
        moved, parent, name = self._get(source), self._parent(target), _parts(target)[-1:]
        replaced = parent.get(name[0]) if name else self._root
        if isinstance(moved, dict) or isinstance(replaced, dict):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), source, None, target)
        if moved is replaced:
            return
        del self._parent(source)[_parts(source)[-1]]
        parent[name[0]] = moved

    def remove(self, path: str) -> None:
        """See `ports.disk.Disk`."""
        if isinstance(self._get(path), dict):
            raise _error(errno.EISDIR, path)
        del self._parent(path)[_parts(path)[-1]]

    def remove_directory(self, path: str) -> None:
        """See `ports.disk.Disk`."""
        found = self._directory(path)
        if found is self._root:
            raise _error(errno.EBUSY, path)
        if found:
            raise _error(errno.ENOTEMPTY, path)
        del self._parent(path)[_parts(path)[-1]]

    async def sync_directory(self, directory: str) -> None:
        """See `ports.disk.Disk`."""
        self._directory(directory)
        await _let_others_run()

    async def sync_files(self, files: Sequence[DiskFile]) -> None:
        """See `ports.disk.Disk`."""
        if not all(isinstance(file, MemoryFile) for file in files):
            raise TypeError("sync_files takes the files of this disk")
        await _let_others_run()

    async def sync_directories(self, directories: Sequence[str]) -> None:
        """See `ports.disk.Disk`."""
        for directory in directories:
            self._directory(directory)
        await _let_others_run()

    def lock(self, path: str) -> MemoryLock:
        """See `ports.disk.Disk`."""
        found = self._find(path)
        if found is None:  # an empty directory is something
            found = self._create(path, 0)
        if isinstance(found, dict):
            raise _error(errno.EISDIR, path)
        if found in self._locked:
            raise BlockingIOError(errno.EAGAIN, "the store in memory is in use by this process", path)
        file = self.open(path)
        try:
            if not file.size_bytes:
                file.write_at(0, LOCK_BYTES)
        finally:
            file.close()
        self._locked.add(found)
        return MemoryLock(self._locked, found)

    def close(self) -> None:
        """Give up all names. What is no longer open or seen gives its memory back, though others know this object."""
        self._root.clear()

    def usage(self) -> OsDiskUsage:
        """See `ports.disk.Disk`: a disk as large as the machine's memory, on which nothing else is."""
        used_bytes = sum(each.used_bytes for each in _memories(self._root))
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return OsDiskUsage(used_bytes, max(0, memory_bytes - used_bytes))

    def _create(self, path: str, size_bytes: int) -> _Memory:
        if size_bytes < 0:
            raise _error(errno.EINVAL, path)
        *above, name = _parts(path)
        memory = _Memory(size_bytes)
        directory = self._root
        for part in above:
            below = directory.setdefault(part, {})
            assert isinstance(below, dict), "_find has raised"
            directory = below
        directory[name] = memory
        return memory

    def _find(self, path: str) -> _Memory | _Directory | None:
        found: _Memory | _Directory | None = self._root
        for part in _parts(path):
            if isinstance(found, _Memory):
                raise _error(errno.ENOTDIR, path)
            if found is None:
                return None
            found = found.get(part)
        return found

    def _get(self, path: str) -> _Memory | _Directory:
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def _directory(self, path: str) -> _Directory:
        found = self._get(path)
        if isinstance(found, _Memory):
            raise _error(errno.ENOTDIR, path)
        return found

    def _parent(self, path: str) -> _Directory:
        return self._directory("/".join(_parts(path)[:-1]))


async def _let_others_run() -> None:
    # As a sync on a disk: one that has begun is not cancelled.
    await trio.lowlevel.checkpoint_if_cancelled()
    await trio.lowlevel.cancel_shielded_checkpoint()


def _parts(path: str) -> tuple[str, ...]:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"path {path!r} is not inside the store")
    if any(len(part.encode()) > _NAME_MAX_BYTES for part in parts.parts):
        raise _error(errno.ENAMETOOLONG, path)
    return parts.parts


def _memories(directory: _Directory) -> Sequence[_Memory]:
    found = list[_Memory]()
    for each in directory.values():
        if isinstance(each, dict):
            found.extend(_memories(each))
        else:
            found.append(each)
    return found


def _zeros(size_bytes: int) -> memoryview:
    if size_bytes < _MAPPED_FROM_BYTES:
        return memoryview(bytearray(size_bytes))
    mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a page of 2 MiB would be taken for each byte
        mapping.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(mapping)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
