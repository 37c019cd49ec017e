"""The disk as the store sees it.

A write goes to the page cache (`DiskFile.write_at`) and is durable only after `DiskFile.sync`, and, for a file that is
new or was renamed, `Disk.sync_directory` of its directory. Paths are relative to the disk's root, with "/" between the
parts. Every operation raises `OSError` with the errno that Linux would give (ENOSPC, EIO, ENOENT, EROFS, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a program that writes no columns does not wait for numpy
    import numpy as np
    import numpy.typing as npt

BytesLike = bytes | bytearray | memoryview

#: What a disk writes as a whole: a power cut leaves all of a sector's new bytes or none of them.
SECTOR_BYTES = 512


class DiskFile(Protocol):
    """An open file of fixed size: RocketMQ allocates the whole file, then fills it."""

    @property
    def path(self) -> str:
        """The path by which it was opened, relative to the disk's root."""
        ...

    @property
    def size_bytes(self) -> int:
        """The file's length; the unwritten part reads as zeros."""
        ...

    def write_at(self, offset: int, data: BytesLike) -> None:
        """Write all of `data` at byte `offset` into the page cache; the file grows if need be."""
        ...

    def write_scattered(self, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        """Write `values`, 4 bytes big-endian each, at byte `offsets`: as that many calls of `write_at`, in this order.

        After an `OSError` any of them may be written. Fastest with ascending offsets, all multiples of 4.
        """
        ...

    def map(self) -> memoryview:
        """A read-only view of the whole file that sees later writes; stale once the file grows or shrinks."""
        ...

    def written_end(self) -> int:
        """An offset after which nothing was ever written: all zeros. The file's length, if nothing better is known."""
        ...

    async def sync(self) -> None:
        """Return when everything written before the call is durable. A checkpoint."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Set the file's length."""
        ...

    def close(self) -> None:
        """Close the file; a second call does nothing. Views from `map` stay readable."""
        ...


class DiskLock(Protocol):
    """An exclusive lock that this process holds. It ends with the process and its forks that did no exec."""

    def close(self) -> None:
        """Release it; a second call does nothing."""
        ...


class DiskUsage(Protocol):
    """How full a disk is."""

    @property
    def used_bytes(self) -> int:
        """What all files on it take, whoever owns them."""
        ...

    @property
    def available_bytes(self) -> int:
        """What may still be written; 2**62 on a simulated disk without a bound."""
        ...


class Disk(Protocol):
    """One node's file tree."""

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> DiskFile:
        """Open a file.

        With `allocate_bytes` a missing file is created, with its missing directories, as that many zeros; its name is
        not seen before it has its length, where the file system can do that. An existing file is opened as it is, or is
        `FileExistsError` if the creation is to be `exclusive`. Without `allocate_bytes`, a missing file is
        `FileNotFoundError`. If it is created `private`, no other user may read it.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; open files of it stay usable."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; durable after a sync of the one above. The root is OSError EBUSY."""
        ...

    async def sync_directory(self, directory: str) -> None:
        """Return when the names in a directory are durable. A checkpoint."""
        ...

    async def sync_files(self, files: Sequence[DiskFile]) -> None:
        """As `DiskFile.sync` of each of this disk's files, some at once. One that is closed by its turn is left out.

        After an `OSError` any of them may be durable.
        """
        ...

    async def sync_directories(self, directories: Sequence[str]) -> None:
        """As `sync_directory` of each, some at once. After an `OSError` any of them may be durable."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Lock byte 0 of a file for this process, against RocketMQ too; a missing or empty file gets the bytes `lock`.

        Raises `BlockingIOError` while another process, or this one, holds it; the error names file and process, as far
        as they are known.
        """
        ...

    def usage(self) -> DiskUsage:
        """How full the disk with the root is."""
        ...
