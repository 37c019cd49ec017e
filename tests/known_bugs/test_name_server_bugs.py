"""RocketMQ's bugs of registration and name servers: as in `test_recovery_bugs`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from rmq_actors.protocols.broker_registration import MasterAddresses
from rmq_actors.tracing.events.broker import BrokerRegister
from rmq_actors.tracing.events.namesrv import NamesrvRemove
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.headers.namesrv import PutKVConfigRequestHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.request_code import RequestCode
from sim_net import Hold, Partition
from sim_net.faults.fault import Fault
from tests.worlds.name_server_world import Member, NameServerWorld, pair

MASTER = "DefaultCluster", "broker-a", 0


def run(servers: NameServerWorld, use: Callable[[], Awaitable[None]], *faults: Fault) -> None:
    """Wait until all is well, call `use`, wait until all is well again."""

    async def scenario() -> None:
        for number, fault in enumerate(faults):
            servers.world.apply(fault, number)
        await servers.converge(2.0)
        await use()
        await servers.settle()

    servers.run(scenario)


def address(servers: NameServerWorld, node: str) -> str:
    return f"{servers.nodes[node].address}:{servers.members[node].port}"


def with_a_spare() -> NameServerWorld:
    """A master, its slave, and a machine that can take the master's place."""
    return NameServerWorld([*pair("a"), Member("spare", "broker-a")], reserves=("spare",))


def test_3381_a_slave_that_becomes_the_master_is_routed_as_that_though_its_topics_are_the_same() -> None:
    """Without forceRegister only the version of the topics was compared, and the role that had changed never came."""
    servers = NameServerWorld(pair("a"), settings={"force_register": False})

    async def use() -> None:
        await trio.sleep(40)
        for node in ("a-0", "a-1"):  # the name server hears of neither
            servers.nodes[node].power_loss()
        servers.configure("a-1", broker_id=0)
        servers.boot("a-1")
        await trio.sleep(2)
        assert servers.known("ns-1").brokers == {MASTER: address(servers, "a-1")}

    run(servers, use)


def test_5374_a_late_unregister_of_the_old_master_leaves_the_new_one() -> None:
    """The broker's name and id were removed, whoever had them by then."""
    servers = with_a_spare()

    async def use() -> None:
        await trio.sleep_until(21)
        await servers.stop_broker("a-0")
        servers.boot("spare")
        await trio.sleep(2)
        for _ in range(60):
            assert servers.known("ns-1").brokers[MASTER] == address(servers, "spare")
            await trio.sleep(0.5)
        assert [event.status for event in servers.events(NamesrvRemove)] == ["unregistered"]  # it did arrive

    run(servers, use, Hold(20.0, 15.0, "a-0", "ns-1"))


def test_11043_a_late_expiry_of_the_old_master_leaves_the_new_one() -> None:
    """Who expired was removed by name and id too."""
    servers = with_a_spare()

    async def use() -> None:
        await trio.sleep(20)
        servers.nodes["a-0"].power_loss()
        await trio.sleep(50)
        servers.boot("spare")
        await trio.sleep(2)
        for _ in range(200):
            assert servers.known("ns-1").brokers[MASTER] == address(servers, "spare")
            await trio.sleep(0.5)
        assert [event.status for event in servers.events(NamesrvRemove)] == ["expired"]

    run(servers, use)


@pytest.mark.parametrize("later_s", [0.5, 3.0, 20.0])
def test_7790_a_slave_that_was_told_no_master_asks_again_soon(later_s: float) -> None:
    """After a change of role both registered at once, the slave too early; it asked again after a period."""
    servers = NameServerWorld(pair("a"))

    async def use() -> None:
        for node in ("a-0", "a-1"):
            servers.nodes[node].kill()
            servers.configure(node, broker_id=1 - servers.members[node].broker_id)
        servers.boot("a-0")
        await trio.sleep(later_s)
        assert servers.brokers["a-0"].master == MasterAddresses()
        servers.boot("a-1")
        await servers.converge(10.5)

    run(servers, use)


