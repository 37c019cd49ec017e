"""Reading every message of a store directory that nobody has open, and what cannot be read, changing nothing."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError
from rmq_actors.store.log.read_log import first_file_size_bytes, record_after, v2_record_size
from rmq_actors.wire.record import StoredMessage, check_record, decode_record


@attrs.frozen
class Unreadable:
    """Bytes that are no record: where, and why. `resumes_at`: the next whole record's offset, if there is one."""

    path: str
    offset: int
    reason: str
    resumes_at: int | None


def read_commit_log(disk: Disk) -> Iterator[StoredMessage | Unreadable]:
    """Every message of the log below `commitlog/`, and each place that cannot be read.

    The file size is that of the first file that has one: a store that has just been created may hold files of no bytes.
    Raises `StoreLayoutError` when there is no log or its files do not fit together.
    """
    if not disk.list(COMMIT_LOG_DIRECTORY):
        raise StoreLayoutError(f"{COMMIT_LOG_DIRECTORY}: no such directory, or no file in it")
    file_size_bytes = first_file_size_bytes(disk)
    if not file_size_bytes:
        return
    queue = MappedFileQueue(disk, COMMIT_LOG_DIRECTORY, file_size_bytes)
    try:
        queue.load(read_only=True)
        for number, mapped_file in enumerate(queue.files):
            is_last = not any(later.used_bytes() for later in queue.files[number + 1 :])
            yield from _read_file(mapped_file, is_last=is_last)
            if is_last:
                return
    finally:
        queue.close()


def _read_file(mapped_file: MappedFile, *, is_last: bool) -> Iterator[StoredMessage | Unreadable]:
    view, position = mapped_file.whole(), 0
    while position < len(view):
        offset = mapped_file.from_offset + position
        check = check_record(view, position, offset)
        if check.what == "blank":
            return
        if check.what == "message":
            yield decode_record(view, position, offset, check=check)
            position += check.size
            continue
        if is_last and position >= mapped_file.used_bytes():
            return
        reason = check.reason
        if v2_record_size(view, position):
            reason = "a RocketMQ 5 record (magic 0xDAA320AB), which RocketMQ 4 cannot read"
        resumes_at = record_after(mapped_file, position)
        resumes_at = None if resumes_at is None else mapped_file.from_offset + resumes_at
        yield Unreadable(mapped_file.file.path, offset, reason, resumes_at)
        if resumes_at is None:
            return
        position = resumes_at - mapped_file.from_offset
