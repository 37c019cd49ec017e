"""A file's bytes, apart from its names: the page cache, and what of it would be left after a power loss.

Readers see the cache. Beside it stands a list of the changes that no sync has made durable, each with the bytes that it
replaced: undoing them, newest first, gives the durable file. So a write costs one copy of what it overwrites, a sync
drops the front of the list, and memory goes with what is un-synced, not with the length of the file.

On a power loss the bytes of each sector become one of the versions that they had since they were last durable. A system
that writes pages back whenever it likes can leave nothing else behind, so writing back needs no events of its own.
"""

from __future__ import annotations

import bisect
import mmap
import operator
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sim_net.kernel.entropy import derive

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
_MAPPED_FROM_BYTES: Final = 1 << 20
#: What a change costs in memory apart from its bytes.
_CHANGE_BYTES: Final = 100
_ZERO_PAGE: Final = bytes(PAGE_BYTES)

#: The serial number of a change, its offset, the bytes there before it, and the file's length before it.
Change = tuple[int, int, bytes, int]


class Loss(NamedTuple):
    """What a power loss did to a file: bytes of the sectors that are not as in the cache, pages torn, length lost."""

    size: int
    torn_pages: int
    length: bool


class Survival:
    """How much outlives the power loss called `name`: at times nothing or everything, mostly a part."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = derive(seed, name)
        self._mood = self._random.choice(("nothing", "everything", "some", "some", "some", "some", "some", "some"))

    def version(self, newest: int) -> int:
        """One of the versions 0 (durable) to `newest` (cached)."""
        if self._mood == "nothing":
            return 0
        if self._mood == "everything":
            return newest
        return self._random.choice((0, newest, self._random.randint(0, newest)))

    def newer(self, version: int, newest: int) -> int:
        """`version`; or, if the page is torn between two, the newer one, of which some sectors were written."""
        if version == newest or self._mood != "some" or self._random.random() < 3 / 4:
            return version
        return self._random.randint(version + 1, newest)

    def keeps_sector(self) -> bool:
        """Whether a sector of a torn page is of the newer version."""
        return self._random.random() < 1 / 2

    def end_of_torn(self, edges: Sequence[int]) -> int:
        """At which of several edges a torn write ends."""
        return self._random.choice(edges)


class CachedFile:
    """The bytes of one file. Each change needs a serial number, which grows over the whole disk."""

    __slots__ = ("_buffer", "_unsynced", "_untrusted", "size", "unsynced_bytes", "written_end")

    def __init__(self) -> None:
        #: Zeros beyond `size`; may be longer. It moves only to grow, so that mappings stay readable.
        self._buffer = _zeros(0)
        self.size = 0
        #: Nothing but zeros is after this offset.
        self.written_end = 0
        #: About how much memory the un-synced changes take.
        self.unsynced_bytes = 0
        self._unsynced: list[Change] = []
        #: Pages that a failed sync left clean: their durable bytes, by page. A later sync will not write them.
        self._untrusted: dict[int, bytes] = {}

    # --- what readers and writers see -------------------------------------------------------------------------------

    def view(self) -> memoryview:
        """The whole file, read-only. It sees later writes, until the file grows."""
        return self._buffer[: self.size].toreadonly()

    def write(self, offset: int, data: memoryview, serial: int) -> None:
        """Put bytes into the cache; the file grows if need be."""
        end = offset + len(data)
        size = self.size
        if end > self.written_end:
            self.written_end = end
            if end > size:
                self._grow(end)
        buffer = self._buffer
        if self._untrusted:
            begin, old = self._replaced(offset, end)
        else:
            begin, old = offset, buffer[offset:end].tobytes()
        self._unsynced.append((serial, begin, old, size))
        self.unsynced_bytes += len(old) + _CHANGE_BYTES
        buffer[offset:end] = data

    def resize(self, size: int, serial: int) -> None:
        """Set the length: a shorter file loses its end, a longer one gets zeros."""
        before = self.size
        # The bytes cut off become zeros in the cache, and come back if the new length is lost. The page in which the
        # file ends then is dirty.
        end = max(size, self.written_end, min(before, -(-size // PAGE_BYTES) * PAGE_BYTES))
        begin, old = self._replaced(size, end) if size < before else (size, b"")
        self._unsynced.append((serial, begin, old, before))
        self.unsynced_bytes += len(old) + _CHANGE_BYTES
        self._buffer[size:end] = bytes(end - size)
        self.written_end = min(self.written_end, size)
        if size > before:
            self._grow(size)
        self.size = size

    # --- syncs ------------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """The serial number of the last change so far: what a sync that begins now must make durable."""
        return self._unsynced[-1][0] if self._unsynced else 0

    def settle(self, mark: int) -> None:
        """Everything up to the mark is durable."""
        count = self._count_up_to(mark)
        if count:
            del self._unsynced[:count]
            self._count_bytes()

    def fail_sync(self, mark: int) -> None:
        """A sync of everything up to the mark has failed: those pages are clean from now on, and not durable.

        This is what Linux does ("fsyncgate"): the next sync finds nothing to write and succeeds. A page that was
        written again after the mark is dirty still; a length that was lost is tried again.
        """
        count = self._count_up_to(mark)
        if not count:
            return
        failed, later = self._unsynced[:count], self._unsynced[count:]
        sizes = [change[3] for change in self._unsynced] + [self.size]
        kept: list[Change] = [
            (serial, offset, b"", size)
            for (serial, offset, _, size), size_after in zip(failed, sizes[1:], strict=False)
            if size != size_after
        ]
        dirty = _pages(later)
        for page, durable in self._durable_pages(_pages(failed)).items():
            if page in dirty:
                kept.append((failed[-1][0], page * PAGE_BYTES, durable, sizes[count]))
            else:
                self._untrusted[page] = durable
        self._unsynced = kept + later
        self._count_bytes()

    # --- the disk's own faults --------------------------------------------------------------------------------------

    def flip(self, offset: int, mask: int) -> None:
        """Rot: flip bits of a durable byte. Readers see it unless the page is dirty; writing that page mends it."""
        page = offset // PAGE_BYTES
        untrusted = self._untrusted.get(page)
        if untrusted is not None:
            rotten = bytearray(untrusted)
            rotten[offset % PAGE_BYTES] ^= mask
            self._untrusted[page] = bytes(rotten)
        elif page in _pages(self._unsynced):
            self._flip_under_change(page, offset, mask)
        else:
            self._buffer[offset] ^= mask

    # --- power loss -------------------------------------------------------------------------------------------------

    def serials(self) -> Iterable[int]:
        """The serial numbers of the un-synced changes, oldest first."""
        return (change[0] for change in self._unsynced)

    def keep_any(self, survival: Survival) -> Loss:
        """Power is lost: each page ends as a version that it had, or torn between two. The cache is durable then."""
        pages = {page: self._page(page) for page in sorted({*_pages(self._unsynced), *self._untrusted})}
        size, changes = self.size, self._rewind()
        sizes = list(dict.fromkeys([self.size, *(change[3] for change in changes)]))
        self.size = sizes[survival.version(len(sizes) - 1)]
        by_page: dict[int, list[Change]] = {}
        for change in changes:
            for page in _pages([change]):
                by_page.setdefault(page, []).append(change)
        torn_pages = 0
        for page in sorted(by_page):
            versions = by_page[page]
            kept = survival.version(len(versions))
            for change in versions[:kept]:
                self._redo(change, page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            newer = survival.newer(kept, len(versions))
            if newer > kept:
                torn_pages += self._tear(page, versions[kept:newer], survival)
        return self._lost(pages, size, torn_pages)

    def keep_prefix(self, survival: Survival, cut: float) -> Loss:
        """Power is lost: changes before serial `cut` survive, and a part of that one. The cache is durable then."""
        pages = {page: self._page(page) for page in sorted({*_pages(self._unsynced), *self._untrusted})}
        size, changes = self.size, self._rewind()
        torn_pages = 0
        for change in changes:
            serial, offset, data, size_after = change
            if serial < cut:
                self._redo(change, offset, offset + len(data))
                self.size = size_after
            elif serial == cut:
                edges = range(offset - offset % SECTOR_BYTES, offset + len(data), SECTOR_BYTES)
                end = survival.end_of_torn(edges) if edges else offset
                if end > offset:
                    self._redo(change, offset, end)
                    self.size = size_after
                    torn_pages += 1
        return self._lost(pages, size, torn_pages)

    # --- below ------------------------------------------------------------------------------------------------------

    def written_pages(self) -> set[int]:
        """The pages that hold anything but zeros."""
        used = range(-(-self.written_end // PAGE_BYTES))
        return {page for page in used if (held := self._page(page)) != _ZERO_PAGE[: len(held)]}

    def _page(self, page: int) -> bytes:
        return self._buffer[page * PAGE_BYTES : (page + 1) * PAGE_BYTES].tobytes()

    def _grow(self, size: int) -> None:
        capacity = len(self._buffer)
        if size > capacity:
            buffer = _zeros(max(size, 2 * capacity))
            kept = min(self.written_end, capacity)
            buffer[:kept] = self._buffer[:kept]
            self._buffer = buffer
        self.size = size

    def _replaced(self, offset: int, end: int) -> tuple[int, bytes]:
        """Where a change of bytes begins, and what it replaces on the disk.

        An untrusted page that it touches is dirty again, and will be written whole: the change begins and ends with it.
        """
        pages = [page for page in _touched(offset, end - offset) if page in self._untrusted]
        if not pages:
            return offset, self._buffer[offset:end].tobytes()
        begin = min(offset, pages[0] * PAGE_BYTES)
        old = bytearray(self._buffer[begin : max(end, (pages[-1] + 1) * PAGE_BYTES)])
        for page in pages:
            durable = self._untrusted.pop(page)
            start = page * PAGE_BYTES - begin
            old[start : start + len(durable)] = durable
        return begin, bytes(old)

    def _flip_under_change(self, page: int, offset: int, mask: int) -> None:
        """Flip bits below the oldest change of a page, as if that had found them so, and had written that byte too."""
        page_start = page * PAGE_BYTES
        rotten = bytearray(self._durable_pages([page])[page])
        rotten[offset - page_start] ^= mask
        index = next(index for index, change in enumerate(self._unsynced) if page in _pages([change]))
        serial, begin, old, size = self._unsynced[index]
        first, end = min(begin, offset), max(begin + len(old), offset + 1)
        found = bytearray(end - first)
        found[begin - first : begin - first + len(old)] = old
        low, high = max(first, page_start), min(end, page_start + PAGE_BYTES)
        found[low - first : high - first] = rotten[low - page_start : high - page_start]
        self._unsynced[index] = (serial, first, bytes(found), size)

    def _count_up_to(self, mark: int) -> int:
        return bisect.bisect_right(self._unsynced, mark, key=operator.itemgetter(0))

    def _count_bytes(self) -> None:
        self.unsynced_bytes = sum(len(change[2]) + _CHANGE_BYTES for change in self._unsynced)

    def _durable_pages(self, pages: Iterable[int]) -> dict[int, bytes]:
        """What pages hold without the un-synced changes."""
        durable = {page: bytearray(self._page(page)) for page in pages}
        for change in reversed(self._unsynced):
            _, offset, old, _ = change
            for page in _pages([change]):
                if page in durable:
                    start = page * PAGE_BYTES
                    first, last = max(offset, start), min(offset + len(old), start + PAGE_BYTES)
                    durable[page][first - start : last - start] = old[first - offset : last - offset]
        return {page: bytes(held) for page, held in durable.items()}

    def _rewind(self) -> list[Change]:
        """Make the cache durable: undo all changes, and give them as they were made: new bytes, and new length."""
        buffer = self._buffer
        changes: list[Change] = []
        for serial, offset, old, size in reversed(self._unsynced):
            changes.append((serial, offset, buffer[offset : offset + len(old)].tobytes(), self.size))
            buffer[offset : offset + len(old)] = old
            if old:  # a file that only got longer was written nowhere
                self.written_end = max(self.written_end, offset + len(old))
            self.size = size
        for page, durable in self._untrusted.items():
            end = page * PAGE_BYTES + len(durable)
            buffer[page * PAGE_BYTES : end] = durable
            self.written_end = max(self.written_end, end)
        self._unsynced = []
        self.unsynced_bytes = 0
        self._untrusted = {}
        changes.reverse()
        return changes

    def _redo(self, change: Change, begin: int, end: int) -> None:
        """Make the part of a change again that is between two offsets."""
        _, offset, data, _ = change
        first, last = max(begin, offset), min(end, offset + len(data))
        if first < last:
            self._buffer[first:last] = data[first - offset : last - offset]

    def _tear(self, page: int, changes: Sequence[Change], survival: Survival) -> int:
        """Let some sectors of a page have further changes; the number of pages torn by it."""
        start = page * PAGE_BYTES
        sectors = [
            sector
            for sector in range(start, start + PAGE_BYTES, SECTOR_BYTES)
            if any(change[1] < sector + SECTOR_BYTES and change[1] + len(change[2]) > sector for change in changes)
        ]
        kept = [sector for sector in sectors if survival.keeps_sector()]
        for sector in kept:
            for change in changes:
                self._redo(change, sector, sector + SECTOR_BYTES)
        return int(0 < len(kept) < len(sectors))

    def _lost(self, pages: dict[int, bytes], size: int, torn_pages: int) -> Loss:
        """Clear what is past the end, and compare with the pages and the length that were cached."""
        if self.size < self.written_end:
            self._buffer[self.size : self.written_end] = bytes(self.written_end - self.size)
            self.written_end = self.size
        lost = 0
        for page, cached in pages.items():
            now = self._page(page)
            if now != cached:
                lost += sum(
                    SECTOR_BYTES
                    for sector in range(0, PAGE_BYTES, SECTOR_BYTES)
                    if now[sector : sector + SECTOR_BYTES] != cached[sector : sector + SECTOR_BYTES]
                )
        return Loss(lost, torn_pages, self.size != size)


def _pages(changes: Iterable[Change]) -> dict[int, None]:
    """The pages that changes touch, in order."""
    return dict.fromkeys(page for change in changes for page in _touched(change[1], len(change[2])))


def _touched(offset: int, size: int) -> range:
    return range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES)) if size else range(0)


def _zeros(size: int) -> memoryview:
    """A writable buffer of zeros; a large one costs memory only where it is written."""
    if size < _MAPPED_FROM_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
