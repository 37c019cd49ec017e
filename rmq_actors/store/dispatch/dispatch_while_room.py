"""What a start dispatches on a disk that may be full: as a running store, it goes on when there is room again.

A store whose queues cannot grow takes no puts, and serves what it has; only once it runs can somebody clean it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.wire.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)

#: Errors of a disk that is full, or used up to a quota.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


@attrs.define(eq=False, repr=False)
class DispatchWhileRoom:
    """The dispatchers of a recovery: give it to `redo`. Raises what they raise, but for want of room."""

    _dispatchers: Sequence[CommitLogDispatcher]
    _queues: ConsumeQueues
    #: Where the first batch begins that was not dispatched, or in part; None: all were.
    stopped_at: int | None = attrs.field(default=None, init=False)
    #: The last record before that.
    last: DispatchRequest | None = attrs.field(default=None, init=False)
    #: What the next queue offset of each queue is once the rest is dispatched: the log has given these.
    _ends: dict[tuple[str, int], int] = attrs.field(factory=dict, init=False)

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Take records, in the log's order."""
        if not requests:
            return
        if self.stopped_at is None:
            try:
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch(requests)
            except OSError as error:
                self._stop(requests[0].commit_log_offset, error)
            else:
                self.last = requests[-1]
                return
        for request in requests:
            if not request.takes_queue_offset:
                continue
            if not self._queues.deleted.hides(request.topic, request.queue_id, request.commit_log_offset):
                self._ends[request.topic, request.queue_id] = request.consume_queue_offset + 1
            for topic, queue_id, index in self._queues.further_entries(request):
                self._ends[topic, queue_id] = index + 1

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """`dispatch` of records as columns: no record that names further queues is among them."""
        # It imports numpy, which is there already where there are columns.
        from rmq_actors.store.dispatch.queue_columns import entries_by_queue  # noqa: PLC0415

        if self.stopped_at is None:
            try:
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch_batch(batch)
            except OSError as error:
                self._stop(int(batch.commit_log_offsets[0]), error)
            else:
                self.last = batch.last
                return
        for each in entries_by_queue(batch):
            if self._queues.deleted.hides(each.topic, each.queue_id, each.end_physical_offset - 1):
                continue
            self._ends[each.topic, each.queue_id] = each.last_index + 1

    def topic_queue_table(self) -> dict[tuple[str, int], int]:
        """The next queue offset of each queue, also of those whose records wait."""
        table = self._queues.topic_queue_table()
        for topic_queue, end in self._ends.items():
            table[topic_queue] = max(end, table.get(topic_queue, 0))
        return table

    def _stop(self, offset: int, error: OSError) -> None:
        if error.errno not in NO_ROOM:
            raise error
        self.stopped_at = offset
        _log.error("the records from offset %d on are dispatched when the disk has room: %s", offset, error)
