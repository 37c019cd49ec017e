"""Which queue a message goes to: section 16 of the facts on producers, rule by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.queue_selection import (
    LATENCY_MAX_MS,
    NOT_AVAILABLE_DURATION_MS,
    LatencyFaultTolerance,
    MQFaultStrategy,
    SendWhichQueue,
    not_available_duration_ms,
    queue_position,
    select_message_queue_by_hash,
    select_one_message_queue,
)
from rmq_actors.protocols.topic_publish_info import TopicPublishInfo
from rmq_actors.wire.bodies.message_queues import MessageQueue

INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def info_of(**nums: int) -> TopicPublishInfo:
    queues = [
        MessageQueue(topic="T", broker_name=name, queue_id=number)
        for name, many in nums.items()
        for number in range(many)
    ]
    return TopicPublishInfo("T", tuple(queues), nums)


def strategy(*, enable: bool = True) -> MQFaultStrategy:
    return MQFaultStrategy(enable, LatencyFaultTolerance(SendWhichQueue(-1 & 0x7FFFFFFF)))


def test_the_counter_goes_up_by_one_with_each_send_and_the_queue_is_its_absolute_value_modulo_the_queues() -> None:
    info, counter = info_of(a=2, b=2), SendWhichQueue(0)
    chosen = [select_one_message_queue(info, counter) for _ in range(8)]
    assert chosen == [*info.queues[1:], info.queues[0]] * 2


@pytest.mark.parametrize(
    ("counter", "size", "position"),
    [
        (0, 4, 0),
        (5, 4, 1),
        (-1, 4, 1),
        (-6, 4, 2),
        (INT_MAX, 4, 3),
        (INT_MIN + 1, 4, 3),
        (INT_MIN, 4, 0),
        (INT_MIN, 7, 0),
    ],
)
def test_a_negative_counter_that_has_no_absolute_value_means_queue_0(counter: int, size: int, position: int) -> None:
    assert queue_position(counter, size) == position


def test_a_counter_beyond_32_bits_wraps_as_java_does() -> None:
    assert queue_position(2**31, 7) == 0
    assert queue_position(2**31 + 1, 7) == queue_position(INT_MIN + 1, 7)
    counter = SendWhichQueue(INT_MAX)
    assert [counter.increment_and_get(), counter.increment_and_get()] == [0, 1]


def test_on_a_retry_queues_of_the_broker_that_failed_last_are_skipped() -> None:
    info, counter = info_of(a=4, b=1), SendWhichQueue(0)
    assert {select_one_message_queue(info, counter, "a").broker_name for _ in range(10)} == {"b"}


def test_unless_all_queues_are_of_that_broker() -> None:
    info, counter = info_of(a=3), SendWhichQueue(0)
    chosen = {select_one_message_queue(info, counter, "a").queue_id for _ in range(10)}
    assert chosen == {0, 1, 2}


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1),
    st.integers(0, INT_MAX),
    st.sampled_from("abcd"),
)
def test_a_retry_takes_the_failed_broker_only_if_there_is_no_other(nums: dict[str, int], begin: int, last: str) -> None:
    chosen = select_one_message_queue(info_of(**nums), SendWhichQueue(begin), last)
    assert chosen in info_of(**nums).queues
    assert (chosen.broker_name == last) == (set(nums) == {last})


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1), st.integers(0, INT_MAX - 1_000))
def test_every_queue_gets_as_many_messages(nums: dict[str, int], begin: int) -> None:
    info, counter = info_of(**nums), SendWhichQueue(begin)
    chosen = [select_one_message_queue(info, counter) for _ in range(3 * len(info.queues))]
    assert {chosen.count(queue) for queue in info.queues} == {3}


def test_an_ordering_key_has_the_queue_that_it_has_for_a_java_producer() -> None:
    queues = info_of(a=4).queues
    # Java's String.hashCode of "a" is 97, of "order-1" -1207111310.
    assert select_message_queue_by_hash(queues, None, "a").queue_id == 97 % 4
    assert select_message_queue_by_hash(queues, None, "order-1").queue_id == 1207111310 % 4
    # Its hash code is the smallest number, which has no absolute value.
    assert select_message_queue_by_hash(queues, None, "polygenelubricants").queue_id == 0


# --- latency ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency_ms", "duration_ms"),
    [(0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (1_000, 60_000), (2_999, 120_000), (15_000, 600_000)],
)
def test_how_long_a_slow_broker_is_avoided(latency_ms: int, duration_ms: int) -> None:
    assert not_available_duration_ms(latency_ms) == duration_ms
    assert len(LATENCY_MAX_MS) == len(NOT_AVAILABLE_DURATION_MS)


def test_latency_fault_tolerance_is_off_by_default_and_learns_nothing_then() -> None:
    chooser = strategy(enable=False)
    chooser.update_fault_item("a", 20_000, 0, isolation=True)
    assert {chooser.select_one_message_queue(info_of(a=1, b=1), SendWhichQueue(0), "b", 1).broker_name} == {"a"}


def test_a_slow_broker_is_avoided_until_its_time_is_over() -> None:
    chooser, counter, info = strategy(), SendWhichQueue(0), info_of(a=2, b=2)
    chooser.update_fault_item("a", 600, 1_000, isolation=False)
    assert {chooser.select_one_message_queue(info, counter, None, 30_999).broker_name for _ in range(8)} == {"b"}
    assert {chooser.select_one_message_queue(info, counter, None, 31_000).broker_name for _ in range(8)} == {"a", "b"}


def test_a_broker_that_failed_counts_as_one_that_took_30_s() -> None:
    chooser, counter, info = strategy(), SendWhichQueue(0), info_of(a=1, b=1)
    chooser.update_fault_item("a", 1, 0, isolation=True)
    assert {chooser.select_one_message_queue(info, counter, None, 599_999).broker_name for _ in range(4)} == {"b"}


def test_with_latency_fault_tolerance_the_last_broker_counts_no_more_than_another() -> None:
    chooser, info = strategy(), info_of(a=1, b=1)
    assert chooser.select_one_message_queue(info, SendWhichQueue(1), "a", 0).broker_name == "a"


def test_if_all_are_avoided_one_of_the_better_half_is_taken() -> None:
    chooser, counter, info = strategy(), SendWhichQueue(0), info_of(a=1, b=3, c=1)
    for name, latency_ms in (("a", 5_000), ("b", 3_000), ("c", 4_000)):
        chooser.update_fault_item(name, latency_ms, 0, isolation=False)
    chosen = [chooser.select_one_message_queue(info, counter, None, 1) for _ in range(6)]
    assert {each.broker_name for each in chosen} == {"b"}
    assert {each.queue_id for each in chosen} == {0, 1, 2}


def test_a_broker_that_no_route_names_any_more_is_forgotten() -> None:
    chooser, counter, info = strategy(), SendWhichQueue(0), info_of(b=1)
    chooser.update_fault_item("gone", 600, 0, isolation=False)
    chooser.update_fault_item("b", 5_000, 0, isolation=False)
    assert chooser.select_one_message_queue(info, counter, None, 1) == info.queues[0]
    assert chooser.select_one_message_queue(info, counter, None, 1) == info.queues[0]
