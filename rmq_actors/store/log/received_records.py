"""Where the records are in bytes that a slave receives: a frame may begin and end inside of one."""

from __future__ import annotations

from collections.abc import Callable

from rmq_actors.ports.disk import BytesLike
from rmq_actors.wire.record import (
    BLANK,
    BLANK_MAGIC,
    END_FILE_MIN_BLANK_LENGTH,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
)
from rmq_actors.wire.record_runs import RUN_AFTER, RUN_RECORDS, run_length


class AppendRefused(ValueError):
    """A master's bytes that this log does not take: another shape, or a disk that fails. Nothing was written."""

    reason = "append_refused"


class FileSizeMismatch(AppendRefused):
    """Bytes that fit no file of this log, however often they come: the master's files have another size."""

    reason = "file_size_mismatch"


def follow_records(
    at: int, begin: int, data: BytesLike, select: Callable[[int, int], memoryview], file_size_bytes: int
) -> tuple[int, int]:
    """Where the last and the next record begin once `data` is at `begin`; `at`: where the next one did before.

    `select` reads what the log holds already.
    The next one is the first whose header is not there; the last one is the same where it would begin within
    `data`, or right after it. If `data` ends in a record whose header was there before, the last one is far off.
    Raises `FileSizeMismatch`.

    A master with other file sizes may send frames that fit this log's files: the records in them then do not (S3).
    """
    file_end = begin - begin % file_size_bytes + file_size_bytes
    last_header = begin + len(data) - BLANK.size
    last = -BLANK.size  # nothing ends in that one
    if at < begin and at <= last_header:
        last = at
        head = bytes(select(at, begin - at))
        at += _check_record(at, file_end, file_size_bytes, *BLANK.unpack(head + bytes(data[: BLANK.size - len(head)])))
    unpack, message_end = BLANK.unpack_from, file_end - END_FILE_MIN_BLANK_LENGTH
    before, repeats, run_records = 0, 0, RUN_RECORDS
    while at <= last_header:  # for each record that a slave receives
        total_size, magic = unpack(data, at - begin)
        if magic != MESSAGE_MAGIC or not RECORD_OVERHEAD_BYTES <= total_size <= message_end - at:
            _check_record(at, file_end, file_size_bytes, total_size, magic)
        if total_size != before:
            before, repeats, run_records = total_size, 0, RUN_RECORDS
        elif repeats < RUN_AFTER:
            repeats += 1
        elif most := min(run_records, (last_header - at) // total_size + 1, (message_end - at) // total_size):
            at += (run_length(data, at - begin, total_size, most) - 1) * total_size
            run_records *= 4
        last = at
        at += total_size
    return (at if at <= begin + len(data) else last), at


def _check_record(at: int, file_end: int, file_size_bytes: int, total_size: int, magic: int) -> int:
    """Its size. Raises `FileSizeMismatch` if no record with this header fits its file."""
    room = file_end - at
    is_message = magic == MESSAGE_MAGIC and RECORD_OVERHEAD_BYTES <= total_size <= room - END_FILE_MIN_BLANK_LENGTH
    if not is_message and not (magic == BLANK_MAGIC and total_size == room):
        raise FileSizeMismatch(
            f"offset {at}: no record that fits a file of {file_size_bytes} bytes (totalSize {total_size}, "
            f"magic 0x{magic:08X}): is mappedFileSizeCommitLog the same on both?"
        )
    return total_size
