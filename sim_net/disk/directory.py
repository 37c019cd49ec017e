"""The names on a disk: as everybody sees them, and what of them would be left after a power loss.

As in POSIX, a name is durable once its directory was synced, and not before: neither a sync of the file nor one of the
directory above is enough. A rename has two ends; within one directory they share their fate, across two each needs the
sync of its own directory.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sim_net.disk.page_cache import CachedFile

_NAME_MAX_BYTES: Final = 255
#: A directory with more un-synced changes is written back by the system: what a run keeps in memory is bounded.
_UNSYNCED_MAX: Final = 1024


class Directory:
    """One directory. Each change needs a serial number, which grows over the whole disk."""

    __slots__ = ("_base", "_unsynced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        #: The changes that no sync has made durable: serial number, name, what it meant before, what after.
        self._unsynced: list[tuple[int, str, Entry | None, Entry | None]] = []
        #: How many changes came before those in the list.
        self._base = 0

    def bind(self, name: str, entry: Entry | None, serial: int) -> None:
        """Let a name stand for `entry` from now on; for nothing, if that is None."""
        if len(self._unsynced) >= _UNSYNCED_MAX and self._unsynced[-1][0] != serial:  # not between a rename's two ends
            self.settle(self.mark())
        self._unsynced.append((serial, name, self.entries.get(name), entry))
        self._set(name, entry)

    def mark(self) -> int:
        """A mark that follows every change so far: what a sync that begins now must make durable."""
        return self._base + len(self._unsynced)

    def settle(self, mark: int) -> None:
        """Everything before the mark is durable."""
        count = mark - self._base
        if count > 0:
            del self._unsynced[:count]
            self._base = mark

    def fail_sync(self, mark: int) -> None:
        """A sync has failed. Names are not lost by that as pages are: the next sync tries them again."""

    def serials(self) -> Iterator[int]:
        """The serial numbers of the un-synced changes, oldest first."""
        return (change[0] for change in self._unsynced)

    def all_entries(self) -> Iterator[tuple[str, Entry]]:
        """What the names stand for, and what they stood for before the un-synced changes: all that may survive."""
        yield from self.entries.items()
        for _, name, *entries in self._unsynced:
            yield from ((name, entry) for entry in entries if entry is not None)

    def keep(self, survives: Callable[[int], bool]) -> list[str]:
        """Power is lost: of the un-synced changes those survive whose serial number does. The names that differ now."""
        cached, changes = dict(self.entries), self._unsynced
        for _, name, before, _ in reversed(changes):
            self._set(name, before)
        for serial, name, _, after in changes:
            if survives(serial):
                self._set(name, after)
        self._base += len(changes)
        self._unsynced = []
        names = dict.fromkeys(change[1] for change in changes)
        return [name for name in names if self.entries.get(name) is not cached.get(name)]

    def _set(self, name: str, entry: Entry | None) -> None:
        if entry is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = entry


Entry = CachedFile | Directory


class FileTree:
    """All names of one disk, below a root that is always there."""

    def __init__(self, serials: Iterator[int]) -> None:
        self._root = Directory()
        self._serials = serials

    def find(self, path: str) -> Entry | None:
        """What a path stands for; None for nothing. OSError ENOTDIR if it leads through a file, ENAMETOOLONG."""
        return self._find(_parts(path), path)

    def get(self, path: str) -> Entry:
        """As `find`, with OSError ENOENT for nothing."""
        return self._get(_parts(path), path)

    def directory(self, path: str) -> Directory:
        """The directory at a path. OSError ENOENT or ENOTDIR."""
        return self._directory(_parts(path), path)

    def create(self, path: str, size_bytes: int) -> CachedFile:
        """Put a new file of zeros where nothing is; missing directories are made. OSError ENOTDIR.

        It has its length before it has its name, as a nameless file (O_TMPFILE) that is linked.
        """
        *above, name = _parts(path)
        directory = self._root
        for part in above:
            entry = directory.entries.get(part)
            if isinstance(entry, CachedFile):
                raise os_error(errno.ENOTDIR, path)
            if entry is None:
                entry = Directory()
                directory.bind(part, entry, next(self._serials))
            directory = entry
        file = CachedFile()
        if size_bytes:
            file.resize(size_bytes, next(self._serials))
        directory.bind(name, file, next(self._serials))
        return file

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, and take that from what had it. OSError ENOENT, ENOTDIR; EISDIR for directories."""
        old, new = _parts(source), _parts(target)
        entry = self._get(old, source)
        parent = self._directory(new[:-1], target)
        replaced = parent.entries.get(new[-1]) if new else self._root
        if isinstance(entry, Directory) or isinstance(replaced, Directory):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), source, None, target)
        if entry is not replaced:
            serial = next(self._serials)
            self._directory(old[:-1], source).bind(old[-1], None, serial)
            parent.bind(new[-1], entry, serial)

    def remove(self, path: str) -> None:
        """Take a file's name away. OSError ENOENT, ENOTDIR or EISDIR."""
        parts = _parts(path)
        if isinstance(self._get(parts, path), Directory):
            raise os_error(errno.EISDIR, path)
        self._directory(parts[:-1], path).bind(parts[-1], None, next(self._serials))

    def remove_directory(self, path: str) -> None:
        """Take an empty directory's name away. OSError ENOENT, ENOTDIR, ENOTEMPTY; EBUSY for the root."""
        parts = _parts(path)
        if not parts:
            raise os_error(errno.EBUSY, path)
        if self._directory(parts, path).entries:
            raise os_error(errno.ENOTEMPTY, path)
        self._directory(parts[:-1], path).bind(parts[-1], None, next(self._serials))

    def files(self) -> list[tuple[str, CachedFile]]:
        """Every file and its path. After a power loss a file that was renamed may have two."""
        return [(path, entry) for path, entry in _walk(self._root, "") if isinstance(entry, CachedFile)]

    def serials(self) -> list[int]:
        """The serial numbers of all changes that a power loss may undo, of names and of bytes, oldest first."""
        serials = set(self._root.serials())
        for _, entry in _walk(self._root, "", with_lost=True):
            serials.update(entry.serials())
        return sorted(serials)

    def keep(self, survives: Callable[[int], bool]) -> list[str]:
        """Power is lost: leave the names that survive. The paths at which something else is now."""
        return list(self._keep(self._root, "", survives))

    def _keep(self, directory: Directory, path: str, survives: Callable[[int], bool]) -> Iterator[str]:
        yield from (_join(path, name) for name in directory.keep(survives))
        for name, entry in list(directory.entries.items()):
            if isinstance(entry, Directory):
                yield from self._keep(entry, _join(path, name), survives)

    def _find(self, parts: Sequence[str], path: str) -> Entry | None:
        entry: Entry | None = self._root
        for part in parts:
            if isinstance(entry, CachedFile):
                raise os_error(errno.ENOTDIR, path)
            if entry is None:
                return None
            entry = entry.entries.get(part)
        return entry

    def _get(self, parts: Sequence[str], path: str) -> Entry:
        entry = self._find(parts, path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        return entry

    def _directory(self, parts: Sequence[str], path: str) -> Directory:
        entry = self._get(parts, path)
        if isinstance(entry, CachedFile):
            raise os_error(errno.ENOTDIR, path)
        return entry


def os_error(number: int, path: str) -> OSError:
    """The OSError, of the right subclass, that says what Linux would."""
    return OSError(number, os.strerror(number), path)


def _walk(directory: Directory, path: str, *, with_lost: bool = False) -> Iterator[tuple[str, Entry]]:
    """Everything below a directory, with its path; `with_lost`, also what was there when it was last durable."""
    for name, entry in directory.all_entries() if with_lost else directory.entries.items():
        here = _join(path, name)
        yield here, entry
        if isinstance(entry, Directory):
            yield from _walk(entry, here, with_lost=with_lost)


@functools.lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """The names on the way from the root. ValueError for a path that leads out of it, OSError for too long a name."""
    if path.startswith("/"):
        raise ValueError(f"a path on a simulated disk is relative to its root: {path!r}")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError(f"a path on a simulated disk has no '..': {path!r}")
    if any(len(part.encode()) > _NAME_MAX_BYTES for part in parts):
        raise os_error(errno.ENAMETOOLONG, path)
    return parts


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
