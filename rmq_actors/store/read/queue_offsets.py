"""Questions about a queue's offsets and times: those that DefaultMessageStore answers beside getMessage.

A queue that there is not has no messages: as in 4.9, which makes it when somebody asks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import attrs

from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.read.get_message import MessageReads, ReadableLog
from rmq_actors.wire.record import MESSAGE_MAGIC, host_bytes

# totalSize magic (bodyCRC queueId flag queueOffset) physicalOffset sysFlag (bornTimestamp), then the born host.
_RECORD_HEAD = struct.Struct(">iI20xqi8x")
_LONG = struct.Struct(">q")

#: A record's store time stamp ends before it.
_STORE_TIMESTAMP_END_MAX = _RECORD_HEAD.size + 20 + _LONG.size

#: What stands for a time that is not known.
NO_TIME = -1


def store_timestamp_at(view: memoryview, position: int) -> int:
    """When the record at `position` of a file was stored, in ms."""
    sys_flag = _RECORD_HEAD.unpack_from(view, position)[3]
    stored_ms: int = _LONG.unpack_from(view, position + _RECORD_HEAD.size + host_bytes(sys_flag)[0])[0]
    return stored_ms


@attrs.define(eq=False, repr=False)
class QueueOffsets:
    """The answers."""

    _commit_log: ReadableLog
    _find_consume_queue: Callable[[str, int], ConsumeQueue | None]
    _reads: MessageReads

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first message's offset; the next one's, if the queue is empty."""
        queue = self._find_consume_queue(topic, queue_id)
        return queue.min_offset_in_queue if queue is not None else 0

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The next message's offset."""
        queue = self._find_consume_queue(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """How many messages the queue has."""
        queue = self._find_consume_queue(topic, queue_id)
        return queue.max_offset_in_queue - queue.min_offset_in_queue if queue is not None else 0

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, offset: int) -> int:
        """Where in the log the message at `offset` of the queue stands; 0 if there is none."""
        entry = self._entry(topic, queue_id, offset)
        return entry[0] if entry is not None else 0

    def get_message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at `offset` of the queue was stored, in ms; `NO_TIME` if there is none."""
        entry = self._entry(topic, queue_id, offset)
        return self.pickup_store_timestamp(*entry) if entry is not None else NO_TIME

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """When the queue's first message was stored, in ms; `NO_TIME` if it has none."""
        return self.get_message_store_timestamp(topic, queue_id, self.get_min_offset_in_queue(topic, queue_id))

    def get_earliest_message_time_of_store(self) -> int:
        """When the log's first record was stored, in ms; `NO_TIME` if it has none."""
        return self.pickup_store_timestamp(self._commit_log.min_offset, _RECORD_HEAD.size)

    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message at `offset` of the queue is so old that it must be read from the disk."""
        entry = self._entry(topic, queue_id, offset)
        return entry is not None and self._reads.is_in_disk(entry[0])

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset of the message that was stored nearest to this time; 0 if the queue is empty."""
        queue = self._find_consume_queue(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_in_queue_by_time(timestamp_ms, self._commit_log.min_offset, self.pickup_store_timestamp)

    def pickup_store_timestamp(self, offset: int, size: int) -> int:
        """When the record of `size` bytes at `offset` of the log was stored, in ms; `NO_TIME` if none stands there."""
        if offset + size > self._commit_log.max_offset:
            return NO_TIME
        try:
            view, begin = self._commit_log.file_at(offset)
        except ValueError:
            return NO_TIME
        position = offset - begin
        if position + _STORE_TIMESTAMP_END_MAX > len(view):
            return NO_TIME
        _, magic, stored_offset, _ = _RECORD_HEAD.unpack_from(view, position)
        return store_timestamp_at(view, position) if (magic, stored_offset) == (MESSAGE_MAGIC, offset) else NO_TIME

    def _entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int] | None:
        """Offset and size of the record at `offset` of a queue."""
        queue = self._find_consume_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry[:2] if entry is not None else None
