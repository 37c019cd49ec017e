"""A term that a broker has taken is kept."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import OperatorSetUpAnew
from rmq_actors.tracing.events.store import StoreOpen, StoreTerm

_Looked = OperatorSetUpAnew | StoreOpen | StoreTerm


@attrs.define(eq=False, repr=False)
class TermKept(Invariant[_Looked]):
    """Once a broker says that it has taken a term, its file has that one, and never an older one, whatever it meets.

    Unless an operator removes all that it has.
    """

    name = "term_kept"
    kinds = (OperatorSetUpAnew, StoreOpen, StoreTerm)

    #: The latest term that each node has told.
    _told: dict[str, int] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """What the file has, as a broker takes a term, and as it opens its store."""
        if isinstance(event, OperatorSetUpAnew):
            self._told.pop(event.node, None)
            return None
        if isinstance(event, StoreTerm):
            before = self._told.get(event.node, 0)
            self._told[event.node] = event.term
            if event.term < before:
                return f"{event.node} has taken term {event.term} after term {before}"
        elif event.node not in self._told:
            return None
        return self._look(event.node, view)

    def at_end(self, view: ClusterView) -> str | None:
        """Every node's file once more."""
        return next(filter(None, (self._look(name, view) for name in self._told)), None)

    def _look(self, name: str, view: ClusterView) -> str | None:
        has, told = view.evidence.term(name).number, self._told[name]
        return None if has >= told else f"{name} has taken term {told}; its file has {has}"
