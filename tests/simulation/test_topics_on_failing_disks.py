"""The scenario `topics-on-failing-disks`: topics come and go while disks fail at what a deletion needs."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.scenarios import (
    ERRORS_OF_DELETIONS,
    TOPICS_ON_FAILING_DISKS,
    RunResult,
    run_case,
)
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientTopic
from sim_net import DiskError
from tests.simulation.disk_operations import NotedRuns

SEEDS, MANY_SEEDS = range(8), range(40)


def run(seed: int) -> RunResult:
    return run_case(TOPICS_ON_FAILING_DISKS.case(seed), TOPICS_ON_FAILING_DISKS)


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(TOPICS_ON_FAILING_DISKS, SEEDS)


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_topics_are_made_again_although_disks_fail(noted: NotedRuns) -> None:
    results = noted.results
    done = Counter(
        f"{event.operation} {event.status}" for each in results for event in of_kind(each.events, ClientTopic)
    )
    for operation in ("create", "send", "delete"):
        assert done[f"{operation} SUCCESS"] >= 5, done
    assert done["delete SYSTEM_ERROR"] >= 1  # a disk keeps its master from it, or a store that takes nothing more
    assert {what for each in results for what in each.observed} >= {"disk_error", "disk_full", "promotion", "kill"}


def test_there_are_the_operations_that_fail_or_are_waited_for(noted: NotedRuns) -> None:
    assert noted.unmet == set()


def test_errors_are_at_what_a_deletion_needs() -> None:
    errors = [
        (fault.operation, fault.path)
        for seed in range(100)
        for fault in TOPICS_ON_FAILING_DISKS.case(seed).schedule.faults
        if isinstance(fault, DiskError)
    ]
    assert set(errors) == set(ERRORS_OF_DELETIONS)


@pytest.mark.long
def test_many_runs_pass() -> None:
    results = [run(seed) for seed in MANY_SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
