"""A limit: bits have flipped in the log of a broker that is the master."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import OperatorPromote
from rmq_actors.tracing.events.storage import StorageRot


class DamagedMaster(Limit[StorageRot | OperatorPromote]):
    """The log that counts is damaged: what its disk returns is what a master sends (`docs/invariants.md`)."""

    name = "damaged_master"
    kinds = (StorageRot, OperatorPromote)

    def check(self, event: StorageRot | OperatorPromote, view: ClusterView) -> str | None:
        """A bit that flips, and a promotion."""
        return f"bits have flipped in the log of {view.master.name}, the master" if view.master.rotten else None
