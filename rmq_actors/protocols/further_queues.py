"""Into which further queues a producer may have its message entered (property INNER_MULTI_DISPATCH, MultiDispatch).

A message is stored once, in its own topic; with `enableMultiDispatch` its producer also names queues that get an entry
for it: light queues (`%LMQ%...`), or queues of other topics, under the message's own queue number. RocketMQ 4.9 enters
it wherever the property says. So a producer that may send to one topic could put its messages before the consumers of
every other, into the broker's own topics, and make files of queues for names without end. Here such a name must be a
topic to which the producer could have sent the message.

It is entered once, when consumers of its own topic may see it: not while it waits for its delay or for the end of its
transaction, nor as a retry or a dead letter, which are for one group. RocketMQ 4.9 enters each of these, too; 5 does
not, but for dead letters and half messages.

Pure: it looks at the names and at the present topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmq_actors.protocols.send_rules import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    Refusal,
    check_topic_to_send,
    topic_not_exist,
    topic_text,
)
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC, TRANSACTION_TOPICS
from rmq_actors.wire.response_code import ResponseCode

_NOT_ENTERED = frozenset({*TRANSACTION_TOPICS, SCHEDULE_TOPIC})
_OF_ONE_GROUP = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
_SYSTEM_TOPIC_PREFIXES = ("RMQ_SYS_", "rmq_sys_")


def has_further_queues(topic: str) -> bool:
    """Whether a message that is put into `topic` is entered into the further queues that it names."""
    return topic not in _NOT_ENTERED and not topic.startswith(_OF_ONE_GROUP)


def check_further_queues(
    names: Sequence[str], queue_id: int, find_topic: Callable[[str], TopicConfig | None]
) -> Refusal | None:
    """Why a message of queue `queue_id` cannot be entered into queues of these topics, which are not light queues."""
    for name in names:
        refusal = check_topic_to_send(name) or _check_topic(name, queue_id, find_topic(name))
        if refusal is not None:
            return refusal
    return None


def _check_topic(name: str, queue_id: int, config: TopicConfig | None) -> Refusal | None:
    if name.startswith(_SYSTEM_TOPIC_PREFIXES):
        return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
    if config is None:
        return topic_not_exist(name)
    if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
        return Refusal(ResponseCode.SYSTEM_ERROR, f"request queueId[{queue_id}] is illegal, {topic_text(config)}")
    return None
