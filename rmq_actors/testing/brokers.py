"""The brokers of a run, by the names of their nodes: their settings, their processes, and what is done to them.

A node runs a broker as a system's service manager does: started again while its disk does not let it start. What else
runs on a node while its broker does, its clients say, is `beside` it.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.store_host import Machines
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.json_file import ConfigFileDamaged
from rmq_actors.store.recovery import DamagedLog
from rmq_actors.testing.evidence import FILES_CHANGE, WorldEvidence
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.view import LONGEST, ClusterView
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import OperatorPromote, OperatorSetUpAnew
from rmq_actors.tracing.events.storage import StorageError, StorageStuck
from rmq_actors.tracing.recorder import Recorder, Tracer
from sim_net import Node, SimDisk, World

PORT = 10911
HA_PORT = 10912
#: Small, so that a few dozen messages roll files, split frames and fill buffers.
STORE = MessageStoreConfig(
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and each look at the counters is a step of the run.
    store_stats_sampling=False,
)
_READ_BUFFER_BYTES = 4096
#: The errors of a start that a disk's fault may be the cause of.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC}
#: The pause before a broker is started again.
_START_AGAIN_S = 0.5

#: What runs on a node beside its broker; it is cancelled before the broker stops.
Beside = Callable[[BrokerController, Node], Awaitable[None]]


@attrs.define(eq=False)
class BrokersUnderTest:
    """Brokers named `names`, of which the first is the master at first. `view` is what their trace tells of them."""

    world: World
    recorder: Recorder
    names: Sequence[str]
    workload: Workload
    #: The settings that no parameter of the workload sets.
    store: MessageStoreConfig = STORE
    #: Whether roles change in the run: then brokers have a port on which slaves ask, and one brokerName.
    changes_roles: bool = False
    nodes: Mapping[str, Node] = attrs.field(init=False)
    view: ClusterView = attrs.field(init=False)
    #: Those that run.
    running: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    #: Whom each broker's configuration names as its master; itself, if it is that. Without an entry it is not started.
    follows: dict[str, str] = attrs.field(init=False)
    #: Set, and replaced by another, when a configuration is written.
    configured: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: Nodes whose disks are emptied before their brokers start again.
    to_empty: set[str] = attrs.field(factory=set, init=False)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _machines: Mapping[str, Machines] = attrs.field(init=False)
    #: Nodes whose present process has met an error of its disk.
    _met_disk_errors: set[str] = attrs.field(factory=set, init=False)
    _beside: Callable[[str], Iterable[Beside]] = attrs.field(default=lambda _: (), init=False)

    def __attrs_post_init__(self) -> None:
        self.nodes = {name: self.world.node(name) for name in self.names}
        self.follows = dict.fromkeys(self.names, self.names[0])
        bug = self.workload.planted_bug
        self._machines = {name: PLANTED_BUGS[bug].make_machines() if bug else Machines() for name in self.names}
        evidence = WorldEvidence(
            self.world, self.nodes, self.running, self.workload.log_file_bytes, self.store.max_hash_slot_num
        )
        self.view = ClusterView(
            self.names[0],
            self.names,
            {node.address: name for name, node in self.nodes.items()}.__getitem__,
            evidence,
            acks=self.workload.acks,
            sync_flush=[name for name in self.names if self._flush_type(name) is FlushDiskType.SYNC_FLUSH],
        )
        self.recorder.subscribe(evidence.forget_files, FILES_CHANGE)
        self.recorder.subscribe(self._on_boot, [NodeBoot])
        self.recorder.subscribe(self._on_disk_error, [StorageError, StorageStuck])

    # --- what is done to them ---------------------------------------------------------------------------------------

    def start(self, beside: Callable[[str], Iterable[Beside]]) -> None:
        """Boot every node; `beside` gives what runs on the node of a name."""
        self._beside = beside
        for node in self.nodes.values():
            node.boot(self._serve)

    async def stop(self) -> None:
        """Stop every broker in order; return when all have."""
        self._stopping.set()
        for node in self.nodes.values():
            await node.wait_down()

    def kill(self, name: str) -> None:
        """End its process at once."""
        self.running.pop(name, None)
        self.nodes[name].kill()

    def power_loss(self, name: str) -> None:
        """End its process at once, and lose what its disk had not made durable."""
        self.running.pop(name, None)
        self.nodes[name].power_loss()

    def restart(self, name: str) -> None:
        """Start its node, which is down."""
        self.nodes[name].restart()

    def disable(self, name: str) -> None:
        """Its broker is not started any more, until a configuration says whom it follows."""
        del self.follows[name]

    def configure(self, **follows: str) -> None:
        """Write brokers' configurations: whom each follows. Those that run become that."""
        self.follows |= follows
        self.configured.set()
        self.configured = trio.Event()

    def promote(self, name: str, *, is_longest: bool) -> None:
        """From now on its log counts. `is_longest`: it was chosen for that, among all slaves that have followed.

        Each broker becomes what `configure` says then.
        """
        status = LONGEST if is_longest else "shortest"
        self.recorder.record(OperatorPromote(status=status), name)

    # --- what is known of them --------------------------------------------------------------------------------------

    @property
    def master(self) -> str:
        """Whose log counts."""
        return self.view.master.name

    def met_disk_error(self, name: str) -> bool:
        """Whether the node's present process has met an error of its disk."""
        return name in self._met_disk_errors

    def _flush_type(self, name: str) -> FlushDiskType:
        """The first master and the others have a setting each."""
        workload = self.workload
        return FlushDiskType(workload.master_flush if name == self.names[0] else workload.slave_flush)

    def config(self, name: str) -> BrokerConfig:
        """Its configuration, as whom it follows makes it."""
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
            _cleaned(self.store) if workload.clean_every_s else self.store,
            transient_store_pool_enable=workload.transient_pool,
            broker_role=BrokerRole.SLAVE if is_slave else BrokerRole(workload.master_role),
            flush_disk_type=self._flush_type(name),
            mapped_file_size_commit_log_bytes=workload.log_file_bytes,
        )
        if not self.changes_roles:
            return BrokerConfig(name, store, ha)
        return BrokerConfig(
            "broker-a",
            store,
            ha,
            remoting=RemotingServerConfig(node.address, PORT),
            broker_id=1 + self.names.index(name) if is_slave else 0,
            master_addr=f"{self.nodes[master].address}:{PORT}" if is_slave else None,
        )

    # --- their processes --------------------------------------------------------------------------------------------

    async def _serve(self, node: Node) -> None:
        """The program of each node."""
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        while not self._stopping.is_set():
            self.running.pop(node.name, None)
            try:
                await self._run_broker(node, tracer)
            except* (RoleChangeFailed, ConfigFileDamaged, DamagedLog, OSError) as group:
                if not all(self._may_meet(each, node.name) for each in _leaves(group)):
                    raise
                await trio.sleep(_START_AGAIN_S)

    def _may_meet(self, error: BaseException, name: str) -> bool:
        """Whether a disk's fault is why a broker could not start, or change its role."""
        if isinstance(error, RoleChangeFailed | ConfigFileDamaged):
            return name in self._met_disk_errors
        if isinstance(error, DamagedLog) or isinstance(error.__cause__, DamagedLog):
            return bool(self.view.nodes[name].rotten)
        return isinstance(error, OSError) and error.errno in _DISK_ERRORS and name not in self.running

    async def _run_broker(self, node: Node, tracer: Tracer) -> None:
        name = node.name
        while name not in self.follows:
            await self.configured.wait()
        if name in self.to_empty:
            await self._empty(node)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(self.config(name), environment, tracer, machines=self._machines[name]) as broker:
            self.running[name] = broker
            async with trio.open_nursery() as nursery:
                for program in self._beside(name):
                    nursery.start_soon(program, broker, node)
                await self._stopping.wait()
                nursery.cancel_scope.cancel()

    async def _empty(self, node: Node) -> None:
        """Remove all that it has. Once that is durable it begins as a new slave does."""
        self.recorder.record(OperatorSetUpAnew(), node.name)
        _remove_all(node.disk, "")
        await node.disk.sync_directory("")
        self.to_empty.remove(node.name)

    def _on_boot(self, boot: NodeBoot) -> None:
        self._met_disk_errors.discard(boot.node)

    def _on_disk_error(self, error: StorageError | StorageStuck) -> None:
        self._met_disk_errors.add(error.node)


def _cleaned(store: MessageStoreConfig) -> MessageStoreConfig:
    """Any disk is short of space; checkpoints come soon, as no file goes that a start would read."""
    return attrs.evolve(
        store,
        disk_max_used_space_ratio=0,
        disk_space_clean_forcibly_ratio=0,
        flush_consume_queue_thorough_interval_ms=300,
    )


def _remove_all(disk: SimDisk, directory: str) -> None:
    for name in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            disk.remove(path)
        except IsADirectoryError:
            _remove_all(disk, path)
            disk.remove_directory(path)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
