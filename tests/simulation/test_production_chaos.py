"""Whole production configurations: every run passes, and settings, faults and fail-overs meet in them."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.production import PRODUCTION, PRODUCTION_OF_FOUR
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.testing.workload import RECORD_BESIDE_BODY_BYTES, Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.ha import HaClientHalt
from rmq_actors.tracing.events.run import OperatorSetUpAnew
from sim_net import BitRot, Kill, Partition, Schedule, fault_kind
from sim_net.search.search import Case, Parameter
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules

SEEDS, MANY_SEEDS = range(8), range(40)
FOUND = found_schedules(PRODUCTION.name)
CALM: dict[str, Parameter] = {"puts": 12, "pause_s": 0.1, "fail_over_at_s": 3.0}


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(PRODUCTION.case(seed), PRODUCTION) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(PRODUCTION.case(seed), PRODUCTION) for seed in MANY_SEEDS]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


def test_a_master_and_three_slaves() -> None:
    results = [run_case(PRODUCTION_OF_FOUR.case(seed), PRODUCTION_OF_FOUR) for seed in range(6)]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_settings_are_drawn_at_their_extremes_and_together() -> None:
    cases = [PRODUCTION.case(seed) for seed in range(600)]
    workloads = [Workload.of(case.parameters) for case in cases]
    assert {each.transfer_batch_bytes for each in workloads} >= {1, 32 * 1024}
    assert {each.body_bytes_max for each in workloads} >= {1, 60_000}
    assert {each.in_flight for each in workloads} >= {1, 100}
    assert any(each.log_file_bytes == each.body_bytes_max + RECORD_BESIDE_BODY_BYTES for each in workloads)
    assert {each.queue_file_bytes for each in workloads} >= {20}
    assert {each.in_sync_replicas for each in workloads} == {2, 3}
    assert {each.fail_overs for each in workloads} == {0, 1, 2}
    assert any(
        each.transient_pool
        and each.clean_every_s
        and each.fail_overs
        and "BitRot" in map(fault_kind, case.schedule.faults)
        for each, case in zip(workloads, cases, strict=True)
    )


def test_a_slave_whose_log_is_damaged_halts_and_is_set_up_again() -> None:
    """It compares its log when it follows again, and its bytes differ. Opened again, it does not start."""
    halts = set_up = 0
    for seed in range(6, 9):
        rot = BitRot(1.5, "south", "commitlog/", bits=8)
        case = Case(seed, Schedule((rot, Kill(2.0, "north", 0.5))), {**CALM, "divergence": "command"})
        result = run_case(case, PRODUCTION)
        assert (result.outcome, result.failure) == ("passed", "")
        halts += len(of_kind(result.events, HaClientHalt))
        set_up += len(of_kind(result.events, OperatorSetUpAnew))
    assert halts
    assert set_up


def test_who_has_nothing_in_common_with_the_new_master_any_more_is_set_up_again() -> None:
    """Cut off, the old master goes on alone and cleans its log; what both had is gone from it then."""
    parameters: dict[str, Parameter] = {
        "puts": 40,
        "pause_s": 0.1,
        "in_flight": 2,
        "log_file_bytes": 1100,
        "master_role": "ASYNC_MASTER",
        "clean_every_s": 0.3,
        "fail_overs": 1,
        "fail_over_at_s": 6.0,
    }
    away = Schedule(Partition(0.5, 8.0, "north", slave) for slave in ("south", "east"))
    results = [run_case(Case(seed, away, parameters), PRODUCTION) for seed in range(4)]
    assert [each.failure for each in results if each.outcome != "passed"] == []
    assert any(of_kind(result.events, OperatorSetUpAnew) for result in results)


def test_a_run_ends_where_the_log_of_the_master_is_damaged() -> None:
    """Nothing is promised of it: whoever was the slave is the master by then."""
    rot = BitRot(5.0, "south", "commitlog/", bits=8)
    case = Case(1, Schedule((rot,)), {**CALM, "fail_overs": 1, "fail_over_at_s": 2.0})
    results = [run_case(attrs.evolve(case, seed=seed), PRODUCTION) for seed in range(6)]
    assert {each.outcome for each in results} == {"passed"}
    assert any("damaged_master" in each.observed for each in results)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
@pytest.mark.parametrize("seeds", OTHER_SEEDS)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path, seeds: range) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed), PRODUCTION) for seed in seeds]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
