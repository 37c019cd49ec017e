"""Reading a commit log that nobody has open, whatever is in it: for `store dump` and `store check`."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from rmq_actors.ports.disk import Disk, DiskFile
from rmq_actors.store.files.layout import ABORT_FILE, COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.files.store_checkpoint import Checkpoint, RecoveryPoint
from rmq_actors.wire.record import (
    BLANK,
    END_FILE_MIN_BLANK_LENGTH,
    MAGIC_BYTES,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    check_record,
    host_bytes,
)

#: RocketMQ 5.1 and later write this before a record whose topic's length takes two bytes (MESSAGE_MAGIC_CODE_V2).
MESSAGE_MAGIC_V2 = 0xDAA320AB
_CHUNK_BYTES = 4 * 1024 * 1024
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_UNSIGNED_SHORT = struct.Struct(">H")
_BODY_LENGTH_FROM_STORE_HOST = 12
_TOPIC_BYTES_MAX = 0xFF
_PROPERTIES_BYTES_MAX = 0xFFFF


@contextlib.contextmanager
def open_log(disk: Disk, checkpoint: Checkpoint) -> Iterator[MappedFileQueue]:
    """The log's files, read-only, as a start with the right mappedFileSizeCommitLog opens them.

    Raises `StoreLayoutError` where that does, and `OSError`.
    """
    point = checkpoint.recovery_point
    file_size_bytes = first_file_size_bytes(disk) if point is None else point.file_size_bytes
    queue = MappedFileQueue(disk, COMMIT_LOG_DIRECTORY, file_size_bytes)
    try:
        after_crash = disk.exists(ABORT_FILE)
        queue.load(
            read_only=True,
            holds_durable=None if point is None else must_be_there(point, after_crash=after_crash),
        )
        yield queue
    finally:
        queue.close()


def must_be_there(point: RecoveryPoint, *, after_crash: bool) -> Callable[[int, DiskFile], bool]:
    """Which of the log's files no crash can have taken: what `MappedFileQueue.load` asks of one that does not fit.

    Before the recovery point each. After it none, if the store has crashed; else each that holds anything: an orderly
    stop of RocketMQ leaves an old point. A file that was made and took nothing, as on a full disk, has a length that
    nobody synced, and a power cut after the stop may take that, or bring back a removed file's name.
    """

    def holds(begin: int, file: DiskFile) -> bool:
        if begin < point.offset:
            return True
        return not after_crash and file.size_bytes > 0 and MappedFile(file, begin, file.size_bytes).used_bytes() > 0

    return holds


def first_file_size_bytes(disk: Disk) -> int:
    """The length of the log's first file that has one; 0 if none has. Raises `OSError`."""
    for name in disk.list(COMMIT_LOG_DIRECTORY):
        file = disk.open(f"{COMMIT_LOG_DIRECTORY}/{name}", read_only=True)
        file.close()
        if file.size_bytes:
            return file.size_bytes
    return 0


def next_record(mapped_file: MappedFile, position: int) -> int | None:
    """The position of the first whole record from `position` on. A record names its offset: chance finds none.

    Reads a chunk at a time: the file may be large, and all of it damaged.
    """
    view, used_bytes = mapped_file.whole(), mapped_file.used_bytes()
    while position < used_bytes:
        # Chunks overlap by what a size and a magic take, so that none is cut in two.
        chunk = bytes(view[position : position + _CHUNK_BYTES + BLANK.size])
        at = chunk.find(MAGIC_BYTES, 4)
        while at >= 0:
            start = position + at - 4
            if check_record(view, start, mapped_file.from_offset + start).what == "message":
                return start
            at = chunk.find(MAGIC_BYTES, at + 1)
        position += _CHUNK_BYTES
    return None


def record_after(mapped_file: MappedFile, position: int) -> int | None:
    """The position of the first whole record after `position`, where something stands that is none.

    What an unfinished record claims by its own size is its own: its body may hold the image of a whole record, made for
    the very place where it came to stand.
    """
    return next_record(mapped_file, max(position + 1, _claimed_end(mapped_file, position)))


def _claimed_end(mapped_file: MappedFile, position: int) -> int:
    """Where the record whose beginning stands at `position` ends by its own size; `position` if that is not plausible.

    The lengths in it must agree with its size, as far as they were written: a size of which a bit has flipped would
    claim the records that follow.
    """
    view, used_bytes = mapped_file.whole(), mapped_file.used_bytes()
    room = len(view) - position - END_FILE_MIN_BLANK_LENGTH
    if room < RECORD_OVERHEAD_BYTES:
        return position
    total_size: int
    total_size, magic = BLANK.unpack_from(view, position)
    if magic != MESSAGE_MAGIC or not RECORD_OVERHEAD_BYTES <= total_size <= room:
        return position
    body_length_at = position + 48 + 8 + _BODY_LENGTH_FROM_STORE_HOST
    body_length_at += sum(host_bytes(_INT.unpack_from(view, position + 36)[0]))
    end = position + total_size
    if _LONG.unpack_from(view, position + 28)[0] != mapped_file.from_offset + position or body_length_at + 7 > end:
        return position
    body_length: int = _INT.unpack_from(view, body_length_at)[0]
    topic_length_at = body_length_at + 4 + body_length
    topic_and_properties = end - topic_length_at - 3
    if body_length < 0 or not 0 <= topic_and_properties <= _TOPIC_BYTES_MAX + _PROPERTIES_BYTES_MAX:
        return position
    if topic_length_at >= used_bytes:
        return end
    properties = topic_and_properties - view[topic_length_at]
    if not 0 <= properties <= _PROPERTIES_BYTES_MAX:
        return position
    properties_at = end - properties
    if properties_at > used_bytes:
        return end
    return end if _UNSIGNED_SHORT.unpack_from(view, properties_at - 2)[0] == properties else position


def v2_record_size(view: memoryview, position: int) -> int:
    """The size of the RocketMQ 5 record that may stand at `position`; 0 if its magic is another, or it has no room."""
    room = len(view) - position
    if room < RECORD_OVERHEAD_BYTES + 1:
        return 0
    total_size, magic = BLANK.unpack_from(view, position)
    return total_size if magic == MESSAGE_MAGIC_V2 and RECORD_OVERHEAD_BYTES < total_size <= room else 0


def v2_as_v1(view: memoryview, position: int) -> memoryview | None:
    """The RocketMQ 5 record at `position` in RocketMQ 4's form, one byte shorter; None if it cannot be told.

    What is returned is checked and read like any record.
    """
    size = v2_record_size(view, position)
    if not size:
        return None
    record = bytearray(view[position : position + size])
    at = 48 + 8 + _BODY_LENGTH_FROM_STORE_HOST + sum(host_bytes(_INT.unpack_from(record, 36)[0]))
    if at + 4 > size:
        return None
    topic_length_at = at + 4 + _INT.unpack_from(record, at)[0]
    # A topic has at most 127 bytes in RocketMQ 5, too: the first byte of its length is 0.
    if not at + 4 <= topic_length_at < size - 1 or record[topic_length_at]:
        return None
    del record[topic_length_at]
    BLANK.pack_into(record, 0, size - 1, MESSAGE_MAGIC)
    return memoryview(record).toreadonly()
