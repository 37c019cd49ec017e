"""The room on a disk of limited capacity. As on Linux, holes take none, and a page once written keeps its place.

The space of a removed file is free once nobody has it open any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sim_net.disk.page_cache import PAGE_BYTES, CachedFile


class SimDiskUsage(NamedTuple):
    """How full a disk is."""

    used_bytes: int
    available_bytes: int


class DiskSpace:
    """Counts pages. `files` gives every file that takes space."""

    def __init__(self, capacity_bytes: int, files: Callable[[], Iterable[CachedFile]]) -> None:
        self.capacity_bytes = capacity_bytes
        self._files = files
        self._pages: dict[CachedFile, set[int]] = {}
        self._used_bytes = 0
        self.count()

    def count(self) -> int:
        """Count again what is used, in bytes: files may be gone."""
        self._pages = {file: self._pages_of(file) for file in self._files()}
        self._used_bytes = sum(len(pages) for pages in self._pages.values()) * PAGE_BYTES
        return self._used_bytes

    def take(self, file: CachedFile, offset: int, end: int) -> int:
        """Make room for a write; the offset up to which there is room, `end` if for all."""
        pages = self._pages.setdefault(file, set())
        new = [page for page in range(offset // PAGE_BYTES, -(-end // PAGE_BYTES)) if page not in pages]
        room = self._room()
        if room < len(new):
            self.count()
            pages, room = self._pages.setdefault(file, pages), self._room()
        taken = new[:room]
        pages.update(taken)
        self._used_bytes += len(taken) * PAGE_BYTES
        return end if len(taken) == len(new) else max(offset, new[room] * PAGE_BYTES)

    def cut(self, file: CachedFile) -> None:
        """The file was truncated: give back what is past its end."""
        pages = self._pages.get(file)
        if pages is not None:
            kept = {page for page in pages if page * PAGE_BYTES < file.size}
            self._used_bytes -= (len(pages) - len(kept)) * PAGE_BYTES
            self._pages[file] = kept

    def _room(self) -> int:
        return max(0, self.capacity_bytes - self._used_bytes) // PAGE_BYTES

    def _pages_of(self, file: CachedFile) -> set[int]:
        pages = self._pages.get(file)
        return file.written_pages() if pages is None else pages


class Capacity:
    """How much fits on a disk: what its owner says, or less while faults fill it up."""

    def __init__(self, owners_bytes: int | None, files: Callable[[], Iterable[CachedFile]]) -> None:
        self._files = files
        self._owners_bytes = owners_bytes
        self._limits: list[int] = []
        #: What was used when a program last asked, and what was so then.
        self._usage: tuple[object, int] | None = None
        #: The count of used pages; None while there is no bound.
        self.space: DiskSpace | None = None
        self._bound()

    @property
    def owners_bytes(self) -> int | None:
        """How much fits while no fault is at work; None for no bound. May be set to less than is used."""
        return self._owners_bytes

    @owners_bytes.setter
    def owners_bytes(self, owners_bytes: int | None) -> None:
        self._owners_bytes = owners_bytes
        self._bound()

    @property
    def used_bytes(self) -> int:
        """How much is used: the pages that were written."""
        space = self.space or DiskSpace(0, self._files)
        return space.count()

    def usage(self, situation: object, unchanged_since: object) -> SimDiskUsage:
        """How full the disk is; counted again unless the last time was in the situation `unchanged_since`."""
        if self._usage is not None and self._usage[0] == unchanged_since:
            used_bytes = self._usage[1]
        else:
            used_bytes = self.used_bytes
        self._usage = situation, used_bytes
        available_bytes = 1 << 62 if self.space is None else max(0, self.space.capacity_bytes - used_bytes)
        return SimDiskUsage(used_bytes, available_bytes)

    def count_again(self) -> None:
        """What is used may be another amount than it was, although no program has changed anything."""
        self._usage = None

    def fill_up(self, free_bytes: int) -> Callable[[], None]:
        """Let no more than `free_bytes` fit beside what is used now; what is returned undoes it."""
        limit = self.used_bytes + free_bytes
        self._limits.append(limit)
        self._bound()

        def undo() -> None:
            if limit in self._limits:
                self._limits.remove(limit)
                self._bound()

        return undo

    def end_faults(self) -> None:
        """Undo every `fill_up`."""
        self._limits.clear()
        self._bound()

    def _bound(self) -> None:
        self._usage = None
        bounds = [*self._limits, *(() if self._owners_bytes is None else (self._owners_bytes,))]
        if not bounds:
            self.space = None
        elif self.space is None:
            self.space = DiskSpace(min(bounds), self._files)
        else:
            self.space.capacity_bytes = min(bounds)
