"""The disk port on the file system of the machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import attrs
import trio

from rmq_actors.ports.disk import BytesLike, DiskFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_Synced = TypeVar("_Synced")

#: What RocketMQ writes into the file that it locks.
LOCK_BYTES: Final = b"lock"
# struct flock: l_type, l_whence, l_start, l_len, l_pid; the padding before l_start and after l_pid is the compiler's.
_FLOCK: Final = struct.Struct("hhqqi4x")
#: Fewer scattered integers than this are written one by one: a mapping would have all its pages looked through each
#: time, and written back by the next sync.
_SCATTERED_MIN: Final = 1024
#: A mapping to write to ends at a multiple of this, or with the file.
_SCATTERED_MULTIPLE: Final = 1 << 20
#: Threads that sync many files: most of a sync is waiting for the file system's journal, which takes them together.
_SYNC_THREADS: Final = 16
#: Below that a thread costs more than the syncs that it waits for at the same time.
_SYNCS_A_THREAD: Final = 8
#: Linux 5.14; Python does not name it yet.
_MADV_POPULATE_WRITE: Final = 23
#: What file systems and kernels say that cannot make a file without a name, or give it one; without /proc too.
_NO_NAMELESS_FILES: Final = frozenset(
    {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EACCES, errno.EXDEV}
)
#: File systems that overwrite a block in place: once it is allocated, writing to it cannot run out of space.
_IN_PLACE: Final = frozenset({"ext4", "xfs", "tmpfs"})


@attrs.define(eq=False, repr=False)
class OsFile:
    """An open file. Appends are `pwrite`; readers share one read-only mapping.

    Never close a mapping by hand, which would pull pages from under its views: it goes with the last view.
    """

    path: str
    size_bytes: int
    _fd: int
    _view: memoryview | None = attrs.field(default=None, init=False)
    #: A writable mapping of the file's first part, from the first scattered write to the next sync.
    _scattered: mmap.mmap | None = attrs.field(default=None, init=False)

    def write_at(self, offset: int, data: BytesLike) -> None:
        """See `ports.disk.DiskFile`."""
        written = os.pwrite(self._fd, data, offset)
        if written == len(data) and offset + written <= self.size_bytes:
            return
        view = memoryview(data)
        try:
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], offset + written)
        finally:  # a full disk may take only a part
            if written:
                self.size_bytes = max(self.size_bytes, offset + written)

    def write_scattered(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        """See `ports.disk.DiskFile`: through a writable mapping where nothing can go wrong with that, else `pwrite`."""
        self._check()
        mapping = self._map_to_scatter(offsets) if len(offsets) == len(values) >= _SCATTERED_MIN else None
        if mapping is not None:
            import numpy as np  # noqa: PLC0415 - the caller has it already; other users of a disk need not wait for it

            np.frombuffer(mapping, ">i4")[offsets >> 2] = values
            return
        for offset, value in zip(offsets.tolist(), values.tolist(), strict=True):
            self.write_at(offset, value.to_bytes(4, "big", signed=True))

    def _map_to_scatter(self, offsets: npt.NDArray[np.int64]) -> mmap.mmap | None:
        """A mapping in which the pages of all offsets are writable; None if `pwrite` has to say what is wrong.

        A write to a page without a block on the disk could end in SIGBUS. So make all pages writable first, which
        allocates their blocks, or fails with an error. If the kernel writes a page back meanwhile and protects it
        again, its block stays allocated: the file system writes over it there.
        """
        first, end = int(offsets[0]), int(offsets[-1]) + 4
        if not 0 <= first < end <= self.size_bytes or (offsets & 3).any() or (offsets[1:] <= offsets[:-1]).any():
            return None
        try:
            if self._scattered is None or len(self._scattered) < end:
                if _file_system(self._fd) not in _IN_PLACE:
                    return None
                size = min(self.size_bytes, -(-end // _SCATTERED_MULTIPLE) * _SCATTERED_MULTIPLE)
                self._scattered = mmap.mmap(
                    self._fd, size - size % 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
                )
            first -= first % mmap.PAGESIZE
            self._scattered.madvise(_MADV_POPULATE_WRITE, first, end - first)
        except OSError:  # an old kernel, or a full or broken disk: `pwrite` works, or says what is wrong
            return None
        return self._scattered

    def map(self) -> memoryview:
        """See `ports.disk.DiskFile`."""
        self._check()  # for mmap, -1 means memory without a file
        if self._view is None or len(self._view) != self.size_bytes:
            mapping = mmap.mmap(self._fd, self.size_bytes, access=mmap.ACCESS_READ) if self.size_bytes else b""
            self._view = memoryview(mapping)
        return self._view

    def written_end(self) -> int:
        """See `ports.disk.DiskFile`: the end of the last extent that is no hole (`lseek`)."""
        self._check()
        end = 0
        while end < self.size_bytes:
            try:
                end = os.lseek(self._fd, os.lseek(self._fd, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # holes from here on
                    break
                return self.size_bytes  # a file system that cannot tell
        return end

    async def sync(self) -> None:
        """See `ports.disk.DiskFile`: `fdatasync` in a worker thread. It covers what was written through a mapping."""
        self._check()
        self._scattered = None  # the sync makes its pages read-only: a new one costs no more
        await trio.to_thread.run_sync(os.fdatasync, self._fd)

    def sync_unless_closed(self) -> None:
        """For its disk, in a worker thread: `sync`, unless the file is closed, perhaps meanwhile."""
        fd = self._fd
        if fd < 0:
            return
        self._scattered = None
        try:
            os.fdatasync(fd)
        except OSError:
            if self._fd == fd:
                raise

    def truncate(self, size_bytes: int) -> None:
        """See `ports.disk.DiskFile`."""
        os.ftruncate(self._fd, size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        """See `ports.disk.DiskFile`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._view = self._scattered = None

    def _check(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


@attrs.define(eq=False, repr=False)
class OsLock:
    """A locked file."""

    _fd: int

    def close(self) -> None:
        """See `ports.disk.DiskLock`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsDiskUsage(NamedTuple):
    """See `ports.disk.DiskUsage`."""

    used_bytes: int
    available_bytes: int


@attrs.define(eq=False, repr=False)
class OsDisk:
    """The files below one directory; no path leads out of it."""

    root: Path
    #: Texts, as a store of 10,000 topics has 30,000 paths: to make a `Path` of each would take as long as its `fsync`.
    _root: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._root = os.fspath(self.root).rstrip("/")  # of "/" nothing is left: what stands before "/etc"

    def _locate(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"path {path!r} is not inside the store's directory")
        return f"{self._root}/{path}" if path else self._root or "/"

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> OsFile:
        """See `ports.disk.Disk`."""
        if exclusive and allocate_bytes is None:
            raise ValueError("exclusive creation needs allocate_bytes")
        target = self._locate(path)
        create = allocate_bytes is not None and (exclusive or not os.path.exists(target))
        if create:
            _make_directories(os.path.dirname(target))
        flags, mode = os.O_RDONLY if read_only else os.O_RDWR, 0o600 if private else 0o644
        if create and allocate_bytes and not read_only and _create_whole(target, mode, allocate_bytes):
            try:
                return OsFile(path, allocate_bytes, os.open(target, flags | os.O_CLOEXEC))
            except BaseException:
                os.unlink(target)
                raise
        # Whoever opens a pipe to read it would wait for a writer.
        flags |= os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(target, flags | (os.O_CREAT | os.O_EXCL if create else 0), mode)
        try:
            if create and allocate_bytes is not None:
                os.ftruncate(fd, allocate_bytes)
            return OsFile(path, _file_size(fd, target), fd)
        except BaseException:
            os.close(fd)
            if create:
                os.unlink(target)
            raise

    def exists(self, path: str) -> bool:
        """See `ports.disk.Disk`."""
        return os.path.exists(self._locate(path))

    def list(self, directory: str) -> list[str]:
        """See `ports.disk.Disk`."""
        target = self._locate(directory)
        return sorted(os.listdir(target)) if os.path.isdir(target) else []

    def rename(self, source: str, target: str) -> None:
        """See `ports.disk.Disk`."""
        os.replace(self._locate(source), self._locate(target))

    def remove(self, path: str) -> None:
        """See `ports.disk.Disk`."""
        os.unlink(self._locate(path))

    def remove_directory(self, path: str) -> None:
        """See `ports.disk.Disk`."""
        target = self._locate(path)
        if not path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        os.rmdir(target)

    async def sync_directory(self, directory: str) -> None:
        """See `ports.disk.Disk`: `fsync` of the directory in a worker thread."""
        await trio.to_thread.run_sync(_sync_directory, self._locate(directory))

    async def sync_files(self, files: Sequence[DiskFile]) -> None:
        """See `ports.disk.Disk`: `fdatasync` in some worker threads, whose syncs the file system makes together."""
        opened = [file for file in files if isinstance(file, OsFile)]
        if len(opened) < len(files):
            raise TypeError("sync_files takes the files of this disk")
        await _in_threads(OsFile.sync_unless_closed, opened)

    async def sync_directories(self, directories: Sequence[str]) -> None:
        """See `ports.disk.Disk`: as `sync_files`."""
        await _in_threads(_sync_directory, [self._locate(directory) for directory in directories])

    def lock(self, path: str) -> OsLock:
        """See `ports.disk.Disk`: a POSIX record lock, as Java's FileLock is.

        A system without locks of open files (F_OFD_SETLK) does not notice a second holder in this process.
        """
        target = self._locate(path)
        _make_directories(os.path.dirname(target))
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock_first_byte(fd, target, path)
            if not _file_size(fd, target):
                os.pwrite(fd, LOCK_BYTES, 0)
            return OsLock(fd)
        except BaseException:
            os.close(fd)
            raise

    def usage(self) -> OsDiskUsage:
        """See `ports.disk.Disk`: `statvfs`; what is kept for root is neither used nor available."""
        status = os.statvfs(self.root)
        used_blocks = status.f_blocks - status.f_bfree
        return OsDiskUsage(used_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def _create_whole(target: str, mode: int, size_bytes: int) -> bool:
    """Create a file that has its length when its name is seen; False if the file system cannot do that.

    A process that is killed in between leaves nothing: RocketMQ does not start over a log file of length 0, nor over a
    temporary name beside it. On a journaling file system a power loss does not separate the two either. Open it by its
    name: of this descriptor /proc, and so lsof, say that its file is deleted. Raises `OSError`.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        fd = os.open(os.path.dirname(target), os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_NAMELESS_FILES:
            return False
        raise
    try:
        os.ftruncate(fd, size_bytes)
        # The name in /proc is a link, to be followed. Up to 3.13 Python calls linkat, which can do that, only where a
        # directory's descriptor is given; an absolute path does not need one.
        os.link(f"/proc/self/fd/{fd}", os.path.abspath(target), src_dir_fd=fd, follow_symlinks=True)
    except OSError as error:
        if error.errno in _NO_NAMELESS_FILES:
            return False
        raise
    finally:
        os.close(fd)
    return True


def _file_size(fd: int, path: str) -> int:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):  # to read it, Linux opens a directory
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "neither a file nor a directory", path)
    return status.st_size


