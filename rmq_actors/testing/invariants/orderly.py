"""With order, a queue's messages are consumed one after the other."""

from __future__ import annotations

import attrs

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.run import ClientConsume, ClientMember, FaultBegin, FaultEnd, OperatorPromote
from rmq_actors.tracing.events.store import StoreOpen

_Disturbance = StoreOpen | BrokerRoleEvent | OperatorPromote | FaultBegin | FaultEnd
_Looked = ClientConsume | ClientMember | ConsumerQueue | _Disturbance
#: Clients learn within some seconds where the master is.
_CALM_S = 10.0
#: The group whose consumers keep the order.
ORDERLY_GROUP = "orderly-group"


@attrs.define(eq=False, repr=False)
class _Listener:
    """A member that has a queue: since when, and whether its listener has a message of it now."""

    since_seq: int
    is_busy: bool = False
    #: Up to where it has consumed the queue; and up to where the one before it has that gave the queue up in order.
    consumed_to: int = -1
    begins_after: int = -1


@attrs.define(eq=False, repr=False)
class Orderly(Invariant[_Looked]):
    """A group of orderly consumers is given an offset of a queue after it has consumed the one before.

    No two members have messages of one queue at the same time. Locks are in the memory of a master: two may if it has
    ended, or is another one, since one of them took the queue. Where nothing was wrong for `_CALM_S`, the next owner of
    a queue that is given up begins after what was consumed by then: it was committed before the lock was given back.
    """

    name = "orderly"
    kinds = (
        *(ClientConsume, ClientMember, ConsumerQueue, StoreOpen, BrokerRoleEvent, OperatorPromote),
        *(FaultBegin, FaultEnd),
    )

    #: By queue.
    _consumed: dict[int, set[int]] = attrs.field(factory=dict, init=False)
    #: By member and queue.
    _listeners: dict[tuple[str, int], _Listener] = attrs.field(factory=dict, init=False)
    #: The master, and the masters before it: consumers may still have locks that one of these gave.
    _masters: set[str] = attrs.field(factory=set, init=False)
    #: By queue: up to where it was consumed when somebody gave it up last, and when that was, in ns.
    _given_up: dict[int, tuple[int, int]] = attrs.field(factory=dict, init=False)
    #: The faults that are there, and when anything was wrong last, in ns.
    _faults: set[int] = attrs.field(factory=set, init=False)
    _disturbed_ns: int = attrs.field(default=0, init=False)
    #: When one of them was opened last or had its role changed, or there was a new one.
    _locks_lost_seq: int = attrs.field(default=-1, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Keep who has which queue; look at what is given."""
        self._masters.add(view.master.name)
        if isinstance(event, _Disturbance):
            self._disturb(event)
        elif event.group != ORDERLY_GROUP:
            return None
        elif isinstance(event, ClientMember):
            self._listeners = {key: each for key, each in self._listeners.items() if key[0] != event.client}
        elif event.topic != CHAOS_TOPIC:
            return None
        elif isinstance(event, ConsumerQueue):
            self._hand_over(event)
        else:
            return self._look(event)
        return None

    def _disturb(self, event: _Disturbance) -> None:
        self._disturbed_ns = event.sim_time_ns or 0
        if isinstance(event, FaultBegin):
            self._faults.add(event.fault_id)
        elif isinstance(event, FaultEnd):
            self._faults.discard(event.fault_id)
        elif event.node in self._masters:
            self._locks_lost_seq = event.seq

    def _hand_over(self, event: ConsumerQueue) -> None:
        queue_id, key = event.queue_id, (event.client, event.queue_id)
        if event.status != "taken":
            if key in self._listeners:
                # What its listener has still under way is not committed, and comes again, as with RocketMQ's clients.
                self._given_up[queue_id] = self._listeners[key].consumed_to, event.sim_time_ns or 0
            return
        listener = self._listeners[key] = _Listener(event.seq)
        consumed_to, given_up_ns = self._given_up.pop(queue_id, (-1, 0))
        if not self._faults and given_up_ns - self._disturbed_ns > _CALM_S * 1e9:
            listener.begins_after = consumed_to

    def _look(self, event: ClientConsume) -> str | None:
        consumed, offset = self._consumed.setdefault(event.queue_id, set()), event.queue_offset
        listener = self._listeners.setdefault((event.client, event.queue_id), _Listener(event.seq))
        listener.is_busy = event.status == "begin"
        if event.status == "consumed":
            consumed.add(offset)
            listener.consumed_to = max(listener.consumed_to, offset)
        if event.status != "begin":
            return None
        what = f"{event.client} gives offset {offset} of queue {event.queue_id}"
        if offset > 0 and offset - 1 not in consumed:
            return f"{what}, and the one before was not consumed"
        if offset <= listener.begins_after:
            return f"{what}, which the one that gave the queue up had consumed"
        for (client, queue_id), other in self._listeners.items():
            if queue_id != event.queue_id or client == event.client or not other.is_busy:
                continue
            if min(listener.since_seq, other.since_seq) > self._locks_lost_seq:
                return f"{what}, while {client} has a message of that queue"
        return None
