"""Files: names, bytes, lengths, mappings, syncs, and a disk that is full."""

from __future__ import annotations

import numpy as np
import trio

from rmq_actors.ports.disk import Disk, DiskFile
from tests.parity.arena import Seen, outcome, outcome_of
from tests.parity.disk_arena import SMALL_BYTES, DiskBody

_PAGE = 4096


def made(disk: Disk, path: str, data: bytes) -> DiskFile:
    """A new file that holds `data`."""
    file = disk.open(path, allocate_bytes=len(data))
    file.write_at(0, data)
    return file


def held(disk: Disk, path: str) -> object:
    """What a path holds: the file's bytes, or the name of the error."""
    return outcome_of(lambda: bytes(disk.open(path, read_only=True).map()))


# --- opening ----------------------------------------------------------------------------------------------------------


async def open_missing(disk: Disk) -> Seen:
    """ENOENT, in a directory that is there and in one that is not; nothing is created."""
    made(disk, "d/f", b"")
    return [
        outcome_of(disk.open, "d/missing"),
        outcome_of(disk.open, "nowhere/missing"),
        outcome_of(lambda: disk.open("missing", read_only=True)),
        disk.list("d"),
        disk.list(""),
    ]


async def open_creates(disk: Disk) -> Seen:
    """With an allocation a missing file is created as zeros, with the directories above it."""
    file = disk.open("a/b/c", allocate_bytes=5000)
    return [file.size_bytes, bytes(file.map()) == bytes(5000), disk.list("a"), disk.list("a/b"), disk.exists("a/b/c")]


async def open_existing(disk: Disk) -> Seen:
    """An existing file keeps its length and bytes, whatever is to be allocated."""
    made(disk, "f", b"data")
    file = disk.open("f", allocate_bytes=9)
    return [file.size_bytes, bytes(file.map())]


async def open_exclusive(disk: Disk) -> Seen:
    """Exclusive creation: once; then EEXIST, for directories too, and nothing is touched. ENOTDIR goes first."""
    first = outcome_of(lambda: disk.open("d/f", allocate_bytes=4, exclusive=True).size_bytes)
    return [
        first,
        outcome_of(lambda: disk.open("d/f", allocate_bytes=9, exclusive=True)),
        outcome_of(lambda: disk.open("d", allocate_bytes=9, exclusive=True)),
        outcome_of(lambda: disk.open("d/f/x", allocate_bytes=9, exclusive=True)),
        outcome_of(lambda: disk.open("g", exclusive=True)),
        held(disk, "d/f"),
    ]


async def open_directory(disk: Disk) -> Seen:
    """EISDIR, to write, to read, and to create."""
    made(disk, "d/f", b"")
    return [
        outcome_of(disk.open, "d"),
        outcome_of(lambda: disk.open("d", read_only=True)),
        outcome_of(lambda: disk.open("d", allocate_bytes=1)),
        outcome_of(disk.open, ""),
    ]


async def allocate_negative(disk: Disk) -> Seen:
    """EINVAL, and no file is left."""
    return [outcome_of(lambda: disk.open("f", allocate_bytes=-1)), disk.exists("f")]


async def file_as_directory(disk: Disk) -> Seen:
    """A path that leads through a file: ENOTDIR from every call, or no for an answer."""
    made(disk, "f", b"")
    return [
        outcome_of(disk.open, "f/x"),
        outcome_of(lambda: disk.open("f/x", allocate_bytes=1)),
        outcome_of(lambda: disk.open("f/x/y", allocate_bytes=1)),
        outcome_of(disk.remove, "f/x"),
        outcome_of(disk.rename, "f/x", "g"),
        outcome_of(disk.rename, "f", "f/x"),
        await outcome(disk.sync_directory("f/x"), within_s=5),
        disk.exists("f/x"),
        disk.list("f/x"),
    ]


