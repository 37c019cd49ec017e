"""The entries of consume queues out of the columns of a batch, with numpy."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from rmq_actors.store.dispatch.consume_queue import QueueEntry
from rmq_actors.store.files.formats import CQ_STORE_UNIT_SIZE, QUEUE_ENTRY_FIELDS
from rmq_actors.wire.dispatch_batch import DispatchBatch, Int64Array

_UNIT = np.dtype(QUEUE_ENTRY_FIELDS)
_QUEUE_IDS = 1 << 32


@attrs.frozen(eq=False)
class QueueEntries:
    """What one queue gets of a batch; `records` are those of its records, in order."""

    topic: str
    queue_id: int
    #: The entries as they are stored, without gaps; None if their indexes are not consecutive.
    units: memoryview | None
    first_index: int
    first_physical_offset: int
    end_physical_offset: int
    _batch: DispatchBatch
    records: Int64Array

    def __len__(self) -> int:
        return len(self.records)

    @property
    def last_index(self) -> int:
        """The index of the last one."""
        return int(self._batch.consume_queue_offsets[self.records[-1]])

    def entries(self) -> list[QueueEntry]:
        """One by one."""
        batch, records = self._batch, self.records
        columns = (
            batch.consume_queue_offsets,
            batch.commit_log_offsets,
            batch.msg_sizes,
            batch.tags_codes,
            batch.store_timestamps_ms,
        )
        return list(map(QueueEntry, *(column[records].tolist() for column in columns)))


def entries_by_queue(batch: DispatchBatch) -> Iterator[QueueEntries]:
    """The entries of every queue of a batch, by the queues' first records."""
    queues = batch.topic_ids.astype(np.int64) * _QUEUE_IDS + batch.queue_ids
    order = queues.argsort(kind="stable")
    queues = queues[order]
    begins = np.concatenate(([0], np.flatnonzero(queues[1:] != queues[:-1]) + 1))
    ends = np.append(begins[1:], len(order))
    indexes, offsets = batch.consume_queue_offsets[order], batch.commit_log_offsets[order]
    record_ends = offsets + batch.msg_sizes[order]
    # How many entries up to each one do not follow the one before.
    jumps = np.concatenate(([0], np.cumsum(np.diff(indexes) != 1)))
    units = np.empty(len(order), _UNIT)
    units["physical_offset"], units["size"] = offsets, batch.msg_sizes[order]
    units["tags_code"] = batch.tags_codes[order]
    stored = memoryview(units.tobytes())
    by_first_record = order[begins].argsort()
    firsts = order[begins]
    for group in zip(
        *(
            column[by_first_record].tolist()
            for column in (
                begins,
                ends,
                batch.topic_ids[firsts],
                batch.queue_ids[firsts],
                jumps[begins] == jumps[ends - 1],
                indexes[begins],
                offsets[begins],
                record_ends[ends - 1],
            )
        ),
        strict=True,
    ):
        begin, end, topic_id, queue_id, is_consecutive, first_index, first_offset, end_offset = group
        yield QueueEntries(
            batch.topics[topic_id],
            queue_id,
            stored[begin * CQ_STORE_UNIT_SIZE : end * CQ_STORE_UNIT_SIZE] if is_consecutive else None,
            first_index,
            first_offset,
            end_offset,
            batch,
            order[begin:end],
        )
