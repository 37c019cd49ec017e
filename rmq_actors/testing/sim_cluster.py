"""A cluster in a simulated world: `SimCluster`. What a test does with it, it can do with one on real sockets, too.

The invariants of replication are looked at after every event of the run, and once more when all is well again and every
broker has stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import trio

from rmq_actors.broker.store_host import Machines
from rmq_actors.embedding.brokers import check_topology, masters_first
from rmq_actors.ha.config import HaConfig
from rmq_actors.settings.argument_checks import checked
from rmq_actors.settings.field_types import shown
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Invariant
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.scenario_checks import (
    check_function,
    check_invariants,
    check_is,
    check_seconds,
    check_whole_number,
)
from rmq_actors.testing.sim_brokers import FOR_EVER_S, SimBrokers
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT, serve_routes
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.topology import NAME_SERVER
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events import run as run_events
from rmq_actors.tracing.events.broker import BrokerDeleteTopic
from rmq_actors.wire.address import address_text
from sim_net import LinkConfig, Node, Partition, Schedule, World, WorldConfig

T = TypeVar("T")

PAIR: Mapping[str, str | None] = {"a": None, "b": "a"}

#: A SYNC_MASTER with files so small that a few dozen messages fill some.
SIM_STORE = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=64 * 1024,
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and counting them costs steps of the run.
    store_stats_sampling=False,
)
SIM_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02), journal_keep=False, virtual_time_max_s=3600.0
)
_STOP_TIMEOUT_S = 30.0


class ClusterBroken(AssertionError):
    """An invariant does not hold in this run; the message says which, what was seen, and at which event."""


class NotWell(AssertionError):
    """The faults are over, and the cluster has not recovered; the message says what it waits for."""


def _topology(follows: Mapping[str, str | None]) -> dict[str, str | None]:
    given: object = follows
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and (master is None or isinstance(master, str)) for name, master in given.items()
    ):
        raise TypeError(f"SimCluster.follows must be a mapping of brokers' names, not {shown(given)}")
    return check_topology(follows)


@attrs.define(eq=False, repr=False)
class SimCluster(SimBrokers):
    """Brokers on the nodes of a `World`, for one run of a body: the same seed and body give the same run.

    `follows` names the brokers, and which one each follows, None for a master; with a `name_server` they register
    there, on the node "namesrv". The times of `schedule` count from when the body begins. `store` and `ha` hold the
    settings of all brokers but for the slaves' role and for addresses.

    Every broker is started before the body, and once it returns all is made well: partitions end, what is paused goes
    on, what is down is started, and within `converges_s` every slave must follow and have all, unless it has halted.
    Then the brokers stop in order. `invariants` are classes, of which the run makes its own; by default those of
    replication, which are about one master and its slaves: other topologies have none.

    `make_machines` makes each broker's pure machines: those of `PLANTED_BUGS`, say.

    Raises TypeError and ValueError naming the argument that cannot be.
    """

    _follows: dict[str, str | None] = attrs.field(default=PAIR, converter=_topology)
    _store: MessageStoreConfig = attrs.field(default=SIM_STORE, validator=check_is(MessageStoreConfig))
    _ha: HaConfig = attrs.field(factory=HaConfig, validator=check_is(HaConfig))
    seed: int = attrs.field(default=0, kw_only=True, validator=check_whole_number)
    name_server: bool = attrs.field(default=False, kw_only=True, validator=check_is(bool))
    schedule: Schedule = attrs.field(factory=Schedule, kw_only=True, validator=check_is(Schedule))
    invariants: Sequence[type[Invariant[Any]]] | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(check_invariants)
    )
    converges_s: float = attrs.field(default=30.0, kw_only=True, validator=check_seconds)
    make_machines: Callable[[], Machines] | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(check_function)
    )
    world_config: WorldConfig = attrs.field(default=SIM_WORLD, kw_only=True, validator=check_is(WorldConfig))
    #: What the trace tells of the cluster; None without invariants.
    view: ClusterView | None = attrs.field(default=None, init=False)
    _judge: Judge | None = attrs.field(default=None, init=False)
    _judged: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if NAME_SERVER in self._follows:
            raise ValueError(f"a broker cannot have the name {NAME_SERVER}: that is the name server's")
        world = World(self.seed, self.world_config, guard_packages=("rmq_actors",))
        recorder = open_sim_recorder(world, RunInfo("test", "SimCluster", self.seed))
        self.place(world, recorder, self.make_machines or Machines)
        if self.name_server:
            self.use_name_servers(address_text((world.node(NAME_SERVER).address, NAME_SERVER_PORT)))
        self._appoint_judge()

    @checked
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
                if self.name_server:
                    await self.wait_until_registered()
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

    def partition_clients(self, name: str) -> None:
        """Let nothing pass between a node, a broker's or another, and the clients that there are now."""
        for number in range(1, self._clients + 1):
            fault = Partition(0.0, FOR_EVER_S, name, f"client-{number}")
            self._heals.append(fault.begin(self.world))

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
        is_sync_flush = self._store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        is_sync_master = self._store.broker_role is BrokerRole.SYNC_MASTER
        self.view = self.watch(
            acks=self._ha.in_sync_replicas - 1 if is_sync_master else 0,
            sync_flush=list(self._follows) if is_sync_flush else (),
        )
        # Any client may have asked for it: nobody else tells.
        self.recorder.subscribe(self._note_deletion, [BrokerDeleteTopic])
        # Limits first: at one of them nothing is broken.
        classes = (*REPLICATION_LIMITS, *self.invariants)
        self._judge = Judge(self.view, [make() for make in classes], self._on_broken, self._on_limit)
        self.recorder.subscribe(self._observe, self._judge.kinds)
        self.follow_promotions(self.view)

    def _note_deletion(self, event: Event) -> None:
        assert self.view is not None
        assert isinstance(event, BrokerDeleteTopic)
        self.view.deleted_topics.add(event.topic)

    def _observe(self, event: Event) -> None:
        # Name servers and clients are no brokers.
        is_beside = event.node not in self._follows and event.node in self.world.nodes
        if self._judge is not None and not is_beside:
            self._judge.observe(event)

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(run_events.InvariantBrokenEvent(status=broken.invariant, detail=broken.detail), "")
        self._judged.cancel()

    def _on_limit(self, name: str, detail: str) -> None:
        """Nothing is promised any more: the run goes on, and nobody judges it."""
        self.recorder.record(run_events.FaultObserved(status=name, detail=detail), "")
        self._judge = None

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

    # --- the name server, and the end ------------------------------------------------------------------------------

    async def _serve_routes(self, node: Node) -> None:
        stopping = self._stopping[node.name] = trio.Event()
        await serve_routes(node, self.recorder, stopping)

    async def _stop_all(self) -> None:
        """Stop everything in order."""
        with trio.fail_after(_STOP_TIMEOUT_S):
            for name in reversed(self.running):
                await self.stop(name)
            if self.name_server:
                self._stopping[NAME_SERVER].set()
            for node in self.world.nodes.values():
                await node.wait_down()