async def name_too_long(disk: Disk) -> Seen:
    """255 bytes are a name, 256 are ENAMETOOLONG, and bytes count, not characters."""
    names = ("n" * 255, "n" * 256, "é" * 127, "é" * 128)
    return [outcome_of(lambda name=name: disk.open(name, allocate_bytes=1).size_bytes) for name in names]


async def path_out_of_the_root(disk: Disk) -> Seen:
    """A path that leads out of the disk is our own mistake: ValueError."""
    return [outcome_of(disk.open, path) for path in ("/etc/passwd", "../x", "d/../x")]


# --- writing ----------------------------------------------------------------------------------------------------------


async def write_past_end(disk: Disk) -> Seen:
    """The file grows; what is between reads as zeros."""
    file = made(disk, "f", b"data")
    file.write_at(5000, b"far")
    data = bytes(file.map())
    return [file.size_bytes, data[:4], data[4:5000] == bytes(4996), data[5000:]]


async def write_across_end(disk: Disk) -> Seen:
    """A write that begins within the file and ends after it."""
    file = made(disk, "f", b"data")
    file.write_at(2, b"XYZW")
    return [file.size_bytes, bytes(file.map())]


async def write_empty(disk: Disk) -> Seen:
    """Nothing written is nothing grown, even past the end."""
    file = made(disk, "f", b"data")
    file.write_at(100, b"")
    return [file.size_bytes, held(disk, "f")]


async def write_negative_offset(disk: Disk) -> Seen:
    """EINVAL, whatever the file is."""
    file = made(disk, "f", b"data")
    reader = disk.open("f", read_only=True)
    seen = [outcome_of(each.write_at, -1, data) for each in (file, reader) for data in (b"x", b"")]
    file.close()
    return [*seen, outcome_of(file.write_at, -1, b"x"), held(disk, "f")]


async def write_read_only(disk: Disk) -> Seen:
    """A file opened to be read: EBADF for a write, EINVAL for a truncation; a sync is allowed."""
    made(disk, "f", b"data")
    file = disk.open("f", read_only=True)
    return [
        outcome_of(file.write_at, 0, b"x"),
        outcome_of(file.write_at, 0, b""),
        outcome_of(file.truncate, 1),
        await outcome(file.sync(), within_s=5),
        bytes(file.map()),
    ]


async def write_large(disk: Disk) -> Seen:
    """Megabytes in one call, at an odd offset."""
    file = disk.open("f", allocate_bytes=0)
    data = bytes(range(256)) * 12_000
    file.write_at(777, data)
    return [file.size_bytes, bytes(file.map()[777:]) == data]


async def write_buffers(disk: Disk) -> Seen:
    """Bytes, a bytearray, a view of one, a view of the file itself."""
    file = made(disk, "f", b"........")
    file.write_at(0, bytearray(b"ab"))
    file.write_at(2, memoryview(bytearray(b"xcdx"))[1:3])
    file.write_at(4, file.map()[:4])
    return [bytes(file.map())]


async def write_scattered(disk: Disk) -> Seen:
    """Many integers of four bytes, at places in any order, aligned or not, twice at one, past the end."""
    file = disk.open("f", allocate_bytes=3 * _PAGE)
    seen: Seen = []
    for size, offsets in (
        (1, np.arange(0, 3 * _PAGE, 8)),
        (3, np.arange(0, 3 * _PAGE - 4, 40)[::-1]),
        (5, np.arange(1, 3 * _PAGE - 4, 11)),
        (7, np.arange(4, 3 * _PAGE, 8).repeat(2)),
        (11, np.arange(0, 0)),
        (13, np.arange(0, 4 * _PAGE, 16)),
    ):
        file.write_scattered(offsets, np.arange(len(offsets), dtype=np.int32) * size - 100)
        seen += [bytes(file.map()), file.size_bytes]
    view = file.map()
    disk.remove("f")
    file.write_scattered(np.arange(0, 3 * _PAGE, 4), np.arange(3072, dtype=np.int32))
    return [*seen, bytes(view)]


