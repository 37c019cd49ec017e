"""Which brokers a broker follows: those of its brokerName."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientConnect, HaClientHalt, HaClientReport

_Looked = HaClientConnect | HaClientReport | HaClientHalt | BrokerSlaveSynchronize


@attrs.define(eq=False, repr=False)
class OfOneName(Invariant[_Looked]):
    """A slave that has the address of a broker of another brokerName reports nothing there, and does not halt.

    Nor does it take over a table. That one has another log, and other tables: they are no reason to cut anything.
    """

    name = "of_one_name"
    kinds = (HaClientConnect, HaClientReport, HaClientHalt, BrokerSlaveSynchronize)

    #: The slaves that are connected to a broker of another name.
    _astray: set[str] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Who the other one is."""
        name = event.node
        if isinstance(event, HaClientConnect):
            self._astray.discard(name)
            if not view.peer(event):
                self._astray.add(name)
        elif isinstance(event, HaClientReport):
            if name in self._astray:
                return f"{name} follows a broker of another brokerName"
        elif isinstance(event, HaClientHalt):
            if not view.peer(event):
                return f"{name} halts for {event.peer_address}, a broker of another brokerName: {event.detail}"
        elif event.status in ("changed", "unchanged") and not view.node_of(event.peer_address.rpartition(":")[0]):
            return f"{name} takes {event.part} over from {event.peer_address}, a broker of another brokerName"
        return None
