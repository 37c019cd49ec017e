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
    MARK,
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
    OperatorPromote,
)
from rmq_actors.tracing.events.storage import StorageError, StorageStuck
from rmq_actors.tracing.events.store import LogAppend, PutBegin, StoreOpen
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC
from rmq_actors.wire.response_code import ResponseCode

MASTER = "MASTER"


@attrs.frozen
class _Asked:
    role: str
    #: How often the node's store had been opened, or its role been changed.
    changes: int


@attrs.define(eq=False, repr=False)
class Answered(Invariant[Any]):
    """A request of a stranger is answered as is right for it at a master, or at a slave, or not at all.

    What must be refused leaves nothing: no message in a log, no topic, no group. A message that is taken stands in the
    log as it was sent, and a delayed one waits before that. In the end each broker has all of their topic that the log
    has, one offset after the other. No more puts wait than may. Where a role changes meanwhile, or a disk fails, more
    refusals are right, and nothing else.
    """

    name = "answered"
    kinds = (
        ClientStranger,
        ClientStrangerLeaves,
        LogAppend,
        PutBegin,
        StoreOpen,
        BrokerRoleEvent,
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
    _disk_failed: set[str] = attrs.field(factory=set, init=False)
    _has_promoted: bool = attrs.field(default=False, init=False)
    #: What may be in a log, by checksum: its queue, and whether it must wait first.
    _leaves: dict[int, tuple[int, bool]] = attrs.field(factory=dict, init=False)
    #: Checksums of delayed messages that a log has had where they wait.
    _waited: set[int] = attrs.field(factory=set, init=False)
    #: What the last reader has got of each node: by queue and offset there, where it stands; and the least offsets.
    _read: dict[str, dict[tuple[int, int], int]] = attrs.field(factory=dict, init=False)
    _least: dict[tuple[str, int], int] = attrs.field(factory=dict, init=False)
    _checks: Mapping[type[Event], Callable[[Any, ClusterView], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = {
            ClientStranger: self._stranger,
            ClientStrangerLeaves: self._may_leave,
            LogAppend: self._append,
            PutBegin: self._put,
            NodeKill: self._change,
            NodePowerLoss: self._change,
            StoreOpen: self._change,
            BrokerRoleEvent: self._change,
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

    def _stranger(self, event: ClientStranger, _: ClusterView) -> str | None:
        name = event.key, event.node
        if event.status == "asked":
            self._asked[name] = _Asked(event.role, self._changes[event.node])
            return None
        asked = self._asked.pop(name)
        is_the_same = event.role == asked.role and event.role and self._changes[event.node] == asked.changes
        if event.status == UNANSWERED and is_the_same:
            return (
                f"{event.node} ends a connection after a frame that is none, and has not answered {event.key} before it"
            )
        if event.status not in ResponseCode.__members__:
            return None  # no answer
        code, rule = ResponseCode[event.status], RULES[event.operation]
        what = f"{event.node}, {event.role or 'of no role'}, answers {event.operation} {event.key} with {event.status}"
        if not is_the_same:
            is_taken = code in STORED and not rule.may_be_taken and code not in (*rule.at_master, *rule.at_slave)
            return f"{what}, though no broker may do it" if is_taken else None
        right = rule.at_master if event.role == MASTER else rule.at_slave
        if code in right:
            return f"{what}: {event.detail}" if event.detail else None
        may_fail = code == ResponseCode.SYSTEM_ERROR and event.node in self._disk_failed
        may_lack_topic = code == ResponseCode.TOPIC_NOT_EXIST and rule.needs_topic and self._has_promoted
        return None if may_fail or may_lack_topic else f"{what}; right are {_names(right)}"

    def _put(self, event: PutBegin, view: ClusterView) -> str | None:
        waiting = len(view.nodes[event.node].unanswered)
        return f"{event.node} has {waiting} puts that wait" if waiting > WAITING_PUTS_MAX else None

    def _change(self, event: StoreOpen | BrokerRoleEvent | NodeKill | NodePowerLoss, _: ClusterView) -> None:
        self._changes[event.node] += 1

    def _promote(self, _: OperatorPromote, __: ClusterView) -> None:
        self._has_promoted = True

    def _disk(self, event: StorageError | StorageStuck, _: ClusterView) -> None:
        self._disk_failed.add(event.node)

    # --- what they leave --------------------------------------------------------------------------------------------

    def _may_leave(self, event: ClientStrangerLeaves, _: ClusterView) -> None:
        self._leaves[event.checksum] = event.queue_id, event.status == "delayed"

    def _append(self, event: LogAppend, view: ClusterView) -> str | None:
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        log = node.lineage.log
        for at in node.lineage.records(event.offset, node.end):
            size, magic = BLANK.unpack_from(log, at)
            if magic != MESSAGE_MAGIC:
                continue
            found = read_message(bytes(log[at : at + size]))
            wrong = self._wrong_message(found)
            if wrong is not None:
                return f"{node.name} has a message at {at}, queue {found.queue_id} of {found.topic}, {wrong}"
        return None

    def _wrong_message(self, found: Found) -> str | None:
        if found.topic != STRANGE_TOPIC and not found.body.startswith(MARK) and not found.topic.startswith(STRAY):
            return None
        if found.checksum not in self._leaves:
            return "as nobody may have it put"
        queue_id, is_delayed = self._leaves[found.checksum]
        if queue_id not in (-1, found.queue_id):
            return f"which was sent to queue {queue_id}"
        if found.waits:
            self._waited.add(found.checksum)
        if found.waits and not is_delayed:
            return "which waits, and nobody has delayed it"
        if is_delayed and found.checksum not in self._waited:
            return "which has not waited, though it was delayed"
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
        if read is None:
            return None  # it has not been told of the topic
        master = view.master
        expected = {}
        for at, (topic, queue_id), offset in messages(master.lineage, max(master.begin, node.begin), master.end):
            # A slave may hear of the topic between two of its queues.
            if topic == STRANGE_TOPIC and (node.name, queue_id) in self._least:
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
