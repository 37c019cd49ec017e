"""What a broker counted (BrokerStatsData), and what its consume queues hold."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class BrokerStatsItem(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """The sum over a time, the times a second, and the average of a time (`avgpt`)."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(RemotingSerializable, frozen=True, kw_only=True):
    """One statistic over a minute, an hour, a day."""

    stats_day: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_minute: BrokerStatsItem | None = None


class ConsumeQueueData(RemotingSerializable, frozen=True, kw_only=True):
    """One entry of a consume queue, and whether the group's filter lets it pass (`eval`)."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0


class QueryConsumeQueueResponseBody(RemotingSerializable, frozen=True, kw_only=True):
    """Entries of a consume queue, its bounds, and the filter of a group."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None
