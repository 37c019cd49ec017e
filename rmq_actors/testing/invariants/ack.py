"""What PUT_OK says."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import PutEnd


def _keeps_all(slave: NodeView) -> bool:
    return slave.syncs_first and not slave.rotten and not slave.was_set_up_anew


class Ack(Invariant[PutEnd]):
    """A put answered PUT_OK is, whole, in as many slaves' logs as the master's settings ask for at that moment.

    Or it was, until such a slave, which does not sync first, lost its power, or any was set up again. Only the master
    answers so.
    """

    name = "ack"
    kinds = (PutEnd,)

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        """Which slaves have the put that is answered."""
        if event.status != "PUT_OK":
            return None
        if event.node != view.master.name:
            return f"{event.node} has answered PUT_OK, the master is {view.master.name}"
        # What a slave only had in its page cache may be lost with its power while its report is still under way.
        # The same for what comes after the damaged place at which a log ends, and for what an operator has removed.
        had = [slave.end if _keeps_all(slave) else slave.highest for slave in view.slaves]
        best = sorted(had, reverse=True)[: view.acks_at(event)]
        end = event.offset
        if not best or end <= best[-1]:
            return None
        return f"put {event.msg_id} was answered PUT_OK, it ends at {end}; the best slaves have {best}"
