"""The state of a cluster as its trace tells it: `ClusterView` applies events, and invariants look at it.

The view does not believe what a broker says about its log: it follows the trace to know *when* to look, and reads the
bytes from each node's page cache (`Evidence`) to know *what* is there. Its model is the log that each master has
written, in full. It judges nothing: an event that should not have been is applied as far as it makes sense, and what
it did stands in `NodeView.appended`, `opened` and `cut` for the invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import attrs

from rmq_actors.protocols.term import Term
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.node_view import Appended, Cut, NodeView, Opened
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerRoleEvent, BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientCompare,
    HaClientConnect,
    HaClientHalt,
    HaConnectionClose,
    HaConnectionOpen,
    HaReport,
)
from rmq_actors.tracing.events.node import NodeKill, NodePause, NodePowerLoss, NodeResume, NodeStop
from rmq_actors.tracing.events.run import ClientTable, ClientTopic, OperatorPromote, OperatorSetUpAnew
from rmq_actors.tracing.events.storage import StorageRot
from rmq_actors.tracing.events.store import (
    LogAppend,
    LogDelete,
    LogFlush,
    LogTruncate,
    PutBegin,
    PutEnd,
    StoreOpen,
    StoreTerm,
)

#: The status of `OperatorPromote`: the slave was chosen as the one with the longest log.
LONGEST = "longest"
#: The parent of all services of a broker's store: the first actor that starts where a broker goes to work.
STORE_SERVICES = "store"
#: The tables whose entries are durable once they are acknowledged.
TABLES = ("topics", "subscription_groups")


class Evidence(Protocol):
    """What a view can look at without asking brokers."""

    def read_log(self, node: str, begin: int, end: int) -> bytes:
        """The bytes of the node's log in its page cache."""

    def is_kept(self, node: str, offset: int, data: bytes, *, except_at: Collection[int] = ()) -> bool:
        """Whether the node has kept aside what its log had from `offset` on; the bytes at some offsets may differ."""

    def table(self, node: str, part: str) -> frozenset[str]:
        """The names of a table's entries, topics or groups, as the node's file has them in its page cache."""

    def consumer_offsets(self, node: str) -> Mapping[str, Mapping[int, int]]:
        """The offsets of its file, by "topic@group" and queue."""

    def term(self, node: str) -> Term:
        """The term of replication that the node's file has."""

    def has_exchange_note(self, node: str) -> bool:
        """Whether the node's disk has the note of an exchange of roles."""

    def deletions_under_way(self, node: str) -> Collection[str]:
        """The topics that the node has begun to delete, and has not ended to, as its file has them."""

    def fallbehind_max_bytes(self, node: str) -> int:
        """How far behind a slave may be for which the node's broker lets a put wait (haSlaveFallbehindMax)."""

    def offsets_past_ends(self, node: str) -> Sequence[tuple[str, int, int, int]]:
        """Consumers' offsets that the node's broker has past their queues' ends: "topic@group", queue, offset, end."""

    def damage(self, node: str) -> Sequence[str]:
        """What `store check` finds wrong in the store of a node that has stopped."""

    def leaks(self) -> Sequence[str]:
        """What stopped brokers have left open."""


@attrs.frozen
class Promotion:
    """A slave has become the master: with which log, and which slaves had followed the one before it."""

    lineage: Lineage
    followers: Collection[str]
    is_longest: bool


