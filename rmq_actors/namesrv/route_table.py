"""Which broker has which topic (RouteInfoManager): pure, time is an argument in seconds, connections are numbers.

Every answer follows from the *live* brokers: those that are registered, were heard of within
`broker_channel_expired_time`, and have an open connection. Nothing else is kept that could disagree with them, so the
end of a registration removes that broker and touches no other. RocketMQ keeps separate tables by name, id and address,
and the late end of an old owner removes the new one (#5374, #11043).

If several live addresses have one name and id, the one that claimed it last is routed (for brokers of 5.x, the one with
the highest stateVersion comes first). A claim begins with a registration and lasts until the address unregisters or
changes its name or id; registering again, reconnecting or expiring makes no new claim. So a master that was replaced
while nobody could reach it does not displace its successor when it is back. A broker that had the place for
`broker_channel_expired_time` without a break has claimed it again: one that was away for that long was replaced.

A request over a connection that is older than the one by which a broker registered is late: that process is gone.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

import attrs
import msgspec

from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.bodies.routes import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper

MASTER_ID = 0

_PERM_READ = 4
_PERM_WRITE = 2
_UNIT_FLAG = 1
_UNIT_SUB_FLAG = 2

#: Topics that every broker of 4.x and 5.x makes when it starts, and that nobody can create. A table with them is
#: complete; one without them has only the topics that changed (registerIncrementBrokerData).
_IN_WHOLE_TABLES = frozenset({"SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"})

_POSITIVE = attrs.validators.ge(1)


class RouteTableFull(ValueError):
    """A registration would exceed a limit, which the message names. Nothing was changed."""


@attrs.frozen(field_transformer=typed_fields)
class RouteTableLimits:
    """How much brokers may register; what would be more is refused, and the routes stay as they are."""

    #: Addresses of brokers.
    brokers_max: int = attrs.field(default=10_000, validator=_POSITIVE)
    #: Topics, of all brokers together.
    topics_max: int = attrs.field(default=100_000, validator=_POSITIVE)
    #: Topics, counted once for each broker name that has them.
    queue_datas_max: int = attrs.field(default=1_000_000, validator=_POSITIVE)
    #: Filter servers of one broker, which routes repeat to clients.
    filter_servers_max: int = attrs.field(default=64, validator=attrs.validators.ge(0))
    #: The longest name of a cluster, a broker, a topic or an address, in characters.
    name_length_max: int = attrs.field(default=512, validator=_POSITIVE)


class BrokerIdentity(TypedDict):
    """The fields of a `Broker`."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str


@attrs.frozen
class Broker:
    """What a process at an address says that it is."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str

    def __str__(self) -> str:
        return f"{self.broker_name} id {self.broker_id} of {self.cluster_name} at {self.broker_addr}"

    @property
    def identity(self) -> BrokerIdentity:
        """Its fields, as a name server's events have them."""
        return BrokerIdentity(
            cluster_name=self.cluster_name,
            broker_name=self.broker_name,
            broker_id=self.broker_id,
            broker_addr=self.broker_addr,
        )


@attrs.define(eq=False, repr=False)
class BrokerLiveInfo:
    """A live broker. `conn_id`: the newest connection that it was heard by."""

    broker: Broker
    data_version: DataVersion
    conn_id: int
    ha_server_addr: str
    filter_servers: Sequence[str]
    claim: int
    last_update_s: float
    #: Since when it was routed whenever it was heard of; None if it was not, the last time.
    routed_since_s: float | None = None

    @property
    def precedence(self) -> tuple[int, int]:
        """The highest of those with one name and id is routed."""
        return self.data_version.state_version or 0, self.claim


class Outcome(enum.Enum):
    """What became of a registration."""

    NEW = "new"
    RENEWED = "renewed"
    #: It came over a connection that is older than the one by which the broker registered since: nothing was changed.
    LATE = "late"


@attrs.frozen
class RegisterBrokerResult:
    """The answer to a registration: where the master is, unless it asks itself or there is none."""

    outcome: Outcome
    ha_server_addr: str | None = None
    master_addr: str | None = None
    #: The address that has the broker's name and id in the routes, if it is another one.
    superseded_by: str | None = None


@attrs.frozen
class _Claim:
    broker_name: str
    broker_id: int
    number: int


