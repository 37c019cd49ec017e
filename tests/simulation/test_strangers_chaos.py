"""The scenario `strangers`: requests that must be refused, odd bytes and odd messages, while masters are lost."""

from __future__ import annotations

from collections import Counter

import pytest

from rmq_actors.testing.scenarios import STRANGERS, RunResult, run_case, scenario_of
from rmq_actors.testing.strange_rules import RULES
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientStranger, ClientTopicRead, OperatorPromote
from rmq_actors.wire.response_code import ResponseCode

SEEDS = range(30)


def run(seed: int) -> RunResult:
    return run_case(STRANGERS.case(seed), STRANGERS)


def test_what_strangers_ask_is_answered_as_is_right_whatever_fails() -> None:
    results = [run(seed) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert all(scenario_of(each.case) == STRANGERS for each in results)
    answers = [
        event
        for each in results
        for event in of_kind(each.events, ClientStranger)
        if event.status in ResponseCode.__members__
    ]
    of_masters = Counter(event.operation for event in answers if event.role == "MASTER")
    assert {kind for kind in RULES if not of_masters[kind]} == set()
    assert len({event.operation for event in answers if event.role == "SLAVE"}) > len(RULES) // 2
    taken = Counter(event.operation for event in answers if event.status == "SUCCESS")
    for kind, rule in RULES.items():
        assert (taken[kind] > 0) is rule.may_be_taken, kind
    assert sum(len(of_kind(each.events, OperatorPromote)) for each in results) >= 3
    assert sum(len(of_kind(each.events, ClientTopicRead)) for each in results) >= 300


def test_what_it_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="strangers"):
        Workload(1, 0.1, strangers=1)
    with pytest.raises(ValueError, match="strangers"):
        Workload(1, 0.1, strangers=1, clients=True, topic_lives=1)
