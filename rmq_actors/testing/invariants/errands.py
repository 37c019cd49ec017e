"""What becomes of errands, and how soon."""

from __future__ import annotations

from typing import Any

import attrs

from rmq_actors.testing.errands import ERRANDS, ErrandKind
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.node import NodeBoot, NodeKill, NodePowerLoss, NodeStop
from rmq_actors.tracing.events.run import ClientErrand, FaultBegin, FaultEnd, OperatorPromote, OperatorStop
from rmq_actors.tracing.events.store import StoreOpen

_CHANGES = (StoreOpen, BrokerRoleEvent, OperatorPromote, OperatorStop, NodeBoot, NodeKill, NodeStop, NodePowerLoss)

#: What comes with a stop in order, and with a start after it.
_OF_STOPS = (OperatorStop, NodeStop, NodeBoot, StoreOpen, BrokerRoleEvent)


@attrs.define(eq=False, repr=False)
class Errands(Invariant[Any]):
    """An errand that nothing disturbs ends as its kind says, and in time; so does each request of it.

    It is disturbed by a fault that is there or begins or ends meanwhile, unless its kind ignores that one, and by a
    broker that starts, ends or changes its role. What an errand needs may be refused: then it says nothing.
    """

    name = "errands"
    kinds = (ClientErrand, FaultBegin, FaultEnd, *_CHANGES)

    #: The faults that are there; what has begun or ended, in the trace's order: where, and which fault that was.
    _faults: dict[int, FaultBegin] = attrs.field(factory=dict, init=False)
    _disturbances: list[tuple[int, Event | None]] = attrs.field(factory=list, init=False)
    #: By topic: where the errand has begun, and which faults were there.
    _begun: dict[str, tuple[int, list[FaultBegin]]] = attrs.field(factory=dict, init=False)

    def check(self, event: Event, view: ClusterView) -> str | None:
        """A step of an errand, or what may disturb it."""
        if isinstance(event, FaultBegin):
            self._faults[event.fault_id] = event
            self._disturbances.append((event.seq, event))
        elif isinstance(event, FaultEnd):
            self._disturbances.append((event.seq, self._faults.pop(event.fault_id, None)))
        elif not isinstance(event, ClientErrand):
            self._disturbances.append((event.seq, event))
        elif event.status == "begun":
            self._begun[event.key] = event.seq, list(self._faults.values())
        else:
            return self._ended(event)
        return None

    def _ended(self, event: ClientErrand) -> str | None:
        begun_seq, at_work = self._begun.pop(event.key)
        kind = ERRANDS[event.operation]
        met = [*at_work, *(met for seq, met in self._disturbances if seq > begun_seq)]
        if not event.detail or any(_disturbs(each, kind) for each in met):
            return None
        return f"{event.operation} at {event.node}, {event.key}, {event.status}: {event.detail}"


def _disturbs(met: Event | None, kind: ErrandKind) -> bool:
    if isinstance(met, FaultBegin):
        return not kind.ignores(met)
    return not kind.outlives_stops or not isinstance(met, _OF_STOPS)
