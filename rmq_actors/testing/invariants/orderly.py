"""With order, a queue's messages are consumed one after the other."""

from __future__ import annotations

import attrs

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.run import ClientConsume, ClientMember, OperatorPromote
from rmq_actors.tracing.events.store import StoreOpen

_Looked = ClientConsume | ClientMember | ConsumerQueue | StoreOpen | BrokerRoleEvent | OperatorPromote
#: The group whose consumers keep the order.
ORDERLY_GROUP = "orderly-group"


@attrs.define(eq=False, repr=False)
class _Listener:
    """A member that has a queue: since when, and whether its listener has a message of it now."""

    since_seq: int
    is_busy: bool = False


@attrs.define(eq=False, repr=False)
class Orderly(Invariant[_Looked]):
    """A group of orderly consumers is given an offset of a queue after it has consumed the one before.

    No two members have messages of one queue at the same time. Locks are in the memory of a master: two may if it has
    ended, or is another one, since one of them took the queue.
    """

    name = "orderly"
    kinds = (ClientConsume, ClientMember, ConsumerQueue, StoreOpen, BrokerRoleEvent, OperatorPromote)

    #: By queue.
    _consumed: dict[int, set[int]] = attrs.field(factory=dict, init=False)
    #: By member and queue.
    _listeners: dict[tuple[str, int], _Listener] = attrs.field(factory=dict, init=False)
    #: The master, and the masters before it: consumers may still have locks that one of these gave.
    _masters: set[str] = attrs.field(factory=set, init=False)
    #: When one of them was opened last or had its role changed, or there was a new one.
    _locks_lost_seq: int = attrs.field(default=-1, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Keep who has which queue; look at what is given."""
        self._masters.add(view.master.name)
        if isinstance(event, StoreOpen | BrokerRoleEvent | OperatorPromote):
            if event.node in self._masters:
                self._locks_lost_seq = event.seq
        elif event.group != ORDERLY_GROUP:
            return None
        elif isinstance(event, ClientMember):
            self._listeners = {key: each for key, each in self._listeners.items() if key[0] != event.client}
        elif event.topic != CHAOS_TOPIC:
            return None
        elif isinstance(event, ConsumerQueue):
            if event.status == "taken":
                self._listeners[event.client, event.queue_id] = _Listener(event.seq)
        else:
            return self._look(event)
        return None

    def _look(self, event: ClientConsume) -> str | None:
        consumed, offset = self._consumed.setdefault(event.queue_id, set()), event.queue_offset
        listener = self._listeners.setdefault((event.client, event.queue_id), _Listener(event.seq))
        listener.is_busy = event.status == "begin"
        if event.status == "consumed":
            consumed.add(offset)
        if event.status != "begin":
            return None
        what = f"{event.client} gives offset {offset} of queue {event.queue_id}"
        if offset > 0 and offset - 1 not in consumed:
            return f"{what}, and the one before was not consumed"
        for (client, queue_id), other in self._listeners.items():
            if queue_id != event.queue_id or client == event.client or not other.is_busy:
                continue
            if min(listener.since_seq, other.since_seq) > self._locks_lost_seq:
                return f"{what}, while {client} has a message of that queue"
        return None
