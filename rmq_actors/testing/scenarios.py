"""The replication scenario: a master and two slaves, writers, and a schedule of faults, in a world made from one case.

`run_case` is a plain synchronous function: a case in, a result out, nothing else. Everything that a run depends on is
in its case, so a failing run is replayed by its case alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.store_host import Machines
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY, file_name
from rmq_actors.store.message_puts import PendingPut
from rmq_actors.testing.checkers import Broken, ReplicationChecker
from rmq_actors.testing.observation import FaultObserver
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder, Tracer
from rmq_actors.wire.record import Message
from sim_net import (
    Deadlock,
    Fault,
    LinkConfig,
    Livelock,
    Node,
    NodeFailed,
    On,
    Partition,
    PowerLoss,
    Schedule,
    SimFile,
    StepsExceeded,
    VirtualTimeExceeded,
    World,
    WorldConfig,
)
from sim_net.sampling import sample_fault
from sim_net.search import Case

SCENARIO = "replication"
MASTER = "master"
SLAVES = ("slave-1", "slave-2")
HA_PORT = 10912

Outcome = Literal["passed", "invariant", "crash", "liveness"]

#: Small, so that a few dozen messages roll files, split frames and fill buffers.
_STORE = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=4096,
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and each look at the counters is a step of the run.
    store_stats_sampling=False,
)
_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02, segment_bytes=400),
    send_buffer_bytes=2048,
    receive_buffer_bytes=2048,
    journal_keep=False,
    virtual_time_max_s=3600.0,
)
_READ_BUFFER_BYTES = 4096
#: What a disk's faults make of a start, and when the next one is tried, or a put that was refused.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC}
_START_AGAIN_S = 0.5
_WRITERS = 2
_LINK_KINDS = ("Delay", "Partition", "Stall", "Reset", "Hold", "Loss", "Bandwidth")
_NODE_KINDS = (
    "ShortIO",
    "Kill",
    "Kill",
    "PowerLoss",
    "Pause",
    "ClockJump",
    "ClockDrift",
    "DiskSlow",
    "DiskStuck",
    "DiskError",
    "DiskFull",
)
#: Every kind of fault that `random_case` draws.
CHAOS_KINDS = (*_LINK_KINDS, *dict.fromkeys(_NODE_KINDS))
#: How often a fault is one of a link, and how often one may wait for an event of these kinds.
_LINK_FAULTS = 0.5
_TIMED_BY_EVENTS = 0.4
#: How often power is lost right behind an append of the same node.
_AT_AN_APPEND = 0.7
_EVENTS = ("log.append", "log.roll", "log.flush", "ha.transfer", "ha.client.report", "ha.replicated", "put.begin")
#: For so long faults may wait for their event; later ones are called off.
_EVENTS_WAIT_S = 5.0
#: How often both slaves are cut off at once.
_BOTH_SLAVES = 0.25
#: After the last fault everything must be as it should within this time (invariant I5: 30 s).
CONVERGENCE_S = 30.0

#: After one of these the run may have become what the harness waits for.
_MOVES = (
    "store.dispatch",
    "actor.crash",
    "log.append",
    "put.end",
    "store.open",
    "ha.connection.open",
    "ha.connection.close",
)

_GUARDED = ("rmq_actors",)


@attrs.frozen
class RunResult:
    """One run: how it ended, why, and everything that happened."""

    case: Case
    run: RunInfo
    outcome: Outcome
    failure: str
    digest: str
    events: Sequence[Event]
    virtual_s: float
    acked: int
    checks: int
    observed: frozenset[str]


class _InvariantBroken(Exception):  # it ends the run: the checker's finding is the error
    pass


class _NotConverged(Exception):
    pass


def random_case(seed: int, *, planted_bug: str | None = None) -> Case:
    """The case that an integer stands for. Times come from small sets, so that faults meet each other."""
    rng = random.Random(f"{SCENARIO}/{seed}")
    workload = Workload.draw(rng, planted_bug)
    durable = (MASTER, *SLAVES) if workload.master_flush == FlushDiskType.SYNC_FLUSH.value else SLAVES
    faults = [_random_fault(rng, durable) for _ in range(rng.randint(2, 7))]
    if rng.random() < _BOTH_SLAVES:
        # While one slave is well every put is confirmed: what time-outs do shows only when neither is.
        at_s, duration_s = rng.choice((0.5, 1.0, 2.0)), rng.choice((2.0, 6.0, 25.0))
        faults += [Partition(at_s, duration_s, MASTER, slave) for slave in SLAVES]
    return Case(seed, Schedule(tuple(faults)), workload.to_parameters())


def check_case(case: Case) -> None:
    """Whether this scenario can run `case`, which somebody may have edited. Raises ValueError naming what it cannot."""
    workload = Workload.of(case.parameters)
    for number, fault in enumerate(case.schedule.faults):
        waits_for = fault.on.node if fault.on is not None else ""
        unknown = {*fault.nodes, waits_for or MASTER} - {MASTER, *SLAVES}
        if unknown:
            raise ValueError(
                f"faults[{number}]: no node is called {min(unknown)!r}; there are {', '.join((MASTER, *SLAVES))}"
            )
        loses_power = isinstance(fault, PowerLoss) and fault.node == MASTER
        if loses_power and workload.master_flush != FlushDiskType.SYNC_FLUSH.value:
            raise ValueError(
                f"faults[{number}]: without master_flush SYNC_FLUSH the master may lose what its slaves have, "
                "and never agree with them again"
            )


def is_runnable(case: Case) -> bool:
    """Whether `check_case` has nothing against it: a shrinker tries many."""
    try:
        check_case(case)
    except ValueError:
        return False
    return True


def _random_fault(rng: random.Random, durable: Sequence[str]) -> Fault:
    """A fault of a link to a slave, or of a node; only the `durable` ones may lose their power."""
    if rng.random() < _LINK_FAULTS:
        link = rng.sample((MASTER, rng.choice(SLAVES)), 2)
        return sample_fault(rng.choice, link, kinds=_LINK_KINDS, events=_events(rng))
    kind = rng.choice(_NODE_KINDS)
    if kind == PowerLoss.__name__:
        return _power_loss(rng, rng.choice(durable))
    return sample_fault(rng.choice, (MASTER, *SLAVES), kinds=(kind,), events=_events(rng))


def _power_loss(rng: random.Random, node: str) -> Fault:
    """Mostly right behind an append of the node, where there is something to lose."""
    fault = sample_fault(rng.choice, (node,), kinds=(PowerLoss.__name__,), events=_events(rng))
    if rng.random() < _AT_AN_APPEND:
        on = On("log.append", node, rng.choice((1, 2, 3, 5, 8, 13, 21)))
        return attrs.evolve(fault, at_s=rng.choice((0.0, 0.0003, 0.003)), on=on)
    return fault


def _events(rng: random.Random) -> Sequence[str]:
    return _EVENTS if rng.random() < _TIMED_BY_EVENTS else ()


@attrs.define(eq=False)
class _Run:
    """The moving parts of one run."""

    case: Case
    world: World
    info: RunInfo
    sabotage: Callable[[World], object]
    workload: Workload = attrs.field(init=False)
    puts_left: int = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    nodes: dict[str, Node] = attrs.field(init=False)
    checker: ReplicationChecker = attrs.field(init=False)
    observer: FaultObserver = attrs.field(init=False)
    broken: trio.Event = attrs.field(factory=trio.Event, init=False)
    stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    crashes: list[str] = attrs.field(factory=list, init=False)
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    _machines: dict[str, Machines] = attrs.field(factory=dict, init=False)
    _outside: contextvars.Context = attrs.field(factory=contextvars.Context, init=False)
    _files: dict[tuple[str, int], SimFile] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.workload = Workload.of(self.case.parameters)
        self.puts_left = self.workload.puts
        self.recorder = open_sim_recorder(self.world, self.info)
        self.nodes = {name: self.world.node(name) for name in (MASTER, *SLAVES)}
        names = {node.address: name for name, node in self.nodes.items()}
        self.checker = ReplicationChecker(
            MASTER,
            SLAVES,
            names.__getitem__,
            self._read_log,
            on_broken=self._on_broken,
            sync_flush=[name for name in self.nodes if self._flush_type(name) is FlushDiskType.SYNC_FLUSH],
        )
        self.observer = FaultObserver(self.recorder)
        self.recorder.subscribe(self._forget_files, ("store.open", "node.power_loss"))
        self.recorder.subscribe(self.checker.observe, self.checker.kinds)
        self.recorder.subscribe(self.observer.observe, self.observer.kinds)
        self.recorder.subscribe(self._on_crash, ("actor.crash",))
        self.recorder.subscribe(self._on_move, _MOVES)
        bug = self.workload.planted_bug
        for name in self.nodes:
            self._machines[name] = PLANTED_BUGS[bug].make_machines() if bug else Machines()

    def _read_log(self, node: str, begin: int, end: int) -> bytes:
        parts, size = [], _STORE.mapped_file_size_commit_log_bytes
        while begin < end:
            first = begin - begin % size
            file = self._files.get((node, first))
            if file is None:
                path = f"{COMMIT_LOG_DIRECTORY}/{file_name(first)}"
                # Outside of every node, so that a dead node's page cache can be read too.
                file = self._outside.run(self.nodes[node].disk.open, path, read_only=True)
                self._files[node, first] = file
            stop = min(end, first + size)
            parts.append(bytes(file.map()[begin - first : stop - first]))
            begin = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _forget_files(self, _: Event) -> None:
        """Recovery or a power cut may have put other files under the names."""
        self._files.clear()

    def _flush_type(self, node: str) -> FlushDiskType:
        return FlushDiskType(self.workload.master_flush if node == MASTER else self.workload.slave_flush)

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(
            "", "ReplicationChecker", "invariant.broken", status=broken.invariant, attributes={"detail": broken.detail}
        )
        self.broken.set()

    def _on_crash(self, event: Event) -> None:
        # A supervisor may mend it; it is a fault of the product all the same.
        self.crashes.append(f"{event.actor} of {event.node}: {event.status}: {(event.attrs or {})['detail']}")

    def _on_move(self, event: Event) -> None:
        self.moved.set()

    async def _serve(self, node: Node) -> None:
        """The program of each node: a broker; the master's has writers in it."""
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        async with contextlib.AsyncExitStack() as stack:
            broker = self.brokers[node.name] = await self._open_broker(node, tracer, stack)
            async with trio.open_nursery() as nursery:
                for number in range(_WRITERS if node.name == MASTER else 0):
                    nursery.start_soon(self._write, broker, node, number)
                await self.stopping.wait()

    async def _open_broker(self, node: Node, tracer: Tracer, stack: contextlib.AsyncExitStack) -> BrokerController:
        """Start again and again, as a system's service manager does, while the disk does not let it."""
        is_master = node.name == MASTER
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=None if is_master else f"{self.nodes[MASTER].address}:{HA_PORT}",
            ha_transfer_batch_size_bytes=self.workload.transfer_batch_bytes,
            read_buffer_bytes=_READ_BUFFER_BYTES,
        )
        role = BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE
        store = attrs.evolve(_STORE, broker_role=role, flush_disk_type=self._flush_type(node.name))
        config = BrokerConfig(node.name, store, ha)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        while True:
            try:
                return await stack.enter_async_context(
                    open_broker(config, environment, tracer, machines=self._machines[node.name])
                )
            except OSError as error:
                if error.errno not in _DISK_ERRORS:
                    raise
            await trio.sleep(_START_AGAIN_S)

    async def _write(self, broker: BrokerController, node: Node, number: int) -> None:
        workload = self.workload
        while self.puts_left > 0:
            pending = [self._put(broker, node, number) for _ in range(min(workload.in_flight, self.puts_left))]
            results = [put.result or await put.wait() for put in pending]
            refused = sum(result.append is None for result in results)
            self.puts_left += refused  # clients put again what a full disk, say, has refused
            await trio.sleep(_START_AGAIN_S if refused else node.entropy.random() * workload.pause_s)

    def _put(self, broker: BrokerController, node: Node, queue_id: int) -> PendingPut:
        self.puts_left -= 1
        body = node.entropy.token_bytes(1 + int(node.entropy.random() ** 3 * self.workload.body_bytes_max))
        return broker.async_put_message(Message("Chaos", body, queue_id, {"KEYS": f"{self.puts_left}"}))

    async def main(self, world: World) -> None:
        """The harness: boot, break, wait until all is well again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_broken)
            world.start_schedule(self.case.schedule)
            self.sabotage(world)
            for node in self.nodes.values():
                node.boot(self._serve)
            await self._outlast_faults()
            with trio.move_on_after(CONVERGENCE_S) as waiting:
                while not self._is_well():
                    self.moved = trio.Event()
                    await self.moved.wait()
            if waiting.cancelled_caught:
                raise _NotConverged(self._state())
            await self._last_put()
            self.checker.check_convergence(len(self.recorder.events))
            await self._stop_brokers()
            nursery.cancel_scope.cancel()

    async def _outlast_faults(self) -> None:
        """Wait until all faults are over, and do what an operator does: restart who cannot write any more."""
        if any(fault.on is not None for fault in self.case.schedule.faults):
            await trio.sleep(_EVENTS_WAIT_S)
        await trio.sleep_until(self.case.schedule.ends_s)
        self.world.stop_waiting()
        await trio.sleep_until(self.world.faults_end_s)
        for name, broker in list(self.brokers.items()):
            node = self.nodes[name]
            if broker.store.failure and node.is_up:
                del self.brokers[name]
                node.kill()
                node.restart()

    async def _stop_brokers(self) -> None:
        """Stop every broker in order; then its store must have nothing wrong with it."""
        self.stopping.set()
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            for node in self.nodes.values():
                await node.wait_down()
        if waiting.cancelled_caught:
            raise _NotConverged(f"a broker has not stopped in {CONVERGENCE_S:g} s")
        for name, node in self.nodes.items():
            wrong = [
                finding
                for finding in check_store(node.disk, max_hash_slot_num=_STORE.max_hash_slot_num)
                if finding.severity != "note"
            ]
            if wrong:
                self.checker.break_invariant("derived", f"{name}: {wrong[0]}", len(self.recorder.events))

    async def _end_when_broken(self) -> None:
        await self.broken.wait()
        raise _InvariantBroken

    def _is_well(self) -> bool:
        return (
            self.puts_left <= 0
            and not self.checker.unanswered
            and len(self.brokers) == len(self.nodes)
            and all(node.is_up for node in self.nodes.values())
            and self.checker.converged
            and len(self.brokers[MASTER].ha_service.connections) == len(SLAVES)
            and self.brokers[MASTER].store.running_flags.is_writeable
        )

    def _state(self) -> str:
        ends = ", ".join(f"{name} ends at {self.checker.end(name)}" for name in self.nodes)
        master = self.brokers.get(MASTER)
        connections = len(master.ha_service.connections) if master else 0
        return (
            f"{CONVERGENCE_S:g} s after the last fault: {ends}; {connections} connections, {self.puts_left} puts left, "
            f"{self.checker.unanswered} unanswered"
        )

    async def _last_put(self) -> None:
        """With every fault over, a put must be confirmed and reach both slaves."""
        master = self.brokers[MASTER]
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            # A connection that was accepted counts once its slave is known.
            await master.store.wait_for_slaves(len(SLAVES))
            result = await master.put_message(Message("Chaos", b"the last one"))
        if waiting.cancelled_caught:
            raise _NotConverged(self._state())
        if result.status is not PutStatus.PUT_OK:
            raise _NotConverged(f"with every fault over, a put is answered {result.status.value}")
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            while not self.checker.converged:
                self.moved = trio.Event()
                await self.moved.wait()
        if waiting.cancelled_caught:
            raise _NotConverged(self._state())


def run_case(case: Case, *, campaign: str = "chaos", sabotage: Callable[[World], object] = lambda _: None) -> RunResult:
    """Run a case in a fresh world. Never raises for what the run did wrong: the outcome says it.

    `sabotage` is called as the run begins, and may break what no fault mends: it tests that the scenario can fail.
    """
    world = World(case.seed, _WORLD, guard_packages=_GUARDED)
    info = RunInfo(campaign, SCENARIO, case.seed, case.to_json())
    run = _Run(case, world, info, sabotage)
    run.recorder.record("", "scenario", "run.start")
    outcome, failure = _outcome(run, world)
    run.recorder.record("", "scenario", "run.end", status=outcome, attributes={"detail": failure} if failure else None)
    return RunResult(
        case,
        info,
        outcome,
        failure,
        world.digest,
        run.recorder.events,
        world.now_s,
        run.checker.acked,
        run.checker.checks,
        frozenset(run.observer.observed),
    )


def _outcome(run: _Run, world: World) -> tuple[Outcome, str]:
    try:
        world.run(run.main)
    except BaseExceptionGroup as group:
        if group.subgroup(_InvariantBroken) is not None:
            return "invariant", str(run.checker.broken[0])
        stuck = group.subgroup(_NotConverged)
        if stuck is not None:
            return "liveness", str(_leaf(stuck))
        raise
    except NodeFailed as error:
        return "crash", str(error)
    except (Deadlock, Livelock, StepsExceeded, VirtualTimeExceeded) as error:
        return "liveness", str(error)
    if run.checker.broken:
        return "invariant", str(run.checker.broken[0])
    if run.crashes:
        return "crash", run.crashes[0]
    return "passed", ""


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


#: Scenarios by name: what `chaos run --scenario` takes.
SCENARIOS: Mapping[str, str] = {
    SCENARIO: "a master, two slaves, writers; faults of links, nodes, clocks and disks, timed by clock or by event"
}
