"""Brokers that have stopped leave nothing open."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event


class Leaks(Invariant[Event]):
    """Brokers that stopped in order have left no task, socket, port, file or lock open, and no end of a connection."""

    name = "leaks"

    def at_end(self, view: ClusterView) -> str | None:
        """All nodes at once: a connection has two ends."""
        return "; ".join(view.evidence.leaks()) or None
