"""What a broker with a listenPort has apart from its store: metadata, two servers, a client, and its registration."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.actors.services.channels import LatestReceiver, LatestSender
from rmq_actors.actors.services.supervisor import Supervisor
from rmq_actors.actors.system import ActorSystem
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from rmq_actors.broker.broker_protection_service import BrokerProtectionService
from rmq_actors.broker.broker_stats_manager import BrokerStatsManager
from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.offset_persist_service import OffsetPersistService
from rmq_actors.broker.processors.client_admin import ClientAdminProcessor
from rmq_actors.broker.processors.client_manage import ClientManageProcessor
from rmq_actors.broker.processors.consume_stats import ConsumeStatsProcessor
from rmq_actors.broker.processors.consumer_manage import ConsumerManageProcessor
from rmq_actors.broker.processors.end_transaction import EndTransactionProcessor
from rmq_actors.broker.processors.metadata_requests import MetadataProcessor
from rmq_actors.broker.processors.pull_message import PullMessageProcessor
from rmq_actors.broker.processors.query import QueryMessageProcessor
from rmq_actors.broker.processors.query_consume_queue import QueryConsumeQueueProcessor
from rmq_actors.broker.processors.reply_message import ReplyMessageProcessor
from rmq_actors.broker.processors.send_back import SendBackProcessor
from rmq_actors.broker.processors.send_message import SendMessageProcessor
from rmq_actors.broker.processors.send_rows import SendLane
from rmq_actors.broker.processors.topic_admin import TopicAdminProcessor
from rmq_actors.broker.pull_request_hold_service import HELD_PULLS_MAX, PullRequestHoldService
from rmq_actors.broker.registration_service import BrokerRegistrationService, FetchNameServers
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.broker.schedule_message_service import ScheduleMessageService
from rmq_actors.broker.slave_synchronize import MASTERS, SlaveSynchronize
from rmq_actors.broker.store_host import StoreHost
from rmq_actors.broker.topic_removal import TopicRemoval
from rmq_actors.broker.topics import TOPIC_CHANGES, TopicConfigManager
from rmq_actors.broker.transactional_message_check_service import TransactionalMessageCheckService
from rmq_actors.broker.transactional_message_service import TransactionalMessageService
from rmq_actors.ha.followed_master import FollowedMaster
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.environment import Environment
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.broker_stats import BrokerStats
from rmq_actors.protocols.plain_access import Permission
from rmq_actors.remoting.acl import AclServerRpcHook
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.remoting.server import RemotingServer, received_bytes_of
from rmq_actors.remoting.tls import Tls
from rmq_actors.settings.configure import ConfigurationError
from rmq_actors.store.files.term_file import TermFile
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmq_actors.remoting.plain_acl_file import AclFileWatchService


@attrs.frozen
class _AccessControl:
    """What keeps the accounts, and what checks requests by them; without aclEnable nothing."""

    files: AclFileWatchService | None = None
    hook: AclServerRpcHook | None = None

    @classmethod
    def of(cls, config: BrokerConfig, disk: Disk, tracer: Tracer) -> _AccessControl:
        """Load the accounts."""
        if not config.acl_enable:
            return cls()
        try:  # PyYAML is in an extra, and this alone needs it.
            from rmq_actors.remoting.plain_acl_file import AclFileWatchService  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise _missing_extra("aclEnable=true", error) from error

        files = AclFileWatchService.below(config.rocketmq_home, disk, tracer)
        files.load()
        return cls(files, AclServerRpcHook(lambda: files.rules, tracer))

    def register(
        self,
        clients: ClientRequests,
        broker_addr: Callable[[], str],
        wall_clock: WallClock,
        processors: ProcessorTable,
        pool: RequestPool,
    ) -> None:
        """Answer operators who look at the accounts, and change them; without aclEnable nobody does."""
        if self.files is not None:
            from rmq_actors.broker.processors.plain_access import PlainAccessProcessor  # noqa: PLC0415 - needs PyYAML

            PlainAccessProcessor(clients, self.files, broker_addr, wall_clock).register(processors, pool)

    def authorize(self, request: RemotingRequest, needed: Mapping[str, Permission]) -> None:
        """Raise `RpcRefused` unless the sender of a request has these permissions, too."""
        if self.hook is not None:
            self.hook.authorize(request.connection.remote_address, request.command, needed)


@attrs.define(eq=False, repr=False)
class BrokerRemoting:
    """Both servers share the processors; a request that has none is answered REQUEST_CODE_NOT_SUPPORTED.

    Longer than 300 lines, and with more than 20 fields, because everything that processors share, and every service
    beside them, is put together here.
    """

    config: BrokerConfig
    _environment: Environment
    _tracer: Tracer
    metadata: BrokerMetadata
    _topic_changes: LatestReceiver[DataVersion]
    processors: ProcessorTable
    client: RemotingClient
    remoting_server: RemotingServer
    #: On listenPort - 2, for clients that ask for the VIP channel: Java slaves do.
    fast_remoting_server: RemotingServer | None
    _hold_service: PullRequestHoldService
    _schedule: ScheduleMessageService
    _housekeeping: ClientHousekeepingService
    _pools: RequestPools
    _fetch_name_servers: FetchNameServers | None
    _access: _AccessControl
    _transaction_checks: TransactionalMessageCheckService = attrs.field(init=False)
    _stats: BrokerStatsManager = attrs.field(init=False)
    _protection: BrokerProtectionService = attrs.field(init=False)
    #: Once started, where name servers are configured.
    registration: BrokerRegistrationService | None = attrs.field(default=None, init=False)
    _store: MessageStore | None = attrs.field(default=None, init=False)
    #: "ip:port" that messages of clients are stored under; known once the broker listens.
    _store_host: str = attrs.field(default="", init=False)
    #: Both ends of `MASTERS`, of this role.
    _masters: tuple[LatestSender[str], LatestReceiver[str]] = attrs.field(factory=MASTERS.open, init=False)

    def __attrs_post_init__(self) -> None:
        MetadataProcessor(self.metadata, lambda: self._store).register(self.processors)
        QueryMessageProcessor(lambda: self._store, self._pools.query, self._access.authorize).register(self.processors)
        self._stats = BrokerStatsManager(
            lambda: self._store, lambda: self.config.broker_cluster_name, self._environment.wall_clock
        )
        clients = ClientRequests(
            self.metadata,
            lambda: self.config,
            lambda: self._store,
            lambda: self._store_host,
            self._stats,
            self._tracer,
        )
        self._protection = BrokerProtectionService(clients)
        pool, consumers = self._pools.table, self._housekeeping.consumers
        pulls = PullMessageProcessor(
            clients,
            consumers,
            self._hold_service,
            self._protection,
            pool,
            self._environment.wall_clock,
            self._tracer,
        )
        self._hold_service.answers_through(pulls.pull_again)
        pulls.register(self.processors)
        sends = SendMessageProcessor(clients, self._environment.entropy, pool, self._access.authorize, self._tracer)
        sends.register(self.processors)
        SendLane(clients, sends).register(self.processors)
        ReplyMessageProcessor(clients, self._housekeeping, sends, self._pools, self._environment.wall_clock).register(
            self.processors
        )
        transactions = TransactionalMessageService(clients, self._environment.wall_clock, self._tracer)
        EndTransactionProcessor(
            clients, transactions, sends.waiting, self._pools, self._access.authorize, self._tracer
        ).register(self.processors)
        self._transaction_checks = TransactionalMessageCheckService(
            clients, transactions, self._housekeeping.producers, self._environment.wall_clock, self._tracer
        )
        SendBackProcessor(
            clients, self._environment.entropy, pool, sends, self._access.authorize, self._tracer
        ).register(self.processors)
        ClientManageProcessor(clients, self._housekeeping, pool).register(self.processors)
        ConsumerManageProcessor(clients, self._housekeeping).register(self.processors)
        QueryConsumeQueueProcessor(clients, self._housekeeping).register(self.processors)
        removal = TopicRemoval(self.metadata, self._hold_service, self._protection.lags, self._tracer)
        TopicAdminProcessor(clients, self._pools, removal, lambda: self.registration).register(self.processors)
        self._access.register(
            clients, lambda: self.broker_addr, self._environment.wall_clock, self.processors, self._pools.table
        )
        for processor in (ConsumeStatsProcessor, ClientAdminProcessor):
            processor(clients, self._housekeeping, self._pools, self._environment.wall_clock).register(self.processors)

    @classmethod
    def load(
        cls,
        config: BrokerConfig,
        server: RemotingServerConfig,
        environment: Environment,
        tracer: Tracer,
        tls: Tls | None = None,
        home: Disk | None = None,
    ) -> BrokerRemoting:
        """Read the metadata and accounts, and open nothing yet. `home`: where rocketmqHome is, else beside the store.

        Raises `ConfigFileDamaged`; `PlainAclError` or `OSError` for the accounts; `ValueError` for no URL to ask.
        """
        _check_property_filter(config)
        _check_metrics(config)
        changes, topic_changes = TOPIC_CHANGES.open()
        metadata = BrokerMetadata.load(config, environment.disk, environment.wall_clock, changes)
        processors, tls = ProcessorTable(tracer), tls or Tls()
        access = _AccessControl.of(config, home or environment.disk, tracer)
        fast = config.fast_server
        hold_service = PullRequestHoldService()
        housekeeping = ClientHousekeepingService(hold_service)
        make_server = functools.partial(
            RemotingServer,
            processors=processors,
            tracer=tracer,
            hooks=[] if access.hook is None else [access.hook],
            listener=housekeeping,
            tls=tls.server,
            try_send=environment.try_send,
            receive=environment.receive,
            received=received_bytes_of(server),
        )
        return cls(
            config,
            environment,
            tracer,
            metadata,
            topic_changes,
            processors,
            RemotingClient(config.remoting_client, environment.entropy, tracer, ProcessorTable(tracer), tls=tls.client),
            make_server(server, name="RemotingServer"),
            None if fast is None else make_server(fast, name="FastRemotingServer"),
            hold_service,
            ScheduleMessageService(metadata.delay_offsets, environment.wall_clock, tracer),
            housekeeping,
            RequestPools.make(tracer),
            _address_server(config),
            access,
        )

    @property
    def topic_config_manager(self) -> TopicConfigManager:
        """The topics."""
        return self.metadata.topics

    @property
    def master_addr(self) -> str | None:
        """Where a slave's master answers: masterAddr, else what name servers told; None before they do."""
        if self.config.master_addr is not None or self.registration is None:
            return self.config.master_addr
        return self.registration.master.master_addr

    def use_store(self, store: MessageStore | None, *, is_slave: bool) -> None:
        """Answer from this store from now on; None: there is no store for a while.

        A master delivers delayed messages, so its delay offsets are moved into what the store's queues have.
        """
        self._store = store
        self._hold_service.use_store(store)
        self._transaction_checks.use_store(None if is_slave else store)
        if store is None or is_slave:
            self._schedule.use_store(None)
            return
        offsets = store.offsets
        self.metadata.delay_offsets.correct(
            lambda queue_id: (
                offsets.get_min_offset_in_queue(SCHEDULE_TOPIC, queue_id),
                offsets.get_max_offset_in_queue(SCHEDULE_TOPIC, queue_id),
            ),
            store.commit_log.max_offset,
        )
        self._schedule.use_store(store)

    async def begin_role(self, store: MessageStore, *, is_slave: bool) -> None:
        """End what an earlier life has begun to delete; then answer from this store, and change tables again.

        Before that, delay offsets are lowered if the log has lost what they count. Raises `OSError`.
        """
        await self.metadata.delay_offsets.log_ends_at(store.commit_log.max_offset)
        await self.metadata.fence("role", "")
        removal = TopicRemoval(self.metadata, self._hold_service, self._protection.lags, self._tracer)
        await removal.go_on(store, is_slave=is_slave)
        self.use_store(store, is_slave=is_slave)

    @property
    def open_store(self) -> MessageStore | None:
        """The store from which requests are answered; None while there is none."""
        return self._store

    @property
    def transactions(self) -> TransactionalMessageService:
        """Ends transactions, and counts them."""
        return self._transaction_checks.transactions

    def runtime_info(self) -> dict[str, str]:
        """What requests waited for, and what clients put and got, by RocketMQ's names."""
        return {
            **self._pools.runtime_info(),
            "sendThreadPoolQueueCapacity": str(self.config.send_thread_pool_queue_capacity),
            "pullThreadPoolQueueCapacity": str(HELD_PULLS_MAX),
            "startAcceptSendRequestTimeStamp": "0",
            **self._stats.runtime_info(),
        }

    @property
    def held_pulls(self) -> int:
        """How many pulls wait for a message."""
        return self._hold_service.held_count

    @property
    def stats(self) -> BrokerStats:
        """What clients put and got."""
        return self._stats.stats

    @property
    def connections(self) -> int:
        """How many connections of clients there are, of both ports."""
        servers = self.remoting_server, self.fast_remoting_server
        return sum(len(server.connections) for server in servers if server is not None)

    @property
    def producers(self) -> int:
        """How many producers there are; a client counts once for each of its groups."""
        return sum(1 for _ in self._housekeeping.producers.clients())

    @property
    def consumers(self) -> int:
        """How many consumers there are, counted likewise."""
        return sum(1 for _ in self._housekeeping.consumers.clients())

    def correct_consumer_offsets(self, store: MessageStore) -> None:
        """The store was opened again, and may have lost the end of its log: no consumer's offset is past that."""
        self.metadata.consumer_offsets.correct(store.offsets.get_max_offset_in_queue)

    @property
    def broker_addr(self) -> str:
        """Where clients find it, as it is registered: "host:port"."""
        return address_text((self.config.broker_ip1, self.remoting_server.port))

    async def start(self, system: ActorSystem, ha_server_addr: str, ha_masters: LatestSender[str]) -> None:
        """Listen, then register; a stop does it the other way round. Raises `OSError` if a port cannot be bound."""
        interval_s = self.config.flush_consumer_offset_interval_ms / 1000
        await system.start(OffsetPersistService(self.metadata, lambda: self._store, interval_s, self._tracer))
        if self._access.files is not None:
            await system.start(self._access.files)
        await self._pools.start(system)
        await system.start(self._hold_service)
        await system.start(self._schedule)
        await system.start(self._housekeeping)
        await system.start(self._transaction_checks)
        await system.start(self._stats)
        await system.start(self._protection)
        await system.start(self.remoting_server)
        self._store_host = address_text((await _numeric_host(self.config.broker_ip1), self.remoting_server.port))
        if self.fast_remoting_server is not None:
            await system.start(self.fast_remoting_server)
        await system.start(self.client)
        if self.config.uses_name_servers:
            self.client.listener = self.registration = self._make_registration(ha_server_addr, ha_masters)
            await system.start(self.registration)

    async def change_role(self, config: BrokerConfig, ha_server_addr: str, ha_masters: LatestSender[str]) -> None:
        """Go on with these settings, and be registered with their brokerId, role and brokerPermission from now on."""
        self.config = config
        self._masters = MASTERS.open()
        self._protection.lags.forget_all()
        if self.registration is not None:
            self.registration.change_role(
                self._identity(ha_server_addr), ha_masters, self._masters[0], is_slave=config.is_slave
            )
        # After that: RocketMQ's name servers do not take topics whose version they know from a slave.
        await self.metadata.use_config(config)

    async def start_slave_synchronize(self, terms: TermFile, system: Supervisor, followed: FollowedMaster) -> None:
        """Take over the metadata of the master that is followed from now on, as a slave."""
        told = self._masters[1] if self.config.master_addr is None else None
        await system.start(
            SlaveSynchronize(
                self.metadata,
                lambda: self._store,
                self.client,
                self.master_addr,
                told,
                lambda: followed.is_followed,
                terms,
                self.config.broker_name,
                self._environment.entropy,
                self._tracer,
            )
        )

    def _identity(self, ha_server_addr: str) -> BrokerIdentity:
        config = self.config
        return BrokerIdentity(
            config.broker_cluster_name, config.broker_name, config.broker_id, self.broker_addr, ha_server_addr
        )

    def _make_registration(self, ha_server_addr: str, ha_masters: LatestSender[str]) -> BrokerRegistrationService:
        return BrokerRegistrationService(
            self.config,
            BrokerOuterAPI(self._identity(ha_server_addr), self.client),
            self.topic_config_manager,
            self._topic_changes,
            ha_masters,
            self._masters[0],
            self._environment.entropy,
            self._tracer,
            self._fetch_name_servers,
        )


