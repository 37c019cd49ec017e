"""The route table, case by case: who is routed, who is removed when, and RocketMQ's known bugs that may not happen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pytest

from rmq_actors.namesrv.route_table import (
    Broker,
    Outcome,
    RegisterBrokerResult,
    RouteInfoManager,
    RouteTableFull,
    RouteTableLimits,
)
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper

OLD, NEW, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
SYSTEM_TOPICS = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")


def broker(address: str, broker_id: int = 0, name: str = "broker-a", cluster: str = "c1") -> Broker:
    return Broker(cluster, name, broker_id, address)


def topics(
    *names: str, version: int = 1, whole: bool = True, perm: int = 6, flag: int = 0, state: int | None = None
) -> TopicConfigSerializeWrapper:
    """`whole`: with the topics that every broker has, as in a periodic registration."""
    names = (*names, *SYSTEM_TOPICS) if whole else names
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=version, timestamp=1, state_version=state),
        topic_config_table={name: TopicConfig(topic_name=name, perm=perm, topic_sys_flag=flag) for name in names},
    )


def register(
    table: RouteInfoManager,
    who: Broker,
    what: TopicConfigSerializeWrapper | None = None,
    *,
    conn_id: int = 1,
    now: float = 0.0,
) -> RegisterBrokerResult:
    ha_server_addr = who.broker_addr.replace(":10911", ":10912")
    return table.register_broker(who, ha_server_addr, what or topics("T"), [], conn_id=conn_id, now=now)


def addresses(table: RouteInfoManager, topic: str = "T") -> Mapping[int, str] | None:
    route = table.pick_topic_route_data(topic)
    return None if route is None else route.broker_datas[0].broker_addrs


@pytest.fixture
def table() -> RouteInfoManager:
    return RouteInfoManager(120.0)


# --- what a registration answers and changes --------------------------------------------------------------------------


def test_a_slave_learns_of_its_master_and_a_master_of_nobody(table: RouteInfoManager) -> None:
    assert register(table, broker(SLAVE, 1)) == RegisterBrokerResult(Outcome.NEW)
    assert register(table, broker(OLD)) == RegisterBrokerResult(Outcome.NEW)
    assert register(table, broker(SLAVE, 1)) == RegisterBrokerResult(Outcome.RENEWED, "10.0.0.1:10912", OLD)
    table.expire(121.0)
    assert register(table, broker(SLAVE, 1), now=121.0) == RegisterBrokerResult(Outcome.NEW)


def test_only_a_master_brings_topics(table: RouteInfoManager) -> None:
    register(table, broker(SLAVE, 1), topics("T"))
    assert table.pick_topic_route_data("T") is None
    register(table, broker(OLD), topics("U"))
    register(table, broker(SLAVE, 1), topics("T", version=2))
    assert addresses(table, "U") == {0: OLD, 1: SLAVE}
    assert table.pick_topic_route_data("T") is None


def test_topics_are_taken_when_their_version_is_new(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T", perm=6))
    register(table, broker(OLD), topics("T", perm=4))
    assert perm(table) == 6
    register(table, broker(OLD), topics("T", perm=4, version=2))
    assert perm(table) == 4


def perm(table: RouteInfoManager, topic: str = "T") -> int:
    route = table.pick_topic_route_data(topic)
    assert route is not None
    return route.queue_datas[0].perm


def test_the_consumers_of_a_dead_master_find_its_slave(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(SLAVE, 1), conn_id=2)
    table.connection_closed(1)
    assert addresses(table) == {1: SLAVE}
    table.connection_closed(2)
    assert table.pick_topic_route_data("T") is None
    assert table.all_cluster_info().cluster_addr_table == {}
    assert table.all_topics().topic_list == []


def test_a_process_has_one_id(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(SLAVE, 1), conn_id=2)
    assert register(table, broker(SLAVE, 0), conn_id=2).outcome is Outcome.NEW
    assert addresses(table) == {0: SLAVE}
    register(table, broker(SLAVE, 2), conn_id=2)
    assert addresses(table) == {0: OLD, 2: SLAVE}


def test_a_master_that_becomes_the_only_slave_keeps_its_topics_in_the_routes(table: RouteInfoManager) -> None:
    register(table, broker(OLD))
    register(table, broker(OLD, 1))
    assert addresses(table) == {1: OLD}


def test_routes_are_in_the_order_of_names_with_the_lowest_id_first(table: RouteInfoManager) -> None:
    register(table, broker(NEW, 0, "broker-b"), conn_id=2)
    register(table, broker(SLAVE, 1), conn_id=3)
    register(table, broker(OLD), conn_id=1)
    route = table.pick_topic_route_data("T", "broker-a:4;broker-b:4")
    assert route is not None
    assert [list(data.broker_addrs.items()) for data in route.broker_datas] == [[(0, OLD), (1, SLAVE)], [(0, NEW)]]
    assert [data.broker_name for data in route.queue_datas] == ["broker-a", "broker-b"]
    assert route.order_topic_conf == "broker-a:4;broker-b:4"


def test_filter_servers_stay_when_a_registration_does_not_speak_of_them(table: RouteInfoManager) -> None:
    def servers(filter_servers: list[str] | None) -> dict[str, list[str]]:
        table.register_broker(broker(OLD), "", topics("T"), filter_servers, conn_id=1, now=0.0)
        route = table.pick_topic_route_data("T")
        assert route is not None
        return route.filter_server_table

    assert servers(["f:1", "f:2"]) == {OLD: ["f:1", "f:2"]}
    assert servers(None) == {OLD: ["f:1", "f:2"]}
    assert servers([]) == {}


# --- who goes when ----------------------------------------------------------------------------------------------------


def test_a_silent_broker_goes_at_its_deadline_and_not_before(table: RouteInfoManager) -> None:
    assert table.next_expiry_s() == math.inf
    register(table, broker(OLD), now=10.0)
    register(table, broker(NEW, 0, "broker-b"), now=11.0)
    register(table, broker(OLD), now=40.0)
    assert table.next_expiry_s() == 131.0
    assert table.expire(130.99) == []
    assert [info.broker.broker_addr for info in table.expire(131.0)] == [NEW]
    assert table.next_expiry_s() == 160.0


def test_every_broker_of_a_connection_goes_with_it(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=7)
    register(table, broker(NEW, 0, "broker-b"), conn_id=7)
    register(table, broker(SLAVE, 1), conn_id=8)
    assert table.is_used(7)
    assert table.connection_closed(7) == [broker(OLD), broker(NEW, 0, "broker-b")]
    assert not table.is_used(7)
    assert table.connection_closed(7) == []
    assert addresses(table) == {1: SLAVE}


def test_a_broker_that_came_back_by_another_connection_stays_when_the_first_ends(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    assert register(table, broker(OLD), conn_id=2).outcome is Outcome.RENEWED
    assert table.connection_closed(1) == []
    assert addresses(table) == {0: OLD}


# --- the old owner of a name and id (#5374, #11043) -------------------------------------------------------------------


@pytest.mark.parametrize("end", ["unregister", "expire", "close"])
def test_a_late_end_of_the_old_master_leaves_the_new_one(table: RouteInfoManager, end: str) -> None:
    register(table, broker(OLD), conn_id=1, now=0.0)
    register(table, broker(NEW), conn_id=2, now=100.0)
    assert addresses(table) == {0: NEW}
    if end == "unregister":
        assert table.unregister_broker(broker(OLD), conn_id=1)
    elif end == "expire":
        assert [info.broker for info in table.expire(120.0)] == [broker(OLD)]
    else:
        assert table.connection_closed(1) == [broker(OLD)]
    assert addresses(table) == {0: NEW}
    assert table.all_cluster_info().cluster_addr_table == {"c1": ["broker-a"]}


def test_a_late_unregister_of_the_process_before_leaves_the_restarted_broker(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(OLD), conn_id=2)
    assert not table.unregister_broker(broker(OLD), conn_id=1)
    assert addresses(table) == {0: OLD}
    assert table.unregister_broker(broker(OLD), conn_id=3)  # it had to connect again to say so
    assert addresses(table) is None


def test_an_unregister_as_slave_leaves_the_promoted_master_at_the_same_address(table: RouteInfoManager) -> None:
    register(table, broker(SLAVE, 1))
    register(table, broker(SLAVE, 0))
    assert not table.unregister_broker(broker(SLAVE, 1), conn_id=1)
    assert addresses(table) == {0: SLAVE}


def test_a_late_registration_of_the_process_before_changes_nothing(table: RouteInfoManager) -> None:
    register(table, broker(SLAVE, 1), conn_id=1)
    register(table, broker(SLAVE, 0), conn_id=2)
    late = register(table, broker(SLAVE, 1), topics("U", version=9), conn_id=1)
    assert late == RegisterBrokerResult(Outcome.LATE, "10.0.0.3:10912", SLAVE)
    assert register(table, broker(SLAVE, 0, "broker-x"), conn_id=1).outcome is Outcome.LATE
    assert addresses(table) == {0: SLAVE}


def test_two_that_claim_one_place_do_not_take_turns(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(NEW), topics("U"), conn_id=2)
    for _ in range(3):
        assert register(table, broker(OLD), topics("V", version=2), conn_id=1).superseded_by == NEW
        assert table.pick_topic_route_data("V") is None
        assert register(table, broker(NEW), topics("U"), conn_id=2).superseded_by is None
    assert addresses(table, "U") == {0: NEW}


@pytest.mark.parametrize("how", ["superseded", "expired", "closed"])
def test_a_replaced_master_that_is_reached_again_does_not_replace_its_successor(
    table: RouteInfoManager, how: str
) -> None:
    register(table, broker(OLD), conn_id=1)
    if how == "expired":
        table.expire(120.0)
    elif how == "closed":
        table.connection_closed(1)
    register(table, broker(SLAVE, 1), conn_id=2, now=120.0)
    register(table, broker(SLAVE, 0), conn_id=2, now=120.0)  # promoted
    assert register(table, broker(OLD), conn_id=3, now=130.0).superseded_by == SLAVE
    assert addresses(table) == {0: SLAVE}
    table.connection_closed(2)
    assert addresses(table) == {0: OLD}


def renew(table: RouteInfoManager, who: Broker, times: Iterable[float], conn_id: int) -> None:
    for now in times:
        table.expire(now)
        register(table, who, conn_id=conn_id, now=now)


def test_a_master_that_had_the_place_for_the_time_of_an_expiry_is_the_successor(table: RouteInfoManager) -> None:
    """Failover to another machine, failover back, and the other machine is switched on again."""
    register(table, broker(OLD), conn_id=1, now=0.0)
    register(table, broker(NEW), conn_id=2, now=10.0)
    table.expire(1000.0)
    renew(table, broker(OLD), range(1000, 1121, 30), conn_id=3)
    assert register(table, broker(NEW), conn_id=4, now=1130.0).superseded_by == OLD
    assert addresses(table) == {0: OLD}


@pytest.mark.parametrize("asks", [False, True])
def test_a_broker_that_only_asks_has_its_place_too(table: RouteInfoManager, asks: bool) -> None:
    register(table, broker(OLD), conn_id=1, now=0.0)
    register(table, broker(NEW), conn_id=2, now=10.0)
    table.expire(1000.0)
    register(table, broker(OLD), conn_id=3, now=1000.0)
    for now in (1060.0, 1120.0) if asks else (1060.0,):
        assert not table.query_data_version(broker(OLD), topics("T").data_version, conn_id=3, now=now)[0]
    register(table, broker(NEW), conn_id=4, now=1130.0)
    assert addresses(table) == {0: OLD if asks else NEW}


def test_a_successor_that_is_away_for_a_moment_does_not_lose_its_place(table: RouteInfoManager) -> None:
    """However long the one before had it before, and stays beside it."""
    renew(table, broker(OLD), range(0, 601, 30), conn_id=1)
    register(table, broker(NEW), conn_id=2, now=601.0)
    for gone in range(3):
        table.connection_closed(2 + gone)
        renew(table, broker(OLD), (630.0 + 60 * gone,), conn_id=1)
        assert addresses(table) == {0: OLD}
        register(table, broker(NEW), conn_id=3 + gone, now=631.0 + 60 * gone)
        assert addresses(table) == {0: NEW}


def test_a_master_that_was_stopped_and_started_claims_again(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(NEW), conn_id=2)
    table.unregister_broker(broker(OLD), conn_id=1)
    register(table, broker(OLD), conn_id=3)
    assert addresses(table) == {0: OLD}


def test_a_master_that_became_a_slave_gives_its_place_up(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(NEW), conn_id=2)
    register(table, broker(NEW, 1), conn_id=2)
    assert addresses(table) == {0: OLD, 1: NEW}


def test_among_brokers_of_5_the_state_version_decides(table: RouteInfoManager) -> None:
    register(table, broker(NEW), topics("T", state=2), conn_id=1)
    assert register(table, broker(OLD), topics("T", state=1), conn_id=2).superseded_by == NEW
    assert register(table, broker(OLD), topics("T", version=2, state=3), conn_id=2).superseded_by is None
    assert addresses(table) == {0: OLD}


def test_the_topics_of_a_name_are_those_of_the_master_that_is_routed(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T", "U"), conn_id=1)
    register(table, broker(NEW), topics("T", "V"), conn_id=2)
    assert table.all_topics().topic_list == sorted(["T", "V", *SYSTEM_TOPICS])
    table.connection_closed(2)
    register(table, broker(OLD), topics("T", "U"), conn_id=1)
    assert table.all_topics().topic_list == sorted(["T", "U", *SYSTEM_TOPICS])


# --- what was renamed, deleted, or only partly registered (#288, #1989) -----------------------------------------------


def test_a_renamed_broker_is_not_found_under_its_old_name(table: RouteInfoManager) -> None:
    register(table, broker(OLD))
    register(table, broker(OLD, 0, "broker-z", "c2"))
    assert table.all_cluster_info().cluster_addr_table == {"c2": ["broker-z"]}
    route = table.pick_topic_route_data("T")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-z"]


def test_a_topic_that_was_deleted_at_the_broker_alone_leaves_the_routes(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T", "U"))
    register(table, broker(OLD), topics("T", version=2))
    assert table.pick_topic_route_data("U") is None


def test_a_registration_of_one_new_topic_removes_no_other(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T"))
    register(table, broker(OLD), topics("U", version=2, whole=False))
    assert addresses(table, "T") == addresses(table, "U") == {0: OLD}


def test_what_was_deleted_before_a_topic_was_created_goes_with_the_next_whole_table(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T", "U"))
    register(table, broker(OLD), topics("V", version=3, whole=False))
    register(table, broker(OLD), topics("T", "V", version=3))
    assert table.all_topics().topic_list == sorted(["T", "V", *SYSTEM_TOPICS])


def test_topics_are_not_lost_when_the_first_registration_is_of_one_of_them(table: RouteInfoManager) -> None:
    """4.9 takes the version of that one for the whole table's, until something changes."""
    register(table, broker(OLD), topics("T", version=2, whole=False))
    register(table, broker(OLD), topics("T", "U", version=2))
    assert addresses(table, "U") == {0: OLD}


