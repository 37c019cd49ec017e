"""The route table against lists: whatever brokers do in whatever order, routes follow from those who are live."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmq_actors.namesrv.route_table import Broker, Outcome, RouteInfoManager
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper

EXPIRED_S = 120.0
SYSTEM_TOPICS = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
TOPICS = ("A", "B", "C")

ADDRESSES = st.sampled_from(["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"])
BROKERS = st.builds(
    Broker,
    cluster_name=st.sampled_from(["c1", "c1", "c2"]),
    broker_name=st.sampled_from(["broker-a", "broker-b"]),
    broker_id=st.sampled_from([0, 0, 1, 2]),
    broker_addr=ADDRESSES,
)
VERSIONS = st.builds(
    DataVersion,
    counter=st.integers(0, 3),
    timestamp=st.just(7),
    state_version=st.sampled_from([None, None, 0, 1]),
)
PERMS = st.dictionaries(st.sampled_from(TOPICS), st.integers(4, 7))


@st.composite
def tables(draw: st.DrawFn) -> TopicConfigSerializeWrapper:
    """What a broker registers: all its topics, or a few of them."""
    perms = draw(PERMS) | dict.fromkeys(SYSTEM_TOPICS if draw(st.booleans()) else (), 6)
    return TopicConfigSerializeWrapper(
        data_version=draw(VERSIONS),
        topic_config_table={topic: TopicConfig(topic_name=topic, perm=perm) for topic, perm in perms.items()},
    )


@attrs.define
class Live:
    broker: Broker
    version: DataVersion
    conn_id: int
    heard_s: float
    claim: int
    routed_since_s: float | None = None


@attrs.define
class Model:
    """Brokers as a list.

    `topics`: permission by topic, for each name; `table`: whose, which version, whether whole; `perm_changed`: topics
    of that table with an operator's permission.
    """

    live: list[Live] = attrs.field(factory=list)
    claims: dict[str, tuple[str, int, int]] = attrs.field(factory=dict)
    topics: dict[str, dict[str, int]] = attrs.field(factory=dict)
    table: dict[str, tuple[str, DataVersion, bool]] = attrs.field(factory=dict)
    perm_changed: dict[str, set[str]] = attrs.field(factory=dict)

    def at(self, address: str) -> Live | None:
        return next((live for live in self.live if live.broker.broker_addr == address), None)

    def routed(self, name: str, broker_id: int) -> Live | None:
        rivals = [live for live in self.live if (live.broker.broker_name, live.broker.broker_id) == (name, broker_id)]
        return max(rivals, key=lambda live: (live.version.state_version or 0, live.claim), default=None)

    def routes(self, name: str) -> dict[int, str]:
        ids = sorted({live.broker.broker_id for live in self.live if live.broker.broker_name == name})
        found = {broker_id: self.routed(name, broker_id) for broker_id in ids}
        return {broker_id: live.broker.broker_addr for broker_id, live in found.items() if live is not None}

    def remove(self, gone: list[Live]) -> None:
        self.live = [live for live in self.live if live not in gone]
        for live in gone:
            name, address = live.broker.broker_name, live.broker.broker_addr
            if name in self.table and self.table[name][0] == address:
                del self.table[name]
        self.clean()

    def clean(self) -> None:
        for name in [name for name in self.topics if not self.routes(name)]:
            del self.topics[name]

    def register(self, broker: Broker, topics: TopicConfigSerializeWrapper, conn_id: int, now: float) -> Outcome:
        before = self.at(broker.broker_addr)
        if before is not None and conn_id < before.conn_id:
            return Outcome.LATE
        claim = self.claims.get(broker.broker_addr)
        if claim is None or claim[:2] != (broker.broker_name, broker.broker_id):
            claim = (broker.broker_name, broker.broker_id, self.next_claim())
            self.claims[broker.broker_addr] = claim
        now_live = Live(broker, topics.data_version, conn_id, now, claim[2])
        self.live.append(now_live)
        if before is not None:
            self.live.remove(before)
            if before.broker != broker:
                self.remove([before])
            else:
                now_live.routed_since_s = before.routed_since_s
        if broker.broker_id == 0 and self.routed(broker.broker_name, 0) is now_live:
            self.take(broker, topics)
        self.see_place(now_live, now)
        return Outcome.RENEWED if before is not None and before.broker == broker else Outcome.NEW

    def next_claim(self) -> int:
        return 1 + max((number for _, _, number in self.claims.values()), default=0)

    def see_place(self, live: Live, now: float) -> None:
        """An address that is routed for the time of an expiry, without a rival that is, claims again."""
        broker = live.broker
        if self.routed(broker.broker_name, broker.broker_id) is not live:
            live.routed_since_s = None
        elif live.routed_since_s is None:
            for other in self.live:
                if other.broker.broker_name == broker.broker_name and other.broker.broker_id == broker.broker_id:
                    other.routed_since_s = None
            live.routed_since_s = now
        elif now - live.routed_since_s >= EXPIRED_S:
            live.claim, live.routed_since_s = self.next_claim(), now
            self.claims[broker.broker_addr] = (broker.broker_name, broker.broker_id, live.claim)

    def take(self, broker: Broker, topics: TopicConfigSerializeWrapper) -> None:
        address, version, whole = self.table.get(broker.broker_name, ("", DataVersion(), False))
        is_known = (address, version) == (broker.broker_addr, topics.data_version)
        if is_known and whole:
            return
        has = self.topics.setdefault(broker.broker_name, {})
        registered = {topic: config.perm for topic, config in topics.topic_config_table.items()}
        kept = self.perm_changed.get(broker.broker_name, set()) if address == broker.broker_addr else set()
        has.update({t: perm for t, perm in registered.items() if not is_known or t not in kept or t not in has})
        is_whole = set(SYSTEM_TOPICS) <= registered.keys()
        if not is_known:
            kept = set() if is_whole else kept - registered.keys()
        self.perm_changed[broker.broker_name] = kept
        if is_whole:
            self.topics[broker.broker_name] = {topic: perm for topic, perm in has.items() if topic in registered}
        self.table[broker.broker_name] = (broker.broker_addr, topics.data_version, is_whole)


class RouteTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteInfoManager(EXPIRED_S)
        self.model = Model()
        self.now = 1000.0
        self.connections = [1]
        self.last_conn_id = 1

    @initialize()
    def nobody(self) -> None:
        assert self.table.next_expiry_s() == float("inf")

    def conn_id(self, back: int) -> int:
        return self.connections[-1 - back % len(self.connections)]

    @rule()
    def connect(self) -> None:
        self.last_conn_id += 1
        self.connections.append(self.last_conn_id)

    @precondition(lambda self: len(self.connections) > 1)
    @rule(back=st.integers(0, 9))
    def close(self, back: int) -> None:
        conn_id = self.conn_id(back)
        self.connections.remove(conn_id)
        gone = [live for live in self.model.live if live.conn_id == conn_id]
        removed = self.table.connection_closed(conn_id)
        assert {str(broker) for broker in removed} == {str(live.broker) for live in gone}
        self.model.remove(gone)

    @rule(broker=BROKERS, topics=tables(), back=st.integers(0, 2), filters=st.sampled_from([None, [], ["f:1"]]))
    def register(
        self, broker: Broker, topics: TopicConfigSerializeWrapper, back: int, filters: list[str] | None
    ) -> None:
        conn_id = self.conn_id(back)
        expected = self.model.register(broker, topics, conn_id, self.now)
        result = self.table.register_broker(broker, "ha:1", topics, filters, conn_id=conn_id, now=self.now)
        assert result.outcome is expected
        master = self.model.routed(broker.broker_name, 0)
        if broker.broker_id == 0 or master is None:
            assert (result.master_addr, result.ha_server_addr) == (None, None)
        else:
            assert (result.master_addr, result.ha_server_addr) == (master.broker.broker_addr, "ha:1")
        routed = self.model.routes(broker.broker_name).get(broker.broker_id)
        assert result.superseded_by == (None if routed == broker.broker_addr else routed)

    @rule(data=st.data(), topics=tables(), back=st.integers(0, 2))
    def register_again(self, data: st.DataObject, topics: TopicConfigSerializeWrapper, back: int) -> None:
        if self.model.live:
            live = data.draw(st.sampled_from(self.model.live))
            self.register(live.broker, topics, back, None)

    @rule(data=st.data(), broker=BROKERS, back=st.integers(0, 2), known=st.booleans())
    def unregister(self, data: st.DataObject, broker: Broker, back: int, known: bool) -> None:
        if known and self.model.live:
            broker = data.draw(st.sampled_from(self.model.live)).broker
        conn_id = self.conn_id(back)
        live = self.model.at(broker.broker_addr)
        is_it = live is not None and live.broker == broker and conn_id >= live.conn_id
        assert self.table.unregister_broker(broker, conn_id=conn_id) is is_it
        if is_it:
            assert live is not None
            self.model.remove([live])
            del self.model.claims[broker.broker_addr]

    @rule(data=st.data(), broker=BROKERS, version=VERSIONS, back=st.integers(0, 2), known=st.booleans())
    def query(self, data: st.DataObject, broker: Broker, version: DataVersion, back: int, known: bool) -> None:
        if known and self.model.live:
            chosen = data.draw(st.sampled_from(self.model.live))
            broker, version = chosen.broker, chosen.version
        conn_id = self.conn_id(back)
        changed, found = self.table.query_data_version(broker, version, conn_id=conn_id, now=self.now)
        live = self.model.at(broker.broker_addr)
        if live is None:
            assert (changed, found) == (True, None)
            return
        assert found == live.version
        is_same = live.broker == broker and live.version == version
        if broker.broker_id == 0 and is_same and self.model.routed(broker.broker_name, 0) is live:
            is_same = self.model.table.get(broker.broker_name) == (broker.broker_addr, version, True)
        assert changed is not is_same
        if is_same and conn_id >= live.conn_id:
            live.conn_id, live.heard_s = conn_id, self.now
            self.model.see_place(live, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.5, 30.0, 119.5, 120.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        gone = [live for live in self.model.live if live.heard_s + EXPIRED_S <= self.now]
        due_s = min((live.heard_s + EXPIRED_S for live in self.model.live), default=float("inf"))
        assert self.table.next_expiry_s() == due_s
        expired = self.table.expire(self.now)
        assert {str(info.broker) for info in expired} == {str(live.broker) for live in gone}
        self.model.remove(gone)

    @rule(name=st.sampled_from(["broker-a", "broker-b"]), wipes=st.booleans())
    def change_write_perm(self, name: str, wipes: bool) -> None:
        has = self.model.topics.get(name, {})
        change = self.table.wipe_write_perm if wipes else self.table.add_write_perm
        assert change(name) == len(has)
        has.update({topic: perm & ~2 if wipes else 6 for topic, perm in has.items()})
        if name in self.model.table:
            self.model.perm_changed[name] |= has.keys()

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "c1", "c2"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)
        for name, has in self.model.topics.items():
            clusters = {self.model.at(address).broker.cluster_name for address in self.model.routes(name).values()}  # type: ignore[union-attr]
            if cluster is None or cluster in clusters:
                has.pop(topic, None)

    @invariant()
    def routes_follow_from_who_is_live(self) -> None:
        for topic in (*TOPICS, *SYSTEM_TOPICS):
            perms = {name: has[topic] for name, has in sorted(self.model.topics.items()) if topic in has}
            route = self.table.pick_topic_route_data(topic)
            assert (route is None) == (not perms)
            if route is not None:
                assert {row.broker_name: row.perm for row in route.queue_datas} == perms
                addresses = {data.broker_name: data.broker_addrs for data in route.broker_datas}
                assert addresses == {name: self.model.routes(name) for name in perms}
                assert route.filter_server_table.keys() <= {a for ids in addresses.values() for a in ids.values()}

    @invariant()
    def everybody_routed_is_listed(self) -> None:
        names = sorted({live.broker.broker_name for live in self.model.live})
        info = self.table.all_cluster_info()
        assert {name: data.broker_addrs for name, data in info.broker_addr_table.items()} == {
            name: self.model.routes(name) for name in names
        }
        assert sorted({name for listed in info.cluster_addr_table.values() for name in listed}) == names
        assert self.table.broker_count == len(self.model.live)
        assert self.table.all_topics().topic_list == sorted({t for has in self.model.topics.values() for t in has})
        assert [conn_id for conn_id in range(1, self.last_conn_id + 1) if self.table.is_used(conn_id)] == sorted(
            {live.conn_id for live in self.model.live}
        )


TestRouteTable = RouteTable.TestCase
