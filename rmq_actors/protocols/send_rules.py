"""Which messages a broker takes from a client, and where they go (AbstractSendMessageProcessor.msgCheck).

Pure: it looks at a request's header and at the present tables, and says what they lack. Make that durably, then ask
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import attrs

from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicFilterType
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers.messages import SendMessageRequestHeader
from rmq_actors.wire.response_code import ResponseCode

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"
_TOPIC_CHARS_MAX = 127
#: The longest name of a group (Validators.CHARACTER_MAX_LENGTH).
GROUP_CHARS_MAX = 255
_LEGAL_CHARS = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
#: No client sends to these (TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET).
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
#: From this version of a client on, its own maxReconsumeTimes counts (MQVersion.V3_4_9).
_VERSION_V3_4_9 = 121
_MULTI_TAGS_FLAG = 2
_SYS_FLAG_UNIT, _SYS_FLAG_UNIT_SUB = 1, 2


class Refusal(NamedTuple):
    """The answer to a refused request."""

    code: int
    remark: str


_TOO_LONG_TOPIC = Refusal(ResponseCode.SYSTEM_ERROR, "The specified topic is longer than topic max length.")


class MissingTopic(NamedTuple):
    """The topic must be made first: with what it inherits, or with these queues if it cannot inherit anything."""

    topic: str
    inherits: bool
    queue_nums: int
    sys_flag: int


class MissingGroup(NamedTuple):
    """The consumer group must be made first."""

    group: str


class Destination(NamedTuple):
    """Where a message goes. `is_dead`: to the dead letters of its group; it is not delayed then."""

    topic: str
    queue_id: int
    sys_flag: int
    is_dead: bool = False


@attrs.frozen
class SendRules:
    """The rules of one broker. `random_below(n)` chooses a queue if the client leaves that open (queueId -1)."""

    broker_permission: int
    broker_ip: str
    find_topic: Callable[[str], TopicConfig | None]
    find_group: Callable[[str], SubscriptionGroupConfig | None]
    auto_create_groups: bool
    random_below: Callable[[int], int]

    def destination(
        self, header: SendMessageRequestHeader, version: int, client: str
    ) -> Destination | Refusal | MissingTopic | MissingGroup:
        """Where a message of `client` goes, or why not, in RocketMQ's order of checks and with its texts."""
        topic = header.topic
        config = self.find_topic(topic)
        if not self.broker_permission & PERM_WRITE and config is not None and config.order:
            return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self.broker_ip}] sending message is forbidden")
        refusal = check_topic_to_send(topic)
        if refusal is not None:
            return refusal
        if config is None:
            return MissingTopic(topic, True, header.default_topic_queue_nums, _sys_flag_of(header))
        if header.queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, {topic_text(config)} Producer: {client}",
            )
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            dead = self._dead_letters(header, version)
            if isinstance(dead, Refusal | MissingGroup):
                return dead
            if dead is not None:
                config = self.find_topic(dead)
                if config is None:
                    return MissingTopic(dead, False, 1, 0)
                return Destination(dead, 0, _sys_flag(header.sys_flag, config), is_dead=True)
        queue_id = header.queue_id
        if queue_id < 0:
            if config.write_queue_nums <= 0:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic} has no queue to be written to")
            queue_id = self.random_below(config.write_queue_nums)
        return Destination(topic, queue_id, _sys_flag(header.sys_flag, config))

    def _dead_letters(self, header: SendMessageRequestHeader, version: int) -> str | Refusal | MissingGroup | None:
        """The topic of dead letters, if consuming the message has failed too often (handleRetryAndDLQ)."""
        name = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = self.find_group(name)
        if group is None:
            if self.auto_create_groups:
                return MissingGroup(name)
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
        times_max = reconsume_times_max(group, version, header.max_reconsume_times)
        return DLQ_GROUP_TOPIC_PREFIX + name if (header.reconsume_times or 0) >= times_max else None


