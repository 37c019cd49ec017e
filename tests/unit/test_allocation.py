"""Strategies that share queues: by hand here; beside Java's classes in tests/interop/test_own_consumer.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.allocation import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    sorted_ids,
    sorted_queues,
)
from rmq_actors.wire.bodies.message_queues import MessageQueue

ALL = (AllocateMessageQueueAveragely(), AllocateMessageQueueAveragelyByCircle(), AllocateMessageQueueConsistentHash())


def queues(count: int, broker_name: str = "b") -> list[MessageQueue]:
    return [MessageQueue(topic="T", broker_name=broker_name, queue_id=number) for number in range(count)]


def shares(strategy: AllocateMessageQueueStrategy, count: int, members: str) -> list[list[int]]:
    return [[each.queue_id for each in strategy.allocate("G", cid, queues(count), list(members))] for cid in members]


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, "ab", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (5, "ab", [[0, 1, 2], [3, 4]]),
        (7, "abc", [[0, 1, 2], [3, 4], [5, 6]]),
        (2, "abc", [[0], [1], []]),
        (3, "abc", [[0], [1], [2]]),
    ],
)
def test_averagely(count: int, members: str, expected: list[list[int]]) -> None:
    assert shares(AllocateMessageQueueAveragely(), count, members) == expected


@pytest.mark.parametrize(("count", "members", "expected"), [(5, "ab", [[0, 2, 4], [1, 3]]), (2, "abc", [[0], [1], []])])
def test_averagely_by_circle(count: int, members: str, expected: list[list[int]]) -> None:
    assert shares(AllocateMessageQueueAveragelyByCircle(), count, members) == expected


def test_by_config_whoever_is_there() -> None:
    strategy = AllocateMessageQueueByConfig(tuple(queues(2)))
    assert strategy.allocate("G", "a", queues(9), ["b"]) == queues(2)


def test_by_machine_room_takes_only_brokers_of_the_rooms() -> None:
    near, far, plain = queues(5, "r1@b"), queues(3, "r2@b"), queues(2, "b")
    strategy = AllocateMessageQueueByMachineRoom(frozenset({"r1"}))
    shared = [strategy.allocate("G", cid, near + far + plain, ["a", "b"]) for cid in ("a", "b")]
    assert [[each.queue_id for each in share] for share in shared] == [[0, 1, 4], [2, 3]]
    assert all(each.broker_name == "r1@b" for share in shared for each in share)


def test_consistent_hash_without_places_on_the_ring_gives_nothing() -> None:
    assert AllocateMessageQueueConsistentHash(0).allocate("G", "a", queues(2), ["a"]) == []


@pytest.mark.parametrize("strategy", ALL)
def test_one_that_is_no_member_gets_nothing(strategy: AllocateMessageQueueStrategy) -> None:
    assert strategy.allocate("G", "z", queues(4), ["a", "b"]) == []


@pytest.mark.parametrize("strategy", ALL)
def test_nothing_to_share_is_an_error_that_says_what_is_empty(strategy: AllocateMessageQueueStrategy) -> None:
    with pytest.raises(ValueError, match="mq_all is empty"):
        strategy.allocate("G", "a", [], ["a"])
    with pytest.raises(ValueError, match="cid_all is empty"):
        strategy.allocate("G", "a", queues(1), [])
    with pytest.raises(ValueError, match="current_cid is empty"):
        strategy.allocate("G", "", queues(1), ["a"])


@given(st.integers(1, 40), st.sets(st.text("abc@#1", min_size=1), min_size=1, max_size=9), st.sampled_from(ALL))
def test_every_queue_has_exactly_one_consumer(
    count: int, members: set[str], strategy: AllocateMessageQueueStrategy
) -> None:
    cids = sorted_ids(members)
    given_out = [each for cid in cids for each in strategy.allocate("G", cid, queues(count), cids)]
    assert sorted_queues(given_out) == queues(count)


@given(st.integers(1, 40), st.integers(1, 9))
def test_shares_differ_by_one_at_most(count: int, members: int) -> None:
    cids = [str(number) for number in range(members)]
    for strategy in ALL[:2]:
        sizes = [len(strategy.allocate("G", cid, queues(count), cids)) for cid in cids]
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 40), st.sets(st.text("abcd", min_size=1), min_size=2, max_size=9))
def test_consistent_hash_moves_only_the_queues_of_the_one_that_leaves(count: int, members: set[str]) -> None:
    strategy, cids = AllocateMessageQueueConsistentHash(), sorted_ids(members)
    rest = cids[1:]
    for cid in rest:
        before = strategy.allocate("G", cid, queues(count), cids)
        assert set(before) <= set(strategy.allocate("G", cid, queues(count), rest))


def test_queues_and_ids_are_sorted_as_java_sorts_them() -> None:
    beyond, private = "\U0001f600", "\ue000"  # as UTF-16 the first is lower
    assert sorted_ids([private, beyond, "a"]) == ["a", beyond, private]
    unsorted = [MessageQueue(topic="T", broker_name=name, queue_id=number) for number in (10, 9) for name in ("b", "a")]
    assert [(each.broker_name, each.queue_id) for each in sorted_queues(unsorted)] == [
        ("a", 9),
        ("a", 10),
        ("b", 9),
        ("b", 10),
    ]
