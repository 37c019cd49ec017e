"""What consumers read while a run goes on."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.logs_of_masters import LogsOfMasters
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientRead
from rmq_actors.tracing.events.store import LogAppend

_Looked = ClientRead | LogAppend


@attrs.frozen
class _Read:
    """A message that was read: where it ends, in which log, and what it is."""

    end: int
    lineage: Lineage
    identity: tuple[int, int]


@attrs.define(eq=False, repr=False)
class Read(Invariant[_Looked]):
    """A consumer reads what a producer has sent, as it stands in a log, one offset of the queue after the other.

    What was read once at an offset of a queue is what is read there as long as the master's log has it. A broker with
    SYNC_FLUSH gives what it has synced. Offsets are left out only where the log was cleaned, or after a power loss.
    """

    name = "read"
    kinds = (ClientRead, LogAppend)

    _logs: LogsOfMasters = attrs.field(factory=LogsOfMasters, init=False)
    #: By queue and offset there.
    _read: dict[tuple[int, int], _Read] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """One message."""
        if isinstance(event, LogAppend):
            self._logs.note(event, view)
            return None
        node, end = view.nodes[event.node], event.offset + event.size
        what = f"{event.node} gives offset {event.queue_offset} of queue {event.queue_id}"
        if event.status != "as_sent":
            return f"{what}, and nobody has sent that"
        if event.queue_offset != event.expected:
            may_leave_out = event.queue_offset > event.expected and (node.begin > 0 or node.power_back_at >= 0)
            if not may_leave_out:
                return f"{what}, {event.expected} was due"
        lineage = self._logs.find(event.offset, event.size, event.checksum, view)
        if lineage is None:
            return f"{what} with bytes that never stood at {event.offset} of a log"
        if node.syncs_first and node.lineage is lineage and node.durable < end <= node.end:
            return f"{what}, which ends at {end}; it has synced its log up to {node.durable}"
        return self._compare(event, _Read(end, lineage, (event.offset, event.checksum)), view)

    def _compare(self, event: ClientRead, now: _Read, view: ClusterView) -> str | None:
        queue = event.queue_id, event.queue_offset
        before = self._read.get(queue)
        self._read[queue] = now
        if before is None or before.identity == now.identity or now.lineage is not view.log_of_master:
            return None
        if before.lineage.common(view.log_of_master) < before.end:
            return None  # the log has gone another way
        return (
            f"{event.node} gives the message at {event.offset} for offset {event.queue_offset} of queue "
            f"{event.queue_id}; before, it was the one at {before.identity[0]}, which the log still has"
        )
