"""The chaos scenarios: brokers, writers, and a schedule of faults, in a world made from one case.

`run_case` is a plain synchronous function: a case in, a result out, nothing else. Everything that a run depends on is
in its case, so a failing run is replayed by its case alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.testing.observation import (
    OBSERVABLE,
    OBSERVABLE_IN_FAIL_OVERS,
    OBSERVABLE_IN_REPLICATION,
    UNASKED,
)
from rmq_actors.testing.replication_run import WORLD, ReplicationRun
from rmq_actors.testing.run_ends import InvariantBroken, LimitReached, NotConverged
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events.run import RunEnd, RunStart
from sim_net import (
    BitRot,
    Deadlock,
    Fault,
    Livelock,
    MisdirectedWrite,
    NodeFailed,
    On,
    Partition,
    PowerLoss,
    Schedule,
    StepsExceeded,
    VirtualTimeExceeded,
    World,
)
from sim_net.sampling import sample_fault
from sim_net.search import Case

SCENARIO = "replication"
FAIL_OVER = "fail-over"
#: Scenarios by name: what `chaos run --scenario` takes.
SCENARIOS: Mapping[str, str] = {
    SCENARIO: "a master, two slaves, writers; faults of links, nodes, clocks and disks, timed by clock or by event",
    FAIL_OVER: "the same, and masters are lost for good: slaves are promoted, old masters come back as slaves",
}
MASTER = "master"
SLAVES = ("slave-1", "slave-2")
#: Of the scenario with fail-overs; the first one is the master at first.
BROKERS = ("broker-1", "broker-2", "broker-3")

Outcome = Literal["passed", "invariant", "crash", "liveness"]

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
CHAOS_KINDS = (*_LINK_KINDS, *dict.fromkeys(_NODE_KINDS), BitRot.__name__)
#: How often a bit flips in a slave's log.
_ROT = 0.15
#: How often a fault is one of a link, and how often one may wait for an event of these kinds.
_LINK_FAULTS = 0.5
_TIMED_BY_EVENTS = 0.4
#: How often power is lost right behind an append of the same node.
_AT_AN_APPEND = 0.7
_EVENTS = ("log.append", "log.roll", "log.flush", "ha.transfer", "ha.client.report", "ha.replicated", "put.begin")
#: How often, where masters are lost, a link may be one between any two.
_ANY_LINK = 0.5
#: How often all slaves are cut off at once.
_ALL_SLAVES = 0.25

_GUARDED = ("rmq_actors",)


@attrs.frozen
class RunResult:
    """One run: how it ended, why, and everything that happened. `observed` and `under_load`: see `FaultObserver`."""

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
    under_load: frozenset[str]


def scenario_of(case: Case) -> str:
    """The scenario that a case is of: its parameters say it."""
    return FAIL_OVER if Workload.of(case.parameters).fail_overs else SCENARIO


def nodes_of(scenario: str) -> tuple[str, ...]:
    """The names of a scenario's brokers, the first master first."""
    return BROKERS if scenario == FAIL_OVER else (MASTER, *SLAVES)


def observable(scenario: str) -> tuple[str, ...]:
    """What a campaign of the scenario must meet, over all its runs; and the limit, which it may."""
    if scenario == FAIL_OVER:
        return (*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED)
    return (*OBSERVABLE, *OBSERVABLE_IN_REPLICATION)


def random_case(seed: int, *, scenario: str = SCENARIO, planted_bug: str | None = None) -> Case:
    """The case that an integer stands for. Times come from small sets, so that faults meet each other."""
    rng = random.Random(f"{scenario}/{seed}")
    workload = Workload.draw(rng, seed, planted_bug, fail_overs=scenario == FAIL_OVER)
    nodes = nodes_of(scenario)
    master, *slaves = nodes
    may_lose_power = nodes if _may_lose_power(workload) else slaves
    count = rng.randint(0, 4) if workload.fail_overs else rng.randint(2, 7)
    faults = [_random_fault(rng, nodes, may_lose_power) for _ in range(count)]
    if rng.random() < _ALL_SLAVES:
        # While one slave is well every put is confirmed: what time-outs do shows only when none is.
        at_s, duration_s = rng.choice((0.5, 1.0, 2.0)), rng.choice((2.0, 6.0, 25.0))
        faults += [Partition(at_s, duration_s, master, slave) for slave in slaves]
    if not workload.fail_overs:
        faults += _rot(random.Random(f"rot/{seed}"), slaves)
    return Case(seed, Schedule(tuple(faults)), workload.to_parameters())


