"""Which messages a broker takes and where they go, by tables alone; the texts are RocketMQ 4.9's."""

from __future__ import annotations

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.send_rules import (
    NOT_ALLOWED_SEND_TOPICS,
    PERM_INHERIT,
    Destination,
    MissingGroup,
    MissingTopic,
    Refusal,
    SendRules,
    check_topic_to_send,
    inherited_topic,
    topic_text,
)
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicFilterType
from rmq_actors.wire.headers.messages import SendMessageRequestHeader
from rmq_actors.wire.response_code import ResponseCode

DEFAULT = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
TOPIC = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2)
RETRY = TopicConfig(topic_name="%RETRY%G", read_queue_nums=1, write_queue_nums=1)
GROUP = SubscriptionGroupConfig(group_name="G", retry_max_times=3)
CLIENT = "10.0.0.9:1234"
V4_9_7, V3_4_8 = 407, 120


def header(topic: str = "T", **fields: object) -> SendMessageRequestHeader:
    plain = SendMessageRequestHeader(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return msgspec.structs.replace(plain, **fields)


def rules(*topics: TopicConfig, group: SubscriptionGroupConfig | None = None, **changes: object) -> SendRules:
    table = {topic.topic_name: topic for topic in topics}
    plain = SendRules(6, "10.0.0.1", table.get, lambda _: group, auto_create_groups=True, random_below=lambda n: n - 1)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def test_a_message_goes_to_its_queue() -> None:
    assert rules(TOPIC).destination(header(queue_id=1), V4_9_7, CLIENT) == Destination("T", 1, 0)


def test_the_broker_chooses_a_queue_that_may_be_written() -> None:
    assert rules(TOPIC).destination(header(queue_id=-1), V4_9_7, CLIENT) == Destination("T", 1, 0)
    none = msgspec.structs.replace(TOPIC, write_queue_nums=0)
    found = rules(none).destination(header(queue_id=-1), V4_9_7, CLIENT)
    assert found == Refusal(ResponseCode.SYSTEM_ERROR, "topic T has no queue to be written to")


def test_a_queue_is_legal_up_to_the_greater_of_both_numbers_as_in_rocketmq() -> None:
    assert isinstance(rules(TOPIC).destination(header(queue_id=3), V4_9_7, CLIENT), Destination)
    assert rules(TOPIC).destination(header(queue_id=4), V4_9_7, CLIENT) == Refusal(
        ResponseCode.SYSTEM_ERROR,
        "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 10.0.0.9:1234",
    )


def test_a_broker_that_may_not_be_written_refuses_ordered_topics_alone_as_rocketmq_does() -> None:
    ordered = msgspec.structs.replace(TOPIC, order=True)
    closed = rules(ordered, broker_permission=4)
    assert closed.destination(header(), V4_9_7, CLIENT) == Refusal(
        ResponseCode.NO_PERMISSION, "the broker[10.0.0.1] sending message is forbidden"
    )
    assert isinstance(rules(TOPIC, broker_permission=4).destination(header(), V4_9_7, CLIENT), Destination)


def test_a_message_of_many_tags_is_marked() -> None:
    tagged = msgspec.structs.replace(TOPIC, topic_filter_type=TopicFilterType.MULTI_TAG)
    assert rules(tagged).destination(header(sys_flag=1), V4_9_7, CLIENT) == Destination("T", 0, 3)


@pytest.mark.parametrize("topic", sorted(NOT_ALLOWED_SEND_TOPICS))
def test_no_client_sends_to_topics_of_the_broker_itself(topic: str) -> None:
    own = msgspec.structs.replace(TOPIC, topic_name=topic)
    found = rules(own).destination(header(topic), V4_9_7, CLIENT)
    assert found == Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")


@given(st.text(max_size=140))
def test_a_topic_that_is_taken_can_be_a_directory(topic: str) -> None:
    if check_topic_to_send(topic) is None:
        assert topic.isascii()
        assert 0 < len(topic) <= 127
        assert not set(topic) & {"/", ".", "\0", " "}


@pytest.mark.parametrize(("unit_mode", "topic", "flag"), [(False, "N", 0), (True, "N", 1), (True, "%RETRY%G", 2)])
def test_a_missing_topic_is_named_with_what_it_needs(unit_mode: bool, topic: str, flag: int) -> None:
    found = rules().destination(header(topic, unit_mode=unit_mode), V4_9_7, CLIENT)
    assert found == MissingTopic(topic, True, 4, flag)


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (99, 8), (-1, 0)])
def test_a_new_topic_has_what_the_default_one_has_but_its_heritability(asked: int, queues: int) -> None:
    made = inherited_topic(MissingTopic("N", True, asked, 1), DEFAULT)
    assert made == TopicConfig(
        topic_name="N", read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_sys_flag=1
    )


@pytest.mark.parametrize("default", [None, msgspec.structs.replace(DEFAULT, perm=7 & ~PERM_INHERIT)])
def test_without_heritage_only_topics_of_retries_are_made(default: TopicConfig | None) -> None:
    assert inherited_topic(MissingTopic("N", True, 4, 0), default) is None
    made = inherited_topic(MissingTopic("%RETRY%G", True, 4, 0), default)
    assert made == RETRY
    assert inherited_topic(MissingTopic("%DLQ%G", False, 1, 0), default) == msgspec.structs.replace(
        RETRY, topic_name="%DLQ%G"
    )


@pytest.mark.parametrize(
    ("times", "own_max", "version", "is_dead"),
    [
        (2, None, V4_9_7, False),
        (3, None, V4_9_7, True),
        (3, 5, V4_9_7, False),
        (5, 5, V4_9_7, True),
        (3, 5, V3_4_8, True),
    ],
)
def test_what_was_consumed_too_often_is_dead(times: int, own_max: int | None, version: int, is_dead: bool) -> None:
    dead = msgspec.structs.replace(RETRY, topic_name="%DLQ%G")
    found = rules(RETRY, dead, group=GROUP).destination(
        header("%RETRY%G", reconsume_times=times, max_reconsume_times=own_max), version, CLIENT
    )
    assert found == (Destination("%DLQ%G", 0, 0, is_dead=True) if is_dead else Destination("%RETRY%G", 0, 0))


def test_a_retry_of_an_unknown_group_has_it_made_or_is_refused() -> None:
    assert rules(RETRY).destination(header("%RETRY%G"), V4_9_7, CLIENT) == MissingGroup("G")
    refused = rules(RETRY, auto_create_groups=False).destination(header("%RETRY%G"), V4_9_7, CLIENT)
    assert isinstance(refused, Refusal)
    assert (refused.code, "subscription group not exist, G" in refused.remark) == (26, True)


def test_a_topic_is_shown_as_java_shows_it() -> None:
    assert topic_text(DEFAULT) == (
        "TopicConfig [topicName=TBW102, readQueueNums=8, writeQueueNums=8, perm=RWX, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]"
    )
