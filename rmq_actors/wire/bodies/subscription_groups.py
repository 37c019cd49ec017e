"""Consumer groups as brokers keep and report them (SubscriptionGroupConfig)."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.java_numbers import Int32, Int64


class SubscriptionGroupConfig(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """One consumer group."""

    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupWrapper(RemotingSerializable, frozen=True, kw_only=True):
    """All consumer groups of a broker, by name, with their version."""

    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