def check_case(case: Case) -> None:
    """Whether its scenario can run `case`, which somebody may have edited. Raises ValueError naming what it cannot."""
    workload = Workload.of(case.parameters)
    nodes = nodes_of(scenario_of(case))
    for number, fault in enumerate(case.schedule.faults):
        waits_for = fault.on.node if fault.on is not None else ""
        unknown = {*fault.nodes, waits_for or nodes[0]} - set(nodes)
        if unknown:
            raise ValueError(f"faults[{number}]: no node is called {min(unknown)!r}; there are {', '.join(nodes)}")
        is_kept = isinstance(fault, BitRot) and fault.path.startswith(f"{COMMIT_LOG_DIRECTORY}/")
        if isinstance(fault, MisdirectedWrite | BitRot) and (not is_kept or fault.node == nodes[0] or nodes == BROKERS):
            raise ValueError(
                f"faults[{number}]: of damage on a disk something is promised only where bits flip in "
                f"{COMMIT_LOG_DIRECTORY}/ of a slave, without fail_overs"
            )
        if isinstance(fault, PowerLoss) and fault.node == nodes[0] and not _may_lose_power(workload):
            raise ValueError(
                f"faults[{number}]: without master_flush SYNC_FLUSH the master may lose what its slaves have, "
                f"and without fail_overs they have no port to notice it by"
            )


def is_runnable(case: Case) -> bool:
    """Whether `check_case` has nothing against it: a shrinker tries many."""
    try:
        check_case(case)
    except ValueError:
        return False
    return True


def _may_lose_power(workload: Workload) -> bool:
    """Whether the master may: its slaves must not be ahead of it then, or notice that."""
    return workload.fail_overs > 0 or workload.master_flush == FlushDiskType.SYNC_FLUSH.value


def _random_fault(rng: random.Random, nodes: Sequence[str], may_lose_power: Sequence[str]) -> Fault:
    """A fault of a link, or of a node."""
    if rng.random() < _LINK_FAULTS:
        link = rng.sample((nodes[0], rng.choice(nodes[1:])), 2)
        if nodes == BROKERS and rng.random() < _ANY_LINK:
            link = rng.sample(nodes, 2)
        return sample_fault(rng.choice, link, kinds=_LINK_KINDS, events=_events(rng))
    kind = rng.choice(_NODE_KINDS)
    if kind == PowerLoss.__name__:
        return _power_loss(rng, rng.choice(may_lose_power))
    return sample_fault(rng.choice, nodes, kinds=(kind,), events=_events(rng))


def _rot(rng: random.Random, slaves: Sequence[str]) -> list[Fault]:
    if rng.random() >= _ROT:
        return []
    fault = sample_fault(rng.choice, slaves, kinds=(BitRot.__name__,), events=_events(rng))
    assert isinstance(fault, BitRot)
    return [attrs.evolve(fault, path=f"{COMMIT_LOG_DIRECTORY}/")]


def _power_loss(rng: random.Random, node: str) -> Fault:
    """Mostly right behind an append of the node, where there is something to lose."""
    fault = sample_fault(rng.choice, (node,), kinds=(PowerLoss.__name__,), events=_events(rng))
    if rng.random() < _AT_AN_APPEND:
        on = On("log.append", node, rng.choice((1, 2, 3, 5, 8, 13, 21)))
        return attrs.evolve(fault, at_s=rng.choice((0.0, 0.0003, 0.003)), on=on)
    return fault


def _events(rng: random.Random) -> Sequence[str]:
    return _EVENTS if rng.random() < _TIMED_BY_EVENTS else ()


def run_case(case: Case, *, campaign: str = "chaos", sabotage: Callable[[World], object] = lambda _: None) -> RunResult:
    """Run a case in a fresh world. Never raises for what the run did wrong: the outcome says it.

    `sabotage` is called as the run begins, and may break what no fault mends: it tests that the scenario can fail.
    """
    world = World(case.seed, WORLD, guard_packages=_GUARDED)
    scenario = scenario_of(case)
    info = RunInfo(campaign, scenario, case.seed, case.to_json())
    run = ReplicationRun(case, world, info, nodes_of(scenario), sabotage)
    run.recorder.record(RunStart(), actor="scenario")
    outcome, failure = _outcome(run, world)
    run.recorder.record(RunEnd(status=outcome, detail=failure or None), actor="scenario")
    return RunResult(
        case,
        info,
        outcome,
        failure,
        world.digest,
        run.recorder.events,
        world.now_s,
        run.brokers.view.acked,
        run.judge.checks,
        frozenset(run.observer.observed),
        frozenset(run.observer.under_load),
    )


def _outcome(run: ReplicationRun, world: World) -> tuple[Outcome, str]:
    try:
        world.run(run.main)
    except BaseExceptionGroup as group:
        if group.subgroup(LimitReached) is not None:
            return "passed", ""
        if group.subgroup(InvariantBroken) is not None:
            return "invariant", str(run.judge.broken)
        stuck = group.subgroup(NotConverged)
        if stuck is not None:
            return "liveness", str(_leaf(stuck))
        raise
    except NodeFailed as error:
        return "crash", str(error)
    except (Deadlock, Livelock, StepsExceeded, VirtualTimeExceeded) as error:
        return "liveness", str(error)
    if run.judge.broken:
        return "invariant", str(run.judge.broken)
    if run.crashes:
        return "crash", run.crashes[0]
    return "passed", ""


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
