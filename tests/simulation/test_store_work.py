"""The scenario `store-work`: tiny files of every sort, crashes that come twice, and no promise is broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.testing.store_work import ERRORS, EVENTS, STORE_WORK
from sim_net import DiskError, Kill, PowerLoss
from tests.simulation.disk_operations import NotedRuns
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules

SEEDS, MANY_SEEDS = range(8), range(40)
FOUND = found_schedules(STORE_WORK.name)


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(STORE_WORK, SEEDS)


@pytest.fixture(scope="module")
def results(noted: NotedRuns) -> list[RunResult]:
    return noted.results


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(STORE_WORK.case(seed), STORE_WORK) for seed in MANY_SEEDS]


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_there_are_the_operations_that_fail_or_are_waited_for(noted: NotedRuns) -> None:
    assert noted.unmet == set()


def test_stores_have_much_to_do(results: list[RunResult]) -> None:
    kinds = Counter(event.kind for each in results for event in each.events)
    for kind in ("log.roll", "store.checkpoint", "store.open"):
        assert kinds[kind] > 5 * len(results)


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_disks_fail_and_roles_change(many_results: list[RunResult]) -> None:
    met = Counter(what for each in many_results for what in each.observed)
    assert met.keys() >= {"disk_full", "disk_stuck", "disk_error", "sync_failed", "power_loss", "unsynced_lost", "kill"}
    assert met.keys() >= {"promotion", "step_down", "log_cleaned", "restart"}


def test_many_crashes_come_twice_and_errors_are_where_they_tell() -> None:
    crashes, twice, waited = 0, 0, set[str]()
    for seed in range(200):
        faults = STORE_WORK.case(seed).schedule.faults
        for fault, following in zip(faults, [*faults[1:], None], strict=True):
            if isinstance(fault, DiskError):
                assert (fault.operation, fault.path) in ERRORS
            if fault.on is not None and len(fault.nodes) == 1:
                waited.add(fault.on.kind)
            if isinstance(fault, Kill | PowerLoss):
                crashes += 1
                is_again = isinstance(following, Kill | PowerLoss) and (following.nodes, following.on) == (
                    fault.nodes,
                    fault.on,
                )
                twice += is_again and following is not None and following.at_s > fault.at_s + fault.down_s
    assert crashes > 400
    assert twice > 0.25 * crashes  # a half of the first ones
    assert waited >= set(EVENTS)


@pytest.mark.parametrize("seeds", OTHER_SEEDS)
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path, seeds: range) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed), STORE_WORK) for seed in seeds]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