@attrs.define(eq=False, repr=False)
class ClusterView:
    """A master and its slaves: `names` are all, `first_master` is whose log counts at first.

    `node_of` gives the node of an IP address; "": a stranger's. `acks` slaves must have what is answered PUT_OK;
    `sync_flush` are the nodes with flushDiskType SYNC_FLUSH. `takes_parts`: slaves append parts of records, as
    RocketMQ's do.

    Longer than 300 lines because each kind of event that changes what is known is one short method.
    """

    first_master: str
    names: Sequence[str]
    node_of: Callable[[str], str]
    evidence: Evidence
    acks: int = 1
    sync_flush: Collection[str] = ()
    takes_parts: bool = False
    nodes: Mapping[str, NodeView] = attrs.field(init=False)
    #: The node whose log counts now, and the others.
    master: NodeView = attrs.field(init=False)
    slaves: Sequence[NodeView] = attrs.field(init=False)
    #: Puts that were answered PUT_OK.
    acked: int = attrs.field(default=0, init=False)
    cuts: list[Cut] = attrs.field(factory=list, init=False)
    #: The topics and groups that clients have asked for, by table. Before that nobody looks at any table.
    asked_for: Mapping[str, set[str]] = attrs.field(factory=lambda: {part: set() for part in TABLES}, init=False)
    has_tables: bool = attrs.field(default=False, init=False)
    #: Topics whose deletion clients have asked for: their queues may begin again.
    deleted_topics: set[str] = attrs.field(factory=set, init=False)
    promotion: Promotion | None = attrs.field(default=None, init=False)
    #: What applies the events of each kind.
    appliers: Mapping[type[Event], Callable[[Any], None]] = attrs.field(init=False)
    #: Where the log begins that the master has written itself: others may have had what is before it from another.
    _own_begin: int = attrs.field(default=0, init=False)
    #: Where any log ever began.
    _first_offsets: set[int] = attrs.field(factory=lambda: {0}, init=False)
    #: When a slave last had two connections to the master, in ns: both count (`docs/invariants.md`).
    _doubled_ns: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        first = Lineage()
        self.nodes = {name: NodeView(name, first, name in self.sync_flush) for name in self.names}
        self._set_master(self.nodes[self.first_master])
        self.appliers = {
            LogAppend: self._append,
            LogTruncate: self._truncate,
            LogDelete: self._delete,
            LogFlush: self._flush,
            StorageRot: self._rot,
            StoreOpen: self._open,
            StoreTerm: self._term,
            BrokerRoleEvent: self._role,
            BrokerSlaveSynchronize: self._slave_synchronize,
            ClientTable: self._client_table,
            ClientTopic: self._client_topic,
            HaConnectionOpen: self._connection_open,
            HaReport: self._report,
            HaConnectionClose: self._connection_close,
            HaClientConnect: self._client_connect,
            HaClientCompare: self._client_compare,
            HaClientClose: self._client_close,
            HaClientHalt: self._client_halt,
            PutBegin: self._put_begin,
            PutEnd: self._put_end,
            NodeKill: self._kill,
            NodeStop: self._stop,
            NodePowerLoss: self._power_loss,
            NodePause: self._pause,
            NodeResume: self._resume,
            OperatorPromote: self._promote,
            OperatorSetUpAnew: self._set_up_anew,
        }

    def apply(self, event: Event) -> None:
        """Go on to what is true after `event`."""
        applier = self.appliers.get(type(event))
        if applier is not None:
            applier(event)

    # --- what is asked of it ----------------------------------------------------------------------------------------

    @property
    def log_of_master(self) -> Lineage:
        """The log that counts."""
        return self.master.lineage

    @property
    def unanswered(self) -> int:
        """How many puts of living nodes wait for their answer."""
        return sum(len(node.unanswered) for node in self.nodes.values())

    @property
    def halted(self) -> Collection[str]:
        """Nodes that do not follow, as their log diverges from their master's."""
        return [name for name, node in self.nodes.items() if node.has_halted]

    @property
    def without_log(self) -> Collection[str]:
        """Nodes that have lost their power, and not yet opened what is left of their log."""
        return [name for name, node in self.nodes.items() if node.has_lost_power]

    @property
    def converged(self) -> bool:
        """Whether every node has all of the master's log, or has halted."""
        return not any(self.lacks(node) for node in self.nodes.values())

    @property
    def needs_a_put(self) -> bool:
        """Whether a slave is ahead of the master, and cannot know by how much before the master has its next record."""
        master, end = self.log_of_master, self.master.end
        logs = [(slave.lineage, slave.end) for slave in self.slaves if slave.end > end]
        is_empty = end <= self.master.begin
        return any(is_empty or (own.common(master) >= end and own.tells_nothing(end, own_end)) for own, own_end in logs)

    def has_followed(self, node: NodeView) -> bool:
        """Whether the node's log is the beginning of the master's."""
        own, master = node.lineage, self.log_of_master
        return own is master or own.common(master) >= node.end

    def lacks(self, node: NodeView) -> bool:
        """Whether the node's log is not all of the master's, and it has not halted."""
        # After a power loss nothing is known about a node's log until it has opened what is left.
        return node.has_lost_power or (
            not node.has_halted and (node.end != self.master.end or not self.has_followed(node))
        )

    def needs_what_is_gone(self, node: NodeView) -> bool:
        """Whether the master has deleted what comes next in the node's log."""
        return 0 < node.end < self.master.begin

    def damaged_bodies(self, node: NodeView) -> Sequence[int]:
        """Where in a message's body, which a checksum covers, the node's log has something else than was written."""
        return [
            offset
            for offset in sorted(node.rotten)
            if node.begin <= offset < node.end
            and node.lineage.is_in_a_body(offset)
            and self.evidence.read_log(node.name, offset, offset + 1) != node.lineage.log[offset : offset + 1]
        ]

    def log_differs(self, node: NodeView) -> str | None:
        """Where the node's page cache has something else than its log should have, in words; None: nowhere."""
        return self.differs(node, node.begin, self.evidence.read_log(node.name, node.begin, node.end), node.end)

    def differs(self, node: NodeView, begin: int, found: bytes, end: int) -> str | None:
        """Where `found` is not what the node's log should have from `begin` to `end`; bits that flipped are none."""
        expected = node.lineage.log[begin:end]
        for offset in node.rotten:
            if begin <= offset < min(end, begin + len(found)):
                at = offset - begin
                found = found[:at] + expected[at : at + 1] + found[at + 1 :]
        if found == expected:
            return None
        first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(expected))
        return f"{node.name} differs from the master's log at offset {begin + first}"

    def peer(self, event: HaConnectionOpen | HaClientConnect | HaClientHalt) -> str:
        """The node at the other end of the connection that the event is of."""
        return self.node_of(event.peer_address.rpartition(":")[0])

    def acks_at(self, event: Event) -> int:
        """How many slaves must have what is acknowledged by `event`, the last one applied."""
        return min(self.acks, 1) if self._is_doubled or self._doubled_ns == event.sim_time_ns else self.acks

    # --- logs -------------------------------------------------------------------------------------------------------

    def _append(self, event: LogAppend) -> None:
        node, offset = self.nodes[event.node], event.offset
        end = offset + event.size
        node.appended = appended = Appended(offset, end, node.end)
        if offset != node.end and not self._begins_at(node, offset):
            appended.continues = False
            return
        own, master = node.lineage, self.log_of_master
        appended.data = data = self._without_copied_rot(node, offset, self.evidence.read_log(node.name, offset, end))
        # What a master sent before it was lost may still arrive, even at the promoted slave. All else comes from the
        # new one.
        source = master if node.source is None else node.source
        sent = source if source.log[offset:end] == data else master
        if node.leads and node is not self.master and master.log[offset:end] != data:
            self._write_beside(node, data)
        elif node is self.master:
            if offset == len(master.log):
                if sent is not master:
                    master.append_from(sent, end)
                    self._own_begin = end
                else:
                    master.append(data)
                self._note_regrown()
        elif sent is not own and own.log[offset:end] != data:
            common = own.common(sent)
            if offset > common and offset > node.begin:  # else there is nothing yet that could differ
                appended.parts_at = common
                return
            node.lineage = sent
        node.end = end
        node.ever = max(node.ever, end)
        if node.lineage is not master and master.common(node.lineage) >= end:
            node.lineage = master
        if node.lineage is master:
            node.highest = max(node.highest, end)

    def _without_copied_rot(self, node: NodeView, offset: int, data: bytes) -> bytes:
        """What a slave appends, as it was written: it takes over the flipped bits that no checksum covers."""
        peer = self.nodes.get(node.followed)
        if node is self.master or node.leads or peer is None:
            return data
        written = bytearray(data)
        for at in peer.rotten:
            if offset <= at < min(offset + len(data), len(peer.lineage.log)):
                if data[at - offset] != peer.lineage.log[at]:
                    node.rotten.add(at)
                written[at - offset] = peer.lineage.log[at]
        return bytes(written)

    def _write_beside(self, node: NodeView, data: bytes) -> None:
        """Another one has been promoted, and this one still, or again, is a master: its log is one of its own."""
        if node.lineage is self.log_of_master or len(node.lineage.log) != node.end:
            node.lineage = node.lineage.fork(node.end)
        node.lineage.append(data)

    def _begins_at(self, node: NodeView, offset: int) -> bool:
        """Whether the node's log, of which there is nothing, may begin there: where another one does, or did.

        It may follow another slave, and be the master before, while nobody has been promoted yet.
        """
        if node.leads or node.end > node.begin or offset not in self._first_offsets:
            return False
        source = self.log_of_master if node.source is None else node.source
        node.begin = node.began_at = offset
        node.lineage = source.fork(offset) if node is self.master else self.log_of_master
        return True

    def _note_regrown(self) -> None:
        """The master was sent what others have too, by the one before it: they had it first."""
        for slave in self.slaves:
            if slave.lineage is not self.log_of_master:
                had = min(slave.end, slave.lineage.common(self.log_of_master))
                slave.highest = max(slave.highest, had)

    def _delete(self, event: LogDelete) -> None:
        self.nodes[event.node].begin = event.offset
        self._first_offsets.add(event.offset)

    def _flush(self, event: LogFlush) -> None:
        node = self.nodes[event.node]
        node.synced = event.offset
        node.durable = max(node.durable, node.synced)

    def _rot(self, event: StorageRot) -> None:
        directory, _, name = event.path.rpartition("/")
        if directory == COMMIT_LOG_DIRECTORY:
            self.nodes[event.node].rotten.add(int(name) + event.file_offset)

    def _truncate(self, event: LogTruncate) -> None:
        self._cut(self.nodes[event.node], event.offset)

    def _cut(self, node: NodeView, offset: int, *, may_be_unfinished: bool = False) -> Cut:
        """The node's log ends at `offset` now, by a truncation, or by one that has not come to its end."""
        own, master = node.lineage, self.log_of_master
        rotten = frozenset(at for at in node.rotten if at >= offset)
        common, is_damaged = own.common_records(master), bool(node.rotten)
        is_unfinished = may_be_unfinished and offset > common
        node.cut = cut = Cut(
            node.name, offset, node.end, own, self.master.name, common, rotten, is_damaged, node.begin, is_unfinished
        )
        self.cuts.append(cut)
        node.end = node.durable = offset
        node.rotten -= rotten  # what comes in their place is good
        node.has_halted = False
        if not is_unfinished:  # else what is left still diverges: the node halts once more, and is cut again
            node.highest, node.lineage, node.may_cut = offset, master, False
        return cut

    def _open(self, event: StoreOpen) -> None:
        node, end, cut = self.nodes[event.node], event.offset, None
        node.source = None
        for part in node.tables:
            self._look_at_table(node, part)
        # Its first file is there, and there was no room for a record.
        if end > node.end and self._begins_at(node, end):
            node.end = node.durable = end
        before = node.durable if node.has_lost_power else node.end
        whole = node.lineage.whole_records(before)
        is_damaged = node.whole_before_rot(end, whole) < whole
        if end < whole and node.may_cut and not is_damaged:  # it died within its truncation, or its disk failed
            node.has_lost_power = False
            node.end = node.lineage.whole_records(node.end)
            cut, whole = self._cut(node, end, may_be_unfinished=True), end
        own = node.lineage
        if whole <= node.begin and node is not self.master:
            whole = 0  # nothing is left of it: it begins again
        whole = min(whole, node.whole_before_rot(end, whole))
        if end > len(own.log):
            own.fill_blank(end)
        node.opened = opened = Opened(end, before, whole, own, cut, node.has_lost_power)
        node.end = end
        # What is not there may come again, and at another place.
        node.begin, node.durable = min(node.begin, end), min(node.durable, end)
        node.synced = 0  # what a kill has left in the page cache may never have been synced
        if node.has_lost_power:
            node.has_lost_power = False
            node.power_back_at = end
            self._power_is_back(node, opened)
        # A record whose missing bytes are zeros is whole: a blank needs no more than its head.
        node.ever = max(node.ever, end)
        if self.has_followed(node):
            node.highest = max(node.highest, end)
        if node is self.master and end < len(self.log_of_master.log):
            self._begin_lineage(end)  # without what it had not synced, or of a record that had come in part
            self._own_begin = min(self._own_begin, end)

    def _power_is_back(self, node: NodeView, opened: Opened) -> None:
        log = self.log_of_master
        if node is self.master and opened.end < len(log.log):
            lost_from = max(opened.end, self._own_begin)
            # Records that were written in the place of others may begin with the same bytes.
            had = ((slave.name, min(slave.end, slave.lineage.common_records(log))) for slave in self.slaves)
            opened.ahead = next(((name, end) for name, end in had if end > lost_from), None)
        elif node.lineage.common(log) >= opened.end:
            node.lineage = log

    def _begin_lineage(self, end: int) -> None:
        """The master's log goes on from `end` in a way of its own."""
        self.master.lineage = lineage = self.log_of_master.fork(end)
        for node in self.nodes.values():
            # What it has now may be more of this log than it had of the one before.
            node.highest = min(max(node.highest, node.end), node.lineage.common(lineage))

    # --- replication ------------------------------------------------------------------------------------------------

    def _connection_open(self, event: HaConnectionOpen) -> None:
        node, peer = self.nodes[event.node], self.peer(event)
        if peer:
            node.outlived.update(conn_id for conn_id, of in node.peers.items() if of == peer)
        node.peers[event.conn_id] = peer

    def _report(self, event: HaReport) -> None:
        outlived = self.nodes[event.node].outlived
        if event.conn_id in outlived:
            outlived.remove(event.conn_id)
            self._note_doubles(event)

    def _connection_close(self, event: HaConnectionClose) -> None:
        self._note_doubles(event)
        node = self.nodes[event.node]
        node.peers.pop(event.conn_id, None)
        node.outlived.discard(event.conn_id)

    @property
    def _is_doubled(self) -> bool:
        """Whether a slave has two connections to the master that may both count.

        One that has reported nothing since a newer one came from there does not.
        """
        master = self.master
        peers = [peer for conn_id, peer in master.peers.items() if peer and conn_id not in master.outlived]
        return len(set(peers)) < len(peers)

    def _note_doubles(self, event: Event) -> None:
        if self._is_doubled:
            self._doubled_ns = event.sim_time_ns

    def _client_connect(self, event: HaClientConnect) -> None:
        node = self.nodes[event.node]
        node.has_halted = node.may_cut = False
        peer, node.leads = self.nodes.get(self.peer(event)), False
        if peer is None:  # a broker of another brokerName
            node.followed, node.source = "", None
            return
        node.followed = peer.name
        # A node that has not heard of a promotion yet may follow the old master, or a slave with its log.
        is_known = peer is self.master or (peer.term > 0 and peer.term >= node.term)
        node.source = peer.lineage if is_known else None

    def _client_compare(self, event: HaClientCompare) -> None:
        if event.status in ("lookup_failed", "no_answer"):
            self.nodes[event.node].could_not_ask = True

    def _client_close(self, event: HaClientClose) -> None:
        self.nodes[event.node].could_not_ask = False

    def _client_halt(self, event: HaClientHalt) -> None:
        if self.peer(event) == self.master.name:
            node = self.nodes[event.node]
            node.has_halted = node.may_cut = True

    # --- puts -------------------------------------------------------------------------------------------------------

    def _put_begin(self, event: PutBegin) -> None:
        node = self.nodes[event.node]
        began_ns = (event.sim_time_ns or 0) - node.paused_ns
        for msg_id in event.msg_ids:
            node.unanswered[msg_id] = began_ns

    def _put_end(self, event: PutEnd) -> None:
        # A paused node cannot answer: the time of a pause does not count.
        node = self.nodes[event.node]
        began_ns = min([node.unanswered.pop(msg_id) for msg_id in event.msg_ids])
        node.waited_s = ((event.sim_time_ns or 0) - node.paused_ns - began_ns) / 1e9
        if event.status == "PUT_OK":
            self.acked += len(event.msg_ids)

    # --- nodes and operators ----------------------------------------------------------------------------------------

    def _kill(self, event: NodeKill) -> None:
        self.nodes[event.node].died(in_order=False)

    def _stop(self, event: NodeStop) -> None:
        self.nodes[event.node].died(in_order=True)

    def _power_loss(self, event: NodePowerLoss) -> None:
        node = self.nodes[event.node]
        node.died(in_order=False)
        node.has_lost_power = True

    def _pause(self, event: NodePause) -> None:
        node = self.nodes[event.node]
        if node.paused_at_ns is None:
            node.paused_at_ns = event.sim_time_ns or 0

    def _resume(self, event: NodeResume) -> None:
        node = self.nodes[event.node]
        if node.paused_at_ns is not None:
            node.paused_ns += (event.sim_time_ns or 0) - node.paused_at_ns
            node.paused_at_ns = None

    def _term(self, event: StoreTerm) -> None:
        node = self.nodes[event.node]
        node.term = event.term
        node.leads = event.status == "promoted"
        if node.leads:
            node.term_led = event.term

    def _role(self, event: BrokerRoleEvent) -> None:
        if event.status == "changed":
            self.nodes[event.node].role = event.role

    def _client_table(self, event: ClientTable) -> None:
        self.has_tables = True
        if event.part in TABLES:
            self.asked_for[event.part].add(event.entry)
            if event.status == "ok":  # else the file may have what is not durable
                self._look_at_table(self.nodes[event.node], event.part)

    def _client_topic(self, event: ClientTopic) -> None:
        if event.operation == "delete":  # its broker may die before it tells
            self.deleted_topics.add(event.topic)

    def _slave_synchronize(self, event: BrokerSlaveSynchronize) -> None:
        if self.has_tables and event.part in TABLES:
            self._look_at_table(self.nodes[event.node], event.part)

    def _look_at_table(self, node: NodeView, part: str) -> None:
        found = self.evidence.table(node.name, part)
        node.lost_entries[part] = node.tables.get(part, frozenset()) - found
        node.tables[part] = found

    def _promote(self, event: OperatorPromote) -> None:
        node = self.nodes[event.node]
        followers = {slave.name for slave in self.slaves if self.has_followed(slave)}
        self.promotion = Promotion(self.log_of_master, followers, event.status == LONGEST)
        self._own_begin = node.end
        node.has_halted = node.may_cut = False
        self._set_master(node)
        self._begin_lineage(self._own_begin)

    def _set_master(self, node: NodeView) -> None:
        self.master = node
        self.slaves = tuple(each for each in self.nodes.values() if each is not node)

    def _set_up_anew(self, event: OperatorSetUpAnew) -> None:
        self.nodes[event.node].set_up_anew(self.log_of_master)
        for cut in self.cuts:
            cut.is_removed |= cut.node == event.node
