"""The replication scenario: a master and two slaves, writers, and a schedule of faults, in a world made from one case.

`run_case` is a plain synchronous function: a case in, a result out, nothing else. Everything that a run depends on is
in its case, so a failing run is replayed by its case alone.
"""

from __future__ import annotations

import contextvars
import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, Machines, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY, file_name
from rmq_actors.testing.checkers import Broken, ReplicationChecker
from rmq_actors.testing.observation import FaultObserver
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import Message
from sim_net import (
    Deadlock,
    Delay,
    Fault,
    Kill,
    LinkConfig,
    Livelock,
    Node,
    NodeFailed,
    Partition,
    Reset,
    Schedule,
    ShortIO,
    Stall,
    StepsExceeded,
    VirtualTimeExceeded,
    World,
    WorldConfig,
)
from sim_net.search import Case

SCENARIO = "replication"
MASTER = "master"
SLAVES = ("slave-1", "slave-2")
HA_PORT = 10912

Outcome = Literal["passed", "invariant", "crash", "liveness"]

#: Small, so that a few dozen messages roll files, split frames and fill buffers.
_STORE = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER, mapped_file_size_commit_log_bytes=4096)
_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02, segment_bytes=400),
    send_buffer_bytes=2048,
    receive_buffer_bytes=2048,
    journal_keep=False,
    virtual_time_max_s=3600.0,
)
_BATCH_BYTES = 512
_READ_BUFFER_BYTES = 4096
_WRITERS = 2
#: How often both slaves are cut off at once.
_BOTH_SLAVES = 0.25
_FLUSH_TYPES = tuple(flush_type.value for flush_type in FlushDiskType)
#: After the last fault everything must be as it should within this time (invariant I5: 30 s).
CONVERGENCE_S = 30.0

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
    faults = [_random_fault(rng) for _ in range(rng.randint(2, 7))]
    if rng.random() < _BOTH_SLAVES:
        # While one slave is well every put is confirmed: what time-outs do shows only when neither is.
        at_s, duration_s = rng.choice((0.5, 1.0, 2.0)), rng.choice((2.0, 6.0, 25.0))
        faults += [Partition(at_s, duration_s, MASTER, slave) for slave in SLAVES]
    parameters: dict[str, str | int | float | bool | None] = {
        "puts": rng.choice((20, 40, 60)),
        "pause_s": rng.choice((0.1, 0.3, 0.6)),
        "master_flush": rng.choice(_FLUSH_TYPES),
        "slave_flush": rng.choice(_FLUSH_TYPES),
    }
    if planted_bug is not None:
        parameters["planted_bug"] = planted_bug
    return Case(seed, Schedule(tuple(faults)), parameters)


def check_case(case: Case) -> None:
    """Whether this scenario can run `case`, which somebody may have edited. Raises ValueError naming what it cannot."""
    parameters = dict(case.parameters)
    puts, pause_s, bug = (parameters.pop(name, None) for name in ("puts", "pause_s", "planted_bug"))
    if isinstance(puts, bool) or not isinstance(puts, int) or puts < 0:
        raise ValueError(f"parameters['puts'] must be a whole number of at least 0, not {puts!r}")
    if isinstance(pause_s, bool) or not isinstance(pause_s, int | float) or not 0 <= pause_s < math.inf:
        raise ValueError(f"parameters['pause_s'] must be a finite number of at least 0, not {pause_s!r}")
    if bug is not None and bug not in PLANTED_BUGS:
        raise ValueError(f"no planted bug is called {bug!r}; there are {', '.join(PLANTED_BUGS)}")
    for name in ("master_flush", "slave_flush"):
        if (flush := parameters.pop(name, _FLUSH_TYPES[0])) not in _FLUSH_TYPES:
            raise ValueError(f"parameters[{name!r}] must be one of {', '.join(_FLUSH_TYPES)}, not {flush!r}")
    if parameters:
        raise ValueError(f"no parameter is called {', '.join(map(repr, sorted(parameters)))}")
    for number, fault in enumerate(case.schedule.faults):
        unknown = {getattr(fault, field, MASTER) for field in ("a", "b", "node")} - {MASTER, *SLAVES}
        if unknown:
            raise ValueError(
                f"faults[{number}]: no node is called {min(unknown)!r}; there are {', '.join((MASTER, *SLAVES))}"
            )


def _random_fault(rng: random.Random) -> Fault:
    at_s = round(
        rng.choice((0.0, 0.5, 1.0, 2.0, 3.0, 5.0)) + rng.choice((0.0, 0.001, 0.01, 0.1, 1.0)) * rng.random(), 4
    )
    duration_s = rng.choice((0.05, 0.5, 2.0, 6.0, 25.0))
    slave = rng.choice(SLAVES)
    a, b = rng.choice(((MASTER, slave), (slave, MASTER)))
    node = rng.choice((MASTER, *SLAVES))
    return rng.choice(
        (
            Delay(at_s, duration_s, a, b, rng.choice((0.005, 0.05, 0.5))),
            Partition(at_s, duration_s, a, b, two_way=rng.random() < 0.5),
            Stall(at_s, duration_s, a, b),
            Reset(at_s, a, b),
            ShortIO(at_s, duration_s, node, rng.choice((1, 7, 100))),
            Kill(at_s, node, rng.choice((0.01, 0.5, 3.0))),
        )
    )


def _last_fault_ends_s(schedule: Schedule) -> float:
    return max(
        (
            fault.at_s
            + (fault.down_s if isinstance(fault, Kill) else 0.0 if isinstance(fault, Reset) else fault.duration_s)
            for fault in schedule.faults
        ),
        default=0.0,
    )


