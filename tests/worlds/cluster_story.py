"""Runs told by hand, for the tests of invariants: events, and what stands in the nodes' page caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from rmq_actors.protocols.term import Term
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.view import LONGEST, ClusterView
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.storage import StorageRot
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import BLANK, BLANK_MAGIC
from tests.worlds.recording import told

#: A file's end without a record.
A_BLANK = BLANK.pack(20, BLANK_MAGIC) + bytes(12)
MASTER, SLAVE, OTHER = "master", "slave-1", "slave-2"
#: Of a slave's question to the master for a table.
ANSWER = {"network.peer.address": "10.0.0.1:10911", "detail": ""}
#: The last one is a stranger's.
ADDRESSES = {"10.0.0.1": MASTER, "10.0.0.2": SLAVE, "10.0.0.3": OTHER, "10.0.0.9": ""}


@attrs.define(eq=False)
class Story:
    """A run told by hand: what the brokers trace, and what stands in the nodes' page caches.

    Slaves take parts of records, as RocketMQ's do: what a start may find of one is told so.
    """

    sync_flush: tuple[str, ...] = ()
    acks: int = 1
    takes_parts: bool = True
    now_s: float = 0.0
    logs: dict[str, bytearray] = attrs.field(factory=lambda: {node: bytearray() for node in (MASTER, SLAVE, OTHER)})
    #: What `cut/` has, by node.
    kept: dict[str, bytes] = attrs.field(factory=dict)
    #: What `store check` finds, by node, and what is left open at the end.
    damaged: dict[str, list[str]] = attrs.field(factory=dict)
    #: What nodes' tables have, by node and table; and the offsets of consumers, by node.
    tables: dict[tuple[str, str], set[str]] = attrs.field(factory=dict)
    offsets: dict[str, dict[str, dict[int, int]]] = attrs.field(factory=dict)
    left_open: list[str] = attrs.field(factory=list)
    #: The terms of nodes' files, where these are not what the nodes have told.
    terms: dict[str, int] = attrs.field(factory=dict)
    #: Which nodes have the note of an exchange.
    notes: set[str] = attrs.field(factory=set)
    #: By node: the topics whose deletion has begun.
    deleting: dict[str, set[str]] = attrs.field(factory=dict)
    #: haSlaveFallbehindMax of each, and by node the consumers' offsets that are past their queues' ends.
    fallbehind_max: int = 1000
    past_ends: dict[str, list[tuple[str, int, int, int]]] = attrs.field(factory=dict)
    broken: list[Broken] = attrs.field(factory=list)
    limits: list[str] = attrs.field(factory=list)
    recorder: Recorder = attrs.field(init=False)
    view: ClusterView = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.recorder = Recorder(RunInfo("test", "story", 0), lambda: (round(self.now_s * 1e9), 0))
        self.view = ClusterView(
            MASTER,
            (MASTER, SLAVE, OTHER),
            ADDRESSES.__getitem__,
            self,
            acks=self.acks,
            sync_flush=self.sync_flush,
            takes_parts=self.takes_parts,
        )
        self.watch(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS)
        self.recorder.subscribe(self._observe)
        for node in self.logs:
            self.emit(node, "store.open", offset=0, status="clean")

    def watch(self, *invariants: type[Invariant[Any]]) -> None:
        """Look at these alone, from here on."""
        self.judge = Judge(self.view, [make() for make in invariants], self.broken.append, self._on_limit)

    def _observe(self, event: Event) -> None:
        if type(event) in self.judge.kinds:
            self.judge.observe(event)

    def _on_limit(self, name: str, _: str) -> None:
        self.limits.append(name)

    # What can be looked at: `Evidence`.

    def read_log(self, node: str, begin: int, end: int) -> bytes:
        return bytes(self.logs[node][begin:end])

    def is_kept(self, node: str, offset: int, data: bytes, *, except_at: Collection[int] = ()) -> bool:
        return self.kept.get(node) == data

    def table(self, node: str, part: str) -> frozenset[str]:
        return frozenset(self.tables.get((node, part), ()))

    def consumer_offsets(self, node: str) -> Mapping[str, Mapping[int, int]]:
        return self.offsets.get(node, {})

    def term(self, node: str) -> Term:
        return Term(self.terms.get(node, self.view.nodes[node].term))

    def has_exchange_note(self, node: str) -> bool:
        return node in self.notes

    def deletions_under_way(self, node: str) -> Collection[str]:
        return self.deleting.get(node, ())

    def fallbehind_max_bytes(self, node: str) -> int:
        return self.fallbehind_max

    def offsets_past_ends(self, node: str) -> Sequence[tuple[str, int, int, int]]:
        return self.past_ends.get(node, ())

    def damage(self, node: str) -> Sequence[str]:
        return self.damaged.get(node, ())

    def leaks(self) -> Sequence[str]:
        return self.left_open

    # What happens.

    def emit(self, node: str, kind: str, **columns: Any) -> None:
        attributes = columns.pop("attributes", None)
        self.recorder.record(told(kind, columns, attributes), node, "story")

    def append(self, node: str, data: bytes) -> None:
        offset = len(self.logs[node])
        self.logs[node] += data
        self.emit(node, "log.append", offset=offset, size=len(data))

    def connect(self, conn_id: int, address: str) -> None:
        self.emit(MASTER, "ha.connection.open", conn_id=conn_id, attributes={"network.peer.address": f"{address}:5000"})

    def report(self, conn_id: int, offset: int) -> None:
        self.emit(MASTER, "ha.report", conn_id=conn_id, offset=offset)

    def put(self, msg_id: int, data: bytes) -> None:
        begin = len(self.logs[MASTER])
        self.append(MASTER, data)
        self.emit(MASTER, "put.begin", msg_id=msg_id, offset=begin, size=len(data))

    def answer(self, msg_id: int, end_offset: int, status: str = "PUT_OK") -> None:
        self.emit(MASTER, "put.end", msg_id=msg_id, offset=end_offset, status=status)

    def make_topic(self, node: str, topic: str, *, acknowledged: bool = True) -> None:
        """By a client: acknowledged, or refused."""
        if acknowledged:
            self.tables.setdefault((node, "topics"), set()).add(topic)
        status = "ok" if acknowledged else "OSError"
        self.emit(node, "client.table", status=status, attributes={"part": "topics", "entry": topic})

    def take_table(self, node: str, topics: set[str], *, of: str = "10.0.0.1", actor: str = "SlaveSynchronize") -> None:
        """Over from the first master, or another one."""
        self.tables[node, "topics"] = set(topics)
        event = BrokerSlaveSynchronize(status="changed", part="topics", peer_address=f"{of}:10911", detail="")
        self.recorder.record(event, node, actor)

    def lose_power(self, node: str, kept: int) -> None:
        """Its log is back with `kept` bytes."""
        self.emit(node, "node.power_loss")
        del self.logs[node][kept:]
        self.emit(node, "store.open", offset=len(self.logs[node]), status="clean")

    def rot(self, node: str, offset: int, path: str = "commitlog/00000000000000000000") -> None:
        """A bit has flipped."""
        self.recorder.record(StorageRot(path=path, file_offset=offset), node)

    def promote(self, node: str, *, is_longest: bool) -> None:
        self.emit(node, "operator.promote", status=LONGEST if is_longest else "shortest")

    def end(self) -> None:
        """The run is over."""
        self.judge.check_end(99)

    @property
    def seen(self) -> list[str]:
        return [each.invariant for each in self.broken]


def halt(story: Story, node: str, status: str = "diverged", master: str = "10.0.0.2") -> None:
    offset = len(story.logs[node])
    attributes = {"network.peer.address": f"{master}:10912", "detail": ""}
    story.emit(node, "ha.client.halt", status=status, offset=offset, attributes=attributes)


def cut(story: Story, node: str, offset: int) -> None:
    size = len(story.logs[node]) - offset
    del story.logs[node][offset:]
    story.emit(node, "log.truncate", offset=offset, size=size)


def follow(story: Story, node: str, master: str = "10.0.0.1") -> None:
    story.emit(node, "ha.client.connect", attributes={"network.peer.address": f"{master}:10912"})
