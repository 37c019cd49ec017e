"""What a client tells a broker of itself every 30 s (HeartbeatData)."""

from __future__ import annotations

import enum

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class ConsumeType(enum.Enum):
    """Whether the application pulls, or messages are handed to it."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(enum.Enum):
    """Whether each consumer of a group gets every message, or they share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.Enum):
    """Where a group begins that has no offset yet."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(RemotingSerializable, frozen=True, kw_only=True):
    """What a group wants of a topic: all ("*"), tags ("TagA || TagB"), or an SQL92 expression.

    `code_set` holds the hash codes of `tags_set`; `sub_version` is when the subscription was made (ms since the epoch).
    """

    class_filter_mode: bool = False
    code_set: list[Int32] = field(default_factory=list)
    expression_type: str = "TAG"
    sub_string: str | None = None
    sub_version: Int64 = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str


class ConsumerData(RemotingSerializable, frozen=True, kw_only=True):
    """A consumer group of the client; `None` where the peer sent nothing that is known here."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """A producer group of the client."""

    group_name: str


class HeartbeatData(RemotingSerializable, frozen=True, kw_only=True):
    """The groups of one client."""

    client_id: str = field(name="clientID")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)


class CheckClientRequestBody(RemotingSerializable, frozen=True, kw_only=True):
    """A subscription that the client wants checked before it begins: whether its SQL92 expression compiles."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
