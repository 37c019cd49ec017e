"""The scenario with fail-overs: what may be lost then is what ha-protocol.md says, and everything else is noticed."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.observation import OBSERVABLE_IN_FAIL_OVERS
from rmq_actors.testing.scenarios import FAIL_OVER, RunResult, random_case, run_case, scenario_of
from rmq_actors.testing.workload import CHOICES, DIVERGENCE, LOSSES, Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.ha import HaClientHalt
from rmq_actors.tracing.events.node import NodeKill, NodeResume
from rmq_actors.tracing.events.run import OperatorPromote
from rmq_actors.tracing.events.store import LogTruncate, PutEnd
from sim_net import Kill, Partition, Pause, PowerLoss, Schedule
from sim_net.search.search import Case, Parameter
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules
from tests.worlds.recording import E

SEEDS, MANY_SEEDS = range(8), range(48)
BROKERS = FAIL_OVER.topology
#: What the scenario or its checker once took wrongly for a fault of the product, or the product did wrong.
FOUND = found_schedules(FAIL_OVER.name)
#: Both slaves must have what is acknowledged; then either may be promoted, and nothing is lost.
SYNC: dict[str, Parameter] = {"puts": 60, "pause_s": 0.1, "in_flight": 3, "fail_overs": 1, "fail_over_at_s": 0.7}


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(random_case(seed, scenario=FAIL_OVER)) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(random_case(seed, scenario=FAIL_OVER)) for seed in MANY_SEEDS]


def events_of(result: RunResult, kind: type[E]) -> list[E]:
    return of_kind(result.events, kind)


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert sum(result.acked for result in results) > 200


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_the_runs_meet_what_they_are_for(many_results: list[RunResult]) -> None:
    assert set(OBSERVABLE_IN_FAIL_OVERS) <= set().union(*(result.observed for result in many_results))
    assert sum(result.acked for result in many_results) > 1000


def test_each_way_to_lose_and_replace_a_master_is_drawn() -> None:
    workloads = [Workload.of(random_case(seed, scenario=FAIL_OVER).parameters) for seed in range(32)]
    assert {each.lost_by for each in workloads} == set(LOSSES)
    assert {each.promoted for each in workloads} == set(CHOICES)
    assert {each.divergence for each in workloads} == set(DIVERGENCE)


def test_a_case_names_its_scenario_and_the_command_that_replays_it(tmp_path: Path) -> None:
    case = random_case(3, scenario=FAIL_OVER)
    assert scenario_of(case) == FAIL_OVER
    CaseFile(FAIL_OVER.name, case, "invariant", "...").save(tmp_path / "case.json")
    loaded = CaseFile.load(tmp_path / "case.json").case
    assert loaded == case
    assert run_case(loaded).digest == run_case(case).digest


@pytest.mark.parametrize("promoted", CHOICES)
def test_what_both_slaves_must_have_survives_whichever_is_promoted(promoted: str) -> None:
    for seed in range(4):
        result = run_case(Case(seed, Schedule(), {**SYNC, "in_sync_replicas": 3, "promoted": promoted}))
        assert (result.outcome, result.failure) == ("passed", "")
        promotion = next(event for event in events_of(result, BrokerRoleEvent) if event.role != "SLAVE")
        kill = events_of(result, NodeKill)[0]
        acknowledged = [
            event.offset for event in events_of(result, PutEnd) if event.status == "PUT_OK" and event.seq < kill.seq
        ]
        assert acknowledged
        assert promotion.offset >= max(acknowledged)


def test_no_master_steps_down_while_it_is_paused() -> None:
    """Requests wait in its kernel, which it would take before it learns that it is no master any more."""
    pause = Schedule((Pause(0.02, 9.0, BROKERS.master),))
    quiet: dict[str, Parameter] = {"puts": 4, "pause_s": 0.1, "clients": True, "fail_overs": 1, "lost_by": "step_down"}
    result = run_case(Case(1, pause, quiet))
    assert (result.outcome, result.failure) == ("passed", "")
    (resumed,), promotions = events_of(result, NodeResume), events_of(result, OperatorPromote)
    assert [each.node for each in promotions if each.seq > resumed.seq] == ["broker-2"]
    assert len(promotions) == 1


def test_an_old_master_whose_log_parts_halts_and_is_left_alone_unless_it_may_be_cut() -> None:
    """Cut off from its slaves, an ASYNC_MASTER goes on alone, and has what nobody else has."""
    case: dict[str, Parameter] = {**SYNC, "master_role": "ASYNC_MASTER"}
    cut_off = Schedule(Partition(0.1, 2.0, BROKERS.master, slave) for slave in BROKERS.slaves)
    for divergence in DIVERGENCE:
        results = [run_case(Case(seed, cut_off, {**case, "divergence": divergence})) for seed in range(2)]
        assert [result.failure for result in results] == [""] * len(results)
        halts = sum(len(events_of(result, HaClientHalt)) for result in results)
        cuts = sum(len(events_of(result, LogTruncate)) for result in results)
        assert halts
        assert (cuts > 0) is (divergence != "halt")


def test_a_master_without_sync_flush_may_lose_its_power_here() -> None:
    """Its slaves have more than it then, and notice it, by the port that they ask on."""
    case = Case(1, Schedule((PowerLoss(0.4, BROKERS.master, 0.1),)), {**SYNC, "fail_over_at_s": 3.0})
    FAIL_OVER.check(case)
    result = run_case(case)
    assert (result.outcome, result.failure) == ("passed", "")


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
@pytest.mark.parametrize("seeds", OTHER_SEEDS)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path, seeds: range) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed)) for seed in seeds]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_a_node_of_the_other_scenario_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no node is called 'master'; there are broker-1, broker-2, broker-3"):
        FAIL_OVER.check(Case(1, Schedule((Kill(0.1, "master", 0.1),)), SYNC))
