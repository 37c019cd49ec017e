"""The scenario `failing-disks`: disks go wrong at what tells, crashes follow, and no promise is broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import DISK_ERRORS, DISK_EVENTS, FAILING_DISKS, RunResult, run_case
from sim_net import DiskError, DiskFull, DiskStuck, Kill, PowerLoss
from sim_net.disk.directory import Directory
from sim_net.disk.disk import SimDisk
from sim_net.disk.disk_rule import Operation
from sim_net.disk.page_cache import CachedFile
from sim_net.kernel.identity import current_incarnation
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules

FOUND = found_schedules(FAILING_DISKS.name)


#: What brokers did with their disks in the runs of `results`: an operation and a path.
OPERATIONS: set[tuple[str, str]] = set()


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    begin, wait_durable = SimDisk.begin, SimDisk.wait_durable

    def noted_begin(disk: SimDisk, operation: Operation, path: str) -> bool:
        note(operation, path)
        return begin(disk, operation, path)

    async def noted_wait(disk: SimDisk, operation: Operation, path: str, target: CachedFile | Directory) -> None:
        note(operation, path)
        await wait_durable(disk, operation, path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDisk, "begin", noted_begin)
        patch.setattr(SimDisk, "wait_durable", noted_wait)
        return [run_case(FAILING_DISKS.case(seed), FAILING_DISKS) for seed in range(13)]


def note(operation: str, path: str) -> None:
    if current_incarnation.get() is not None:  # a harness task meets no errors
        OPERATIONS.add((operation, path))


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_disks_fail_and_roles_change(results: list[RunResult]) -> None:
    met = Counter(what for each in results for what in each.observed)
    assert met.keys() >= {"disk_full", "disk_stuck", "power_loss", "unsynced_lost", "kill", "promotion"}
    assert met["sync_failed"] + met["disk_error"] >= 2


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(("operation", "path"), dict.fromkeys(DISK_ERRORS))
def test_there_are_operations_that_can_fail_so(operation: str, path: str) -> None:
    assert any(operation in ("", done) and path in on for done, on in OPERATIONS)


@pytest.mark.usefixtures("results")
def test_there_are_the_operations_that_faults_wait_for() -> None:
    waited_for = {kind for kind in DISK_EVENTS if kind.startswith("disk.")}
    assert waited_for <= {f"disk.{operation}" for operation, _ in OPERATIONS}


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
