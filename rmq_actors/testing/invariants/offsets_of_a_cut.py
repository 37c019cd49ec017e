"""How far consumers are told to have consumed, at a broker whose store was opened again."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientConnect
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.store import StoreOpen

_Looked = StoreOpen | NodeBoot | HaClientConnect


@attrs.define(eq=False, repr=False)
class OffsetsOfACut(Invariant[_Looked]):
    """A slave that has opened its store again follows with no consumer's offset past its queue's end.

    The log may have been cut, and other messages come in the place of what was there: consumers would skip them.
    """

    name = "offsets_of_a_cut"
    kinds = (StoreOpen, NodeBoot, HaClientConnect)

    #: The brokers that have opened their stores in their present process, and those that have again, and not followed
    #: since.
    _opened: set[str] = attrs.field(factory=set, init=False)
    _again: set[str] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Look as it begins to follow: its master's table and log come later."""
        name = event.node
        if isinstance(event, NodeBoot):
            self._opened.discard(name)
            self._again.discard(name)
        elif isinstance(event, StoreOpen):
            if name in self._opened:
                self._again.add(name)
            self._opened.add(name)
        elif name in self._again:
            self._again.discard(name)
            for key, queue_id, offset, end in view.evidence.offsets_past_ends(name):
                return f"{name} has opened its store again; {key}, queue {queue_id}, has {offset}, and ends at {end}"
        return None