def test_a_change_that_was_not_heard_comes_with_the_next_whole_table(table: RouteInfoManager) -> None:
    """What brokers send of single topics is one-way: the change of T is lost, the next one, of U, is not."""
    register(table, broker(OLD), topics("T", perm=6))
    register(table, broker(OLD), topics("U", version=3, whole=False))
    assert perm(table) == 6
    register(table, broker(OLD), topics("T", "U", version=3, perm=4))
    assert perm(table) == 4


@pytest.mark.parametrize("wiped", ["before the part", "after the part"])
def test_a_wiped_permission_outlives_a_part_and_the_whole_table_after_it(table: RouteInfoManager, wiped: str) -> None:
    """A topic that is created at a broker which is being drained brings no writes to all its others."""
    register(table, broker(OLD), topics("T"))
    if wiped == "before the part":
        table.wipe_write_perm("broker-a")
    register(table, broker(OLD), topics("U", version=2, whole=False))
    if wiped == "after the part":
        table.wipe_write_perm("broker-a")
    for _ in range(2):
        assert perm(table) == 4
        register(table, broker(OLD), topics("T", "U", version=2))
    assert perm(table) == 4
    assert perm(table, "U") == (6 if wiped == "before the part" else 4)
    register(table, broker(OLD), topics("T", version=3, whole=False))
    assert perm(table) == 6
    register(table, broker(OLD), topics("T", "U", version=4))
    assert perm(table, "U") == 6