def _file_system(fd: int) -> str:
    """The type of a file's file system, from /proc; empty if that does not say."""
    device = os.fstat(fd).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for mount in mounts:  # "36 35 98:0 /root /mount/point options optional fields - ext4 source options"
            fields = mount.split(" ")
            if fields[2] == number:
                return fields[fields.index("-") + 1]
    return ""


def _make_directories(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError as error:  # a file is in the way: `open` would say so
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


async def _in_threads(sync: Callable[[_Synced], None], each: Sequence[_Synced]) -> None:
    """Call `sync` with each, in as many threads as are of use; then raise the first `OSError` of any."""
    threads = min(_SYNC_THREADS, -(-len(each) // _SYNCS_A_THREAD))
    failures: list[OSError] = []

    def sync_some(some: Sequence[_Synced]) -> None:
        for one in some:
            sync(one)

    async def sync_part(number: int) -> None:
        try:
            await trio.to_thread.run_sync(sync_some, each[number::threads])
        except OSError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(threads):
            nursery.start_soon(sync_part, number)
    if failures:
        raise failures[0]


def _lock_first_byte(fd: int, target: str, path: str) -> None:
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            # The lock is the open file's, not the process's: a second store in this process is refused too, and to
            # close another descriptor of the file does not release it.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        else:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
        holder = _holder_of_lock(fd)
        text = f"{os.path.dirname(os.path.abspath(target))} is in use by {holder}"
        raise BlockingIOError(errno.EAGAIN, text, path) from error


def _holder_of_lock(fd: int) -> str:
    """The process that has locked a file's first byte, in words for an error.

    A process's lock, which Java takes, names the process. An open file's lock, which this class takes, is looked for in
    /proc, which shows the files of this user's processes.
    """
    pid = 0
    if hasattr(fcntl, "F_OFD_GETLK"):
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        with contextlib.suppress(OSError):  # a file system that cannot tell: the lock is held all the same
            pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[-1]
    if pid <= 0:
        pid = next(_holders_in_proc(os.fstat(fd)), 0)
    if pid <= 0:
        return "another process"
    if pid == os.getpid():
        return f"this process, {pid}"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({name})"


def _holders_in_proc(file: os.stat_result) -> Iterator[int]:
    """The processes that have a lock on `file`. One that ends meanwhile, or is another user's, is left out."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            descriptors = os.listdir(process / "fd")
        except OSError:
            continue
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                found = os.stat(process / "fd" / descriptor)
                if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino) and (
                    "\nlock:" in (process / "fdinfo" / descriptor).read_text()
                ):
                    yield int(process.name)
