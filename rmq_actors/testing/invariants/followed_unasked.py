"""A limit: a slave whose master answers no question follows it unasked."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientReport


class FollowedUnasked(Limit[HaClientReport]):
    """A slave that could not ask follows a master with a diverged log (`docs/invariants.md`)."""

    name = "followed_unasked"
    kinds = (HaClientReport,)

    def check(self, event: HaClientReport, view: ClusterView) -> str | None:
        """A slave that reports follows."""
        node = view.nodes[event.node]
        if not node.could_not_ask or view.log_of_master.common(node.lineage) >= node.end:
            return None
        return f"{node.name} follows, and could not ask whether it has the same log"
