"""Which clients consume and produce at a broker, by heartbeats (ConsumerManager, ConsumerGroupInfo, ProducerManager).

A client is a connection: the channel that its heartbeats come on. It leaves a group when it says so, when its
connection ends, or when no heartbeat has come for `EXPIRED_S`. Time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData

#: CHANNEL_EXPIRED_TIMEOUT.
EXPIRED_S = 120.0
#: How many groups that lost their producers are remembered. A peer names as many as it likes.
LOST_GROUPS_MAX = 1000
#: What a subscription is counted with beside its text.
_SUBSCRIPTION_AROUND_BYTES = 256

ChannelT = TypeVar("ChannelT", bound=Hashable)


@attrs.define(eq=False, repr=False)
class Client:
    """What a client says about itself, and when it was heard of last."""

    client_id: str
    language: str
    version: int
    heard_of_s: float


@attrs.define(eq=False, repr=False)
class ConsumerGroup(Generic[ChannelT]):
    """One group: what it subscribes, and its members in the order in which they came."""

    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: dict[str, SubscriptionData] = attrs.field(factory=dict)
    members: dict[ChannelT, Client] = attrs.field(factory=dict)

    @property
    def client_ids(self) -> list[str]:
        """The ids of its members; one that has two connections is there twice."""
        return [client.client_id for client in self.members.values()]

    @property
    def subscriptions_bytes(self) -> int:
        """About how much memory the subscriptions take."""
        return _all_bytes(self.subscriptions)

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take what a member subscribes; whether a topic came or went.

        The later version of a topic's subscription counts, whichever member sent it.
        """
        before, self.subscriptions = self.subscriptions, _subscribed(self.subscriptions, wanted)
        return before.keys() != self.subscriptions.keys()


@attrs.define(eq=False, repr=False)
class ConsumerGroups(Generic[ChannelT]):
    """The groups with members. Each change returns the groups that must be told (NOTIFY_CONSUMER_IDS_CHANGED)."""

    groups: dict[str, ConsumerGroup[ChannelT]] = attrs.field(factory=dict, init=False)
    #: Members of all groups, and about how much memory all subscriptions take.
    memberships: int = attrs.field(default=0, init=False)
    subscriptions_bytes: int = attrs.field(default=0, init=False)
    #: The groups of each channel, in the order in which it came.
    _of_channel: dict[ChannelT, dict[str, None]] = attrs.field(factory=dict, init=False)

    def added_by(self, channel: ChannelT, consumers: Iterable[ConsumerData]) -> tuple[int, int]:
        """How many memberships a heartbeat would add, and how many bytes of subscriptions: fewer than 0 if some go."""
        added_bytes = 0
        # A heartbeat may name a group twice.
        after: dict[str, Mapping[str, SubscriptionData]] = {}
        for data in consumers:
            group = self.groups.get(data.group_name)
            before = after.get(data.group_name, {} if group is None else group.subscriptions)
            after[data.group_name] = subscribed = _subscribed(before, data.subscription_data_set)
            added_bytes += _all_bytes(subscribed) - _all_bytes(before)
        memberships = sum(name not in self.groups or channel not in self.groups[name].members for name in after)
        return memberships, added_bytes

    def register(self, channel: ChannelT, client: Client, data: ConsumerData) -> bool:
        """A heartbeat names a group; whether its members or subscriptions are others now."""
        group = self.groups.setdefault(data.group_name, ConsumerGroup())
        self.memberships += channel not in group.members
        before_bytes = group.subscriptions_bytes
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        is_new = channel not in group.members
        group.members[channel] = client
        self._of_channel.setdefault(channel, {})[data.group_name] = None
        has_changed = group.subscribe(data.subscription_data_set)
        self.subscriptions_bytes += group.subscriptions_bytes - before_bytes
        return has_changed or is_new

    def unregister(self, channel: ChannelT, group_name: str) -> bool:
        """A client leaves a group; whether it was in it."""
        group = self.groups.get(group_name)
        if group is None or group.members.pop(channel, None) is None:
            return False
        self.memberships -= 1
        _forget(self._of_channel, channel, group_name)
        if not group.members:
            del self.groups[group_name]
            self.subscriptions_bytes -= group.subscriptions_bytes
        return True

    def closed(self, channel: ChannelT) -> list[str]:
        """A connection has ended; the groups that it was in."""
        return [name for name in list(self._of_channel.get(channel, ())) if self.unregister(channel, name)]

    def members(self, group_name: str) -> Sequence[ChannelT]:
        """The channels of a group."""
        group = self.groups.get(group_name)
        return () if group is None else tuple(group.members)

    def clients(self) -> Iterator[tuple[ChannelT, Client]]:
        """Every member of every group."""
        for group in self.groups.values():
            yield from group.members.items()


