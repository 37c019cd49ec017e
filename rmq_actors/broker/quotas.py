"""How much clients may have a broker keep for them: topics, groups, offsets, and what heartbeats tell.

    a request that adds something --> is there room? --> it is made
                                            |
                                            no: refused, the remark names the setting and its value

What is there already is never refused, and never removed: a quota that is lowered stops growth. Tables that a slave
copies are its master's, whatever its own quotas are. RocketMQ has no such settings: there anybody who reaches the port
fills the broker's memory and its disk with names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import attrs

from rmq_actors.protocols.send_rules import GROUP_CHARS_MAX
from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.bodies.heartbeat import HeartbeatData

_AT_LEAST_1 = attrs.validators.ge(1)
_AT_LEAST_0 = attrs.validators.ge(0)
#: The longest name of a client: an address and what its program adds.
CLIENT_ID_CHARS_MAX = 1_024
#: How much of a refused name is shown.
_SHOWN_CHARS = 100


class QuotaReached(ValueError):
    """Something would be added to a table that is as large as its setting allows; the text names both."""


class Room(NamedTuple):
    """How many entries a table may have, by the setting of this name."""

    key: str
    most: int

    def check(self, present: int, added: int, what: str) -> None:
        """Raise `QuotaReached` if `added` more do not fit."""
        if added > 0 and present + added > self.most:
            raise QuotaReached(f"{self.key}={self.most}: there are {present} {what}, and no more are made")

    def check_name(self, name: str, table: Collection[str], what: str) -> None:
        """Raise `QuotaReached` if a name that is not in the table does not fit."""
        self.check(len(table), int(name not in table), what)


@attrs.frozen(field_transformer=typed_fields)
class Quotas:
    """Raises `ValueError` naming the field that is out of range."""

    #: How many topics there may be, those of retries and dead letters included. One more is refused, whoever asks. All
    #: of them must fit into one registration with the name servers.
    topics_max: int = attrs.field(default=50_000, validator=_AT_LEAST_1)
    #: With so many topics, sending to a topic that is missing makes it no more; operators still make topics. Fewer
    #: leave a client that sends to random names less of the table.
    auto_create_topics_max: int = attrs.field(default=20_000, validator=_AT_LEAST_0)
    #: How many consumer groups there may be, whoever makes them.
    subscription_groups_max: int = attrs.field(default=50_000, validator=_AT_LEAST_1)
    #: With so many groups, a client that names a missing one makes it no more; operators still make groups.
    auto_create_subscription_groups_max: int = attrs.field(default=20_000, validator=_AT_LEAST_0)
    #: How many offsets consumers may have committed: one for each group, topic and queue. A new one is refused, those
    #: that are there go on. All must fit into one answer to a slave, so with long names there are fewer.
    consumer_offsets_max: int = attrs.field(default=500_000, validator=_AT_LEAST_1)
    #: How many memberships in producer and consumer groups connections may have in all: each is one group of one
    #: client. A heartbeat that would add more is refused as a whole.
    client_groups_max: int = attrs.field(default=200_000, validator=_AT_LEAST_1)
    #: How much memory subscriptions may take in all: their text, and 256 bytes for each. A heartbeat that would add
    #: more is refused as a whole.
    subscriptions_max_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_AT_LEAST_1)

    def topics(self, *, asked_by_operator: bool) -> Room:
        """The room for topics."""
        if asked_by_operator or self.topics_max <= self.auto_create_topics_max:
            return Room("topicsMax", self.topics_max)
        return Room("autoCreateTopicsMax", self.auto_create_topics_max)

    def groups(self, *, asked_by_operator: bool) -> Room:
        """The room for consumer groups."""
        if asked_by_operator or self.subscription_groups_max <= self.auto_create_subscription_groups_max:
            return Room("subscriptionGroupsMax", self.subscription_groups_max)
        return Room("autoCreateSubscriptionGroupsMax", self.auto_create_subscription_groups_max)

    @property
    def offsets(self) -> Room:
        """The room for offsets."""
        return Room("consumerOffsetsMax", self.consumer_offsets_max)


def check_heartbeat(data: HeartbeatData) -> None:
    """Raise `QuotaReached` for names that are too long to be kept; no client of RocketMQ has such."""
    if len(data.client_id) > CLIENT_ID_CHARS_MAX:
        raise QuotaReached(
            f"client {data.client_id[:_SHOWN_CHARS]!r}...: its id has {len(data.client_id)} characters, at most "
            f"{CLIENT_ID_CHARS_MAX} are kept"
        )
    for name in _groups(data):
        if len(name) > GROUP_CHARS_MAX:
            raise QuotaReached(
                f"group {name[:_SHOWN_CHARS]!r}...: its name has {len(name)} characters, at most {GROUP_CHARS_MAX} "
                "are kept"
            )


def _groups(data: HeartbeatData) -> Iterable[str]:
    yield from (consumer.group_name for consumer in data.consumer_data_set)
    yield from (producer.group_name for producer in data.producer_data_set)
