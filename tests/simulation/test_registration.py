"""Brokers register with name servers, and slaves learn from them where their master is."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker import broker_outer_api
from rmq_actors.broker.store_host import Machines
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.ha_client import make_ha_slave
from rmq_actors.protocols.broker_registration import (
    ASK_AGAIN_MIN_S,
    FIRST_INTERVAL_S,
    TOPIC_CHANGES_PAUSE_S,
    UNREACHABLE_PAUSE_MAX_S,
)
from rmq_actors.protocols.following import SILENCE_PATIENCE_S
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import TERM_FILE
from rmq_actors.tracing.events.actor import ActorCrash, ActorStart
from rmq_actors.tracing.events.broker import BrokerRegister, BrokerUnregister
from rmq_actors.tracing.events.ha import HaClientClose, HaClientConnect, HaClientRedirect
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig
from rmq_actors.wire.headers.namesrv import RegisterBrokerResponseHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, Partition, Reset, World
from tests.worlds.registration_world import LISTEN_PORT, Broker, NameServer, broker_config, new_recorder

REGISTER, UNREGISTER, QUERY = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION
PERIOD_S = 30.0
#: Connecting, a request and its answer, over links of up to a few ms.
ROUND_TRIPS_S = 0.1


@attrs.define(eq=False)
class NamedPair:
    """A world with two name servers, a master and a slave of one name; none of them is up."""

    world: World
    recorder: Recorder
    ns1: NameServer
    ns2: NameServer
    master: Broker
    slave: Broker

    @classmethod
    def make(cls, world: World, *, name_servers: int = 1, **settings: Any) -> NamedPair:
        recorder = new_recorder(world)
        ns1, ns2 = NameServer(world.node("ns1")), NameServer(world.node("ns2"))
        addresses = ";".join(ns.address for ns in (ns1, ns2)[:name_servers])
        nodes = world.node("master"), world.node("slave")
        roles = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE
        master, slave = (
            Broker(node, broker_config(node, addresses, role, **settings), recorder)
            for node, role in zip(nodes, roles, strict=True)
        )
        return cls(world, recorder, ns1, ns2, master, slave)


def run(main: Callable[[NamedPair], Awaitable[None]], *, seed: int = 1, **settings: Any) -> NamedPair:
    world = World(seed, guard_packages=("rmq_actors",))
    made: list[NamedPair] = []

    async def harness(world: World) -> None:
        pair = NamedPair.make(world, **settings)
        made.append(pair)
        await main(pair)

    world.run(harness)
    return made[0]


# --- when -------------------------------------------------------------------------------------------------------------


def test_a_broker_registers_when_it_starts_then_after_10_s_then_every_period() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(75)

    pair = run(main)
    first, second, third, fourth = pair.ns1.times(REGISTER)
    ready = pair.master.events(ActorStart)[-1]
    assert first - (ready.sim_time_ns or 0) / 1e9 < ROUND_TRIPS_S
    assert second - first == pytest.approx(FIRST_INTERVAL_S, abs=ROUND_TRIPS_S)
    assert third - second == pytest.approx(PERIOD_S, abs=ROUND_TRIPS_S)
    assert fourth - third == pytest.approx(PERIOD_S, abs=ROUND_TRIPS_S)
    asked = pair.ns1.asked[0]
    assert asked.broker_addr == f"{pair.master.node.address}:{LISTEN_PORT}"
    assert asked.ha_server_addr == f"{pair.master.node.address}:{LISTEN_PORT + 1}"
    assert asked.broker_id == 0
    assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-a"} <= asked.topics


def test_it_registers_with_every_name_server_and_none_waits_for_another() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns2.boot()  # ns1 is not there at all
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(1)
        assert len(pair.ns2.times(REGISTER)) == 1
        waited: list[str] = []

        async def wait(name: str) -> None:
            await pair.master.registration.wait_until_registered()
            waited.append(name)

        for name in ("one", "two"):
            pair.master.node.start_soon(wait, name)
            await trio.sleep(0.1)
        assert waited == []
        pair.ns1.boot()
        await trio.sleep(UNREACHABLE_PAUSE_MAX_S + ROUND_TRIPS_S)
        assert len(pair.ns1.times(REGISTER)) == 1
        assert len(pair.ns2.times(REGISTER)) == 1
        assert sorted(waited) == ["one", "two"]
        with trio.fail_after(0.001):
            await pair.master.registration.wait_until_registered()

    run(main, name_servers=2)


@pytest.mark.parametrize("was_down_s", [1.0, 20.0, 300.0])
def test_a_name_server_that_comes_up_late_has_the_broker_within_the_bound(was_down_s: float) -> None:
    async def main(pair: NamedPair) -> None:
        await pair.master.start()
        await trio.sleep(was_down_s)
        assert not pair.ns1.asked
        pair.ns1.boot()
        await trio.sleep(UNREACHABLE_PAUSE_MAX_S + ROUND_TRIPS_S)
        assert list(pair.ns1.headers) == [pair.master.addr]

    run(main)


@pytest.mark.parametrize("down_s", [0.1, 7.0, 200.0])
def test_a_name_server_that_restarts_has_the_broker_again_within_the_bound(down_s: float) -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(15)
        pair.ns1.node.kill()
        await trio.sleep(down_s)
        pair.ns1.boot()
        pair.ns1.asked.clear()
        await trio.sleep(UNREACHABLE_PAUSE_MAX_S + ROUND_TRIPS_S)
        assert list(pair.ns1.headers) == [pair.master.addr]
        assert pair.ns1.asked[0].topics >= {"TBW102"}

    run(main)


def test_a_connection_that_is_lost_costs_a_broker_its_route_for_a_second_only() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(15)
        Reset(0.0, "ns1", "master").begin(pair.world)
        await trio.sleep(0.01)
        assert not pair.ns1.headers
        await trio.sleep(ASK_AGAIN_MIN_S + ROUND_TRIPS_S)
        assert pair.ns1.headers

    run(main)


def test_a_partition_is_survived_within_the_bound() -> None:
    """A request that times out (6 s), a connection attempt that times out (3 s), the longest pause."""

    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(15)
        heal = Partition(0.0, 60.0, "ns1", "master").begin(pair.world)
        await trio.sleep(60)
        heal()
        pair.ns1.asked.clear()
        await trio.sleep(6 + 3 + UNREACHABLE_PAUSE_MAX_S)
        assert pair.ns1.times(REGISTER)
        assert pair.ns1.headers

    run(main)


def test_a_name_server_that_refuses_is_asked_ever_more_seldom() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.refuses = ResponseCode.SYSTEM_BUSY
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(120)

    pair = run(main)
    times = pair.ns1.times(REGISTER)
    assert 6 <= len(times) <= 11  # a period would have been 4 times, the pause of the unreachable more than 24
    assert all(event.status == "MQBrokerError" for event in pair.master.events(BrokerRegister))


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_change_of_topics_is_registered_one_way_and_survives_a_restart() -> None:
    new, other = TopicConfig(topic_name="New"), TopicConfig(topic_name="Other", read_queue_nums=4)

    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(3)
        await pair.master.topics.update_topic_config(new)
        await trio.sleep(ROUND_TRIPS_S)
        assert len(pair.ns1.times(REGISTER, oneway=True)) == 1
        assert "New" in pair.ns1.asked[-1].topics
        # Changes in a hurry: the first is told at once, the others with the next request.
        for number in range(20):
            await pair.master.topics.update_topic_config(topic_number(number))
        await pair.master.topics.update_topic_config(other)
        await pair.master.topics.delete_topic_config("New")
        await trio.sleep(TOPIC_CHANGES_PAUSE_S + ROUND_TRIPS_S)
        assert len(pair.ns1.times(REGISTER, oneway=True)) <= 4
        assert pair.ns1.asked[-1].topics >= {"Other", "Topic-19"}
        assert "New" not in pair.ns1.asked[-1].topics
        assert pair.ns1.versions[pair.master.addr] == pair.master.topics.data_version
        version = pair.master.topics.data_version
        pair.master.node.power_loss()
        await pair.master.start()
        assert pair.master.topics.data_version == version
        assert pair.master.topics.select_topic_config("Other") == other
        assert pair.master.topics.select_topic_config("New") is None

    run(main)


def topic_number(number: int) -> TopicConfig:
    return TopicConfig(topic_name=f"Topic-{number}")


def test_a_change_that_is_told_to_a_dead_connection_arrives_all_the_same() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(3)
        pair.ns1.node.kill()
        await pair.master.topics.update_topic_config(TopicConfig(topic_name="New"))
        await trio.sleep(1)
        pair.ns1.boot()
        await trio.sleep(UNREACHABLE_PAUSE_MAX_S + ROUND_TRIPS_S)
        assert "New" in pair.ns1.asked[-1].topics

    run(main)


def test_compressed_bodies() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(1)
        await pair.master.topics.update_topic_config(TopicConfig(topic_name="New"))
        await trio.sleep(1)

    pair = run(main, compressed_register=True)
    assert [(asked.compressed, asked.is_oneway) for asked in pair.ns1.asked[:2]] == [(True, False), (True, True)]
    assert pair.ns1.asked[1].topics == pair.ns1.asked[0].topics | {"New"}


def test_the_data_version_is_compared_first_without_force_register() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(5 + 3 * PERIOD_S)
        # The name server came to have other topics, nobody knows how: the version tells.
        pair.ns1.versions[pair.master.addr] = DataVersion(counter=1, timestamp=1)
        await trio.sleep(10)
        assert pair.ns1.versions[pair.master.addr] == pair.master.topics.data_version

    pair = run(main, force_register=False)
    codes = [asked.code for asked in pair.ns1.asked]
    assert codes == [REGISTER, QUERY, QUERY, QUERY, QUERY, REGISTER]


def test_known_bug_3381_a_slave_that_becomes_the_master_is_registered_as_such() -> None:
    """Its topics are the same ones, and so is their DataVersion."""

    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.slave.start()
        await trio.sleep(1)
        await pair.slave.topics.update_topic_config(TopicConfig(topic_name="New"))
        pair.slave.node.kill()
        pair.ns1.versions[pair.slave.addr] = version = pair.slave.topics.data_version  # it has noticed nothing
        store = attrs.evolve(pair.slave.config.store, broker_role=BrokerRole.ASYNC_MASTER)
        pair.slave.config = attrs.evolve(pair.slave.config, store=store)
        await pair.slave.start()
        await trio.sleep(1)
        assert pair.slave.topics.data_version == version
        assert pair.ns1.headers[pair.slave.addr].broker_id == 0

    run(main, force_register=False)


def test_a_promoted_slave_is_routed_with_its_own_permission_while_the_old_master_is_still_known() -> None:
    """As before an exchange of roles: producers leave the old master first. They could not send to the new one."""

    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        pair.master.config = attrs.evolve(pair.master.config, broker_permission=4)
        await pair.master.start()
        await pair.slave.start()
        await trio.sleep(2 * PERIOD_S)
        assert pair.ns1.routed["TBW102"].perm == 4
        assert pair.ns1.versions[pair.slave.addr] == pair.ns1.versions[pair.master.addr]
        changed = trio.Event()

        async def promote() -> None:
            await pair.slave.controller.change_role(BrokerRole.ASYNC_MASTER)
            changed.set()

        pair.slave.node.start_soon(promote)
        await changed.wait()
        await trio.sleep(1)
        assert pair.ns1.headers[pair.slave.addr].broker_id == 0
        assert pair.ns1.routed["TBW102"].perm == 7

    run(main)


@pytest.mark.parametrize("seed", range(12))
def test_a_permission_that_a_slave_gets_while_it_registers_is_registered_the_next_time(seed: int) -> None:
    """The topics of before were kept as those of the new permission, and sent again with each registration."""

    async def main(pair: NamedPair) -> None:
        async def use() -> None:
            pair.slave.topics._changes.put(DataVersion(timestamp=seed))  # so it registers now
            for _ in range(seed % 4):
                await trio.lowlevel.checkpoint()
            await pair.slave.topics.use_permission(4, is_slave=True)

        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        await trio.sleep(PERIOD_S)
        pair.slave.node.start_soon(use)
        await trio.sleep(3 * PERIOD_S)
        assert pair.ns1.tables[pair.slave.addr]["TBW102"].perm == 4

    run(main, seed=seed)


def test_ordered_topics_are_those_of_the_first_name_server_that_has_the_broker() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.order_topics, pair.ns2.order_topics = {"SELF_TEST_TOPIC": "broker-a:1"}, {"BenchmarkTest": ""}
        pair.ns2.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(1)
        assert ordered(pair.master) == ["BenchmarkTest"]
        pair.ns1.boot()
        await trio.sleep(60)
        assert ordered(pair.master) == ["SELF_TEST_TOPIC"]
        # A change of topics like any other: both have been told, and it comes to rest.
        version = pair.master.topics.data_version
        assert version.counter == 2
        assert pair.ns1.versions == pair.ns2.versions == {pair.master.addr: version}
        pair.ns1.order_topics = None
        await trio.sleep(60)
        assert ordered(pair.master) == ["SELF_TEST_TOPIC"]

    run(main, name_servers=2)


def ordered(broker: Broker) -> list[str]:
    table = broker.topics.topic_config_serialize_wrapper().topic_config_table
    return [name for name, topic in table.items() if topic.order]


def test_ordered_topics_that_cannot_be_persisted_are_taken_later() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.order_topics = {"SELF_TEST_TOPIC": "broker-a:1"}
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        failing = pair.master.node.disk.fail(errno.EIO, path="topics.json", count=100)
        await trio.sleep(3)
        assert pair.ns1.headers
        assert ordered(pair.master) == []
        failing.end()
        await trio.sleep(FIRST_INTERVAL_S)
        assert ordered(pair.master) == ["SELF_TEST_TOPIC"]

    run(main)


def test_a_table_that_no_request_can_carry_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(pair: NamedPair) -> None:
        monkeypatch.setattr(broker_outer_api, "FRAME_MAX_LENGTH_BYTES", 65 * 1024)
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(20)
        assert not pair.ns1.asked
        assert {event.status for event in pair.master.events(BrokerRegister)} == {"TopicTableTooLong"}
        monkeypatch.undo()
        await trio.sleep(PERIOD_S)
        assert pair.ns1.headers

    run(main)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_orderly_stop_unregisters_before_the_port_closes() -> None:
    async def main(pair: NamedPair) -> None:
        for name_server in (pair.ns1, pair.ns2):
            name_server.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(1)
        assert pair.ns1.headers
        assert pair.ns2.headers
        await pair.master.stop()
        assert [asked.code for asked in pair.ns1.asked] == [REGISTER, UNREGISTER]
        assert [asked.code for asked in pair.ns2.asked] == [REGISTER, UNREGISTER]
        assert not pair.ns1.headers

    pair = run(main, name_servers=2)
    kinds = [(event.kind, event.actor) for event in pair.recorder.events if event.node == "master"]
    unregistered = max(index for index, (kind, _) in enumerate(kinds) if kind == "broker.unregister")
    assert unregistered < kinds.index(("actor.stop", "RemotingServer"))


def test_a_stop_while_a_name_server_does_not_answer_is_short() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(5)
        Partition(0.0, 1000.0, "ns1", "master").begin(pair.world)
        await trio.sleep(8)  # a registration is under way
        before = trio.current_time()
        await pair.master.stop()
        assert trio.current_time() - before < 4.0
        (event,) = pair.master.events(BrokerUnregister)
        assert event.status == "RemotingTimeoutError"

    run(main)


# --- slaves -----------------------------------------------------------------------------------------------------------


async def replicates(pair: NamedPair) -> None:
    """Everything that the master has reaches the slave."""
    await pair.master.controller.put_message(Message("T", b"x"))
    with trio.fail_after(10):
        while pair.slave.log_end < pair.master.log_end:
            await trio.sleep(0.05)
    assert pair.slave.log_end == pair.master.log_end > 0


def test_a_slave_learns_its_master_from_the_name_server_and_follows_it() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await trio.sleep(1)
        await pair.slave.start()
        await replicates(pair)
        assert pair.slave.registration.master.master_addr == pair.master.addr
        assert pair.slave.registration.master.ha_server_addr == pair.master.ha_addr
        assert pair.master.registration.master.master_addr is None

    pair = run(main)
    assert [event.peer_address for event in pair.slave.events(HaClientRedirect)] == [pair.master.ha_addr]


@pytest.mark.parametrize("later_s", [0.5, 5.0, 25.0])
def test_known_bug_7790_a_slave_that_starts_first_learns_soon(later_s: float) -> None:
    """Not after a period: after as long as it has waited, at most."""

    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.slave.start()
        await trio.sleep(later_s)
        await pair.master.start()
        await trio.sleep(max(ASK_AGAIN_MIN_S, later_s) + ROUND_TRIPS_S)
        assert pair.slave.registration.master.master_addr == pair.master.addr
        await replicates(pair)

    run(main)


def test_a_slave_without_a_master_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await pair.slave.start()
        await trio.sleep(100)
        await pair.master.start()
        await trio.sleep(100)

    pair = run(main)
    name, cluster = pair.slave.config.broker_name, pair.slave.config.broker_cluster_name
    text = f"name server {pair.ns1.address} knows no master of brokerName {name} in brokerClusterName {cluster}: "
    assert [line.removeprefix(text) for line in caplog.messages if "no master" in line] == ["it is asked again"] * 2


def test_a_name_server_that_is_down_is_named_once_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: NamedPair) -> None:
        await pair.slave.start()
        await trio.sleep(5)

    pair = run(main)
    lines = {line for line in caplog.messages if pair.ns1.address in line}
    assert f"cannot register with name server {pair.ns1.address}: Connection refused" in lines
    assert all(line.count(pair.ns1.address) == 1 for line in lines)


def test_known_bug_s11_a_name_server_that_forgot_the_master_costs_a_slave_nothing() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        await replicates(pair)
        known = pair.slave.registration.master
        pair.ns1.says = RegisterBrokerResponseHeader()
        await trio.sleep(3 * PERIOD_S)
        assert pair.slave.registration.master == known
        await replicates(pair)

    pair = run(main)
    assert not pair.slave.events(HaClientClose)


def test_a_slave_goes_over_to_another_master() -> None:
    async def main(pair: NamedPair) -> None:
        other = Broker(pair.world.node("other"), pair.master.config, pair.recorder)
        other.config = broker_config(other.node, pair.ns1.address)
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        await replicates(pair)
        await pair.master.stop()
        await other.start()
        await trio.sleep(PERIOD_S)
        assert pair.slave.registration.master.ha_server_addr == other.ha_addr
        connect = pair.slave.events(HaClientConnect)[-1]
        assert connect.attrs == {"network.peer.address": other.ha_addr}
        pair.master = other

    pair = run(main)
    # It left the old one for good.
    redirected = pair.slave.events(HaClientRedirect)[-1].seq
    connects = [event for event in pair.slave.events(HaClientConnect) if event.seq > redirected]
    assert {event.peer_address for event in connects} == {pair.master.ha_addr}


def test_a_client_that_crashes_is_made_again_and_follows_the_master_that_was_told() -> None:
    crashes = iter([True])

    def make_slave(max_offset: int, now: float, config: HaConfig) -> HaSlave:
        if next(crashes, False):
            raise RuntimeError("planted")
        return make_ha_slave(max_offset, now, config)

    async def main(pair: NamedPair) -> None:
        pair.slave.machines = Machines(make_slave=make_slave)
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        await replicates(pair)

    pair = run(main)
    assert [event.actor for event in pair.slave.events(ActorCrash)] == ["slave-1/HAClient"]
    assert len(pair.slave.events(HaClientRedirect)) == 1


def test_a_slave_with_a_configured_master_is_not_redirected() -> None:
    async def main(pair: NamedPair) -> None:
        ha = attrs.evolve(pair.slave.config.ha, ha_master_address=pair.master.ha_addr)
        pair.slave.config = attrs.evolve(pair.slave.config, ha=ha)
        pair.ns1.says = RegisterBrokerResponseHeader(ha_server_addr="10.9.9.9:1", master_addr="10.9.9.9:2")
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        # For its topics, offsets and questions it believes the name server, as RocketMQ does.
        await trio.sleep(15 + SILENCE_PATIENCE_S)
        assert pair.slave.registration.master.master_addr == "10.9.9.9:2"
        await replicates(pair)

    pair = run(main)
    assert not pair.slave.events(HaClientRedirect)


@pytest.mark.parametrize("nonsense", ["", "no address", "10.0.0.1:99999", ":1", "a..b:1", "a:" + "1" * 5000, "☃:1"])
def test_an_address_that_is_none_is_passed_over(nonsense: str) -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.says = RegisterBrokerResponseHeader(ha_server_addr=nonsense, master_addr=nonsense)
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.master.start()
        await pair.slave.start()
        await trio.sleep(1)
        assert pair.slave.registration.master.master_addr is None
        pair.ns1.says = None
        await trio.sleep(2)
        await replicates(pair)

    run(main)


def test_a_slave_does_not_follow_itself() -> None:
    async def main(pair: NamedPair) -> None:
        pair.ns1.says = RegisterBrokerResponseHeader(ha_server_addr=pair.slave.ha_addr, master_addr=pair.slave.addr)
        pair.ns1.boot()
        await trio.sleep(1)
        await pair.slave.start()
        await trio.sleep(10)

    pair = run(main)
    assert not pair.slave.events(HaClientConnect)


# --- the ports --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [LISTEN_PORT, LISTEN_PORT - 2])
def test_both_ports_answer_an_unknown_request_with_3(port: int) -> None:
    async def main(pair: NamedPair) -> None:
        await pair.master.start()
        client_node = pair.world.node("client")
        answers: list[RemotingCommand] = []

        async def ask(node: Node) -> None:
            stream = await trio.open_tcp_stream(pair.master.node.address, port)
            await stream.send_all(encode_command(RemotingCommand(999, opaque=7)))
            data = b""
            async with stream:
                while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                    data += await stream.receive_some()
            answers.append(decode_command(data[4:]))

        client_node.boot(ask)
        await client_node.wait_down()
        (answer,) = answers
        assert (answer.code, answer.remark, answer.opaque) == (3, " request type 999 not supported", 7)

    run(main)


def test_without_a_listen_port_there_is_nothing_of_it() -> None:
    async def main(pair: NamedPair) -> None:
        pair.master.config = attrs.evolve(pair.master.config, remoting=None, namesrv_addr=None)
        await pair.master.start()
        assert pair.master.controller.remoting is None
        await trio.sleep(100)

    pair = run(main)
    actors = {event.actor for event in pair.master.events(ActorStart)}
    assert not actors & {"RemotingServer", "FastRemotingServer", "RemotingClient", "BrokerRegistrationService"}
    assert [f"config/{name}" for name in pair.master.node.disk.list("config")] == [TERM_FILE]
