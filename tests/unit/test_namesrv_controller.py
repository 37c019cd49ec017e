"""A whole name server on a simulated node: deadlines, files, starts and stops. Many of them: tests/simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.embedding.properties_file import FILE_MAX_BYTES
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import NamesrvController, open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingTimeoutError
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.actor import ActorStop
from rmq_actors.tracing.events.namesrv import NamesrvRegister, NamesrvRemove
from rmq_actors.tracing.events.remoting import RemotingClose
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.namesrv import RegisterBrokerRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode as Code
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, Pause, World
from tests.worlds.remoting_world import PORT, RemotingWorld

BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table={"T": TopicConfig(topic_name="T")})
).encode(compressed=False)
KV_PATH = NamesrvConfig().kv_config_path


@attrs.define(eq=False)
class NameServerWorld(RemotingWorld):
    """A name server on the node "server"; its broker and its client are on "client"."""

    def open(self, node: Node) -> contextlib.AbstractAsyncContextManager[NamesrvController]:
        config = NamesrvConfig(remoting=RemotingServerConfig(self.server_node.address, PORT))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        return open_name_server(config, environment, self.recorder.tracer(node.name))

    def use(self, *parts: Callable[[RemotingClient], Awaitable[None]]) -> None:
        """Each part talks to a fresh name server on the files of the one before."""
        done = trio.Event()

        async def serve(node: Node) -> None:
            async with self.open(node):
                await trio.sleep_forever()

        async def call(node: Node) -> None:
            for part in parts:
                self.server_node.boot(serve)
                await trio.sleep(0.1)
                async with self.client(node) as client:
                    await part(client)
                self.server_node.kill()
            done.set()

        async def main(world: World) -> None:
            self.client_node.boot(call)
            await done.wait()

        self.world.run(main)

    async def ask(self, client: RemotingClient, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        return await client.invoke(self.address, RemotingCommand(code, fields, body=body), 3000)

    async def register(self, client: RemotingClient, address: str = "h:1", name: str = "broker-a") -> None:
        header = RegisterBrokerRequestHeader(name, address, "c", "h:2", 0)
        answer = await self.ask(client, Code.REGISTER_BROKER, BODY, **encode_header(header))
        assert answer.code == ResponseCode.SUCCESS

    async def has_route(self, client: RemotingClient) -> bool:
        answer = await self.ask(client, Code.GET_ROUTEINFO_BY_TOPIC, topic="T")
        return answer.code == ResponseCode.SUCCESS

    def removals(self) -> list[tuple[str | None, str]]:
        return [(event.status, event.broker_addr) for event in self.events(NamesrvRemove)]


def seconds(event: Event) -> float:
    assert event.sim_time_ns is not None
    return event.sim_time_ns / 1e9


def test_a_silent_broker_expires_at_its_deadline_and_its_connection_is_closed() -> None:
    sim = NameServerWorld()

    async def use(client: RemotingClient) -> None:
        await sim.register(client)
        await trio.sleep(70.0)
        await sim.register(client, "h:9", "broker-b")  # by the same connection
        await trio.sleep(60.0)
        assert await sim.has_route(client)  # so the connection is not idle as well
        await trio.sleep(59.5)
        async with sim.client(sim.client_node) as other:
            assert await sim.has_route(other)
            await trio.sleep(1.0)
            assert not await sim.has_route(other)

    sim.use(use)
    registered = [seconds(event) for event in sim.events(NamesrvRegister)]
    removed = [seconds(event) for event in sim.events(NamesrvRemove)]
    assert removed == [pytest.approx(at + 120.0) for at in registered]
    assert sim.removals() == [("expired", "h:1"), ("expired", "h:9")]
    closed = [event for event in sim.events(RemotingClose) if event.status == "broker_expired"]
    assert [seconds(event) for event in closed] == [pytest.approx(removed[1])]


@pytest.mark.parametrize("late_s", [0.01, 0.09, 0.2, 0.9])
def test_what_a_name_server_finds_when_it_goes_on_counts_before_anybody_expires(late_s: float) -> None:
    """It stood still while a broker's deadline passed, and the broker has registered meanwhile."""
    for seed in range(10):
        sim = NameServerWorld(seed)

        async def use(client: RemotingClient, sim: NameServerWorld = sim) -> None:
            await sim.register(client)
            resumes_s = trio.current_time() + 120.0 + late_s
            sim.world.apply(Pause(trio.current_time() + 1.0, 119.0 + late_s, "server"), 0)
            await trio.sleep(60.0)
            with contextlib.suppress(RemotingTimeoutError):
                await sim.register(client)
            await trio.sleep_until(resumes_s + 2.0)
            assert await sim.has_route(client)

        sim.use(use)


