"""What two brokers must do and must not while they exchange their roles."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import TABLES, ClusterView
from rmq_actors.tracing.events.broker import BrokerExchange, BrokerExchangePartner
from rmq_actors.tracing.events.run import ClientTable
from rmq_actors.tracing.events.store import PutBegin, StoreOpen

_Looked = BrokerExchange | BrokerExchangePartner | ClientTable | PutBegin | StoreOpen
_MAY_LEAD = "and its note says that another one may lead"


@attrs.define(eq=False, repr=False)
class Exchanges(Invariant[_Looked]):
    """A master asks for no promotion before its note of it is in its file.

    While that note is there it takes no put, and acknowledges no topic or group: the next master would not have it.
    A slave is promoted once for each time that it has said that it is ready, and not if its store was opened since.
    """

    name = "exchanges"
    kinds = (BrokerExchange, BrokerExchangePartner, ClientTable, PutBegin, StoreOpen)

    #: The brokers that have a note. It is written and removed within a step of an exchange: the next one shows it.
    _noted: set[str] = attrs.field(factory=set, init=False)
    #: The slaves that are ready, and have not been promoted since.
    _ready: set[str] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Look at the note at each step, and at what is done with it."""
        name = event.node
        if isinstance(event, PutBegin):
            return f"{name} takes a put, {_MAY_LEAD}" if name in self._noted else None
        if isinstance(event, ClientTable):
            is_made = event.status == "ok" and event.part in TABLES and name in self._noted
            return f"{name} acknowledges {event.entry} of {event.part}, {_MAY_LEAD}" if is_made else None
        if isinstance(event, BrokerExchangePartner):
            return self._check_partner(event)
        self._noted.discard(name)
        if view.evidence.has_exchange_note(name):
            self._noted.add(name)
        if isinstance(event, StoreOpen):
            self._ready.discard(name)
        elif event.effect == "Promote" and name not in self._noted:
            return f"{name} asks {event.peer_address} to become the master, and has no note of that in its file"
        return None

    def _check_partner(self, event: BrokerExchangePartner) -> str | None:
        name = event.node
        if event.status == "ready":
            self._ready.add(name)
        elif event.status == "is_promoted":
            if name not in self._ready:
                return f"{name} becomes the master in an exchange for which it is not ready, or not any more"
            self._ready.discard(name)
        return None
