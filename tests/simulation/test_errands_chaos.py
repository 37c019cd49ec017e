"""The scenario `errands`: what clients do, and what becomes of it in which time, where nothing is wrong meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.broker.transactional_message_service import TransactionalMessageService
from rmq_actors.client.group_member import GroupMember
from rmq_actors.client.produce_accumulator import ProduceAccumulator
from rmq_actors.protocols.due_clock import DueClock
from rmq_actors.protocols.transaction_check import HalfMessage
from rmq_actors.testing.errands import FIRST_ERRANDS, FURTHER_ERRANDS
from rmq_actors.testing.scenarios import ERRANDS, RunResult, run_case, scenario_of
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientErrand

SEEDS, MANY_SEEDS = range(4), range(30)
Sabotage = Callable[[pytest.MonkeyPatch], None]


def run(seed: int) -> RunResult:
    return run_case(ERRANDS.case(seed), ERRANDS)


def test_errands_end_well_where_nothing_is_wrong() -> None:
    results = [run(seed) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    ended = Counter(event.status for each in results for event in of_kind(each.events, ClientErrand))
    assert ended["done"] > 20
    begun = [event.operation for event in of_kind(results[1].events, ClientErrand) if event.status == "begun"]
    first = results[1].case.parameters["errands"]
    assert isinstance(first, int)
    assert len(begun) == first * 3 // 2
    assert set(begun[:first]) <= set(FIRST_ERRANDS)
    assert set(begun[first:]) <= set(FURTHER_ERRANDS)


@pytest.mark.long
def test_between_many_runs_each_kind_is_done_and_little_given_up() -> None:
    results = [run(seed) for seed in MANY_SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert all(scenario_of(each.case) == ERRANDS for each in results)
    ended = [event for each in results for event in of_kind(each.events, ClientErrand) if event.status != "begun"]
    done = Counter(event.operation for event in ended if event.status == "done" and not event.detail)
    assert {kind for kind in (*FIRST_ERRANDS, *FURTHER_ERRANDS) if done[kind] < 5} == set()
    assert done.total() > 0.8 * len(ended)


def test_what_it_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="errands"):
        Workload(1, 0.1, errands=1)
    with pytest.raises(ValueError, match="errands"):
        Workload(1, 0.1, errands=1, clients=True, topic_lives=1)


def tell_no_held_pull(patch: pytest.MonkeyPatch) -> None:
    """Held pulls wait until their time is over."""
    patch.setattr(PullRequestHoldService, "_dispatched", lambda *_: True)


def tell_no_member(patch: pytest.MonkeyPatch) -> None:
    """A group does not hear who has gone."""
    patch.setattr(ClientHousekeepingService, "notify_consumer_ids_changed", lambda *_: None)


def ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """Half messages are never due."""
    patch.setattr(HalfMessage, "due_ms", lambda *_: 1 << 62)


def go_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """A message is due when the wall clock says so."""

    def due_at_s(clock: DueClock, _: int, due_wall_ms: int, *__: Any) -> float:
        return due_wall_ms / 1000 - (clock.begin_wall_ms / 1000 - clock.begin_s)

    patch.setattr(DueClock, "due_at_s", due_at_s)


def tell_no_origin(patch: pytest.MonkeyPatch) -> None:
    """A half message that is stored again takes the place of the oldest one with its key."""
    patch.setattr(TransactionalMessageService, "_names_origin", lambda *_: False)


def say_nothing_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A consumer whose block is over still waits for messages."""
    patch.setattr(GroupMember, "check_open", lambda _: None)


@pytest.mark.parametrize(
    ("sabotage", "invariant"),
    [
        (tell_no_held_pull, "errands"),
        (tell_no_member, "errands"),
        (ask_nobody, "errands"),
        (go_by_the_wall_clock, "delayed"),
        (tell_no_origin, "errands"),
        (say_nothing_at_the_end, "errands"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_scenario_finds_each_bug(sabotage: Sabotage, invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert any(run(seed).failure.startswith(f"{invariant}:") for seed in range(12))


def test_a_part_of_a_client_that_crashes_fails_the_run_by_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crash(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(ProduceAccumulator, "_send_together", crash)
    failures = [run(seed).failure for seed in range(5)]
    assert any("consumers" in failure and "RuntimeError" in failure for failure in failures)
