"""The scenario `fences`: tables change all the time while roles are exchanged, and no promise is broken."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.fences import FENCES
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.tracing.events.broker import BrokerExchange
from rmq_actors.tracing.events.run import ClientTable
from tests.simulation.disk_operations import NotedRuns


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return NotedRuns.of(FENCES, range(6)).results


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    return [run_case(FENCES.case(seed), FENCES) for seed in range(40)]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_changes_of_each_kind_are_refused_while_roles_are_exchanged(results: list[RunResult]) -> None:
    refused, ended = Counter[str](), 0
    for event in (event for each in results for event in each.events):
        if isinstance(event, ClientTable) and event.status == "TableFenced":
            refused[event.part] += 1
        ended += isinstance(event, BrokerExchange) and event.status == "ended" and event.effect == "exchanged"
    assert min(refused["topics"], refused["subscription_groups"]) > ended > len(results)


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []
