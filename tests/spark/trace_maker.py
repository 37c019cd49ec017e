"""Traces for tests: a small model of a master with its slaves, on a clock of its own, leaving what real runs leave.

It is no broker: it knows just enough of replication (log ends, chunks, reports, time-outs, restarts) to give the
analysis something to find, and it is the same in every process.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.tracing.spool import TraceWriter
from tests.worlds.recording import told

MASTER = "master"
EPOCH_NS = 1_763_000_000_000_000_000
MS = 1_000_000
CHUNK_BYTES = 512
SLAVE_TIMEOUT_MS = 3000

Source = Literal["sim", "broker"]
FaultKind = Literal["Partition", "Kill", "Delay", "ShortIO", "Stall"]


@attrs.frozen
class PlannedFault:
    """A fault of the model's schedule."""

    kind: FaultKind
    node: str
    at_ms: float
    duration_ms: float


@attrs.frozen
class Plan:
    """What a run does."""

    run: RunInfo
    puts: int
    pause_ms: float
    slaves: tuple[str, ...] = ("slave-1", "slave-2")
    faults: tuple[PlannedFault, ...] = ()
    breaks: str | None = None
    first_bytes: int = 0
    hop_ms: float = 1.5


@attrs.define(eq=False)
class _Node:
    end: int = 0
    is_up: bool = True
    cut_off: int = 0
    extra_ms: float = 0.0
    partial: int = 0
    transfer_due: bool = False