async def use_config(host: StoreHost, remoting: BrokerRemoting | None, config: BrokerConfig) -> None:
    """Go on with settings that need no other store and no other role: they count for the next request."""
    host.use(config)
    if remoting is not None:
        remoting.config = config
        await remoting.metadata.use_config(config)


def _check_property_filter(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` if consumers may subscribe with SQL92, and what compiles that is not installed."""
    if config.enable_property_filter:
        try:  # Lark is in an extra, and this alone needs it.
            importlib.import_module("rmq_actors.broker.sql92")
        except ModuleNotFoundError as error:
            raise _missing_extra("enablePropertyFilter=true", error) from error


def _check_metrics(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` if metrics are to be served, and what writes them is not installed."""
    if config.metrics_prom_exporter_port is not None:
        try:  # prometheus_client is in an extra, and this alone needs it.
            importlib.import_module("rmq_actors.broker.metrics_server")
        except ModuleNotFoundError as error:
            raise _missing_extra("metricsPromExporterPort", error) from error


def _address_server(config: BrokerConfig) -> FetchNameServers | None:
    """How name servers are found if they are not configured; None if they are, or nobody is to be asked."""
    if config.namesrv_addr is not None or not config.fetch_namesrv_addr_by_address_server:
        return None
    try:  # h11 is in an extra, and this alone needs it.
        from rmq_actors.remoting.address_server import AddressServer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing_extra("fetchNamesrvAddrByAddressServer=true", error) from error

    return AddressServer(config.rmq_address_server_domain, config.rmq_address_server_sub_group).fetch_name_servers


async def _numeric_host(host: str) -> str:
    """The address of brokerIP1: records hold numbers. Raises `OSError` naming it."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(error.errno, f"brokerIP1={host}: {error.strerror or error}") from error
    return str(found[0][4][0])


def _missing_extra(setting: str, error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"{setting} needs the extra [server]: pip install 'rmq-actors[server]' ({error})")
