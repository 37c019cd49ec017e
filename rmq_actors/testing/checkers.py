"""The invariants of replication, checked after every event that changes a log, an ack or a node.

The checker believes nothing that a broker says: it follows the trace to know *when* to look, and reads the bytes from
each node's page cache to know *what* is there. Its model is the log that each master has written, in full.

* prefix: what a slave has equals its master's log at the same offsets
* whole: a slave's log ends where a record, or a file's blank end, does
* report: a slave never reports more than it has; a master never hears of more than it has had
* replicated: the master never takes for replicated what too few slaves have
* ack: a put answered PUT_OK is, whole, in as many slaves' logs as the master's settings ask for at that moment, or was
  until such a slave, which does not sync first, lost its power; only the master answers so
* answer: a put is answered within the time-out of RocketMQ's clients, whatever happens to slaves and network
* synced: under SYNC_FLUSH a slave reports, and a master sends and answers PUT_OK for, nothing but what it has synced
* survival: after a kill the master has all that it wrote, a slave all but a torn last record; after a power loss each
  has what it had synced; a log that was opened ends where a record ends
* divergence: who halts because its log parts from its master's is right; nobody's log is cut elsewhere than where the
  two part; what is cut is kept aside
* acknowledged: what slaves had when its put was answered PUT_OK is in the next master's log if that had the longest of
  the slaves that have followed, and in any case in the master's log, in a log that was stopped, or among the bytes kept
  aside at the end, unless every one of those slaves, which do not sync first, has lost its power
* convergence: at the end all logs are equal, but for those that were stopped (`docs/invariants.md`)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.testing.lineage import Lineage
from rmq_actors.tracing.event import Event

#: RocketMQ's clients give up after this long: an answer that comes later reaches nobody (#3484).
ANSWER_MAX_S = 3.0

#: (node, first offset, end offset) to the bytes in the node's page cache.
ReadLog = Callable[[str, int, int], bytes]
#: Whether a node has kept aside what its log had from an offset on.
IsKept = Callable[[str, int, bytes], bool]


@attrs.frozen
class Broken:
    """An invariant that does not hold: its name, what was seen, and at which event."""

    invariant: str
    detail: str
    seq: int

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail} (at event {self.seq})"


@attrs.define
class Acknowledged:
    """A put answered PUT_OK: where its record ends in which log, and who had it then and has not lost it since."""

    end: int
    lineage: Lineage
    holders: set[str]


@attrs.define(eq=False)
class ReplicationChecker:
    """Follows one run. `master` is whose log counts now, `nodes` are all; `node_of` gives the node of an IP address.

    `acks` slaves must have what is answered PUT_OK; `sync_flush` are the nodes with flushDiskType SYNC_FLUSH.
    """

    master: str
    nodes: Sequence[str]
    node_of: Callable[[str], str]
    read_log: ReadLog
    is_kept: IsKept
    on_broken: Callable[[Broken], None]
    #: What `docs/ha-protocol.md` says cannot be noticed has come to pass: nothing is promised any more.
    on_limit: Callable[[str], None]
    acks: int = 1
    sync_flush: Collection[str] = ()
    #: Whether slaves append parts of records, as RocketMQ's do.
    takes_parts: bool = False
    broken: list[Broken] = attrs.field(factory=list, init=False)
    checks: int = attrs.field(default=0, init=False)
    acked: int = attrs.field(default=0, init=False)
    #: Nodes that follow nobody, as their log parts from their master's.
    halted: set[str] = attrs.field(factory=set, init=False)
    _checks: Mapping[str, Callable[[Event], None]] = attrs.field(init=False)
    #: The log that each node's is the beginning of.
    _lineages: dict[str, Lineage] = attrs.field(init=False)
    #: Where the log begins that the master has written itself: others may have had what is before it from another.
    _own_begin: int = attrs.field(default=0, init=False)
    #: The log of the master that each node has connected to last, in its present life.
    _sources: dict[str, Lineage] = attrs.field(factory=dict, init=False)
    _ends: dict[str, int] = attrs.field(init=False)
    #: Where each log begins, or did before a power loss undid a removal; and where the master's ever did.
    _begins: dict[str, int] = attrs.field(init=False)
    _first_offsets: set[int] = attrs.field(factory=lambda: {0}, init=False)
    #: How much each node ever had of the master's log, and of any log.
    _highest: dict[str, int] = attrs.field(init=False)
    _ever: dict[str, int] = attrs.field(init=False)
    _synced: dict[str, int] = attrs.field(init=False)
    #: What no power loss can take: the highest that each node has ever synced, of the log that it has.
    _durable: dict[str, int] = attrs.field(init=False)
    #: Where bits have flipped on each node's disk, in its log.
    _rotten: dict[str, set[int]] = attrs.field(factory=dict, init=False)
    _lost_power: set[str] = attrs.field(factory=set, init=False)
    _acknowledged: list[Acknowledged] = attrs.field(factory=list, init=False)
    #: Slaves whose master has not answered what it has; the connection goes on only if they follow unasked.
    _unanswered_slaves: set[str] = attrs.field(factory=set, init=False)
    #: Nodes that have halted: from then on their logs may be cut, also by a life that dies at it.
    _may_cut: set[str] = attrs.field(factory=set, init=False)
    #: What was cut from a node's log: from where on, to where, and which log that was.
    _cuts: list[tuple[str, int, int, Lineage]] = attrs.field(factory=list, init=False)
    #: When a node's present pause began, and how long it has been paused in all, in ns.
    _paused_at_ns: dict[str, int] = attrs.field(factory=dict, init=False)
    _paused_ns: dict[str, int] = attrs.field(init=False)
    _peers: dict[tuple[str, int], str] = attrs.field(factory=dict, init=False)
    _unanswered: dict[tuple[str, int], int] = attrs.field(factory=dict, init=False)
    #: When a slave last had two connections to the master, in ns: both count (`docs/invariants.md`).
    _doubled_ns: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        first = Lineage()
        self._lineages = dict.fromkeys(self.nodes, first)
        self._ends, self._begins, self._highest, self._ever, self._synced, self._durable, self._paused_ns = (
            dict.fromkeys(self.nodes, 0) for _ in range(7)
        )
        self._checks = {
            "log.append": self._on_append,
            "log.truncate": self._on_truncate,
            "log.delete": self._on_delete,
            "storage.rot": self._on_rot,
            "store.open": self._on_open,
            "log.flush": self._on_flush,
            "ha.connection.open": self._on_connection,
            "ha.connection.close": self._on_connection_close,
            "ha.client.connect": self._on_client_connect,
            "ha.client.compare": self._on_client_compare,
            "ha.client.close": self._on_client_close,
            "ha.client.report": self._on_client_report,
            "ha.client.halt": self._on_client_halt,
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

    def needs_what_is_gone(self, node: str) -> bool:
        """Whether the master has deleted what comes next in the node's log."""
        return 0 < self._ends[node] < self._begins[self.master]

    def set_up_anew(self, node: str) -> None:
        """An operator removes all that the slave has, as its master has deleted what comes next."""
        for offsets in (self._ends, self._begins, self._synced, self._durable):
            offsets[node] = 0
        self._lineages[node] = self._log_of_master
        self._rotten.pop(node, None)
        for put in self._acknowledged:
            put.holders.discard(node)

    def is_rotten(self, node: str) -> bool:
        """Whether bits of the node's log have flipped on its disk."""
        return node in self._rotten

    def damaged_bodies(self, node: str) -> Sequence[int]:
        """Where in a message's body, which a checksum covers, the node's log has something else than was written."""
        begin, end, own = self._begins[node], self._ends[node], self._lineages[node]
        return [
            offset
            for offset in sorted(self._rotten.get(node, ()))
            if begin <= offset < end
            and own.is_in_a_body(offset)
            and self.read_log(node, offset, offset + 1) != own.log[offset : offset + 1]
        ]

    def has_followed(self, node: str) -> bool:
        """Whether the node's log is the beginning of the master's."""
        own, master = self._lineages[node], self._log_of_master
        return own is master or own.common(master) >= self._ends[node]

    def lacks(self, node: str) -> bool:
        """Whether the node's log is not all of the master's, and it has not been stopped."""
        # Of a node that has lost its power nothing is known before it has opened what is left.
        return node in self._lost_power or (
            node not in self.halted and (self._ends[node] != self._ends[self.master] or not self.has_followed(node))
        )

    @property
    def converged(self) -> bool:
        """Whether every node has all of the master's log, or was stopped."""
        return not any(self.lacks(node) for node in self.nodes)

    @property
    def without_log(self) -> Collection[str]:
        """Nodes that have lost their power, and not yet opened what is left of their log."""
        return self._lost_power

    @property
    def needs_a_put(self) -> bool:
        """Whether a slave is ahead of the master, and cannot know by how much before the master has its next record."""
        master, end = self._log_of_master, self._ends[self.master]
        logs = [(self._lineages[slave], self._ends[slave]) for slave in self.slaves if self._ends[slave] > end]
        return any(not end or (own.common(master) >= end and own.tells_nothing(end, own_end)) for own, own_end in logs)

    @property
    def unanswered(self) -> int:
        """How many puts of living masters wait for their answer."""
        return len(self._unanswered)

    @property
    def slaves(self) -> list[str]:
        """Everybody but the master."""
        return [node for node in self.nodes if node != self.master]

    def promote(self, node: str, seq: int, *, is_longest: bool) -> None:
        """From now on `node`'s log counts. `is_longest`: it was chosen among all slaves as the one that has most."""
        old = self._log_of_master
        followers = {slave for slave in self.slaves if self.has_followed(slave)}
        self.master, self._own_begin = node, self._ends[node]
        self._begin_lineage(self._own_begin)
        for put in self._acknowledged if is_longest else ():
            holders = put.holders & followers
            if holders and old.common(put.lineage) >= put.end and not self._has(node, put):
                detail = f"{_told(put, holders)}; the next master, {node}, lacks it"
                self._break("acknowledged", detail, seq)

    def check_end(self, seq: int) -> None:
        """For the end of a run, when every fault is over: what was acknowledged is there, and the logs are equal."""
        for node in self.nodes:
            self._compare(node, self._begins[node], self._ends[node], "convergence", seq)
            if self.lacks(node):
                end = self._ends[self.master]
                self._break("convergence", f"{node} ends at {self._ends[node]}, the master at {end}", seq)
        for node, begin, end, lineage in self._cuts:
            if not self.is_kept(node, begin, bytes(lineage.log[begin:end])):
                self._break("divergence", f"{node} has not kept what was cut from {begin} to {end}", seq)
        for put in self._acknowledged:
            if put.holders and not self._survives(put):
                self._break("acknowledged", f"{_told(put, put.holders)}; at the end nobody has it", seq)

    def break_invariant(self, invariant: str, detail: str, seq: int) -> None:
        """Somebody else has found that `invariant` does not hold, when there were `seq` events."""
        self._break(invariant, detail, seq)

    @property
    def _log_of_master(self) -> Lineage:
        return self._lineages[self.master]

    def _begin_lineage(self, end: int) -> None:
        """The master's log goes on from `end` in a way of its own."""
        self._lineages[self.master] = lineage = self._log_of_master.fork(end)
        for node in self.nodes:
            self._highest[node] = min(self._highest[node], self._lineages[node].common(lineage))

    def _survives(self, put: Acknowledged) -> bool:
        """In the master's log, in one that was stopped, or among what was kept aside."""
        return any(self._has(node, put) for node in self.nodes) or any(
            begin < put.end <= end and lineage.common(put.lineage) >= put.end for _, begin, end, lineage in self._cuts
        )

    def _has(self, node: str, put: Acknowledged) -> bool:
        return self._ends[node] >= put.end and self._lineages[node].common(put.lineage) >= put.end

    def _break(self, invariant: str, detail: str, seq: int) -> None:
        broken = Broken(invariant, detail, seq)
        self.broken.append(broken)
        self.on_broken(broken)

    def _compare(self, node: str, begin: int, end: int, invariant: str, seq: int) -> None:
        found, expected = self.read_log(node, begin, end), self._lineages[node].log[begin:end]
        for offset in self._rotten.get(node, ()):
            if begin <= offset < min(end, begin + len(found)):
                at = offset - begin
                found = found[:at] + expected[at : at + 1] + found[at + 1 :]
        if found != expected:
            first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(expected))
            self._break(invariant, f"{node} differs from the master's log at offset {begin + first}", seq)

    # --- logs -------------------------------------------------------------------------------------------------------

    def _on_append(self, event: Event) -> None:
        node, offset, size = event.node, event.offset or 0, event.size or 0
        if offset != self._ends[node] and not self._begins_at(node, offset):
            self._break("prefix", f"{node} appends at {offset}, its log ends at {self._ends[node]}", event.seq)
            return
        end = offset + size
        data, own, master = self.read_log(node, offset, end), self._lineages[node], self._log_of_master
        # What a master sent before it was lost may still arrive, at who is promoted too. All else is of the new one.
        source = self._sources.get(node, master)
        sent = source if source.log[offset:end] == data else master
        if node == self.master:
            if offset == len(master.log):
                if sent is not master:
                    master.append_from(sent, end)
                    self._own_begin = end
                else:
                    master.append(data)
                self._note_regrown()
        elif sent is not own and own.log[offset:end] != data:
            common = own.common(sent)
            if offset > common:
                detail = f"{node} goes on at {offset}, its log parts from the master's at {common}"
                self._break("prefix", detail, event.seq)
                return
            self._lineages[node] = sent
        self._ends[node] = end
        self._ever[node] = max(self._ever[node], end)
        if end > len(self._lineages[node].log):
            self._break("prefix", f"{node} has bytes to {end}, the master has {len(master.log)}", event.seq)
            return
        if self._lineages[node] is not master and master.common(self._lineages[node]) >= end:
            self._lineages[node] = master
        if self._lineages[node] is master:
            self._highest[node] = max(self._highest[node], end)
        if node != self.master:
            self._compare(node, offset, end, "prefix", event.seq)
            if not self.takes_parts and end != self._lineages[node].whole_records(end):
                self._break("whole", f"{node} appends a part of a record: its log ends at {end}", event.seq)

    def _begins_at(self, node: str, offset: int) -> bool:
        """Whether the node's log, of which there is nothing, may begin there: where its master's does, or has."""
        is_empty = node != self.master and self._ends[node] <= self._begins[node]
        if not is_empty or offset not in self._first_offsets:
            return False
        self._begins[node], self._lineages[node] = offset, self._log_of_master
        return True

    def _on_delete(self, event: Event) -> None:
        self._begins[event.node] = event.offset or 0
        if event.node == self.master:
            self._first_offsets.add(event.offset or 0)

    def _note_regrown(self) -> None:
        """The master was sent what others have too, by the one before it: they had it first."""
        for slave in self.slaves:
            own = self._lineages[slave]
            if own is not self._log_of_master:
                had = min(self._ends[slave], own.common(self._log_of_master))
                self._highest[slave] = max(self._highest[slave], had)

    def _on_truncate(self, event: Event) -> None:
        self._cut(event.node, event.offset or 0, event.seq)

    def _cut(self, node: str, offset: int, seq: int) -> None:
        """The node's log ends at `offset` now, by a truncation."""
        own, end, master = self._lineages[node], self._ends[node], self._log_of_master
        common = own.common_records(master)
        if node == self.master or offset > common or not own.is_last_record(offset, common):
            detail = f"{node} cuts its log at {offset}, which parts from {self.master}'s at {common}"
            self._break("divergence", detail, seq)
        elif not self.is_kept(node, offset, bytes(own.log[offset:end])):
            self._break("divergence", f"{node} cuts its log at {offset} and has not kept what was behind it", seq)
        self._cuts.append((node, offset, end, own))
        self._ends[node], self._lineages[node] = offset, master
        self._highest[node] = self._durable[node] = offset
        self.halted.discard(node)
        self._may_cut.discard(node)

    def _on_open(self, event: Event) -> None:
        node, end = event.node, event.offset or 0
        self._sources.pop(node, None)
        own = self._lineages[node]
        before = self._durable[node] if node in self._lost_power else self._ends[node]
        whole = own.whole_records(before)
        if end < whole and node in self._may_cut:  # it died within its truncation
            self._lost_power.discard(node)
            self._ends[node] = own.whole_records(self._ends[node])
            self._cut(node, end, event.seq)
            own, whole = self._lineages[node], end
        if whole <= self._begins[node] and node != self.master:
            whole = 0  # nothing is left of it: it begins anew
        whole = min(whole, self._whole_before_rot(node, end, whole))
        if end > len(own.log):
            own.fill_blank(end)
        if end < whole or end > len(own.log):
            self._break("survival", f"{node} ended at {before}, whole records to {whole}; now at {end}", event.seq)
        elif end != own.whole_records(end):
            self._break("survival", f"{node} ends at {end} after its recovery, inside of a record", event.seq)
        self._ends[node] = end
        # Nothing is there of what is not: it may come again, and elsewhere.
        self._begins[node], self._durable[node] = min(self._begins[node], end), min(self._durable[node], end)
        self._synced[node] = 0  # what a kill has left in the page cache may never have been synced
        if node in self._lost_power:
            self._lost_power.remove(node)
            self._power_is_back(node, end, event.seq)
        # A record whose missing bytes are zeros is whole: a blank needs no more than its head.
        self._ever[node] = max(self._ever[node], end)
        if self.has_followed(node):
            self._highest[node] = max(self._highest[node], end)
        if node == self.master and end < len(self._log_of_master.log):
            self._begin_lineage(end)  # without what it had not synced, or of a record that had come in part
            self._own_begin = min(self._own_begin, end)
        self._compare(node, self._begins[node], end, "survival", event.seq)

    def _on_rot(self, event: Event) -> None:
        attributes = event.attrs or {}
        directory, _, name = attributes["path"].rpartition("/")
        if directory == COMMIT_LOG_DIRECTORY:
            self._rotten.setdefault(event.node, set()).add(int(name) + int(attributes["offset"]))

    def _whole_before_rot(self, node: str, end: int, whole: int) -> int:
        """Where the log may end because the next record is damaged: `end`, if it is; else `whole`."""
        for offset in self._rotten.get(node, ()):
            begin = self._lineages[node].whole_records(offset)
            if end == (0 if begin <= self._begins[node] else begin):
                return end
        return whole

    def _power_is_back(self, node: str, end: int, seq: int) -> None:
        for put in self._acknowledged:
            if node not in self.sync_flush and end < put.end:
                put.holders.discard(node)
        if node == self.master and end < len(self._log_of_master.log):
            log, lost_from = self._log_of_master, max(end, self._own_begin)
            had = {slave: min(self._ends[slave], self._lineages[slave].common(log)) for slave in self.slaves}
            ahead = next((slave for slave in self.slaves if had[slave] > lost_from), None)
            if ahead is not None and node in self.sync_flush:  # such a master sends only what it has synced
                detail = f"{ahead} has bytes to {had[ahead]}, the master has kept {end} over a power loss"
                self._break("synced", detail, seq)
        elif self._lineages[node].common(self._log_of_master) >= end:
            self._lineages[node] = self._log_of_master

    def _on_flush(self, event: Event) -> None:
        self._synced[event.node] = event.offset or 0
        self._durable[event.node] = max(self._durable[event.node], event.offset or 0)

    def _check_synced(self, event: Event, what: str, end: int) -> None:
        node = event.node
        if node in self.sync_flush and end > self._synced[node]:
            self._break("synced", f"{node} {what} {end}, it has synced {self._synced[node]}", event.seq)

    # --- replication ------------------------------------------------------------------------------------------------

    def _on_client_connect(self, event: Event) -> None:
        self.halted.discard(event.node)
        self._may_cut.discard(event.node)
        if self._peer(event) == self.master:
            self._sources[event.node] = self._log_of_master
        else:
            self._sources.pop(event.node, None)

    def _on_client_compare(self, event: Event) -> None:
        if event.status == "lookup_failed":
            self._unanswered_slaves.add(event.node)

    def _on_client_close(self, event: Event) -> None:
        self._unanswered_slaves.discard(event.node)

    def _on_client_report(self, event: Event) -> None:
        slave, offset = event.node, event.offset or 0
        if slave in self._unanswered_slaves and self._log_of_master.common(self._lineages[slave]) < self._ends[slave]:
            self.on_limit(f"{slave} follows, and could not ask whether it has the same log")
        self._check_synced(event, "reports", offset)
        if offset > self._ends[slave]:
            self._break("report", f"{slave} reports {offset}, it has {self._ends[slave]}", event.seq)

    def _on_client_halt(self, event: Event) -> None:
        node, peer = event.node, self._peer(event)
        common = min(self._lineages[node].common(self._lineages[peer]), self._ends[peer])
        is_gone = event.status == "offset_gone" and self._ends[node] < self._begins[peer]
        if not is_gone and (event.status != "diverged" or common >= self._ends[node]):
            detail = f"{node} halts, {event.status}; it ends at {self._ends[node]}, {peer} has the same up to {common}"
            self._break("divergence", detail, event.seq)
        if peer == self.master:
            self.halted.add(node)
            self._may_cut.add(node)

    def _on_transfer(self, event: Event) -> None:
        self._check_synced(event, "sends bytes to", (event.offset or 0) + (event.size or 0))

    def _on_connection(self, event: Event) -> None:
        self._peers[event.node, event.conn_id or 0] = self._peer(event)
        self._note_doubles(event)

    def _peer(self, event: Event) -> str:
        return self.node_of((event.attrs or {})["network.peer.address"].rpartition(":")[0])

    def _on_connection_close(self, event: Event) -> None:
        self._note_doubles(event)
        self._peers.pop((event.node, event.conn_id or 0), None)

    def _note_doubles(self, event: Event) -> None:
        peers = [peer for (node, _), peer in self._peers.items() if node == self.master]
        if len(set(peers)) < len(peers):
            self._doubled_ns = event.sim_time_ns

    def _acks_at(self, event: Event) -> int:
        """How many slaves must have what is acknowledged now."""
        peers = [peer for (node, _), peer in self._peers.items() if node == self.master]
        is_doubled = len(set(peers)) < len(peers) or self._doubled_ns == event.sim_time_ns
        return min(self.acks, 1) if is_doubled else self.acks

    def _on_report(self, event: Event) -> None:
        slave, offset = self._peers.get((event.node, event.conn_id or 0)), event.offset or 0
        if slave is not None and offset > self._ever[slave]:
            self._break("report", f"{slave} reports {offset}, it never had more than {self._ever[slave]}", event.seq)

    def _on_replicated(self, event: Event) -> None:
        if event.node != self.master:
            return
        acks = max(1, self._acks_at(event))
        best = sorted((self._highest[slave] for slave in self.slaves), reverse=True)[acks - 1]
        if (event.offset or 0) > best:
            detail = f"to {event.offset}, {acks} slaves never had more than {best}"
            self._break("replicated", detail, event.seq)

    # --- puts -------------------------------------------------------------------------------------------------------

    def _on_put_begin(self, event: Event) -> None:
        self._unanswered[event.node, event.msg_id or 0] = (event.sim_time_ns or 0) - self._paused_ns[event.node]

    def _on_put_end(self, event: Event) -> None:
        # Who takes no steps answers nobody: the time of a pause does not count.
        node, end = event.node, event.offset or 0
        began_ns = self._unanswered.pop((node, event.msg_id or 0))
        waited_s = ((event.sim_time_ns or 0) - self._paused_ns[node] - began_ns) / 1e9
        if waited_s > ANSWER_MAX_S:
            self._break("answer", f"put {event.msg_id} was answered {event.status} after {waited_s:.3f} s", event.seq)
        if event.status != "PUT_OK":
            return
        self.acked += 1
        self._check_synced(event, "answers PUT_OK for a put that ends at", end)
        if node != self.master:
            self._break("ack", f"{node} has answered PUT_OK, the master is {self.master}", event.seq)
        # What a slave only had in its page cache may be lost with its power while its report is still under way.
        # What a damaged log ends before, too.
        had = {
            slave: (self._ends if slave in self.sync_flush and slave not in self._rotten else self._highest)[slave]
            for slave in self.slaves
        }
        best = sorted(had.values(), reverse=True)[: self._acks_at(event)]
        if best and end > best[-1]:
            detail = f"put {event.msg_id} was answered PUT_OK, it ends at {end}; the best slaves have {best}"
            self._break("ack", detail, event.seq)
        lineage = self._log_of_master
        holders = {
            each
            for each in self.nodes
            if self._lineages[each] is lineage
            and self._ends[each] >= end
            and (each not in self._lost_power or each in self.sync_flush)
        }
        self._acknowledged.append(Acknowledged(end, lineage, holders))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _on_node(self, event: Event) -> None:
        self._on_death(event)
        if event.node not in self._lost_power:  # else it has not looked yet at what is left
            self._compare(event.node, self._begins[event.node], self._ends[event.node], "survival", event.seq)

    def _on_power_loss(self, event: Event) -> None:
        self._on_death(event)
        self._lost_power.add(event.node)

    def _on_death(self, event: Event) -> None:
        self._unanswered = {key: at for key, at in self._unanswered.items() if key[0] != event.node}  # died with it
        self._peers = {key: peer for key, peer in self._peers.items() if key[0] != event.node}
        self._paused_at_ns.pop(event.node, None)
        self._unanswered_slaves.discard(event.node)
        if event.kind != "node.stop":
            self.halted.discard(event.node)

    def _on_pause(self, event: Event) -> None:
        self._paused_at_ns[event.node] = event.sim_time_ns or 0

    def _on_resume(self, event: Event) -> None:
        began_ns = self._paused_at_ns.pop(event.node, None)
        if began_ns is not None:
            self._paused_ns[event.node] += (event.sim_time_ns or 0) - began_ns


def _told(put: Acknowledged, holders: Collection[str]) -> str:
    return f"a put that ends at {put.end} was answered PUT_OK, {', '.join(sorted(holders))} had it"