async def write_scattered_refused(disk: Disk) -> Seen:
    """EBADF for a file that is closed or read-only, EINVAL for a negative offset: those before it are written."""
    file = made(disk, "f", b"." * _PAGE)
    reader = disk.open("f", read_only=True)
    offsets, values = np.arange(0, _PAGE, 4), np.arange(1024, dtype=np.int32)
    seen = [outcome_of(reader.write_scattered, offsets, values)]
    seen += [outcome_of(file.write_scattered, np.array([8, -4, 0]), values[:3] + 1), held(disk, "f")]
    file.write_scattered(offsets, values)
    file.close()
    return [*seen, outcome_of(file.write_scattered, offsets, -values), held(disk, "f")]


async def truncate_after_write_scattered(disk: Disk) -> Seen:
    """Nothing is written past the new end."""
    file = made(disk, "f", b"." * 3 * _PAGE)
    offsets, values = np.arange(0, 2 * _PAGE, 4), np.arange(2048, dtype=np.int32)
    file.write_scattered(offsets, values)
    file.truncate(0)
    seen: Seen = [file.size_bytes]
    file.truncate(_PAGE + 2)
    file.write_scattered(offsets[:1024], values[:1024])
    seen += [file.size_bytes, bytes(file.map())]
    file.write_scattered(offsets, values)
    return [*seen, file.size_bytes, bytes(file.map())]


async def two_handles(disk: Disk) -> Seen:
    """What one handle writes, the other's mapping shows."""
    file = made(disk, "f", b"data")
    reader = disk.open("f", read_only=True)
    view = reader.map()
    file.write_at(1, b"AT")
    return [bytes(view), bytes(reader.map())]


# --- lengths ----------------------------------------------------------------------------------------------------------


async def truncate_shrinks_and_grows(disk: Disk) -> Seen:
    """A shorter file loses its end for good: longer again, it has zeros there."""
    file = made(disk, "f", b"data" * 2000)
    seen: Seen = []
    for size in (5, 3, 3, 9000, 4, 0, 2):
        file.truncate(size)
        data = bytes(file.map())
        seen += [file.size_bytes, data[:6], data[6:] == bytes(max(0, size - 6))]
    return seen


async def truncate_negative(disk: Disk) -> Seen:
    """EINVAL."""
    file = made(disk, "f", b"data")
    reader = disk.open("f", read_only=True)
    return [outcome_of(file.truncate, -1), outcome_of(reader.truncate, -1), held(disk, "f")]


async def truncate_then_write(disk: Disk) -> Seen:
    """A hole between the new end and a later write is zeros, not what was there."""
    file = made(disk, "f", b"x" * 100)
    file.truncate(10)
    file.write_at(50, b"y")
    return [bytes(file.map())]


async def huge_and_sparse(disk: Disk) -> Seen:
    """A gigabyte of zeros costs nothing, and is there."""
    file = disk.open("f", allocate_bytes=1 << 30)
    file.write_at((1 << 30) - 3, b"end")
    view = file.map()
    return [file.size_bytes, len(view), bytes(view[:5]), bytes(view[-5:])]


# --- mappings ---------------------------------------------------------------------------------------------------------


async def map_sees_writes(disk: Disk) -> Seen:
    """A mapping is not a copy."""
    file = made(disk, "f", b"data")
    view = file.map()
    file.write_at(2, b"XY")
    return [bytes(view), bytes(view[3:])]


async def map_is_read_only(disk: Disk) -> Seen:
    """Nobody writes through it."""
    view = made(disk, "f", b"data").map()

    def write() -> None:
        view[0] = 1

    return [view.readonly, outcome_of(write), len(view)]


async def map_of_nothing(disk: Disk) -> Seen:
    """An empty file has an empty mapping."""
    return [bytes(disk.open("f", allocate_bytes=0).map())]


