"""What is derived from a log agrees with it."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event


class Derived(Invariant[Event]):
    """After an orderly stop `store check` finds nothing wrong but flipped bits; those in bodies it must find."""

    name = "derived"

    def at_end(self, view: ClusterView) -> str | None:
        """Each node's store, one after the other."""
        return next(filter(None, (self._of(node, view) for node in view.nodes.values())), None)

    def _of(self, node: NodeView, view: ClusterView) -> str | None:
        wrong = view.evidence.damage(node.name)
        if not node.rotten:
            return f"{node.name}: {wrong[0]}" if wrong else None
        damaged = view.damaged_bodies(node)
        if not damaged or wrong:
            return None
        return f"{node.name}: the damage at offset {damaged[0]} is not found"
