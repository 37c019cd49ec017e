"""The scenario `topics`: topics come and go while brokers die and roles change, and nothing of a life comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.lifecycle.topic_deletion import TopicDeletion
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.testing.invariants.topic_lives import TopicLives
from rmq_actors.testing.scenarios import TOPICS, RunResult, run_case, scenario_of
from rmq_actors.testing.view import ClusterView
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientTopic, ClientTopicOffset, ClientTopicRead, OperatorPromote

SEEDS = range(8)


def run(seed: int) -> RunResult:
    return run_case(TOPICS.case(seed), TOPICS)


def test_topics_come_and_go_whatever_fails() -> None:
    results = [run(seed) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert all(scenario_of(each.case) == TOPICS for each in results)
    done = Counter(
        f"{event.operation} {event.status}" for each in results for event in of_kind(each.events, ClientTopic)
    )
    for operation in ("create", "send", "delete", "delete_group"):
        assert done[f"{operation} SUCCESS"] >= 5, done
    assert sum(count for what, count in done.items() if "Error" in what) >= 2  # its broker dies, or the network does
    assert sum(len(of_kind(each.events, OperatorPromote)) for each in results) >= 3
    assert sum(len(of_kind(each.events, ClientTopicRead)) for each in results) >= 100
    asked = [event for each in results for event in of_kind(each.events, ClientTopicOffset)]
    assert {event.operation for event in asked} == {"commit", "query"}


def test_what_it_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="topic_lives"):
        Workload(1, 0.1, topic_lives=1)
    with pytest.raises(ValueError, match="topic_lives"):
        Workload(1, 0.1, topic_lives=1, clients=True, transactions=True)


def keep_queues(patch: pytest.MonkeyPatch) -> None:
    """A slave takes the points over, and keeps the queues that it has."""
    patch.setattr(TopicDeletion, "_remove_what_differs", lambda *_: None)


def forget_points(patch: pytest.MonkeyPatch) -> None:
    """A recovery brings the old queues back."""
    patch.setattr(DeletedTopics, "begin_of", lambda *_: 0)


def keep_offsets(patch: pytest.MonkeyPatch) -> None:
    """Old offsets revive with the topic."""
    patch.setattr(ConsumerOffsetManager, "remove_topics", lambda *_: None)


def count_on(patch: pytest.MonkeyPatch) -> None:
    """The next life's numbers go on where the last one's ended."""
    patch.setattr(CommitLog, "forget_queue_offsets", lambda *_: None)


@pytest.mark.parametrize(
    ("sabotage", "seeds"),
    [(keep_queues, range(4)), (forget_points, range(1, 4)), (keep_offsets, range(8)), (count_on, range(4))],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_scenario_finds_each_bug(
    sabotage: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert any(run(seed).outcome == "invariant" for seed in seeds)


def test_masters_are_lost_that_had_told_of_a_deletion_and_such_that_had_not(monkeypatch: pytest.MonkeyPatch) -> None:
    knew: list[bool] = []
    promote = TopicLives._promote

    def note(judge: TopicLives, event: OperatorPromote, view: ClusterView) -> None:
        if judge._asked:
            knew.append(bool(judge._known[event.node]))
        promote(judge, event, view)

    monkeypatch.setattr(TopicLives, "_promote", note)
    for seed in range(4, 13):
        run(seed)
    assert set(knew) == {True, False}
