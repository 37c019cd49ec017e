"""The scenarios of this project, and running a case of any scenario: a case in, a result out.

`run_case` is a plain synchronous function. Everything that a run depends on is in its case and its scenario, so a
failing run is replayed by these two alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from rmq_actors.settings.field_types import on_one_line
from rmq_actors.testing.accounts import ACCOUNTS
from rmq_actors.testing.crash_points import CRASH_POINTS
from rmq_actors.testing.exchanges import EXCHANGES
from rmq_actors.testing.fail_over import FailOverOperator
from rmq_actors.testing.fault_families import NODE_KINDS, FaultFamilies
from rmq_actors.testing.fences import FENCES
from rmq_actors.testing.invariants import (
    CLIENT_INVARIANTS,
    REPLICATION_INVARIANTS,
    REPLICATION_LIMITS,
    Answered,
    Delayed,
    Errands,
    TopicLives,
    Transactions,
)
from rmq_actors.testing.lost_files import LOST_FILES
from rmq_actors.testing.mistakes import MISTAKES, first_leaf, is_interrupt, own_place, told
from rmq_actors.testing.observation import (
    OBSERVABLE,
    OBSERVABLE_IN_FAIL_OVERS,
    OBSERVABLE_IN_REPLICATION,
    UNASKED,
)
from rmq_actors.testing.production import OPERATED, PRODUCTION, PRODUCTION_OF_FOUR
from rmq_actors.testing.races import RACES
from rmq_actors.testing.replication_run import ReplicationRun
from rmq_actors.testing.restarts import RESTARTS
from rmq_actors.testing.routes import ROUTES
from rmq_actors.testing.run_ends import InvariantBroken, LimitReached, NotConverged
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.settings import SETTINGS
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.store_work import STORE_WORK
from rmq_actors.testing.stranger_clients import STORE_OF_STRANGERS
from rmq_actors.testing.topic_operator import TOPIC_EVENTS, TopicOperator
from rmq_actors.testing.topology import Topology
from rmq_actors.testing.workload import (
    draw_delays,
    draw_errands,
    draw_fail_overs,
    draw_failing_disks,
    draw_produce_consume,
    draw_replication,
    draw_retries,
    draw_strangers,
    draw_topics,
    draw_topics_on_failing_disks,
    draw_transactions,
)
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events.run import RunEnd, RunStart
from sim_net import Deadlock, Livelock, NodeFailed, StepsExceeded, VirtualTimeExceeded, World
from sim_net.search.search import Case

_log = logging.getLogger(__name__)

#: A member that died with its machine may have the locks of queues for a minute.
GROUPS_CONVERGE_IN_S = 150.0
#: An errand may look at routes for some minutes, and another one begin after that.
ERRANDS_END_IN_S = 600.0
#: At what a disk fails, and after which of a node's events it begins to.
DISK_ERRORS = (
    *(("sync", "commitlog/"), ("sync", "commitlog/"), ("write", "commitlog/"), ("write", "commitlog/")),
    *(("open", "commitlog/"), ("remove", "commitlog/"), ("sync_directory", "commitlog"), ("", "cut/")),
    *(("sync", "consumequeue/"), ("write", "consumequeue/"), ("open", "consumequeue/")),
    ("sync_directory", "consumequeue"),
    *(("sync", "index/"), ("write", "index/"), ("sync", "config/"), ("rename", "config/"), ("write", "config/")),
    *(("sync", "checkpoint"), ("write", "checkpoint"), ("sync", ""), ("write", ""), ("", "")),
)
DISK_EVENTS = (
    *("disk.write", "disk.sync", "disk.sync", "disk.rename", "disk.remove", "disk.sync_directory", "disk.open"),
    *("log.append", "log.append", "log.roll", "log.flush", "log.truncate", "store.open", "store.checkpoint"),
)
REPLICATION = Scenario(
    "replication",
    "a master, two slaves, writers; faults of links, nodes, clocks and disks, timed by clock or by event",
    Topology("master", ("slave-1", "slave-2")),
    draw_replication,
    FaultFamilies(rot=0.15),
    observable=(*OBSERVABLE, *OBSERVABLE_IN_REPLICATION),
)
FAIL_OVER = Scenario(
    "fail-over",
    "the same, and masters are lost for good: slaves are promoted, old masters come back as slaves",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_fail_overs,
    FaultFamilies(fewest=0, most=4, any_link=0.5),
    FailOverOperator,
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
TRANSACTIONS = attrs.evolve(
    FAIL_OVER,
    name="transactions",
    description="the same, and producers prepare messages, commit and roll back, and answer when they are asked",
    workload=draw_transactions,
    invariants=(*FAIL_OVER.invariants, Transactions),
)
DELAYS = Scenario(
    "delays",
    "clients delay messages, by 1 s or 5 s, while masters are lost: none comes early, and none is lost",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_delays,
    FaultFamilies(fewest=0, most=4, any_link=0.5),
    FailOverOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Delayed),
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
RETRIES = attrs.evolve(
    DELAYS,
    name="retries",
    description="the same, and the consumer sends messages back: they come again, or are dead letters",
    workload=draw_retries,
)
PRODUCE_CONSUME = attrs.evolve(
    DELAYS,
    name="produce-consume",
    description="own producers and consumer groups whose members come, go and die, while masters are lost",
    workload=draw_produce_consume,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, *CLIENT_INVARIANTS),
    converges_in_s=GROUPS_CONVERGE_IN_S,
)
TOPICS = Scenario(
    "topics",
    "topics are made, filled, read, deleted and made again, while masters are lost: none gets back what it had before",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_topics,
    FaultFamilies(
        nodes=(*NODE_KINDS, "Kill", "Kill", "PowerLoss"),
        fewest=1,
        most=6,
        any_link=0.5,
        events=TOPIC_EVENTS,
        timed_by_events=0.7,
        at_own_events=0.8,
        link_faults=0.25,
    ),
    TopicOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, TopicLives),
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
#: What a deletion of a topic needs: its queues go, and tables, points and the log are synced.
ERRORS_OF_DELETIONS = (
    *(("remove", "consumequeue/Comes-"), ("remove", "consumequeue/Comes-"), ("open", "consumequeue/Comes-")),
    *(("remove_directory", "consumequeue/Comes-"), ("sync_directory", "consumequeue"), ("sync", "commitlog/")),
    *(("write", "config/deletedTopics"), ("sync", "config/deletedTopics"), ("rename", "config/deletedTopics")),
    *(("write", "config/topics"), ("rename", "config/topics"), ("sync", "config/consumerOffset")),
    *(("sync", "checkpoint"), ("write", "checkpoint")),
)
EVENTS_OF_DELETIONS = (*TOPIC_EVENTS, "disk.remove", "disk.remove_directory", "disk.remove_directory")
TOPICS_ON_FAILING_DISKS = attrs.evolve(
    TOPICS,
    name="topics-on-failing-disks",
    description="the same, and disks fail and fill up at what a deletion needs, and their brokers crash soon after",
    workload=draw_topics_on_failing_disks,
    faults=FaultFamilies(
        links=("Partition", "Reset"),
        nodes=("DiskError", "DiskError", "DiskError", "DiskError", "DiskFull", "Kill", "PowerLoss"),
        fewest=2,
        most=6,
        any_link=0.5,
        all_slaves=0.05,
        events=EVENTS_OF_DELETIONS,
        timed_by_events=0.7,
        at_own_events=0.8,
        link_faults=0.15,
        errors_wait=0.7,
        crash_soon=0.6,
        crash_again=0.3,
        disk_errors=ERRORS_OF_DELETIONS,
    ),
)
FAILING_DISKS = Scenario(
    "failing-disks",
    "disks fail, fill up and stand still, their brokers crash soon after that, and masters are lost",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_failing_disks,
    FaultFamilies(
        links=("Partition", "Reset"),
        nodes=("DiskError", "DiskError", "DiskError", "DiskFull", "DiskStuck", "PowerLoss", "Kill"),
        fewest=2,
        most=6,
        any_link=0.5,
        all_slaves=0.05,
        events=DISK_EVENTS,
        timed_by_events=0.7,
        at_own_events=0.7,
        link_faults=0.15,
        crash_soon=0.6,
        disk_errors=DISK_ERRORS,
    ),
    FailOverOperator,
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
STRANGERS = Scenario(
    "strangers",
    "strangers send what must be refused, odd bytes and odd messages, while masters are lost: nothing wrong is taken",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_strangers,
    FaultFamilies(fewest=0, most=4, any_link=0.5),
    FailOverOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Answered),
    store=STORE_OF_STRANGERS,
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
ERRANDS = Scenario(
    "errands",
    "clients run errands of which it is known what becomes of them and how soon, where nothing is wrong meanwhile",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_errands,
    FaultFamilies(
        nodes=("ClockJump", "ClockJump", "ClockJump", "Kill", "PowerLoss", "PowerLoss", "Pause", "DiskSlow"),
        fewest=0,
        most=4,
        any_link=0.5,
        all_slaves=0.0,
        events=("client.errand", "client.errand", "log.append", "broker.slave_synchronize"),
        timed_by_events=0.7,
        at_own_events=0.5,
        link_faults=0.15,
        standstills=0.3,
    ),
    FailOverOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Delayed, Transactions, Errands),
    converges_in_s=ERRANDS_END_IN_S,
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
#: Scenarios by name: what `chaos run --scenario` takes.
SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *(REPLICATION, FAIL_OVER, PRODUCTION, PRODUCTION_OF_FOUR, OPERATED, CRASH_POINTS),
        *(TRANSACTIONS, DELAYS, RETRIES, PRODUCE_CONSUME, TOPICS, FAILING_DISKS, STRANGERS, ERRANDS, RACES),
        *(STORE_WORK, ROUTES, LOST_FILES, TOPICS_ON_FAILING_DISKS, EXCHANGES, RESTARTS, FENCES, ACCOUNTS, SETTINGS),
    )
}

Outcome = Literal["passed", "invariant", "crash", "liveness"]

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


def scenario_of(case: Case) -> Scenario:
    """Which of this project's scenarios a case is of: its parameters say it."""
    if case.parameters.get("groups"):
        return PRODUCE_CONSUME
    if case.parameters.get("topic_lives"):
        return TOPICS
    if case.parameters.get("strangers"):
        return STRANGERS
    if case.parameters.get("settings"):
        return SETTINGS
    if case.parameters.get("errands"):
        return ERRANDS
    if case.parameters.get("accounts"):
        return ACCOUNTS
    if case.parameters.get("retries"):
        return RETRIES
    if case.parameters.get("delays"):
        return DELAYS
    return FAIL_OVER if case.parameters.get("fail_overs") else REPLICATION


