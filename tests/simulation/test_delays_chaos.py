"""The scenarios with delayed messages and retries: none comes early, none is lost, and the judge would notice."""

from __future__ import annotations

import attrs
import pytest

from rmq_actors.protocols.due_clock import DueClock
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import DELAYS, RETRIES, random_case, run_case, scenario_of
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerDeliver
from rmq_actors.wire.delayed_message import Undeliverable, message_timeup
from rmq_actors.wire.record import Message, StoredMessage
from sim_net import Schedule


@pytest.mark.parametrize("scenario", [DELAYS, RETRIES], ids=lambda each: each.name)
def test_every_run_passes(scenario: Scenario) -> None:
    results = [run_case(random_case(seed, scenario=scenario)) for seed in range(4)]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert sum(len(of_kind(each.events, BrokerDeliver)) for each in results) > 20
    assert all(scenario_of(each.case) == scenario for each in results)


def test_a_message_that_comes_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    due_at_s = DueClock.due_at_s
    monkeypatch.setattr(DueClock, "due_at_s", lambda *given: due_at_s(*given) - 0.1)
    case = attrs.evolve(random_case(0, scenario=DELAYS), schedule=Schedule(()))
    result = run_case(case, DELAYS)
    assert (result.outcome, "delivers" in result.failure) == ("invariant", True)


def test_a_message_that_comes_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the run ends, and nothing of the run has disturbed its broker."""
    due_at_s = DueClock.due_at_s
    monkeypatch.setattr(DueClock, "due_at_s", lambda *given: due_at_s(*given) + 3.5)
    case = attrs.evolve(random_case(0, scenario=DELAYS), schedule=Schedule(()))
    result = run_case(case, DELAYS)
    assert (result.outcome, "late, and nothing was wrong" in result.failure) == ("invariant", True)


def test_a_message_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def passes_over_one(stored: StoredMessage) -> Message:
        seen.append(stored.properties["KEYS"])
        if len(seen) == 3:
            raise Undeliverable("a test")
        return message_timeup(stored)

    monkeypatch.setattr("rmq_actors.broker.schedule_message_service.message_timeup", passes_over_one)
    case = attrs.evolve(random_case(0, scenario=DELAYS), schedule=Schedule(()))
    result = run_case(case, DELAYS)
    assert (result.outcome, "and delivered 0" in result.failure) == ("invariant", True)
