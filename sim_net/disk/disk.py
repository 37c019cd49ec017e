"""A node's simulated disk: a page cache over durable bytes, syncs that take virtual time, and faults.

Paths are relative, with "/" between the parts. Errors are the OSErrors that Linux would raise. A process that was
killed gets EBADF from everything. A harness task, which runs on no node, may use any disk at any time: it meets no
faults but a full disk, and its operations are not counted. `page_cache` and `directory` say what a power loss leaves.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, SupportsInt

import attrs
import trio
from attrs import validators

from sim_net.disk.directory import Directory, FileTree, os_error
from sim_net.disk.disk_lock import DiskLocks, SimLock
from sim_net.disk.disk_rule import DiskRule, DiskRules, Operation
from sim_net.disk.disk_space import Capacity, DiskSpace, SimDiskUsage
from sim_net.disk.disk_sync import DiskSyncs
from sim_net.disk.open_files import OpenFiles
from sim_net.disk.page_cache import CachedFile, Survival
from sim_net.disk.power_loss import lose_power
from sim_net.field_checks import check_count, check_not_negative, check_size
from sim_net.kernel.entropy import derive
from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from sim_net.kernel.journal import Journal
    from sim_net.kernel.kernel import Kernel
    from sim_net.node import Incarnation

BytesLike = bytes | bytearray | memoryview


@attrs.frozen
class DiskConfig:
    """What a disk is like while no fault is at work."""

    #: The least and the most virtual seconds that a sync takes, drawn for each one. Longer ones let more happen while a
    #: program waits for the disk: more writes, faults, and other tasks.
    sync_min_s: float = attrs.field(default=0.000_2, validator=check_not_negative)
    #: See `sync_min_s`.
    sync_max_s: float = attrs.field(default=0.004, validator=check_not_negative)
    #: What a power loss leaves of changes that were not synced. `any`: any of them, page by page, torn at sector edges,
    #: in any order, as real disks may. `prefix`: changes up to one of them, in the order in which they were made on the
    #: whole disk, the last perhaps torn; milder, and hides a missing sync between two files.
    unsynced: Literal["any", "prefix"] = attrs.field(default="any", validator=validators.in_(("any", "prefix")))
    #: How much fits: what goes beyond it fails with ENOSPC. None for no bound. Holes take no space.
    capacity_bytes: int | None = attrs.field(default=None, validator=validators.optional(check_size))
    #: A file with about as many unsynced bytes is written back by the system, and a power loss cannot take these any
    #: more. It bounds the memory of a run; a smaller one hides missing syncs.
    unsynced_bytes_max: int = attrs.field(default=64 << 20, validator=check_count)

    def __attrs_post_init__(self) -> None:
        if self.sync_max_s < self.sync_min_s:
            raise ValueError(f"sync_max_s ({self.sync_max_s}) is below sync_min_s ({self.sync_min_s})")


class Syncable(Protocol):
    """What `SimDisk.sync_files` takes: its files."""

    async def sync(self) -> None:
        """See `SimFile.sync`."""
        ...


class SimFile:
    """An open file."""

    def __init__(self, disk: SimDisk, path: str, file: CachedFile, *, read_only: bool) -> None:
        self._disk = disk
        #: For its disk: what was opened.
        self.cached = file
        self._read_only = read_only
        self._closed = False
        self._opener = current_incarnation.get()
        self.path = path

    @property
    def size_bytes(self) -> int:
        """The file's length."""
        return self.cached.size

    def write_at(self, offset: int, data: BytesLike) -> None:
        """Write all of `data` at byte `offset` into the page cache; the file grows if need be.

        On a full disk what fits is written, up to the end of a page, before OSError ENOSPC.
        """
        if offset < 0:
            raise os_error(errno.EINVAL, self.path)
        self._check()
        if self._read_only:
            raise os_error(errno.EBADF, self.path)
        disk = self._disk
        misdirected = disk.begin("write", self.path)
        view = memoryview(data).cast("B")
        if not view:
            return
        if misdirected:
            offset = disk.misdirected(self.path, self.cached, offset, len(view))
        if disk.space is not None:
            end = offset + len(view)
            room = disk.space.take(self.cached, offset, end)
            if room < end:
                if room > offset:
                    self.cached.write(offset, view[: room - offset], next(disk.serials))
                raise disk.met("write", self.path, errno.ENOSPC)
        self.cached.write(offset, view, next(disk.serials))
        if self.cached.unsynced_bytes > disk.config.unsynced_bytes_max:
            self.cached.settle(self.cached.mark())

    def write_scattered(self, offsets: Iterable[SupportsInt], values: Iterable[SupportsInt]) -> None:
        """Write `values`, 4 bytes big-endian each, at byte `offsets`: that many operations, in this order."""
        for offset, value in zip(offsets, values, strict=True):
            self.write_at(int(offset), int(value).to_bytes(4, "big", signed=True))

    def map(self) -> memoryview:
        """A read-only view of the whole file that sees later writes; stale once the file grows or shrinks."""
        self._check()
        return self.cached.view()

    def written_end(self) -> int:
        """An offset after which nothing was ever written: all zeros."""
        self._check()
        return self.cached.written_end

    async def sync(self) -> None:
        """Return when everything written before the call is durable, after the disk's time for it.

        A checkpoint that cannot be cancelled once it waits, as `fsync` in a worker thread. After OSError the pages
        that it should have written are clean, but not durable: a later sync succeeds without writing them.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        await self._disk.wait_durable("sync", self.path, self.cached)

    def truncate(self, size_bytes: int) -> None:
        """Set the file's length."""
        if size_bytes < 0:
            raise os_error(errno.EINVAL, self.path)
        self._check()
        if self._read_only:
            raise os_error(errno.EINVAL, self.path)
        self._disk.begin("truncate", self.path)
        if size_bytes != self.cached.size:
            self._disk.resize(self.cached, size_bytes)

    def close(self) -> None:
        """Give the file up; a second call does nothing. Views handed out by `map` stay readable."""
        self._closed = True
        self._disk.forget(self)

    @property
    def is_closed(self) -> bool:
        """Whether it was given up."""
        return self._closed

    @property
    def is_open(self) -> bool:
        """Whether a process that lives can still use it."""
        opener = self._opener
        return not self._closed and (opener is None or not (opener.fenced or opener.over.is_set()))

    def opened_by(self, incarnation: Incarnation) -> bool:
        """Whether that process opened it."""
        return self._opener is incarnation

    def _check(self) -> None:
        if self._closed or (self._opener is not None and self._opener.fenced):
            raise os_error(errno.EBADF, self.path)


