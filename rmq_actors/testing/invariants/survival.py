"""What a kill and a power loss leave of a log."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.node import NodeKill, NodeStop
from rmq_actors.tracing.events.store import StoreOpen

_Looked = NodeKill | NodeStop | StoreOpen


class Survival(Invariant[_Looked]):
    """After a kill the master has all that it wrote, a slave all but a torn last record.

    After a power loss each has what it had synced. A log that was opened ends where a record ends.
    """

    name = "survival"
    kinds = (NodeKill, NodeStop, StoreOpen)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """The node's page cache when it died, and what it finds when it opens its log."""
        node = view.nodes[event.node]
        if not isinstance(event, StoreOpen):
            # A node without power has not looked yet at what is left.
            return None if node.has_lost_power else view.log_differs(node)
        opened = node.opened
        assert opened is not None
        end = opened.end
        if end < opened.whole or end > len(opened.lineage.log):
            return f"{node.name} ended at {opened.before}, whole records to {opened.whole}; now at {end}"
        if end != opened.lineage.whole_records(end):
            return f"{node.name} ends at {end} after its recovery, inside of a record"
        return view.log_differs(node)