def test_a_wiped_permission_is_of_the_topic_as_it_was(table: RouteInfoManager) -> None:
    """T was registered again, U was deleted since: each change after that one was not heard."""
    register(table, broker(OLD), topics("T", "U"))
    table.wipe_write_perm("broker-a")
    table.delete_topic("U")
    register(table, broker(OLD), topics("T", version=2, whole=False))
    register(table, broker(OLD), topics("V", version=5, whole=False))
    register(table, broker(OLD), topics("T", "U", "V", version=5, perm=7))
    assert perm(table) == perm(table, "U") == 7
    assert perm(table, "SELF_TEST_TOPIC") == 4


def test_whole_tables_remove_nothing_when_told_so() -> None:
    table = RouteInfoManager(120.0, delete_topic_with_broker_registration=False)
    register(table, broker(OLD), topics("T", "U"))
    register(table, broker(OLD), topics("T", version=2))
    assert addresses(table, "U") == {0: OLD}


# --- need a broker register? ------------------------------------------------------------------------------------------


def test_a_broker_that_asks_and_did_not_change_is_heard_of(table: RouteInfoManager) -> None:
    version = topics("T").data_version
    assert table.query_data_version(broker(OLD), version, conn_id=1, now=0.0) == (True, None)
    register(table, broker(OLD), now=0.0)
    assert table.query_data_version(broker(OLD), version, conn_id=1, now=100.0) == (False, version)
    assert table.next_expiry_s() == 220.0
    assert table.query_data_version(broker(OLD), None, conn_id=1, now=110.0) == (True, version)
    other = DataVersion(counter=2, timestamp=1)
    assert table.query_data_version(broker(OLD), other, conn_id=1, now=110.0) == (True, version)
    assert table.next_expiry_s() == 220.0


