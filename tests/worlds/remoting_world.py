"""A remoting server and its peers in a simulated world: what the tests of remoting start from."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits, RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import ConnectionListener
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.recorder import Recorder
from sim_net import Node, World, WorldConfig
from tests.worlds.recording import E

PORT = 10911


@attrs.define(eq=False)
class RemotingWorld:
    """Two nodes, "server" and "client"; more where a test makes them."""

    seed: int = 1
    config: WorldConfig = attrs.field(factory=WorldConfig)
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    server_node: Node = attrs.field(init=False)
    client_node: Node = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, self.config, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "remoting", self.seed))
        self.server_node, self.client_node = self.world.node("server"), self.world.node("client")

    @property
    def address(self) -> str:
        return f"{self.server_node.address}:{PORT}"

    def events(self, kind: type[E]) -> list[E]:
        return of_kind(self.recorder.events, kind)

    @contextlib.asynccontextmanager
    async def server(
        self,
        node: Node,
        register: Callable[[ProcessorTable], object],
        *,
        limits: ConnectionLimits | None = None,
        connections_max: int = 4096,
        listener: ConnectionListener | None = None,
        hooks: Sequence[RpcHook] = (),
        settings: Mapping[str, int] | None = None,
    ) -> AsyncIterator[RemotingServer]:
        """A server on `node`; `register` fills its table, `settings` are others of `RemotingServerConfig`."""
        tracer = self.recorder.tracer(node.name)
        processors = ProcessorTable(tracer)
        register(processors)
        config = RemotingServerConfig(
            node.address, PORT, connections_max=connections_max, limits=limits or ConnectionLimits(), **(settings or {})
        )
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            server = RemotingServer(config, processors, tracer, hooks, listener=listener)
            await system.start(server)
            yield server

    @contextlib.asynccontextmanager
    async def client(
        self, node: Node, register: Callable[[ProcessorTable], object] = lambda table: None, **settings: object
    ) -> AsyncIterator[RemotingClient]:
        """A client on `node`; `settings` are those of `RemotingClientConfig`."""
        tracer = self.recorder.tracer(node.name)
        processors = ProcessorTable(tracer)
        register(processors)
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            client = RemotingClient(RemotingClientConfig(**settings), node.entropy, tracer, processors)  # type: ignore[arg-type]
            await system.start(client)
            yield client

    def run(
        self,
        register: Callable[[ProcessorTable], object],
        use: Callable[[RemotingClient], Awaitable[None]],
        *,
        limits: ConnectionLimits | None = None,
        hooks: Sequence[RpcHook] = (),
    ) -> None:
        """Serve on one node, and call `use` on the other with a client; the run ends with it."""
        done = trio.Event()

        async def serve(node: Node) -> None:
            async with self.server(node, register, limits=limits, hooks=hooks):
                await trio.sleep_forever()

        async def call(node: Node) -> None:
            async with self.client(node) as client:
                await use(client)
            done.set()

        async def main(world: World) -> None:
            self.server_node.boot(serve)
            await trio.sleep(0.01)
            self.client_node.boot(call)
            await done.wait()

        self.world.run(main)
