"""The offsets in their queues that masters give to messages, read from their logs: `QueueNumbers`."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

import attrs

from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC

_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_MAGIC_POSITION, _MAGIC = 4, struct.pack(">I", MESSAGE_MAGIC)
_QUEUE_ID_POSITION, _QUEUE_OFFSET_POSITION, _BODY_LENGTH_POSITION = 12, 20, 84

#: A topic and a queue id.
_Queue = tuple[str, int]


@attrs.frozen
class WrongNumber:
    """A message that does not come after the one before it in its queue, in words."""

    detail: str
    #: Whether the master's log ever had the one before.
    is_known: bool


@attrs.define(eq=False, repr=False)
class QueueNumbers:
    """What the master's log has of each queue: the offset there of its last message, and where that stands."""

    _lineage: Lineage = attrs.field(factory=Lineage, init=False)
    _end: int = attrs.field(default=0, init=False)
    _last: dict[_Queue, tuple[int, int]] = attrs.field(factory=dict, init=False)

    def look(self, event: LogAppend, view: ClusterView) -> WrongNumber | None:
        """What is wrong with what the master has just appended of its own; every append must be looked at."""
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        if self._lineage is not node.lineage:
            self._lineage, self._end, self._last = node.lineage, 0, {}
            self._note(event.offset, node)
        found = self._note(node.end, node, view.deleted_topics)
        return found[0] if found else None

    def _note(self, end: int, node: NodeView, deleted: Collection[str] = ()) -> list[WrongNumber]:
        found = []
        for at, queue, offset in messages(self._lineage, self._end, end):
            before, stood_at = self._last.get(queue, (-1, 0))
            # A power loss may leave a queue its second file and not the first: the offsets of that are gone.
            may_leave_out = offset > before and stood_at <= node.power_back_at
            begins_again = offset == 0 and queue[0] in deleted
            if offset != before + 1 and not may_leave_out and not begins_again:
                topic, queue_id = queue
                detail = (
                    f"{node.name} gives the message at {at} offset {offset} in queue {queue_id} of {topic}; "
                    f"the one before it, at {stood_at}, has {before}"
                )
                found.append(WrongNumber(detail, is_known=stood_at >= node.began_at))
            self._last[queue] = offset, at
        self._end = end
        return found


def messages(lineage: Lineage, begin: int, end: int) -> Iterator[tuple[int, _Queue, int]]:
    """Each whole message of a log from `begin` to `end`: where it stands, its queue, and its offset there."""
    log = lineage.log
    for at in lineage.records(begin, end):
        if log[at + _MAGIC_POSITION : at + BLANK.size] != _MAGIC:
            continue
        (length,) = _INT32.unpack_from(log, at + _BODY_LENGTH_POSITION)
        topic_at = at + _BODY_LENGTH_POSITION + _INT32.size + length
        topic = log[topic_at + 1 : topic_at + 1 + log[topic_at]].decode()
        (queue_id,) = _INT32.unpack_from(log, at + _QUEUE_ID_POSITION)
        (offset,) = _INT64.unpack_from(log, at + _QUEUE_OFFSET_POSITION)
        yield at, (topic, queue_id), int(offset)
