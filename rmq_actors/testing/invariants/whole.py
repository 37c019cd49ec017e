"""A slave's log ends where a record does."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend


class Whole(Invariant[LogAppend]):
    """If a record comes in several frames, nothing of it is in a slave's log before the last frame."""

    name = "whole"
    kinds = (LogAppend,)

    def check(self, event: LogAppend, view: ClusterView) -> str | None:
        """Where a slave's log ends now."""
        node = view.nodes[event.node]
        if node is view.master or view.takes_parts or node.end == node.lineage.whole_records(node.end):
            return None
        return f"{node.name} appends a part of a record: its log ends at {node.end}"
