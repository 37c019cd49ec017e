"""A put is answered in time."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import PutEnd

#: RocketMQ's clients give up after this long: an answer that comes later reaches nobody (#3484).
ANSWER_MAX_S = 3.0


class Answer(Invariant[PutEnd]):
    """A put is answered within the time-out of RocketMQ's clients, whatever happens to slaves and network.

    Time in which its broker is paused does not count. None may be left unanswered at the end: the run waits for that.
    """

    name = "answer"
    kinds = (PutEnd,)

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        """How long the put has waited."""
        waited_s = view.nodes[event.node].waited_s
        if waited_s <= ANSWER_MAX_S:
            return None
        return f"put {event.msg_id} was answered {event.status} after {waited_s:.3f} s"
