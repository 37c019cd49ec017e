"""In the end all logs are equal."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event


class Convergence(Invariant[Event]):
    """Every log is the master's, but for those of nodes that have halted, and the page caches still have it."""

    name = "convergence"

    def at_end(self, view: ClusterView) -> str | None:
        """The bytes of each log, and where it ends."""
        for node in view.nodes.values():
            if (detail := view.log_differs(node)) is not None:
                return detail
            if view.lacks(node):
                return f"{node.name} ends at {node.end}, the master at {view.master.end}"
        return None
