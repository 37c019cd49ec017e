"""Name servers and brokers under one fault each: how long a route is wrong, and that all others stay right.

Every scenario ends with `settle`: soon every name server says what is true, and goes on saying it while whatever is
left of the past expires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from rmq_actors.tracing.events.broker import BrokerRegister, BrokerUnregister
from rmq_actors.tracing.events.ha import HaClientRedirect
from rmq_actors.tracing.events.namesrv import NamesrvRegister, NamesrvRemove
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rmq_actors.wire.headers.topics import DeleteTopicFromNamesrvRequestHeader, GetRouteInfoRequestHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.request_code import RequestCode
from sim_net import ClockJump, Delay, Hold, Partition, Pause, PowerLoss
from sim_net.faults.fault import Fault
from tests.worlds.name_server_world import CONVERGENCE_S, LiveBroker, Member, NameServerWorld, NotConverged, pair

#: A broker notices that a connection is gone, waits for a second at most, and registers.
SOON_S = 2.0
#: A name server that nobody could reach is tried every 5 s at least; a connection attempt takes 3 s at most.
REACHED_AGAIN_S = 9.0
#: Whoever does not notice by itself does so with its next registration, whose answer it awaits for 6 s.
PERIOD_S = 30.0
REQUEST_TIMEOUT_S = 6.0
#: What a silent broker is given.
EXPIRED_S = 120.0

BOTH = ("ns-1", "ns-2")


def two_pairs(**settings: object) -> NameServerWorld:
    """Two name servers, and a master and a slave of two names each."""
    return NameServerWorld([*pair("a"), *pair("b")], name_server_names=BOTH, settings=settings)


def run(servers: NameServerWorld, use: Callable[[], Awaitable[None]], *faults: Fault) -> None:
    """Wait until all is well, call `use`, wait until all is well again. Faults are timed from the beginning."""

    async def scenario() -> None:
        for number, fault in enumerate(faults):
            servers.world.apply(fault, number)
        await servers.converge(SOON_S)
        await use()
        await servers.settle()

    servers.run(scenario)


def brokers_at(servers: NameServerWorld, name_server: str) -> set[str]:
    """The addresses that a name server has."""
    return set(servers.known(name_server).brokers.values())


def address(servers: NameServerWorld, node: str) -> str:
    return f"{servers.nodes[node].address}:{servers.members[node].port}"


# --- name servers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("force_register", [True, False])
@pytest.mark.parametrize("down_s", [0.2, 8.0, 200.0])
def test_a_name_server_that_is_killed_and_comes_back_empty_knows_everybody_soon(
    down_s: float, force_register: bool
) -> None:
    servers = two_pairs(force_register=force_register)

    async def use() -> None:
        await trio.sleep(20)
        servers.nodes["ns-1"].kill()
        await servers.stay(down_s)  # the other one is none the wiser
        servers.boot("ns-1")
        await servers.converge(REACHED_AGAIN_S)

    run(servers, use)


@pytest.mark.parametrize("down_s", [0.2, 100.0])
def test_a_name_server_that_lost_its_power_is_missed_at_the_next_registration(down_s: float) -> None:
    """Nobody hears that it is gone: the connections look well."""
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep(20)
        servers.nodes["ns-1"].power_loss()
        await servers.stay(down_s)
        servers.boot("ns-1")
        await servers.converge(PERIOD_S + REQUEST_TIMEOUT_S + PERIOD_S)

    run(servers, use)


@pytest.mark.parametrize("lost_s", [202.0, 211.0, 228.0])
def test_a_name_server_that_hung_before_it_lost_its_power(lost_s: float) -> None:
    """It took requests and answered none, so they came ever more seldom. None of them is waited for in vain twice."""
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep_until(lost_s + 1)
        await servers.converge(CONVERGENCE_S)

    run(servers, use, Pause(20.0, 900.0, "ns-1"), PowerLoss(lost_s, "ns-1", 1.0))


def test_of_two_name_servers_one_is_down_when_the_brokers_start() -> None:
    servers = NameServerWorld([*pair("a"), *pair("b")], name_server_names=BOTH, reserves=("ns-2",))

    async def use() -> None:
        await servers.stay(100)
        servers.boot("ns-2")
        await servers.converge(REACHED_AGAIN_S)

    run(servers, use)


def test_a_name_server_that_stops_in_order_and_starts_again() -> None:
    servers = two_pairs()

    async def use() -> None:
        servers.nodes["ns-1"].stop()
        await servers.nodes["ns-1"].wait_down()
        await servers.stay(50)
        servers.boot("ns-1")
        await servers.converge(REACHED_AGAIN_S)

    run(servers, use)


@pytest.mark.parametrize("pause_s", [4.0, 50.0, 130.0, 300.0])
def test_a_name_server_that_is_paused_and_goes_on(pause_s: float) -> None:
    """While it does nothing registrations pile up before it. They count: nobody was silent but the name server."""
    for seed in range(4):  # who has the first turn afterwards, its timers or the connections, is a matter of chance
        servers = NameServerWorld([*pair("a"), *pair("b")], seed)

        async def use(servers: NameServerWorld = servers) -> None:
            await trio.sleep_until(20 + pause_s)
            await servers.stay(100)
            assert not servers.events(NamesrvRemove)

        run(servers, use, Pause(20.0, pause_s, "ns-1"))


# --- one broker -------------------------------------------------------------------------------------------------------


def test_a_partition_takes_one_broker_out_of_one_name_server_after_120_s() -> None:
    servers = two_pairs()

    async def use() -> None:
        everybody, a_0 = brokers_at(servers, "ns-1"), address(servers, "a-0")
        await trio.sleep_until(20 + EXPIRED_S - PERIOD_S)
        assert brokers_at(servers, "ns-1") == everybody
        await trio.sleep_until(20 + EXPIRED_S + 1)
        assert brokers_at(servers, "ns-1") == everybody - {a_0}
        assert brokers_at(servers, "ns-2") == everybody
        await trio.sleep_until(220)
        assert [event.broker_addr for event in servers.events(NamesrvRemove)] == [a_0]
        await servers.converge()

    run(servers, use, Partition(20.0, 200.0, "ns-1", "a-0"))


def test_a_broker_that_is_heard_and_hears_nothing_stays_in_the_routes() -> None:
    servers = two_pairs()

    async def use() -> None:
        await servers.stay(300)
        assert servers.events(BrokerRegister, node="a-0", status="RemotingTimeoutError")

    run(servers, use, Partition(20.0, 270.0, "ns-1", "a-0", two_way=False))


def test_a_broker_that_hears_and_is_not_heard_goes() -> None:
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep_until(20 + EXPIRED_S + 1)
        assert address(servers, "a-0") not in brokers_at(servers, "ns-1")
        await trio.sleep_until(220)

    run(servers, use, Partition(20.0, 200.0, "a-0", "ns-1", two_way=False))


@pytest.mark.parametrize("down_s", [0.1, 3.0, 100.0])
def test_a_broker_that_is_killed_goes_at_once_and_comes_back_at_once(down_s: float) -> None:
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep(15)
        servers.nodes["b-0"].kill()
        await servers.converge(0.5)
        await servers.stay(down_s)
        servers.boot("b-0")
        await servers.converge(SOON_S)

    run(servers, use)


def test_a_broker_that_loses_its_power_for_good_goes_within_120_s() -> None:
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep(25)
        servers.nodes["b-0"].power_loss()
        await servers.converge(EXPIRED_S + 0.5)

    run(servers, use)


def test_a_broker_that_stops_in_order_goes_before_it_is_down() -> None:
    servers = two_pairs()

    async def use() -> None:
        await servers.stop_broker("b-1")
        assert not servers.wrong()
        await servers.stop_broker("b-0")
        assert not servers.wrong()
        assert not [topic for topic, name in servers.known("ns-1").queues if name == "broker-b"]

    run(servers, use)


def test_a_broker_comes_back_from_a_power_loss_at_a_new_address() -> None:
    """The old address expires while the new one is there: that must take away nothing of it."""
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep(25)
        for node in ("a-0", "b-1"):
            servers.nodes[node].power_loss()
            servers.configure(node, port=20911)
            servers.boot(node)
        await servers.converge(SOON_S, about_the_gone=False, about_masters=False)
        await servers.converge(PERIOD_S + SOON_S)
        await servers.stay(2 * EXPIRED_S)
        assert len(servers.events(NamesrvRemove, status="expired")) == 4

    run(servers, use)


@pytest.mark.parametrize("pause_s", [5.0, 100.0, 130.0, 400.0])
def test_a_broker_that_is_paused_and_goes_on(pause_s: float) -> None:
    servers = two_pairs()

    async def use() -> None:
        await trio.sleep_until(20 + pause_s)
        assert bool(servers.events(NamesrvRemove, status="expired")) == (pause_s > EXPIRED_S)
        await servers.converge(SOON_S + REQUEST_TIMEOUT_S)

    run(servers, use, Pause(20.0, pause_s, "a-0"))


def test_wall_clocks_that_jump_change_nothing() -> None:
    servers = two_pairs(force_register=False)
    jumps = [
        ClockJump(20.0 + 3 * number, node, by_ms)
        for number, (node, by_ms) in enumerate(
            (node, by_ms) for node in ("ns-1", "a-0", "b-1") for by_ms in (3_600_000, -7_200_000)
        )
    ]

    async def use() -> None:
        await servers.stay(200)
        await servers.brokers["a-0"].set_topic("T")  # its version is of a time before the last one's
        await servers.converge(0.5)
        assert not servers.events(NamesrvRemove)

    run(servers, use, *jumps)


@pytest.mark.parametrize("extra_s", [1.0, 2.5])
def test_a_slow_network_is_no_reason_to_be_forgotten(extra_s: float) -> None:
    servers = two_pairs()

    async def use() -> None:
        await servers.stay(200)

    run(servers, use, Delay(20.0, 180.0, "ns-1", "a-0", extra_s))


# --- two that want one place ------------------------------------------------------------------------------------------


def with_a_spare() -> NameServerWorld:
    """Two pairs, and a machine that can take the place of "a-0"."""
    return NameServerWorld(
        [*pair("a"), *pair("b"), Member("spare", "broker-a")], name_server_names=BOTH, reserves=("spare",)
    )


def test_a_paused_master_that_was_replaced_wakes_up_and_is_stopped() -> None:
    """Its late registrations do not take its place back, its late unregister does not take it from the new one."""
    servers = with_a_spare()

    async def use() -> None:
        old = address(servers, "a-0")
        await trio.sleep_until(25)
        servers.boot("spare")
        await trio.sleep(1)
        assert old not in brokers_at(servers, "ns-1")
        for _ in range(200):  # the old one goes on at 80
            await trio.sleep(0.5)
            for name in BOTH:
                assert servers.known(name).brokers["DefaultCluster", "broker-a", 0] == address(servers, "spare")
        assert servers.events(NamesrvRegister, node="ns-1", status="superseded")
        await servers.stop_broker("a-0")
        await servers.stay(1)

    run(servers, use, Pause(20.0, 60.0, "a-0"))


@pytest.mark.parametrize("end", ["stop", "kill", "power loss"])
def test_when_the_successor_goes_the_one_before_is_routed_again(end: str) -> None:
    servers = with_a_spare()

    async def use() -> None:
        servers.boot("spare")
        await trio.sleep(30)
        assert servers.known("ns-1").brokers["DefaultCluster", "broker-a", 0] == address(servers, "spare")
        if end == "stop":
            await servers.stop_broker("spare")
        elif end == "kill":
            servers.nodes["spare"].kill()
        else:
            servers.nodes["spare"].power_loss()
        await servers.converge(EXPIRED_S if end == "power loss" else 0.5, about_masters=False)

    run(servers, use)


def test_an_unregister_that_is_held_up_arrives_after_the_new_owner() -> None:
    servers = with_a_spare()

    async def use() -> None:
        await trio.sleep_until(21)
        await servers.stop_broker("a-0")
        servers.boot("spare")
        await trio.sleep(5)
        assert servers.events(BrokerUnregister, node="a-0", status="RemotingTimeoutError")
        await servers.stay(60, about_masters=False)
        removed = servers.events(NamesrvRemove, node="ns-1")
        assert [event.status for event in removed] == ["unregistered"]
        assert (removed[0].sim_time_ns or 0) > 40e9

    run(servers, use, Hold(20.0, 20.0, "a-0", "ns-1"))


def test_an_unregister_arrives_after_the_same_broker_was_started_again() -> None:
    """The segments of the old connection are sent again a little after those of the new one."""
    late = 0
    for seed in range(12):
        servers = NameServerWorld(pair("a"), seed)

        async def use(servers: NameServerWorld = servers) -> None:
            await trio.sleep_until(21)
            await servers.stop_broker("a-0")
            await trio.sleep_until(40)
            servers.boot("a-0")
            await servers.converge(REACHED_AGAIN_S)
            await servers.stay(60)

        run(servers, use, Partition(20.0, 20.0, "a-0", "ns-1"))
        late += bool(servers.events(NamesrvRemove, status="not_live"))
    assert late


def test_who_holds_a_place_for_long_has_it_for_good() -> None:
    """A successor that vanished, and is switched on again when all have long gone on without it, is none any more."""
    servers = with_a_spare()

    async def use() -> None:
        servers.boot("spare")
        await trio.sleep(30)
        servers.nodes["spare"].power_loss()
        await trio.sleep(EXPIRED_S + PERIOD_S + EXPIRED_S + PERIOD_S)  # until it expires, and as long again
        servers.boot("spare")
        await trio.sleep(5)
        for _ in range(120):
            for name in BOTH:
                assert servers.known(name).brokers["DefaultCluster", "broker-a", 0] == address(servers, "a-0")
            await trio.sleep(0.5)
        await servers.stop_broker("spare")

    run(servers, use)


def test_master_and_slave_change_roles() -> None:
    servers = two_pairs()

    async def use() -> None:
        for _ in range(3):
            for name in ("a-0", "a-1"):
                servers.nodes[name].kill()
                servers.configure(name, broker_id=1 - servers.members[name].broker_id)
                servers.boot(name)
            await servers.converge(SOON_S)
            await servers.stay(40)

    run(servers, use)


def test_name_servers_that_know_the_same_answer_with_the_same_bytes() -> None:
    """Whoever registered first with them, and whenever they were started."""
    servers = two_pairs()

    async def use() -> None:
        for node in ("b-0", "ns-2", "a-1"):
            servers.nodes[node].kill()
            servers.boot(node)
            await trio.sleep(5)
        await servers.converge()
        topics = [topic for topic, _ in servers.known("ns-1").queues]
        questions = [
            (RequestCode.GET_BROKER_CLUSTER_INFO, None),
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
            *((RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)) for topic in topics),
        ]
        for code, header in questions:
            first, second = [(await servers.ask(name, code, header)).body for name in BOTH]
            assert first == second != b""

    run(servers, use)


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("force_register", [True, False])
def test_topics_are_routed_changed_and_deleted_at_once(force_register: bool) -> None:
    servers = two_pairs(force_register=force_register)

    async def use() -> None:
        broker = servers.brokers["a-0"]
        for change in (
            lambda: broker.set_topic("T", queues=8),
            lambda: broker.set_topic("T", queues=8, perm=4),
            lambda: broker.set_topic("U"),
            lambda: broker.remoting.topic_config_manager.delete_topic_config("T"),
        ):
            await servers.on_node("a-0", change)
            await servers.converge(0.5)
            await servers.stay(40)

    run(servers, use)


@pytest.mark.parametrize("force_register", [True, False])
def test_a_wiped_write_permission_lasts_while_topics_and_name_server_do(force_register: bool) -> None:
    """As RocketMQ has it: the registrations of a broker bring it back only with another version of its topics."""
    servers = two_pairs(force_register=force_register)

    def perms(name_server: str) -> set[int]:
        queues = servers.known(name_server).queues.items()
        return {perm for (topic, name), (_, _, perm, _) in queues if name == "broker-a" and topic != "TBW102"}

    async def wipe() -> None:
        header = WipeWritePermOfBrokerRequestHeader(broker_name="broker-a")
        answer = await servers.ask("ns-1", RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        wiped = decode_header(WipeWritePermOfBrokerResponseHeader, answer).wipe_topic_count
        assert wiped == sum(name == "broker-a" for _, name in servers.known("ns-1").queues)

    async def use() -> None:
        before = perms("ns-1")
        assert before == {6, 7}
        await wipe()
        for _ in range(3):  # registrations, heartbeats, a slave that comes back
            assert perms("ns-1") == {4, 5}
            servers.nodes["a-1"].kill()
            servers.boot("a-1")
            await trio.sleep(40)
        assert perms("ns-2") == before  # each name server has its own
        with pytest.raises(NotConverged):
            await servers.stay(1)
        await servers.on_node("a-0", lambda: servers.brokers["a-0"].set_topic("T"))
        await servers.converge(0.5)
        await wipe()
        await trio.sleep(1)
        servers.nodes["a-0"].kill()  # a broker that comes back counts as new
        servers.boot("a-0")
        await servers.converge(SOON_S)
        await wipe()
        servers.nodes["ns-1"].kill()
        servers.boot("ns-1")
        await servers.converge(REACHED_AGAIN_S)
        await wipe()
        await servers.ask("ns-1", RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader("broker-a"))
        assert perms("ns-1") == {6}  # also where it was not so before
        await servers.on_node("a-0", lambda: servers.brokers["a-0"].set_topic("T"))
        await servers.converge(0.5)

    run(servers, use)


def test_a_topic_that_was_deleted_in_a_name_server_is_back_when_the_topics_of_its_brokers_change() -> None:
    servers = two_pairs()

    async def use() -> None:
        for name in ("a-0", "b-0"):
            await servers.on_node(name, partial(servers.brokers[name].set_topic, "T"))
        await servers.converge(0.5)
        header = DeleteTopicFromNamesrvRequestHeader(topic="T")
        await servers.ask("ns-1", RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        for _ in range(100):
            assert not [name for topic, name in servers.known("ns-1").queues if topic == "T"]
            await trio.sleep(0.5)
        await servers.on_node("b-0", partial(servers.brokers["b-0"].set_topic, "U"))
        await trio.sleep(0.5)
        assert [name for topic, name in servers.known("ns-1").queues if topic == "T"] == ["broker-b"]
        await servers.on_node("a-0", partial(servers.brokers["a-0"].set_topic, "U"))

    run(servers, use)


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_that_was_created_right_before_a_power_loss_is_routed_when_the_broker_is_back(seed: int) -> None:
    servers = NameServerWorld(pair("a"), seed)

    async def use() -> None:
        await servers.on_node("a-0", lambda: servers.brokers["a-0"].set_topic("T"))
        await trio.sleep(0.02 * seed)
        servers.nodes["a-0"].power_loss()
        servers.nodes["ns-1"].power_loss()
        servers.boot("a-0", "ns-1")
        await servers.converge(PERIOD_S + REQUEST_TIMEOUT_S)
        assert ("T", "broker-a") in servers.known("ns-1").queues

    run(servers, use)


# --- whole brokers ----------------------------------------------------------------------------------------------------


def test_a_slave_follows_its_master_wherever_the_name_servers_say_it_is() -> None:
    """Brokers with their stores: the HA address that is registered is where the log is served."""
    servers = NameServerWorld([*pair("a", 2), *pair("b")], name_server_names=BOTH, whole_brokers=True)

    async def replicate(master: str) -> None:
        broker = servers.brokers[master]
        controller = broker.controller
        assert controller is not None
        for number in range(5):
            await servers.on_node(master, partial(controller.put_message, Message("T", b"%d" % number)))
        with trio.fail_after(60):
            while any(each.log.max_offset < broker.log.max_offset for each in slaves_of(broker)):
                await trio.sleep(0.5)

    def slaves_of(master: LiveBroker) -> list[LiveBroker]:
        name = master.member.broker_name
        return [each for each in servers.brokers.values() if each.member.broker_name == name and each is not master]

    async def use() -> None:
        await replicate("a-0")
        await replicate("b-0")
        servers.nodes["ns-1"].power_loss()
        servers.nodes["a-0"].kill()
        servers.configure("a-0", port=20911)
        servers.boot("a-0")
        await trio.sleep(1)
        await replicate("a-0")
        servers.boot("ns-1")
        await servers.converge()
        # A slave that has everything is promoted, and the old master is its slave.
        for name in ("a-0", "a-1"):
            await servers.stop_broker(name)
        servers.configure("a-0", broker_id=1)
        servers.configure("a-1", broker_id=0)
        servers.boot("a-0", "a-1")
        await servers.converge()
        await replicate("a-1")

    run(servers, use)
    assert {event.node for event in servers.events(HaClientRedirect)} == {"a-0", "a-1", "a-2", "b-1"}
