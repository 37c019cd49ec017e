"""The scenario `exchanges`: roles are exchanged all the time, by mistaken commands too, and no promise is broken."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.exchanges import DISK_ERRORS, EVENTS, EXCHANGES
from rmq_actors.testing.operation import MISTAKES, Operation
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.tracing.events.broker import BrokerExchange
from rmq_actors.tracing.events.run import OperatorCommand, OperatorRole
from sim_net import DiskError
from tests.simulation.disk_operations import NotedRuns


@pytest.fixture(scope="module")
def noted() -> NotedRuns:
    return NotedRuns.of(EXCHANGES, range(8))


@pytest.fixture(scope="module")
def results(noted: NotedRuns) -> list[RunResult]:
    return noted.results


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(EXCHANGES.case(seed), EXCHANGES) for seed in range(40)]


def test_every_run_passes(noted: NotedRuns) -> None:
    assert noted.failed == []


def test_there_are_the_operations_that_fail_or_are_waited_for(noted: NotedRuns) -> None:
    assert noted.unmet == set()


def test_roles_are_exchanged_several_times_in_a_run(results: list[RunResult]) -> None:
    ended = Counter(
        event.effect
        for each in results
        for event in each.events
        if isinstance(event, BrokerExchange) and event.status == "ended"
    )
    assert ended["exchanged"] > 2 * len(results)


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_commands_are_done_refused_and_fail(many_results: list[RunResult]) -> None:
    events = [event for each in many_results for event in each.events]
    roles = {event.status for event in events if isinstance(event, OperatorRole)}
    assert roles >= {"asked", "done", "refused", "unwritten"}
    done = {event.status for event in events if isinstance(event, OperatorCommand) and event.detail is None}
    assert done >= {"exchange", "exchange_by_hand", "set_role_and_exchange"}


def test_all_that_there_is_is_drawn() -> None:
    faults = [fault for seed in range(200) for fault in EXCHANGES.case(seed).schedule.faults]
    assert {fault.what for fault in faults if isinstance(fault, Operation)} >= {*MISTAKES}
    errors = [fault for fault in faults if isinstance(fault, DiskError)]
    assert {(fault.operation, fault.path) for fault in errors} == {*DISK_ERRORS}
    waited = {fault.on.kind for fault in faults if fault.on is not None and len(fault.nodes) == 1}
    assert waited >= {*EVENTS}
