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
