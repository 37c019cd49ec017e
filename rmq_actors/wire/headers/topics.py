"""Headers about topics, at brokers and at name servers."""

from __future__ import annotations

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32

_TOPIC_FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})


class CreateTopicRequestHeader(CommandHeader, frozen=True):
    """Creates a topic at a broker, or changes it. `order` may be absent: not every client sends it."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False

    def __post_init__(self) -> None:
        if self.topic_filter_type not in _TOPIC_FILTER_TYPES:
            raise ValueError(f"topicFilterType is neither SINGLE_TAG nor MULTI_TAG: {self.topic_filter_type[:80]!r}")


class DeleteTopicRequestHeader(CommandHeader, frozen=True):
    """Removes a topic from a broker."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(CommandHeader, frozen=True):
    """Removes a topic from the routes, of one cluster or of all."""

    topic: str
    cluster_name: str | None = None


class GetTopicStatsInfoRequestHeader(CommandHeader, frozen=True):
    """Asks a broker for the bounds of each queue of a topic."""

    topic: str


class GetTopicsByClusterRequestHeader(CommandHeader, frozen=True):
    """Asks a name server for the topics of a cluster."""

    cluster: str


class GetRouteInfoRequestHeader(CommandHeader, frozen=True):
    """Asks a name server for the route of a topic, in standard JSON when `accept_standard_json_only`."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterOrderTopicRequestHeader(CommandHeader, frozen=True):
    """The queues of an ordered topic. RocketMQ has it and no request code for it."""

    topic: str
    order_topic_string: str
