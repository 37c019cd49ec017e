"""Brokers and this project's own name servers: routes as clients would see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.broker.registration_service import TELL_TOPICS_MAX_S
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import NamesrvController, open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.broker_registration import FIRST_INTERVAL_S, UNREACHABLE_PAUSE_MAX_S
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, Partition, Schedule, World
from tests.worlds.name_server_world import SMALL_STORE, pair
from tests.worlds.registration_world import NAMESRV_PORT, Broker, broker_config, new_recorder
from tests.worlds.role_world import RoleWorld

ROUND_TRIPS_S = 0.1
PERIOD_S = 30.0


@attrs.define(eq=False)
class NameServerNode:
    """A node whose program is a name server."""

    node: Node
    recorder: Recorder
    _controller: NamesrvController | None = None

    @property
    def address(self) -> str:
        return f"{self.node.address}:{NAMESRV_PORT}"

    def boot(self) -> None:
        self.node.boot(self._serve)

    def addresses(self, topic: str = "TBW102") -> dict[int, str]:
        """The brokers of the topic's route, by brokerId."""
        assert self._controller is not None
        route = self._controller.route_info_manager.pick_topic_route_data(topic)
        return {} if route is None else dict(route.broker_datas[0].broker_addrs)

    async def _serve(self, node: Node) -> None:
        config = NamesrvConfig(remoting=RemotingServerConfig(listen_host=node.address, listen_port=NAMESRV_PORT))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        async with open_name_server(config, environment, tracer) as self._controller:
            await trio.sleep_forever()


@attrs.define(eq=False)
class NamedCluster:
    """Two name servers, which are up; a master and two slaves, which are not."""

    world: World
    ns1: NameServerNode
    ns2: NameServerNode
    master: Broker
    slaves: list[Broker]

    @property
    def name_servers(self) -> list[NameServerNode]:
        return [self.ns1, self.ns2]

    @property
    def all(self) -> dict[int, str]:
        return {0: self.master.addr, 1: self.slaves[0].addr, 2: self.slaves[1].addr}

    async def start_brokers(self) -> None:
        for broker in (self.master, *self.slaves):
            await broker.start()
        with trio.fail_after(5):
            for broker in (self.master, *self.slaves):
                await broker.registration.wait_until_registered()


def run(main: Callable[[NamedCluster], Awaitable[None]], *, force_register: bool = True, seed: int = 3) -> None:
    world = World(seed, guard_packages=("rmq_actors",))

    async def harness(world: World) -> None:
        recorder = new_recorder(world)
        ns1, ns2 = (NameServerNode(world.node(name), recorder) for name in ("ns1", "ns2"))
        addresses = f"{ns1.address};{ns2.address}"
        brokers = []
        for number, name in enumerate(("master", "slave-1", "slave-2")):
            node = world.node(name)
            role = BrokerRole.SLAVE if number else BrokerRole.ASYNC_MASTER
            config = attrs.evolve(broker_config(node, addresses, role, force_register=force_register), broker_id=number)
            brokers.append(Broker(node, config, recorder))
        ns1.boot()
        ns2.boot()
        await trio.sleep(0.5)
        await main(NamedCluster(world, ns1, ns2, brokers[0], brokers[1:]))

    world.run(harness)


async def replicates(cluster: NamedCluster, master: Broker) -> None:
    await master.controller.put_message(Message("T", b"x"))
    with trio.fail_after(10):
        while any(slave.log_end < master.log_end for slave in cluster.slaves):
            await trio.sleep(0.05)


@pytest.mark.parametrize("force_register", [True, False])
def test_brokers_find_each_other_and_their_topics_are_routed(force_register: bool) -> None:
    async def main(cluster: NamedCluster) -> None:
        await cluster.start_brokers()
        assert [ns.addresses() for ns in cluster.name_servers] == [cluster.all] * 2
        await replicates(cluster, cluster.master)
        assert cluster.ns1.addresses("New") == {}
        await cluster.master.topics.update_topic_config(TopicConfig(topic_name="New"))
        await trio.sleep(ROUND_TRIPS_S)
        assert [ns.addresses("New") for ns in cluster.name_servers] == [cluster.all] * 2
        await trio.sleep(300)  # nobody expires
        assert [ns.addresses("New") for ns in cluster.name_servers] == [cluster.all] * 2

    run(main, force_register=force_register)


def test_brokers_that_stop_leave_the_routes_at_once() -> None:
    async def main(cluster: NamedCluster) -> None:
        await cluster.start_brokers()
        await cluster.slaves[1].stop()
        assert cluster.ns1.addresses() == {0: cluster.master.addr, 1: cluster.slaves[0].addr}
        await cluster.master.stop()
        assert 0 not in cluster.ns2.addresses()

    run(main)


