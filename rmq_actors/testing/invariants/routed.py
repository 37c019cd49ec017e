"""What name servers tell of brokers, and what slaves make of it."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerMaster
from rmq_actors.tracing.events.namesrv import NamesrvRegister, NamesrvRemove
from rmq_actors.tracing.events.run import NameServerEmpty, NameServerTells

_Looked = BrokerMaster | NamesrvRegister | NamesrvRemove | NameServerEmpty | NameServerTells
#: A name server has not taken the broker in: another process has its address.
_LATE = "late"
_NEW = "new"
_NOT_LIVE = "not_live"


@attrs.define(eq=False, repr=False)
class Routed(Invariant[_Looked]):
    """In quiet times routes tell of each broker what it is, and of the master what clients may do with it.

    A slave that knows its master does not forget it. A name server forgets a broker only if it says so, or is new.
    """

    name = "routed"
    kinds = (BrokerMaster, NamesrvRegister, NamesrvRemove, NameServerEmpty, NameServerTells)

    #: By name server and address: the brokerName and brokerId that are registered.
    _known: dict[tuple[str, str], tuple[str, int]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """What is told, and what was known before."""
        if isinstance(event, BrokerMaster):
            return None if event.master_addr else f"{event.node} has forgotten its master"
        if isinstance(event, NameServerTells):
            return _why_wrong(event)
        if isinstance(event, NameServerEmpty):
            self._known = {key: broker for key, broker in self._known.items() if key[0] != event.node}
            return None
        key, broker = (event.node, event.broker_addr), (event.broker_name, event.broker_id)
        if isinstance(event, NamesrvRemove):
            if event.status != _NOT_LIVE:
                self._known.pop(key, None)
            return None
        if event.status == _LATE:
            return None
        if event.status == _NEW and self._known.get(key) == broker:
            return f"{event.node} has forgotten {event.broker_name} id {event.broker_id} at {event.broker_addr}"
        self._known[key] = broker
        return None


def _why_wrong(event: NameServerTells) -> str | None:
    ids = event.ids or "nothing"
    if ids != str(event.broker_id) and not (event.has_rival and not event.ids):
        return f"{event.broker} has brokerId {event.broker_id}, {event.node} routes its address as {ids}"
    if event.told != event.permission:
        return f"{event.broker} has brokerPermission {event.permission}, {event.node} tells {event.told}"
    return None
