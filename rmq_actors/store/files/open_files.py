"""Files that are opened when they are used, so that ten thousand queues do not hold ten thousand descriptors.

A real file costs two descriptors once it is mapped. One with un-synced writes stays open: were it closed, an error of
the system's own write-back could go unseen. The others stay open if they were used last.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from rmq_actors.ports.disk import BytesLike, Disk, DiskFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Files that one call syncs.
_TOGETHER_MAX = 1024


@attrs.define(eq=False, repr=False)
class OpenFiles:
    """The files of many queues. At most `clean_files_max` without un-synced writes are open."""

    disk: Disk
    clean_files_max: int = attrs.field(default=256, validator=attrs.validators.ge(1))
    #: In order of use.
    _clean: dict[ManagedFile, None] = attrs.field(factory=dict, init=False)

    def adopt(self, file: DiskFile) -> ManagedFile:
        """Take over a file that was just opened for writing."""
        managed = ManagedFile(self, file.path, file.size_bytes, file)
        self.touch(managed)
        return managed

    def touch(self, file: ManagedFile) -> None:
        """For `ManagedFile`: an open file without un-synced writes was used last."""
        clean = self._clean
        clean.pop(file, None)
        clean[file] = None
        while len(clean) > self.clean_files_max:
            oldest = next(iter(clean))
            del clean[oldest]
            oldest.give_up()

    async def sync(self, files: Sequence[ManagedFile]) -> None:
        """`ManagedFile.sync` of many; of some at a time, as all of them are open then. Raises `OSError`."""
        for first in range(0, len(files), _TOGETHER_MAX):
            with contextlib.ExitStack() as syncs:
                opened = [
                    syncs.enter_context(each.syncing())
                    for each in files[first : first + _TOGETHER_MAX]
                    if not each.is_closed
                ]
                await self.disk.sync_files(opened)

    def forget(self, file: ManagedFile) -> None:
        """For `ManagedFile`: it is closed, or must stay open."""
        self._clean.pop(file, None)


@attrs.define(eq=False, repr=False)
class ManagedFile:
    """A `DiskFile` that may be closed in between; views of it stay readable, and see later writes."""

    _owner: OpenFiles
    path: str
    size_bytes: int
    _file: DiskFile | None
    _closed: bool = attrs.field(default=False, init=False)
    #: Numbers of the last write, and of the last one that a sync covers; how many syncs are under way.
    _written: int = attrs.field(default=0, init=False)
    _synced: int = attrs.field(default=0, init=False)
    _syncs: int = attrs.field(default=0, init=False)

    def write_at(self, offset: int, data: BytesLike) -> None:
        """See `ports.disk.DiskFile`."""
        file = self._open_to_change()
        file.write_at(offset, data)
        self.size_bytes = file.size_bytes

    def write_scattered(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        """See `ports.disk.DiskFile`."""
        file = self._open_to_change()
        file.write_scattered(offsets, values)
        self.size_bytes = file.size_bytes

    def map(self) -> memoryview:
        """See `ports.disk.DiskFile`."""
        return self._open().map()

    def written_end(self) -> int:
        """See `ports.disk.DiskFile`."""
        return self._open().written_end()

    async def sync(self) -> None:
        """See `ports.disk.DiskFile`. Also makes durable what was written before this object was made."""
        with self.syncing() as file:
            await file.sync()

    @contextlib.contextmanager
    def syncing(self) -> Iterator[DiskFile]:
        """For `OpenFiles`: the file, which is synced within the block if that raises nothing."""
        file = self._open()
        self._owner.forget(self)
        written, self._syncs = self._written, self._syncs + 1
        try:
            yield file
            self._synced = max(self._synced, written)
        finally:
            self._syncs -= 1
            if self._is_clean and not self._closed:
                self._owner.touch(self)

    def truncate(self, size_bytes: int) -> None:
        """See `ports.disk.DiskFile`."""
        self._open_to_change().truncate(size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        """See `ports.disk.DiskFile`."""
        self._closed = True
        self._owner.forget(self)
        self.give_up()

    def give_up(self) -> None:
        """Close it until it is used again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def _is_clean(self) -> bool:
        return self._synced == self._written and not self._syncs

    def _open(self) -> DiskFile:
        file = self._file
        if file is None:
            if self._closed:
                raise OSError(errno.EBADF, "the file is closed", self.path)
            file = self._file = self._owner.disk.open(self.path)
        if self._is_clean:
            self._owner.touch(self)
        return file

    def _open_to_change(self) -> DiskFile:
        file = self._open()
        self._written += 1
        self._owner.forget(self)
        return file