def test_a_question_by_a_new_connection_frees_the_broker_from_the_old_one(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    table.query_data_version(broker(OLD), topics("T").data_version, conn_id=2, now=30.0)
    assert table.connection_closed(1) == []
    table.query_data_version(broker(OLD), topics("T").data_version, conn_id=1, now=60.0)  # late
    assert table.next_expiry_s() == 150.0
    assert table.connection_closed(2) == [broker(OLD)]


def test_a_promoted_broker_must_register_though_its_topics_are_the_same(table: RouteInfoManager) -> None:
    """#3381."""
    version = topics("T").data_version
    register(table, broker(SLAVE, 1))
    assert table.query_data_version(broker(SLAVE, 0), version, conn_id=1, now=0.0) == (True, version)
    register(table, broker(SLAVE, 0))
    assert table.query_data_version(broker(SLAVE, 0), version, conn_id=1, now=0.0) == (False, version)


def test_a_master_whose_topics_are_partly_known_must_register(table: RouteInfoManager) -> None:
    partly = topics("T", whole=False)
    register(table, broker(OLD), partly)
    assert table.query_data_version(broker(OLD), partly.data_version, conn_id=1, now=0.0)[0]


# --- operators --------------------------------------------------------------------------------------------------------


def test_write_permission_is_wiped_and_added(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("T", perm=7))
    assert table.wipe_write_perm("broker-x") == 0
    assert table.wipe_write_perm("broker-a") == 3
    assert perm(table) == 5
    register(table, broker(OLD), topics("T", perm=7))
    assert perm(table) == 5
    assert table.add_write_perm("broker-a") == 3
    assert perm(table) == 6
    register(table, broker(OLD), topics("T", perm=7, version=2))
    assert perm(table) == 7


def test_a_topic_is_deleted_from_a_cluster_or_from_all(table: RouteInfoManager) -> None:
    register(table, broker(OLD), conn_id=1)
    register(table, broker(NEW, 0, "broker-b", "c2"), conn_id=2)
    assert table.delete_topic("T", "c3") == 0
    assert table.delete_topic("T", "c2") == 1
    assert addresses(table) == {0: OLD}
    register(table, broker(NEW, 0, "broker-b", "c2"), conn_id=2)
    assert len(table.all_topics().topic_list) == 3
    assert table.delete_topic("T") == 1
    assert table.delete_topic("T") == 0
    assert addresses(table) is None


def test_lists_of_topics(table: RouteInfoManager) -> None:
    register(table, broker(OLD), topics("unit", whole=False, flag=1), conn_id=1)
    register(table, broker(NEW, 0, "broker-b", "c2"), topics("sub", whole=False, flag=2), conn_id=2)
    register(table, broker(SLAVE, 0, "broker-c", "c2"), topics("both", "sub", whole=False, flag=3), conn_id=3)
    assert table.all_topics().topic_list == ["both", "sub", "unit"]
    assert table.unit_topics().topic_list == ["both", "sub", "unit"]
    assert table.has_unit_sub_topics().topic_list == ["both", "sub"]
    assert table.has_unit_sub_un_unit_topics().topic_list == ["sub"]
    assert table.topics_of_cluster("c2").topic_list == ["both", "sub"]
    assert table.topics_of_cluster("c3").topic_list == []
    system = table.system_topics()
    assert system.topic_list == ["broker-a", "broker-b", "broker-c", "c1", "c2"]
    assert system.broker_addr == OLD


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "what", "filters", "text"),
    [
        (broker(SLAVE, 1), topics(), [], f"{SLAVE} is one too many: 2 brokers are registered"),
        (broker(OLD), topics("T", "U", version=2), [], "broker-a has 1 new topics: at most 4 are kept"),
        (broker(NEW, 0, "broker-b"), topics("T", version=2), [], "broker-b has 3 more topics: at most 5 are kept"),
        (broker(OLD), topics("x" * 41, version=2), [], "a topic has 41 characters, at most 40 are kept: 'xxx"),
        (broker(OLD, name="n" * 41), topics(), [], "brokerName has 41 characters"),
        (broker(OLD, cluster="n" * 41), topics(), [], "clusterName has 41 characters"),
        (broker("a" * 41), topics(), [], "brokerAddr has 41 characters"),
        (broker(OLD), topics(), ["f" * 41], r"filterServerList\[0\] has 41 characters"),
        (broker(OLD), topics(), ["f"] * 3, "3 filter servers of one broker: at most 2 are kept"),
    ],
)
def test_what_is_too_much_is_refused_and_changes_nothing(
    who: Broker, what: TopicConfigSerializeWrapper, filters: list[str], text: str
) -> None:
    limits = RouteTableLimits(brokers_max=2, topics_max=4, queue_datas_max=5, filter_servers_max=2, name_length_max=40)
    table = RouteInfoManager(120.0, limits)
    register(table, broker(OLD), topics("T", "R"), conn_id=1)
    register(table, broker(NEW, 0, "broker-b"), topics("R", whole=False), conn_id=2)
    before = (table.all_cluster_info(), table.all_topics())
    with pytest.raises(RouteTableFull, match=f"^{text}"):
        table.register_broker(who, "", what, filters, conn_id=9, now=50.0)
    assert (table.all_cluster_info(), table.all_topics()) == before


