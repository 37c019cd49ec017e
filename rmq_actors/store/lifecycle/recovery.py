"""Finding the end of a log after a stop or a crash, and bringing what is derived from it to that end.

What stands before the recovery point is trusted and not read. After it a crash may have left anything: the log ends
where the first record is not whole, and whatever follows is zeroed. After an orderly stop nothing can be torn: a bad
record with good ones after it is damage then, and this store refuses to open where RocketMQ deletes all that follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from rmq_actors.ports.disk import SECTOR_BYTES, Disk, DiskFile
from rmq_actors.store.dispatch.dispatch_while_room import NO_ROOM
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.files.layout import CHECKPOINT_FILE, CUT_DIRECTORY, file_name
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.files.store_checkpoint import Checkpoint, RecoveryPoint
from rmq_actors.store.log.log_walk import DamagedLog, LogEnd, LogWalk
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_CHUNK_BYTES = 1024 * 1024
#: After an orderly stop of RocketMQ, as many files are read again as it reads (CommitLog.recoverNormally).
_FILES_READ_AGAIN = 3


@attrs.frozen
class RecoveryPlan:
    """Where recovery begins to read, and what it may believe.

    `durable_to`: what is derived from the log is right for every record before it. None after an orderly stop of
    RocketMQ, which has dispatched everything: then it is the log's end, wherever that is.
    """

    read_from: int
    durable_to: int | None
    #: Whether a torn tail is expected, or everything must be whole.
    after_crash: bool
    #: Whether this store's own recovery point says so: RocketMQ's time stamps may run ahead of the disk (#678).
    is_trusted: bool
    #: What the choice was made by: for the log, the trace and `store advise`.
    reason: str
    #: Nothing of the log was ever synced, and its beginning is lost: no file stays.
    drops_log: bool = False


def plan_recovery(queue: MappedFileQueue, checkpoint: Checkpoint, *, after_crash: bool) -> RecoveryPlan:
    """Decide from the files and the checkpoint alone. `after_crash`: the file `abort` is there. Changes nothing.

    Raises `DamagedLog` where files are missing at the end of a log that was stopped in order, or all of a log of which
    something was synced: its disk is not there, say. A log lacks nothing if none of its records was ever synced.
    """
    point = checkpoint.recovery_point
    begin = queue.min_offset
    # A crash may take what was not synced, and a power cut a part of a file; never all files of a log. A slave's start
    # removes the only file of a log that begins late and holds nothing: a crash may leave no file of it.
    may_end_early = checkpoint.is_of_an_empty_log or (after_crash and bool(queue.files))
    if point is not None and point.offset > queue.max_offset and not checkpoint.is_overtaken and not may_end_early:
        raise DamagedLog(_why_it_ends_early(queue, point))
    if point is not None and point.offset < begin and after_crash and checkpoint.is_before_first_sync:
        # Only a power loss takes a first file that nobody has synced; cleaning never reaches the recovery point, but
        # RocketMQ's knows of none.
        return RecoveryPlan(0, 0, True, True, "the log's first file is lost, nothing was synced", drops_log=True)
    if point is not None and begin <= point.offset <= queue.max_offset and _names_a_record(queue, checkpoint):
        return RecoveryPlan(point.offset, point.offset, after_crash, True, "the checkpoint's recovery point")
    if after_crash or point is not None:
        at_ms = checkpoint.min_timestamp_index_ms
        offset = _file_before(queue, at_ms)
        why = "no recovery point" if point is None else f"the recovery point {point.offset} is not of this log"
        why += ": the file that the checkpoint's time stamps lead to" if at_ms else ", no time stamps: all of the log"
        return RecoveryPlan(offset, offset, after_crash, False, why)
    first = queue.files[-_FILES_READ_AGAIN:]
    if not first:
        return RecoveryPlan(begin, None, False, False, "there is no log yet")
    why = "an orderly stop of RocketMQ: the last files are read again"
    return RecoveryPlan(first[0].from_offset, None, False, False, why)


def _why_it_ends_early(queue: MappedFileQueue, point: RecoveryPoint) -> str:
    """That files are missing, which no crash has taken: to go on would give their queue offsets again."""
    size_bytes = point.file_size_bytes
    newest = (point.offset - 1) // size_bytes * size_bytes
    first = queue.max_offset if queue.files else newest
    missing = f"{queue.directory}/{file_name(first)}"
    if first < newest:
        missing += f" to {file_name(newest)}"
    has = f"the log ends at offset {queue.max_offset}" if queue.files else "the log has no file"
    return (
        f"{missing}: missing. The store had a log up to offset {point.offset} when it was stopped or synced last, "
        f"as {CHECKPOINT_FILE} says, and {has}. Put back what is missing; or, at a slave, move the store's directory "
        f"away: it gets everything from its master. Without {CHECKPOINT_FILE} the store opens and those messages are "
        "lost: their queue offsets are given again"
    )


def _names_a_record(queue: MappedFileQueue, checkpoint: Checkpoint) -> bool:
    point = checkpoint.recovery_point
    assert point is not None
    if point.offset == queue.min_offset or not point.record_size:
        return point.offset == queue.min_offset
    mapped_file = queue.find(point.record_offset)
    if mapped_file is None:
        return False
    found = read_dispatch_request(
        mapped_file.whole(), point.record_offset - mapped_file.from_offset, point.record_offset
    )
    return (
        isinstance(found, DispatchRequest)
        and found.msg_size == point.record_size
        and found.store_timestamp_ms == point.record_store_timestamp_ms
    )


def _file_before(queue: MappedFileQueue, timestamp_ms: int) -> int:
    """The begin of the last file whose first record was stored by then (CommitLog.isMappedFileMatchedRecover)."""
    for mapped_file in reversed(queue.files):
        first = read_dispatch_request(mapped_file.whole(), 0, mapped_file.from_offset, check_crc=False)
        if isinstance(first, DispatchRequest) and 0 < first.store_timestamp_ms <= timestamp_ms:
            return mapped_file.from_offset
    return queue.min_offset


async def write_again(queue: MappedFileQueue, begin: int, end: int) -> None:
    """Write the log's bytes over themselves, and the zeros after `end`, which is the log's end.

    Where a sync has failed the system may call pages clean that no disk has: the next sync writes them then. Raises
    `OSError`, but for holes that a full disk has no room for.
    """
    while begin < end:
        mapped_file = queue.find(begin)
        assert mapped_file is not None
        position = begin - mapped_file.from_offset
        size = min(_CHUNK_BYTES, end - begin, mapped_file.size_bytes - position)
        _write_again(mapped_file.file, position, bytes(mapped_file.whole()[position : position + size]))
        begin += size
        await trio.lowlevel.checkpoint()
    for last in queue.files[-1:]:
        written = min(last.size_bytes, last.file.written_end())
        for position in range(end - last.from_offset, written, _CHUNK_BYTES):
            _write_again(last.file, position, bytes(min(_CHUNK_BYTES, written - position)))
            await trio.lowlevel.checkpoint()


def _write_again(file: DiskFile, begin: int, data: bytes) -> None:
    try:
        file.write_at(begin, data)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    else:
        return
    # A hole, as there may be after a file's last record, takes room once it is written. It may stay: it reads as zeros.
    at = 0
    while at < len(data):
        sector = data[at : at + SECTOR_BYTES - (begin + at) % SECTOR_BYTES]
        try:
            file.write_at(begin + at, sector)
        except OSError as error:
            if error.errno not in NO_ROOM or any(sector):
                raise
        at += len(sector)


async def keep_aside(disk: Disk, queue: MappedFileQueue, end: LogEnd, valid_to: int = 0) -> None:
    """Copy what stands after `end` to `cut/`, durable on return: it is about to be zeroed, and holds whole records.

    A power cut may leave such records after a hole, none of them acknowledged under SYNC_FLUSH; damage may too. What
    was kept before stays. Zeros at a file's end are left out, unless they are of a record: before `valid_to`. Raises
    `OSError`.
    """
    for mapped_file in queue.files:
        begin = max(0, end.end_offset - mapped_file.from_offset)
        used = max(mapped_file.used_bytes(), min(mapped_file.size_bytes, valid_to - mapped_file.from_offset))
        if begin < used:
            await _keep_aside(disk, file_name(mapped_file.from_offset + begin), mapped_file.whole()[begin:used])
    if disk.exists(CUT_DIRECTORY):
        await disk.sync_directory(CUT_DIRECTORY)
        await disk.sync_directory("")


async def _keep_aside(disk: Disk, name: str, data: memoryview) -> None:
    """Under `name`, or `name`.1, `name`.2 where something else has it; whole once it has that name."""
    path, number = f"{CUT_DIRECTORY}/{name}", 0
    while disk.exists(path):
        if _begins_with(disk, path, data):  # a crash came between keeping and cutting
            return
        number += 1
        path = f"{CUT_DIRECTORY}/{name}.{number}"
    unfinished = f"{CUT_DIRECTORY}/unfinished"
    file = disk.open(unfinished, allocate_bytes=0)
    try:
        file.truncate(0)
        for begin in range(0, len(data), _CHUNK_BYTES):
            file.write_at(begin, data[begin : begin + _CHUNK_BYTES])
            await trio.lowlevel.checkpoint()
        await file.sync()
    finally:
        file.close()
    disk.rename(unfinished, path)


def _begins_with(disk: Disk, path: str, data: memoryview) -> bool:
    file = disk.open(path, read_only=True)
    try:
        kept = file.map()
        return len(kept) >= len(data) and all(
            bytes(kept[begin : begin + _CHUNK_BYTES][: len(data) - begin]) == bytes(data[begin : begin + _CHUNK_BYTES])
            for begin in range(0, len(data), _CHUNK_BYTES)
        )
    finally:
        file.close()


class TakesRecords(Protocol):
    """What `redo` needs of a `CommitLogDispatcher`."""

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`."""
        ...

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """See `CommitLogDispatcher`."""
        ...


async def redo(
    walk: LogWalk,
    dispatchers: Sequence[TakesRecords],
    begin_again: Callable[[QueueBeginsAgain], Awaitable[None]] | None = None,
) -> LogEnd:
    """Walk to the end, giving each record to every dispatcher; where a queue begins again, call `begin_again`.

    Raises what those raise, and `DamagedLog`.
    """

    async def give(take: Callable[[TakesRecords], None]) -> None:
        for dispatcher in dispatchers:
            while True:
                try:
                    take(dispatcher)
                except QueueBeginsAgain as found:
                    if begin_again is None:
                        raise
                    await begin_again(found)
                else:
                    break
        await trio.lowlevel.checkpoint()

    for batch in walk.batches():
        requests = walk.passed_over.take_out(batch)
        await give(lambda dispatcher, requests=requests: dispatcher.dispatch(requests))  # type: ignore[misc]
        while (columns := walk.next_columns()) is not None:
            await give(lambda dispatcher, columns=columns: dispatcher.dispatch_batch(columns))  # type: ignore[misc]
    return walk.found_end