async def map_after_growth(disk: Disk) -> Seen:
    """A new mapping shows the grown file, and later writes in all of it."""
    file = made(disk, "f", b"data")
    file.map()
    file.write_at(4096, b"more")
    view = file.map()
    file.write_at(0, b"DATA")
    file.write_at(4097, b"ORE")
    return [len(view), bytes(view[:4]), bytes(view[4096:])]


async def read_short_at_end(disk: Disk) -> Seen:
    """A read across the end gives what there is, one after it nothing."""
    view = made(disk, "f", b"data").map()
    return [bytes(view[2:10]), bytes(view[4:10]), bytes(view[100:110])]


async def map_outlives_close_and_remove(disk: Disk) -> Seen:
    """A view stays readable without the file's handle and without its name."""
    file = made(disk, "f", b"data")
    view = file.map()
    file.close()
    disk.remove("f")
    return [bytes(view)]


# --- closing ----------------------------------------------------------------------------------------------------------


async def close_twice(disk: Disk) -> Seen:
    """The second does nothing, not even to a file opened since."""
    file = made(disk, "f", b"data")
    file.close()
    other = made(disk, "g", b"data")
    file.close()
    other.write_at(0, b"DATA")
    return [held(disk, "g")]


async def use_after_close(disk: Disk) -> Seen:
    """EBADF from everything."""
    file = made(disk, "f", b"data")
    file.map()
    file.close()
    return [
        outcome_of(file.write_at, 0, b"x"),
        outcome_of(file.write_at, 0, b""),
        outcome_of(file.map),
        outcome_of(file.truncate, 1),
        await outcome(file.sync(), within_s=5),
        held(disk, "f"),
    ]


# --- names ------------------------------------------------------------------------------------------------------------


async def rename_to_new(disk: Disk) -> Seen:
    """The old name is gone; who has the file open goes on."""
    file = made(disk, "d/f", b"data")
    made(disk, "e/other", b"")
    disk.rename("d/f", "e/g")
    file.write_at(0, b"DATA")
    return [disk.list("d"), disk.list("e"), held(disk, "e/g"), disk.exists("d/f")]


async def rename_over(disk: Disk) -> Seen:
    """The file that had the name is gone for those who come; who has it open keeps it."""
    made(disk, "new", b"new")
    old = made(disk, "config", b"old")
    disk.rename("new", "config")
    old.write_at(0, b"OLD")
    return [disk.list(""), held(disk, "config"), bytes(old.map())]


async def rename_onto_itself(disk: Disk) -> Seen:
    """Nothing happens."""
    made(disk, "f", b"data")
    disk.rename("f", "f")
    return [disk.list(""), held(disk, "f")]


async def rename_missing(disk: Disk) -> Seen:
    """ENOENT, for the source and for the target's directory; the target stays."""
    made(disk, "f", b"data")
    return [
        outcome_of(disk.rename, "missing", "f"),
        outcome_of(disk.rename, "missing", "missing"),
        outcome_of(disk.rename, "nowhere/missing", "f"),
        outcome_of(disk.rename, "f", "nowhere/f"),
        held(disk, "f"),
    ]


async def rename_over_directory(disk: Disk) -> Seen:
    """EISDIR."""
    made(disk, "d/f", b"data")
    made(disk, "g", b"data")
    return [outcome_of(disk.rename, "g", "d"), disk.list("")]


async def remove_open(disk: Disk) -> Seen:
    """Who has it open goes on; the name is free for another file."""
    file = made(disk, "f", b"mine")
    disk.remove("f")
    gone = disk.exists("f")
    other = made(disk, "f", b"other")
    file.write_at(0, b"MINE!")
    synced = await outcome(file.sync(), within_s=5)
    return [gone, bytes(file.map()), bytes(other.map()), synced]


