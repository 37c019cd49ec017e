"""The scenario `races`: commands meet role changes and each other, and no promise is broken."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.operation import RACES as OPERATIONS
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.races import DISK_ERRORS, RACES
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.tracing.events.run import OperatorCommand
from sim_net import DiskError
from tests.simulation.disk_operations import NotedRuns


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(RACES, range(12))


@pytest.fixture(scope="module")
def results(noted: NotedRuns) -> list[RunResult]:
    return noted.results


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_there_are_the_operations_that_fail_or_are_waited_for(noted: NotedRuns) -> None:
    assert noted.unmet == set()


def test_roles_change_and_slaves_halt(results: list[RunResult]) -> None:
    met = Counter(what for each in results for what in each.observed)
    assert met.keys() >= {"promotion", "step_down", "halt", "kill", "disk_slow"}


@pytest.mark.long
def test_each_command_is_done_now_and_then() -> None:
    """Not only refused: a command that never succeeds races with nothing."""
    results = [run_case(RACES.case(seed), RACES) for seed in range(60)]
    events = [event for each in results for event in each.events if isinstance(event, OperatorCommand)]
    assert {event.status for event in events if event.detail is None} >= {*OPERATIONS}


def test_most_commands_wait_for_what_brokers_do() -> None:
    faults = [fault for seed in range(200) for fault in RACES.case(seed).schedule.faults]
    commands = [fault for fault in faults if isinstance(fault, Operation)]
    waiting = [fault for fault in commands if fault.on is not None]
    assert 0.6 < len(waiting) / len(commands) < 0.8
    assert {fault.on.kind for fault in waiting if fault.on is not None} == {*RACES.faults.operation_events}
    assert {fault.what for fault in commands} == {*RACES.faults.operations} >= {*OPERATIONS}


def test_disks_fail_at_small_files() -> None:
    faults = [fault for seed in range(200) for fault in RACES.case(seed).schedule.faults]
    errors = [fault for fault in faults if isinstance(fault, DiskError)]
    assert {(fault.operation, fault.path) for fault in errors} == {*DISK_ERRORS}
