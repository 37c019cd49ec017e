"""Offsets of groups, queues and delay levels; times are milliseconds since the epoch."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class ConsumerOffsetSerializeWrapper(RemotingSerializable, frozen=True, kw_only=True):
    """The offsets of all groups: by "topic@group", then by queue."""

    offset_table: dict[str, dict[Int32, Int64]] = field(default_factory=dict)


class DelayOffsetSerializeWrapper(RemotingSerializable, frozen=True, kw_only=True):
    """How far each delay level was delivered."""

    offset_table: dict[Int32, Int64] = field(default_factory=dict)


class OffsetMovedEvent(RemotingSerializable, frozen=True, kw_only=True):
    """The body of a message of topic OFFSET_MOVED_EVENT: a pull asked for an offset that its queue does not have."""

    consumer_group: str
    message_queue: MessageQueue
    offset_new: Int64
    offset_request: Int64


class TopicOffset(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """The bounds of a queue, and when its last message was stored."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStatsTable(RemotingSerializable, frozen=True, kw_only=True):
    """The bounds of each queue of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


class OffsetWrapper(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """The end of a queue, how far a group has consumed it, and the time of the message there."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(RemotingSerializable, frozen=True, kw_only=True):
    """How far a group is in each queue; `consume_tps`: messages a second."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)


class ConsumeStatsList(RemotingSerializable, frozen=True, kw_only=True):
    """The stats of all groups of a broker: maps of one group each. `total_diff`: messages not consumed yet."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: Int64 = 0


class ResetOffsetBody(RemotingSerializable, frozen=True, kw_only=True):
    """The offsets to which consumers are to go."""

    offset_table: dict[MessageQueue, Int64] = field(default_factory=dict)


class MessageQueueForC(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """A queue with its offset: clients in C++ read no objects as keys."""

    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str


class ResetOffsetBodyForC(RemotingSerializable, frozen=True, kw_only=True):
    """What clients in C++ get in the place of ResetOffsetBody."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


class GetConsumerStatusBody(RemotingSerializable, frozen=True, kw_only=True):
    """The offsets of one consumer (`message_queue_table`), or of several, by client id (`consumer_table`)."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Int64] = field(default_factory=dict)


class QueryCorrectionOffsetBody(RemotingSerializable, frozen=True, kw_only=True):
    """For each queue, the offset where two groups meet."""

    correction_offsets: dict[Int32, Int64] = field(default_factory=dict)


class QueueTimeSpan(RemotingSerializable, frozen=True, kw_only=True):
    """The times of a queue's first, last and last consumed message; the same as text in the broker's time zone."""

    consume_time_stamp: Int64 = 0
    consume_time_stamp_str: str | None = None
    delay_time: Int64 = 0
    max_time_stamp: Int64 = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    min_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(RemotingSerializable, frozen=True, kw_only=True):
    """The time spans of all queues of a topic."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)