@pytest.mark.parametrize("force_register", [True, False])
@pytest.mark.parametrize("fault", ["kill", "power_loss"])
def test_a_name_server_that_restarts_has_every_route_within_the_bound(fault: str, force_register: bool) -> None:
    async def main(cluster: NamedCluster) -> None:
        await cluster.start_brokers()
        await trio.sleep(20)
        getattr(cluster.ns1.node, fault)()
        await trio.sleep(33)
        assert cluster.ns2.addresses() == cluster.all
        cluster.ns1.boot()
        # A power loss ends no connection: the next request finds that out, and takes its time-out at most.
        await trio.sleep((0 if fault == "kill" else PERIOD_S + 6) + UNREACHABLE_PAUSE_MAX_S + 2 * ROUND_TRIPS_S)
        assert cluster.ns1.addresses() == cluster.all

    run(main, force_register=force_register)


def test_a_master_that_is_replaced_while_it_cannot_be_reached_does_not_come_back() -> None:
    """Its slaves follow the new one, though one name server still names the old one for a while."""

    async def main(cluster: NamedCluster) -> None:
        await cluster.start_brokers()
        await replicates(cluster, cluster.master)
        await trio.sleep(15)
        heals = [
            Partition(0.0, 500.0, "master", name).begin(cluster.world) for name in ("ns1", "ns2", "slave-1", "slave-2")
        ]
        # An operator makes the first slave the master: another process on its store.
        promoted = cluster.slaves.pop(0)
        await promoted.stop()
        store = attrs.evolve(promoted.config.store, broker_role=BrokerRole.ASYNC_MASTER)
        promoted.config = attrs.evolve(promoted.config, store=store)
        await promoted.start()
        await trio.sleep(PERIOD_S + ROUND_TRIPS_S)
        assert cluster.slaves[0].registration.master.master_addr == promoted.addr
        await replicates(cluster, promoted)
        for heal in heals:
            heal()
        await trio.sleep(100)
        assert [ns.addresses()[0] for ns in cluster.name_servers] == [promoted.addr] * 2
        assert cluster.slaves[0].registration.master.master_addr == promoted.addr
        await replicates(cluster, promoted)

    run(main)


def test_name_servers_by_address_server() -> None:
    """Asked first after 10 s, then every 2 minutes; brokers follow the list."""

    async def main(cluster: NamedCluster) -> None:
        web = cluster.world.node("web")
        lists = [f"{cluster.ns1.address}\n"]
        asked: list[tuple[float, bytes]] = []

        async def answer(stream: trio.SocketStream) -> None:
            asked.append((trio.current_time(), (await stream.receive_some()).split(b"\r\n")[0]))
            body = lists[0]
            await stream.send_all(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

        async def serve(node: Node) -> None:
            await trio.serve_tcp(answer, 8080, host=node.address)

        web.boot(serve)
        cluster.master.config = attrs.evolve(
            cluster.master.config,
            namesrv_addr=None,
            fetch_namesrv_addr_by_address_server=True,
            rmq_address_server_domain=web.address,
        )
        begin = trio.current_time()
        await cluster.master.start()
        await trio.sleep(FIRST_INTERVAL_S - 0.5)
        assert asked == []
        await trio.sleep(1)
        assert cluster.ns1.addresses() == {0: cluster.master.addr}
        lists[0] = f"{cluster.ns1.address};{cluster.ns2.address}"
        await trio.sleep(121)
        assert cluster.ns2.addresses() == {0: cluster.master.addr}
        lists[0] = "  "  # no list: nothing changes
        await trio.sleep(121)
        assert len(asked) == 3
        lists[0] = cluster.ns2.address
        await trio.sleep(121 + 130)
        assert cluster.ns2.addresses() == {0: cluster.master.addr}
        assert [line for _, line in asked] == [b"GET /rocketmq/nsaddr HTTP/1.1"] * 5
        assert asked[0][0] - begin == pytest.approx(10, abs=0.1)
        await cluster.master.stop()
        assert cluster.ns2.addresses() == {}

    run(main)


@pytest.mark.parametrize(("fault", "takes_s"), [("none", 0.5), ("killed", 0.5), ("silent", TELL_TOPICS_MAX_S + 0.5)])
def test_a_topic_that_an_operator_has_made_is_routed_when_the_answer_comes(fault: str, takes_s: float) -> None:
    servers = RoleWorld(
        pair("a", 0),
        name_server_names=("ns-1", "ns-2"),
        whole_brokers=True,
        store=attrs.evolve(SMALL_STORE, broker_role=BrokerRole.ASYNC_MASTER),
    )

    async def make_and_ask() -> None:
        live = ["ns-1"] if fault != "none" else ["ns-1", "ns-2"]
        if fault == "killed":
            servers.nodes["ns-2"].kill()
        elif fault == "silent":
            servers.world.start_schedule(Schedule((Partition(0.0, 60.0, "ns-2", "a-0"),)))
        for topic in ("One", "Two"):
            header = CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", 0, order=False)
            request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, encode_header(header))
            began_s = trio.current_time()
            answer = await servers.ask_broker("a-0", request)
            assert answer.code == ResponseCode.SUCCESS
            assert trio.current_time() - began_s < takes_s
            for name_server in live:
                route = await servers.ask(
                    name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
                )
                assert route.code == ResponseCode.SUCCESS, (name_server, topic)

    servers.run_well(make_and_ask)
