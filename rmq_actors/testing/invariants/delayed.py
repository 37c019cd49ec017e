"""When and how often a delayed message is delivered."""

from __future__ import annotations

from collections import Counter

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.logs_of_masters import LogsOfMasters
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd, OperatorPromote
from rmq_actors.tracing.events.store import LogAppend, PutBegin, StoreOpen
from rmq_actors.wire.dispatch_request import (
    DELAY_LEVELS_MS,
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    SCHEDULE_TOPIC,
)
from rmq_actors.wire.record import StoredMessage
from sim_net import ClockDrift, ClockJump

#: Levels 1 to this one are used: 1 s and 5 s.
DELAY_LEVELS_USED = 2
#: How late a message may come while nothing is wrong. A store sees within 1 s that its disk has room again, and a
#: broker tries again within 1.6 s what its log has not taken.
LATE_MAX_MS = 3_000
_CLOCK_FAULTS = frozenset({ClockJump.__name__, ClockDrift.__name__})
_Disturbance = StoreOpen | BrokerRoleEvent | OperatorPromote | FaultBegin | FaultEnd
_Looked = LogAppend | PutBegin | _Disturbance
#: What tells a delayed message from others: its key, where it goes, and how often consuming it has failed.
_Id = tuple[str, str, str, int]


@attrs.define(eq=False, repr=False)
class Delayed(Invariant[_Looked]):
    """A delayed message comes after its delay, not earlier and not late, once in each life of a master, and at last.

    Whatever the master's log has in its queues of delayed messages, it also has where that was sent to, at least once.
    A life is that of a store, from its opening on: what is delivered in one and not noted durably comes again in the
    next one. In the life that has seen a message come its delay is exact, whatever the clocks do; in a later one it is
    so unless some clock was wrong. Late is what comes `LATE_MAX_MS` after it is due, and after the last time that
    anything was wrong anywhere: a fault, a start, a change of a role. Of messages that are told apart by nothing the
    last one counts.
    """

    name = "delayed"
    kinds = (LogAppend, PutBegin, StoreOpen, BrokerRoleEvent, OperatorPromote, FaultBegin, FaultEnd)

    #: When each delayed message was stored first, and last, by a master, in ns.
    _stored_ns: dict[_Id, int] = attrs.field(factory=dict, init=False)
    _stored_last_ns: dict[_Id, int] = attrs.field(factory=dict, init=False)
    #: By node and offset: when what is not in the log yet was put; a transient pool has it for a while.
    _put_ns: dict[str, dict[int, int]] = attrs.field(factory=dict, init=False)
    #: By node: when its store was opened, and what was delivered since then.
    _opened_ns: dict[str, int] = attrs.field(factory=dict, init=False)
    _delivered: dict[str, Counter[_Id]] = attrs.field(factory=dict, init=False)
    #: Whether a clock may be wrong.
    _clocks_wrong: bool = attrs.field(default=False, init=False)
    #: The faults that are not over, and when anything was wrong last, in ns.
    _faults: set[int] = attrs.field(factory=set, init=False)
    _disturbed_ns: int = attrs.field(default=0, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """What a master has just appended of its own."""
        now_ns = event.sim_time_ns or 0
        if isinstance(event, PutBegin):
            self._put_ns.setdefault(event.node, {})[event.offset] = now_ns
            return None
        if not isinstance(event, LogAppend):
            self._disturb(event, now_ns)
            return None
        node = view.nodes[event.node]
        if node.name != view.master.name:
            return None
        put_ns = self._put_ns.get(node.name, {})
        self._put_ns[node.name] = {offset: at_ns for offset, at_ns in put_ns.items() if offset >= node.end}
        for message in LogsOfMasters.messages_of(node.lineage, event.offset, node.end):
            identity = _identity(message)
            if identity is not None and message.topic == SCHEDULE_TOPIC:
                # Also of a master that has no term, as its disk was full: its slave may deliver it.
                stored_ns = put_ns.get(message.physical_offset, now_ns)
                self._stored_ns.setdefault(identity, stored_ns)
                self._stored_last_ns[identity] = stored_ns
            wrong = self._look(message, now_ns, node) if node.leads else None
            if wrong is not None:
                return wrong
        return None

    def _disturb(self, event: _Disturbance, now_ns: int) -> None:
        self._disturbed_ns = now_ns
        if isinstance(event, StoreOpen):
            self._put_ns.pop(event.node, None)
            self._opened_ns[event.node], self._delivered[event.node] = now_ns, Counter()
        elif isinstance(event, FaultBegin):
            self._clocks_wrong |= event.fault_kind in _CLOCK_FAULTS
            self._faults.add(event.fault_id)
        elif isinstance(event, FaultEnd):
            self._faults.discard(event.fault_id)

    def _look(self, message: StoredMessage, now_ns: int, node: NodeView) -> str | None:
        identity = _identity(message)
        if identity is None or message.topic == SCHEDULE_TOPIC:
            return None
        opened_ns, stored_ns = self._opened_ns.get(node.name, 0), self._stored_ns.get(identity)
        if stored_ns is None:
            return f"{node.name} delivers {identity} at {message.physical_offset}, which nobody has delayed"
        waited_ms, delay_ms = (now_ns - stored_ns) / 1e6, DELAY_LEVELS_MS[int(message.properties[PROPERTY_DELAY]) - 1]
        if opened_ns <= stored_ns or not self._clocks_wrong:
            if waited_ms < delay_ms:
                return f"{node.name} delivers {identity} after {waited_ms} ms of {delay_ms}"
            due_ns = self._stored_last_ns[identity] + delay_ms * 1_000_000
            late_ms = (now_ns - max(due_ns, self._disturbed_ns)) / 1e6
            if late_ms > LATE_MAX_MS and not self._faults:
                return f"{node.name} delivers {identity}, of {delay_ms} ms, {late_ms} ms late, and nothing was wrong"
        delivered = self._delivered.setdefault(node.name, Counter())
        delivered[identity] += 1
        stored = _counts(node.lineage, node.end)[SCHEDULE_TOPIC][identity]
        if delivered[identity] > stored:
            return f"{node.name} delivers {identity} {delivered[identity]} times in a life; it was sent {stored} times"
        return None

    def at_end(self, view: ClusterView) -> str | None:
        """Whether everything was delivered."""
        counts = _counts(view.master.lineage, view.master.end)
        for identity, stored in counts[SCHEDULE_TOPIC].items():
            if counts[""][identity] < stored:
                return f"{view.master.name} has {identity} delayed {stored} times, and delivered {counts[''][identity]}"
        return None


def _identity(message: StoredMessage) -> _Id | None:
    """None for a message that is not and was not delayed: one of a transaction has a real topic, too."""
    properties = message.properties
    if PROPERTY_DELAY not in properties:
        return None
    topic, queue_id = properties.get(PROPERTY_REAL_TOPIC), properties.get(PROPERTY_REAL_QUEUE_ID)
    is_delivered = (message.topic, str(message.queue_id)) == (topic, queue_id)
    if topic is None or queue_id is None or not (message.topic == SCHEDULE_TOPIC or is_delivered):
        return None
    return properties.get("KEYS", ""), topic, queue_id, message.reconsume_times


def _counts(lineage: Lineage, end: int) -> dict[str, Counter[_Id]]:
    """How often a log has each delayed message: as it waits, and, under "", as it is delivered."""
    counts: dict[str, Counter[_Id]] = {SCHEDULE_TOPIC: Counter(), "": Counter()}
    for message in LogsOfMasters.messages_of(lineage, 0, end):
        identity = _identity(message)
        if identity is not None:
            counts[SCHEDULE_TOPIC if message.topic == SCHEDULE_TOPIC else ""][identity] += 1
    return counts