class SimDisk:
    """One node's file tree."""

    def __init__(self, kernel: Kernel, journal: Journal, seed: int, node: str, config: DiskConfig) -> None:
        self._kernel = kernel
        self._journal = journal
        self._node = node
        self._draw = derive(seed, f"disk/{node}").random
        self._fault_random = derive(seed, f"disk faults/{node}")
        self._seed = seed
        self._power_losses = 0
        #: For its own parts.
        self.config = config
        #: For its own parts: each change on the disk has a number, in order.
        self.serials = itertools.count(1)
        self._tree = FileTree(self.serials)
        #: How many operations the node's programs have begun, over all their lives: those of `Operation`.
        self.operations = 0
        #: Called with `disk.` and the name of each operation as it begins; what it kills gets EBADF instead.
        self.announce: Callable[[str], object] | None = None
        #: Those who count: called with the name of each operation as it begins, before anybody is killed by it.
        self.observers: list[Callable[[str], object]] = []
        self._rules = DiskRules(self._fault_random.randrange)
        self._syncs = DiskSyncs(kernel, journal, node, self._draw_sync_s)
        self._locks = DiskLocks()
        self._open_files = OpenFiles()
        self._capacity = Capacity(config.capacity_bytes, self._files)

    # --- the port ---------------------------------------------------------------------------------------------------

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> SimFile:
        """Open a file; with `allocate_bytes` a missing one is created, with its directories, as that many zeros.

        With `exclusive` too, one that is there is FileExistsError. There are no users that `private` would keep away.
        """
        if exclusive and allocate_bytes is None:
            raise ValueError("exclusive creation needs allocate_bytes")
        self.begin("open", path)
        entry = self._tree.get(path) if allocate_bytes is None else self._tree.find(path)
        if entry is not None and exclusive:
            raise os_error(errno.EEXIST, path)
        if isinstance(entry, Directory):
            raise os_error(errno.EISDIR, path)
        if entry is None:
            assert allocate_bytes is not None
            if allocate_bytes < 0:
                raise os_error(errno.EINVAL, path)
            entry = self._tree.create(path, allocate_bytes)
        file = SimFile(self, path, entry, read_only=read_only)
        self._open_files.add(file)
        return file

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""
        self._caller()
        try:
            return self._tree.find(path) is not None
        except NotADirectoryError:
            return False

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        self._caller()
        try:
            entry = self._tree.find(directory)
        except NotADirectoryError:
            return []
        return sorted(entry.entries) if isinstance(entry, Directory) else []

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing `target`. Directories cannot be renamed here: EISDIR."""
        self.begin("rename", source)
        self._tree.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file; those who have it open go on."""
        self.begin("remove", path)
        self._tree.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. The root is OSError EBUSY."""
        self.begin("remove_directory", path)
        self._tree.remove_directory(path)

    async def sync_directory(self, directory: str) -> None:
        """Return when the names in a directory are durable, after the disk's time for it. As `SimFile.sync`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._caller()
        await self.wait_durable("sync_directory", directory, self._tree.directory(directory))

    async def sync_files(self, files: Iterable[Syncable]) -> None:
        """`sync` of each, one after another; one that is closed by its turn is left out."""
        for file in files:
            if not (isinstance(file, SimFile) and file.is_closed):
                await file.sync()

    async def sync_directories(self, directories: Iterable[str]) -> None:
        """`sync_directory` of each, one after another."""
        for directory in directories:
            await self.sync_directory(directory)

    def lock(self, path: str) -> SimLock:
        """Lock a file for this process; a missing or empty one gets the bytes `lock`. OSError EAGAIN if it is locked.

        Counts as the operations that it takes: an opening, and at times a write.
        """
        file = self.open(path, allocate_bytes=0)
        try:
            lock = self._locks.take(file.cached, path)
            try:
                if not file.size_bytes:
                    file.write_at(0, b"lock")
            except BaseException:
                lock.close()
                raise
            return lock
        finally:
            file.close()

    def usage(self) -> SimDiskUsage:
        """How full the disk is; without a bound, as if 2**62 bytes were available."""
        # All that a program changes takes a number: none but this one since the last time, and all is as it was.
        incarnation, changes, serial = self._caller(), self._open_files.changes, next(self.serials)
        return self._capacity.usage((incarnation, changes, serial), (incarnation, changes, serial - 1))

    # --- faults -----------------------------------------------------------------------------------------------------

    def fail(
        self,
        error: int,
        *,
        operation: Operation | None = None,
        path: str = "",
        nth: int = 1,
        every: int = 1,
        count: int | None = 1,
    ) -> DiskRule:
        """Let operations raise OSError with errno `error`, without effect: those that the rule made of this hits.

        By default the next one. A sync fails at its end. Where several rules match, the oldest that hits is the one,
        and the others do not see that operation. ValueError for an operation that there is not, or a number below 1.
        """
        return self._rules.add(DiskRule(error, operation, path, nth, every, count))

    def misdirect(self, *, path: str = "", nth: int = 1, every: int = 1, count: int | None = 1) -> DiskRule:
        """Let writes land elsewhere in their file, some sectors off, as those see who read the disk. Like `fail`."""
        return self._rules.add(DiskRule(None, "write", path, nth, every, count))

    def rot(self, path: str = "") -> None:
        """Flip one bit, drawn from all that was written, of a file whose path contains `path`, if there is one.

        Who reads sees it at once, unless the page is dirty: it shows after a power loss, if the page was not written.
        """
        files = [(each, file) for each, file in self._tree.files() if path in each and file.written_end]
        if files:
            name, file = self._fault_random.choice(files)
            offset = self._fault_random.randrange(file.written_end)
            file.flip(offset, 1 << self._fault_random.randrange(8))
            self._capacity.count_again()
            self._journal.record(self._node, "storage.rot", path=name, offset=offset)

    def slow_down(self, extra_s: float) -> None:
        """Let each sync that begins from now on take `extra_s` longer."""
        self._syncs.slow_down(extra_s)

    def speed_up(self, extra_s: float) -> None:
        """Undo one `slow_down`."""
        self._syncs.speed_up(extra_s)

    def stick(self) -> None:
        """Let no sync come to its end until `unstick`, or until its process is killed."""
        self._syncs.stick()

    def unstick(self) -> None:
        """Undo one `stick`."""
        self._syncs.unstick()

    def fill_up(self, free_bytes: int = 0) -> Callable[[], None]:
        """Let no more than `free_bytes` fit beside what is used now; what is returned undoes it."""
        return self._capacity.fill_up(free_bytes)

    def end_faults(self) -> None:
        """Undo every `fail`, `misdirect`, `slow_down`, `stick` and `fill_up`. What was lost stays lost."""
        self._rules.clear()
        self._capacity.end_faults()
        self._syncs.end_faults()

    @property
    def capacity_bytes(self) -> int | None:
        """How much fits on the disk; None for no bound. May be set at any time, also below what is used."""
        return self._capacity.owners_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self._capacity.owners_bytes = capacity_bytes

    @property
    def used_bytes(self) -> int:
        """How much of the capacity is used: the pages that were written, of files with a name or open."""
        return self._capacity.used_bytes

    @property
    def fails_operations(self) -> bool:
        """Whether a fault is at work that makes operations fail, or writes go astray; a bound on space is none."""
        return bool(self._rules)

    def power_off(self) -> None:
        """The power is lost: syncs stop, and what was not durable survives in part, as `DiskConfig.unsynced` says.

        Afterwards the page cache holds what is durable. To be called by `Node.power_loss`, which ends the process.
        """
        self._syncs.power_off()
        self._capacity.count_again()
        self._power_losses += 1
        survival = Survival(self._seed, f"power loss/{self._node}/{self._power_losses}")
        lose_power(self._tree, survival, self.config.unsynced, partial(self._journal.record, self._node))
        if self.space is not None:
            self.space.count()

    # --- for its own parts ------------------------------------------------------------------------------------------

    def held_by(self, incarnation: Incarnation) -> Sequence[str]:
        """The files that a process has open, and the locks that it holds."""
        files = [f"open file {path}" for path in self._open_files.held_by(incarnation)]
        return files + [f"lock on {path}" for path in self._locks.held_by(incarnation)]

    def begin(self, operation: Operation, path: str) -> bool:
        """Start an operation for the current task: EBADF if its process was killed, or what a fault makes of it.

        True for a write that is to be misdirected.
        """
        incarnation = self._caller()
        if incarnation is None:
            return False
        self.operations += 1
        if self.observers:
            self._observe(operation)
        if self.announce is None and not self._rules:
            return False
        rule = self._rule_for(operation, path, incarnation)
        if rule is not None and rule.error is not None:
            raise self.met(operation, path, rule.error)
        return rule is not None

    async def wait_durable(self, operation: Operation, path: str, target: CachedFile | Directory) -> None:
        """Wait for a sync; then fail if a fault says so, or if the caller's process was killed meanwhile."""
        incarnation = self._caller()
        rule = None
        if incarnation is not None:
            self.operations += 1
            self._observe(operation)
            rule = self._rule_for(operation, path, incarnation)
        await self._syncs.wait(operation, path, target, None if rule is None else rule.error)

    def met(self, operation: Operation, path: str, error: int) -> OSError:
        """The error that the program is to get, journaled."""
        status = errno.errorcode[error]
        self._journal.record(self._node, "storage.error", path=path, operation=operation, status=status)
        return os_error(error, path)

    def resize(self, file: CachedFile, size_bytes: int) -> None:
        """Set a file's length in the cache."""
        file.resize(size_bytes, next(self.serials))
        if self.space is not None:
            self.space.cut(file)

    def misdirected(self, path: str, file: CachedFile, offset: int, size: int) -> int:
        """Another place in the file for a write, sectors away; the same if there is none."""
        landed = self._rules.misdirected(file.size, offset, size)
        if landed != offset:
            self._journal.record(self._node, "storage.misdirected", path=path, offset=offset, size=size, landed=landed)
        return landed

    def forget(self, file: SimFile) -> None:
        """A file was closed."""
        self._open_files.remove(file)

    @property
    def space(self) -> DiskSpace | None:
        """The count of used pages; None while the capacity has no bound."""
        return self._capacity.space

    # --- below ------------------------------------------------------------------------------------------------------

    def _caller(self) -> Incarnation | None:
        incarnation = current_incarnation.get()
        if incarnation is not None and incarnation.fenced:
            incarnation.check()
        return incarnation

    def _observe(self, operation: Operation) -> None:
        for observer in self.observers:
            observer(operation)

    def _rule_for(self, operation: Operation, path: str, incarnation: Incarnation) -> DiskRule | None:
        """Announce an operation; the rule that it falls under."""
        if self.announce is not None:
            self.announce(f"disk.{operation}")
            incarnation.check()
        return self._rules.hit(operation, path)

    def _draw_sync_s(self) -> float:
        config = self.config
        return config.sync_min_s + (config.sync_max_s - config.sync_min_s) * self._draw()

    def _files(self) -> Iterable[CachedFile]:
        """Every file that takes space: it has a name, or somebody has it open."""
        files = dict.fromkeys(file for _, file in self._tree.files())
        files.update(dict.fromkeys(self._open_files.cached()))
        return files
