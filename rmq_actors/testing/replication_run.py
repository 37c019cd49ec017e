"""One run of a scenario: brokers in a simulated world, writers, an operator, and faults; what must hold in the end.

The operator is who decides which broker is the master: it writes the brokers' configurations, and each broker's own
process sees to it that it becomes what its configuration says.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.log_truncation_service import RETRY_INTERVAL_S
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.store_host import Machines
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.ha_master import OffsetGone
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.json_file import ConfigFileDamaged
from rmq_actors.store.message_puts import PendingPut
from rmq_actors.store.recovery import DamagedLog
from rmq_actors.store.truncation import TruncationRefused
from rmq_actors.testing.evidence import FILES_CHANGE, WorldEvidence
from rmq_actors.testing.fail_over import FailOvers
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.observation import FaultObserver
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.run_ends import InvariantBroken, LimitReached, NotConverged
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.view import LONGEST, ClusterView
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events import run as run_events
from rmq_actors.tracing.recorder import Recorder, Tracer
from rmq_actors.wire.record import Message
from sim_net import LinkConfig, Node, SimDisk, World, WorldConfig
from sim_net.search import Case

PORT = 10911
HA_PORT = 10912

#: Small, so that a few dozen messages roll files, split frames and fill buffers.
_STORE = MessageStoreConfig(
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and each look at the counters is a step of the run.
    store_stats_sampling=False,
)
#: Any disk is short of space; checkpoints come soon, as no file goes that a start would read.
_CLEANED_STORE = attrs.evolve(
    _STORE,
    disk_max_used_space_ratio=0,
    disk_space_clean_forcibly_ratio=0,
    flush_consume_queue_thorough_interval_ms=300,
)
WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02, segment_bytes=400),
    send_buffer_bytes=2048,
    receive_buffer_bytes=2048,
    journal_keep=False,
    virtual_time_max_s=3600.0,
)
_READ_BUFFER_BYTES = 4096
#: What a disk's faults make of a start, and when the next one is tried, or a put that was refused.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC}
_START_AGAIN_S = 0.5
_WRITERS = 2
_LOOK_EVERY_S = 0.1
#: For so long faults may wait for their event; later ones are called off.
_EVENTS_WAIT_S = 5.0
#: A store cleans its log by itself after a minute. Until then the scenario lets it, and not at the same time.
_CLEANED_UNTIL_S = 50.0
#: After the last fault everything must be as it should within this time (invariant I5: 30 s).
CONVERGENCE_S = 30.0

#: After one of these the run may have become what the harness waits for.
_MOVES = (
    "store.dispatch",
    "actor.crash",
    "log.append",
    "put.end",
    "store.open",
    "ha.connection.open",
    "ha.connection.close",
    "ha.client.halt",
    "broker.role",
)


@attrs.define(eq=False)
class ReplicationRun:
    """The moving parts of one run. The first of `names` is the master at first."""

    case: Case
    world: World
    info: RunInfo
    names: Sequence[str]
    sabotage: Callable[[World], object]
    workload: Workload = attrs.field(init=False)
    puts_left: int = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    nodes: dict[str, Node] = attrs.field(init=False)
    view: ClusterView = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)
    observer: FaultObserver = attrs.field(init=False)
    crashes: list[str] = attrs.field(factory=list, init=False)
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    reached_limit: bool = attrs.field(default=False, init=False)
    may_write: bool = attrs.field(default=True, init=False)
    #: Whom each broker's configuration names as its master; itself, if it is that. Without an entry it is not started.
    follows: dict[str, str] = attrs.field(init=False)
    _broken: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _machines: dict[str, Machines] = attrs.field(factory=dict, init=False)
    #: Nodes whose present process has met an error of its disk.
    _met_disk_errors: set[str] = attrs.field(factory=set, init=False)
    #: The peers of the masters' connections, and slaves that are to be set up anew.
    _slaves: dict[tuple[str, int], str] = attrs.field(factory=dict, init=False)
    _lost: set[str] = attrs.field(factory=set, init=False)
    _configured: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.workload = Workload.of(self.case.parameters)
        self.puts_left = self.workload.puts
        self.recorder = open_sim_recorder(self.world, self.info)
        self.nodes = {name: self.world.node(name) for name in self.names}
        self.follows = dict.fromkeys(self.names, self.names[0])
        names = {node.address: name for name, node in self.nodes.items()}
        evidence = WorldEvidence(
            self.world, self.nodes, self.brokers, self.workload.log_file_bytes, _STORE.max_hash_slot_num
        )
        self.view = ClusterView(
            self.names[0],
            self.names,
            names.__getitem__,
            evidence,
            acks=self.workload.acks,
            sync_flush=[name for name in self.names if self._flush_type(name) is FlushDiskType.SYNC_FLUSH],
        )
        # Limits first: at one of them nothing is broken.
        invariants = [make() for make in (*REPLICATION_LIMITS, *REPLICATION_INVARIANTS)]
        self.judge = Judge(self.view, invariants, self._on_broken, self._on_limit)
        self.observer = FaultObserver(self.recorder, self.case.schedule, self.view)
        self.recorder.subscribe(evidence.forget_files, FILES_CHANGE)
        self.recorder.subscribe(self.judge.observe, self.judge.kinds)
        self.recorder.subscribe(self.observer.observe, self.observer.kinds)
        self.recorder.subscribe(self._on_disk, ("node.boot", "storage.error", "storage.stuck"))
        self.recorder.subscribe(self._on_crash, ("actor.crash",))
        self.recorder.subscribe(self._on_move, _MOVES)
        if self.workload.clean_every_s:
            self.recorder.subscribe(self._on_connection, ("ha.connection.open", "ha.connection.close"))
        bug = self.workload.planted_bug
        for name in self.names:
            self._machines[name] = PLANTED_BUGS[bug].make_machines() if bug else Machines()

    @property
    def master(self) -> str:
        """Whose log counts."""
        return self.view.master.name

    def promoted(self, node: str, *, is_longest: bool) -> None:
        """An operator has chosen the next master. `is_longest`: for its log, among all slaves that have followed."""
        status = LONGEST if is_longest else "shortest"
        self.recorder.record(run_events.OperatorPromote(status=status), node)

    # --- what is told -----------------------------------------------------------------------------------------------

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(run_events.InvariantBroken(status=broken.invariant, detail=broken.detail))
        self._broken.set()

    def _on_limit(self, name: str, what: str) -> None:
        self.recorder.record(run_events.FaultObserved(status=name, detail=what), actor="Judge")
        self.observer.observed.add(name)
        self.reached_limit = True
        self._broken.set()

    def _on_crash(self, event: Event) -> None:
        # A supervisor may mend it; it is a fault of the product all the same.
        detail = (event.attrs or {})["detail"]
        if event.status == RoleChangeFailed.__name__ and event.node in self._met_disk_errors:
            return  # what a disk's fault makes of a change of role: the process ends, and is started again
        self.crashes.append(f"{event.actor} of {event.node}: {event.status}: {detail}")

    def _on_disk(self, event: Event) -> None:
        if event.kind == "node.boot":
            self._met_disk_errors.discard(event.node)
        else:
            self._met_disk_errors.add(event.node)

    def _on_connection(self, event: Event) -> None:
        key = event.node, event.conn_id or 0
        if event.kind == "ha.connection.open":
            host = (event.attrs or {})["network.peer.address"].rpartition(":")[0]
            self._slaves[key] = self.view.node_of(host)
        elif event.status == OffsetGone.reason and self.view.needs_what_is_gone(self.view.nodes[self._slaves[key]]):
            self._lost.add(self._slaves[key])

    def _on_move(self, event: Event) -> None:
        self._moved.set()

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Return when `predicate` is true, or after so long; whether it is."""
        with trio.move_on_after(timeout_s):
            while not predicate():
                self._moved = trio.Event()
                await self._moved.wait()
        return predicate()

    # --- the brokers ------------------------------------------------------------------------------------------------

    def configure(self, **follows: str) -> None:
        """Write brokers' configurations: whom each follows. Those that run become that."""
        self.follows |= follows
        self._configured.set()
        self._configured = trio.Event()

    def _flush_type(self, node: str) -> FlushDiskType:
        return FlushDiskType(self.workload.master_flush if node == self.names[0] else self.workload.slave_flush)

    def _config(self, name: str) -> BrokerConfig:
        workload, node, master = self.workload, self.nodes[name], self.follows[name]
        is_slave = master != name
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=f"{self.nodes[master].address}:{HA_PORT}" if is_slave else None,
            ha_transfer_batch_size_bytes=workload.transfer_batch_bytes,
            read_buffer_bytes=_READ_BUFFER_BYTES,
            total_replicas=len(self.names),
            in_sync_replicas=workload.in_sync_replicas,
            enable_auto_in_sync_replicas=workload.auto_in_sync_replicas,
            ha_truncate_on_divergence=workload.divergence == "setting",
        )
        store = attrs.evolve(
            _CLEANED_STORE if workload.clean_every_s else _STORE,
            transient_store_pool_enable=workload.transient_pool,
            broker_role=BrokerRole.SLAVE if is_slave else BrokerRole(workload.master_role),
            flush_disk_type=self._flush_type(name),
            mapped_file_size_commit_log_bytes=workload.log_file_bytes,
        )
        if not workload.fail_overs:
            return BrokerConfig(name, store, ha)
        return BrokerConfig(
            "broker-a",
            store,
            ha,
            remoting=RemotingServerConfig(node.address, PORT),
            broker_id=1 + self.names.index(name) if is_slave else 0,
            master_addr=f"{self.nodes[master].address}:{PORT}" if is_slave else None,
        )

    async def _serve(self, node: Node) -> None:
        """The program of each node: a broker, and who writes to it while it is the master."""
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        while not self._stopping.is_set():
            self.brokers.pop(node.name, None)
            try:
                await self._run_broker(node, tracer)
            except* (RoleChangeFailed, ConfigFileDamaged, DamagedLog, OSError) as group:
                # As a system's service manager does: start again, while the disk does not let it.
                if not all(self._may_meet(each, node.name) for each in _leaves(group)):
                    raise
                await trio.sleep(_START_AGAIN_S)

    def _may_meet(self, error: BaseException, name: str) -> bool:
        """Whether a disk's fault is why a broker could not start, or change its role."""
        if isinstance(error, RoleChangeFailed | ConfigFileDamaged):
            return name in self._met_disk_errors
        if isinstance(error, DamagedLog) or isinstance(error.__cause__, DamagedLog):
            return bool(self.view.nodes[name].rotten)
        return isinstance(error, OSError) and error.errno in _DISK_ERRORS and name not in self.brokers

    async def _run_broker(self, node: Node, tracer: Tracer) -> None:
        name = node.name
        while name not in self.follows:
            await self._configured.wait()
        if name in self._lost:
            await self._set_up_anew(node)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(self._config(name), environment, tracer, machines=self._machines[name]) as broker:
            self.brokers[name] = broker
            async with trio.open_nursery() as nursery:
                for number in range(_WRITERS):
                    if self.workload.fail_overs or name == self.master:
                        nursery.start_soon(self._write, broker, node, number)
                if self.workload.clean_every_s:
                    nursery.start_soon(self._clean, broker)
                if self.workload.fail_overs:
                    nursery.start_soon(self._become_what_is_configured, broker, name)
                    nursery.start_soon(self._end_halts, broker)
                    nursery.start_soon(self._end_old_terms, broker, name)
                await self._stopping.wait()
                nursery.cancel_scope.cancel()

    async def _clean(self, broker: BrokerController) -> None:
        until_s = trio.current_time() + _CLEANED_UNTIL_S
        while trio.current_time() < until_s:
            await trio.sleep(self.workload.clean_every_s)
            await broker.store.clean_commit_log_service.clean()

    async def _set_up_anew(self, node: Node) -> None:
        """Remove all that it has. Once that is durable it begins as a new slave does."""
        self.recorder.record(run_events.OperatorSetUpAnew(), node.name)
        _remove_all(node.disk, "")
        await node.disk.sync_directory("")
        self._lost.remove(node.name)

    async def _restart_lost(self) -> None:
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            for name in self.names:
                if name in self._lost and name in self.brokers and self.nodes[name].is_up:
                    del self.brokers[name]
                    self.nodes[name].kill()
                    self.nodes[name].restart()

    async def _become_what_is_configured(self, broker: BrokerController, name: str) -> None:
        while True:
            configured = self._configured
            if self.follows.get(name) is not None:
                config = self._config(name)
                await broker.change_role(
                    config.store.broker_role,
                    ha_master_address=config.ha.ha_master_address,
                    master_addr=config.master_addr,
                )
            await configured.wait()

    async def _end_halts(self, broker: BrokerController) -> None:
        """By command, a log that parts from its master's is cut; who could not ask where it does asks again."""
        while True:
            await trio.sleep(_START_AGAIN_S)
            followed = broker.followed_master
            halted = None if followed is None else followed.halted
            if followed is None or halted is None:
                continue
            if halted.common_end is None:
                broker.follow_again()
            elif self.workload.divergence == "command":
                with contextlib.suppress(TruncationRefused, OSError):  # a full disk, say: it is tried again
                    await broker.truncate_log()

    async def _end_old_terms(self, broker: BrokerController, name: str) -> None:
        """By command, a master goes to a greater term than the slaves that refuse it for its own."""
        while True:
            await trio.sleep(_START_AGAIN_S)
            refusing = [other.term.number for other in self.brokers.values() if _refuses_old_term(other)]
            greatest = max(refusing, default=0)
            if self.follows.get(name) == name and not broker.config.is_slave and greatest > broker.term.number:
                await broker.change_role(broker.config.store.broker_role, term=greatest + 1)

    async def _write(self, broker: BrokerController, node: Node, number: int) -> None:
        workload = self.workload
        while self.puts_left > 0 or workload.fail_overs:
            is_master = self.follows.get(node.name) == node.name and not broker.config.is_slave
            if not is_master or not self.may_write or self.puts_left <= 0:
                await trio.sleep(_LOOK_EVERY_S)  # clients learn of another master by asking
                continue
            pending = [self._put(broker, node, number) for _ in range(min(workload.in_flight, self.puts_left))]
            results = [put.result or await put.wait() for put in pending]
            refused = sum(result.append is None for result in results)
            self.puts_left += refused  # clients put again what a full disk, say, has refused
            await trio.sleep(_START_AGAIN_S if refused else node.entropy.random() * workload.pause_s)

    def _put(self, broker: BrokerController, node: Node, queue_id: int) -> PendingPut:
        self.puts_left -= 1
        body = node.entropy.token_bytes(1 + int(node.entropy.random() ** 3 * self.workload.body_bytes_max))
        return broker.async_put_message(Message("Chaos", body, queue_id, {"KEYS": f"{self.puts_left}"}))

    # --- the run ----------------------------------------------------------------------------------------------------

    async def main(self, world: World) -> None:
        """Boot, break, wait until all is well again, stop, and look at what is left."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_broken)
            if self.workload.clean_every_s:
                nursery.start_soon(self._restart_lost)
            world.start_schedule(self.case.schedule)
            self.sabotage(world)
            for node in self.nodes.values():
                node.boot(self._serve)
            await FailOvers(self).run()
            await self._outlast_faults()
            if not await self.wait_for(self._is_well, self._converges_in_s):
                raise NotConverged(self._state())
            await self._last_put()
            await self._stop_brokers()
            self.judge.check_end(len(self.recorder.events))
            nursery.cancel_scope.cancel()

    async def _outlast_faults(self) -> None:
        """Wait until all faults are over, and do what an operator does: restart who cannot write any more."""
        if any(fault.on is not None for fault in self.case.schedule.faults):
            await trio.sleep(_EVENTS_WAIT_S)
        await trio.sleep_until(self.case.schedule.ends_s)
        self.world.stop_waiting()
        await trio.sleep_until(self.world.faults_end_s)
        for name, broker in list(self.brokers.items()):
            node = self.nodes[name]
            if broker.store.failure and node.is_up:
                del self.brokers[name]
                node.kill()
                node.restart()
        if self.workload.fail_overs:
            await self._end_quiet()

    async def _end_quiet(self) -> None:
        """Put once more where a slave waits for that: see `docs/invariants.md`, what is not promised."""
        await self.wait_for(lambda: not self.view.without_log, CONVERGENCE_S)
        if self.view.needs_a_put:
            self.puts_left = max(1, self.puts_left)

    @property
    def _converges_in_s(self) -> float:
        """A truncation that a disk did not let be is tried again after a while."""
        is_tried_again = self.workload.fail_overs and self.workload.divergence == "setting"
        return CONVERGENCE_S + (RETRY_INTERVAL_S if is_tried_again else 0)

    async def _end_when_broken(self) -> None:
        await self._broken.wait()
        if self.reached_limit:
            raise LimitReached
        raise InvariantBroken

    def _is_well(self) -> bool:
        master = self.brokers.get(self.master)
        return (
            self.puts_left <= 0
            and not self.view.unanswered
            and len(self.brokers) == len(self.nodes)
            and all(node.is_up for node in self.nodes.values())
            and self.view.converged
            and self._halts_are_final
            and master is not None
            and not master.config.is_slave
            and len(master.ha_service.connections) == len(self.names) - 1 - len(self.view.halted)
            and master.store.running_flags.is_writeable
        )

    @property
    def _halts_are_final(self) -> bool:
        """Whether who halted stays so: it knows where it parts from its master, and nobody is to cut its log."""
        followed = [self.brokers[name].followed_master for name in self.view.halted]
        return not followed or (
            self.workload.divergence == "halt"
            and all(each and each.halted and each.halted.common_end is not None for each in followed)
        )

    def _state(self) -> str:
        ends = ", ".join(f"{name} ends at {self.view.nodes[name].end}" for name in self.nodes)
        master = self.brokers.get(self.master)
        connections = len(master.ha_service.connections) if master else 0
        halted = f" but {', '.join(sorted(self.view.halted))}, halted," if self.view.halted else ""
        return (
            f"{self._converges_in_s:g} s after the last fault: {ends};{halted} {connections} connections "
            f"of {self.master}, {self.puts_left} puts left, {self.view.unanswered} unanswered"
        )

    async def _last_put(self) -> None:
        """With every fault over, a put must be confirmed, if there are slaves enough, and reach every slave."""
        master, slaves = self.brokers[self.master], len(self.names) - 1 - len(self.view.halted)
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            # Behind an accepted connection a slave may still compare its log, and then begin anew.
            while sum(each.ack_offset is not None for each in master.ha_service.slave_statuses()) < slaves:  # noqa: ASYNC110
                await trio.sleep(_LOOK_EVERY_S)
            await master.store.wait_for_slaves(slaves)
            result = await master.put_message(Message("Chaos", b"the last one"))
        if waiting.cancelled_caught:
            raise NotConverged(self._state())
        if (result.status is PutStatus.PUT_OK) is not (slaves >= self.workload.acks):
            raise NotConverged(f"with every fault over, a put is answered {result.status.value}")
        end = 0 if result.append is None else result.append.end_offset
        # A transient pool's puts are answered before they are in the log.
        if not await self.wait_for(lambda: self.view.converged and self.view.master.end >= end, CONVERGENCE_S):
            raise NotConverged(self._state())

    async def _stop_brokers(self) -> None:
        """Stop every broker in order."""
        self._stopping.set()
        with trio.move_on_after(CONVERGENCE_S) as waiting:
            for node in self.nodes.values():
                await node.wait_down()
        if waiting.cancelled_caught:
            raise NotConverged(f"a broker has not stopped in {CONVERGENCE_S:g} s")


def _remove_all(disk: SimDisk, directory: str) -> None:
    for name in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            disk.remove(path)
        except IsADirectoryError:
            _remove_all(disk, path)
            disk.remove_directory(path)


def _refuses_old_term(slave: BrokerController) -> bool:
    followed = slave.followed_master
    return followed is not None and "old_term" in followed.ends


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
