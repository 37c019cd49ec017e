"""Two masters, each with a slave, from RocketMQ's example configurations: a name server routes, one master dies.

Run it: pip install rmq-actors, then python examples/two_masters_two_slaves.py [2m-2s-sync | 2m-2s-async]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import attrs
import trio

from rmq_actors import (
    BrokerConfig,
    HaConfig,
    Message,
    PutStatus,
    decode_message,
    open_local_name_server,
    open_remoting_client,
)
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BROKER_KEYS
from rmq_actors.embedding.properties_file import load_config_file
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode

FILES = Path(__file__).parent / "two_masters_two_slaves"
TOPIC = "Orders"
ORDERS = 5


def read_config(path: Path, namesrv_addr: str) -> BrokerConfig:
    """The settings of a file, on free ports of this machine instead of the same ones of four machines."""
    base = BrokerConfig(
        ha=HaConfig(ha_listen_port=0), remoting=RemotingServerConfig(listen_port=0), namesrv_addr=namesrv_addr
    )
    return load_config_file(path, base, BROKER_KEYS).config


@attrs.define(eq=False)
class Process:
    """A broker that runs until it is killed: as if it had a process of its own."""

    config: BrokerConfig
    directory: Path
    _life: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _broker: BrokerController | None = attrs.field(default=None, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve from the moment when the name server has this broker."""
        tracer = real_recorder(RunInfo("example", self.directory.name, 0, source="broker")).tracer(self.directory.name)
        with self._life:
            async with open_broker(self.config, real_environment(self.directory), tracer) as self._broker:
                assert self._broker.remoting is not None
                assert self._broker.remoting.registration is not None
                await self._broker.remoting.registration.wait_until_registered()
                task_status.started()
                await trio.sleep_forever()

    @property
    def broker(self) -> BrokerController:
        """The broker, while it runs."""
        assert self._broker is not None
        return self._broker

    def kill(self) -> None:
        """End it where it stands: nothing is flushed, nobody is told."""
        self._life.cancel()

    async def add_topic(self) -> None:
        """Have the topic of this example."""
        remoting = self.broker.remoting
        assert remoting is not None
        topic = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
        await remoting.topic_config_manager.update_topic_config(topic)


async def ask_route(client: RemotingClient, name_server: str) -> dict[str, dict[int, str]]:
    """Where a client finds the topic: addresses by brokerId, by brokerName."""
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(GetRouteInfoRequestHeader(topic=TOPIC)))
    response = await client.invoke(name_server, request, 3_000)
    if not response.body:
        return {}
    route = decode_body(TopicRouteData, response.body)
    return {data.broker_name: dict(data.broker_addrs) for data in route.broker_datas}


async def until_routed(client: RemotingClient, name_server: str, ids: dict[str, set[int]]) -> None:
    """Wait until the route of the topic has these brokers, and show it."""
    while True:
        route = await ask_route(client, name_server)
        if {name: set(addresses) for name, addresses in route.items()} == ids:
            break
        await trio.sleep(0.02)
    for name, addresses in sorted(route.items()):
        print(f"  {name}: " + ", ".join(f"{id_} at {address}" for id_, address in sorted(addresses.items())))


async def put_orders(master: Process, slave: Process) -> None:
    """Put a few messages to a master, and wait until its slave has them: under ASYNC_MASTER no put waits for that."""
    store, name = master.broker.store, master.config.broker_name
    await store.wait_for_slaves(1)
    for number in range(ORDERS):
        result = await store.puts.put_message(Message(TOPIC, f"{name}, order {number}".encode()))
        assert result.status is PutStatus.PUT_OK, result
    print(f"{name}, a {master.config.store.broker_role.value}: {ORDERS} times PUT_OK")
    with slave.broker.store.dispatched.subscribe() as dispatched:
        while slave.broker.store.offsets.get_max_offset_in_queue(TOPIC, 0) < ORDERS:
            await dispatched.receive()


async def main(files: Path, directory: Path) -> None:
    """Start everything, put, kill one master, and read what its slave has."""
    async with (
        open_local_name_server(directory / "namesrv") as name_server,
        open_remoting_client() as client,
        trio.open_nursery() as nursery,
    ):
        brokers = {}
        for name in ("broker-a", "broker-b", "broker-a-s", "broker-b-s"):
            config = read_config(files / f"{name}.properties", name_server.address)
            brokers[name] = Process(config, directory / name)
            await nursery.start(brokers[name].run)
            if not config.is_slave:
                await brokers[name].add_topic()
        print(f"{files.name}: a client is told")
        await until_routed(client, name_server.address, {"broker-a": {0, 1}, "broker-b": {0, 1}})
        for name in ("broker-a", "broker-b"):
            await put_orders(brokers[name], brokers[f"{name}-s"])

        brokers["broker-a"].kill()
        print("the master of broker-a is killed; a client is told")
        await until_routed(client, name_server.address, {"broker-a": {1}, "broker-b": {0, 1}})
        slave = brokers["broker-a-s"].broker
        refused = await slave.put_message(Message(TOPIC, b"order"))
        print(f"its slave takes no messages ({refused.status.value}), and has all that were confirmed:")
        for record in slave.store.reads.get_message(TOPIC, 0, 0, 32).messages:
            print(f"  {decode_message(record).body.decode()}")
        accepted = await brokers["broker-b"].broker.put_message(Message(TOPIC, b"one more"))
        print(f"broker-b goes on: {accepted.status.value}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    chosen = FILES / (sys.argv[1] if len(sys.argv) > 1 else "2m-2s-sync")
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, chosen, Path(name))
