"""What a producer refuses to send (Validators, MessageBatch), before any broker is asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rmq_actors.protocols.send_rules import (
    RETRY_GROUP_TOPIC_PREFIX,
    check_group_length,
    check_topic_name,
    check_topic_to_send,
)
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.dispatch_request import PROPERTY_DELAY
from rmq_actors.wire.java_numbers import INT32
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK
from rmq_actors.wire.record import Message

#: A group that is in RocketMQ's every producer that was given none (MixAll.DEFAULT_PRODUCER_GROUP).
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
#: The same of consumers (MixAll.DEFAULT_CONSUMER_GROUP).
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"


def check_group(group: str) -> str | None:
    """Why no client can be of this group (Validators.checkGroup)."""
    if not group.strip():
        return "the specified group is blank"
    if (too_long := check_group_length(group)) is not None:
        return too_long.remark
    # The characters of a group are those of a topic.
    if any(check_topic_name(character) is not None for character in set(group)):
        return f"the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def check_consumer_group(group: str) -> str | None:
    """Why no consumer can be of this group (DefaultMQPushConsumerImpl.checkConfig)."""
    if group == DEFAULT_CONSUMER_GROUP:
        return f"the consumer group cannot be {DEFAULT_CONSUMER_GROUP}: name the group of this program"
    return check_group(group)


def check_producer_group(group: str) -> str | None:
    """Why no producer can be of this group (DefaultMQProducerImpl.checkConfig)."""
    if group == DEFAULT_PRODUCER_GROUP:
        return f"the producer group cannot be {DEFAULT_PRODUCER_GROUP}: name the group of this program"
    return check_group(group)


def check_message(message: Message, max_message_size_bytes: int) -> str | None:
    """Why a message cannot be sent (Validators.checkMessage). Raises `TypeError` for a property that is no text."""
    refusal = check_topic_to_send(message.topic)
    if refusal is not None:
        return refusal.remark
    if not message.body:
        return "the message body length is zero"
    if len(message.body) > max_message_size_bytes:
        return f"the message body has {len(message.body)} bytes, at most {max_message_size_bytes} are allowed"
    if message.properties:
        for name, value in message.properties.items():
            if type(name) is not str or type(value) is not str:
                raise TypeError(f"Message.properties must hold text, not {name!r:.80}: {value!r:.80}")
    if message.flag != 0 and (type(message.flag) is not int or message.flag not in INT32):
        raise TypeError(f"Message.flag must be a whole number of 32 bits, not {message.flag!r:.80}")
    return None


def check_batch(messages: Sequence[Message], max_message_size_bytes: int) -> str | None:
    """Why messages cannot be sent as one batch (MessageBatch.generateFromList)."""
    if not messages:
        return "a batch has one message or more"
    first = messages[0]
    for number, message in enumerate(messages):
        why = check_message(message, max_message_size_bytes)
        if why is None and message.properties.get(PROPERTY_DELAY, "0") != "0":
            why = "a message of a batch cannot be delayed"
        if why is None and message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            why = "a topic of retries takes no batch"
        if why is None and message.topic != first.topic:
            why = f"its topic is {message.topic}, that of the batch {first.topic}"
        if why is None and _waits(message) != _waits(first):
            why = f"{PROPERTY_WAIT_STORE_MSG_OK} is the same for all messages of a batch"
        if why is not None:
            return f"message {number} of the batch: {why}"
    return None


def check_queue(queue: MessageQueue, topic: str) -> str | None:
    """Why a message of a topic cannot be sent to a queue (DefaultMQProducerImpl.send to a MessageQueue)."""
    if queue.topic != topic:
        return f"a message of topic {topic} cannot be sent to a queue of topic {queue.topic}"
    return None


def _waits(message: Message) -> bool:
    return message.properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true") == "true"
