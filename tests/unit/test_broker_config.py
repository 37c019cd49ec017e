"""BrokerConfig: ports and addresses that follow from others, and what is refused when it is made."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.address import IllegalAddress

SLAVE = MessageStoreConfig(broker_role=BrokerRole.SLAVE)
SERVER = RemotingServerConfig(listen_port=10911)
NAMESRV = "127.0.0.1:9876"


def test_without_a_listen_port_there_is_no_other_port_than_before() -> None:
    config = BrokerConfig()
    assert config.remoting is None
    assert config.fast_server is None
    assert config.ha_config.listen_port == 10912
    assert not config.uses_name_servers


def test_ports_follow_from_the_listen_port() -> None:
    config = BrokerConfig(remoting=RemotingServerConfig(listen_port=20000, backlog=5))
    assert config.ha_config.listen_port == 20001
    assert config.fast_server == RemotingServerConfig(listen_port=19998, backlog=5)


def test_known_bug_6537_ha_listen_port_is_honoured_and_said_to_be_unusual(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rmq_actors"):
        assert BrokerConfig(remoting=SERVER, ha=HaConfig(ha_listen_port=10912)).ha_config.listen_port == 10912
        assert not caplog.records
        assert BrokerConfig(remoting=SERVER, ha=HaConfig(ha_listen_port=30000)).ha_config.listen_port == 30000
    assert "haListenPort 30000" in caplog.text


def test_a_port_that_the_system_chooses_leaves_no_place_for_the_others() -> None:
    config = BrokerConfig(remoting=RemotingServerConfig(listen_port=0))
    assert config.fast_server is None
    assert config.ha_config.listen_port == 0


def test_addresses_are_where_the_server_listens_unless_told() -> None:
    server = RemotingServerConfig(listen_host="10.0.0.1")
    assert (BrokerConfig(remoting=server).broker_ip1, BrokerConfig(remoting=server).broker_ip2) == (
        "10.0.0.1",
        "10.0.0.1",
    )
    config = BrokerConfig(remoting=server, broker_ip1="1.2.3.4")
    assert (config.broker_ip1, config.broker_ip2) == ("1.2.3.4", "1.2.3.4")
    assert BrokerConfig(remoting=server, broker_ip2="5.6.7.8").broker_ip1 == "10.0.0.1"


def test_a_masters_id_is_0(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rmq_actors"):
        assert BrokerConfig(remoting=SERVER, broker_id=3).broker_id == 0
    assert "a master's brokerId is 0, not 3" in caplog.text


def test_name_servers_are_a_list_each_once() -> None:
    config = BrokerConfig(remoting=SERVER, namesrv_addr="b:1;a:2;b:1")
    assert config.name_servers == ("b:1", "a:2")
    assert BrokerConfig(remoting=SERVER, namesrv_addr="b:1;a:2;").name_servers == ("b:1", "a:2")  # as Java splits
    assert BrokerConfig().name_servers == ()


@pytest.mark.parametrize("text", ["", ";", "localhost", "a:1;;b:2", ";a:1", "a:70000"])
def test_name_servers_that_are_none_are_named(text: str) -> None:
    with pytest.raises(IllegalAddress, match=r"namesrv_addr: '.*' is not an address of the form host:port"):
        BrokerConfig(remoting=SERVER, namesrv_addr=text)


@pytest.mark.parametrize("text", ["", "localhost", "a:1;b:2"])
def test_a_masters_address_that_is_none_is_named(text: str) -> None:
    with pytest.raises(IllegalAddress, match=r"master_addr: '.*' is not an address of the form host:port"):
        BrokerConfig(remoting=SERVER, master_addr=text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"store": SLAVE}, "brokerRole=SLAVE needs haMasterAddress, or name servers"),
        (
            {"store": SLAVE, "remoting": SERVER, "broker_id": 1},
            "brokerRole=SLAVE needs haMasterAddress, or name servers",
        ),
        ({"store": SLAVE, "remoting": SERVER, "namesrv_addr": NAMESRV}, "a slave's brokerId must be > 0, not 0"),
        ({"store": SLAVE, "remoting": SERVER, "namesrv_addr": NAMESRV, "broker_id": -1}, "must be > 0, not -1"),
        (
            {
                "store": SLAVE,
                "remoting": SERVER,
                "broker_id": 1,
                "ha": HaConfig(ha_master_address="10.0.0.1:10912"),
                "master_addr": f"127.0.0.1:{SERVER.listen_port}",
            },
            f"masterAddr 127.0.0.1:{SERVER.listen_port} is this slave's own",
        ),
        (
            {
                "store": SLAVE,
                "remoting": SERVER,
                "broker_id": 1,
                "broker_ip2": "10.0.0.1",
                "ha": HaConfig(ha_master_address=f"10.0.0.1:{SERVER.listen_port + 1}"),
            },
            f"haMasterAddress 10.0.0.1:{SERVER.listen_port + 1} is this slave's own",
        ),
        (
            {
                "store": SLAVE,
                "remoting": SERVER,
                "broker_id": 1,
                "broker_ip2": "10.0.0.1",
                "ha": HaConfig(ha_master_address=f"LOCALHOST:{SERVER.listen_port + 1}"),
            },
            f"haMasterAddress LOCALHOST:{SERVER.listen_port + 1} is this slave's own",
        ),
        (
            {
                "store": SLAVE,
                "remoting": RemotingServerConfig("0.0.0.0", 10911),
                "broker_id": 1,
                "broker_ip1": "10.0.0.1",
                "ha": HaConfig(ha_master_address="10.0.0.2:10912"),
                "master_addr": "127.0.0.5:10911",
            },
            "masterAddr 127.0.0.5:10911 is this slave's own",
        ),
        ({"namesrv_addr": NAMESRV}, "without listenPort there is nothing to register"),
        ({"fetch_namesrv_addr_by_address_server": True}, "without listenPort there is nothing to register"),
        (
            {"remoting": RemotingServerConfig(listen_host="0.0.0.0")},
            "brokerIP1 '0.0.0.0' is not an address at which others",
        ),
        ({"remoting": SERVER, "broker_ip2": "::"}, "brokerIP2 '::' is not an address"),
        ({"remoting": RemotingServerConfig(listen_port=2)}, "listenPort 2 leaves no room for the fast port"),
        ({"remoting": RemotingServerConfig(listen_port=65535)}, "listenPort 65535 leaves no room"),
        ({"broker_permission": 8}, "broker_permission"),
        ({"broker_name": ""}, "broker_name: it is empty"),
        ({"broker_name": "a/b"}, "broker_name: 'a/b' has '/': no space, control character or /:;"),
        ({"broker_name": "a b;\n:"}, r"broker_name: 'a b;\\n:' has '\\n' ' ' ':' ';'"),
        ({"broker_name": "a" * 128}, "broker_name: it has 128 characters, at most 127 are taken"),
        ({"broker_cluster_name": " "}, "broker_cluster_name: ' ' has ' '"),
        ({"register_broker_timeout_ms": 0}, "register_broker_timeout_ms"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BrokerConfig(**settings)


@pytest.mark.parametrize("name", ["a", "host-1.example.com", "RaftNode00", "broker_1|x%", "\u7ecf\u7eaa", "a" * 127])
def test_names_that_rocketmq_users_have(name: str) -> None:
    config = BrokerConfig(name, broker_cluster_name=name)
    assert (config.broker_name, config.broker_cluster_name) == (name, name)


@pytest.mark.parametrize(
    "settings",
    [
        {"namesrv_addr": NAMESRV, "broker_id": 1},
        {"fetch_namesrv_addr_by_address_server": True, "broker_id": 2},
        {"ha": HaConfig(ha_master_address="10.0.0.1:10912"), "broker_id": 1},
        {"ha": HaConfig("127.0.0.2", ha_master_address="127.0.0.1:10912"), "broker_ip2": "127.0.0.2", "broker_id": 1},
        {"ha": HaConfig(ha_master_address="localhost:10913"), "broker_id": 1},
        {"ha": HaConfig(ha_master_address="master.example:10912"), "broker_id": 1},
    ],
)
def test_a_slave_that_can_find_its_master(settings: dict[str, Any]) -> None:
    assert BrokerConfig(store=SLAVE, remoting=SERVER, **settings).is_slave


@pytest.mark.parametrize(
    ("broker_ip1", "name_servers", "is_told"),
    [
        ("127.0.0.1", "10.0.0.9:9876", True),
        ("localhost", "127.0.0.1:9876;ns.example:9876", True),
        ("::1", "10.0.0.9:9876", True),
        ("127.0.0.1", "localhost:9876;[::1]:9876", False),
        ("10.0.0.1", "10.0.0.9:9876", False),
        ("broker.example", "10.0.0.9:9876", False),
        ("127.0.0.1", None, False),
    ],
)
def test_an_address_that_others_cannot_reach_is_warned_of(
    broker_ip1: str, name_servers: str | None, is_told: bool
) -> None:
    warnings = BrokerConfig(remoting=SERVER, broker_ip1=broker_ip1, namesrv_addr=name_servers).warnings
    assert len(warnings) == is_told
    assert all(f"reached at {broker_ip1}" in warning and "bindAddress" in warning for warning in warnings)


@pytest.mark.parametrize(("configured_ms", "period_s"), [(1, 10.0), (45_000, 45.0), (99_000, 60.0)])
def test_the_period_of_registration(configured_ms: int, period_s: float) -> None:
    assert BrokerConfig(register_name_server_period_ms=configured_ms).register_period_s == period_s
