"""What SYNC_FLUSH promises."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event


class Synced(Invariant):
    """With SYNC_FLUSH a slave reports, and a master sends and answers PUT_OK for, nothing but what it has synced.

    So no slave is ahead of such a master that lost its power, by what that one has written.
    """

    name = "synced"
    kinds = ("ha.client.report", "ha.transfer", "put.end", "store.open")

    def check(self, event: Event, view: ClusterView) -> str | None:
        """How far the node tells others that it is, or sends."""
        node = view.nodes[event.node]
        if not node.syncs_first:
            return None
        kind, end = event.kind, event.offset or 0
        if kind == "ha.transfer":
            what, end = "sends bytes to", end + (event.size or 0)
        elif kind == "ha.client.report":
            what = "reports"
        elif kind == "put.end":
            if event.status != "PUT_OK":
                return None
            what = "answers PUT_OK for a put that ends at"
        else:
            assert node.opened is not None
            if node.opened.ahead is None:
                return None
            slave, has = node.opened.ahead
            return f"{slave} has bytes to {has}, the master has kept {end} over a power loss"
        return f"{node.name} {what} {end}, it has synced {node.synced}" if end > node.synced else None