async def remove_missing(disk: Disk) -> Seen:
    """ENOENT, also the second time."""
    made(disk, "f", b"")
    return [
        outcome_of(disk.remove, "missing"),
        outcome_of(disk.remove, "nowhere/missing"),
        outcome_of(disk.remove, "f"),
        outcome_of(disk.remove, "f"),
    ]


async def remove_directory(disk: Disk) -> Seen:
    """EISDIR."""
    made(disk, "d/f", b"")
    return [outcome_of(disk.remove, "d"), disk.exists("d/f")]


async def remove_empty_directory(disk: Disk) -> Seen:
    """An empty directory goes, and its name is free for a file; ENOTEMPTY, ENOTDIR, ENOENT, and EBUSY for the root."""
    made(disk, "d/e/f", b"")
    seen = [outcome_of(disk.remove_directory, path) for path in ("d/e", "d", "d/e/f", "d/e/f/x", "missing", "no/where")]
    disk.remove("d/e/f")
    seen += [outcome_of(disk.remove_directory, path) for path in ("d/e", "d/e", "d", "", "../x")]
    made(disk, "d", b"now a file")
    return [*seen, disk.list(""), held(disk, "d"), await outcome(disk.sync_directory(""), within_s=5)]


async def list_order(disk: Disk) -> Seen:
    """Sorted by code point, directories among the files, no deeper."""
    for path in ("b", "a", "10", "2", "B", "é", "sub/x", "sub/deeper/y"):
        made(disk, path, b"")
    return [disk.list(""), disk.list("sub"), disk.list("sub/")]


async def list_missing(disk: Disk) -> Seen:
    """Empty, and so is what a file lists."""
    made(disk, "f", b"")
    return [disk.list("missing"), disk.list("no/where"), disk.list("f")]


async def exists(disk: Disk) -> Seen:
    """Of files and directories, and of nothing."""
    made(disk, "d/f", b"")
    return [disk.exists(path) for path in ("", "d", "d/", "d/f", "d/g", "g", "g/h")]


# --- syncs ------------------------------------------------------------------------------------------------------------


async def sync_directory(disk: Disk) -> Seen:
    """Of the root, and of directories below; of none ENOENT, of a file ENOTDIR."""
    made(disk, "d/e/f", b"")
    return [await outcome(disk.sync_directory(path), within_s=5) for path in ("", "d", "d/e", "missing", "d/e/f")]


async def sync_many(disk: Disk) -> Seen:
    """Files and directories together: one that is closed is left out, a directory that is missing is ENOENT."""
    files = [made(disk, f"d/{number}", b"data") for number in range(20)]
    files[3].close()
    return [
        await outcome(disk.sync_files(files), within_s=5),
        await outcome(disk.sync_files([]), within_s=5),
        await outcome(disk.sync_directories(["", "d"]), within_s=5),
        await outcome(disk.sync_directories(["d", "missing"]), within_s=5),
    ]


async def sync_cancelled(disk: Disk) -> Seen:
    """Cancelled before, it does not begin; once it waits it cannot be cancelled."""
    file = made(disk, "f", b"data")
    seen: Seen = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await file.sync()
        seen.append("synced")
    seen.append(scope.cancelled_caught)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_soon, scope)
            await file.sync()
            seen.append("synced")
    return seen


async def _cancel_soon(scope: trio.CancelScope) -> None:
    scope.cancel()


# --- locks ------------------------------------------------------------------------------------------------------------


async def lock_once(disk: Disk) -> Seen:
    """One holder at a time, also within a process; the file says `lock`, and is there with its directories."""
    lock = disk.lock("store/lock")
    seen = [outcome_of(disk.lock, "store/lock"), held(disk, "store/lock"), disk.list("store")]
    lock.close()
    lock.close()
    again = disk.lock("store/lock")
    seen.append(outcome_of(disk.lock, "store/lock"))
    lock.close()
    seen.append(outcome_of(disk.lock, "store/lock"))
    again.close()
    disk.lock("store/lock").close()
    return seen


