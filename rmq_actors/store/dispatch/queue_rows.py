"""The entries of consume queues out of rows, one write for each queue, without numpy: for few records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmq_actors.store.dispatch.consume_queue import QueueEntry
from rmq_actors.store.files.formats import QUEUE_ENTRY
from rmq_actors.wire.dispatch_request import DispatchRequest


class QueueRows(NamedTuple):
    """What one queue gets."""

    topic: str
    queue_id: int
    rows: Sequence[DispatchRequest]

    @property
    def units(self) -> memoryview | None:
        """The entries as they are stored; None if their indexes are not consecutive."""
        rows, pack = self.rows, QUEUE_ENTRY.pack
        if rows[-1].consume_queue_offset - rows[0].consume_queue_offset != len(rows) - 1:
            return None
        return memoryview(b"".join([pack(row.commit_log_offset, row.msg_size, row.tags_code) for row in rows]))

    def entries(self) -> list[QueueEntry]:
        """One by one."""
        return list(map(queue_entry, self.rows))


def rows_by_queue(rows: Sequence[DispatchRequest]) -> Iterator[QueueRows]:
    """The rows of each queue, in the log's order. Every row has a place in its own queue, and in no other."""
    found: dict[tuple[str, int], list[DispatchRequest]] = {}
    for row in rows:
        key = (row.topic, row.queue_id)
        of_queue = found.get(key)
        if of_queue is None:
            found[key] = [row]
        else:
            of_queue.append(row)
    for (topic, queue_id), of_queue in found.items():
        yield QueueRows(topic, queue_id, of_queue)


def queue_entry(request: DispatchRequest) -> QueueEntry:
    """What a record asks of its queue."""
    return QueueEntry(
        request.consume_queue_offset,
        request.commit_log_offset,
        request.msg_size,
        request.tags_code,
        request.store_timestamp_ms,
    )
