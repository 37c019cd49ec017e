"""Who hears nothing for haHousekeepingInterval ends the connection, and nobody else does it for that reason."""

from __future__ import annotations

from typing import Final

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientConnect,
    HaClientRedirect,
    HaClientReport,
    HaConnectionClose,
    HaConnectionOpen,
)
from rmq_actors.tracing.events.node import NodeBoot, NodeKill, NodePowerLoss, NodeStop
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd
from rmq_actors.tracing.events.store import StoreOpen

_Leaves = HaClientRedirect | StoreOpen
_Ends = NodeBoot | NodeKill | NodePowerLoss | NodeStop
_Looked = (
    FaultBegin
    | FaultEnd
    | HaClientConnect
    | HaClientReport
    | HaClientClose
    | HaConnectionOpen
    | HaConnectionClose
    | _Leaves
    | _Ends
)
#: A slave leaves its master without a word: it is told another one, or opens its store again, in this role or another.
_LEAVES = (HaClientRedirect, StoreOpen)
_ENDS = (NodeBoot, NodeKill, NodePowerLoss, NodeStop)
#: What keeps all bytes from the first of its nodes from the second.
_CUTS = ("Partition", "Hold", "Stall")
#: A broker notices a cut of this length before the cut ends: the interval is 20 s, and bytes may need 2 s to arrive.
_NOTICED_IN_S: Final = 24.0
#: The longest that TCP may be silent once a fault is over: after a loss it tries again later and later.
_CALM_S: Final = 60.0
_SILENT = "housekeeping"


@attrs.define(eq=False, repr=False)
class _Fault:
    kind: str
    nodes: list[str]
    began_s: float
    #: Nodes that another fault is at work on meanwhile: a pause, a disk.
    disturbed: set[str] = attrs.field(factory=set)


@attrs.define(eq=False, repr=False)
class Housekeeping(Invariant[_Looked]):
    """A connection on which nothing came for 20 s is ended, by slave and by master.

    A slave that hears its master's heartbeats ends none for its silence.
    """

    name = "housekeeping"
    kinds = (
        *(FaultBegin, FaultEnd, HaClientConnect, HaClientReport, HaClientClose),
        *(HaConnectionOpen, HaConnectionClose, *_LEAVES, *_ENDS),
    )

    _faults: dict[int, _Fault] = attrs.field(factory=dict, init=False)
    #: When something last went wrong, or a node came or went.
    _calm_since_s: float = attrs.field(default=0.0, init=False)
    #: Which node each slave is connected to, and since when it follows that.
    _masters: dict[str, tuple[str, float | None]] = attrs.field(factory=dict, init=False)
    #: Since when masters have which connections of slaves.
    _slaves: dict[str, dict[int, tuple[str, float]]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Connections that end for silence, and faults that have made silence."""
        name, now_s = event.node, (event.sim_time_ns or 0) / 1e9
        if isinstance(event, HaClientReport):
            master, since_s = self._masters.get(name, ("", now_s))
            if since_s is None:
                self._masters[name] = master, now_s
        elif isinstance(event, FaultBegin):
            self._begin(event, now_s)
        elif isinstance(event, FaultEnd):
            self._calm_since_s = now_s
            return self._end(event, now_s)
        elif isinstance(event, HaClientConnect):
            self._masters[name] = view.peer(event), None
        elif isinstance(event, HaClientClose):
            master, _ = self._masters.pop(name, ("", None))
            if event.status == _SILENT and not self._faults and now_s - self._calm_since_s > _CALM_S:
                return f"{name} hears nothing of {master}, and no fault has been at work for {_CALM_S:g} s"
        elif isinstance(event, HaConnectionOpen):
            self._slaves.setdefault(name, {})[event.conn_id] = view.peer(event), now_s
        elif isinstance(event, HaConnectionClose):
            self._slaves.get(name, {}).pop(event.conn_id, None)
        elif isinstance(event, _LEAVES):
            self._masters.pop(name, None)
        else:
            self._calm_since_s = now_s
            self._masters.pop(name, None)
            self._slaves.pop(name, None)
        return None

    def _begin(self, event: FaultBegin, now_s: float) -> None:
        self._calm_since_s = now_s
        fault = _Fault(event.fault_kind, event.nodes.split(","), now_s)
        for other in self._faults.values():
            shared = {*other.nodes} & {*fault.nodes}
            other.disturbed |= shared
            fault.disturbed |= shared
        self._faults[event.fault_id] = fault

    def _end(self, event: FaultEnd, now_s: float) -> str | None:
        fault = self._faults.pop(event.fault_id, None)
        if fault is None or fault.kind not in _CUTS or now_s - fault.began_s < _NOTICED_IN_S:
            return None
        sender, deaf = fault.nodes
        if deaf in fault.disturbed:
            return None
        master, since_s = self._masters.get(deaf, ("", None))
        if master == sender and since_s is not None and since_s < fault.began_s:
            return f"{deaf} has heard nothing of {sender} since {fault.began_s:g} s, and still follows it"
        for of, since_s in self._slaves.get(deaf, {}).values():
            if of == sender and since_s < fault.began_s:
                return f"{deaf} has heard nothing of {sender} since {fault.began_s:g} s, and has not let it go"
        return None
