"""A master and its slaves in this process, on loopback, on real directories or in memory.

See `examples/embedded_cluster.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import attrs
import trio

from rmq_actors.actors.block_errors import opener
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.client.client_instance import MQClientInstance, open_client_instance
from rmq_actors.client.config import ClientConfig
from rmq_actors.embedding.brokers import Addresses, Brokers, check_topology, masters_first
from rmq_actors.embedding.cluster_protocol import BrokerDown, Unsupported
from rmq_actors.embedding.held_ports import HeldPorts
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.real_io.environment import real_environment
from rmq_actors.real_io.memory_disk import MemoryDisk
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.argument_checks import checked
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import parse_address

_HOST = "127.0.0.1"
_HA = HaConfig()

#: The settings of a cluster unless it is given others: RocketMQ's, but for small files, as those of a test are thrown
#: away. (RocketMQ's log has files of 1 GiB, its index of 420 MB. They are sparse, but quotas and copies count them
#: whole.) Other settings with such files: `attrs.evolve(CLUSTER_STORE, flush_disk_type=FlushDiskType.SYNC_FLUSH)`.
CLUSTER_STORE = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=16 * 1024 * 1024,
    mapped_file_size_consume_queue_bytes=10_000 * 20,
    max_hash_slot_num=50_000,
    max_index_num=200_000,
)


@checked
def log_sha256(commit_log: CommitLog) -> str:
    """SHA-256 of the log's bytes from its minimum to its maximum offset, in hex."""
    digest = hashlib.sha256()
    for view in commit_log.ranges(commit_log.min_offset, commit_log.max_offset):
        digest.update(view)
    return digest.hexdigest()


