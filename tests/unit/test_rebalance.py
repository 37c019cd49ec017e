"""Which queues a consumer gives up and takes, of the routes and members that it sees."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.allocation import AllocateMessageQueueAveragely
from rmq_actors.protocols.rebalance import (
    PausesForTopics,
    RebalancePlan,
    assigned_queues,
    by_broker_name,
    plan_rebalance,
    queues_of_other_topics,
)
from rmq_actors.wire.bodies.message_queues import MessageQueue


def queue(number: int, topic: str = "T", broker_name: str = "b") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=number)


def test_what_is_anothers_is_given_up_and_what_is_new_is_taken() -> None:
    held = {queue(0): 5.0, queue(1): 5.0}
    assert plan_rebalance("T", [queue(1), queue(2)], held, 5.0) == RebalancePlan([queue(0)], [queue(2)])


def test_nothing_changes_when_all_is_as_assigned() -> None:
    assert plan_rebalance("T", [queue(0)], {queue(0): 5.0}, 5.0).is_empty


def test_other_topics_are_left_alone() -> None:
    assert plan_rebalance("T", [], {queue(0, "U"): 5.0}, 5.0).is_empty


def test_a_queue_that_was_not_pulled_for_120_s_is_given_up_and_taken_again() -> None:
    held = {queue(0): 5.0}
    assert plan_rebalance("T", [queue(0)], held, 125.0).is_empty
    assert plan_rebalance("T", [queue(0)], held, 125.1) == RebalancePlan([queue(0)], [queue(0)])


def test_queues_of_topics_that_are_not_subscribed_any_more_are_found() -> None:
    assert queues_of_other_topics({"T"}, [queue(0), queue(0, "U")]) == [queue(0, "U")]


def test_the_order_in_which_members_and_queues_are_named_makes_no_difference() -> None:
    strategy = AllocateMessageQueueAveragely()
    one = assigned_queues(strategy, "G", "a", [queue(3), queue(0), queue(2), queue(1)], ["b", "a"])
    assert one == [queue(0), queue(1)]


def test_locks_are_asked_for_by_broker() -> None:
    assert by_broker_name([queue(0), queue(0, "T", "c"), queue(1)]) == {
        "b": [queue(0), queue(1)],
        "c": [queue(0, "T", "c")],
    }


def test_a_topic_that_is_lacked_is_looked_for_after_1_s_then_2_and_up_to_20() -> None:
    pauses, looks, now_s = PausesForTopics(), list[float](), 100.0
    for _ in range(8):
        again_s = pauses.next_look_s(["T"], now_s)
        looks.append(again_s - now_s)
        now_s = again_s
    assert looks == [1, 2, 4, 8, 16, 20, 20, 20]


def test_looks_for_other_reasons_change_no_pause() -> None:
    pauses = PausesForTopics()
    assert [pauses.next_look_s(["T"], now_s) for now_s in (0, 0.1, 0.2, 0.9, 1.0, 1.5, 2.9, 3.0)] == [
        *(1, 1, 1, 1, 3, 3, 3, 7)
    ]


def test_pauses_begin_again_for_another_topic_and_once_all_are_there() -> None:
    pauses = PausesForTopics()
    assert [pauses.next_look_s(["T"], now_s) for now_s in (0, 1, 3)] == [1, 3, 7]
    assert pauses.next_look_s(["T", "U"], 4) == 5
    assert pauses.next_look_s(["U"], 4.5) == 5
    assert pauses.next_look_s([], 5) == math.inf
    assert pauses.next_look_s(["U"], 60) == 61


numbers = st.sets(st.integers(0, 9))


@given(numbers, numbers)
def test_after_a_plan_exactly_what_is_assigned_is_held(before: set[int], assigned: set[int]) -> None:
    held = {queue(number): 0.0 for number in before}
    plan = plan_rebalance("T", [queue(number) for number in assigned], held, 1.0)
    assert (held.keys() - set(plan.remove)) | set(plan.add) == {queue(number) for number in assigned}
    assert not set(plan.remove) & set(plan.add)