@attrs.frozen
class _Table:
    """Whose topics a name has in the routes, and which version of them."""

    broker_addr: str
    data_version: DataVersion
    is_whole: bool
    #: Topics whose permission an operator has changed since they were registered.
    perm_changed: dict[str, None] = attrs.field(factory=dict, eq=False)

    def is_of(self, broker_addr: str, data_version: DataVersion) -> bool:
        return self.broker_addr == broker_addr and self.data_version == data_version


@attrs.define(eq=False, repr=False)
class _Name:
    """Everything under one broker name: live brokers by id and address, and the topics."""

    ids: dict[int, dict[str, BrokerLiveInfo]] = attrs.field(factory=dict)
    topics: dict[str, None] = attrs.field(factory=dict)
    table: _Table | None = None

    def routed(self, broker_id: int) -> BrokerLiveInfo | None:
        rivals = self.ids.get(broker_id)
        return max(rivals.values(), key=lambda info: info.precedence) if rivals else None

    def all_routed(self) -> Iterator[BrokerLiveInfo]:
        """The routed broker of each id, the lowest id first."""
        for broker_id in sorted(self.ids):
            info = self.routed(broker_id)
            assert info is not None
            yield info


@attrs.define(eq=False, repr=False)
class RouteInfoManager:
    """The route table of one name server. `expired_s`: how long a silent broker stays in it.

    Longer than 300 lines because its tables change together: each registration, loss of a connection and command is
    one method that keeps them in agreement, beside the answers that are made of them.
    """

    expired_s: float
    limits: RouteTableLimits = RouteTableLimits()
    #: Whether a whole table of a master removes the topics that it lacks; the key is of RocketMQ 5.
    delete_topic_with_broker_registration: bool = True
    #: By address; the one that has been silent for longest comes first.
    _live: dict[str, BrokerLiveInfo] = attrs.field(factory=dict, init=False)
    _by_connection: dict[int, dict[str, None]] = attrs.field(factory=dict, init=False)
    _names: dict[str, _Name] = attrs.field(factory=dict, init=False)
    _topics: dict[str, dict[str, QueueData]] = attrs.field(factory=dict, init=False)
    _queue_datas: int = attrs.field(default=0, init=False)
    #: By address, which has one claim at a time; the last one that registered comes last.
    _claims: dict[str, _Claim] = attrs.field(factory=dict, init=False)
    _next_claim: int = attrs.field(default=1, init=False)

    # --- registrations ------------------------------------------------------------------------------------------------

    def register_broker(
        self,
        broker: Broker,
        ha_server_addr: str,
        topics: TopicConfigSerializeWrapper,
        filter_servers: Sequence[str] | None,
        *,
        conn_id: int,
        now: float,
    ) -> RegisterBrokerResult:
        """Take a registration; `filter_servers` None leaves them as they are.

        Raises `RouteTableFull`; then a live broker stays as it was, but counts as heard of.
        """
        live = self._live.get(broker.broker_addr)
        if live is not None and conn_id < live.conn_id:
            return self._result(broker, Outcome.LATE)
        try:
            self._check_broker(broker, ha_server_addr, filter_servers)
            if broker.broker_id == MASTER_ID:
                self._check_topics(broker.broker_name, topics.topic_config_table)
        except RouteTableFull:
            if live is not None and live.broker == broker:
                self._hear(live, conn_id, now)
            raise
        is_renewed = live is not None and live.broker == broker
        if live is not None:
            self._forget(live)
            if filter_servers is None:
                filter_servers = live.filter_servers
        claim = self._claim(broker)
        info = BrokerLiveInfo(broker, topics.data_version, conn_id, ha_server_addr, filter_servers or (), claim, now)
        self._remember(info)
        name = self._names.setdefault(broker.broker_name, _Name())
        name.ids.setdefault(broker.broker_id, {})[broker.broker_addr] = info
        if live is not None and live.broker != broker:
            self._detach(live)  # the same process had another name or id
        if broker.broker_id == MASTER_ID and name.routed(MASTER_ID) is info:
            self._take_topics(name, broker, topics)
        info.routed_since_s = live.routed_since_s if live is not None and is_renewed else None
        self._note_place(info, now)
        return self._result(broker, Outcome.RENEWED if is_renewed else Outcome.NEW)

    def query_data_version(
        self, broker: Broker, data_version: DataVersion | None, *, conn_id: int, now: float
    ) -> tuple[bool, DataVersion | None]:
        """Whether a broker should register because it, or its topics, changed; and which version of them is known.

        If it need not, it counts as heard of. It should if it is another broker now (#3381), or if not all its topics
        are known as they are.
        """
        live = self._live.get(broker.broker_addr)
        if live is None:
            return True, None
        changed = live.broker != broker or live.data_version != data_version
        name = self._names[live.broker.broker_name]
        if broker.broker_id == MASTER_ID and name.routed(MASTER_ID) is live:
            table = name.table
            changed |= table is None or not table.is_whole or not table.is_of(broker.broker_addr, live.data_version)
        if not changed and conn_id >= live.conn_id:
            self._hear(live, conn_id, now)
        return changed, live.data_version

    def unregister_broker(self, broker: Broker, *, conn_id: int) -> bool:
        """Remove exactly this broker; whether it was there. A late request removes nothing."""
        live = self._live.get(broker.broker_addr)
        if live is None or live.broker != broker or conn_id < live.conn_id:
            return False
        self._end(live)
        del self._claims[broker.broker_addr]
        return True

    def connection_closed(self, conn_id: int) -> list[Broker]:
        """Remove the brokers that were heard last over a connection that ended."""
        ended = [self._live[address] for address in self._by_connection.get(conn_id, ())]
        for live in ended:
            self._end(live)
        return [live.broker for live in ended]

    def expire(self, now: float) -> list[BrokerLiveInfo]:
        """Remove the brokers that were silent for `expired_s`."""
        expired = []
        while self.next_expiry_s() <= now:
            live = next(iter(self._live.values()))
            self._end(live)
            expired.append(live)
        return expired

    def next_expiry_s(self) -> float:
        """When `expire` has something to do, if no broker is heard of until then; infinity without brokers."""
        for live in self._live.values():
            return live.last_update_s + self.expired_s
        return math.inf

    def is_used(self, conn_id: int) -> bool:
        """Whether a live broker was heard last over this connection."""
        return conn_id in self._by_connection

    @property
    def broker_count(self) -> int:
        """How many brokers are live."""
        return len(self._live)

    # --- routes -------------------------------------------------------------------------------------------------------

    def pick_topic_route_data(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        """Where a topic is (pickupTopicRouteData); None if no broker has it."""
        queue_datas = self._topics.get(topic)
        if queue_datas is None:
            return None
        names = sorted(queue_datas)
        filter_servers = {
            info.broker.broker_addr: list(info.filter_servers)
            for name in names
            for info in self._names[name].all_routed()
            if info.filter_servers
        }
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in names],
            filter_server_table=filter_servers,
            order_topic_conf=order_topic_conf,
            queue_datas=[queue_datas[name] for name in names],
        )

    def all_cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._names):
            for cluster in self._clusters_of(name):
                clusters.setdefault(cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in sorted(self._names)},
            cluster_addr_table={cluster: clusters[cluster] for cluster in sorted(clusters)},
        )

    def all_topics(self) -> TopicList:
        """Every topic that a broker has."""
        return _topic_list(self._topics)

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The topics of a cluster's brokers; none for a cluster that nobody knows."""
        return _topic_list(topic for name in self._names_of(cluster) for topic in self._names[name].topics)

    def system_topics(self) -> TopicList:
        """The names of clusters and brokers, each of which is a topic too, and the address of some broker."""
        info = self.all_cluster_info()
        addresses = [addr for data in info.broker_addr_table.values() for addr in data.broker_addrs.values()]
        topics = _topic_list([*info.cluster_addr_table, *info.broker_addr_table])
        return msgspec.structs.replace(topics, broker_addr=addresses[0] if addresses else None)

    def unit_topics(self) -> TopicList:
        """Topics with the unit flag."""
        return self._topics_with(_UNIT_FLAG, _UNIT_FLAG)

    def has_unit_sub_topics(self) -> TopicList:
        """Topics with the flag of a unit's subscription."""
        return self._topics_with(_UNIT_SUB_FLAG, _UNIT_SUB_FLAG)

    def has_unit_sub_un_unit_topics(self) -> TopicList:
        """Topics with that flag and without the unit flag."""
        return self._topics_with(_UNIT_FLAG | _UNIT_SUB_FLAG, _UNIT_SUB_FLAG)

    # --- what administrators do ---------------------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Remove a topic from the routes, of one cluster or of all; from how many broker names.

        A master that still has it brings it back when the version of its topics changes.
        """
        rows = self._topics.get(topic, {})
        names = [name for name in rows if cluster is None or cluster in self._clusters_of(name)]
        for name in names:
            self._remove_row(name, topic)
        return len(names)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Forbid writes to these brokers; how many topics they have. It lasts until their topics change."""
        return self._change_perm(broker_name, lambda perm: perm & ~_PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reads and writes at these brokers; how many topics they have."""
        return self._change_perm(broker_name, lambda _: _PERM_READ | _PERM_WRITE)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check_broker(self, broker: Broker, ha_server_addr: str, filter_servers: Sequence[str] | None) -> None:
        limits = self.limits
        texts = {
            "clusterName": broker.cluster_name,
            "brokerName": broker.broker_name,
            "brokerAddr": broker.broker_addr,
            "haServerAddr": ha_server_addr,
            **{f"filterServerList[{index}]": text for index, text in enumerate(filter_servers or ())},
        }
        for what, text in texts.items():
            self._check_length(what, text)
        if filter_servers is not None and len(filter_servers) > limits.filter_servers_max:
            raise RouteTableFull(
                f"{len(filter_servers)} filter servers of one broker: at most {limits.filter_servers_max} are kept"
            )
        if broker.broker_addr not in self._live and len(self._live) >= limits.brokers_max:
            raise RouteTableFull(f"{broker.broker_addr} is one too many: {limits.brokers_max} brokers are registered")

    def _check_length(self, what: str, text: str) -> None:
        if len(text) > self.limits.name_length_max:
            raise RouteTableFull(
                f"{what} has {len(text)} characters, at most {self.limits.name_length_max} are kept: {text[:40]!r}..."
            )

    def _check_topics(self, broker_name: str, table: Mapping[str, TopicConfig]) -> None:
        limits = self.limits
        topics = rows = 0
        for topic in table:
            self._check_length("a topic", topic)
            known = self._topics.get(topic)
            topics += known is None
            rows += known is None or broker_name not in known
        if len(self._topics) + topics > limits.topics_max:
            raise RouteTableFull(f"{broker_name} has {topics} new topics: at most {limits.topics_max} are kept")
        if self._queue_datas + rows > limits.queue_datas_max:
            raise RouteTableFull(
                f"{broker_name} has {rows} more topics: at most {limits.queue_datas_max} are kept of all brokers"
            )

    def _claim(self, broker: Broker) -> int:
        """The number of a broker's present claim, or of a new one."""
        claim = self._claims.get(broker.broker_addr)
        if claim is not None and (claim.broker_name, claim.broker_id) == (broker.broker_name, broker.broker_id):
            self._claims[broker.broker_addr] = self._claims.pop(broker.broker_addr)
            return claim.number
        return self._claim_again(broker)

    def _claim_again(self, broker: Broker) -> int:
        claim = _Claim(broker.broker_name, broker.broker_id, self._next_claim)
        self._next_claim += 1
        self._claims.pop(broker.broker_addr, None)
        self._claims[broker.broker_addr] = claim
        if len(self._claims) > 2 * self.limits.brokers_max:
            del self._claims[next(address for address in self._claims if address not in self._live)]
        return claim.number

    def _note_place(self, info: BrokerLiveInfo, now: float) -> None:
        """A broker was heard of: note whether it is routed, and since when."""
        name = self._names[info.broker.broker_name]
        if name.routed(info.broker.broker_id) is not info:
            info.routed_since_s = None
        elif info.routed_since_s is None:
            for rival in name.ids[info.broker.broker_id].values():
                rival.routed_since_s = None
            info.routed_since_s = now
        elif now - info.routed_since_s >= self.expired_s:
            info.claim, info.routed_since_s = self._claim_again(info.broker), now

    def _result(self, broker: Broker, outcome: Outcome) -> RegisterBrokerResult:
        name = self._names.get(broker.broker_name) or _Name()
        routed, master = name.routed(broker.broker_id), name.routed(MASTER_ID)
        superseded_by = None
        if routed is not None and routed.broker.broker_addr != broker.broker_addr:
            superseded_by = routed.broker.broker_addr
        if broker.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult(outcome, superseded_by=superseded_by)
        return RegisterBrokerResult(outcome, master.ha_server_addr, master.broker.broker_addr, superseded_by)

    def _remember(self, info: BrokerLiveInfo) -> None:
        address = info.broker.broker_addr
        self._live[address] = info
        self._by_connection.setdefault(info.conn_id, {})[address] = None

    def _forget(self, info: BrokerLiveInfo) -> None:
        address = info.broker.broker_addr
        del self._live[address]
        addresses = self._by_connection[info.conn_id]
        del addresses[address]
        if not addresses:
            del self._by_connection[info.conn_id]

    def _hear(self, info: BrokerLiveInfo, conn_id: int, now: float) -> None:
        """A broker was heard of, and has not changed."""
        self._forget(info)
        info.conn_id, info.last_update_s = conn_id, now
        self._remember(info)
        self._note_place(info, now)

    def _end(self, info: BrokerLiveInfo) -> None:
        """A broker is no longer live. Its claim stays."""
        self._forget(info)
        self._detach(info)

    def _detach(self, info: BrokerLiveInfo) -> None:
        """Remove a broker from its name and id, and the topics from a name that no broker has any more."""
        broker = info.broker
        name = self._names[broker.broker_name]
        rivals = name.ids[broker.broker_id]
        if rivals[broker.broker_addr] is info:
            del rivals[broker.broker_addr]
        if not rivals:
            del name.ids[broker.broker_id]
        if name.table is not None and name.table.broker_addr == broker.broker_addr:
            name.table = None
        if not name.ids:
            for topic in tuple(name.topics):
                self._remove_row(broker.broker_name, topic)
            del self._names[broker.broker_name]

    def _take_topics(self, name: _Name, broker: Broker, topics: TopicConfigSerializeWrapper) -> None:
        """The routed master's topics become those of its name, unless all of this version are known.

        A permission that an operator changed survives incremental tables without its topic, and the complete table
        after them.
        """
        version, table = topics.data_version, topics.topic_config_table
        before = name.table if name.table is not None and name.table.broker_addr == broker.broker_addr else None
        known = before if before is not None and before.data_version == version else None
        if known is not None and known.is_whole:
            return
        is_whole = table.keys() >= _IN_WHOLE_TABLES
        changed = known.perm_changed if known is not None else {}
        for topic, config in table.items():
            if topic not in changed or topic not in name.topics:
                self._put_row(name, broker.broker_name, topic, config)
        if is_whole and self.delete_topic_with_broker_registration:
            for topic in [topic for topic in name.topics if topic not in table]:
                self._remove_row(broker.broker_name, topic)
        if known is None and before is not None and not is_whole:
            changed = {topic: None for topic in before.perm_changed if topic not in table}
        name.table = _Table(broker.broker_addr, version, is_whole, changed)

    def _put_row(self, name: _Name, broker_name: str, topic: str, config: TopicConfig) -> None:
        rows = self._topics.setdefault(topic, {})
        self._queue_datas += broker_name not in rows
        rows[broker_name] = QueueData(
            broker_name=broker_name,
            perm=config.perm,
            read_queue_nums=config.read_queue_nums,
            topic_sys_flag=config.topic_sys_flag,
            write_queue_nums=config.write_queue_nums,
        )
        name.topics[topic] = None

    def _remove_row(self, broker_name: str, topic: str) -> None:
        rows = self._topics[topic]
        del rows[broker_name]
        self._queue_datas -= 1
        if not rows:
            del self._topics[topic]
        del self._names[broker_name].topics[topic]

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        name = self._names.get(broker_name)
        if name is None:
            return 0
        for topic in name.topics:
            if name.table is not None:
                name.table.perm_changed[topic] = None
            rows = self._topics[topic]
            rows[broker_name] = msgspec.structs.replace(rows[broker_name], perm=change(rows[broker_name].perm))
        return len(name.topics)

    def _broker_data(self, broker_name: str) -> BrokerData:
        routed = [info.broker for info in self._names[broker_name].all_routed()]
        return BrokerData(
            broker_addrs={broker.broker_id: broker.broker_addr for broker in routed},
            broker_name=broker_name,
            cluster=routed[0].cluster_name,
        )

    def _clusters_of(self, broker_name: str) -> dict[str, None]:
        return {info.broker.cluster_name: None for info in self._names[broker_name].all_routed()}

    def _names_of(self, cluster: str) -> list[str]:
        return [name for name in self._names if cluster in self._clusters_of(name)]

    def _topics_with(self, mask: int, flags: int) -> TopicList:
        return _topic_list(
            topic
            for topic, rows in self._topics.items()
            if any(row.topic_sys_flag & mask == flags for row in rows.values())
        )


def _topic_list(topics: Iterable[str]) -> TopicList:
    return TopicList(topic_list=sorted(set(topics)))
