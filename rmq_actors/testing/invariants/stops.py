"""How long a stop in order takes."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.node import NodeKill, NodePowerLoss, NodeStop
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd, OperatorStop
from sim_net import ClockDrift, ClockJump

_Looked = OperatorStop | NodeStop | NodeKill | NodePowerLoss | FaultBegin | FaultEnd
#: An operator's orders come as faults do; and nothing that a stop waits for goes by a wall clock.
_NO_FAULTS = frozenset({Operation.__name__, ClockJump.__name__, ClockDrift.__name__})
#: Name servers are told (6 s), a question to another broker is given up, what is owed to clients is sent (1 s).
STOPS_WITHIN_S = 15.0


@attrs.define(eq=False, repr=False)
class Stops(Invariant[_Looked]):
    """A broker that is asked to stop has ended within 15 s, whatever it was doing, if nothing was wrong meanwhile.

    Whoever waits for it to do something hears that it stops: nobody keeps its process. A service manager would kill it.
    """

    name = "stops"
    kinds = (OperatorStop, NodeStop, NodeKill, NodePowerLoss, FaultBegin, FaultEnd)

    #: When each was asked to stop.
    _asked_s: dict[str, float] = attrs.field(factory=dict, init=False)
    _faults: set[int] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """The end of a broker that was asked to stop."""
        now_s = (event.sim_time_ns or 0) / 1e9
        if isinstance(event, FaultBegin | FaultEnd):
            if event.fault_kind in _NO_FAULTS:
                return None
            self._asked_s.clear()
            if isinstance(event, FaultBegin):
                self._faults.add(event.fault_id)
            else:
                self._faults.discard(event.fault_id)
        elif isinstance(event, OperatorStop):
            if not self._faults:
                self._asked_s.setdefault(event.node, now_s)
        else:
            asked_s = self._asked_s.pop(event.node, None)
            if asked_s is not None and now_s - asked_s > STOPS_WITHIN_S:
                return f"{event.node} was asked to stop {now_s - asked_s:.3f} s ago, and nothing was wrong"
        return None
