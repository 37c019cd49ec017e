"""What a slave does that has halted."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent, BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientClose, HaClientConnect, HaClientHalt, HaClientRedirect, HaHeartbeat
from rmq_actors.tracing.events.node import NodeKill, NodePause, NodePowerLoss, NodeStop
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd, OperatorCommand
from rmq_actors.tracing.events.store import StoreOpen

_Faults = FaultBegin | FaultEnd
_Tries = HaClientConnect | HaClientClose | HaClientRedirect
_Ends = NodeKill | NodeStop | NodePowerLoss | NodePause | BrokerRoleEvent | StoreOpen
_Looked = BrokerSlaveSynchronize | HaClientHalt | OperatorCommand | HaHeartbeat | _Faults | _Tries | _Ends
_TRIES = (HaClientConnect, HaClientClose, HaClientRedirect)
_ENDS = (NodeKill, NodeStop, NodePowerLoss, NodePause, BrokerRoleEvent, StoreOpen)
#: The service that asks for tables, one after the other.
_ROUNDS = "SlaveSynchronize"
#: How long an attempt may take to begin: a connection may take 5 s, and a log must be flushed first.
_BEGINS_WITHIN_S = 10.0
#: After how long a slave asks again by itself where nothing can cut its log, at the latest.
_ASKS_AGAIN_S = 45.0
_NOTHING_IN_COMMON = "the master is known to have nothing of it"


@attrs.define(eq=False, repr=False)
class Halted(Invariant[_Looked]):
    """A slave that has halted takes over no tables, and asks its master again when it is told to.

    Where no cut can end the halt it asks by itself, too.
    """

    name = "halted"
    kinds = (BrokerSlaveSynchronize, HaClientHalt, OperatorCommand, HaHeartbeat, FaultBegin, FaultEnd, *_TRIES, *_ENDS)

    #: How many tables each halted slave has taken over since. The first may have come before the halt.
    _taken: dict[str, int] = attrs.field(factory=dict, init=False)
    #: The nodes of each fault at work.
    _faulty: dict[int, list[str]] = attrs.field(factory=dict, init=False)
    #: Until when each must have begun to ask again.
    _asks_until_s: dict[str, float] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Tables that are taken over, and attempts that do not come."""
        name, now_s = event.node, (event.sim_time_ns or 0) / 1e9
        late = next((each for each, until_s in self._asks_until_s.items() if now_s > until_s), None)
        if late is not None:
            return f"{late} has halted, and has not asked its master again by {self._asks_until_s[late]:g} s"
        if isinstance(event, BrokerSlaveSynchronize):
            return self._check_table(event)
        if isinstance(event, OperatorCommand):
            if event.status == "follow_again" and event.detail is None and name in self._taken:
                self._expect(name, now_s + _BEGINS_WITHIN_S)
        elif isinstance(event, HaClientHalt):
            self._taken[name] = 0
            self._asks_until_s.pop(name, None)
            if event.status == "offset_gone" or _NOTHING_IN_COMMON in event.detail:
                self._expect(name, now_s + _ASKS_AGAIN_S + _BEGINS_WITHIN_S)
        else:
            self._excuse(event)
        return None

    def _excuse(self, event: HaHeartbeat | _Faults | _Tries | _Ends) -> None:
        """It has asked, or cannot ask any more."""
        name = event.node
        if isinstance(event, FaultBegin):
            # A disk that stands still keeps a slave from the attempt. Others are left out with it.
            self._faulty[event.fault_id] = event.nodes.split(",")
            for each in self._faulty[event.fault_id]:
                self._asks_until_s.pop(each, None)
        elif isinstance(event, FaultEnd):
            self._faulty.pop(event.fault_id, None)
        elif not isinstance(event, HaHeartbeat):
            self._asks_until_s.pop(name, None)
            if not isinstance(event, NodePause | HaClientClose | HaClientRedirect):
                self._taken.pop(name, None)

    def _expect(self, name: str, until_s: float) -> None:
        if not any(name in nodes for nodes in self._faulty.values()):
            self._asks_until_s[name] = min(until_s, self._asks_until_s.get(name, until_s))

    def _check_table(self, event: BrokerSlaveSynchronize) -> str | None:
        if event.actor != _ROUNDS or event.status not in ("changed", "unchanged") or event.node not in self._taken:
            return None
        self._taken[event.node] += 1
        if self._taken[event.node] < 2:
            return None
        return f"{event.node} has halted, and takes {event.part} over from {event.peer_address}"