@attrs.define(eq=False, repr=False)
class ProducerGroups(Generic[ChannelT]):
    """The producer groups, each with its clients.

    A group whose last client did not leave it, but lost its connection, is remembered without clients, as RocketMQ
    does, which never forgets it: the latest `LOST_GROUPS_MAX` of them.
    """

    groups: dict[str, dict[ChannelT, Client]] = attrs.field(factory=dict, init=False)
    #: Members of all groups.
    memberships: int = attrs.field(default=0, init=False)
    #: By client id the channel of its last heartbeat: each one is in at least one group.
    _channels: dict[str, ChannelT] = attrs.field(factory=dict, init=False)
    #: The groups of each channel, in the order in which it came.
    _of_channel: dict[ChannelT, dict[str, None]] = attrs.field(factory=dict, init=False)
    #: The names of the groups that lost their last client, the oldest first.
    _lost: dict[str, None] = attrs.field(factory=dict, init=False)

    def members(self, group_name: str) -> Mapping[ChannelT, Client] | None:
        """The clients of a group; none for one that lost them, None for one that nobody has named."""
        return self.groups.get(group_name, {} if group_name in self._lost else None)

    def register(self, channel: ChannelT, client: Client, group_name: str) -> None:
        """A heartbeat names a group."""
        self._lost.pop(group_name, None)
        members = self.groups.setdefault(group_name, {})
        self.memberships += channel not in members
        members[channel] = client
        self._of_channel.setdefault(channel, {})[group_name] = None
        self._channels[client.client_id] = channel

    def added_by(self, channel: ChannelT, group_names: Iterable[str]) -> int:
        """How many memberships a heartbeat would add."""
        return sum(channel not in self.groups.get(name, ()) for name in group_names)

    def unregister(self, channel: ChannelT, group_name: str) -> None:
        """A client leaves a group."""
        members = self.groups.get(group_name, {})
        client = members.pop(channel, None)
        self.memberships -= client is not None
        if not members:
            self.groups.pop(group_name, None)
        _forget(self._of_channel, channel, group_name)
        if client is None or channel in self._of_channel:
            return
        if self._channels.get(client.client_id) is channel:
            del self._channels[client.client_id]

    def closed(self, channel: ChannelT) -> None:
        """A connection has ended."""
        for name in list(self._of_channel.get(channel, ())):
            self.unregister(channel, name)
            if name not in self.groups:
                self._lost[name] = None
        while len(self._lost) > LOST_GROUPS_MAX:
            del self._lost[next(iter(self._lost))]

    def clients(self) -> Iterator[tuple[ChannelT, Client]]:
        """Every client of every group."""
        for members in self.groups.values():
            yield from members.items()

    def find_channel(self, client_id: str) -> ChannelT | None:
        """The channel on which a client was heard of last; None if no producer has this id."""
        return self._channels.get(client_id)


def _forget(of_channel: dict[ChannelT, dict[str, None]], channel: ChannelT, group_name: str) -> None:
    groups = of_channel.get(channel, {})
    groups.pop(group_name, None)
    if not groups:
        of_channel.pop(channel, None)


def _subscribed(
    known: Mapping[str, SubscriptionData], wanted: Iterable[SubscriptionData]
) -> dict[str, SubscriptionData]:
    """What a group subscribes after a member has said what it does, by topic."""
    asked = {each.topic: each for each in wanted}
    subscribed = {topic: each for topic, each in known.items() if topic in asked}
    for topic, each in asked.items():
        if topic not in subscribed or each.sub_version > subscribed[topic].sub_version:
            subscribed[topic] = each
    return subscribed


def _all_bytes(subscriptions: Mapping[str, SubscriptionData]) -> int:
    return sum(map(_size_bytes, subscriptions.values()))


def _size_bytes(subscription: SubscriptionData) -> int:
    texts = (subscription.topic, subscription.sub_string or "", subscription.expression_type, *subscription.tags_set)
    return _SUBSCRIPTION_AROUND_BYTES + sum(map(len, texts)) + 64 * len(texts) + 8 * len(subscription.code_set)


def expired(clients: Iterable[tuple[ChannelT, Client]], now_s: float) -> set[ChannelT]:
    """The channels without a heartbeat for too long: close them."""
    return {channel for channel, client in clients if now_s - client.heard_of_s > EXPIRED_S}
