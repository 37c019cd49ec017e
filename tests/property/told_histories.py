"""Small histories of a master and two slaves, drawn: what is told, and what stood in page caches and files then."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import attrs
from hypothesis import strategies as st

from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.run import ClientRead
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import ANSWER, MASTER, OTHER, SLAVE, Story, cut, follow, halt

SLAVES = (SLAVE, OTHER)
NODES = (MASTER, *SLAVES)
#: A topic with a group, whose offset in queue 0 is told of.
GROUP = "Orders@group"
#: What is done, and two numbers that say to whom and how much.
Act = tuple[str, int, int]


@attrs.frozen
class Step:
    """An event, and what was to be seen right then."""

    event: Event
    now_s: float
    logs: Mapping[str, bytes]
    topics: Mapping[str, frozenset[str]]
    kept: Mapping[str, bytes]
    #: Of one group in one queue, by node.
    offsets: Mapping[str, int]

    def is_of(self, kind: str, node: str = "") -> bool:
        return self.event.kind == kind and node in ("", self.event.node)


@attrs.define(eq=False)
class Telling(Story):
    """A story that keeps every step of itself, and does what acts say."""

    steps: list[Step] = attrs.field(factory=list)
    master: str = MASTER
    #: Puts that wait, by their numbers: where their records end.
    waiting: dict[int, int] = attrs.field(factory=dict)
    #: So many records were written, and topics made.
    count: int = 0
    is_paused: bool = False

    def _observe(self, event: Event) -> None:
        logs = {node: bytes(log) for node, log in self.logs.items()}
        topics = {node: frozenset(self.tables.get((node, "topics"), ())) for node in NODES}
        offsets = {node: table[GROUP][0] for node, table in self.offsets.items()}
        self.steps.append(Step(event, self.now_s, logs, topics, dict(self.kept), offsets))
        super()._observe(event)

    def act(self, act: Act) -> None:
        """Do it, where it can be done."""
        name, who, much = act
        ACTS[name](self, who, much)

    # --- logs -------------------------------------------------------------------------------------------------------

    def write(self, _: int, much: int) -> None:
        """A put of a record of 1 to 3 bytes, like no other."""
        if self.is_paused:
            return
        self.count += 1
        record = bytes([self.count]) * (1 + much % 3)
        begin = len(self.logs[self.master])
        self.append(self.master, record)
        self.emit(self.master, "put.begin", msg_id=self.count, offset=begin, size=len(record))
        self.waiting[self.count] = begin + len(record)

    def copy(self, who: int, much: int) -> None:
        """A slave whose log is the beginning of the master's appends what comes next; a record, or a part."""
        slave = self.slaves[who % 2]
        own, log = self.logs[slave], self.logs[self.master]
        if len(own) < len(log) and log.startswith(own):
            self.append(slave, bytes(log[len(own) : len(own) + 1 + much % 4]))

    def number(self, _: int, much: int) -> None:
        """The master appends a message of queue 0; mostly the one that comes next there."""
        log = self.logs[self.master]
        right = numbers_in(bytes(log))[-1:]
        queue_offset = right[0] + 1 if right else 0
        if much % 8 == 0:
            queue_offset = much // 8
        encoded = encode_message(Message("Orders", b"body"))
        encoded.place(queue_offset=queue_offset, physical_offset=len(log), store_timestamp_ms=0)
        self.append(self.master, bytes(encoded.data))

    def copy_all(self, who: int, _: int) -> None:
        """A slave whose log is the beginning of the master's gets all of it."""
        slave = self.slaves[who % 2]
        own, log = self.logs[slave], self.logs[self.master]
        if len(own) < len(log) and log.startswith(own):
            self.append(slave, bytes(log[len(own) :]))

    def spoil(self, who: int, _: int) -> None:
        """A slave appends what nobody has written."""
        self.append(self.slaves[who % 2], b"?")

    def leap(self, who: int, _: int) -> None:
        """A slave leaves a byte out."""
        slave = self.slaves[who % 2]
        offset = len(self.logs[slave]) + 1
        if offset < len(self.logs[self.master]):
            self.logs[slave] += bytes(self.logs[self.master][offset - 1 : offset + 1])
            self.emit(slave, "log.append", offset=offset, size=1)

    def flip(self, who: int, much: int) -> None:
        """A byte in a page cache changes, and nobody says so."""
        log = self.logs[NODES[who % 3]]
        if log:
            log[much % len(log)] ^= 0x80

    # --- what they say ----------------------------------------------------------------------------------------------

    def reply(self, who: int, much: int) -> None:
        """To a put."""
        if self.waiting and not self.is_paused:
            msg_id = sorted(self.waiting)[who % len(self.waiting)]
            status = "PUT_OK" if much % 4 else "FLUSH_SLAVE_TIMEOUT"
            self.emit(self.master, "put.end", msg_id=msg_id, offset=self.waiting.pop(msg_id), status=status)

    def tell(self, who: int, much: int) -> None:
        """A slave reports what it has, or one byte more or less."""
        slave = self.slaves[who % 2]
        self.emit(slave, "ha.client.report", offset=max(0, len(self.logs[slave]) + much % 3 - 1))

    def arrive(self, who: int, much: int) -> None:
        """A report reaches the first master."""
        self.emit(MASTER, "ha.report", conn_id=1 + who % 2, offset=much % (len(self.logs[MASTER]) + 2))

    def replicate(self, _: int, much: int) -> None:
        """The master takes so much for replicated."""
        self.emit(self.master, "ha.replicated", offset=much % (len(self.logs[self.master]) + 1))

    def flush(self, who: int, much: int) -> None:
        """A node has synced a part of its log, or all of it."""
        node = NODES[who % 3]
        end = len(self.logs[node])
        self.emit(node, "log.flush", offset=end if much % 2 else much % (end + 1))

    def send(self, _: int, much: int) -> None:
        """The master sends bytes up to somewhere."""
        end = len(self.logs[self.master])
        self.emit(self.master, "ha.transfer", conn_id=1, offset=0, size=much % (end + 1))

    def wait(self, _: int, much: int) -> None:
        """Time passes."""
        self.now_s += much % 5 * 0.7

    def pause(self, _: int, __: int) -> None:
        """The master stands still."""
        self.is_paused = True
        self.emit(MASTER, "node.pause")

    def resume(self, _: int, __: int) -> None:
        """The master goes on."""
        self.is_paused = False
        self.emit(MASTER, "node.resume")

    # --- lives ------------------------------------------------------------------------------------------------------

    def kill(self, who: int, much: int) -> None:
        """A slave dies, and opens its log with all of it, or less."""
        slave = self.slaves[who % 2]
        self.emit(slave, "node.kill")
        self._open(slave, much)

    def lose(self, who: int, much: int) -> None:
        """A slave loses its power."""
        slave = self.slaves[who % 2]
        self.emit(slave, "node.power_loss")
        self._open(slave, much)

    def _open(self, node: str, much: int) -> None:
        log = self.logs[node]
        if much % 3:
            del log[much % (len(log) + 1) :]
        self.emit(node, "store.open", offset=len(log), status="clean")

    @property
    def slaves(self) -> Sequence[str]:
        return [node for node in NODES if node != self.master]

    # --- roles and tables -------------------------------------------------------------------------------------------

    def lead(self, who: int, much: int) -> None:
        """A slave that follows is the next master; the operator may say wrongly that its log is the longest."""
        log = self.logs[self.master]
        following = [slave for slave in self.slaves if log.startswith(self.logs[slave])]
        if not following:
            return
        longest = max(len(self.logs[slave]) for slave in following)
        new = following[who % len(following)]
        self.emit(self.master, "store.term", term=1, status="resigned", leads=True)
        self.promote(new, is_longest=len(self.logs[new]) == longest or much % 8 == 0)
        self.master = new
        self.waiting.clear()
        self.emit(new, "store.term", term=1, status="promoted", leads=True)

    def part(self, who: int, much: int) -> None:
        """A slave halts as its log parts, and is cut where it does; what is cut is kept, or not."""
        slave, log = self.slaves[who % 2], self.logs[self.master]
        own = self.logs[slave]
        common = next((at for at, (a, b) in enumerate(zip(own, log, strict=False)) if a != b), min(len(own), len(log)))
        address = f"10.0.0.{1 + NODES.index(self.master)}"
        if common < len(own):
            follow(self, slave, address)
            halt(self, slave, master=address)
            if much % 4:
                self.kept[slave] = bytes(own[common:])
            cut(self, slave, common)
            follow(self, slave, address)

    def get(self, who: int, much: int) -> None:
        """A consumer gets a message of the master; sometimes not the one that is due, or other bytes."""
        log = bytes(self.logs[self.master])
        begins = record_begins(log)
        if not begins:
            return
        at = begins[who % len(begins)]
        queue_offset = int.from_bytes(log[at + 20 : at + 28], "big")
        record = log[at : at + int.from_bytes(log[at : at + 4], "big")]
        event = ClientRead(
            status="altered" if much == 1 else "as_sent",
            offset=at + (much == 2),
            size=len(record),
            queue_id=0,
            queue_offset=queue_offset,
            expected=queue_offset + (much == 3) - (much == 4),
            checksum=zlib.crc32(record),
        )
        self.recorder.record(event, self.master)

    def make(self, _: int, much: int) -> None:
        """A client has a topic made; where it is acknowledged and not there, the master is wrong."""
        self.count += 1
        topic = f"T{self.count}"
        if much % 8:
            self.make_topic(self.master, topic, acknowledged=much % 4 > 0)
        else:
            self.emit(self.master, "client.table", status="ok", attributes={"part": "topics", "entry": topic})

    def take(self, who: int, much: int) -> None:
        """A node takes a table over: the master's, mostly, or that of another one."""
        node = NODES[who % 3]
        of = self.master if much % 4 else NODES[much // 4 % 3]
        topics = self.tables.get((of, "topics"), set())
        self.take_table(node, topics if who % 5 else set(), of=f"10.0.0.{1 + NODES.index(of)}")

    def commit(self, who: int, much: int) -> None:
        """A slave takes an offset over, mostly one that is no smaller."""
        node = SLAVES[who % 2]
        before = self.offsets.get(node, {}).get(GROUP, {0: 0})[0]
        self.offsets[node] = {GROUP: {0: before + much % 5 - (2 if much % 8 == 0 else 0)}}
        attributes = ANSWER | {"part": "consumer_offsets"}
        self.emit(node, "broker.slave_synchronize", status="changed", attributes=attributes)

    def forget(self, who: int, _: int) -> None:
        """A node is started, and its file of topics is gone."""
        node = NODES[who % 3]
        self.tables[node, "topics"] = set()
        self.emit(node, "store.open", offset=len(self.logs[node]), status="clean")


ACTS: Mapping[str, Callable[[Telling, int, int], None]] = {
    name: getattr(Telling, name)
    for name in (
        "write",
        "copy",
        "number",
        "copy_all",
        "commit",
        "spoil",
        "leap",
        "flip",
        "reply",
        "tell",
        "arrive",
        "replicate",
        "flush",
        "send",
        "wait",
        "pause",
        "resume",
        "kill",
        "lose",
        "lead",
        "part",
        "make",
        "take",
        "forget",
        "get",
    )
}


def record_begins(log: bytes) -> list[int]:
    """Where a log's messages begin."""
    begins, at = [], 0
    while at + 28 <= len(log):
        begins.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    return begins


def numbers_in(log: bytes) -> list[int]:
    """The offsets in their queue of a log's messages, one after the other."""
    return [int.from_bytes(log[at + 20 : at + 28], "big") for at in record_begins(log)]


def acts(*names: str, most: int = 14) -> st.SearchStrategy[list[Act]]:
    """Histories of these; one that is named twice comes twice as often."""
    number = st.integers(0, 63)
    return st.lists(st.tuples(st.sampled_from(names), number, number), max_size=most)