def test_a_broker_with_too_many_topics_stays_as_it_was() -> None:
    """It lives, and who writes to it or reads from it needs its route."""
    table = RouteInfoManager(120.0, RouteTableLimits(topics_max=3))
    register(table, broker(OLD), conn_id=1, now=0.0)
    for now, conn_id in ((60.0, 1), (120.0, 2)):
        with pytest.raises(RouteTableFull):
            register(table, broker(OLD), topics("T", "U", version=2), conn_id=conn_id, now=now)
    assert table.connection_closed(1) == []
    assert table.expire(239.0) == []
    assert addresses(table) == {0: OLD}
    assert table.pick_topic_route_data("U") is None
    assert table.query_data_version(broker(OLD), topics(version=2).data_version, conn_id=2, now=239.0)[0]


def test_what_went_makes_room() -> None:
    table = RouteInfoManager(120.0, RouteTableLimits(brokers_max=1, topics_max=1, queue_datas_max=1))
    for number in range(20):
        address = f"10.0.0.{number}:10911"
        who = broker(address, name=f"broker-{number}")
        for version in range(3):
            register(table, who, topics(f"T{number}", whole=False, version=version), conn_id=number)
        assert table.broker_count == 1
        table.connection_closed(number)
    assert table.pick_topic_route_data("T19") is None


def test_claims_of_addresses_that_are_long_gone_are_forgotten() -> None:
    table = RouteInfoManager(120.0, RouteTableLimits(brokers_max=2))
    register(table, broker(OLD), conn_id=1)
    register(table, broker(NEW), conn_id=2)
    table.connection_closed(1)
    for number in range(9):
        address = f"10.0.1.{number}:10911"
        register(table, broker(address, 1), conn_id=3)
        table.connection_closed(3)
    assert register(table, broker(OLD), conn_id=4).superseded_by is None
