"""How a master numbers the messages of further queues: light ones, and queues of other topics."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.dispatch_request import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    split_multi_dispatch,
)
from rmq_actors.wire.record import decode_message

_NAMES_QUEUES = PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()


@attrs.define(eq=False, repr=False)
class LightQueues(Invariant[LogAppend]):
    """No offset of a light queue is given twice, nor by the next master; none is left out, but after a power loss.

    Its consumer would get one message for another, or miss one. Of a queue that was deleted nothing is said: a slave
    that was not told of that has the old one.
    """

    name = "light_queues"
    kinds = (LogAppend,)

    _lineage: Lineage = attrs.field(factory=Lineage, init=False)
    _end: int = attrs.field(default=0, init=False)
    #: By light queue: the offset there of its last message, and where that stands.
    _last: dict[str, tuple[int, int]] = attrs.field(factory=dict, init=False)

    def check(self, event: LogAppend, view: ClusterView) -> str | None:
        """What the master has just appended of its own."""
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        if self._lineage is not node.lineage:
            self._lineage, self._end, self._last = node.lineage, 0, {}
            self._note(event.offset, node, view)
        return next(iter(self._note(node.end, node, view)), None)

    def _note(self, end: int, node: NodeView, view: ClusterView) -> list[str]:
        found = list[str]()
        log = self._lineage.log
        if _NAMES_QUEUES not in log[self._end : end]:
            self._end = end
            return found
        for at in self._lineage.records(self._end, end):
            size = int.from_bytes(log[at : at + 4], "big")
            record = bytes(log[at : at + size])
            if _NAMES_QUEUES not in record:
                continue
            properties = decode_message(memoryview(record)).properties
            names = split_multi_dispatch(properties[PROPERTY_INNER_MULTI_DISPATCH])
            offsets = map(int, split_multi_dispatch(properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET]))
            for name, offset in zip(names, offsets, strict=True):
                before, stood_at = self._last.get(name, (-1, 0))
                may_leave_out = offset > before and stood_at <= node.power_back_at
                if offset != before + 1 and not may_leave_out and name not in view.deleted_topics:
                    found.append(
                        f"{node.name} gives the message at {at} offset {offset} in {name}; "
                        f"the one before it, at {stood_at}, has {before}"
                    )
                self._last[name] = offset, at
        self._end = end
        return found
