"""What a start finds missing of the queues, and from where on the log must be dispatched again for that.

This store's recovery point has the sum of all queues' ends: what any of them has lost makes it smaller. RocketMQ's
files have no such number. There the log's last files, which are read in any case, tell what their queues must have;
and a queue that has no file, or that ends exactly where its last file does, is suspected to have had another one. (Of
300,000 queues that lack nothing one ends like that, with RocketMQ's mappedFileSizeConsumeQueue.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.files.formats import CQ_STORE_UNIT_SIZE
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.topic_names import IllegalTopic, check_topic
from rmq_actors.wire.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)

#: So many queues are named in the log, each with what it lacked.
_QUEUES_IN_LOG_MAX = 20


@attrs.define(eq=False, repr=False)
class _QueueInLog:
    """The records of a queue in a part of the log: of the first one index and offset, of the last one what follows."""

    first_index: int
    first_offset: int
    end_index: int
    end_offset: int


@attrs.define(eq=False, repr=False)
class QueuesInLog:
    """What records of a part of the log say of their queues: give it to `redo`. Further queues are not looked at.

    Nor are records that have no entry, as their topic was deleted since.
    """

    _deleted: DeletedTopics
    _queues: dict[tuple[str, int], _QueueInLog] = attrs.field(factory=dict, init=False)

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Take records, in the log's order."""
        for request in requests:
            if request.takes_queue_offset and not self._deleted.hides(
                request.topic, request.queue_id, request.commit_log_offset
            ):
                self._take(
                    request.topic,
                    request.queue_id,
                    request.consume_queue_offset,
                    request.commit_log_offset,
                    request.consume_queue_offset + 1,
                    request.end_offset,
                )

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """`dispatch` of records as columns."""
        # It imports numpy, which is there already where there are columns.
        from rmq_actors.store.dispatch.queue_columns import entries_by_queue  # noqa: PLC0415

        for each in entries_by_queue(batch):
            if self._deleted.hides(each.topic, each.queue_id, each.first_physical_offset):
                for number, offset, size, *_ in each.entries():
                    if not self._deleted.hides(each.topic, each.queue_id, offset):
                        self._take(each.topic, each.queue_id, number, offset, number + 1, offset + size)
                continue
            self._take(
                each.topic,
                each.queue_id,
                each.first_index,
                each.first_physical_offset,
                each.last_index + 1,
                each.end_physical_offset,
            )

    def _take(
        self, topic: str, queue_id: int, first_index: int, first_offset: int, end_index: int, end_offset: int
    ) -> None:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            self._queues[topic, queue_id] = _QueueInLog(first_index, first_offset, end_index, end_offset)
        else:
            queue.end_index, queue.end_offset = end_index, end_offset

    def missing_from(self, queues: ConsumeQueues) -> int | None:
        """The log offset from which on a record is not in its queue; None if all are. 0: it may be any."""
        offsets = list[int]()
        for (topic, queue_id), in_log in self._queues.items():
            queue = queues.find(topic, queue_id)
            known_to, end = (0, 0) if queue is None else (queue.max_physic_offset, queue.max_offset_in_queue)
            if known_to >= in_log.end_offset or (queue is None and _is_illegal(topic)):
                continue
            lacks_no_older = in_log.first_index <= end
            offsets.append(max(known_to, in_log.first_offset if lacks_no_older else 0))
        return min(offsets, default=None)

    def ends_after(self, queues: ConsumeQueues) -> int:
        """What the ends of all queues add up to once these records are dispatched."""
        _, ends = queues.add_up_ends()
        for (topic, queue_id), in_log in self._queues.items():
            queue = queues.find(topic, queue_id)
            ends += max(0, in_log.end_index - (0 if queue is None else queue.max_offset_in_queue))
        return ends


def _is_illegal(topic: str) -> bool:
    try:
        check_topic(topic)
    except IllegalTopic:
        return True
    return False


def suspected_from(queues: ConsumeQueues) -> int | None:
    """The log offset from which on records are missing if each suspected queue has lost its newest files."""
    offsets = [max(0, queue.max_physic_offset) for queue in queues if _may_lack_a_file(queue)]
    return min(offsets, default=None)


def _may_lack_a_file(queue: ConsumeQueue) -> bool:
    files = queue.queue.files
    return not files or not files[-1].room_bytes


@attrs.frozen
class QueueEnds:
    """Where each queue ended before the log was dispatched again."""

    _ends: dict[tuple[str, int], int]

    @classmethod
    def of(cls, queues: ConsumeQueues) -> QueueEnds:
        """As they are now."""
        return cls({(queue.topic, queue.queue_id): queue.max_offset_in_queue for queue in queues})

    def tell_what_was_missing(self, queues: ConsumeQueues) -> None:
        """Name the queues that are longer now, and the files where it was missing."""
        told = 0
        for queue in queues:
            begin = max(self._ends.get((queue.topic, queue.queue_id), 0), queue.min_offset_in_queue)
            end = queue.max_offset_in_queue
            if begin >= end:
                continue
            told += 1
            if told <= _QUEUES_IN_LOG_MAX:
                position, directory = begin * CQ_STORE_UNIT_SIZE, queue.queue.directory
                name = file_name(position - position % queue.queue.file_size_bytes)
                _log.warning(
                    "%s lacked its entries %d to %d (from %s/%s on): made again from the log",
                    *(directory, begin, end - 1, directory, name),
                )
        if told > _QUEUES_IN_LOG_MAX:
            _log.warning("so did %d other queues", told - _QUEUES_IN_LOG_MAX)
