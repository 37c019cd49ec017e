"""Headers of pulls, and of offsets of queues and consumer groups."""

from __future__ import annotations

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64


class PullMessageRequestHeader(CommandHeader, frozen=True):
    """Asks for messages of a queue from `queue_offset` on. `sys_flag` is PullSysFlag's.

    A push consumer sends no `subscription`: its heartbeat has it, with its version.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None


class PullMessageResponseHeader(CommandHeader, frozen=True):
    """Where to pull next, from which broker, and the queue's bounds: of each answer that comes from the queue."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class GetMaxOffsetRequestHeader(CommandHeader, frozen=True):
    """Asks for the end of a queue."""

    topic: str
    queue_id: Int32


class GetMaxOffsetResponseHeader(CommandHeader, frozen=True):
    """The queue offset that the next message gets."""

    offset: Int64


class GetMinOffsetRequestHeader(CommandHeader, frozen=True):
    """Asks for the beginning of a queue."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CommandHeader, frozen=True):
    """The queue offset of the first message that is still there."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(CommandHeader, frozen=True):
    """Asks when the first message of a queue was stored."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CommandHeader, frozen=True):
    """When it was stored (ms); -1 for an empty queue."""

    timestamp: Int64


class SearchOffsetRequestHeader(CommandHeader, frozen=True):
    """Asks for the queue offset of the first message stored at `timestamp` (ms) or later."""

    topic: str
    queue_id: Int32
    timestamp: Int64


class SearchOffsetResponseHeader(CommandHeader, frozen=True):
    """That queue offset."""

    offset: Int64


class QueryConsumerOffsetRequestHeader(CommandHeader, frozen=True):
    """Asks how far a group is in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32


class QueryConsumerOffsetResponseHeader(CommandHeader, frozen=True):
    """The queue offset of the first message that the group has not consumed."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(CommandHeader, frozen=True):
    """Says how far a group is in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class QueryCorrectionOffsetHeader(CommandHeader, frozen=True):
    """Asks for the offsets of all groups but those of `filter_groups` (commas between), compared with one group."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(CommandHeader, frozen=True):
    """Has the offsets of one group copied to another; of all its topics when none is named."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ResetOffsetRequestHeader(CommandHeader, frozen=True):
    """Sets a group back, or forward too when `is_force`, to the messages of a time (ms). Clients are told the same."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool


class GetConsumerStatusRequestHeader(CommandHeader, frozen=True):
    """Asks the clients of a group, or one of them, how far each is in the queues of a topic."""

    topic: str
    group: str
    client_addr: str | None = None
