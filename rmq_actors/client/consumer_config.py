"""Settings of consumers (DefaultMQPushConsumer, DefaultLitePullConsumer): RocketMQ's keys, with their unit."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from rmq_actors.protocols.flow_control import PullThresholds
from rmq_actors.protocols.message_checks import check_consumer_group
from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel

_AT_LEAST_0 = attrs.validators.ge(0)
_AT_LEAST_1 = attrs.validators.ge(1)
_MINUS_1_OR_MORE = attrs.validators.ge(-1)
#: As many as a broker gives at most.
_BATCH = [attrs.validators.ge(1), attrs.validators.le(1024)]


@attrs.frozen(field_transformer=typed_fields)
class GroupConfig:
    """What every member of a consumer group must have alike. Raises `ValueError` naming the field."""

    #: The group: its members share the messages, and the broker keeps its offsets by this name.
    consumer_group: str
    #: CLUSTERING: each message to one member. BROADCASTING: each message to each member, which keeps its own offsets.
    message_model: MessageModel = MessageModel.CLUSTERING
    #: Where the group begins in a queue in which it has no offset yet; old messages are skipped by default.
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    #: Where CONSUME_FROM_TIMESTAMP begins: ms since the epoch; -1 is half an hour before the start.
    consume_timestamp_ms: int = attrs.field(default=-1, validator=_MINUS_1_OR_MORE)
    #: The broker that is asked whatever others suggest, by its id, with `connect_broker_by_user`: a slave spares its
    #: master, and is behind it.
    default_broker_id: int = attrs.field(default=0, validator=_AT_LEAST_0)
    #: Whether `default_broker_id` counts.
    connect_broker_by_user: bool = False
    #: How many messages a pull asks for: more in one answer cost less, and wait longer in memory.
    pull_batch_size: int = attrs.field(default=32, validator=_BATCH)
    #: More messages than this of one queue are not kept in memory: its pulls wait.
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=_AT_LEAST_1)
    #: The same for their bodies, in MiB.
    pull_threshold_size_for_queue_mib: int = attrs.field(default=100, validator=_AT_LEAST_1)
    #: The same for all queues together, shared by those that this consumer has; -1: each queue has its own.
    pull_threshold_for_topic: int = attrs.field(default=-1, validator=_MINUS_1_OR_MORE)
    #: The same for their bodies, in MiB.
    pull_threshold_size_for_topic_mib: int = attrs.field(default=-1, validator=_MINUS_1_OR_MORE)
    #: A queue's pulls wait while the lowest message that is not consumed is farther than this behind the highest one:
    #: it holds the offset back, and all after it would be consumed again after a crash.
    consume_concurrently_max_span: int = attrs.field(default=2000, validator=_AT_LEAST_1)
    #: The file of a broadcasting consumer's offsets is below this directory of its disk.
    local_offset_store_dir: str = ".rocketmq_offsets"

    def __attrs_post_init__(self) -> None:
        why = check_consumer_group(self.consumer_group)
        if why is not None:
            raise ValueError(f"consumer_group is {self.consumer_group[:80]!r}: {why}")

    @property
    def thresholds(self) -> PullThresholds:
        """When pulls wait."""
        return PullThresholds(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue_mib,
            self.consume_concurrently_max_span,
            self.pull_threshold_for_topic,
            self.pull_threshold_size_for_topic_mib,
        )


@attrs.frozen(field_transformer=typed_fields)
class PushConsumerConfig(GroupConfig):
    """A consumer that calls a listener. Raises `ValueError` naming the field that is out of range."""

    #: How many calls of the listener may run at once; with order at most one per queue.
    consume_thread_max: int = attrs.field(default=20, validator=_AT_LEAST_1)
    #: How many messages a call gets at most. They are consumed together, or come again together.
    consume_message_batch_max_size: int = attrs.field(default=1, validator=_BATCH)
    #: How often a message is tried again before it is a dead letter (`%DLQ%group`); -1: 16, with order for ever.
    max_reconsume_times: int = attrs.field(default=-1, validator=_MINUS_1_OR_MORE)
    #: A call that takes longer is cancelled and its messages come again; with order it may take its time.
    consume_timeout_min: int = attrs.field(default=15, validator=_AT_LEAST_1)
    #: How long a queue stands still by default after its message was not consumed, with order: 10 to 30,000.
    suspend_current_queue_time_ms: int = attrs.field(default=1000, validator=_AT_LEAST_1)
    #: The pause between two pulls of a queue that found something.
    pull_interval_ms: int = attrs.field(default=0, validator=_AT_LEAST_0)
    #: How long calls of the listener may go on when the consumer stops; then they are cancelled, and their messages
    #: come again to another member.
    await_termination_ms_when_shutdown: int = attrs.field(default=0, validator=_AT_LEAST_0)


@attrs.frozen(field_transformer=typed_fields)
class PullConsumerConfig(GroupConfig):
    """A consumer that is asked for messages. Raises `ValueError` naming the field that is out of range."""

    #: Whether what was polled is committed by itself, once more is polled; without it, `commit` alone does.
    auto_commit: bool = True
    #: How long a poll waits for a message, unless it says otherwise.
    poll_timeout_ms: int = attrs.field(default=5_000, validator=_AT_LEAST_0)
    #: How many messages a poll gives at most.
    poll_batch_size: int = attrs.field(default=10, validator=_BATCH)


#: The strategy by which members share queues unless they are given another: the same for all of a group.
DEFAULT_STRATEGY: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()