@attrs.define(eq=False)
class _Run:
    """The moving parts of one run."""

    case: Case
    world: World
    info: RunInfo
    hidden_faults: Schedule
    puts_left: int
    recorder: Recorder = attrs.field(init=False)
    nodes: dict[str, Node] = attrs.field(init=False)
    checker: ReplicationChecker = attrs.field(init=False)
    observer: FaultObserver = attrs.field(init=False)
    broken: trio.Event = attrs.field(factory=trio.Event, init=False)
    moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    crashes: list[str] = attrs.field(factory=list, init=False)
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    _machines: dict[str, Machines] = attrs.field(factory=dict, init=False)
    _outside: contextvars.Context = attrs.field(factory=contextvars.Context, init=False)

    def __attrs_post_init__(self) -> None:
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
        for listener in (self.checker.observe, self.observer.observe, self._on_event):
            self.recorder.subscribe(listener)
        bug = self.case.parameters.get("planted_bug")
        for name in self.nodes:
            self._machines[name] = PLANTED_BUGS[str(bug)].make_machines() if bug else Machines()

    def _read_log(self, node: str, begin: int, end: int) -> bytes:
        # Outside of every node, so that a dead node's page cache can be read too.
        return self._outside.run(self._read_log_outside, node, begin, end)

    def _read_log_outside(self, node: str, begin: int, end: int) -> bytes:
        parts, size = [], _STORE.mapped_file_size_commit_log_bytes
        while begin < end:
            first = begin - begin % size
            file = self.nodes[node].disk.open(f"{COMMIT_LOG_DIRECTORY}/{file_name(first)}", read_only=True)
            stop = min(end, first + size)
            parts.append(bytes(file.map()[begin - first : stop - first]))
            file.close()
            begin = stop
        return b"".join(parts)

    def _flush_type(self, node: str) -> FlushDiskType:
        parameter = "master_flush" if node == MASTER else "slave_flush"
        return FlushDiskType(self.case.parameters.get(parameter, FlushDiskType.ASYNC_FLUSH.value))

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(
            "", "ReplicationChecker", "invariant.broken", status=broken.invariant, attributes={"detail": broken.detail}
        )
        self.broken.set()

    def _on_event(self, event: Event) -> None:
        if event.kind == "actor.crash":
            # A supervisor may mend it; it is a fault of the product all the same.
            self.crashes.append(f"{event.actor} of {event.node}: {event.status}: {(event.attrs or {})['detail']}")
        if event.kind in {"log.append", "put.end", "store.open", "ha.connection.open", "ha.connection.close"}:
            self.moved.set()

    async def _serve(self, node: Node) -> None:
        """The program of each node: a broker; the master's has writers in it."""
        is_master = node.name == MASTER
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=None if is_master else f"{self.nodes[MASTER].address}:{HA_PORT}",
            ha_transfer_batch_size_bytes=_BATCH_BYTES,
            read_buffer_bytes=_READ_BUFFER_BYTES,
        )
        role = BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE
        store = attrs.evolve(_STORE, broker_role=role, flush_disk_type=self._flush_type(node.name))
        config = BrokerConfig(node.name, store, ha)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(config, environment, tracer, machines=self._machines[node.name]) as broker:
            self.brokers[node.name] = broker
            async with trio.open_nursery() as nursery:
                for number in range(_WRITERS if is_master else 0):
                    nursery.start_soon(self._write, broker, node, number)
                await trio.sleep_forever()

    async def _write(self, broker: BrokerController, node: Node, number: int) -> None:
        pause_s = float(self.case.parameters["pause_s"] or 0)
        while self.puts_left > 0:
            self.puts_left -= 1
            body = node.entropy.token_bytes(1 + int(node.entropy.random() ** 3 * 900))
            await broker.put_message(Message("Chaos", body, number, {"KEYS": f"{self.puts_left}"}))
            await trio.sleep(node.entropy.random() * pause_s)

    async def main(self, world: World) -> None:
        """The harness: boot, break, wait until all is well again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_broken)
            world.start_schedule(Schedule((*self.case.schedule.faults, *self.hidden_faults.faults)))
            for node in self.nodes.values():
                node.boot(self._serve)
            await trio.sleep_until(trio.current_time() + _last_fault_ends_s(self.case.schedule))
            with trio.move_on_after(CONVERGENCE_S) as waiting:
                while not self._is_well():
                    self.moved = trio.Event()
                    await self.moved.wait()
            if waiting.cancelled_caught:
                raise _NotConverged(self._state())
            await self._last_put()
            self.checker.check_convergence(len(self.recorder.events))
            nursery.cancel_scope.cancel()

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
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            result = await self.brokers[MASTER].put_message(Message("Chaos", b"the last one"))
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


def run_case(case: Case, *, campaign: str = "chaos", hidden_faults: Schedule | None = None) -> RunResult:
    """Run a case in a fresh world. Never raises for what the run did wrong: the outcome says it.

    `hidden_faults` happen too, but the scenario does not wait for their end: they test that it can fail.
    """
    world = World(case.seed, _WORLD, guard_packages=_GUARDED)
    info = RunInfo(campaign, SCENARIO, case.seed, case.to_json())
    run = _Run(case, world, info, hidden_faults or Schedule(), puts_left=int(case.parameters["puts"] or 0))
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
    SCENARIO: "a master, two slaves, writers; delay, partition, stall, reset, short I/O, kill"
}
