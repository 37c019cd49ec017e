"""Finding the end of a log after a stop or a crash, and telling a torn tail from damage.

A crash leaves at most a torn record at the very end: it is cut. A bad record with good ones behind it is damage, not a
torn tail: RocketMQ deletes all that follows, this store refuses to open and names the place.
"""

from __future__ import annotations

import attrs

from rmq_actors.store.mapped_file import MappedFile
from rmq_actors.store.mapped_file_queue import MappedFileQueue
from rmq_actors.wire.record import (
    MAGIC_BYTES,
    RECORD_OVERHEAD_BYTES,
    RecordError,
    StoredMessage,
    check_record,
    decode_record,
    host_bytes,
)

TopicQueueTable = dict[tuple[str, int], int]


class DamagedLog(ValueError):
    """A record in the middle of the log is not valid. Nothing was changed."""


@attrs.frozen
class Recovered:
    """What recovery found: the log's end, how many non-zero bytes stood behind it and why, the next queue offsets."""

    end_offset: int
    torn_bytes: int
    torn_reason: str
    topic_queue_table: TopicQueueTable


def recover(queue: MappedFileQueue) -> Recovered:
    """Walk every record from the first file on. Changes nothing. Raises `DamagedLog`."""
    table: TopicQueueTable = {}
    last: StoredMessage | None = None
    for number, mapped_file in enumerate(queue.files):
        view, position = mapped_file.whole(), 0
        while position < len(view):
            offset = mapped_file.from_offset + position
            check = check_record(view, position, offset)
            if check.what == "invalid":
                return _end(queue, number, position, check.reason, table, last)
            _count(last, table)
            try:
                last = decode_record(view, position, offset, check=check) if check.what == "message" else None
            except RecordError as error:
                return _end(queue, number, position, str(error), table, None)
            position += check.size
    _count(last, table)
    return Recovered(queue.max_offset, 0, "", table)


def _count(message: StoredMessage | None, table: TopicQueueTable) -> None:
    if message is not None and message.takes_queue_offset:
        table[message.topic, message.queue_id] = message.queue_offset + 1


def _text_is_torn(message: StoredMessage, last_byte: int) -> bool:
    """Whether the record's text ends in zeros: no checksum covers it, and a tear there shows in nothing else."""
    fixed_bytes = RECORD_OVERHEAD_BYTES - sum(host_bytes(0)) + sum(host_bytes(message.sys_flag))
    properties_bytes = message.total_size - fixed_bytes - len(message.body) - len(message.topic.encode())
    return message.topic.endswith("\0") or (properties_bytes > 0 and last_byte == 0)


def _end(
    queue: MappedFileQueue,
    number: int,
    position: int,
    reason: str,
    table: TopicQueueTable,
    last: StoredMessage | None,
) -> Recovered:
    """The log ends at `position`, or, if `last`, the record right before it, is torn in its text, where that begins."""
    mapped_file = queue.files[number]
    if last is not None and _text_is_torn(last, mapped_file.whole()[position - 1]):
        position -= last.total_size
        reason = "topic or properties end in zeros"
    else:
        _count(last, table)
    end_offset = mapped_file.from_offset + position
    torn_bytes = 0
    for later in queue.files[number:]:
        begin = position if later is mapped_file else 0
        torn_bytes += max(0, later.used_bytes() - begin)
        survivor = next_record(later, begin, end_offset)
        if survivor is not None:
            raise DamagedLog(
                f"{mapped_file.file.path}: no valid record at offset {end_offset} ({reason}), "
                f"but one follows at offset {survivor}: the log is damaged in its middle"
            )
    return Recovered(end_offset, torn_bytes, reason if torn_bytes else "", table)


def next_record(mapped_file: MappedFile, position: int, end_offset: int) -> int | None:
    """The first whole record from `position` on, not at `end_offset`. A record names its offset: chance finds none."""
    view = mapped_file.whole()
    data = bytes(view[position : max(position, mapped_file.used_bytes())])
    at = data.find(MAGIC_BYTES)
    while at >= 0:
        start = position + at - 4
        offset = mapped_file.from_offset + start
        if start >= position and offset != end_offset and check_record(view, start, offset).what == "message":
            return offset
        at = data.find(MAGIC_BYTES, at + 1)
    return None
