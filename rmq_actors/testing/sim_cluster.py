"""A cluster in a simulated world: `SimCluster`. What a test does with it, it can do with one on real sockets, too.

The invariants of replication are looked at after every event of the run, and once more when all is well again and every
broker has stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.store_host import Machines
from rmq_actors.embedding.brokers import Addresses, Brokers, check_topology, masters_first
from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.json_file import ConfigFileDamaged
from rmq_actors.store.recovery import DamagedLog
from rmq_actors.testing.evidence import FILES_CHANGE, WorldEvidence
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Invariant
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.view import LONGEST, ClusterView
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events import run as run_events
from rmq_actors.tracing.events.store import StoreTerm
from rmq_actors.tracing.recorder import Recorder, Tracer
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
#: Until a broker that could not start is started again.
_START_AGAIN_S = 0.5
_FOR_EVER_S = 1e9


class ClusterBroken(AssertionError):
    """An invariant does not hold in this run: says which, what was seen, and at which event."""


class NotWell(AssertionError):
    """The faults are over, and the cluster has not come back: says what it waits for."""


@attrs.define(eq=False, repr=False)
class SimCluster(Brokers):
    """Brokers on the nodes of a `World`, for one run of a body: the same seed and body give the same run.

    `follows` names the brokers, and whom each follows, None for a master; with a `name_server` they register there, on
    the node "namesrv". The times of `schedule` count from when the body begins. `store` and `ha` hold the settings of
    all brokers but for the slaves' role and for addresses.

    Every broker is started before the body, and once it returns all is made well: partitions end, what is paused goes
    on, what is down is started, and within `converges_s` every slave must follow and have all, unless it has halted.
    Then the brokers stop in order. `invariants` are classes, of which the run makes its own; by default those of
    replication, which are about one master and its slaves: other topologies have none.

    `make_machines` makes each broker's pure machines: those of `PLANTED_BUGS`, say.
    """

    _follows: dict[str, str | None] = attrs.field(default=PAIR, converter=check_topology)
    _store: MessageStoreConfig = SIM_STORE
    _ha: HaConfig = attrs.field(factory=HaConfig)
    seed: int = attrs.field(default=0, kw_only=True)
    name_server: bool = attrs.field(default=False, kw_only=True)
    schedule: Schedule = attrs.field(factory=Schedule, kw_only=True)
    invariants: Sequence[type[Invariant[Any]]] | None = attrs.field(default=None, kw_only=True)
    converges_s: float = attrs.field(default=30.0, kw_only=True)
    make_machines: Callable[[], Machines] | None = attrs.field(default=None, kw_only=True)
    world_config: WorldConfig = attrs.field(default=SIM_WORLD, kw_only=True)
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    #: What the trace tells of the cluster; None without invariants.
    view: ClusterView | None = attrs.field(default=None, init=False)
    _judge: Judge | None = attrs.field(default=None, init=False)
    _judged: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _stopping: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    _machines: dict[str, Machines] = attrs.field(init=False)
    _heals: list[Callable[[], object]] = attrs.field(factory=list, init=False)
    #: Nodes whose present process has met an error of its disk.
    _met_disk_errors: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.world = World(self.seed, self.world_config, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "SimCluster", self.seed))
        for name in self._follows:
            if name == NAME_SERVER:
                raise ValueError(f"a broker cannot have the name {NAME_SERVER}: that is the name server's")
            self.world.node(name)
        if self.name_server:
            node = self.world.node(NAME_SERVER)
            self.use_name_servers(address_text((node.address, NAME_SERVER_PORT)))
        make_machines = self.make_machines or Machines
        self._machines = {name: make_machines() for name in self._follows}
        self.recorder.subscribe(self._on_disk, ("node.boot", "storage.error", "storage.stuck"))
        self._appoint_judge()

    def run(self, body: Callable[[SimCluster], Awaitable[T]]) -> T:
        """Start every broker, await `body(self)` once they are connected, make all well, stop; what `body` returns.

        Once only, and not within Trio. Raises `ClusterBroken`, `NotWell`, what `body` raises, and what `World.run`
        does; `trio.TooSlowError` if a broker does not start or does not stop.
        """

        async def main(_: World) -> list[T]:
            results: list[T] = []
            with self._judged:
                if self.name_server:
                    self.world.nodes[NAME_SERVER].boot(self._serve_routes)
                for name in masters_first(self._follows):
                    await self.start(name)
                await self.wait_until_connected()
                self._begin_faults()
                results.append(await body(self))
                await self._make_well()
                await self._stop_all()
                if self._judge is not None:
                    self._judge.check_end(len(self.recorder.events))
            if self._judge is not None and self._judge.broken is not None:
                raise ClusterBroken(str(self._judge.broken))
            return results

        return self.world.run(main)[0]

    # --- what is judged ---------------------------------------------------------------------------------------------

    def _appoint_judge(self) -> None:
        masters = [name for name, master in self._follows.items() if master is None]
        has_one_master = len(masters) == 1 and all(master in (None, masters[0]) for master in self._follows.values())
        if self.invariants is None:
            self.invariants = REPLICATION_INVARIANTS if has_one_master else ()
        if not self.invariants:
            return
        if not has_one_master:
            raise ValueError("invariants are about one master and its slaves, and this cluster has other brokers, too")
        evidence = WorldEvidence(
            self.world,
            {name: self.world.nodes[name] for name in self._follows},
            self._brokers,
            self._store.mapped_file_size_commit_log_bytes,
            self._store.max_hash_slot_num,
        )
        is_sync_flush = self._store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.view = ClusterView(
            masters[0],
            list(self._follows),
            {self.world.nodes[name].address: name for name in self._follows}.__getitem__,
            evidence,
            acks=self._ha.in_sync_replicas - 1 if self._store.broker_role is BrokerRole.SYNC_MASTER else 0,
            sync_flush=list(self._follows) if is_sync_flush else (),
        )
        # Limits first: at one of them nothing is broken.
        classes = (*REPLICATION_LIMITS, *self.invariants)
        self._judge = Judge(self.view, [make() for make in classes], self._on_broken, self._on_limit)
        self.recorder.subscribe(evidence.forget_files, FILES_CHANGE)
        self.recorder.subscribe(self._observe, self._judge.kinds)
        self.recorder.subscribe(self._on_term, ("store.term",))

    def _observe(self, event: Event) -> None:
        # A name server is no broker.
        if self._judge is not None and event.node != NAME_SERVER:
            self._judge.observe(event)

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(run_events.InvariantBrokenEvent(status=broken.invariant, detail=broken.detail), "")
        self._judged.cancel()

    def _on_limit(self, name: str, detail: str) -> None:
        """Nothing is promised any more: the run goes on, and nobody judges it."""
        self.recorder.record(run_events.FaultObserved(status=name, detail=detail), "")
        self._judge = None

    def _on_term(self, event: Event) -> None:
        """Whoever has been promoted leads: from now on its log counts."""
        view = self.view
        if (
            view is None
            or not isinstance(event, StoreTerm)
            or not event.leads
            or event.status != "promoted"
            or event.node == view.master.name
        ):
            return
        node = view.nodes[event.node]
        followers = [each for each in view.slaves if view.has_followed(each)]
        is_longest = node in followers and node.end == max(each.end for each in followers)
        self.recorder.record(run_events.OperatorPromote(status=LONGEST if is_longest else "shortest"), event.node)

    def _begin_faults(self) -> None:
        now_s = self.world.now_s
        self.world.start_schedule(
            Schedule(
                fault if fault.on is not None else attrs.evolve(fault, at_s=now_s + fault.at_s)
                for fault in self.schedule.faults
            )
        )

    async def _make_well(self) -> None:
        """Let every fault end, and what waits to be started start; return when every slave follows and has all."""
        self.world.stop_waiting()
        await trio.sleep_until(self.world.faults_end_s)
        self.heal()
        for name in self._follows:
            if self._node(name).is_paused:
                self._node(name).resume()
        with trio.move_on_after(self.converges_s):
            for name in masters_first(self._follows):
                broker = self._brokers.get(name)
                if broker is not None and broker.store.failure:
                    await self.kill(name)  # as an operator does: it takes nothing more before its next start
                if not self._node(name).is_up:
                    self._node(name).boot(self._serve)
            await self._look(self._is_well)
            return
        states = ", ".join(
            f"{name}: {self.status(name)}" if name in self._brokers else f"{name} is down" for name in self._follows
        )
        raise NotWell(f"{self.converges_s:g} s after the last fault: {states}")

    def _is_well(self) -> bool:
        """Whether all run, masters take puts, and each slave follows and has what its master has, or has halted."""
        if len(self._brokers) < len(self._follows):
            return False
        for name, master in self._follows.items():
            own = self.status(name)
            if master is None and not self.broker(name).store.running_flags.is_writeable:
                return False
            if (
                master is not None
                and own.halted is None
                and not (own.is_following and own.max_offset == self.status(master).max_offset)
            ):
                return False
        return self.view is None or self._judge is None or self.view.converged

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
        """The program of a broker's node: as a service manager does, it starts a broker again that could not start."""
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        node.on_fence(lambda: self._brokers.pop(node.name, None))
        stopping = self._stopping[node.name] = trio.Event()
        while not stopping.is_set():
            try:
                await self._serve_once(node, tracer, stopping)
            except* (RoleChangeFailed, ConfigFileDamaged, DamagedLog, OSError):
                self._brokers.pop(node.name, None)
                if node.name not in self._met_disk_errors:
                    raise
                await trio.sleep(_START_AGAIN_S)

    async def _serve_once(self, node: Node, tracer: Tracer, stopping: trio.Event) -> None:
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        machines = self._machines[node.name]
        async with open_broker(self._config(node.name), environment, tracer, machines=machines) as broker:
            self._brokers[node.name] = broker
            await stopping.wait()
            del self._brokers[node.name]

    def _on_disk(self, event: Event) -> None:
        if event.kind == "node.boot":
            self._met_disk_errors.discard(event.node)
        else:
            self._met_disk_errors.add(event.node)

    async def _serve_routes(self, node: Node) -> None:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        config = NamesrvConfig(remoting=RemotingServerConfig(node.address, NAME_SERVER_PORT))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_name_server(config, environment, tracer):
            stopping = self._stopping[node.name] = trio.Event()
            await stopping.wait()

    async def _stop_all(self) -> None:
        """Stop everything in order."""
        with trio.fail_after(_STOP_TIMEOUT_S):
            for name in reversed(self.running):
                await self.stop(name)
            if self.name_server:
                self._stopping[NAME_SERVER].set()
            for node in self.world.nodes.values():
                await node.wait_down()
