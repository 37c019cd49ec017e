"""A slave reports what it has."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientReport, HaReport


class Report(Invariant[HaClientReport | HaReport]):
    """A slave never reports more than it has; what arrives, perhaps after a power loss, is no more than it has had."""

    name = "report"
    kinds = (HaClientReport, HaReport)

    def check(self, event: HaClientReport | HaReport, view: ClusterView) -> str | None:
        """A report as the slave sends it, or as it reaches a master."""
        node, offset = view.nodes[event.node], event.offset
        if isinstance(event, HaClientReport):
            return f"{node.name} reports {offset}, it has {node.end}" if offset > node.end else None
        slave = node.peers.get(event.conn_id)
        if slave == "" and not offset:
            return None  # it has nothing, whoever it is
        if slave == "":
            return f"{node.name} takes {offset} for the report of a slave, and a stranger says it"
        if slave is None or offset <= view.nodes[slave].ever:
            return None
        return f"{slave} reports {offset}, it never had more than {view.nodes[slave].ever}"
