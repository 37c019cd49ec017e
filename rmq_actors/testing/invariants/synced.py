"""What SYNC_FLUSH promises."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientReport, HaTransfer
from rmq_actors.tracing.events.store import PutEnd, StoreDispatch, StoreOpen

_Looked = HaClientReport | HaTransfer | PutEnd | StoreDispatch | StoreOpen


class Synced(Invariant[_Looked]):
    """With SYNC_FLUSH a slave reports, and a master sends and answers PUT_OK for, nothing but what it has synced.

    Neither puts anything else into queues and index. So no slave is ahead of such a master that lost its power, by what
    that one has written.
    """

    name = "synced"
    kinds = (HaClientReport, HaTransfer, PutEnd, StoreDispatch, StoreOpen)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """How far the node tells others that it is, or sends."""
        node = view.nodes[event.node]
        if not node.syncs_first:
            return None
        end = event.offset
        if isinstance(event, HaTransfer):
            what, end = "sends bytes to", end + event.size
        elif isinstance(event, HaClientReport):
            what = "reports"
        elif isinstance(event, StoreDispatch):
            what = "dispatches what is before"
        elif isinstance(event, PutEnd):
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
