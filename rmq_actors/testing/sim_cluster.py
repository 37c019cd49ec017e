"""A cluster in a simulated world: `SimCluster`. What a test does with it, it can do with one on real sockets, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import attrs
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.store_host import Machines
from rmq_actors.embedding.brokers import Addresses, Brokers, check_topology, masters_first
from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import address_text
from sim_net import LinkConfig, Node, Partition, Schedule, World, WorldConfig

T = TypeVar("T")

PORT = 10911
HA_PORT = 10912
NAME_SERVER = "namesrv"
NAME_SERVER_PORT = 9876
PAIR: Mapping[str, str | None] = {"a": None, "b": "a"}

#: A SYNC_MASTER with files so small that a few dozen messages fill some.
SIM_STORE = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=64 * 1024,
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and each look at the counters is a step of the run.
    store_stats_sampling=False,
)
SIM_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02), journal_keep=False, virtual_time_max_s=3600.0
)
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_FOR_EVER_S = 1e9


class ProcessesLeft(AssertionError):
    """What brokers that have stopped have left behind."""


@attrs.define(eq=False)
class SimCluster(Brokers):
    """Brokers on the nodes of a `World`, for one run of a body: the same seed and body give the same run.

    `follows` names the brokers, and whom each follows, None for a master; with a `name_server` they register there, on
    the node "namesrv". The faults of `schedule` count from the start of the run. `store` and `ha` hold the settings of
    all brokers but for the slaves' role and for addresses; `machines` makes each broker's pure machines, as planted
    bugs do.
    """

    _follows: dict[str, str | None] = attrs.field(default=PAIR, converter=check_topology)
    _store: MessageStoreConfig = SIM_STORE
    _ha: HaConfig = attrs.field(factory=HaConfig)
    seed: int = attrs.field(default=0, kw_only=True)
    name_server: bool = attrs.field(default=False, kw_only=True)
    schedule: Schedule = attrs.field(factory=Schedule, kw_only=True)
    make_machines: Callable[[], Machines] = attrs.field(default=Machines, kw_only=True)
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    _config_of_world: WorldConfig = attrs.field(default=SIM_WORLD, kw_only=True, alias="world_config")
    _stopping: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    _machines: dict[str, Machines] = attrs.field(init=False)
    _heals: list[Callable[[], object]] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.world = World(self.seed, self._config_of_world, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "SimCluster", self.seed))
        for name in self._follows:
            self.world.node(name)
        if self.name_server:
            node = self.world.node(NAME_SERVER)
            self.use_name_servers(address_text((node.address, NAME_SERVER_PORT)))
        self._machines = {name: self.make_machines() for name in self._follows}
        self.world.start_schedule(self.schedule)

    def run(self, body: Callable[[SimCluster], Awaitable[T]]) -> T:
        """Start every broker, await `body(self)` once they are connected, stop them in order; what `body` returns.

        Once only, and not within Trio. Raises what `body` raises, what `World.run` does, `trio.TooSlowError` if a
        broker does not connect, or does not stop, and `ProcessesLeft`.
        """

        async def main(_: World) -> T:
            if self.name_server:
                self.world.nodes[NAME_SERVER].boot(self._serve_routes)
            for name in masters_first(self._follows):
                await self.start(name)
            await self.wait_until_connected()
            result = await body(self)
            self.heal()
            await self._stop_all()
            return result

        return self.world.run(main)

    # --- what `Cluster` asks for ------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """See `Cluster.start`."""
        node = self._node(name)
        if node.is_up:
            raise ValueError(f"broker {name} is running")
        node.boot(self._serve)
        with trio.fail_after(_START_TIMEOUT_S):
            await self._look(lambda: name in self._brokers or not self._node(name).is_up)
        self.broker(name)

    async def stop(self, name: str) -> None:
        """See `Cluster.stop`."""
        self.broker(name)
        self._stopping[name].set()
        await self._node(name).wait_down()

    async def kill(self, name: str) -> None:
        """See `Cluster.kill`."""
        self._node(name).kill()

    async def power_loss(self, name: str) -> None:
        """See `Cluster.power_loss`."""
        self._node(name).power_loss()

    def pause(self, name: str) -> None:
        """See `Cluster.pause`."""
        self._node(name).pause()

    def resume(self, name: str) -> None:
        """See `Cluster.resume`."""
        self._node(name).resume()

    def partition(self, a: str, b: str) -> None:
        """See `Cluster.partition`."""
        self._heals.append(Partition(0.0, _FOR_EVER_S, self._node(a).name, self._node(b).name).begin(self.world))

    def heal(self) -> None:
        """See `Cluster.heal`."""
        while self._heals:
            self._heals.pop()()

    # --- for `Brokers` ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Node:
        if name not in self._follows:
            raise ValueError(f"no broker {name!r}: there are {', '.join(self._follows)}")
        return self.world.nodes[name]

    def _addresses(self, name: str) -> Addresses:
        host = self._node(name).address
        return Addresses(address_text((host, PORT)), address_text((host, HA_PORT)))

    def _listens(self, name: str) -> tuple[str, int, int]:
        return self._node(name).address, PORT, HA_PORT

    def _start_within(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        self._node(name).start_soon(task)

    async def _serve(self, node: Node) -> None:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        node.on_fence(lambda: self._brokers.pop(node.name, None))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        machines = self._machines[node.name]
        async with open_broker(self._config(node.name), environment, tracer, machines=machines) as broker:
            stopping = self._stopping[node.name] = trio.Event()
            self._brokers[node.name] = broker
            await stopping.wait()
            del self._brokers[node.name]

    async def _serve_routes(self, node: Node) -> None:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        config = NamesrvConfig(remoting=RemotingServerConfig(node.address, NAME_SERVER_PORT))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_name_server(config, environment, tracer):
            stopping = self._stopping[node.name] = trio.Event()
            await stopping.wait()

    async def _stop_all(self) -> None:
        """Stop everything in order, and see that nothing is left."""
        for node in self.world.nodes.values():
            if node.is_paused:
                node.resume()
        with trio.fail_after(_STOP_TIMEOUT_S):
            for name in reversed(self.running):
                await self.stop(name)
            if self.name_server:
                self._stopping[NAME_SERVER].set()
            for node in self.world.nodes.values():
                await node.wait_down()
        if leaks := self.world.leaks():
            raise ProcessesLeft("; ".join(leaks))
