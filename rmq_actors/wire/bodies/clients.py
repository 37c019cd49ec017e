"""Who is connected to a broker, and the groups of a topic."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class GetConsumerListByGroupResponseBody(RemotingSerializable, frozen=True, kw_only=True):
    """The client ids of a group's consumers."""

    consumer_id_list: list[str] = field(default_factory=list)


class GroupList(RemotingSerializable, frozen=True, kw_only=True):
    """Names of consumer groups."""

    group_list: list[str] = field(default_factory=list)


class Connection(RemotingSerializable, frozen=True, kw_only=True):
    """One client; `client_addr` is "host:port", `language` the name of a `LanguageCode`."""

    client_addr: str | None = None
    client_id: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(RemotingSerializable, frozen=True, kw_only=True):
    """The clients of a consumer group, and what it subscribes, by topic."""

    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(RemotingSerializable, frozen=True, kw_only=True):
    """The clients of a producer group."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(RemotingSerializable, frozen=True, kw_only=True):
    """A client of a producer group, and when it was last heard of (ms since the epoch)."""

    client_id: str | None = None
    language: str | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str | None = field(default=None, name="remoteIP")
    version: Int32 = 0


class ProducerTableInfo(RemotingSerializable, frozen=True, kw_only=True):
    """All producers of a broker, by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
