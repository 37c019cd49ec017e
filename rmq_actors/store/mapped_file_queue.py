"""A row of files of one size that together hold a log (MappedFileQueue)."""

from __future__ import annotations

import errno

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.layout import file_name, parse_file_name
from rmq_actors.store.mapped_file import MappedFile


class StoreLayoutError(ValueError):
    """The files of a directory cannot be a log: says which file, and why. Nothing was changed."""


@attrs.define(eq=False)
class MappedFileQueue:
    """The files of `directory`, oldest first, without a gap."""

    disk: Disk
    directory: str
    file_size_bytes: int
    files: list[MappedFile] = attrs.field(factory=list, init=False)
    #: Whether a name was made or removed since the directory was last synced.
    directory_is_dirty: bool = attrs.field(default=False, init=False)

    def load(self, *, read_only: bool = False) -> None:
        """Open the files that there are. All bytes of all files count as valid until recovery says otherwise.

        A last file of length 0, which a crash between creating and allocating leaves, is removed. Raises
        `StoreLayoutError`.
        """
        offsets = []
        for name in self.disk.list(self.directory):
            offset = parse_file_name(name)
            if offset is None:
                raise StoreLayoutError(f"{self.directory}/{name}: not the name of a log file (20 digits)")
            offsets.append(offset)
        for number, offset in enumerate(offsets):
            path = f"{self.directory}/{file_name(offset)}"
            file = self.disk.open(path, read_only=read_only)
            if file.size_bytes == 0 and number == len(offsets) - 1:
                file.close()
                if not read_only:
                    self.disk.remove(path)
                continue
            if file.size_bytes != self.file_size_bytes:
                file.close()
                raise StoreLayoutError(
                    f"{path} is {file.size_bytes} bytes long, mappedFileSizeCommitLog is {self.file_size_bytes}"
                )
            expected = self.files[-1].from_offset + self.file_size_bytes if self.files else offset
            if offset != expected:
                file.close()
                raise StoreLayoutError(f"{path} follows a gap: the file before it ends at {expected}")
            self.files.append(MappedFile(file, offset, file.size_bytes))
        # Whether the process that made these names lived to sync them is not known.
        self.directory_is_dirty = bool(self.files) and not read_only

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
        path = f"{self.directory}/{file_name(from_offset)}"
        if self.disk.exists(path):
            raise FileExistsError(errno.EEXIST, "the next file of the log is there already", path)
        file = self.disk.open(path, allocate_bytes=self.file_size_bytes)
        self.directory_is_dirty = True
        self.files.append(MappedFile(file, from_offset))
        return self.files[-1]

    def truncate(self, end_offset: int) -> None:
        """Make `end_offset` the end: zero what stands behind it in its file, remove the files after it.

        Zeros, so that no later recovery can take old bytes for records.
        """
        while self.files and self.files[-1].from_offset >= end_offset and len(self.files) > 1:
            file = self.files.pop().file
            self.disk.remove(file.path)
            file.close()
            self.directory_is_dirty = True
        if not self.files:
            return
        last = self.files[-1]
        last.cut(end_offset - last.from_offset)

    def close(self) -> None:
        """Close every file."""
        for mapped_file in self.files:
            mapped_file.file.close()
        self.files.clear()
