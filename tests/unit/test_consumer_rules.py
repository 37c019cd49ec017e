"""Small decisions of consumers: flow control, where to begin, subscriptions, what becomes of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.consume_from import AskBroker, BeginAt, compute_pull_from_where
from rmq_actors.protocols.consume_results import (
    FOR_EVER,
    ConsumeConcurrentlyStatus,
    consumed_count,
    max_reconsume_times,
    retry_properties,
    suspend_s,
    topic_for_listener,
)
from rmq_actors.protocols.filter_api import build_subscription, takes_tags
from rmq_actors.protocols.flow_control import PullThresholds
from rmq_actors.protocols.offset_table import OffsetTable
from rmq_actors.protocols.pull_results import PullStatus, pull_status
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from rmq_actors.wire.bodies.message_queues import MessageQueue

MIB = 1024 * 1024
FIRST, LAST, TIME = (
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
)


@pytest.mark.parametrize(
    ("count", "size_bytes", "span", "orderly", "held"),
    [
        (1000, 0, 0, False, None),
        (1001, 0, 0, False, "count"),
        (0, 101 * MIB - 1, 0, False, None),  # 100 MiB and a part of one more
        (0, 101 * MIB, 0, False, "size"),
        (0, 0, 2000, False, None),
        (0, 0, 2001, False, "span"),
        (0, 0, 2001, True, None),
    ],
)
def test_flow_control(count: int, size_bytes: int, span: int, orderly: bool, held: str | None) -> None:
    assert PullThresholds().held_back(count, size_bytes, span, orderly=orderly) == held


def test_thresholds_of_the_topic_are_shared_by_its_queues() -> None:
    thresholds = PullThresholds(pull_threshold_for_topic=100, pull_threshold_size_for_topic_mib=2)
    shared = thresholds.shared_by(8)
    assert (shared.pull_threshold_for_queue, shared.pull_threshold_size_for_queue_mib) == (12, 1)
    assert thresholds.shared_by(0).pull_threshold_for_queue == 1000
    assert PullThresholds().shared_by(8) == PullThresholds()


@pytest.mark.parametrize(
    ("where", "stored", "topic", "begin"),
    [
        (FIRST, 7, "T", BeginAt(7)),
        (LAST, 0, "T", BeginAt(0)),
        (TIME, 7, "T", BeginAt(7)),
        (FIRST, -1, "T", BeginAt(0)),
        (LAST, -1, "T", AskBroker("max_offset")),
        (TIME, -1, "T", AskBroker("offset_of_time")),
        (LAST, -1, "%RETRY%G", BeginAt(0)),
        (FIRST, -1, "%RETRY%G", BeginAt(0)),
        (TIME, -1, "%RETRY%G", AskBroker("max_offset")),
        (ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET, -1, "T", AskBroker("max_offset")),  # as RocketMQ
        (FIRST, -2, "T", None),
        (LAST, -2, "T", None),
        (TIME, -2, "T", None),
    ],
)
def test_where_a_consumer_begins(
    where: ConsumeFromWhere, stored: int, topic: str, begin: BeginAt | AskBroker | None
) -> None:
    assert compute_pull_from_where(where, stored, topic) == begin


def test_a_tag_whose_hash_code_collides_is_not_taken() -> None:
    subscription = build_subscription("T", "Aa || C", None)
    assert subscription.code_set == [2112, 67]
    assert takes_tags(subscription, "Aa")
    assert takes_tags(subscription, "C")
    assert not takes_tags(subscription, "BB")  # 2112, too
    assert not takes_tags(subscription, None)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_all_tags_and_none_are_taken_by_everything(expression: str | None) -> None:
    subscription = build_subscription("T", expression, None, sub_version=7)
    assert (subscription.sub_string, subscription.sub_version) == ("*", 7)
    assert takes_tags(subscription, None)
    assert takes_tags(subscription, "any")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MSG),
        (20, PullStatus.NO_MATCHED_MSG),
        (21, PullStatus.OFFSET_ILLEGAL),
        (17, None),
        (-5, None),
    ],
)
def test_pull_codes(code: int, status: PullStatus | None) -> None:
    assert pull_status(code) is status


@pytest.mark.parametrize(
    ("status", "ack_index", "count", "consumed"),
    [
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, FOR_EVER, 3, 3),
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, 0, 3, 1),
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, -1, 3, 0),
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, -7, 3, 0),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, FOR_EVER, 3, 0),
    ],
)
def test_those_up_to_the_ack_index_are_consumed(
    status: ConsumeConcurrentlyStatus, ack_index: int, count: int, consumed: int
) -> None:
    assert consumed_count(status, ack_index, count) == consumed


def test_messages_are_consumed_again_16_times_or_with_order_for_ever() -> None:
    assert max_reconsume_times(-1, orderly=False) == 16
    assert max_reconsume_times(-1, orderly=True) == FOR_EVER
    assert max_reconsume_times(3, orderly=True) == max_reconsume_times(3, orderly=False) == 3


@pytest.mark.parametrize(("asked", "seconds"), [(-1, 1.0), (0, 0.01), (10, 0.01), (500, 0.5), (99_999, 30.0)])
def test_a_queue_stands_still_between_10_ms_and_30_s(asked: int, seconds: float) -> None:
    assert suspend_s(asked) == seconds


def test_a_listener_sees_the_topic_that_a_retry_was_sent_to() -> None:
    assert topic_for_listener("%RETRY%G", {"RETRY_TOPIC": "T"}, "G") == "T"
    assert topic_for_listener("%RETRY%G", {}, "G") == "%RETRY%G"
    assert topic_for_listener("U", {"RETRY_TOPIC": "T"}, "G") == "U"


def test_a_message_that_the_consumer_sends_back_itself_says_where_it_comes_from() -> None:
    before = {"TRAN_MSG": "true", "KEYS": "k"}
    first = retry_properties(
        before, topic="T", message_id="ID", reconsume_times=1, max_times=16, delay_reconsume_times=0
    )
    assert first == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "ID",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "1",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "3",
    }
    again = retry_properties(
        first, topic="T", message_id="ID2", reconsume_times=2, max_times=16, delay_reconsume_times=1
    )
    assert (again["ORIGIN_MESSAGE_ID"], again["RECONSUME_TIME"], again["DELAY"]) == ("ID", "2", "4")


QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)


def test_an_offset_goes_back_only_where_it_may() -> None:
    table = OffsetTable()
    table.update_offset(QUEUE, 5, increase_only=True)
    table.update_offset(QUEUE, 3, increase_only=True)
    assert table.read_offset(QUEUE) == 5
    table.update_offset(QUEUE, 3, increase_only=False)
    assert table.of_queues([QUEUE]) == {QUEUE: 3}
    assert (table.offsets("T"), table.offsets("U")) == ({QUEUE: 3}, {})
    table.remove_offset(QUEUE)
    assert table.read_offset(QUEUE) is None
    assert table.of_queues([QUEUE]) == {}


@given(st.lists(st.integers(0, 99), min_size=1))
def test_an_offset_that_only_increases_is_the_highest(offsets: list[int]) -> None:
    table = OffsetTable()
    for offset in offsets:
        table.update_offset(QUEUE, offset, increase_only=True)
    assert table.read_offset(QUEUE) == max(offsets)
