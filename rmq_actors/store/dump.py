"""Reading a store directory that nobody has open: every message in order, and what is wrong, changing nothing."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.mapped_file import MappedFile
from rmq_actors.store.mapped_file_queue import MappedFileQueue, StoreLayoutError
from rmq_actors.store.recovery import next_record
from rmq_actors.wire.record import RecordError, StoredMessage, check_record, decode_record


@attrs.frozen
class Finding:
    """Bytes that are no record: where, and why. `resumes_at`: the next whole record's offset, if there is one."""

    path: str
    offset: int
    reason: str
    resumes_at: int | None


def read_commit_log(disk: Disk) -> Iterator[StoredMessage | Finding]:
    """Every message of the log below `commitlog/`, and a finding for each place that cannot be read.

    The file size is the first file's. Raises `StoreLayoutError` when there is no log or its files do not fit together.
    """
    names = disk.list(COMMIT_LOG_DIRECTORY)
    if not names:
        raise StoreLayoutError(f"{COMMIT_LOG_DIRECTORY}: no such directory, or no file in it")
    first = disk.open(f"{COMMIT_LOG_DIRECTORY}/{names[0]}", read_only=True)
    file_size_bytes = first.size_bytes
    first.close()
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


def _read_file(mapped_file: MappedFile, *, is_last: bool) -> Iterator[StoredMessage | Finding]:
    view, position = mapped_file.whole(), 0
    while position < len(view):
        offset = mapped_file.from_offset + position
        check = check_record(view, position, offset)
        reason = check.reason
        if check.what == "blank":
            return
        if check.what == "message":
            try:
                yield decode_record(view, position, offset)
            except RecordError as error:
                reason = str(error)
            else:
                position += check.size
                continue
        if is_last and position >= mapped_file.used_bytes():
            return
        resumes_at = next_record(mapped_file, position, offset)
        yield Finding(mapped_file.file.path, offset, reason, resumes_at)
        if resumes_at is None:
            return
        position = resumes_at - mapped_file.from_offset
