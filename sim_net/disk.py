"""A node's simulated disk: a page cache that survives a kill, failures on demand, syncs that take virtual time.

Paths are relative, with "/" between the parts. Errors are the OSErrors that Linux would raise. A process that was
killed gets EBADF from everything; a harness task, which runs on no node, may use any disk at any time.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, get_args

import attrs
import trio
from attrs import validators

from sim_net.entropy import derive
from sim_net.identity import current_incarnation

if TYPE_CHECKING:
    from sim_net.kernel import Kernel
    from sim_net.node import Incarnation

BytesLike = bytes | bytearray | memoryview
Operation = Literal["open", "write", "sync", "truncate", "rename", "remove", "sync_directory"]

_OPERATIONS: Final = get_args(Operation)
_MAPPED_FROM_BYTES: Final = 1 << 20


@attrs.frozen
class DiskConfig:
    """How long a sync takes, in virtual seconds: drawn anew for each one."""

    sync_min_s: float = attrs.field(default=0.000_2, validator=validators.ge(0.0))
    sync_max_s: float = attrs.field(default=0.004, validator=validators.ge(0.0))

    def __attrs_post_init__(self) -> None:
        if self.sync_max_s < self.sync_min_s:
            raise ValueError(f"sync_max_s ({self.sync_max_s}) is below sync_min_s ({self.sync_min_s})")


class _Inode:
    """The bytes of a file, apart from its names. A new size is a new buffer, so that old mappings stay readable."""

    __slots__ = ("data", "size")

    def __init__(self, size: int) -> None:
        self.data = _zeros(size)
        self.size = size

    def resize(self, size: int) -> None:
        data = _zeros(size)
        kept = min(size, self.size)
        data[:kept] = self.data[:kept]
        self.data, self.size = data, size


class SimFile:
    """An open file."""

    def __init__(self, disk: SimDisk, path: str, inode: _Inode, *, read_only: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._read_only = read_only
        self._closed = False
        self._opener = current_incarnation.get()
        self.path = path

    @property
    def size_bytes(self) -> int:
        """The file's length."""
        return self._inode.size

    def write_at(self, offset: int, data: BytesLike) -> None:
        """Write all of `data` at byte `offset` into the page cache; the file grows if need be."""
        self._check_writable()
        self._disk.begin("write", self.path)
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        view = memoryview(data).cast("B")
        end = offset + len(view)
        if end > self._inode.size:
            self._inode.resize(end)
        self._inode.data[offset:end] = view

    def map(self) -> memoryview:
        """A read-only view of the whole file that sees later writes; stale once the file grows or shrinks."""
        self._check()
        return self._inode.data.toreadonly()

    async def sync(self) -> None:
        """Return when everything written before the call is durable, after the disk's time for it. A checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        await self._disk.wait_durable("sync", self.path)

    def truncate(self, size_bytes: int) -> None:
        """Set the file's length."""
        self._check_writable()
        self._disk.begin("truncate", self.path)
        if size_bytes < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        if size_bytes != self._inode.size:
            self._inode.resize(size_bytes)

    def close(self) -> None:
        """Give the file up; a second call does nothing. Views handed out by `map` stay readable."""
        self._closed = True

    def _check(self) -> None:
        if self._closed or (self._opener is not None and self._opener.fenced):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def _check_writable(self) -> None:
        self._check()
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class SimDisk:
    """One node's file tree."""

    def __init__(self, kernel: Kernel, seed: int, node: str, config: DiskConfig) -> None:
        self._kernel = kernel
        self._config = config
        self._draw = derive(seed, f"disk/{node}").random
        self._files: dict[str, _Inode] = {}
        self._directories: dict[str, None] = {"": None}
        self._failures: dict[str, deque[int]] = {operation: deque() for operation in _OPERATIONS}

    def fail_next(self, operation: Operation, error: int) -> None:
        """Let the next `operation` not yet promised a failure raise OSError with errno `error`, without effect."""
        if operation not in self._failures:
            raise ValueError(f"no disk operation is called {operation!r}; there are {', '.join(_OPERATIONS)}")
        self._failures[operation].append(error)

    def open(self, path: str, *, allocate_bytes: int | None = None, read_only: bool = False) -> SimFile:
        """Open a file; with `allocate_bytes` a missing one is created, with its directories, as that many zeros."""
        name = _normal(path)
        self.begin("open", path)
        if name in self._directories:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        inode = self._files.get(name)
        if inode is None:
            if allocate_bytes is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if allocate_bytes < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            self._make_directories(_parent(name), path)
            inode = self._files[name] = _Inode(allocate_bytes)
        return SimFile(self, path, inode, read_only=read_only)

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""
        name = _normal(path)
        self._caller()
        return name in self._files or name in self._directories

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        name = _normal(directory)
        self._caller()
        prefix = f"{name}/" if name else ""
        paths = [*self._files, *self._directories]
        return sorted(
            {path[len(prefix) :].split("/", 1)[0] for path in paths if path.startswith(prefix) and path != name}
        )

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing `target`."""
        old, new = _normal(source), _normal(target)
        self.begin("rename", source)
        if old in self._directories or new in self._directories:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), source, None, target)
        if old not in self._files or _parent(new) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source, None, target)
        self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        """Remove a file; those who have it open go on."""
        name = _normal(path)
        self.begin("remove", path)
        if name in self._directories:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self._files[name]

    async def sync_directory(self, directory: str) -> None:
        """Return when the names in a directory are durable, after the disk's time for it. A checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if _normal(directory) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        await self.wait_durable("sync_directory", directory)

    def begin(self, operation: Operation, path: str) -> None:
        """Start an operation for the current task: EBADF if its process was killed, or the failure promised for it."""
        self._caller()
        self._fail(operation, path)

    async def wait_durable(self, operation: Operation, path: str) -> None:
        """Wait for the disk; then fail if a failure was promised, or if the caller's process was killed meanwhile."""
        incarnation = self._caller()
        config = self._config
        kernel = self._kernel
        task = trio.lowlevel.current_task()
        took_s = config.sync_min_s + (config.sync_max_s - config.sync_min_s) * self._draw()
        timer = kernel.timer_at(kernel.now_s + took_s, lambda: kernel.wake(task))

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            timer.cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if incarnation is not None and incarnation.fenced:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)
        self._fail(operation, path)

    def _caller(self) -> Incarnation | None:
        incarnation = current_incarnation.get()
        if incarnation is not None:
            incarnation.check()
        return incarnation

    def _fail(self, operation: Operation, path: str) -> None:
        failures = self._failures[operation]
        if failures:
            error = failures.popleft()
            raise OSError(error, os.strerror(error), path)

    def _make_directories(self, directory: str, path: str) -> None:
        parts = directory.split("/") if directory else []
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            if name in self._files:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            self._directories[name] = None


def _zeros(size: int) -> memoryview:
    """A writable buffer of zeros; a large one costs memory only where it is written."""
    return memoryview(bytearray(size)) if size < _MAPPED_FROM_BYTES else memoryview(mmap.mmap(-1, size))


def _normal(path: str) -> str:
    if path.startswith("/"):
        raise ValueError(f"a path on a simulated disk is relative to its root: {path!r}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"a path on a simulated disk has no '..': {path!r}")
    return "/".join(parts)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]
