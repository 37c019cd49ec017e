"""What a name server answers: routes (TopicRouteData), the brokers of clusters, lists of topics, tables of text."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class QueueData(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """The queues that one topic has on one broker."""

    broker_name: str
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0


class BrokerData(RemotingSerializable, frozen=True, kw_only=True):
    """The addresses ("host:port") of the brokers with one name, by brokerId; 0 is the master."""

    broker_addrs: dict[Int64, str] = field(default_factory=dict)
    broker_name: str
    cluster: str | None = None


class TopicRouteData(RemotingSerializable, frozen=True, kw_only=True):
    """Where a topic is. `filter_server_table`: the filter servers of a broker, by the broker's address."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)


class ClusterInfo(RemotingSerializable, frozen=True, kw_only=True):
    """All brokers, by name, and the names of the brokers of each cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class TopicList(RemotingSerializable, frozen=True, kw_only=True):
    """Names of topics."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class KVTable(RemotingSerializable, frozen=True, kw_only=True):
    """Text by text: the configuration of a name space, or what a broker says of itself."""

    table: dict[str, str] = field(default_factory=dict)
