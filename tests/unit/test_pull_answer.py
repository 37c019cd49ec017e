"""What a pull is answered, for each way that a read may end, on a master and on a slave; and subscriptions by tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.broker.pull_answer import PullAnswer, Puller, pull_answer
from rmq_actors.broker.subscription import TagFilter
from rmq_actors.protocols.filter_api import build_subscription
from rmq_actors.store.read.get_message import GetMessageResult, GetMessageStatus
from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.response_code import ResponseCode

GROUP = SubscriptionGroupConfig(group_name="G", broker_id=5, which_broker_when_consume_slowly=2)
MASTER = Puller(is_slave=False, slave_read_enable=False, corrects_offsets=True)
READS_FROM_SLAVES = Puller(is_slave=False, slave_read_enable=True, corrects_offsets=True)
SLAVE = Puller(is_slave=True, slave_read_enable=False, corrects_offsets=False)
FOUND, RETRY = ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY
NOT_FOUND, MOVED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED


def result(status: GetMessageStatus, *, far: bool = False) -> GetMessageResult:
    return GetMessageResult(status, 1, 0, 9, suggest_pulling_from_slave=far)


@pytest.mark.parametrize(
    ("status", "offset", "code", "on_a_slave"),
    [
        ("FOUND", 3, FOUND, FOUND),
        ("NO_MATCHED_MESSAGE", 3, RETRY, RETRY),
        ("MESSAGE_WAS_REMOVING", 3, RETRY, RETRY),
        ("OFFSET_FOUND_NULL", 3, NOT_FOUND, NOT_FOUND),
        ("OFFSET_OVERFLOW_ONE", 3, NOT_FOUND, NOT_FOUND),
        ("OFFSET_OVERFLOW_BADLY", 3, MOVED, RETRY),
        ("OFFSET_TOO_SMALL", 3, MOVED, RETRY),
        ("NO_MATCHED_LOGIC_QUEUE", 0, NOT_FOUND, NOT_FOUND),
        ("NO_MATCHED_LOGIC_QUEUE", 3, MOVED, RETRY),
        ("NO_MESSAGE_IN_QUEUE", 0, NOT_FOUND, NOT_FOUND),
        ("NO_MESSAGE_IN_QUEUE", 3, MOVED, RETRY),
    ],
)
def test_the_code_by_how_the_read_ended(status: str, offset: int, code: ResponseCode, on_a_slave: ResponseCode) -> None:
    read = result(GetMessageStatus(status))
    assert pull_answer(read, offset, GROUP, MASTER).code is code
    assert pull_answer(read, offset, GROUP, SLAVE).code is on_a_slave


def test_every_status_has_an_answer() -> None:
    assert all(pull_answer(result(status), 1, GROUP, MASTER).code in set(ResponseCode) for status in GetMessageStatus)


def test_a_consumer_that_lags_is_sent_to_a_slave_and_back_if_slaves_are_read() -> None:
    found = GetMessageStatus.FOUND
    assert pull_answer(result(found, far=True), 1, GROUP, READS_FROM_SLAVES) == PullAnswer(FOUND, 2)
    assert pull_answer(result(found), 1, GROUP, READS_FROM_SLAVES) == PullAnswer(FOUND, 5)
    assert pull_answer(result(found, far=True), 1, GROUP, MASTER) == PullAnswer(FOUND, 0)


def test_a_slave_serves_whatever_is_set_and_says_ask_the_master() -> None:
    assert pull_answer(result(GetMessageStatus.FOUND), 1, GROUP, SLAVE) == PullAnswer(FOUND, 0)
    # It may only be behind: the offset stays, and the group's broker is asked.
    assert pull_answer(result(GetMessageStatus.OFFSET_TOO_SMALL), 1, GROUP, SLAVE) == PullAnswer(RETRY, 5)


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything_is_wanted(text: str | None) -> None:
    built = build_subscription("T", text, None)
    assert (built.sub_string, TagFilter.of(built).code_set) == ("*", None)
    assert TagFilter.of(built).is_matched_by_consume_queue(5, None)


@pytest.mark.parametrize(("text", "tags"), [("A", ["A"]), ("A||B", ["A", "B"]), (" A || B ||", ["A", "B"]), (" ", [])])
def test_tags_are_split_as_java_splits_them(text: str, tags: list[str]) -> None:
    built = build_subscription("T", text, "TAG")
    assert (built.tags_set, built.code_set) == (tags, [java_hash_code(tag) for tag in tags])


@pytest.mark.parametrize(("text", "kind"), [("||", "TAG"), ("", "SQL92"), (None, "SQL92")])
def test_what_is_no_expression_is_refused(text: str | None, kind: str) -> None:
    with pytest.raises(ValueError, match=r"split error|can't be null"):
        build_subscription("T", text, kind)


@given(st.text(min_size=1, max_size=5).filter(lambda tag: tag == tag.strip() and "|" not in tag and tag != "*"))
def test_a_code_in_64_bits_is_that_of_32(tag: str) -> None:
    wants = TagFilter.of(SubscriptionData(topic="T", sub_string=tag, code_set=[java_hash_code(tag)]))
    code = java_hash_code(tag)
    assert wants.is_matched_by_consume_queue(code, None)
    assert wants.is_matched_by_consume_queue(code & 0xFFFFFFFF, None)
    assert not wants.is_matched_by_consume_queue(code ^ 1, None)
    assert wants.is_matched_by_consume_queue(None, None)
