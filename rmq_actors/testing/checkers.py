"""The invariants of replication, checked after every event that changes a log, an ack or a node.

The checker believes nothing that a broker says: it follows the trace to know *when* to look, and reads the bytes from
each node's page cache to know *what* is there. Its model is the log that the master has written, in full.

* prefix: what a slave has equals the master's log at the same offsets
* report: a slave never reports more than it has; the master never hears of more than it has had
* replicated: the master never takes for replicated what no slave has
* ack: a put answered PUT_OK under SYNC_MASTER is, whole, in some slave's log at that moment, or was until that slave,
  which does not sync first, lost its power
* answer: a put is answered within the time-out of RocketMQ's clients, whatever happens to slaves and network
* synced: under SYNC_FLUSH a slave reports, and a master sends and answers PUT_OK for, nothing but what it has synced
* survival: after a kill the master has all that it wrote, a slave all but a torn last record; after a power loss each
  has what it had synced; a log that was opened ends where a record ends
* convergence: at the end all logs are equal (`docs/invariants.md`)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from rmq_actors.tracing.event import Event

#: RocketMQ's clients give up after this long: an answer that comes later reaches nobody (#3484).
ANSWER_MAX_S = 3.0

#: (node, first offset, end offset) to the bytes in the node's page cache.
ReadLog = Callable[[str, int, int], bytes]


@attrs.frozen
class Broken:
    """An invariant that does not hold: its name, what was seen, and at which event."""

    invariant: str
    detail: str
    seq: int

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail} (at event {self.seq})"


@attrs.define(eq=False)
class ReplicationChecker:
    """Follows one run. `slaves` are node names, `node_of` gives the node of an IP address.

    `sync_flush` are the nodes with flushDiskType SYNC_FLUSH.
    """

    master: str
    slaves: Sequence[str]
    node_of: Callable[[str], str]
    read_log: ReadLog
    on_broken: Callable[[Broken], None]
    sync_flush: Collection[str] = ()
    broken: list[Broken] = attrs.field(factory=list, init=False)
    checks: int = attrs.field(default=0, init=False)
    acked: int = attrs.field(default=0, init=False)
    _checks: Mapping[str, Callable[[Event], None]] = attrs.field(init=False)
    _log: bytearray = attrs.field(factory=bytearray, init=False)
    _boundaries: list[int] = attrs.field(factory=lambda: [0], init=False)
    _ends: dict[str, int] = attrs.field(factory=dict, init=False)
    _highest: dict[str, int] = attrs.field(factory=dict, init=False)
    _synced: dict[str, int] = attrs.field(factory=dict, init=False)
    #: What no power loss can take: the highest that each node has ever synced.
    _durable: dict[str, int] = attrs.field(factory=dict, init=False)
    _lost_power: set[str] = attrs.field(factory=set, init=False)
    #: When the master's present pause began, and how long it has been paused in all, in ns.
    _paused_at_ns: int | None = attrs.field(default=None, init=False)
    _paused_ns: int = attrs.field(default=0, init=False)
    _peers: dict[int, str] = attrs.field(factory=dict, init=False)
    _unanswered: dict[int, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._ends = dict.fromkeys((self.master, *self.slaves), 0)
        self._highest = dict.fromkeys(self._ends, 0)
        self._synced = dict.fromkeys(self._ends, 0)
        self._durable = dict.fromkeys(self._ends, 0)
        self._checks = {
            "log.append": self._on_append,
            "store.open": self._on_open,
            "log.flush": self._on_flush,
            "ha.connection.open": self._on_connection,
            "ha.client.report": self._on_client_report,
            "ha.transfer": self._on_transfer,
            "ha.report": self._on_report,
            "ha.replicated": self._on_replicated,
            "put.begin": self._on_put_begin,
            "put.end": self._on_put_end,
            "node.kill": self._on_node,
            "node.stop": self._on_node,
            "node.power_loss": self._on_power_loss,
            "node.pause": self._on_pause,
            "node.resume": self._on_resume,
        }

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of events that `observe` looks at."""
        return self._checks.keys()

    def observe(self, event: Event) -> None:
        """Check what `event` may have changed: subscribe this to the run's recorder, for `kinds`."""
        check = self._checks.get(event.kind)
        if check is not None and not self.broken:
            self.checks += 1
            check(event)

    def end(self, node: str) -> int:
        """Where the node's log ends, as far as the trace has gone."""
        return self._ends[node]

    @property
    def converged(self) -> bool:
        """Whether every slave has all of the master's log."""
        # Of a node that has lost its power nothing is known before it has opened what is left.
        return not self._lost_power and all(self._ends[slave] == len(self._log) for slave in self.slaves)

    @property
    def unanswered(self) -> int:
        """How many puts of the living master wait for their answer."""
        return len(self._unanswered)

    def check_convergence(self, seq: int) -> None:
        """For the end of a run, when every fault is over: all logs equal the master's, byte for byte."""
        for node in self._ends:
            if self._ends[node] != len(self._log):
                self._break("convergence", f"{node} ends at {self._ends[node]}, the master at {len(self._log)}", seq)
            self._compare(node, 0, self._ends[node], "convergence", seq)

    def break_invariant(self, invariant: str, detail: str, seq: int) -> None:
        """Somebody else has found that `invariant` does not hold, when there were `seq` events."""
        self._break(invariant, detail, seq)

    def _break(self, invariant: str, detail: str, seq: int) -> None:
        broken = Broken(invariant, detail, seq)
        self.broken.append(broken)
        self.on_broken(broken)

    def _compare(self, node: str, begin: int, end: int, invariant: str, seq: int) -> None:
        found, expected = self.read_log(node, begin, end), self._log[begin:end]
        if found != expected:
            first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(expected))
            self._break(invariant, f"{node} differs from the master's log at offset {begin + first}", seq)

    def _on_append(self, event: Event) -> None:
        node, offset, size = event.node, event.offset or 0, event.size or 0
        if offset != self._ends[node]:
            self._break("prefix", f"{node} appends at {offset}, its log ends at {self._ends[node]}", event.seq)
        end = offset + size
        self._ends[node] = end
        self._highest[node] = max(self._highest[node], end)
        if node == self.master:
            self._log += self.read_log(node, offset, end)
            self._boundaries.append(end)
        elif end > len(self._log):
            self._break("prefix", f"{node} has bytes to {end}, the master has {len(self._log)}", event.seq)
        else:
            self._compare(node, offset, end, "prefix", event.seq)

    def _on_open(self, event: Event) -> None:
        node, end = event.node, event.offset or 0
        before = self._durable[node] if node in self._lost_power else self._ends[node]
        whole = self._whole_records(before)
        if end < whole or end > len(self._log):
            self._break("survival", f"{node} ended at {before}, whole records to {whole}; now at {end}", event.seq)
        elif end != self._whole_records(end):
            self._break("survival", f"{node} ends at {end} after its recovery, inside of a record", event.seq)
        if node in self._lost_power:
            self._lost_power.remove(node)
            if node == self.master:
                ahead = next((slave for slave in self.slaves if self._ends[slave] > end), None)
                if ahead is not None:  # a master with SYNC_FLUSH sends only what it has synced
                    detail = f"{ahead} has bytes to {self._ends[ahead]}, the master has kept {end} over a power loss"
                    self._break("synced", detail, event.seq)
                del self._log[end:]
                del self._boundaries[bisect.bisect_right(self._boundaries, end) :]
        self._ends[node] = end
        self._synced[node] = 0  # what a kill has left in the page cache may never have been synced
        # A record whose missing bytes are zeros is whole: a blank needs no more than its head.
        self._highest[node] = max(self._highest[node], end)
        self._compare(node, 0, end, "survival", event.seq)

    def _whole_records(self, end: int) -> int:
        """Where the last record ends that is whole in a log of `end` bytes."""
        return self._boundaries[bisect.bisect_right(self._boundaries, end) - 1]

    def _on_flush(self, event: Event) -> None:
        self._synced[event.node] = event.offset or 0
        self._durable[event.node] = max(self._durable[event.node], event.offset or 0)

    def _check_synced(self, event: Event, what: str, end: int) -> None:
        node = event.node
        if node in self.sync_flush and end > self._synced[node]:
            self._break("synced", f"{node} {what} {end}, it has synced {self._synced[node]}", event.seq)

    def _on_client_report(self, event: Event) -> None:
        slave, offset = event.node, event.offset or 0
        self._check_synced(event, "reports", offset)
        if offset > self._ends[slave]:
            self._break("report", f"{slave} reports {offset}, it has {self._ends[slave]}", event.seq)

    def _on_transfer(self, event: Event) -> None:
        self._check_synced(event, "sends bytes to", (event.offset or 0) + (event.size or 0))

    def _on_connection(self, event: Event) -> None:
        address = (event.attrs or {})["network.peer.address"]
        self._peers[event.conn_id or 0] = self.node_of(address.rpartition(":")[0])

    def _on_report(self, event: Event) -> None:
        slave, offset = self._peers[event.conn_id or 0], event.offset or 0
        if offset > self._highest[slave]:
            self._break("report", f"{slave} reports {offset}, it never had more than {self._highest[slave]}", event.seq)

    def _on_replicated(self, event: Event) -> None:
        best = max(self._highest[slave] for slave in self.slaves)
        if (event.offset or 0) > best:
            self._break("replicated", f"to {event.offset}, no slave ever had more than {best}", event.seq)

    def _on_put_begin(self, event: Event) -> None:
        self._unanswered[event.msg_id or 0] = (event.sim_time_ns or 0) - self._paused_ns

    def _on_put_end(self, event: Event) -> None:
        # Who takes no steps answers nobody: the time of a pause does not count.
        waited_s = ((event.sim_time_ns or 0) - self._paused_ns - self._unanswered.pop(event.msg_id or 0)) / 1e9
        if waited_s > ANSWER_MAX_S:
            self._break("answer", f"put {event.msg_id} was answered {event.status} after {waited_s:.3f} s", event.seq)
        if event.status != "PUT_OK":
            return
        self.acked += 1
        self._check_synced(event, "answers PUT_OK for a put that ends at", event.offset or 0)
        # What a slave only had in its page cache may be lost with its power while its report is still under way.
        best = max((self._ends if slave in self.sync_flush else self._highest)[slave] for slave in self.slaves)
        if (event.offset or 0) > best:
            detail = f"put {event.msg_id} was answered PUT_OK, it ends at {event.offset}; the best slave has {best}"
            self._break("ack", detail, event.seq)

    def _on_node(self, event: Event) -> None:
        self._on_death(event)
        if event.node not in self._lost_power:  # else it has not looked yet at what is left
            self._compare(event.node, 0, self._ends[event.node], "survival", event.seq)

    def _on_power_loss(self, event: Event) -> None:
        self._on_death(event)
        self._lost_power.add(event.node)

    def _on_death(self, event: Event) -> None:
        if event.node == self.master:
            self._unanswered.clear()  # who waited died with it
            self._paused_at_ns = None

    def _on_pause(self, event: Event) -> None:
        if event.node == self.master:
            self._paused_at_ns = event.sim_time_ns or 0

    def _on_resume(self, event: Event) -> None:
        if event.node == self.master and self._paused_at_ns is not None:
            self._paused_ns += (event.sim_time_ns or 0) - self._paused_at_ns
            self._paused_at_ns = None
