"""Faults that strike as files change hands: every run passes, and each of the moments is met."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.crash_points import CRASH_POINTS, MOMENTS
from rmq_actors.testing.scenarios import RunResult, run_case
from sim_net import fault_kind

SEEDS, MANY_SEEDS = range(8), range(40)
FOUND = [
    path
    for path in sorted((Path(__file__).parent / "found_cases").glob("*.json"))
    if CaseFile.load(path).scenario == CRASH_POINTS.name
]


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(CRASH_POINTS.case(seed), CRASH_POINTS) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(CRASH_POINTS.case(seed), CRASH_POINTS) for seed in MANY_SEEDS]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_each_moment_comes(many_results: list[RunResult]) -> None:
    """Cuts of diverged logs and removed queue files are rare here."""
    kinds = {event.kind for result in many_results for event in result.events}
    assert set(MOMENTS) - kinds <= {"log.truncate", "queue.delete"}


def test_most_faults_of_nodes_wait_for_an_event_there() -> None:
    faults = [fault for seed in range(200) for fault in CRASH_POINTS.case(seed).schedule.faults]
    of_nodes = [fault for fault in faults if len(fault.nodes) == 1 and fault_kind(fault) != "Operation"]
    there = [fault for fault in of_nodes if fault.on is not None and fault.on.node == fault.nodes[0]]
    assert len(there) > 0.7 * len(of_nodes)
    assert {fault_kind(fault) for fault in there} == set(CRASH_POINTS.faults.nodes)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed), CRASH_POINTS) for seed in (case.seed, *range(6))]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
