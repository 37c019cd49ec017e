"""Headers of messages that are sent, sent back, looked up: one at a time."""

from __future__ import annotations

import msgspec

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64


class SendMessageRequestHeader(CommandHeader, frozen=True):
    """A message to be stored; its body is the request's body. Properties in RocketMQ's text form."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None


class SendMessageRequestHeaderV2(CommandHeader, frozen=True):
    """The same with names of one letter on the wire: what clients send. `broker_name`: 4.9.5 and later."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool = msgspec.field(name="k", default=False)
    max_reconsume_times: Int32 | None = msgspec.field(name="l", default=None)
    batch: bool = msgspec.field(name="m", default=False)
    broker_name: str | None = msgspec.field(name="n", default=None)


def create_send_message_request_header_v1(v2: SendMessageRequestHeaderV2) -> SendMessageRequestHeader:
    """The same message under long names; they have none for the broker's name."""
    return SendMessageRequestHeader(
        producer_group=v2.producer_group,
        topic=v2.topic,
        default_topic=v2.default_topic,
        default_topic_queue_nums=v2.default_topic_queue_nums,
        queue_id=v2.queue_id,
        sys_flag=v2.sys_flag,
        born_timestamp=v2.born_timestamp,
        flag=v2.flag,
        properties=v2.properties,
        reconsume_times=v2.reconsume_times,
        unit_mode=v2.unit_mode,
        batch=v2.batch,
        max_reconsume_times=v2.max_reconsume_times,
    )


def create_send_message_request_header_v2(
    v1: SendMessageRequestHeader, broker_name: str | None = None
) -> SendMessageRequestHeaderV2:
    """The same message under names of one letter."""
    return SendMessageRequestHeaderV2(
        producer_group=v1.producer_group,
        topic=v1.topic,
        default_topic=v1.default_topic,
        default_topic_queue_nums=v1.default_topic_queue_nums,
        queue_id=v1.queue_id,
        sys_flag=v1.sys_flag,
        born_timestamp=v1.born_timestamp,
        flag=v1.flag,
        properties=v1.properties,
        reconsume_times=v1.reconsume_times,
        unit_mode=v1.unit_mode,
        max_reconsume_times=v1.max_reconsume_times,
        batch=v1.batch,
        broker_name=broker_name,
    )


class SendMessageResponseHeader(CommandHeader, frozen=True):
    """Where a message was stored. `msg_id` is the offset id; of a batch all of them, with commas between."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None


class ConsumerSendMsgBackRequestHeader(CommandHeader, frozen=True):
    """A message that could not be consumed, by its physical offset: to be delivered to the group again, later."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class ReplyMessageRequestHeader(CommandHeader, frozen=True):
    """An answer of the request-reply pattern, pushed by the broker to the client that asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


class ViewMessageRequestHeader(CommandHeader, frozen=True):
    """Asks for the message at a physical offset."""

    offset: Int64


class QueryMessageRequestHeader(CommandHeader, frozen=True):
    """Asks for messages by topic and key, stored from `begin_timestamp` to `end_timestamp` (ms)."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(CommandHeader, frozen=True):
    """How far the index is: store time (ms) and physical offset of its last message."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