@pytest.mark.parametrize("force_register", [True, False])
def test_74_equal_versions_are_equal(force_register: bool) -> None:
    """The counter in a version was compared by identity: no two were equal, and tables were written again and again."""
    servers = NameServerWorld(pair("a", 2), settings={"force_register": force_register})
    header = PutKVConfigRequestHeader(NAMESPACE_ORDER_TOPIC_CONFIG, "TBW102", "broker-a:4")

    def versions() -> list[DataVersion]:
        return [broker.remoting.topic_config_manager.data_version for broker in servers.brokers.values()]

    async def use() -> None:
        await servers.ask("ns-1", RequestCode.PUT_KV_CONFIG, header)
        await trio.sleep(60)  # it comes with the answer to a registration, and is written once
        versions = {name: broker.remoting.topic_config_manager.data_version for name, broker in servers.brokers.items()}
        registered = len(servers.events(BrokerRegister, node="a-0", request="register"))
        await trio.sleep(600)
        assert {
            name: broker.remoting.topic_config_manager.data_version for name, broker in servers.brokers.items()
        } == versions
        again = len(servers.events(BrokerRegister, node="a-0", request="register")) - registered
        assert again == (20 if force_register else 0)

    run(servers, use)


def test_288_a_topic_that_was_deleted_at_one_broker_leaves_the_routes_of_that_one() -> None:
    """Registrations only added."""
    servers = NameServerWorld([*pair("a"), *pair("b")])

    async def use() -> None:
        for node in ("a-0", "b-0"):
            await servers.on_node(node, partial(servers.brokers[node].set_topic, "T"))
        await servers.converge(1.0)
        manager = servers.brokers["a-0"].remoting.topic_config_manager
        assert await servers.on_node("a-0", lambda: manager.delete_topic_config("T"))
        await trio.sleep(1.0)
        assert [name for topic, name in servers.known("ns-1").queues if topic == "T"] == ["broker-b"]

    run(servers, use)


def test_1989_a_renamed_broker_is_not_routed_under_its_old_name() -> None:
    """What was known of its address under the old name stayed."""
    servers = NameServerWorld([*pair("a"), *pair("b")])

    async def use() -> None:
        await trio.sleep(20)
        servers.nodes["b-0"].power_loss()  # a kill would end its connection, and what was known with it
        servers.configure("b-0", broker_name="renamed")
        servers.boot("b-0")
        await trio.sleep(2.0)
        names = {(name, broker_id) for _, name, broker_id in servers.known("ns-1").brokers}
        assert names == {("broker-a", 0), ("broker-a", 1), ("renamed", 0), ("broker-b", 1)}

    run(servers, use)


def test_s11_a_name_server_that_forgot_the_master_does_not_make_its_slave_forget_it() -> None:
    """A null masterAddr in an answer replaced the known one, and topics and offsets were no longer asked for."""
    servers = NameServerWorld(pair("a"))

    async def use() -> None:
        master = servers.brokers["a-1"].master
        assert master == MasterAddresses(address(servers, "a-0"), servers.brokers["a-0"].ha_address)
        await trio.sleep_until(20)
        servers.nodes["ns-1"].kill()
        servers.boot("ns-1")  # it hears of the slave alone
        for _ in range(100):
            await trio.sleep(0.5)
            assert servers.brokers["a-1"].master == master
        assert servers.known("ns-1").brokers == {("DefaultCluster", "broker-a", 1): address(servers, "a-1")}

    run(servers, use, Partition(19.0, 60.0, "a-0", "ns-1"))


@pytest.mark.parametrize("port", [None, 10912, 23456])
def test_6537_the_ha_address_that_is_registered_is_where_the_log_is_served(port: int | None) -> None:
    """haListenPort was overwritten with listenPort + 1 after the configuration was read."""
    servers = NameServerWorld(pair("a"), whole_brokers=True)
    for node in ("a-0", "a-1"):
        servers.configure(node, ha=HaConfig(ha_listen_host=servers.nodes[node].address, ha_listen_port=port))

    async def use() -> None:
        master, slave = servers.brokers["a-0"], servers.brokers["a-1"]
        assert slave.master.ha_server_addr == f"{servers.nodes['a-0'].address}:{port or 10912}"
        controller = master.controller
        assert controller is not None
        await servers.on_node("a-0", lambda: controller.put_message(Message("T", b"x")))
        with trio.fail_after(10):
            while slave.log.max_offset < master.log.max_offset:
                await trio.sleep(0.1)

    run(servers, use)
