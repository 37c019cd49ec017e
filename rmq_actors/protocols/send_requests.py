"""The requests of a producer (DefaultMQProducerImpl.sendKernelImpl): a message becomes a command. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.protocols.transactional_messages import PROPERTY_TRANSACTION_PREPARED
from rmq_actors.wire.batch import BATCH_ITEM_BYTES, encode_batch, encode_batch_items
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.body_compression import compress_body
from rmq_actors.wire.dispatch_request import PROPERTY_UNIQ_KEY
from rmq_actors.wire.properties import (
    PROPERTY_WAIT_STORE_MSG_OK,
    IllegalProperty,
    decode_properties,
    encode_properties,
    properties_text,
)
from rmq_actors.wire.record import TRANSACTION_PREPARED_TYPE, Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode

#: How often a consumer could not consume a message that it sends to its retry topic itself, and how often it may.
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
_SHOWN_CHARS = 80


class Outgoing(NamedTuple):
    """A message, or a batch, made ready once for all attempts: what does not depend on the queue.

    `msg_id`: the unique ids, with commas between those of a batch.
    """

    topic: str
    msg_id: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


def outgoing_message(message: Message, unique_id: str, compress_over_bytes: int, compress_level: int) -> Outgoing:
    """A message with its id. A body of `compress_over_bytes` or more is compressed, if that makes it any shorter.

    A message that has an id keeps it. What RocketMQ's clients say in the header is no property any more. Raises
    `IllegalProperty`.
    """
    body, sys_flag = message.body, message.sys_flag
    if len(body) >= compress_over_bytes:
        compressed, bits = compress_body(body, compress_level)
        # RocketMQ's producers send it in any case: a body of just maxMessageSize may be longer then, and is refused.
        if len(compressed) < len(body):
            body, sys_flag = compressed, sys_flag | bits
    properties = dict(message.properties)
    msg_id = properties.setdefault(PROPERTY_UNIQ_KEY, unique_id)
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        sys_flag |= TRANSACTION_PREPARED_TYPE
    times, times_max = 0, None
    if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        times = _take_number(properties, PROPERTY_RECONSUME_TIME) or 0
        times_max = _take_number(properties, PROPERTY_MAX_RECONSUME_TIMES)
    text = properties_text(properties)
    return Outgoing(message.topic, msg_id, body, text, sys_flag, message.flag, False, times, times_max)


def _take_number(properties: dict[str, str], name: str) -> int | None:
    text = properties.pop(name, None)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise IllegalProperty(f"property {name}: {text[:_SHOWN_CHARS]!r} is no number") from None


def outgoing_batch(messages: Sequence[Message], unique_ids: Sequence[str]) -> Outgoing:
    """Several messages of one topic as one request; their bodies are not compressed, as in RocketMQ.

    Whether they wait for a disk and a slave is said for all of them, in the header (MessageBatch.generateFromList).
    Raises `IllegalProperty`, `PropertiesSizeExceeded`.
    """
    ready, msg_ids = list[tuple[bytes, int, dict[str, str]]](), list[str]()
    for message, unique_id in zip(messages, unique_ids, strict=True):
        properties = dict(message.properties)
        msg_ids.append(properties.setdefault(PROPERTY_UNIQ_KEY, unique_id))
        ready.append((message.body, message.flag, properties))
    first = messages[0]
    wait = first.properties.get(PROPERTY_WAIT_STORE_MSG_OK)
    common = "" if wait is None else encode_properties({PROPERTY_WAIT_STORE_MSG_OK: wait}).decode()
    return Outgoing(first.topic, ",".join(msg_ids), encode_batch(ready), common, 0, 0, is_batch=True)


def batch_item_bytes(outgoing: Outgoing) -> int:
    """What a message takes in the body of a batch, at most: a character of its properties is up to 4 bytes."""
    properties = outgoing.properties
    return BATCH_ITEM_BYTES + len(outgoing.body) + len(properties) * (1 if properties.isascii() else 4)


def outgoing_batch_of(messages: Sequence[Outgoing]) -> Outgoing:
    """Messages that were made ready one by one as one request: those of one topic, with nothing in their sysFlag.

    Whether they wait for a disk and a slave is the same for all of them, and said by the first one.
    """
    items = [(each.body, each.flag, each.properties.encode()) for each in messages]
    first = messages[0]
    wait = decode_properties(items[0][2]).get(PROPERTY_WAIT_STORE_MSG_OK)
    common = "" if wait is None else encode_properties({PROPERTY_WAIT_STORE_MSG_OK: wait}).decode()
    msg_id = ",".join(each.msg_id for each in messages)
    return Outgoing(first.topic, msg_id, encode_batch_items(items), common, 0, 0, is_batch=True)


def send_command(
    outgoing: Outgoing,
    queue: MessageQueue,
    producer_group: str,
    born_timestamp_ms: int,
    *,
    default_topic: str,
    default_topic_queue_nums: int,
) -> RemotingCommand:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE, of one attempt: a `SendMessageRequestHeaderV2`, written out.

    To encode the header by its type takes three times as long.
    """
    ext_fields = {
        "a": producer_group,
        "b": outgoing.topic,
        "c": default_topic,
        "d": str(default_topic_queue_nums),
        "e": str(queue.queue_id),
        "f": str(outgoing.sys_flag),
        "g": str(born_timestamp_ms),
        "h": str(outgoing.flag),
        "i": outgoing.properties,
        "j": str(outgoing.reconsume_times),
        "k": "false",
        "m": "true" if outgoing.is_batch else "false",
        "n": queue.broker_name,
    }
    if outgoing.max_reconsume_times is not None:
        ext_fields["l"] = str(outgoing.max_reconsume_times)
    code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand(code, ext_fields, body=outgoing.body)
