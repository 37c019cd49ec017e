"""The brokers of a run of a scenario: `SimBrokers` whose settings are those of the case's workload."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import trio

from rmq_actors.broker.broker_configuration import BrokerFiles, config_file
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.broker.quotas import Quotas
from rmq_actors.broker.store_host import Machines
from rmq_actors.embedding.brokers import Addresses
from rmq_actors.ha.config import HaConfig
from rmq_actors.settings.configure import Properties, configure
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.testing.account_table import FIRST_ACCOUNTS, MAIN_FILE, file_of, write_files
from rmq_actors.testing.evidence import WorldEvidence
from rmq_actors.testing.name_servers import NameServers
from rmq_actors.testing.neighbour import Neighbour
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.sim_brokers import Beside, SimBrokers
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT, serve_routes
from rmq_actors.testing.strange_requests import CLIENT_GROUPS_MAX
from rmq_actors.testing.topology import NAME_SERVER, NAME_SERVERS, NEIGHBOUR, Topology
from rmq_actors.testing.view import ClusterView
from rmq_actors.testing.workload import Workload, settings_of
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import address_text
from rmq_actors.wire.ha_frames import TRANSFER_HEADER_BYTES
from sim_net import Node, SimDisk, World

#: Small, so that a few dozen messages roll files, split frames and fill buffers.
STORE = MessageStoreConfig(
    max_hash_slot_num=16,
    max_index_num=64,
    # Nobody reads the rates, and counting them costs steps of the run.
    store_stats_sampling=False,
)
_READ_BUFFER_BYTES = 4096
#: How many connections HA ports have in runs with strangers: enough for two slaves and the strangers' one machine.
HA_CONNECTIONS_MAX, _HA_CONNECTIONS_PER_ADDRESS = 12, 4
#: Where a broker keeps what requests change.
_FILE = "conf/broker.conf"
#: The pause before accounts are written again that a disk has not taken.
_GIVEN_AGAIN_S = 0.5


#: Transactions are asked about soon, and never given up.
_CHECKS: Mapping[str, Any] = {
    "transaction_check_interval_ms": 500,
    "transaction_time_out_ms": 300,
    "transaction_check_max": 1_000_000,
}
#: They are asked about later, and given up if that is counted while nobody can be asked.
CHECK_INTERVAL_MS, TIME_OUT_MS, CHECK_MAX = 1_000, 3_000, 6
_CHECKS_OF_ERRANDS: Mapping[str, Any] = {
    "transaction_check_interval_ms": CHECK_INTERVAL_MS,
    "transaction_time_out_ms": TIME_OUT_MS,
    "transaction_check_max": CHECK_MAX,
}


@attrs.define(eq=False, repr=False)
class BrokersUnderTest(SimBrokers):
    """See `brokers_under_test`."""

    #: Whether roles change in the run: then brokers have a port on which slaves ask, and one brokerName.
    changes_roles: bool
    workload: Workload
    #: Whether each keeps what requests change of its settings in a file, as brokers with `-c` do.
    keeps_files: bool
    #: The settings of the first master and of the others, as masters.
    _first: MessageStoreConfig
    #: Brokers that somebody has given files with which they must not start, and the error that says so.
    refusals: dict[str, type[Exception]] = attrs.field(factory=dict, init=False)
    view: ClusterView = attrs.field(init=False)
    #: The brokers whose configuration an operator has written since their last start.
    _written: set[str] = attrs.field(factory=set, init=False)
    #: Where clients and brokers find each other, if clients do not know that from the run itself.
    _name_server: Node | None = attrs.field(default=None, init=False)
    #: Those that alone tell slaves who is their master, in runs that have such.
    name_servers: NameServers | None = attrs.field(default=None, init=False)
    #: Whether faults are over and no operator does anything any more, in runs whose operator says so.
    is_settled: bool = attrs.field(default=False, init=False)
    #: A broker of another brokerName, in runs that have one.
    neighbour: Neighbour | None = attrs.field(default=None, init=False)
    _name_server_over: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: The broker at whose files somebody works, and when that is over.
    _worked_at: tuple[str, trio.Event] = attrs.field(factory=lambda: ("", trio.Event()), init=False)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the first master first."""
        return tuple(self._follows)

    @property
    def master(self) -> str:
        """The broker that is configured to be the master; if none is, the one whose log counts."""
        return next((name for name in self.names if self.is_configured_master(name)), self.view.master.name)

    @property
    def name_server(self) -> str | None:
        """The address of the name server, in runs of this project's own clients."""
        return None if self._name_server is None else address_text((self._name_server.address, NAME_SERVER_PORT))

    def place(self, world: World, recorder: Recorder, make_machines: Callable[[], Machines]) -> None:
        """See `SimBrokers.place`."""
        super().place(world, recorder, make_machines)
        if self.workload.groups != "none" or self.workload.errands:
            self._name_server = world.node(NAME_SERVER)
        if self.workload.neighbour:
            self.neighbour = Neighbour(recorder, world.node(NEIGHBOUR), self.name_server)
        if count := self.workload.name_servers:
            self.name_servers = NameServers(recorder, [world.node(name) for name in NAME_SERVERS[:count]])
            self.use_name_servers(self.name_servers.addresses)

    def boot(self, *, beside: Callable[[str], Iterable[Beside]] = lambda _: ()) -> None:
        """See `SimBrokers.boot`."""
        if self._name_server is not None:
            self._name_server.boot(lambda node: serve_routes(node, self.recorder, self._name_server_over))
        if self.name_servers is not None:
            self.name_servers.boot()
        super().boot(beside=beside)
        if self.neighbour is not None:
            self.neighbour.boot()

    async def stop_all(self) -> None:
        """See `SimBrokers.stop_all`; the name server is the last."""
        await super().stop_all()
        if self.neighbour is not None:
            await self.neighbour.stop()
        if self._name_server is not None:
            self._name_server_over.set()
            await self._name_server.wait_down()
        if self.name_servers is not None:
            await self.name_servers.stop()

    def _settings(self, name: str) -> tuple[MessageStoreConfig, HaConfig]:
        return self._first if name == self.view.first_master else self._store, self._ha

    def configure(self, master: str, names: Iterable[str]) -> None:
        """See `SimBrokers.configure`."""
        names = list(names)
        super().configure(master, names)
        self._written.update(names)

    @contextlib.contextmanager
    def files_at_rest(self, name: str) -> Iterator[SimDisk]:
        """The disk of a broker that is not started meanwhile, whoever starts its node. Of one broker at a time."""
        _, over = self._worked_at = name, trio.Event()
        try:
            yield self._node(name).disk
        finally:
            self._worked_at = "", over
            over.set()

    @property
    def evidence(self) -> WorldEvidence:
        """What is on their disks."""
        return self._evidence

    def _is_of_a_fault(self, error: BaseException, name: str) -> bool:
        return isinstance(error, self.refusals.get(name, ())) or super()._is_of_a_fault(error, name)

    async def _started_with(self, node: Node) -> tuple[BrokerConfig, BrokerFiles | None]:
        """The configuration of its file, unless an operator has written another one since."""
        while self._worked_at[0] == node.name:
            await self._worked_at[1].wait()
        if self.workload.accounts:
            await self._give_accounts(node)
        config = self._config(node.name)
        if not self.keeps_files:
            return config, None
        if node.name in self._written and node.disk.exists(_FILE):
            node.disk.remove(_FILE)
            await node.disk.sync_directory(_FILE.rpartition("/")[0])
        self._written.discard(node.name)
        file = config_file(node.disk, _FILE)
        said = file.read()
        if said is not None:
            config = configure(config, said, BROKER_KEYS)
        return config, BrokerFiles(node.disk, file, {} if said is None else said.values, {})

    async def _give_accounts(self, node: Node) -> None:
        """The first ones, where a machine has no such file."""
        addresses = [each.address for each in self.nodes.values()]
        for path, accounts in FIRST_ACCOUNTS.items():
            while not node.disk.exists(path):
                try:
                    white = addresses if path == MAIN_FILE else ()
                    await write_files(node.disk, {path: file_of(accounts, white)})
                except OSError:  # the disk takes nothing now
                    await trio.sleep(_GIVEN_AGAIN_S)

    def _addresses(self, name: str) -> Addresses:
        host, port, ha_port = self._listens(name)
        return Addresses(address_text((host, port)), address_text((host, ha_port)))

    def _listens(self, name: str) -> tuple[str, int, int]:
        host, port, ha_port = super()._listens(name)
        return host, port, int(settings_of(self.workload.settings).get("haListenPort", ha_port))

    def _config(self, name: str) -> BrokerConfig:
        settings = settings_of(self.workload.settings)
        if name != self.view.first_master:
            settings |= settings_of(self.workload.settings_apart)
        config = self._config_of_the_run(name)
        return configure(config, Properties("the case's settings", settings), BROKER_KEYS) if settings else config

    def _config_of_the_run(self, name: str) -> BrokerConfig:
        # Slaves know their masters from the operator, as in other runs.
        if not self.changes_roles and not self.workload.clients:
            return BrokerConfig(name, *self._settings_in_place(name))
        changes: dict[str, Any] = {"namesrv_addr": self.name_server or self._namesrv_addr}
        if self.workload.transactions:
            changes |= _CHECKS
        if self.workload.errands:
            changes |= _CHECKS_OF_ERRANDS
        if self.workload.accounts:
            changes["acl_enable"] = True
        if self.workload.strangers:
            changes |= {"enable_property_filter": True, "quotas": Quotas(client_groups_max=CLIENT_GROUPS_MAX)}
        if not self.changes_roles:
            changes["master_addr"] = None  # clients ask; slaves do not
        return attrs.evolve(super()._config(name), **changes)

    def _settings_in_place(self, name: str) -> tuple[MessageStoreConfig, HaConfig]:
        store, ha = super()._settings_in_place(name)
        return store, self._ha_among_strangers(ha) if self.workload.strangers else ha

    def _ha_among_strangers(self, ha: HaConfig) -> HaConfig:
        """Each slave may have a connection that its master has not given up yet, and more."""
        names = [node.address for node in self.nodes.values()] if self.workload.allows_slaves_alone else []
        return attrs.evolve(
            ha,
            connections_max=HA_CONNECTIONS_MAX,
            connections_max_per_address=_HA_CONNECTIONS_PER_ADDRESS,
            ha_allowed_addresses=";".join(names),
        )


