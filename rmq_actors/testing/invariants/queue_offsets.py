"""How a master numbers the messages of a queue."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.queue_numbers import QueueNumbers
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend


@attrs.define(eq=False, repr=False)
class QueueOffsets(Invariant[LogAppend]):
    """No offset of a queue is given twice, nor by the next master; none is left out, except after a power loss."""

    name = "queue_offsets"
    kinds = (LogAppend,)

    _numbers: QueueNumbers = attrs.field(factory=QueueNumbers, init=False)

    def check(self, event: LogAppend, view: ClusterView) -> str | None:
        """What the master has just appended."""
        wrong = self._numbers.look(event, view)
        return wrong.detail if wrong is not None and wrong.is_known else None
