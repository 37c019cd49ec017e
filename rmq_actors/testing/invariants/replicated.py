"""What a master takes for replicated."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaReplicated


class Replicated(Invariant[HaReplicated]):
    """The master never takes for replicated what too few slaves have had."""

    name = "replicated"
    kinds = (HaReplicated,)

    def check(self, event: HaReplicated, view: ClusterView) -> str | None:
        """How far the master says that enough slaves are."""
        if event.node != view.master.name:
            return None
        acks = max(1, view.acks_at(event))
        best = sorted((slave.highest for slave in view.slaves), reverse=True)[acks - 1]
        if event.offset <= best:
            return None
        return f"to {event.offset}, {acks} slaves never had more than {best}"
