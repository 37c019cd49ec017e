"""Where a message goes that could not be consumed (SendMessageProcessor.asyncConsumerSendMsgBack).

It goes to its group's topic of retries, later each time, or to that of dead letters, where it stays: after it has
failed as often as it may, or at once if the consumer says so.

Pure: it looks at a request's header, at the present tables and at the message, and says what the tables lack. Make that
durably, then ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import attrs

from rmq_actors.protocols.send_rules import (
    DLQ_GROUP_TOPIC_PREFIX,
    FAQ,
    PERM_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
    MissingGroup,
    MissingTopic,
    Refusal,
    reconsume_times_max,
)
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.dispatch_request import HALF_TOPIC, OP_HALF_TOPIC, PROPERTY_DELAY, SCHEDULE_TOPIC
from rmq_actors.wire.headers.messages import ConsumerSendMsgBackRequestHeader
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK
from rmq_actors.wire.record import TRANSACTION_BITS, Message, StoredMessage
from rmq_actors.wire.response_code import ResponseCode

PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
#: The delay level of the first retry, if the consumer leaves it to the broker; the next one has the level after it.
_FIRST_LEVEL = 3
_DLQ_NUMS_PER_GROUP = 1
_SYS_FLAG_UNIT_SUB = 2


class NoRetries(NamedTuple):
    """The group has no queues for retries (retryQueueNums 0): the message is dropped, and the consumer told SUCCESS."""


class Retries(NamedTuple):
    """The group, and the queue of its topic of retries."""

    group: SubscriptionGroupConfig
    topic: str
    queue_id: int


@attrs.frozen
class SendBackRules:
    """The rules of one broker. `random_below(n)` chooses the queue."""

    broker_permission: int
    broker_ip: str
    find_topic: Callable[[str], TopicConfig | None]
    find_group: Callable[[str], SubscriptionGroupConfig | None]
    makes_group: Callable[[str], bool]
    random_below: Callable[[int], int]

    def retries(
        self, header: ConsumerSendMsgBackRequestHeader
    ) -> Retries | NoRetries | Refusal | MissingTopic | MissingGroup:
        """Where the group's retries go, or why nothing does, in RocketMQ's order of checks and with its texts."""
        group = self.find_group(header.group)
        if group is None:
            if self.makes_group(header.group):
                return MissingGroup(header.group)
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
            )
        if not self.broker_permission & PERM_WRITE:
            return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self.broker_ip}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return NoRetries()
        topic = RETRY_GROUP_TOPIC_PREFIX + header.group
        config = self.find_topic(topic)
        if config is None:
            sys_flag = _SYS_FLAG_UNIT_SUB if header.unit_mode else 0
            return MissingTopic(topic, False, group.retry_queue_nums, sys_flag)
        if not config.perm & PERM_WRITE:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return Retries(group, topic, self.random_below(group.retry_queue_nums))

    def message(
        self, header: ConsumerSendMsgBackRequestHeader, version: int, retries: Retries, stored: StoredMessage
    ) -> Message | MissingTopic:
        """The message to put: later into the topic of retries, or now into that of dead letters."""
        times_max = reconsume_times_max(retries.group, version, header.max_reconsume_times)
        is_dead = stored.reconsume_times >= times_max or header.delay_level < 0
        if is_dead:
            topic, queue_id, level = DLQ_GROUP_TOPIC_PREFIX + header.group, self.random_below(_DLQ_NUMS_PER_GROUP), 0
            if self.find_topic(topic) is None:
                return MissingTopic(topic, False, _DLQ_NUMS_PER_GROUP, 0)
        else:
            topic, queue_id = retries.topic, retries.queue_id
            level = header.delay_level or _FIRST_LEVEL + stored.reconsume_times
        return Message(
            topic=topic,
            body=stored.body,
            queue_id=queue_id,
            properties=_properties(stored, level),
            flag=stored.flag,
            # RocketMQ keeps the bits of a commit, without the offset of what it commits.
            sys_flag=stored.sys_flag & ~TRANSACTION_BITS,
            born_timestamp_ms=stored.born_timestamp_ms,
            born_host=stored.born_host,
            store_host=stored.store_host,
            reconsume_times=stored.reconsume_times + 1,
            delay_time_level=level,
        )


#: No consumer is given what is in these: it has nothing to send back from there.
NOT_CONSUMED_TOPICS = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC})


def look_failed(offset: int) -> Refusal:
    """What a consumer is told if the message is not in the log."""
    return Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


def _properties(stored: StoredMessage, level: int) -> dict[str, str]:
    """Those of the message, with what its consumer asks of it later: its first topic and its first id."""
    properties = {PROPERTY_RETRY_TOPIC: stored.topic, **stored.properties}
    properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    properties[PROPERTY_DELAY] = str(level)
    if not properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
        properties[PROPERTY_ORIGIN_MESSAGE_ID] = create_message_id(stored.store_host, stored.physical_offset)
    return properties
