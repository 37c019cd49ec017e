"""Pulls that wait: each is given back once, when its message has come, its time is up, or its connection has ended."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.held_pulls import HeldPulls
from tests.worlds.lines_run import lines_of

QUEUES = st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2))
PULLS = st.lists(st.tuples(QUEUES, st.integers(0, 5), st.integers(0, 10)), max_size=20)


def held(pulls: list[tuple[tuple[str, int], int, int]]) -> HeldPulls[int]:
    table = HeldPulls[int](100, 10_000)
    for number, (queue, offset, deadline) in enumerate(pulls):
        assert table.hold(queue, offset, deadline, number, owner=number % 3, size_bytes=number)
    return table


@given(PULLS, st.dictionaries(QUEUES, st.integers(0, 6)), st.integers(0, 10))
def test_each_pull_is_given_back_once(
    pulls: list[tuple[tuple[str, int], int, int]], ends: dict[tuple[str, int], int], now: int
) -> None:
    table = held(pulls)
    arrived = list(table.take_arrived(lambda topic, queue_id: ends.get((topic, queue_id), 0)))
    assert sorted(arrived) == [n for n, (queue, offset, _) in enumerate(pulls) if offset < ends.get(queue, 0)]
    left = [n for n in range(len(pulls)) if n not in arrived]
    assert table.next_deadline_s() == min((pulls[n][2] for n in left), default=math.inf)
    late = list(table.take_expired(now))
    assert sorted(late) == [n for n in left if pulls[n][2] <= now]
    left = [n for n in left if n not in late]
    assert len(table) == len(left)
    assert table.size_bytes == sum(left)
    for owner in range(3):
        table.let_go(owner)
        left = [n for n in left if n % 3 != owner]
        assert len(table) == len(left)
        assert table.size_bytes == sum(left)
        assert table.next_deadline_s() == min((pulls[n][2] for n in left), default=math.inf)
    assert (len(table), table.next_deadline_s()) == (0, math.inf)
    assert (table._by_queue, table._by_owner) == ({}, {})


@given(PULLS, st.sampled_from(["T", "U"]))
def test_the_time_of_pulls_of_some_queues_may_be_over_at_once(
    pulls: list[tuple[tuple[str, int], int, int]], topic: str
) -> None:
    table = held(pulls)
    for _ in range(2):
        table.expire(lambda queue: queue[0] == topic)
    assert sorted(table.take_expired(-1)) == [n for n, (queue, _, _) in enumerate(pulls) if queue[0] == topic]
    left = [deadline for queue, _, deadline in pulls if queue[0] != topic]
    assert table.next_deadline_s() == min(left, default=math.inf)


def test_pulls_that_arrived_stay_held_until_their_turn_and_may_be_let_go_meanwhile() -> None:
    table = HeldPulls[int](100, 10_000)
    for number in range(10):
        table.hold(("T", number % 2), 0, 1.0, number, owner=number)
    arrived = table.take_arrived(lambda *_: 1)
    assert [next(arrived), next(arrived)] == [0, 2]
    assert len(table) == 8
    table.let_go(4)
    table.let_go(5)
    assert list(arrived) == [6, 8, 1, 3, 7, 9]
    assert len(table) == 0


def test_no_more_bytes_are_held_than_may_be() -> None:
    table = HeldPulls[str](100, 1000)
    assert table.hold(("T", 0), 0, 1, "a", owner="one", size_bytes=600)
    assert not table.hold(("T", 0), 0, 1, "b", owner="two", size_bytes=401)
    assert table.hold(("T", 0), 0, 1, "c", owner="two", size_bytes=400)
    table.let_go("one")
    assert table.hold(("T", 0), 0, 1, "d", owner="two", size_bytes=600)


def test_what_an_owner_that_ends_costs_does_not_depend_on_how_many_are_held() -> None:
    """Counted in lines that run, as time would tell of the machine."""

    def lines_with(others: int) -> int:
        table = HeldPulls[int](1_000_000, 10**9)
        for number in range(others):
            table.hold(("T", number), 0, 1.0, number, owner=number)
        for number in range(4):
            table.hold(("T", number), 0, 1.0, -number, owner="ends")
        return lines_of(lambda: table.let_go("ends"))

    assert lines_with(10) == lines_with(2000)


def test_no_more_are_held_than_may_be() -> None:
    table = HeldPulls[str](2, 0)
    assert table.hold(("T", 0), 0, 1, "a")
    assert table.hold(("T", 1), 0, 1, "b")
    assert not table.hold(("U", 0), 0, 1, "c")
    assert list(table.take_expired(1)) == ["a", "b"]
    assert table.hold(("U", 0), 0, 1, "c")


@given(PULLS, st.dictionaries(QUEUES, st.integers(0, 6)), st.sets(QUEUES))
def test_what_comes_to_some_queues_is_asked_of_these_alone(
    pulls: list[tuple[tuple[str, int], int, int]], ends: dict[tuple[str, int], int], grown: set[tuple[str, int]]
) -> None:
    table, asked = held(pulls), list[tuple[str, int]]()

    def end(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return ends.get((topic, queue_id), 0)

    arrived = list(table.take_arrived(end, grown))
    assert sorted(arrived) == [n for n, (queue, o, _) in enumerate(pulls) if queue in grown and o < ends.get(queue, 0)]
    assert sorted(asked) == sorted(grown & {queue for queue, _, _ in pulls})
    left = [deadline for n, (_, _, deadline) in enumerate(pulls) if n not in arrived]
    assert table.next_deadline_s() == min(left, default=math.inf)


def test_deadlines_of_pulls_that_were_taken_are_forgotten() -> None:
    table = HeldPulls[int](100_000, 0)
    for number in range(10_000):
        table.hold(("T", number % 3), 0, 1e9, number)
        assert list(table.take_arrived(lambda *_: 1, [("T", number % 3)])) == [number]
    assert len(table._deadlines) <= 1
