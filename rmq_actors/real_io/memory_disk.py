"""The disk port in this process's memory: its files end with it.

Each file is nameless memory of the kernel (`memfd_create`), which is written, grown and mapped as any file is; where
the system has none, it is a temporary file without a name. Names stand in a table. A sync waits for nothing: nothing of
it would outlive a power loss, and all of it outlives whatever had it open.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import PurePosixPath

import attrs
import trio

from rmq_actors.ports.disk import DiskFile
from rmq_actors.real_io.os_disk import LOCK_BYTES, OsDiskUsage, OsFile

_NAME_MAX_BYTES = 255


@attrs.define(eq=False, repr=False)
class MemoryFile(OsFile):
    """An open file."""

    async def sync(self) -> None:
        """See `ports.disk.DiskFile`."""
        self._check()
        await _let_others_run()


class _Memory:
    """What a name stands for. Its memory is given back once no name, no open file and no mapping has it."""

    def __init__(self, size_bytes: int) -> None:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("rmq-actors", os.MFD_CLOEXEC)
            self._path: str | None = f"/proc/self/fd/{self._fd}"
        else:
            self._fd, self._path = _nameless_file(), None
        weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, size_bytes)

    def open(self, *, read_only: bool) -> int:
        """A descriptor of its own. Without /proc one that is to be read only can be written, too."""
        if self._path is None:
            return os.dup(self._fd)
        return os.open(self._path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)

    def status(self) -> os.stat_result:
        return os.fstat(self._fd)


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
        return MemoryFile(path, found.status().st_size, found.open(read_only=read_only))

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

    def usage(self) -> OsDiskUsage:
        """See `ports.disk.Disk`: a disk as large as the machine's memory, on which nothing else is."""
        used_bytes = sum(each.status().st_blocks * 512 for each in _memories(self._root))
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return OsDiskUsage(used_bytes, max(0, memory_bytes - used_bytes))

    def _create(self, path: str, size_bytes: int) -> _Memory:
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


def _nameless_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
