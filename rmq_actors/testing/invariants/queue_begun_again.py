"""A limit: a master whose log began after the last message of a queue does not know that queue's next offset."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.queue_numbers import QueueNumbers
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend


@attrs.define(eq=False, repr=False)
class QueueBegunAgain(Limit[LogAppend]):
    """A queue's messages were cleaned away before this master, a new slave then, got the log (`docs/invariants.md`)."""

    name = "queue_begun_again"
    kinds = (LogAppend,)

    _numbers: QueueNumbers = attrs.field(factory=QueueNumbers, init=False)

    def check(self, event: LogAppend, view: ClusterView) -> str | None:
        """What the master has just appended."""
        wrong = self._numbers.look(event, view)
        return wrong.detail if wrong is not None and not wrong.is_known else None