def test_a_broker_whose_connection_ends_is_gone_at_once() -> None:
    sim = NameServerWorld()

    async def use(client: RemotingClient) -> None:
        await sim.register(client)
        assert await sim.has_route(client)

    async def main(client: RemotingClient) -> None:
        async with sim.client(sim.client_node) as brokers_own:
            await use(brokers_own)
        await trio.sleep(0.1)
        assert not await sim.has_route(client)

    sim.use(main)
    assert sim.removals() == [("closed", "h:1")]


def test_the_kv_table_and_the_settings_outlive_the_process() -> None:
    sim = NameServerWorld()

    async def before(client: RemotingClient) -> None:
        await sim.ask(client, Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
        await sim.ask(client, Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")

    async def after(client: RemotingClient) -> None:
        answer = await sim.ask(client, Code.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T")
        assert answer.ext_fields == {"value": "broker-a:4"}
        file = sim.server_node.disk.open(NamesrvConfig().config_store_path, read_only=True)
        assert b"orderMessageEnable=true\n" in bytes(file.map())
        file.close()

    sim.use(before, after)


def test_no_request_makes_the_settings_longer_than_the_next_start_reads() -> None:
    sim = NameServerWorld()
    value = b"x" * (FILE_MAX_BYTES * 2 // 3)

    async def before(client: RemotingClient) -> None:
        codes = [
            (await sim.ask(client, Code.UPDATE_NAMESRV_CONFIG, b"%b=%b\n" % (key, value))).code
            for key in (b"serverWorkerThreads", b"clusterTest")
        ]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
        file = sim.server_node.disk.open(NamesrvConfig().config_store_path, read_only=True)
        assert len(value) < file.size_bytes <= FILE_MAX_BYTES
        file.close()

    sim.use(before)


def open_twice(sim: NameServerWorld, before: Callable[[Node], None], first: bool) -> None:
    """Open a name server, after another one on the same address if `first`; what it raises comes out."""

    async def main(world: World) -> None:
        raised: list[BaseException] = []

        async def boot(node: Node) -> None:
            before(node)
            if first:
                async with sim.open(node):
                    await open_one(node)
            else:
                await open_one(node)

        async def open_one(node: Node) -> None:
            try:
                async with sim.open(node):
                    pass
            except BaseException as error:  # noqa: BLE001
                raised.append(error)
            done.set()

        done = trio.Event()
        sim.server_node.boot(boot)
        await done.wait()
        if raised:
            raise raised[0]

    sim.world.run(main)


def test_an_address_that_is_taken_is_one_error_that_names_it() -> None:
    sim = NameServerWorld()
    with pytest.raises(OSError, match=f"{sim.address}: Address already in use"):
        open_twice(sim, lambda node: None, first=True)


def test_a_kv_file_that_cannot_be_read_stops_the_start_and_names_file_and_place() -> None:
    def write(node: Node) -> None:
        with_contents(node, b'{"configTable":{"N":[]}}')

    told = r"namesrv/kvConfig\.json cannot be read \(configTable\.N is not a JSON"
    with pytest.raises(ConfigFileDamaged, match=told):
        open_twice(NameServerWorld(), write, first=False)


def with_contents(node: Node, data: bytes) -> None:
    file = node.disk.open(KV_PATH, allocate_bytes=len(data))
    file.write_at(0, data)
    file.close()


def test_it_stops_in_order_while_clients_are_connected() -> None:
    sim = NameServerWorld()
    stopped_at: list[float] = []

    async def main(world: World) -> None:
        stop, done = trio.Event(), trio.Event()

        async def serve(node: Node) -> None:
            async with sim.open(node) as controller:
                assert controller.address == sim.address
                await stop.wait()
            stopped_at.append(trio.current_time())
            done.set()

        async def call(node: Node) -> None:
            async with sim.client(node) as client:
                await sim.register(client)
                stop.set()
                await done.wait()

        sim.server_node.boot(serve)
        await trio.sleep(0.1)
        sim.client_node.boot(call)
        await done.wait()

    sim.world.run(main)
    assert stopped_at[0] < 3.0
    stops = [event.actor for event in sim.events(ActorStop) if event.node == "server"]
    assert stops[:3] == ["RemotingServer", "BrokerHousekeepingService", "NamesrvConfigPool"]
