"""Pulls that wait: each is given back once, when its message has come, its time is up, or its connection has ended."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.held_pulls import HeldPulls

QUEUES = st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2))
PULLS = st.lists(st.tuples(QUEUES, st.integers(0, 5), st.integers(0, 10)), max_size=20)


def held(pulls: list[tuple[tuple[str, int], int, int]]) -> HeldPulls[int]:
    table = HeldPulls[int](100)
    for number, (queue, offset, deadline) in enumerate(pulls):
        assert table.hold(queue, offset, deadline, number)
    return table


@given(PULLS, st.dictionaries(QUEUES, st.integers(0, 6)), st.integers(0, 10))
def test_each_pull_is_given_back_once(
    pulls: list[tuple[tuple[str, int], int, int]], ends: dict[tuple[str, int], int], now: int
) -> None:
    table = held(pulls)
    arrived = table.take_arrived(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    assert sorted(arrived) == [n for n, (queue, offset, _) in enumerate(pulls) if offset < ends.get(queue, 0)]
    left = [n for n in range(len(pulls)) if n not in arrived]
    assert table.next_deadline_s() == min((pulls[n][2] for n in left), default=math.inf)
    late = table.take_expired(now)
    assert sorted(late) == [n for n in left if pulls[n][2] <= now]
    left = [n for n in left if n not in late]
    assert len(table) == len(left)
    assert sorted(table.take_if(lambda number, _: number % 2 == 0)) == [n for n in left if n % 2 == 0]
    assert sorted(table.take_if(lambda *_: True)) == [n for n in left if n % 2]
    assert (len(table), table.next_deadline_s()) == (0, math.inf)


def test_no_more_are_held_than_may_be() -> None:
    table = HeldPulls[str](2)
    assert table.hold(("T", 0), 0, 1, "a")
    assert table.hold(("T", 1), 0, 1, "b")
    assert not table.hold(("U", 0), 0, 1, "c")
    assert table.take_expired(1) == ["a", "b"]
    assert table.hold(("U", 0), 0, 1, "c")


@given(PULLS, st.dictionaries(QUEUES, st.integers(0, 6)), st.sets(QUEUES))
def test_what_comes_to_some_queues_is_asked_of_these_alone(
    pulls: list[tuple[tuple[str, int], int, int]], ends: dict[tuple[str, int], int], grown: set[tuple[str, int]]
) -> None:
    table, asked = held(pulls), list[tuple[str, int]]()

    def end(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return ends.get((topic, queue_id), 0)

    arrived = table.take_arrived(end, grown)
    assert sorted(arrived) == [n for n, (queue, o, _) in enumerate(pulls) if queue in grown and o < ends.get(queue, 0)]
    assert sorted(asked) == sorted(grown & {queue for queue, _, _ in pulls})
    left = [deadline for n, (_, _, deadline) in enumerate(pulls) if n not in arrived]
    assert table.next_deadline_s() == min(left, default=math.inf)


def test_deadlines_of_pulls_that_were_taken_are_forgotten() -> None:
    table = HeldPulls[int](100_000)
    for number in range(10_000):
        table.hold(("T", number % 3), 0, 1e9, number)
        assert table.take_arrived(lambda *_: 1, [("T", number % 3)]) == [number]
    assert len(table._deadlines) <= 1
