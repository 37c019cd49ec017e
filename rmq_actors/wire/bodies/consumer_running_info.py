"""What a consumer answers to the questions that a broker hands on to it; times are milliseconds since the epoch."""

from __future__ import annotations

import enum

from msgspec import field

from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class ProcessQueueInfo(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """What a consumer has of one queue in its memory (`droped`, sic)."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int32 = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    droped: bool = False
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class ConsumeStatus(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """How fast a topic is consumed: times in milliseconds, rates a second, failures of the last hour."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(RemotingSerializable, frozen=True, kw_only=True):
    """A consumer's configuration and queues, `status_table` by topic; `jstack` is the text of its threads."""

    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)


class CMResult(enum.Enum):
    """What became of a message that was consumed on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(RemotingSerializable, frozen=True, kw_only=True):
    """How a consumer fared with one message; `spent_time_mills` is a duration."""

    auto_commit: bool = True
    consume_result: CMResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0
