"""A slave reports what it has."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event


class Report(Invariant):
    """A slave never reports more than it has; what arrives, perhaps after a power loss, is no more than it has had."""

    name = "report"
    kinds = ("ha.client.report", "ha.report")

    def check(self, event: Event, view: ClusterView) -> str | None:
        """A report as the slave sends it, or as it reaches a master."""
        node, offset = view.nodes[event.node], event.offset or 0
        if event.kind == "ha.client.report":
            return f"{node.name} reports {offset}, it has {node.end}" if offset > node.end else None
        slave = node.peers.get(event.conn_id or 0)
        if slave is None or offset <= view.nodes[slave].ever:
            return None
        return f"{slave} reports {offset}, it never had more than {view.nodes[slave].ever}"