async def lock_of_an_empty_directory(disk: Disk) -> Seen:
    """EISDIR, and the directory stays."""
    made(disk, "d/f", b"")
    disk.remove("d/f")
    seen: Seen = [outcome_of(disk.lock, "d"), disk.exists("d"), disk.list("d")]
    made(disk, "d/g", b"")
    return [*seen, disk.list("d")]


async def lock_outlives_other_handles(disk: Disk) -> Seen:
    """To open and close the locked file does not release it; two files have two locks."""
    lock = disk.lock("lock")
    disk.open("lock").close()
    other = disk.lock("other")
    seen: Seen = [outcome_of(disk.lock, "lock"), outcome_of(disk.lock, "other")]
    lock.close()
    other.close()
    return seen


async def lock_of_what_is_there(disk: Disk) -> Seen:
    """What a file holds is kept, an empty one gets its bytes; a directory is EISDIR, a way through a file ENOTDIR."""
    made(disk, "full", b"something else")
    made(disk, "empty", b"")
    for path in ("full", "empty"):
        disk.lock(path).close()
    made(disk, "d/f", b"")
    return [held(disk, "full"), held(disk, "empty"), outcome_of(disk.lock, "d"), outcome_of(disk.lock, "d/f/x")]


async def lock_is_of_the_file(disk: Disk) -> Seen:
    """Not of its name: once the file is removed, another of that name can be locked."""
    lock = disk.lock("lock")
    disk.remove("lock")
    other = disk.lock("lock")
    seen: Seen = [outcome_of(disk.lock, "lock"), held(disk, "lock")]
    lock.close()
    other.close()
    return seen


# --- a full disk ------------------------------------------------------------------------------------------------------


async def full(disk: Disk) -> Seen:
    """ENOSPC for the page that does not fit; what fits was written, and written pages can be written again."""
    file = disk.open("f", allocate_bytes=2 * SMALL_BYTES)
    file.write_at(0, b"a" * (SMALL_BYTES - _PAGE))
    seen = [outcome_of(file.write_at, SMALL_BYTES - _PAGE - 1, b"b" * 3 * _PAGE)]
    view = file.map()
    seen += [bytes(view[SMALL_BYTES - _PAGE - 2 : SMALL_BYTES - _PAGE + 2]), bytes(view[SMALL_BYTES - 3 : SMALL_BYTES])]
    seen += [outcome_of(file.write_at, SMALL_BYTES, b"c"), outcome_of(file.write_at, 10, b"again")]
    return [*seen, bytes(view[8:17]), file.size_bytes]


async def full_and_scattered(disk: Disk) -> Seen:
    """ENOSPC, not a dead process; what stands before it is written. What has its place can be written again."""
    file = disk.open("f", allocate_bytes=2 * SMALL_BYTES)
    view = file.map()[:SMALL_BYTES]  # to read a hole takes a page of a tmpfs
    offsets = np.arange(0, 2 * SMALL_BYTES, 64)
    values = np.arange(1, len(offsets) + 1, dtype=np.int32)
    seen = [outcome_of(file.write_scattered, offsets, values), bytes(view)]
    seen += [outcome_of(file.write_scattered, offsets, -values), bytes(view)]
    half = len(offsets) // 2
    file.write_scattered(offsets[:half], values[half:])
    return [*seen, bytes(view)]


async def full_while_growing(disk: Disk) -> Seen:
    """A file that grows gets as long as there was room."""
    made(disk, "other", b"x" * (SMALL_BYTES - 2 * _PAGE))
    file = made(disk, "f", b"data")
    seen = [outcome_of(file.write_at, 4, b"y" * 3 * _PAGE), file.size_bytes, disk.open("f").size_bytes]
    return [*seen, outcome_of(file.write_at, file.size_bytes, b"z"), file.size_bytes]


