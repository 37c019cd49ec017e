"""Java brokers register with RocketMQ's name server and with this project's; Java clients find them through either."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmq_actors.wire.request_code import RequestCode
from tests.interop.java_gateway import CommandFailed, JavaGateway, open_java_gateway
from tests.interop.name_server import NameServer
from tests.interop.servers import Servers
from tests.interop.two_name_servers import TwoNameServers
from tests.worlds.java_broker import REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files
from tests.worlds.java_client import SUCCESS, V4_9_7
from tests.worlds.java_process import JavaRuntime
from tests.worlds.server_process import ServerProcess

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CLUSTER = "DefaultCluster"
#: A topic that every broker has.
TBW102 = "TBW102"
#: The last version before routes became standard JSON.
V4_9_3 = 399
#: Has a Java program write all its requests so, and not in JSON.
ROCKETMQ_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
#: A broker tells its name servers that it lives this often; RocketMQ takes no less.
REGISTER_PERIOD_MS = 10_000
REGISTER_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def master(two: TwoNameServers, module_servers: Servers) -> JavaBroker:
    broker = module_servers.java_broker("master", namesrvAddr=two.addresses)
    broker.start()
    return broker


@pytest.fixture(scope="module")
def slave(two: TwoNameServers, module_servers: Servers, master: JavaBroker) -> JavaBroker:
    """It writes its requests in the other encoding."""
    broker = module_servers.java_broker(
        "slave", java_options=(ROCKETMQ_HEADERS,), namesrvAddr=two.addresses, brokerId=1, brokerRole="SLAVE"
    )
    broker.start()
    assert "boot success. serializeType=ROCKETMQ" in broker.log_text
    return broker


def broker_addresses(name_server: ServerProcess, topic: str = TBW102) -> dict[str, dict[str, str]]:
    """By name and id, the addresses of the brokers that have a topic."""
    response = name_server.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    brokers = json.loads(response.body)["brokerDatas"] if response.code == SUCCESS else []
    return {broker["brokerName"]: broker["brokerAddrs"] for broker in brokers}


def tells_state(gateway: JavaGateway, name_server: NameServer, broker: JavaBroker) -> bool:
    """In its first second a Java broker has no statistics yet, and answers that with an error."""
    try:
        gateway.mqadmin(name_server.address, "brokerStatus", "-b", broker.address)
    except CommandFailed:
        return False
    return True


def rows(printed: str) -> list[list[str]]:
    """The cells of a table that mqadmin prints, without its heading."""
    return [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("version", [V4_9_3, V4_9_7])
def test_a_route_is_the_same_byte_for_byte(
    two: TwoNameServers, master: JavaBroker, slave: JavaBroker, version: int
) -> None:
    answers = two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102}, version=version)
    assert answers.ours == answers.java
    assert master.address.encode() in answers.ours.body
    assert slave.address.encode() in answers.ours.body


def test_the_cluster_is_the_same_byte_for_byte(two: TwoNameServers, master: JavaBroker, slave: JavaBroker) -> None:
    answers = two.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answers.ours == answers.java
    assert slave.address.encode() in answers.ours.body


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": CLUSTER}),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "unknown"}),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "unknown"}),
    ],
    ids=["all topics", "system topics", "topics of a cluster", "an unknown topic", "an unknown namespace"],
)
def test_lists_and_refusals_are_the_same(
    two: TwoNameServers, slave: JavaBroker, code: int, fields: Mapping[str, str]
) -> None:
    two.ask(code, fields).check_equal()


def test_mqadmin_shows_the_cluster_and_its_topics(
    two: TwoNameServers, java_gateway: JavaGateway, master: JavaBroker, slave: JavaBroker
) -> None:
    for broker in (master, slave):
        has_statistics = functools.partial(tells_state, java_gateway, two.ours, broker)
        broker.wait_until(has_statistics, REGISTER_TIMEOUT_S, "it has statistics")
    table = rows(java_gateway.mqadmin(two.ours.address, "clusterList"))
    assert [row[:5] for row in table] == [
        [CLUSTER, "broker-a", "0", master.address, "V4_9_7"],
        [CLUSTER, "broker-a", "1", slave.address, "V4_9_7"],
    ]
    assert TBW102 in two.mqadmin(java_gateway, "topicList").splitlines()
    assert [CLUSTER, TBW102] in rows(two.mqadmin(java_gateway, "topicList", "-c"))
    assert slave.address in two.mqadmin(java_gateway, "topicRoute", "-t", TBW102)
    (row, *_) = rows(java_gateway.mqadmin(two.ours.address, "topicRoute", "-l", "-t", TBW102))
    assert row[:6] == [CLUSTER, "broker-a", f"{{0={master.address},", f"1={slave.address}}}", "8", "8"]


def test_mqadmin_makes_and_deletes_a_topic(two: TwoNameServers, java_gateway: JavaGateway, master: JavaBroker) -> None:
    def route(topic: str) -> str:
        return two.mqadmin(java_gateway, "topicRoute", "-t", topic)

    java_gateway.mqadmin(two.ours.address, "updateTopic", "-c", CLUSTER, "-t", "TopicAdmin", "-r", "3", "-w", "5")
    assert '"readQueueNums":3' in route("TopicAdmin")
    java_gateway.mqadmin(two.ours.address, "updateTopicPerm", "-c", CLUSTER, "-t", "TopicAdmin", "-p", "4")
    assert '"perm":4' in route("TopicAdmin")
    java_gateway.mqadmin(two.addresses, "deleteTopic", "-c", CLUSTER, "-t", "TopicAdmin")
    with pytest.raises(CommandFailed, match="CODE: 17  DESC: No topic route info in name server for the topic: Topic"):
        java_gateway.mqadmin(two.ours.address, "topicRoute", "-t", "TopicAdmin")
    two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicAdmin"}).check_equal()


def test_mqadmin_wipes_and_adds_write_permission(
    two: TwoNameServers, java_gateway: JavaGateway, master: JavaBroker
) -> None:
    assert "OK, " in two.mqadmin(java_gateway, "wipeWritePerm", "-b", "broker-a")
    assert '"perm":5' in two.mqadmin(java_gateway, "topicRoute", "-t", TBW102)
    assert "OK, " in two.mqadmin(java_gateway, "addWritePerm", "-b", "broker-a")
    assert '"perm":6' in two.mqadmin(java_gateway, "topicRoute", "-t", TBW102)


def test_mqadmin_keeps_configuration(two: TwoNameServers, java_gateway: JavaGateway, master: JavaBroker) -> None:
    listed = {"namespace": "ORDER_TOPIC_CONFIG"}
    java_gateway.mqadmin(two.addresses, "updateOrderConf", "-m", "put", "-t", TBW102, "-v", "broker-a:4")
    assert b'"broker-a:4"' in two.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, listed).ours.body
    two.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, listed).check_equal()
    two.mqadmin(java_gateway, "updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    two.ask(RequestCode.GET_KV_CONFIG, {"namespace": "space", "key": "key"}).check_equal()
    two.mqadmin(java_gateway, "deleteKvConfig", "-s", "space", "-k", "key")
    two.ask(RequestCode.GET_KV_CONFIG, {"namespace": "space", "key": "key"}).check_equal()

    two.mqadmin(java_gateway, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    try:
        assert (
            b'"orderTopicConf":"broker-a:4"' in two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102}).ours.body
        )
        two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102}).check_equal()
        java, ours = (
            {row[0]: row[2:] for row in rows(java_gateway.mqadmin(server.address, "getNamesrvConfig")) if len(row) > 2}
            for server in (two.java, two.ours)
        )
        shared = ("orderMessageEnable", "serverChannelMaxIdleTimeSeconds", "serverSocketBacklog")
        assert [ours[key] for key in shared] == [java[key] for key in shared] == [["true"], ["120"], ["1024"]]
    finally:
        two.mqadmin(java_gateway, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
        java_gateway.mqadmin(two.addresses, "updateOrderConf", "-m", "delete", "-t", TBW102)


def test_a_java_client_sends_and_receives(two: TwoNameServers, java_gateway: JavaGateway, slave: JavaBroker) -> None:
    bodies = [f"message {number}".encode() for number in range(20)]
    assert java_gateway.produce(two.ours.address, "TopicClient", bodies) == ["broker-a"] * len(bodies)
    assert sorted(java_gateway.consume(two.ours.address, "TopicClient", len(bodies))) == sorted(bodies)


def test_a_java_client_may_write_its_headers_in_the_other_encoding(
    two: TwoNameServers, slave: JavaBroker, java_runtime: JavaRuntime, tmp_path: Path
) -> None:
    with open_java_gateway(tmp_path, java_runtime, ROCKETMQ_HEADERS) as gateway:
        assert slave.address in two.mqadmin(gateway, "topicRoute", "-t", TBW102)
        assert gateway.produce(two.ours.address, "TopicEncoded", [b"encoded"]) == ["broker-a"]
        assert gateway.consume(two.ours.address, "TopicEncoded", 1) == [b"encoded"]


def test_a_5_3_1_broker_registers_and_a_4_9_client_uses_it(
    two: TwoNameServers, java_gateway: JavaGateway, servers: Servers, java_runtime_5: JavaRuntime
) -> None:
    broker = servers.java_broker(
        "new", java_runtime_5, namesrvAddr=two.addresses, brokerName="broker-5", brokerClusterName="Cluster5"
    )
    broker.start()
    for name_server in (two.java, two.ours):
        wait_for_addresses(name_server, broker, {"0": broker.address})
    two.ask(RequestCode.GET_BROKER_CLUSTER_INFO).check_equal()
    two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102}).check_equal()
    answers = two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "broker-5"})
    assert answers.ours == answers.java
    java_gateway.mqadmin(two.ours.address, "updateTopic", "-b", broker.address, "-t", "TopicNew")
    assert broker.address in two.mqadmin(java_gateway, "topicRoute", "-t", "TopicNew")
    assert java_gateway.produce(two.ours.address, "TopicNew", [b"to the new"]) == ["broker-5"]
    assert java_gateway.consume(two.ours.address, "TopicNew", 1) == [b"to the new"]
    broker.kill()
    wait_for_addresses(two.ours, broker, None)


def test_slaves_follow_their_master_through_the_name_server_alone(
    two: TwoNameServers, servers: Servers, java_runtime_5: JavaRuntime
) -> None:
    known: dict[str, Any] = {"namesrvAddr": two.ours.address, "brokerName": "broker-ha"}
    is_slave = {**known, "brokerRole": "SLAVE"}
    master = servers.java_broker("master", **known)
    slave, new_slave = (
        servers.java_broker("slave", brokerId=1, **is_slave),
        servers.java_broker("new-slave", java_runtime_5, brokerId=2, **is_slave),
    )
    master.start()
    assert master.send("TopicHa", b"before the slaves came").code == SUCCESS
    slave.start()
    assert broker_addresses(two.ours)["broker-ha"] == {"0": master.address, "1": slave.address}
    new_slave.start()

    def has_topic() -> bool:
        topics = slave.store / "config" / "topics.json"
        return topics.exists() and "TopicHa" in topics.read_text()

    log = commit_log_files(master.store)
    assert log

    def has_log(broker: JavaBroker) -> bool:
        return commit_log_files(broker.store) == log

    for broker in (slave, new_slave):
        broker.wait_until(functools.partial(has_log, broker), REPLICATION_TIMEOUT_S, "the slave has the master's log")
    slave.wait_until(has_topic, REPLICATION_TIMEOUT_S, "the slave has the master's topics")
    wait_for_addresses(two.ours, master, {"0": master.address, "1": slave.address, "2": new_slave.address})

    new_slave.kill()
    wait_for_addresses(two.ours, master, {"0": master.address, "1": slave.address})
    slave.stop()
    assert broker_addresses(two.ours)["broker-ha"] == {"0": master.address}
    assert broker_addresses(two.ours, "TopicHa") == {"broker-ha": {"0": master.address}}
    master.kill()
    wait_for_addresses(two.ours, master, None)


def wait_for_addresses(name_server: ServerProcess, broker: JavaBroker, known: object) -> None:
    """A broker of 5.3 registers at its start, or 10 s later; one that is killed is soon noticed."""
    name = str(broker.properties["brokerName"])
    name_server.wait_until(
        lambda: broker_addresses(name_server).get(name) == known, REGISTER_TIMEOUT_S, f"{name} has {known}"
    )


def test_a_broker_comes_back_to_a_name_server_that_was_killed(servers: Servers) -> None:
    name_server = servers.name_server("restarted")
    name_server.start()
    broker = servers.java_broker("broker", namesrvAddr=name_server.address, registerNameServerPeriod=REGISTER_PERIOD_MS)
    broker.start()
    kept = {"namespace": "space", "key": "kept", "value": "over a restart"}
    assert name_server.call(RequestCode.PUT_KV_CONFIG, kept).code == SUCCESS
    assert broker_addresses(name_server) == {"broker-a": {"0": broker.address}}
    name_server.kill()
    name_server.start()
    assert name_server.call(RequestCode.GET_KV_CONFIG, kept).fields == {"value": "over a restart"}
    name_server.wait_until(
        lambda: broker_addresses(name_server) == {"broker-a": {"0": broker.address}},
        REGISTER_TIMEOUT_S,
        "the broker registered again",
    )
