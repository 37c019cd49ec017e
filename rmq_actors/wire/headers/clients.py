"""Headers about producers, consumers and their groups."""

from __future__ import annotations

import msgspec

from rmq_actors.wire.headers.codec import CommandHeader


class UnregisterClientRequestHeader(CommandHeader, frozen=True):
    """A client leaves its groups."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(CommandHeader, frozen=True):
    """Asks for the client ids of a consumer group."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(CommandHeader, frozen=True):
    """The broker tells the clients of a group that it has other members now."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(CommandHeader, frozen=True):
    """Asks for the connections and subscriptions of a consumer group."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(CommandHeader, frozen=True):
    """Asks for the connections of a producer group."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(CommandHeader, frozen=True):
    """Asks a consumer for its state: an operator asks the broker, the broker asks the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(CommandHeader, frozen=True):
    """Has a consumer consume one message (an offset id): an operator asks the broker, the broker asks the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class GetConsumeStatsRequestHeader(CommandHeader, frozen=True):
    """Asks for the progress of a group in each queue, of one topic or of all."""

    consumer_group: str
    topic: str | None = None


class GetConsumeStatsInBrokerHeader(CommandHeader, frozen=True):
    """Asks for the progress of all groups, of ordered topics or of the others."""

    is_order: bool


class QueryTopicConsumeByWhoRequestHeader(CommandHeader, frozen=True):
    """Asks which groups consume a topic."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(CommandHeader, frozen=True):
    """Asks for the store times between which a group is, in each queue of a topic."""

    topic: str
    group: str


class DeleteSubscriptionGroupRequestHeader(CommandHeader, frozen=True):
    """Removes a group, and its offsets when asked to."""

    group_name: str
    remove_offset: bool = False