@attrs.define(eq=False, repr=False)
class _Process:
    """A running broker's part of this process: its tasks, and how they end."""

    nursery: trio.Nursery
    scope: trio.CancelScope
    stopping: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class RealCluster(Brokers):
    """A cluster in this process: see `cluster_protocol.Cluster`. Its brokers listen on loopback, at ports that stay.

    It cannot lose power, pause a broker or cut a link (`Unsupported`). A killed broker's tasks end at once, without an
    orderly stop; what it has written is in the files, as after kill -9.
    """

    #: That of a broker, or of the clients, by name; it has the same disk each time.
    _environment_of: Callable[[str], Environment]
    _recorder: Recorder
    _nursery: trio.Nursery
    _held_ports: HeldPorts
    _processes: dict[str, _Process] = attrs.field(factory=dict, init=False)
    _reached_at: dict[str, Addresses] = attrs.field(factory=dict, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    @property
    def name_server_address(self) -> str | None:
        """Where the cluster's name server is, as "host:port", if it has one."""
        return self._namesrv_addr

    @property
    def master(self) -> BrokerController:
        """The only master. Raises `ValueError` if there are several, `BrokerDown`."""
        return self.broker(self._only_master())

    @property
    def slaves(self) -> list[BrokerController]:
        """The running slaves."""
        return [self.broker(name) for name in self.running if self._follows[name] is not None]

    async def start(self, name: str) -> None:
        """See `Cluster.start`. Raises what `open_broker` raises."""
        if name not in self._follows:
            raise ValueError(f"no broker {name!r}: there are {', '.join(self._follows)}")
        if name in self._processes:
            raise ValueError(f"broker {name} is running")
        self._check_open()
        await self._nursery.start(self._live, name)

    async def stop(self, name: str) -> None:
        """See `Cluster.stop`."""
        process = self._process(name)
        process.stopping.set()
        await process.ended.wait()

    async def kill(self, name: str) -> None:
        """See `Cluster.kill`."""
        process = self._process(name)
        process.scope.cancel()
        await process.ended.wait()

    async def power_loss(self, name: str) -> NoReturn:
        """Raises `Unsupported`."""
        raise Unsupported(f"the power of {name} cannot be taken in a real cluster; SimCluster does that")

    def pause(self, name: str) -> NoReturn:
        """Raises `Unsupported`."""
        raise Unsupported(f"{name} shares this process with the test that would pause it; SimCluster does that")

    def resume(self, name: str) -> NoReturn:
        """Raises `Unsupported`."""
        raise Unsupported(f"{name} cannot be paused in a real cluster, nor go on; SimCluster does that")

    def partition(self, a: str, b: str) -> NoReturn:
        """Raises `Unsupported`."""
        raise Unsupported(f"{a} and {b} speak over loopback, which is not cut; SimCluster does that")

    def heal(self) -> None:
        """Does nothing, as no link can be cut."""

    @contextlib.asynccontextmanager
    async def client(self, config: ClientConfig | None = None) -> AsyncIterator[MQClientInstance]:
        """See `Brokers.client`."""
        self._check_open()
        async with open_client_instance(
            self._client_config(config, _HOST),
            self._environment_of("client"),
            self._recorder.tracer("client"),
        ) as instance:
            yield instance

    # --- for `Brokers` ----------------------------------------------------------------------------------------------

    def _addresses(self, name: str) -> Addresses:
        return self._reached_at[name]

    def _listens(self, name: str) -> tuple[str, int, int]:
        known = self._reached_at.get(name)
        if known is None:
            return _HOST, 0, 0
        return _HOST, parse_address(known.remoting)[1], parse_address(known.ha)[1]

    def _start_within(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        self._process(name).nursery.start_soon(task)

    def _process(self, name: str) -> _Process:
        self.broker(name)
        return self._processes[name]

    async def _live(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        tracer = self._recorder.tracer(name)
        tracer.emit(NodeBoot())
        # The system has chosen its port at the first start, so that it had no fast port: one might be taken later.
        config = attrs.evolve(self._config(name), has_fast_port=False)
        process = None
        try:
            with trio.CancelScope() as scope:
                async with (
                    open_broker(config, self._environment_of(name), tracer) as broker,
                    trio.open_nursery() as nursery,
                ):
                    self._processes[name] = process = _Process(nursery, scope)
                    self._brokers[name] = broker
                    assert broker.remoting is not None
                    self._reached_at[name] = Addresses(broker.remoting.broker_addr, broker.ha_address)
                    self._held_ports.let_go(name)
                    task_status.started()
                    await process.stopping.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self._processes.pop(name, None)
            self._brokers.pop(name, None)
            if process is not None:
                host, *ports = self._listens(name)
                self._held_ports.hold(name, host, ports)
                process.ended.set()

    def _check_open(self) -> None:
        if self._is_over:
            raise BrokerDown("the block of open_cluster is over, and all its brokers have stopped")

    def close(self) -> None:
        """The block is over: nothing can be started any more. For `open_cluster`."""
        self._is_over = True

    async def stop_all(self) -> None:
        """Stop every broker in order, those that were started last first."""
        for name in reversed(list(self._processes)):
            await self.stop(name)


@checked
@opener
async def open_cluster(
    directory: str | os.PathLike[str] | None,
    *,
    slaves: int | None = None,
    follows: Mapping[str, str | None] | None = None,
    store: MessageStoreConfig = CLUSTER_STORE,
    ha: HaConfig = _HA,
    recorder: Recorder | None = None,
    name_server: bool = False,
    name_server_port: int = 0,
    wait_connected: bool = True,
) -> AsyncIterator[RealCluster]:
    """A cluster whose stores are `directory`/master and `directory`/slave-1, -2, ...; it stops in order at the end.

    There is one slave, or as many as `slaves` says. With None for the directory the stores are in memory, until the end
    of the block: a broker that is stopped, or killed, and started again finds its own.

    `follows`, in place of `slaves`, names other brokers, and which one each follows, None for a master: {"a": None,
    "b": "a", "c": "b"}. The masters serve every slave when the block begins, unless `wait_connected` is false: before
    that they answer SLAVE_NOT_AVAILABLE. `store` and `ha` hold the settings of all of them, but for the slaves' role
    and for addresses; by default a SYNC_MASTER with small files (`CLUSTER_STORE`). With a `name_server` the brokers are
    registered with it when the block begins, and slaves learn from it where their master is; it listens on
    `name_server_port`, 0 for a free one.

    Raises `ValueError` for impossible brokers, and what `open_broker` raises; `trio.TooSlowError` if a slave is not
    connected after 30 s. What the block raises leaves it as it is; an exception group says that
    brokers failed, too.
    """
    names = _topology(slaves, follows)
    recorder = recorder or real_recorder(RunInfo("embedding", "cluster", 0, source="broker"))
    cannot_start: Exception | None = None
    async with contextlib.AsyncExitStack() as stack:
        environment_of = stack.enter_context(_environments(None if directory is None else Path(directory)))
        namesrv_addr: str | None = None
        if name_server:
            namesrv_addr = await _open_name_server(environment_of(""), name_server_port, recorder, stack)
        held_ports = stack.enter_context(HeldPorts())
        nursery = await stack.enter_async_context(trio.open_nursery())
        cluster = RealCluster(names, store, ha, environment_of, recorder, nursery, held_ports)
        stack.callback(cluster.close)
        cluster.use_name_servers(namesrv_addr)
        try:
            for name in masters_first(names):
                await cluster.start(name)
            await cluster.wait_until_registered()
            if wait_connected:
                await cluster.wait_until_connected()
        except Exception as error:  # noqa: BLE001 - raised below: here it would come out as a group of exceptions
            cannot_start = error
            nursery.cancel_scope.cancel()
        else:
            yield cluster
            await cluster.stop_all()
    if cannot_start is not None:
        raise cannot_start


def _topology(slaves: int | None, follows: Mapping[str, str | None] | None) -> dict[str, str | None]:
    if follows is None:
        numbers = range(1, 1 + (1 if slaves is None else slaves))
        return {"master": None, **{f"slave-{number}": "master" for number in numbers}}
    if slaves is not None:
        raise ValueError(f"open_cluster: slaves={slaves} and follows contradict: follows names all brokers, slaves too")
    return check_topology(follows)


@contextlib.contextmanager
def _environments(directory: Path | None) -> Iterator[Callable[[str], Environment]]:
    """That of each name; what is in memory ends with the block."""
    in_memory = defaultdict[str, MemoryDisk](MemoryDisk)
    try:
        yield lambda name: real_environment(in_memory[name] if directory is None else directory / name)
    finally:
        for disk in in_memory.values():
            disk.close()


async def _open_name_server(
    environment: Environment, port: int, recorder: Recorder, stack: contextlib.AsyncExitStack
) -> str:
    """A name server with its files below namesrv/; its address."""
    config = NamesrvConfig(remoting=RemotingServerConfig(listen_port=port))
    tracer = recorder.tracer("namesrv")
    controller = await stack.enter_async_context(open_name_server(config, environment, tracer))
    return controller.address