@attrs.define(eq=False)
class Model:
    """One run of a plan; `play` gives its events."""

    plan: Plan
    _rng: random.Random = attrs.field(init=False)
    _now_ns: int = attrs.field(default=0, init=False)
    _timers: list[tuple[int, int, Callable[[], None]]] = attrs.field(factory=list, init=False)
    _timer_count: int = attrs.field(default=0, init=False)
    _recorder: Recorder = attrs.field(init=False)
    _nodes: dict[str, _Node] = attrs.field(init=False)
    _waiting: list[tuple[int, int, int]] = attrs.field(factory=list, init=False)
    _next_msg_id: int = attrs.field(default=0, init=False)
    _puts_left: int = attrs.field(init=False)
    _observed: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._rng = random.Random(self.plan.run.seed)
        is_sim = self.plan.run.source == "sim"
        self._recorder = Recorder(self.plan.run, lambda: (self._now_ns if is_sim else None, EPOCH_NS + self._now_ns))
        self._nodes = {name: _Node() for name in (MASTER, *self.plan.slaves)}
        self._nodes[MASTER].end = self.plan.first_bytes
        self._puts_left = self.plan.puts

    def play(self) -> list[Event]:
        """Run to the end."""
        self._emit("", "scenario", "run.start")
        for name in self._nodes:
            self._boot(name)
        for fault_id, fault in enumerate(self.plan.faults):
            self._after(fault.at_ms, partial(self._begin, fault, fault_id))
        self._after(1.0, self._put)
        while self._timers:
            self._now_ns, _, action = heapq.heappop(self._timers)
            action()
        if self.plan.breaks:
            self._emit("", "checker", "invariant.broken", status=self.plan.breaks, attributes={"detail": "model"})
        self._emit("", "scenario", "run.end", status=self.outcome)
        return self._recorder.events

    @property
    def outcome(self) -> str:
        """How the run ends."""
        return "invariant" if self.plan.breaks else "passed"

    def _emit(self, node: str, actor: str, kind: str, **values: object) -> int:
        attributes: Any = values.pop("attributes", None)
        return self._recorder.record(told(kind, values, attributes), node, actor)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (self._now_ns + round(delay_ms * MS), self._timer_count, action))

    def _boot(self, name: str) -> None:
        node = self._nodes[name]
        node.is_up = True
        self._emit(name, "BrokerController", "node.boot")
        self._emit(name, "CommitLog", "store.open", offset=node.end, size=0, status="clean")
        if name != MASTER:
            self._connect(name)

    def _connect(self, name: str) -> None:
        if self._reaches(name):
            peer = {"network.peer.address": "10.0.0.1:10912"}
            self._emit(name, "HAClient", "ha.client.connect", attributes=peer)
            self._emit(MASTER, "HAConnection", "ha.connection.open", conn_id=1, attributes=peer)
            self._transfer_soon(name)

    def _reaches(self, name: str) -> bool:
        slave = self._nodes[name]
        return slave.is_up and not slave.cut_off and self._nodes[MASTER].is_up

    def _put(self) -> None:
        master = self._nodes[MASTER]
        if self._puts_left and master.is_up:
            self._puts_left -= 1
            size = 91 + int(self._rng.random() ** 2 * 900)
            begin = self._append(MASTER, size)
            msg_id, self._next_msg_id = self._next_msg_id, self._next_msg_id + 1
            self._emit(MASTER, "MessageStore", "put.begin", msg_id=msg_id, offset=begin, size=size)
            self._waiting.append((begin + size, msg_id, self._now_ns))
            self._after(SLAVE_TIMEOUT_MS, self._expire)
            for name in self.plan.slaves:
                self._transfer_soon(name)
        if self._puts_left:
            self._after(self.plan.pause_ms * self._rng.uniform(0.4, 1.6), self._put)

    def _append(self, name: str, size: int) -> int:
        node = self._nodes[name]
        begin, node.end = node.end, node.end + size
        self._emit(name, "CommitLog", "log.append", offset=begin, size=size)
        return begin

    def _transfer_soon(self, name: str) -> None:
        slave = self._nodes[name]
        if not slave.transfer_due:
            slave.transfer_due = True
            self._after(self._rng.uniform(0.5, 1.5) * self.plan.hop_ms + slave.extra_ms, lambda: self._transfer(name))

    def _transfer(self, name: str) -> None:
        slave, master = self._nodes[name], self._nodes[MASTER]
        slave.transfer_due = False
        if not self._reaches(name) or slave.end >= master.end:
            return
        if slave.partial:
            self._emit(MASTER, "sim_net", "net.partial_write", size=7)
            self._observe("partial_write")
        size = min(master.end - slave.end, max(CHUNK_BYTES, (master.end - slave.end) // 8))
        self._emit(MASTER, "WriteSocketService", "ha.transfer", conn_id=1, offset=slave.end, size=size)
        self._append(name, size)
        self._emit(name, "HAClient", "ha.client.report", offset=slave.end)
        self._emit(MASTER, "ReadSocketService", "ha.report", conn_id=1, offset=slave.end)
        self._answer(lambda end, _begun: end <= slave.end, "PUT_OK")
        self._transfer_soon(name)

    def _answer(self, is_done: Callable[[int, int], bool], status: str) -> None:
        done = [put for put in self._waiting if is_done(put[0], put[2])]
        self._waiting = [put for put in self._waiting if put not in done]
        for end, msg_id, _ in done:
            self._emit(MASTER, "MessageStore", "put.end", msg_id=msg_id, offset=end, status=status)

    def _expire(self) -> None:
        self._answer(lambda _end, begun: self._now_ns - begun >= SLAVE_TIMEOUT_MS * MS, "FLUSH_SLAVE_TIMEOUT")

    def _observe(self, name: str) -> None:
        if name not in self._observed:
            self._observed.add(name)
            self._emit(MASTER, "FaultObserver", "fault.observed", status=name)

    def _begin(self, fault: PlannedFault, fault_id: int) -> None:
        node, attributes = self._nodes[fault.node], {"fault.kind": fault.kind, "fault.nodes": fault.node}
        self._emit("", "sim_net", "fault.begin", fault_id=fault_id, attributes=attributes)
        if fault.kind == "Kill":
            self._kill(fault.node)
        elif fault.kind in {"Partition", "Stall"}:
            node.cut_off += 1
            self._emit(MASTER, "HAConnection", "ha.connection.close", conn_id=1, status="connection_lost")
        elif fault.kind == "Delay":
            node.extra_ms += 60.0
        else:
            node.partial += 1

        def end() -> None:
            if fault.kind == "Kill":
                if not node.is_up:
                    self._boot(fault.node)
                    self._observe("restart")
            elif fault.kind in {"Partition", "Stall"}:
                node.cut_off -= 1
                self._connect(fault.node)
                self._observe(fault.kind.lower())
            elif fault.kind == "Delay":
                node.extra_ms -= 60.0
                self._observe("delay")
            else:
                node.partial -= 1
            self._emit("", "sim_net", "fault.end", fault_id=fault_id, attributes=attributes)

        self._after(fault.duration_ms, end)

    def _kill(self, name: str) -> None:
        node = self._nodes[name]
        if not node.is_up:
            return
        node.is_up = False
        self._emit(name, "sim_net", "node.kill")
        self._observe("kill")
        if name == MASTER:
            # The next incarnation counts its messages from 0; nobody answers what waited.
            self._waiting.clear()
            self._next_msg_id = 0
        else:
            # Its last record was torn: the log that comes back is shorter.
            node.end -= min(node.end, self._rng.randrange(0, 300))


def random_plan(campaign: str, seed: int, *, breaks: str | None = None) -> Plan:
    """A simulated run with a few faults; what it is follows from the seed."""
    rng = random.Random(f"plan/{seed}")
    slaves = ("slave-1", "slave-2")
    faults = [
        PlannedFault(
            rng.choice(("Partition", "Kill", "Delay", "ShortIO", "Stall")),
            rng.choice((*slaves, *slaves, MASTER)),
            round(rng.uniform(200, 12_000), 1),
            round(rng.choice((50.0, 800.0, 4_000.0, 7_000.0)) * rng.uniform(0.6, 1.2), 1),
        )
        for _ in range(rng.randint(1, 6))
    ]
    faults = [attrs.evolve(fault, node="slave-1") if _needs_slave(fault) else fault for fault in faults]
    run = RunInfo(campaign, "replication", seed, config='{"slaves": 2}', git_revision="0123abc")
    return Plan(run, rng.choice((40, 80, 120)), rng.choice((60.0, 150.0)), slaves, tuple(faults), breaks)


def _needs_slave(fault: PlannedFault) -> bool:
    return fault.kind != "Kill" and fault.node == MASTER


def unlucky_plan(campaign: str, seed: int) -> Plan:
    """A run that fails: no slave can be reached, the master dies with puts unanswered, a slave dies too."""
    faults = (
        PlannedFault("Partition", "slave-1", 900.0, 7_400.0),
        PlannedFault("Partition", "slave-2", 1_000.0, 6_500.0),
        PlannedFault("Kill", "master", 2_500.0, 600.0),
        PlannedFault("Kill", "slave-2", 9_000.0, 1_500.0),
        PlannedFault("ShortIO", "slave-1", 9_500.0, 2_000.0),
    )
    run = RunInfo(campaign, "replication", seed, config='{"slaves": 2}', git_revision="0123abc")
    return Plan(run, 90, 120.0, faults=faults, breaks="prefix")


def real_plan(campaign: str, puts: int = 600) -> Plan:
    """A run of real brokers on loopback: one slave, an old log to catch up with, no faults."""
    run = RunInfo(campaign, "loopback", 0, config="{}", source="broker", git_revision="0123abc")
    return Plan(run, puts, 2.0, ("slave-1",), first_bytes=390_000, hop_ms=0.4)


def write_plans(traces: Path, plans: Sequence[Plan]) -> dict[int, list[Event]]:
    """Play and write each plan; the events by run_id. Plans of one campaign and scenario go to one writer."""
    written = {}
    for campaign, scenario in dict.fromkeys((plan.run.campaign, plan.run.scenario) for plan in plans):
        with TraceWriter(traces, campaign, scenario) as writer:
            for plan in plans:
                if (plan.run.campaign, plan.run.scenario) == (campaign, scenario):
                    model = Model(plan)
                    written[plan.run.run_id] = model.play()
                    writer.write_run(plan.run, written[plan.run.run_id], outcome=model.outcome)
    return written
