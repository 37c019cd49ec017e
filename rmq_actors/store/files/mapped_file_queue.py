"""A row of files of one size that together hold a log (MappedFileQueue).

The commit log, every consume queue with its extension files, and the table of transaction states are such rows. An
offset here is one of the row's own bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from rmq_actors.ports.disk import Disk, DiskFile
from rmq_actors.store.files.layout import file_name, parse_file_name
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.files.open_files import OpenFiles

_log = logging.getLogger(__name__)

PAGE_BYTES = 4096
#: More files or directories than this are synced together: one after another, 10,000 take some seconds.
SYNCED_ALONE_MAX = 64


class StoreLayoutError(ValueError):
    """The files of a directory cannot be a log: says which file, and why. Nothing was changed."""


#: Directories whose names are not durable, each with an object that stands for its last change. No number that begins
#: again when the directory is clean: of two syncs at once the later to end would take a newer change for its own.
DirtyDirectories = dict[str, object]


def mark_directory(dirty: DirtyDirectories, directory: str) -> None:
    """Names in a directory have changed."""
    dirty[directory] = object()


async def sync_directories(disk: Disk, dirty: DirtyDirectories) -> None:
    """Sync each directory that is dirty now; one that changes meanwhile stays dirty. Raises `OSError`."""
    if len(dirty) > SYNCED_ALONE_MAX:
        await _sync_together(disk, dirty)
    for directory, change in list(dirty.items()):
        try:
            await disk.sync_directory(directory)
        except FileNotFoundError:
            if directory in dirty:  # else it was removed meanwhile
                raise
        if dirty.get(directory) is change:
            del dirty[directory]


async def _sync_together(disk: Disk, dirty: DirtyDirectories) -> None:
    """`sync_directories` of many. If one was removed meanwhile, some stay dirty."""
    changes = dict(dirty)
    try:
        await disk.sync_directories(list(changes))
    except FileNotFoundError:
        return
    for directory, change in changes.items():
        if dirty.get(directory) is change:
            del dirty[directory]


@attrs.frozen
class DueSync:
    """A file that a flush has to sync, and what it makes durable."""

    row: MappedFileQueue
    mapped_file: MappedFile
    end: int
    #: How often the file was changed at other places than its end.
    rewritten: int | None

    def is_over(self) -> None:
        """The sync has succeeded."""
        row, mapped_file = self.row, self.mapped_file
        if mapped_file in row.files and row.rewritten.get(mapped_file) == self.rewritten:
            row.rewritten.pop(mapped_file, None)
            row.flushed_where = max(row.flushed_where, min(self.end, mapped_file.end_offset))


@attrs.define(eq=False, repr=False)
class MappedFileQueue:
    """The files of `directory`, oldest first, without a gap. `size_setting` is the key of their size, for messages."""

    disk: Disk
    directory: str
    file_size_bytes: int
    size_setting: str = "mappedFileSizeCommitLog"
    open_files: OpenFiles | None = None
    #: May be shared by several queues: then their owner syncs the directories.
    dirty_directories: DirtyDirectories = attrs.field(factory=dict)
    #: Each begins where the one before it ends. Only the last one may have room.
    files: list[MappedFile] = attrs.field(factory=list, init=False)
    #: All bytes before it are synced, but for those of `rewritten`. It falls with the end, and where it is not known
    #: whether they are (`mark_unflushed`, `mark_dirty`).
    flushed_where: int = attrs.field(default=0, init=False)
    #: Files with un-synced changes at places that `flushed_where` does not tell, and how often each changed.
    rewritten: dict[MappedFile, int] = attrs.field(factory=dict, init=False)

    def load(self, *, read_only: bool = False, holds_durable: Callable[[int, DiskFile], bool] | None = None) -> None:
        """Open the files that there are. All bytes of all files count as valid until recovery says otherwise.

        A last file of length 0, which a crash between creating and allocating leaves, is removed. A power loss leaves
        more than that of files that nobody synced: shorter ones, and names missing before them. With `holds_durable`,
        which tells of a file by its first offset whether something in it must be there, the first file that does not
        fit, and all after it, are removed, if it holds for none of them; the bytes of the rest count as synced then,
        which they do not without it. Names never do. Raises `StoreLayoutError`, `OSError`.
        """
        offsets = self._list_offsets()
        for number, offset in enumerate(offsets):
            file = self._open(offset, read_only=read_only)
            problem = self._misfit(offset, file)
            if problem is None:
                self.files.append(MappedFile(file, offset, file.size_bytes))
                continue
            is_empty_last = file.size_bytes == 0 and number == len(offsets) - 1
            lost = is_empty_last or not (holds_durable is None or holds_durable(offset, file))
            file.close()
            if not lost or not self._all_lost(offsets[number + 1 :], holds_durable, read_only=read_only):
                raise StoreLayoutError(problem)
            if not read_only:
                self._remove_lost(offsets[number:], problem)
            break
        if not read_only:
            self.mark_dirty()
        if holds_durable is not None:
            self.flushed_where = self.max_offset

    def _list_offsets(self) -> list[int]:
        offsets = []
        for name in self.disk.list(self.directory):
            offset = parse_file_name(name)
            if offset is None:
                raise StoreLayoutError(f"{self.directory}/{name}: not the name of a log file (20 digits)")
            offsets.append(offset)
        return offsets

    def _misfit(self, offset: int, file: DiskFile) -> str | None:
        if file.size_bytes != self.file_size_bytes:
            return f"{file.path} is {file.size_bytes} bytes long, {self.size_setting} is {self.file_size_bytes}"
        if self.files and offset != self.files[-1].from_offset + self.file_size_bytes:
            expected = self.files[-1].from_offset + self.file_size_bytes
            return f"{file.path} follows a gap: the file before it ends at {expected}"
        return None

    def _all_lost(
        self, offsets: list[int], holds_durable: Callable[[int, DiskFile], bool] | None, *, read_only: bool
    ) -> bool:
        for offset in offsets:
            file = self._open(offset, read_only=read_only)
            try:
                if holds_durable is None or holds_durable(offset, file):
                    return False
            finally:
                file.close()
        return True

    def _remove_lost(self, offsets: list[int], problem: str) -> None:
        for offset in reversed(offsets):
            self.disk.remove(self._path(offset))
            self._directory_changed()
        _log.warning("%s; it was never synced, and is removed with %d files after it", problem, len(offsets) - 1)

    def _path(self, from_offset: int) -> str:
        return f"{self.directory}/{file_name(from_offset)}"

    def _open(self, from_offset: int, *, read_only: bool = False) -> DiskFile:
        file = self.disk.open(self._path(from_offset), read_only=read_only)
        return file if read_only or self.open_files is None else self.open_files.adopt(file)

    def _directory_changed(self) -> None:
        mark_directory(self.dirty_directories, self.directory)

    def _directory_made(self) -> None:
        """The first file brings its directory along, and those above: these names, too, are lost if nobody syncs."""
        directory = self.directory
        while directory:
            directory = directory.rpartition("/")[0]
            mark_directory(self.dirty_directories, directory)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 when there is no file."""
        return self.files[0].from_offset if self.files else 0

    @property
    def max_offset(self) -> int:
        """The offset after the last valid byte; 0 when there is no file."""
        return self.files[-1].end_offset if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`, or None outside of the log."""
        if not self.files:
            return None
        number = (offset - self.files[0].from_offset) // self.file_size_bytes
        return self.files[number] if 0 <= number < len(self.files) else None

    def add_file(self, from_offset: int) -> MappedFile:
        """Create the next file, empty. Raises `OSError`, also when the file is there already."""
        file = self.disk.open(self._path(from_offset), allocate_bytes=self.file_size_bytes, exclusive=True)
        return self.add_created_file(file, from_offset)

    def add_created_file(self, file: DiskFile, from_offset: int) -> MappedFile:
        """Take over the next file, which the caller has created, empty, under its final name."""
        self._directory_changed()
        if not self.files:
            self.flushed_where = from_offset
            self._directory_made()
        else:
            assert from_offset == self.files[-1].from_offset + self.file_size_bytes, "a gap, or a file over another"
        self.files.append(MappedFile(file if self.open_files is None else self.open_files.adopt(file), from_offset))
        return self.files[-1]

    def truncate(self, end_offset: int) -> None:
        """Make `end_offset` the end: zero what stands after it in its file, remove the files after it.

        Zeros, so that no later recovery can take old bytes for records; they are durable after the next flush. The
        first file stays, empty, if the end is its first byte. Raises `OSError`; it may be called again then.
        """
        while self.files and self.files[-1].from_offset >= end_offset:
            last = self.files[-1]
            if len(self.files) == 1 and last.from_offset == end_offset:
                break
            self._remove(last)
        if not self.files:
            return
        last = self.files[-1]
        self.mark_rewritten(last)
        last.cut(end_offset - last.from_offset)
        self.flushed_where = min(self.flushed_where, end_offset)

    def remove_first_file(self) -> bool:
        """Remove the oldest file, but never the last; whether one was removed.

        Not while the directory is dirty: of several removals a power loss could undo any, and leave a gap. Raises
        `OSError`.
        """
        if len(self.files) < 2 or self.directory in self.dirty_directories:
            return False
        self._remove(self.files[0])
        return True

    def remove_last_file(self) -> bool:
        """Remove the newest file, also the only one; whether there was one. Raises `OSError`."""
        if not self.files:
            return False
        self._remove(self.files[-1])
        self.flushed_where = min(self.flushed_where, self.max_offset)
        return True

    def _remove(self, mapped_file: MappedFile) -> None:
        self.disk.remove(mapped_file.file.path)
        self.files.remove(mapped_file)
        self.rewritten.pop(mapped_file, None)
        mapped_file.file.close()
        self._directory_changed()

    # Durability.

    def mark_rewritten(self, mapped_file: MappedFile) -> None:
        """Let the next flush sync a file that was not only appended to."""
        self.rewritten[mapped_file] = self.rewritten.get(mapped_file, 0) + 1

    def mark_unflushed(self, from_offset: int) -> None:
        """Let the next flush sync everything from `from_offset` on: it was read, and may be on no disk."""
        self.flushed_where = min(self.flushed_where, from_offset)

    def mark_dirty(self) -> None:
        """Let the next flush sync every file and name: it is not known whether their writer has done so.

        The same holds for names that are gone, as long as their directory is there: a power loss may bring back what a
        killed process has removed.
        """
        self.flushed_where = self.min_offset
        if self.files or self.disk.exists(self.directory):
            self._directory_changed()
            self._directory_made()

    @property
    def is_dirty(self) -> bool:
        """Whether there are un-synced bytes."""
        return self.flushed_where < self.max_offset or bool(self.rewritten)

    def _is_able_to_flush(self, mapped_file: MappedFile, least_pages: int) -> bool:
        end = mapped_file.end_offset
        if mapped_file in self.rewritten or end <= self.flushed_where or not least_pages:
            return mapped_file in self.rewritten or end > self.flushed_where
        flushed_position = max(0, self.flushed_where - mapped_file.from_offset)
        pages = mapped_file.wrote_position // PAGE_BYTES - flushed_position // PAGE_BYTES
        return not mapped_file.room_bytes or pages >= least_pages

    async def flush_files(self, least_pages: int = 0) -> None:
        """Make durable the bytes that were written before the call, not their files' names. Raises `OSError`.

        With `least_pages` a file that is not full, and has less than so many new pages of 4,096 bytes, is left for
        later.
        """
        for mapped_file in self.files[:]:
            if not self._is_able_to_flush(mapped_file, least_pages):
                continue
            due = self._due(mapped_file)
            try:
                await mapped_file.file.sync()
            except OSError:
                if mapped_file in self.files:
                    raise
                continue  # it was removed meanwhile
            due.is_over()

    def due_syncs(self, least_pages: int = 0) -> list[DueSync]:
        """What `flush_files` would sync: for somebody who syncs the files of many rows together."""
        return [self._due(each) for each in self.files if self._is_able_to_flush(each, least_pages)]

    def _due(self, mapped_file: MappedFile) -> DueSync:
        return DueSync(self, mapped_file, mapped_file.end_offset, self.rewritten.get(mapped_file))

    async def flush(self, least_pages: int = 0) -> None:
        """Like `flush_files`, and the names too. Raises `OSError`; what a failed sync leaves is unknown."""
        await self.flush_files(least_pages)
        await sync_directories(self.disk, self.dirty_directories)

    def close(self) -> None:
        """Close every file."""
        for mapped_file in self.files:
            mapped_file.file.close()
        self.files.clear()
