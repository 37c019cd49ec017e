"""The scenario `strangers`: requests that must be refused, odd bytes and odd messages, while masters are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.processors import pull_message
from rmq_actors.broker.pull_answer import PullAnswer, Puller, pull_answer
from rmq_actors.protocols import send_rules
from rmq_actors.protocols.ha_master import SlaveReports
from rmq_actors.store.read.get_message import GetMessageResult
from rmq_actors.testing.scenarios import STRANGERS, RunResult, run_case, scenario_of
from rmq_actors.testing.strange_requests import MARK
from rmq_actors.testing.strange_rules import RULES
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientStranger, ClientTopicRead, OperatorPromote
from rmq_actors.wire import batch
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.response_code import ResponseCode

SEEDS, MANY_SEEDS = range(8), range(30)
Sabotage = Callable[[pytest.MonkeyPatch], None]


def run(seed: int) -> RunResult:
    return run_case(STRANGERS.case(seed), STRANGERS)


def test_what_strangers_ask_is_answered_as_is_right_whatever_fails() -> None:
    results = [run(seed) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert sum(len(of_kind(each.events, ClientStranger)) for each in results) >= 200


@pytest.mark.long
def test_between_many_runs_everything_is_asked_and_answered() -> None:
    results = [run(seed) for seed in MANY_SEEDS]
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


def take_system_topics(patch: pytest.MonkeyPatch) -> None:
    """Clients send to topics of the broker itself."""
    patch.setattr(send_rules, "NOT_ALLOWED_SEND_TOPICS", frozenset())


def take_puts_at_slaves(patch: pytest.MonkeyPatch) -> None:
    """A slave looks at a message that it cannot take."""
    patch.setattr(ClientRequests, "check_is_master", lambda _: None)


def take_foreign_text(patch: pytest.MonkeyPatch) -> None:
    """A batch brings properties that are not UTF-8."""
    patch.setattr(batch, "check_utf8", lambda _: None)


def lose_the_last_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    """A stranger's batch is taken, and its last message is not stored."""
    decode = batch.decode_batch

    def decode_most(body: bytes) -> Iterator[batch.BatchItem]:
        items = list(decode(body))
        yield from items[:-1] if len(items) > 1 and MARK in body else items

    patch.setattr(batch, "decode_batch", decode_most)


def mix_up_pulls(patch: pytest.MonkeyPatch) -> None:
    """Who asks for the beginning of an empty queue is told to go elsewhere, and who asks for more is told to wait."""

    def mixed_up(result: GetMessageResult, asked: int, group: SubscriptionGroupConfig, puller: Puller) -> PullAnswer:
        return pull_answer(result, int(not asked), group, puller)

    patch.setattr(pull_message, "pull_answer", mixed_up)


def believe_reports(patch: pytest.MonkeyPatch) -> None:
    """Whatever a peer reports counts."""
    patch.setattr(SlaveReports, "_check", lambda *_: None)


@pytest.mark.parametrize(
    ("sabotage", "invariant"),
    [
        (take_system_topics, "answered"),
        (take_puts_at_slaves, "answered"),
        (take_foreign_text, "answered"),
        (lose_the_last_of_a_batch, "answered"),
        (mix_up_pulls, "answered"),
        (believe_reports, "report"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_scenario_finds_each_bug(sabotage: Sabotage, invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert any(run(seed).failure.startswith(f"{invariant}:") for seed in range(12))
