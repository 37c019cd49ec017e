"""The scenario `restarts`: brokers die in their starts, and in those after them, and no promise is broken."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.restarts import BEFORE, IN_A_START, RESTARTS
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.tracing.events.node import NodeBoot
from sim_net import DiskError, DiskFull, Kill, PowerLoss
from tests.simulation.disk_operations import NotedRuns


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(RESTARTS, range(10))


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(RESTARTS.case(seed), RESTARTS) for seed in range(60)]


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_brokers_start_again_and_again(noted: NotedRuns) -> None:
    boots = Counter(
        (result.case.seed, event.node)
        for result in noted.results
        for event in result.events
        if isinstance(event, NodeBoot)
    )
    assert max(boots.values()) >= 4


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_disks_fail_and_brokers_crash(many_results: list[RunResult]) -> None:
    met = Counter(what for each in many_results for what in each.observed)
    assert met.keys() >= {"disk_full", "disk_error", "sync_failed", "power_loss", "unsynced_lost", "kill", "restart"}


def test_all_that_there_is_is_drawn() -> None:
    faults = [fault for seed in range(200) for fault in RESTARTS.case(seed).schedule.faults]
    errors = {(fault.operation, fault.path) for fault in faults if isinstance(fault, DiskError)}
    assert errors == {*BEFORE, *IN_A_START}
    in_starts = Counter(type(fault) for fault in faults if fault.on is not None and fault.on.kind == "node.boot")
    assert in_starts.keys() == {DiskError, DiskFull, Kill, PowerLoss}
    assert min(in_starts.values()) > 20
