"""A limit: bits have flipped in the log of a broker that is the master."""

from __future__ import annotations

from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.run import OperatorPromote
from rmq_actors.tracing.events.storage import StorageRot

_Looked = StorageRot | OperatorPromote | BrokerRoleEvent


class DamagedMaster(Limit[_Looked]):
    """The log that counts is damaged: what its disk returns is what a master sends (`docs/invariants.md`).

    Or the slave that is to be the master does not start again for that.
    """

    name = "damaged_master"
    kinds = (StorageRot, OperatorPromote, BrokerRoleEvent)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """A bit that flips, and a promotion."""
        node = view.master
        if isinstance(event, BrokerRoleEvent) and event.role != BrokerRole.SLAVE.value:
            node = view.nodes[event.node]
        return f"bits have flipped in the log of {node.name}, the master" if node.rotten else None
