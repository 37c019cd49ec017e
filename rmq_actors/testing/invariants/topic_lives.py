"""What becomes of topics that are deleted and made again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from rmq_actors.protocols.metadata_rounds import Metadata
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.queue_numbers import messages
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientConnect
from rmq_actors.tracing.events.node import NodeKill, NodePowerLoss, NodeStop
from rmq_actors.tracing.events.run import (
    ClientTopic,
    ClientTopicOffset,
    ClientTopicPull,
    ClientTopicRead,
    OperatorPromote,
    OperatorSetUpAnew,
)
from rmq_actors.tracing.events.store import LogAppend, LogTruncate, StoreOpen
from rmq_actors.wire.response_code import ResponseCode

#: The topics that come and go.
TOPICS = ("Comes-0", "Comes-1")
_LAST_ROUND = "LastRound"
_OK = ResponseCode.SUCCESS.name
#: A topic and a queue id.
_Queue = tuple[str, int]


@attrs.frozen
class Deletion:
    """A deletion of a topic that a master has acknowledged: what the log had before `floor` is gone for good."""

    #: Which of all that were asked for.
    number: int
    floor: int
    #: Where the log ended when it was acknowledged: the topic's present life begins somewhere from `floor` to here.
    end: int
    #: Since when a node knows of it, in ns of virtual time.
    since_ns: int

    def before(self, end: int) -> Deletion:
        """In a log that ends there, and goes on in another way."""
        return attrs.evolve(self, floor=min(self.floor, end), end=min(self.end, end))


@attrs.define(eq=False, repr=False)
class TopicLives(Invariant[Any]):
    """What a topic had is gone from its master when its deletion is acknowledged, and never comes back.

    So it is at a slave that has twice taken over its master's topics since, and at such a slave that is promoted. A
    deletion that the next master was not told of is undone, as all that it was not told of. The next message of a
    deleted topic is number 0 of its queue, and no group's offset is left from before. In the end all brokers have the
    same of each topic: all that the log has since its last deletion.

    Nothing exact is said of a topic while a request of a client, whose answer is lost, may still take effect.
    """

    name = "topic_lives"
    kinds = (
        ClientTopic,
        ClientTopicOffset,
        ClientTopicPull,
        ClientTopicRead,
        LogAppend,
        LogTruncate,
        StoreOpen,
        HaClientConnect,
        BrokerSlaveSynchronize,
        OperatorPromote,
        OperatorSetUpAnew,
        NodeKill,
        NodeStop,
        NodePowerLoss,
    )

    #: What each node must know, by topic; and what its master knew when it asked that last.
    _known: dict[str, dict[str, Deletion]] = attrs.field(factory=lambda: defaultdict(dict), init=False)
    _told: dict[str, Mapping[str, Deletion]] = attrs.field(factory=dict, init=False)
    #: By topic: how many deletions were asked for, and where the master's log ended at the last one.
    _asked: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    _floor: dict[str, int] = attrs.field(factory=dict, init=False)
    #: By topic: where the master's log ended when the last deletion that was asked for can have taken effect.
    _settled: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    #: By topic: the nodes at which a request without an answer may take effect.
    _uncertain: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set), init=False)
    #: Topics that clients have asked for since they were deleted.
    _made: set[str] = attrs.field(factory=set, init=False)
    #: The greatest offset that was committed in the present life of a queue.
    _committed: dict[_Queue, int] = attrs.field(factory=dict, init=False)
    #: What the last reader has got of each node: by offset in the queue, where it stands.
    _read: dict[str, dict[_Queue, dict[int, int]]] = attrs.field(factory=dict, init=False)
    _has_promoted: bool = attrs.field(default=False, init=False)
    _checks: Mapping[type[Event], Callable[[Any, ClusterView], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = {
            ClientTopic: self._client_topic,
            ClientTopicOffset: self._offset,
            ClientTopicPull: self._pull,
            ClientTopicRead: self._topic_read,
            LogAppend: self._append,
            LogTruncate: self._forget,
            StoreOpen: self._open,
            HaClientConnect: self._connect,
            BrokerSlaveSynchronize: self._synchronize,
            OperatorPromote: self._promote,
            OperatorSetUpAnew: self._forget,
            NodeKill: self._died,
            NodeStop: self._died,
            NodePowerLoss: self._died,
        }

    def check(self, event: Event, view: ClusterView) -> str | None:
        """One step of a client, or of what a node knows."""
        return self._checks[type(event)](event, view)

    # --- what is known ----------------------------------------------------------------------------------------------

    def _client_topic(self, event: ClientTopic, view: ClusterView) -> None:
        topic, end = event.topic, view.master.end
        if event.status == "asked":
            if event.operation == "delete":
                self._asked[topic] += 1
                self._floor[topic] = end
            elif event.operation != "delete_group":
                self._made.add(topic)
            return
        if event.status not in ResponseCode.__members__:
            self._uncertain[topic].add(event.node)
        if event.operation != "delete":
            return
        self._settled[topic] = end
        if event.status != _OK or event.node != view.master.name:
            return
        now_ns = event.sim_time_ns or 0
        self._known[event.node][topic] = Deletion(self._asked[topic], self._floor[topic], end, now_ns)
        self._made.discard(topic)
        for queue in [queue for queue in self._committed if queue[0] == topic]:
            del self._committed[queue]

    def _synchronize(self, event: BrokerSlaveSynchronize, view: ClusterView) -> None:
        if event.part != Metadata.TOPICS.value or event.status not in ("changed", "unchanged"):
            return
        node, peer = event.node, view.nodes.get(view.node_of(event.peer_address.rpartition(":")[0]))
        known = {} if peer is None else self._known[peer.name]
        if peer is not view.master:
            self._keep(node, known)
            return
        # The first answer since may have been asked for before.
        is_last = event.actor == _LAST_ROUND and not peer.leads
        told = known if is_last else self._told.get(node, {})
        now_ns = event.sim_time_ns or 0
        for topic, deletion in known.items():
            is_new = self._known[node].get(topic) is None or self._known[node][topic].number < deletion.number
            if is_new and topic in told and told[topic].number == deletion.number:
                self._known[node][topic] = attrs.evolve(deletion, since_ns=now_ns)
        self._told[node] = dict(known)

    def _keep(self, node: str, known: Mapping[str, Deletion]) -> None:
        """What another broker does not know, this one need not, which takes over its table."""
        mine = self._known[node]
        for topic in [each for each in mine if each not in known or known[each].number != mine[each].number]:
            del mine[topic]

    def _promote(self, event: OperatorPromote, view: ClusterView) -> None:
        self._has_promoted = True
        node = view.nodes[event.node]
        known = {topic: deletion.before(node.end) for topic, deletion in self._known[node.name].items()}
        self._known[node.name] = known
        self._told.clear()
        self._settled = defaultdict(int, {topic: min(end, node.end) for topic, end in self._settled.items()})
        for name in view.nodes:
            self._keep(name, known)
            self._known[name] = {topic: each.before(node.end) for topic, each in self._known[name].items()}

    def _open(self, event: StoreOpen, view: ClusterView) -> None:
        node = view.nodes[event.node]
        if node.opened is not None and node.opened.cut is not None:
            self._forget(event, view)
        elif node is view.master:
            self._known[node.name] = {topic: each.before(node.end) for topic, each in self._known[node.name].items()}
            self._settled = defaultdict(int, {topic: min(end, node.end) for topic, end in self._settled.items()})

    def _connect(self, event: HaClientConnect, view: ClusterView) -> None:
        if view.peer(event) != view.master.name:
            self._forget(event, view)

    def _forget(self, event: Event, _: ClusterView) -> None:
        """Nothing is left of it, or its log was cut: with what comes after the cut it loses points."""
        self._known.pop(event.node, None)
        self._told.pop(event.node, None)

    def _died(self, event: NodeKill | NodeStop | NodePowerLoss, view: ClusterView) -> None:
        for topic, nodes in self._uncertain.items():
            if event.node in nodes:
                nodes.discard(event.node)
                self._settled[topic] = view.master.end

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _exact(self, topic: str, node: str) -> Deletion | None:
        """The last deletion of a topic, if the node knows of it and none can have taken effect since."""
        deletion = self._known[node].get(topic)
        if deletion is None or deletion.number != self._asked[topic] or self._uncertain[topic]:
            return None
        return deletion

    def _append(self, event: LogAppend, view: ClusterView) -> str | None:
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        for at, (topic, queue_id), number in messages(node.lineage, event.offset, node.end):
            deletion = self._exact(topic, node.name) if topic in TOPICS else None
            if deletion is None or at < deletion.end:
                continue
            before = [(n, a) for a, n in _of_queue(node, (topic, queue_id), deletion.floor, at)]
            due = before[-1][0] + 1 if before else 0
            if number == due or (before and before[-1][1] < deletion.end and number == 0):
                continue
            return (
                f"{node.name} gives the message at {at} number {number} in queue {queue_id} of {topic}, which was "
                f"deleted at {deletion.floor}: {due} is due"
            )
        return None

    def _topic_read(self, event: ClientTopicRead, _: ClusterView) -> str | None:
        queue = event.topic, event.queue_id
        what = f"{event.node} gives the message at {event.offset} for offset {event.queue_offset} of {queue}"
        if event.status != "as_sent":
            return f"{what}, and nobody has sent that"
        if event.actor == LAST_READER:
            self._read.setdefault(event.node, {}).setdefault(queue, {})[event.queue_offset] = event.offset
        deletion = self._known[event.node].get(event.topic)
        if deletion is None or event.asked_ns < deletion.since_ns or event.offset >= deletion.floor:
            return None
        return f"{what}; the topic was deleted at {deletion.floor}"

    def _pull(self, event: ClientTopicPull, _: ClusterView) -> None:
        if event.actor == LAST_READER and event.status != ResponseCode.TOPIC_NOT_EXIST.name:
            self._read.setdefault(event.node, {}).setdefault((event.topic, event.queue_id), {})

    def _offset(self, event: ClientTopicOffset, view: ClusterView) -> str | None:
        queue, offset = (event.topic, event.queue_id), event.queue_offset
        if event.operation == "commit":
            self._committed[queue] = max(self._committed.get(queue, 0), offset)
            return None
        deletion = self._exact(event.topic, event.node)
        if deletion is None or event.asked_ns < deletion.since_ns or offset <= self._committed.get(queue, 0):
            return None
        return f"{event.node} has offset {offset} of a group in {queue}, which was deleted since"

    def at_end(self, view: ClusterView) -> str | None:
        """What the last reader got of each broker, and what their files have."""
        if not self._asked and not self._read:
            return None
        master = view.master
        for node in view.nodes.values():
            if node.has_halted:
                continue
            wrong = self._kept(node, view) or next(filter(None, self._wrong_queues(node, master)), None)
            if wrong is not None:
                return wrong
        return self._lost(master)

    def _kept(self, node: NodeView, view: ClusterView) -> str | None:
        """What is left of topics that were deleted, and not asked for since."""
        topics, offsets = view.evidence.table(node.name, "topics"), view.evidence.consumer_offsets(node.name)
        for topic in TOPICS:
            if self._exact(topic, view.master.name) is None or topic in self._made:
                continue
            if topic in topics:
                return f"{node.name} has {topic}, which was deleted"
            key = next((each for each in offsets if each.startswith(f"{topic}@")), None)
            if key is not None:
                return f"{node.name} has the offsets {offsets[key]} of {key}, which was deleted"
        return None

    def _wrong_queues(self, node: NodeView, master: NodeView) -> Iterator[str | None]:
        own, masters = self._read.get(node.name, {}), self._read.get(master.name, {})
        for queue in sorted({*own, *masters}):
            found, of_master = own.get(queue, {}), masters.get(queue, {})
            least = min(found, default=0)
            if node.power_back_at < 0 and list(found) != list(range(len(found))):
                yield f"{node.name} has {sorted(found)} of queue {queue}"
            # After a power loss the first file of a queue may be gone.
            begin = max(least if node.power_back_at >= 0 else 0, min(of_master, default=0))
            if _from(found, begin) != _from(of_master, begin):
                yield f"{node.name} has {found} of queue {queue}, its master {of_master}"

    def _lost(self, master: NodeView) -> str | None:
        """A message since the last deletion that nobody could read in the end."""
        for topic in TOPICS:
            if self._uncertain[topic] or master.name not in self._read:
                continue
            read = {queue: found for queue, found in self._read[master.name].items() if queue[0] == topic}
            if not read and self._has_promoted:
                continue  # the next master was not told that it was made
            for at, queue, number in messages(master.lineage, max(master.begin, self._settled[topic]), master.end):
                if queue[0] != topic or (at < master.power_back_at and number < min(read.get(queue, {}), default=0)):
                    continue
                if read.get(queue, {}).get(number) != at:
                    return f"{master.name} has number {number} of queue {queue} at {at}: nobody could read it"
        return None


def _of_queue(node: NodeView, queue: _Queue, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where each message of a queue stands, and its number."""
    return ((at, number) for at, each, number in messages(node.lineage, begin, end) if each == queue)


def _from(found: Mapping[int, int], begin: int) -> Mapping[int, int]:
    return {number: at for number, at in found.items() if number >= begin}