def random_case(seed: int, *, scenario: Scenario = REPLICATION, planted_bug: str | None = None) -> Case:
    """The case that an integer stands for."""
    return scenario.case(seed, planted_bug=planted_bug)


def run_case(
    case: Case,
    scenario: Scenario | None = None,
    *,
    campaign: str = "chaos",
    sabotage: Callable[[World], object] = lambda _: None,
) -> RunResult:
    """Run a case in a fresh world. Never raises for what the run did wrong: the outcome says it.

    `scenario`: that of the case, if it is not one of this project's. Raises ValueError if it cannot run the case.
    `sabotage` is called as the run begins, and may break what no fault mends: it tests that the scenario can fail.
    """
    scenario = scenario_of(case) if scenario is None else scenario
    scenario.check(case)
    world = World(case.seed, scenario.world, guard_packages=_GUARDED)
    info = RunInfo(campaign, scenario.name, case.seed, case.to_json())
    try:
        run = ReplicationRun(case, world, info, scenario, sabotage)
    except MISTAKES as error:  # of one's own operator, or invariant
        return _not_begun(case, info, scenario, error)
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


def _not_begun(case: Case, info: RunInfo, scenario: Scenario, error: BaseException) -> RunResult:
    """The result of a run whose operator, or one of whose invariants, could not be made: it ends as it begins."""
    failure = _told_of_own(error)
    world = World(case.seed, scenario.world)
    recorder = open_sim_recorder(world, info)
    recorder.record(RunStart(), actor="scenario")
    recorder.record(RunEnd(status="crash", detail=failure), actor="scenario")
    none: frozenset[str] = frozenset()
    return RunResult(case, info, "crash", failure, world.digest, recorder.events, 0.0, 0, 0, none, none)


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
            return "liveness", str(first_leaf(stuck))
        if is_interrupt(group):
            raise
        return "crash", _told_of_own(group)
    except NodeFailed as error:
        return "crash", _told_of_node(error)
    except (Deadlock, Livelock, StepsExceeded, VirtualTimeExceeded) as error:
        return "liveness", str(error)
    except MISTAKES as error:  # of a callback of the world: of a fault of one's own, say
        return "crash", _told_of_own(error)
    if run.judge.broken:
        return "invariant", str(run.judge.broken)
    if run.crashes:
        return "crash", run.crashes[0]
    return "passed", ""


def _told_of_own(error: BaseException) -> str:
    """In words, an error outside of all nodes: of an operator, or of this harness."""
    _log.error("the operator, or the scenario, failed", exc_info=error)
    return f"the operator, or the scenario, failed: {told(error)}"


def _told_of_node(failed: NodeFailed) -> str:
    """In words, an error of what runs on a node: what an operator does beside a broker has a place of its own."""
    place = "" if failed.__cause__ is None else own_place(failed.__cause__)
    return on_one_line(str(failed)) + (f" ({place})" if place else "")