async def full_and_sparse(disk: Disk) -> Seen:
    """Holes take no room: a file may be longer than its disk, and be made on a full one."""
    made(disk, "f", b"x" * SMALL_BYTES)
    file = disk.open("sparse", allocate_bytes=1 << 30)
    file.truncate(1 << 31)
    return [file.size_bytes, outcome_of(file.write_at, 1 << 20, b"x")]


async def room_by_truncating(disk: Disk) -> Seen:
    """A truncation gives whole pages back."""
    file = made(disk, "f", b"x" * SMALL_BYTES)
    other = disk.open("other", allocate_bytes=SMALL_BYTES)
    seen = [outcome_of(other.write_at, 0, b"y")]
    file.truncate(SMALL_BYTES - _PAGE + 1)
    seen.append(outcome_of(other.write_at, 0, b"y"))
    file.truncate(SMALL_BYTES - _PAGE)
    return [*seen, outcome_of(other.write_at, 0, b"y"), outcome_of(other.write_at, _PAGE, b"y")]


async def room_by_removing(disk: Disk) -> Seen:
    """A removed file gives its room back when the last who has it open closes it; one that is replaced too."""
    file = made(disk, "f", b"x" * (SMALL_BYTES - _PAGE))
    made(disk, "new", b"").close()
    other = disk.open("other", allocate_bytes=SMALL_BYTES)
    other.write_at(0, b"y")
    disk.remove("f")
    seen = [outcome_of(other.write_at, _PAGE, b"y")]
    file.close()
    seen.append(outcome_of(other.write_at, 0, b"z" * SMALL_BYTES))
    disk.rename("new", "other")
    again = disk.open("again", allocate_bytes=_PAGE)
    seen.append(outcome_of(again.write_at, 0, b"y"))
    other.close()
    return [*seen, outcome_of(again.write_at, 0, b"y")]


async def usage(disk: Disk) -> Seen:
    """What is used and what is available add up to the disk; holes and names take nothing, a page takes a page."""
    before = disk.usage()
    file = disk.open("f", allocate_bytes=SMALL_BYTES)
    sparse = disk.usage()
    file.write_at(_PAGE - 1, b"ab")
    written = disk.usage()
    seen: Seen = [
        (each.used_bytes - before.used_bytes, each.used_bytes + each.available_bytes) for each in (sparse, written)
    ]
    disk.remove("f")
    file.close()
    return [*seen, disk.usage().used_bytes - before.used_bytes]


CASES: tuple[DiskBody, ...] = (
    open_missing,
    open_creates,
    open_existing,
    open_exclusive,
    open_directory,
    allocate_negative,
    file_as_directory,
    name_too_long,
    path_out_of_the_root,
    write_past_end,
    write_across_end,
    write_empty,
    write_negative_offset,
    write_read_only,
    write_large,
    write_buffers,
    write_scattered,
    write_scattered_refused,
    two_handles,
    truncate_shrinks_and_grows,
    truncate_after_write_scattered,
    truncate_negative,
    truncate_then_write,
    huge_and_sparse,
    map_sees_writes,
    map_is_read_only,
    map_of_nothing,
    map_after_growth,
    read_short_at_end,
    map_outlives_close_and_remove,
    close_twice,
    use_after_close,
    rename_to_new,
    rename_over,
    rename_onto_itself,
    rename_missing,
    rename_over_directory,
    remove_open,
    remove_missing,
    remove_directory,
    remove_empty_directory,
    list_order,
    list_missing,
    exists,
    sync_directory,
    sync_many,
    sync_cancelled,
    lock_once,
    lock_of_an_empty_directory,
    lock_outlives_other_handles,
    lock_of_what_is_there,
    lock_is_of_the_file,
)
#: On a disk of `SMALL_BYTES`.
SMALL_DISK_CASES: tuple[DiskBody, ...] = (
    full,
    full_and_scattered,
    full_while_growing,
    full_and_sparse,
    room_by_truncating,
    room_by_removing,
    usage,
)
