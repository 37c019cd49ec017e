"""A slave's log is the beginning of its master's."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend


class Prefix(Invariant[LogAppend]):
    """A slave's bytes equal its master's, every append continues its log, and a diverged log is not continued.

    What a master sent before it was lost may still arrive, on the connection that it was sent on.
    """

    name = "prefix"
    kinds = (LogAppend,)

    def check(self, event: LogAppend, view: ClusterView) -> str | None:
        """What was just appended."""
        node = view.nodes[event.node]
        appended = node.appended
        assert appended is not None
        if not appended.continues:
            return f"{node.name} appends at {appended.offset}, its log ends at {appended.ended_at}"
        if appended.parts_at is not None:
            diverged = f"its log diverges from the master's at {appended.parts_at}"
            return f"{node.name} goes on at {appended.offset}, {diverged}"
        if appended.end > len(node.lineage.log):
            return f"{node.name} has bytes to {appended.end}, the master has {len(view.log_of_master.log)}"
        if node is view.master:
            return None
        return view.differs(node, appended.offset, appended.data, appended.end)
