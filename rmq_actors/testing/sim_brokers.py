"""The brokers of a cluster on the nodes of a simulated world: their processes, and what is done to them.

A node runs its broker like a service manager: a broker that its disk kept from starting is started again. `SimCluster`
runs one body in a world of its own; `ReplicationRun` runs the cases of a scenario.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import attrs
import trio

from rmq_actors.broker.broker_configuration import BrokerFiles
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.store_host import Machines
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ClientConfig
from rmq_actors.embedding.brokers import Addresses, Brokers
from rmq_actors.ports.environment import Environment
from rmq_actors.settings.configure import ConfigurationError
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import TERM_FILE
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.testing.evidence import FILES_CHANGE, WorldEvidence
from rmq_actors.testing.promotions import Promotions
from rmq_actors.testing.sim_client import open_sim_client
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import OperatorSetUpAnew
from rmq_actors.tracing.events.storage import StorageError, StorageStuck
from rmq_actors.tracing.recorder import Recorder, Tracer
from rmq_actors.wire.address import address_text
from sim_net import Node, Partition, SimDisk, World

T = TypeVar("T")

PORT = 10911
HA_PORT = 10912
#: The errors of a start that a disk's fault may be the cause of.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC}
#: A broker starts where its full disk has no room for these, and waits for room with what it has to write there. So it
#: does without room for its first term.
_STARTS_WITHOUT_ROOM_FOR = ("commitlog/", "consumequeue/", "index/")
#: The pause before a broker is started again.
_START_AGAIN_S = 0.5
_START_TIMEOUT_S = 60.0
#: Until something ends it.
FOR_EVER_S = 1e9

#: What runs on a node beside its broker; it is cancelled before the broker stops.
Beside = Callable[[BrokerController, Node], Awaitable[None]]


@attrs.define(eq=False, repr=False)
class SimBrokers(Brokers):
    """Brokers on nodes of their names. A class that derives from it says which world and whose trace these are."""

    world: World = attrs.field(init=False)
    #: The trace of all that happens.
    recorder: Recorder = attrs.field(init=False)
    #: By name, also of those that are down.
    nodes: Mapping[str, Node] = attrs.field(init=False)
    _machines: Mapping[str, Machines] = attrs.field(init=False)
    _beside: Callable[[str], Iterable[Beside]] = attrs.field(default=lambda _: (), init=False)
    #: Each node's latest broker, which may have stopped.
    _latest: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    #: For each node that runs: its broker is to stop.
    _stopping: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    #: Set, and replaced by another, when a configuration is written.
    _configured: trio.Event = attrs.field(factory=trio.Event, init=False)
    _disabled: set[str] = attrs.field(factory=set, init=False)
    _to_empty: set[str] = attrs.field(factory=set, init=False)
    _heals: list[Callable[[], object]] = attrs.field(factory=list, init=False)
    #: Nodes whose present process has met an error of its disk.
    _met_disk_errors: set[str] = attrs.field(factory=set, init=False)
    #: For each node, the file that it had no room for, if that was the latest error of its disk.
    _lacked_room: dict[str, str] = attrs.field(factory=dict, init=False)
    #: Nodes whose present process has opened its broker.
    _has_opened: set[str] = attrs.field(factory=set, init=False)
    _promotions: Promotions = attrs.field(init=False)
    #: How many clients it has had.
    _clients: int = attrs.field(default=0, init=False)
    #: What the trace tells of them, if somebody watches, and what their disks have.
    _view: ClusterView | None = attrs.field(default=None, init=False)
    _evidence: WorldEvidence = attrs.field(init=False)

    def place(self, world: World, recorder: Recorder, make_machines: Callable[[], Machines]) -> None:
        """Make the nodes, in `world`; its events are in `recorder`. Once, before anything else."""
        self.world, self.recorder = world, recorder
        self.nodes = MappingProxyType({name: world.node(name) for name in self._follows})
        self._machines = {name: make_machines() for name in self._follows}
        recorder.subscribe(self._on_boot, [NodeBoot])
        recorder.subscribe(self._on_disk_error, [StorageError, StorageStuck])
        self._promotions = Promotions(recorder)

    def watch(self, *, acks: int, sync_flush: Iterable[str]) -> ClusterView:
        """A view of one master and its slaves, which a judge brings up to date."""
        store = self._store
        self._evidence = evidence = WorldEvidence(
            self.world, self.nodes, self._latest, store.mapped_file_size_commit_log_bytes, store.max_hash_slot_num
        )
        self.recorder.subscribe(evidence.forget_files, FILES_CHANGE)
        (master,) = (name for name, followed in self._follows.items() if followed is None)
        names = {node.address: name for name, node in self.nodes.items()}

        def node_of(host: str) -> str:
            return names.get(host, "")

        view = ClusterView(master, list(self._follows), node_of, evidence, acks=acks, sync_flush=list(sync_flush))
        self._view = view
        return view

    def follow_promotions(self, view: ClusterView) -> None:
        """From each promotion on, whatever its cause, that broker's log counts. The view must have seen it before."""
        self._promotions.follow(view, self._evidence)

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
        self._heals.append(Partition(0.0, FOR_EVER_S, self._node(a).name, self._node(b).name).begin(self.world))

    def heal(self) -> None:
        """See `Cluster.heal`."""
        while self._heals:
            self._heals.pop()()

    @contextlib.asynccontextmanager
    async def client(self, config: ClientConfig | None = None) -> AsyncIterator[MQClientInstance]:
        """See `Brokers.client`: it runs on a node of its own, "client-1", "client-2" and so on."""
        self._clients += 1
        node = self.world.node(f"client-{self._clients}")
        async with open_sim_client(node, self.recorder, self._client_config(config, node.address)) as instance:
            yield instance

    # --- what operators do besides ----------------------------------------------------------------------------------

    def boot(self, *, beside: Callable[[str], Iterable[Beside]] = lambda _: ()) -> None:
        """Start every node, and wait for none; `beside` gives what runs on the node of a name beside its broker."""
        self._beside = beside
        for node in self.nodes.values():
            node.boot(self._serve)

    def restart_node(self, name: str) -> None:
        """Start a node, which is down, and do not wait for its broker."""
        self._node(name).restart()

    def note(self, master: str) -> None:
        """Let the others follow `master`, if no file of theirs says which broker to follow."""
        self._put_in_front(master, list(self._follows))

    def addresses(self, name: str) -> Addresses:
        """Where a broker is reached."""
        return self._addresses(name)

    async def ask(self, name: str, call: Callable[[BrokerController], Awaitable[T]]) -> T:
        """Run `call` in the broker's process; what it returns or raises. It goes on if the caller is cancelled.

        Raises `BrokerDown`.
        """
        return await self._call(name, call)

    async def stop_all(self) -> None:
        """Stop every broker in order, at the same time; return when all nodes are down. What is down stays so."""
        for stopping in self._stopping.values():
            stopping.set()
        for node in self.nodes.values():
            await node.wait_down()

    def disable(self, name: str) -> None:
        """Until its configuration is written again its broker is not started, whoever starts its node."""
        self._node(name)
        self._disabled.add(name)

    def configure(self, master: str, names: Iterable[str]) -> None:
        """Write the configurations of `names`: they follow `master`, which is the master if it is one of them.

        A broker that runs does not read its file: see `take_role`, and `configured`.
        """
        names = list(names)
        self._follows.update({name: None if name == master else master for name in names})
        self._disabled.difference_update(names)
        self._configured.set()
        self._configured = trio.Event()

    @property
    def configured(self) -> trio.Event:
        """Set when a configuration is written next."""
        return self._configured

    def is_disabled(self, name: str) -> bool:
        """Whether its broker is not to be started."""
        return name in self._disabled

    def is_configured_master(self, name: str) -> bool:
        """Whether its configuration says that it is a master, and it may be started."""
        return name not in self._disabled and self._follows[name] is None

    async def take_role(self, name: str) -> None:
        """Let a running broker become what its configuration says, in a task of its node."""
        config = self._config(name)
        await self.broker(name).change_role(
            config.store.broker_role,
            # Routes name brokers by their ids.
            broker_id=None if config.namesrv_addr is None else config.broker_id,
            ha_master_address=config.ha.ha_master_address,
            master_addr=config.master_addr,
        )

    def empty(self, name: str) -> None:
        """Remove all that its broker has before that is started next."""
        self._node(name)
        self._to_empty.add(name)

    def is_to_be_emptied(self, name: str) -> bool:
        """Whether all it has is removed before its next start."""
        return name in self._to_empty

    def met_disk_error(self, name: str) -> bool:
        """Whether the node's present process has met an error of its disk."""
        return name in self._met_disk_errors

    # --- for `Brokers` ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Node:
        if name not in self._follows:
            raise ValueError(f"no broker {name!r}: there are {', '.join(self._follows)}")
        return self.nodes[name]

    def _addresses(self, name: str) -> Addresses:
        host = self._node(name).address
        return Addresses(address_text((host, PORT)), address_text((host, HA_PORT)))

    def _listens(self, name: str) -> tuple[str, int, int]:
        return self._node(name).address, PORT, HA_PORT

    def _start_within(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        self._node(name).start_soon(task)

    # --- their processes --------------------------------------------------------------------------------------------

    async def _started_with(self, node: Node) -> tuple[BrokerConfig, BrokerFiles | None]:
        """What a node's broker is started with, and the file in which it keeps what requests change, if it has one."""
        return self._config(node.name), None

    def _is_of_a_fault(self, error: BaseException, name: str) -> bool:
        """Whether a disk's fault is why a broker could not start, or change its role."""
        if any(isinstance(each, DamagedLog) for each in _causes(error)):
            return self._view is not None and bool(self._view.nodes[name].rotten)
        if isinstance(error, RoleChangeFailed | ConfigFileDamaged | ConfigurationError):
            return name in self._met_disk_errors
        if not isinstance(error, OSError) or name in self._brokers:
            return False
        if error.errno == errno.ENOSPC and name not in self._has_opened:
            return self._needs_room(name, self._lacked_room.get(name, ""))
        # What a store says of a stop that was not in order has no number of its own.
        return error.errno in _DISK_ERRORS or (error.errno is None and name in self._met_disk_errors)

    def _needs_room(self, name: str, path: str) -> bool:
        """Whether a full disk may keep a broker from starting for want of room for a file; "": it was not full."""
        if path.startswith(TERM_FILE):
            return self._evidence.term(name).number > 0
        return not path.startswith(_STARTS_WITHOUT_ROOM_FOR)

    async def _serve(self, node: Node) -> None:
        """The program of each node."""
        tracer, name = self.recorder.tracer(node.name), node.name
        node.on_fence(tracer.fence)
        node.on_fence(lambda: self._brokers.pop(name, None))
        stopping = self._stopping[name] = trio.Event()
        while not stopping.is_set():
            try:
                await self._serve_once(node, tracer, stopping)
            except* (RoleChangeFailed, ConfigFileDamaged, ConfigurationError, DamagedLog, OSError) as group:
                if not all(self._is_of_a_fault(each, name) for each in _leaves(group)):
                    raise
                self._brokers.pop(name, None)
                if group.subgroup(RoleChangeFailed):
                    self._promotions.has_failed(name)
                await trio.sleep(_START_AGAIN_S)

    async def _serve_once(self, node: Node, tracer: Tracer, stopping: trio.Event) -> None:
        name = node.name
        while name in self._disabled:
            await self._configured.wait()
        if name in self._to_empty:
            await self._empty(node)
        environment, machines = Environment(node.disk, node.wall_clock, node.entropy), self._machines[name]
        config, files = await self._started_with(node)
        self._promotions.starts(name, config)
        self._has_opened.discard(name)
        async with open_broker(config, environment, tracer, machines=machines, files=files) as broker:
            self._brokers[name] = self._latest[name] = broker
            self._has_opened.add(name)
            async with trio.open_nursery() as nursery:
                for program in self._beside(name):
                    nursery.start_soon(program, broker, node)
                await stopping.wait()
                nursery.cancel_scope.cancel()
            self._brokers.pop(name, None)

    async def _empty(self, node: Node) -> None:
        """Once that is durable it begins as a new slave does."""
        self.recorder.record(OperatorSetUpAnew(), node.name)
        _remove_all(node.disk, "")
        await node.disk.sync_directory("")
        self._to_empty.discard(node.name)

    def _on_boot(self, boot: NodeBoot) -> None:
        self._met_disk_errors.discard(boot.node)

    def _on_disk_error(self, error: StorageError | StorageStuck) -> None:
        self._met_disk_errors.add(error.node)
        is_of_space = isinstance(error, StorageError) and error.status == "ENOSPC" and error.operation == "write"
        disk = self.nodes[error.node].disk if error.node in self.nodes else None
        # An injected ENOSPC also meets what needs no room: zeros over a record that is torn, say.
        is_full = disk is not None and disk.space is not None and not disk.fails_operations
        self._lacked_room[error.node] = error.path if is_of_space and is_full else ""


def _remove_all(disk: SimDisk, directory: str) -> None:
    for name in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            disk.remove(path)
        except IsADirectoryError:
            _remove_all(disk, path)
            disk.remove_directory(path)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
