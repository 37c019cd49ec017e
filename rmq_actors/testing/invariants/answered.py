"""What brokers answer to strangers, and what their requests leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.queue_numbers import messages
from rmq_actors.testing.strange_requests import (
    AGAIN,
    GROUP,
    MARK,
    NOT_ASKED,
    STORED,
    STRANGE_TOPIC,
    STRAY,
    UNANSWERED,
    WAITING_PUTS_MAX,
    Found,
    read_message,
)
from rmq_actors.testing.strange_rules import RULES
from rmq_actors.testing.view import TABLES, ClusterView
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.node import NodeKill, NodePowerLoss
from rmq_actors.tracing.events.run import (
    ClientStranger,
    ClientStrangerLeaves,
    ClientTopicPull,
    ClientTopicRead,
    FaultBegin,
    FaultEnd,
    OperatorPromote,
)
from rmq_actors.tracing.events.storage import StorageError, StorageStuck
from rmq_actors.tracing.events.store import LogAppend, PutBegin, StoreOpen
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC
from rmq_actors.wire.response_code import ResponseCode

MASTER = "MASTER"
#: After its end a fault may be why there is no answer: TCP sends again ever later, and a stranger waits 5 s.
_FAULT_LASTS_NS = 20 * 10**9


@attrs.frozen
class _Asked:
    at_ns: int
    role: str
    #: How often the node's store had been opened, or its role been changed.
    changes: int
    #: Whether it wrote the log that counts.
    leads: bool
    #: How often a put had come while so many waited that one more would be refused.
    full: int
    #: Whether it had been promoted, and not yet shown that it knew the strangers' topic.
    may_lack_topic: bool
    #: Whether it is a slave that does not know the strangers' group.
    lacks_group: bool


@attrs.define(eq=False, repr=False)
class Answered(Invariant[Any]):
    """A request of a stranger is answered as is right for it at a master, or at a slave, or not at all.

    What must be refused leaves nothing: no message in a log, no topic, no group. What a message was answered with says
    whether it stands in the log by then, as it was sent, and all of a batch; none stands there twice, and a delayed one
    waits first. In the end each broker has all of their topic that the log has, one offset after the other. No more
    puts wait than may. Other refusals, or no answer, are right where a role changes meanwhile, a disk has failed since
    the store was opened, a fault is not long over, or as many puts wait as may.
    """

    name = "answered"
    kinds = (
        ClientStranger,
        ClientStrangerLeaves,
        LogAppend,
        PutBegin,
        StoreOpen,
        BrokerRoleEvent,
        FaultBegin,
        FaultEnd,
        NodeKill,
        NodePowerLoss,
        OperatorPromote,
        StorageError,
        StorageStuck,
        ClientTopicPull,
        ClientTopicRead,
    )

    #: By the request's name, and node.
    _asked: dict[tuple[str, str], _Asked] = attrs.field(factory=dict, init=False)
    _changes: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    _full: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    #: Nodes whose disks have failed since their stores were opened.
    _disk_failed: set[str] = attrs.field(factory=set, init=False)
    #: Faults that are not over, by their numbers, and when one was the last time.
    _faults: set[int] = attrs.field(factory=set, init=False)
    _fault_ns: int | None = attrs.field(default=None, init=False)
    #: Nodes that were ever promoted, and those of them that may not know the strangers' topic yet.
    _promoted: set[str] = attrs.field(factory=set, init=False)
    _may_lack_topic: set[str] = attrs.field(factory=set, init=False)
    #: What may be in a log, by checksum: its queue, and whether it must wait first.
    _leaves: dict[int, tuple[int, bool]] = attrs.field(factory=dict, init=False)
    #: The checksums of what each request may leave, by its name.
    _left_by: dict[str, set[int]] = attrs.field(factory=lambda: defaultdict(set), init=False)
    #: What a log has had where clients put it, by checksum: where it stood, and its record. A delayed one waits there.
    _put: dict[int, tuple[int, bytes]] = attrs.field(factory=dict, init=False)
    #: What the last reader has got of each node: by queue and offset there, where it stands; and the least offsets.
    _read: dict[str, dict[tuple[int, int], int]] = attrs.field(factory=dict, init=False)
    _least: dict[tuple[str, int], int] = attrs.field(factory=dict, init=False)
    _checks: Mapping[type[Event], Callable[[Any, ClusterView], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = {
            ClientStranger: self._stranger,
            ClientStrangerLeaves: self._may_leave,
            LogAppend: self._append,
            PutBegin: self._put_begun,
            NodeKill: self._change,
            NodePowerLoss: self._change,
            StoreOpen: self._open,
            BrokerRoleEvent: self._change,
            FaultBegin: self._fault,
            FaultEnd: self._fault,
            OperatorPromote: self._promote,
            StorageError: self._disk,
            StorageStuck: self._disk,
            ClientTopicPull: self._pull,
            ClientTopicRead: self._topic_read,
        }

    def check(self, event: Event, view: ClusterView) -> str | None:
        """One step of a stranger, or of what a node is."""
        return self._checks[type(event)](event, view)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _stranger(self, event: ClientStranger, view: ClusterView) -> str | None:
        name, node = (event.key, event.node), event.node
        leads = view.master.name == node and view.master.leads
        if event.status == "asked":
            is_full = len(view.nodes[node].unanswered) >= WAITING_PUTS_MAX
            full, may_lack_topic = self._full[node] - is_full, node in self._may_lack_topic
            now_ns, changes = event.sim_time_ns or 0, self._changes[node]
            is_of_group = event.role != MASTER and RULES[event.operation].needs_group
            lacks_group = is_of_group and GROUP not in view.evidence.table(node, "subscription_groups")
            self._asked[name] = _Asked(now_ns, event.role, changes, leads, full, may_lack_topic, lacks_group)
            return None
        asked = self._asked.pop(name)
        is_the_same = bool(event.role) and event.role == asked.role and self._changes[node] == asked.changes
        if event.status not in ResponseCode.__members__:
            return self._no_answer(event, asked) if is_the_same else None
        code, rule = ResponseCode[event.status], RULES[event.operation]
        what = f"{node}, {event.role or 'of no role'}, answers {event.operation} {event.key} with {event.status}"
        if not is_the_same:
            may_be_taken = rule.may_be_taken or rule.is_by_setting
            is_taken = code in STORED and not may_be_taken and code not in (*rule.at_master, *rule.at_slave)
            return f"{what}, though no broker may do it" if is_taken else None
        right = rule.at_master if event.role == MASTER else rule.at_slave
        if code not in right:
            return None if self._is_excused(code, event, asked) else f"{what}; right are {_names(right)}"
        if event.detail:
            return f"{what}: {event.detail}"
        if event.role == MASTER and rule.needs_topic and code in STORED:
            self._may_lack_topic.discard(node)
        lacks = event.role == MASTER and code in rule.stored and asked.leads and leads and self._lacks(event, asked)
        return f"{what}, and {lacks} of its messages are not in the log" if lacks else None

    def _no_answer(self, event: ClientStranger, asked: _Asked) -> str | None:
        if event.status == UNANSWERED:
            return f"{event.node} ends a connection after a frame that is none, and had not answered {event.key}"
        is_over = self._fault_ns is None or asked.at_ns - self._fault_ns > _FAULT_LASTS_NS
        may_be_silent = event.status == NOT_ASKED or RULES[event.operation].may_be_silent
        if may_be_silent or self._faults or not is_over:
            return None
        return f"{event.node} has not answered {event.operation} {event.key}, and there is no fault: {event.status}"

    def _is_excused(self, code: ResponseCode, event: ClientStranger, asked: _Asked) -> bool:
        """Whether something else than the request is why it is refused."""
        rule, has_failed = RULES[event.operation], event.node in self._disk_failed
        if code == ResponseCode.TOPIC_NOT_EXIST:
            return event.role == MASTER and rule.needs_topic and asked.may_lack_topic
        if code in (ResponseCode.SYSTEM_ERROR, ResponseCode.PULL_NOT_FOUND):
            return has_failed
        is_busy = has_failed or self._full[event.node] > asked.full
        return code in AGAIN and (is_busy or (asked.lacks_group and code == ResponseCode.SERVICE_NOT_AVAILABLE))

    def _lacks(self, event: ClientStranger, asked: _Asked) -> int:
        """How many messages the log has never had that it must have by now."""
        # An answer to a client is refused for that client: it says nothing of a store that did not take it, either.
        may_be_untaken = event.node in self._disk_failed or self._full[event.node] > asked.full
        if may_be_untaken and event.status == ResponseCode.SYSTEM_ERROR.name:
            return 0
        return len(self._left_by[event.key] - self._put.keys())

    def _put_begun(self, event: PutBegin, view: ClusterView) -> str | None:
        waiting = len(view.nodes[event.node].unanswered)
        self._full[event.node] += waiting >= WAITING_PUTS_MAX
        return f"{event.node} has {waiting} puts that wait" if waiting > WAITING_PUTS_MAX else None

    def _change(self, event: BrokerRoleEvent | NodeKill | NodePowerLoss, _: ClusterView) -> None:
        self._changes[event.node] += 1

    def _open(self, event: StoreOpen, _: ClusterView) -> None:
        self._changes[event.node] += 1
        self._disk_failed.discard(event.node)

    def _promote(self, event: OperatorPromote, _: ClusterView) -> None:
        self._promoted.add(event.node)
        self._may_lack_topic.add(event.node)

    def _disk(self, event: StorageError | StorageStuck, _: ClusterView) -> None:
        self._disk_failed.add(event.node)

    def _fault(self, event: FaultBegin | FaultEnd, _: ClusterView) -> None:
        self._fault_ns = event.sim_time_ns or 0
        if isinstance(event, FaultBegin):
            self._faults.add(event.fault_id)
        else:
            self._faults.discard(event.fault_id)

    # --- what they leave --------------------------------------------------------------------------------------------

    def _may_leave(self, event: ClientStrangerLeaves, _: ClusterView) -> None:
        self._leaves[event.checksum] = event.queue_id, event.status == "delayed"
        self._left_by[event.key].add(event.checksum)

    def _append(self, event: LogAppend, view: ClusterView) -> str | None:
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        log = node.lineage.log
        for at in node.lineage.records(event.offset, node.end):
            size, magic = BLANK.unpack_from(log, at)
            if magic != MESSAGE_MAGIC:
                continue
            record = bytes(log[at : at + size])
            found = read_message(record)
            wrong = self._wrong_message(found, at, record, log)
            if wrong is not None:
                return f"{node.name} has a message at {at}, queue {found.queue_id} of {found.topic}, {wrong}"
        return None

    def _wrong_message(self, found: Found, at: int, record: bytes, log: bytearray) -> str | None:
        if found.topic != STRANGE_TOPIC and not found.body.startswith(MARK) and not found.topic.startswith(STRAY):
            return None
        if found.checksum not in self._leaves:
            return "as nobody may have it put"
        queue_id, is_delayed = self._leaves[found.checksum]
        if queue_id not in (-1, found.queue_id):
            return f"which was sent to queue {queue_id}"
        if found.waits and not is_delayed:
            return "which waits, and nobody has delayed it"
        if is_delayed and not found.waits:
            # It may come twice: a crash may forget that it has come.
            return None if found.checksum in self._put else "which has not waited, though it was delayed"
        stood_at, stood = self._put.get(found.checksum, (at, record))
        self._put[found.checksum] = at, record
        # What a loss of power took from a log is not there twice.
        if stood_at != at and log[stood_at : stood_at + len(stood)] == stood:
            return f"which was sent once, and stands at {stood_at} too"
        return None

    # --- the end ----------------------------------------------------------------------------------------------------

    def _pull(self, event: ClientTopicPull, _: ClusterView) -> None:
        if event.actor == LAST_READER and event.status != ResponseCode.TOPIC_NOT_EXIST.name:
            self._read.setdefault(event.node, {})
            self._least[event.node, event.queue_id] = event.queue_offset_min

    def _topic_read(self, event: ClientTopicRead, _: ClusterView) -> str | None:
        if event.status != "as_sent":
            return (
                f"{event.node} gives the message at {event.offset} for offset {event.queue_offset} of queue "
                f"{event.queue_id} of {event.topic}, and nobody has sent that"
            )
        if event.actor == LAST_READER:
            self._read.setdefault(event.node, {})[event.queue_id, event.queue_offset] = event.offset
        return None

    def at_end(self, view: ClusterView) -> str | None:
        """What is left of them at each broker."""
        for node in view.nodes.values():
            wrong = self._made(node, view) or (None if node.has_halted else self._unread(node, view))
            if wrong is not None:
                return wrong
        return None

    def _made(self, node: NodeView, view: ClusterView) -> str | None:
        for part in TABLES:
            if strays := sorted(name for name in view.evidence.table(node.name, part) if name.startswith(STRAY)):
                return f"{node.name} has {', '.join(strays)} among its {part}: who asked for it was to be refused"
        return None

    def _unread(self, node: NodeView, view: ClusterView) -> str | None:
        read = self._read.get(node.name)
        master = view.master
        knows_topic = node is master and node.name not in self._promoted
        if read is None:
            if not knows_topic:
                return None  # it has not been told of the topic
            read = {}
        expected = {}
        for at, (topic, queue_id), offset in messages(master.lineage, max(master.begin, node.begin), master.end):
            # A slave may hear of the topic between two of its queues.
            if topic == STRANGE_TOPIC and (knows_topic or (node.name, queue_id) in self._least):
                expected[queue_id, offset] = at
        for queue, at in expected.items():
            # After a power loss the first file of a queue may be gone.
            may_be_gone = at < node.power_back_at and queue[1] < self._least.get((node.name, queue[0]), 0)
            if read.get(queue) != at and not may_be_gone:
                return f"{node.name} has {queue} at {at}; a consumer gets {read.get(queue, 'nothing')}"
        if len(read) > len(expected):
            return f"{node.name} gives {sorted(read.keys() - expected.keys())}, which the log does not have"
        return None


def _names(codes: Collection[int]) -> str:
    return ", ".join(sorted(ResponseCode(code).name for code in codes))