def brokers_under_test(
    world: World,
    recorder: Recorder,
    topology: Topology,
    workload: Workload,
    store: MessageStoreConfig = STORE,
    *,
    changes_roles: bool = False,
    keeps_files: bool = False,
) -> BrokersUnderTest:
    """The brokers of `topology` in `world`; `store` has the settings that no parameter of the workload sets."""
    store = attrs.evolve(
        _cleaned(store) if workload.clean_every_s else store,
        transient_store_pool_enable=workload.transient_pool,
        broker_role=BrokerRole(workload.master_role),
        flush_disk_type=FlushDiskType(workload.slave_flush),
        mapped_file_size_commit_log_bytes=workload.log_file_bytes,
        mapped_file_size_consume_queue_bytes=workload.queue_file_bytes,
    )
    ha = HaConfig(
        ha_transfer_batch_size_bytes=workload.transfer_batch_bytes,
        read_buffer_bytes=max(_READ_BUFFER_BYTES, workload.transfer_batch_bytes + TRANSFER_HEADER_BYTES),
        total_replicas=len(topology.names),
        in_sync_replicas=workload.in_sync_replicas,
        enable_auto_in_sync_replicas=workload.auto_in_sync_replicas,
        ha_truncate_on_divergence=workload.divergence == "setting",
    )
    first = attrs.evolve(store, flush_disk_type=FlushDiskType(workload.master_flush))
    brokers = BrokersUnderTest(topology.follows, store, ha, changes_roles, workload, keeps_files, first)
    bug = workload.planted_bug
    brokers.place(world, recorder, PLANTED_BUGS[bug].make_machines if bug else Machines)
    settings = {name: first if name == topology.master else store for name in topology.names}
    sync_flush = [name for name, each in settings.items() if each.flush_disk_type is FlushDiskType.SYNC_FLUSH]
    brokers.view = brokers.watch(acks=workload.acks, sync_flush=sync_flush)
    return brokers


def _cleaned(store: MessageStoreConfig) -> MessageStoreConfig:
    """Makes any disk look short of space. Checkpoints come soon, as cleaning keeps files that a start would read."""
    return attrs.evolve(
        store,
        disk_max_used_space_ratio=0,
        disk_space_clean_forcibly_ratio=0,
        flush_consume_queue_thorough_interval_ms=300,
    )
