"""Where a message goes that could not be consumed."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest

from rmq_actors.protocols.send_back_rules import NoRetries, Retries, SendBackRules
from rmq_actors.protocols.send_rules import MissingGroup, MissingTopic, Refusal
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers.messages import ConsumerSendMsgBackRequestHeader
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, Message, StoredMessage, decode_record, encode_message
from rmq_actors.wire.response_code import ResponseCode

VERSION = 407
ASKED = ConsumerSendMsgBackRequestHeader(offset=0, group="CG", delay_level=0)
ID = "7F00000100002A9F0000000000000000"


def topic(name: str, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, perm=perm)


def rules(*topics: TopicConfig, group: SubscriptionGroupConfig | None = None, **fields: Any) -> SendBackRules:
    groups = {} if group is None else {group.group_name: group}
    settings: dict[str, Any] = {
        "broker_permission": 6,
        "broker_ip": "10.0.0.1",
        "find_topic": {each.topic_name: each for each in topics}.get,
        "find_group": groups.get,
        "makes_group": lambda _: True,
        "random_below": lambda count: count - 1,
    }
    return SendBackRules(**{**settings, **fields})


def group(**fields: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(group_name="CG", **fields)


def stored(reconsume_times: int = 0, **properties: str) -> StoredMessage:
    message = Message("T", b"body", 2, properties, 7, 0, 5, "10.0.0.9:1", reconsume_times=reconsume_times)
    made = encode_message(message)
    made.place(queue_offset=4, physical_offset=0, store_timestamp_ms=6)
    return decode_record(memoryview(made.data), 0, 0)


def sent_back(
    asked: ConsumerSendMsgBackRequestHeader = ASKED,
    of: StoredMessage | None = None,
    version: int = VERSION,
    dlq: TopicConfig | None = None,
    **fields: Any,
) -> Message | MissingTopic:
    present = [topic("%RETRY%CG"), *([] if dlq is None else [dlq])]
    own = rules(*present, group=group(**fields))
    retries = own.retries(asked)
    assert isinstance(retries, Retries), retries
    return own.message(asked, version, retries, of or stored())


def test_the_first_retry_has_level_3_and_each_later_one_the_next() -> None:
    for times in range(5):
        made = sent_back(of=stored(times))
        assert isinstance(made, Message)
        assert (made.delay_time_level, made.reconsume_times, made.properties["DELAY"]) == (
            3 + times,
            times + 1,
            str(3 + times),
        )


def test_a_level_that_the_consumer_asks_for_is_taken() -> None:
    made = sent_back(msgspec.structs.replace(ASKED, delay_level=1), stored(4))
    assert isinstance(made, Message)
    assert made.delay_time_level == 1


def test_a_retry_is_the_message_with_its_first_topic_and_its_first_id() -> None:
    made = sent_back(of=stored(KEYS="k", WAIT="true"), retry_queue_nums=3)
    assert made == Message(
        topic="%RETRY%CG",
        body=b"body",
        queue_id=2,
        properties={"RETRY_TOPIC": "T", "KEYS": "k", "WAIT": "false", "DELAY": "3", "ORIGIN_MESSAGE_ID": ID},
        flag=7,
        born_timestamp_ms=5,
        born_host="10.0.0.9:1",
        store_host="127.0.0.1:10911",
        reconsume_times=1,
        delay_time_level=3,
    )
    again = sent_back(of=stored(1, RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="first"))
    assert isinstance(again, Message)
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == ("First", "first")
    blank = sent_back(of=stored(1, ORIGIN_MESSAGE_ID=" "))
    assert isinstance(blank, Message)
    assert blank.properties["ORIGIN_MESSAGE_ID"] == ID


@pytest.mark.parametrize(
    ("times", "level", "header_max", "group_max", "version", "is_dead"),
    [
        (15, 0, None, 16, VERSION, False),
        (16, 0, None, 16, VERSION, True),
        (0, -1, None, 16, VERSION, True),
        (2, 0, 2, 16, VERSION, True),
        (1, 0, 2, 0, VERSION, False),
        (2, 0, 2, 16, 120, False),  # a client before 3.4.9 does not ask
        (0, 0, 0, 16, VERSION, True),
        (16, 5, None, 16, VERSION, True),
    ],
)
def test_what_failed_too_often_or_is_given_up_is_dead(
    times: int, level: int, header_max: int | None, group_max: int, version: int, is_dead: bool
) -> None:
    asked = msgspec.structs.replace(ASKED, delay_level=level, max_reconsume_times=header_max)
    made = sent_back(asked, stored(times), version, topic("%DLQ%CG"), retry_max_times=group_max)
    assert isinstance(made, Message)
    if is_dead:
        assert (made.topic, made.queue_id, made.delay_time_level) == ("%DLQ%CG", 0, 0)
        assert (made.properties["DELAY"], made.reconsume_times) == ("0", times + 1)
    else:
        assert made.topic == "%RETRY%CG"


def test_the_topic_of_dead_letters_is_made() -> None:
    made = sent_back(msgspec.structs.replace(ASKED, delay_level=-1))
    assert made == MissingTopic("%DLQ%CG", False, 1, 0)


def test_the_group_and_its_topic_of_retries_are_made() -> None:
    assert rules().retries(ASKED) == MissingGroup("CG")
    own = rules(group=group(retry_queue_nums=2))
    assert own.retries(ASKED) == MissingTopic("%RETRY%CG", False, 2, 0)
    assert own.retries(msgspec.structs.replace(ASKED, unit_mode=True)) == MissingTopic("%RETRY%CG", False, 2, 2)


def test_a_group_without_queues_for_retries_drops_the_message() -> None:
    assert rules(group=group(retry_queue_nums=0)).retries(ASKED) == NoRetries()


@pytest.mark.parametrize(
    ("own", "code", "remark"),
    [
        (
            rules(makes_group=lambda _: False),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group not exist, CG ",
        ),
        (
            rules(group=group(retry_queue_nums=0), broker_permission=4),
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] sending message is forbidden",
        ),
        (
            rules(topic("%RETRY%CG", perm=4), group=group()),
            ResponseCode.NO_PERMISSION,
            "the topic[%RETRY%CG] sending message is forbidden",
        ),
    ],
)
def test_refusals_have_rocketmqs_texts(own: SendBackRules, code: int, remark: str) -> None:
    found = own.retries(ASKED)
    assert isinstance(found, Refusal)
    assert found.code == code
    assert found.remark.startswith(remark)


def test_a_committed_message_that_is_sent_back_is_not_the_end_of_another_transaction() -> None:
    made = sent_back(of=attrs.evolve(stored(), sys_flag=TRANSACTION_COMMIT_TYPE | 1))
    assert isinstance(made, Message)
    assert made.sys_flag == 1
