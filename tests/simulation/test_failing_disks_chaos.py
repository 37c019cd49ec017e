"""The scenario `failing-disks`: disks go wrong at what tells, crashes follow, and no promise is broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import DISK_ERRORS, FAILING_DISKS, RunResult, run_case
from sim_net import DiskError, DiskFull, DiskStuck, Kill, PowerLoss
from tests.simulation.disk_operations import NotedRuns
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules

FOUND = found_schedules(FAILING_DISKS.name)


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(FAILING_DISKS, range(13))


@pytest.fixture(scope="module")
def results(noted: NotedRuns) -> list[RunResult]:
    return noted.results


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_disks_fail_and_roles_change(results: list[RunResult]) -> None:
    met = Counter(what for each in results for what in each.observed)
    assert met.keys() >= {"disk_full", "disk_stuck", "power_loss", "unsynced_lost", "kill", "promotion"}
    assert met["sync_failed"] + met["disk_error"] >= 2


def test_there_are_the_operations_that_fail_or_are_waited_for(noted: NotedRuns) -> None:
    assert noted.unmet == set()


def test_errors_are_where_they_tell_and_crashes_follow() -> None:
    of_disks, followed = 0, 0
    for seed in range(200):
        faults = FAILING_DISKS.case(seed).schedule.faults
        for fault, following in zip(faults, [*faults[1:], None], strict=True):
            if isinstance(fault, DiskError):
                assert (fault.operation, fault.path) in DISK_ERRORS
            if isinstance(fault, DiskError | DiskFull | DiskStuck):
                of_disks += 1
                crashes = isinstance(following, Kill | PowerLoss) and following.node == fault.node
                followed += crashes and following is not None and following.on == fault.on
    assert of_disks > 400
    assert 0.5 < followed / of_disks < 0.75


@pytest.mark.parametrize("seeds", OTHER_SEEDS)
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path, seeds: range) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed), FAILING_DISKS) for seed in seeds]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