def reconsume_times_max(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """How often consuming a message may fail: as its group says, or as a consumer asks that is new enough to ask."""
    return group.retry_max_times if version < _VERSION_V3_4_9 or asked is None else asked


def check_topic_name(topic: str) -> Refusal | None:
    """Why no topic can have this name (TopicValidator.validateTopic)."""
    error = ResponseCode.SYSTEM_ERROR
    if not topic.strip():
        return Refusal(error, "The specified topic is blank.")
    if not _LEGAL_CHARS.issuperset(topic):
        return Refusal(error, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > _TOPIC_CHARS_MAX:
        return _TOO_LONG_TOPIC
    return None


def check_group_length(group: str) -> Refusal | None:
    """Why nothing can be kept for a group of this name: no client of RocketMQ has such (Validators.checkGroup)."""
    if len(group) <= GROUP_CHARS_MAX:
        return None
    remark = f"the specified group is longer than group max length {GROUP_CHARS_MAX}."
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def check_lengths(group: str, topic: str) -> Refusal | None:
    """Why nothing can be kept for a group in a topic. A topic of retries or dead letters is as long as its group."""
    refusal = check_group_length(group)
    if refusal is not None or len(topic) <= _TOPIC_CHARS_MAX:
        return refusal
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if topic.startswith(prefix) and len(topic) <= len(prefix) + GROUP_CHARS_MAX:
            return None
    return _TOO_LONG_TOPIC


def check_topic_to_send(topic: str) -> Refusal | None:
    """Why no message can go to a topic of this name (TopicValidator)."""
    if topic in NOT_ALLOWED_SEND_TOPICS:
        return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    return check_topic_name(topic)


def topic_not_exist(topic: str) -> Refusal:
    """What a producer is told if an operator must make the topic."""
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")


def inherited_topic(missing: MissingTopic, default: TopicConfig | None) -> TopicConfig | None:
    """The topic to be made by the settings of `default`; None if that may not be inherited.

    A client asks for a number of queues and gets no more than the default topic has (createTopicInSendMessageMethod).
    A group's topic of retries is made in any case.
    """
    if not missing.inherits:
        return _own_topic(missing)
    if default is None or not default.perm & PERM_INHERIT:
        return _own_topic(missing, 1) if missing.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else None
    queue_nums = max(0, min(missing.queue_nums, default.write_queue_nums))
    return TopicConfig(
        topic_name=missing.topic,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=default.perm & ~PERM_INHERIT,
        topic_sys_flag=missing.sys_flag,
        topic_filter_type=default.topic_filter_type,
    )


def _own_topic(missing: MissingTopic, queue_nums: int | None = None) -> TopicConfig:
    count = missing.queue_nums if queue_nums is None else queue_nums
    return TopicConfig(
        topic_name=missing.topic,
        read_queue_nums=count,
        write_queue_nums=count,
        perm=PERM_READ | PERM_WRITE,
        topic_sys_flag=missing.sys_flag,
    )


def _sys_flag_of(header: SendMessageRequestHeader) -> int:
    """The new topic's topicSysFlag (TopicSysFlag.buildSysFlag)."""
    if not header.unit_mode:
        return 0
    return _SYS_FLAG_UNIT_SUB if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else _SYS_FLAG_UNIT


def _sys_flag(sys_flag: int, config: TopicConfig) -> int:
    return sys_flag | _MULTI_TAGS_FLAG if config.topic_filter_type is TopicFilterType.MULTI_TAG else sys_flag


def topic_text(config: TopicConfig) -> str:
    """A topic as RocketMQ's texts show it (TopicConfig.toString)."""
    perm = "".join(
        letter if config.perm & bit else "-"
        for bit, letter in ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    )
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type.value}, "
        f"topicSysFlag={config.topic_sys_flag}, order={'true' if config.order else 'false'}]"
    )
