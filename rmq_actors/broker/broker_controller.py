"""One broker (BrokerController): opens the store, starts the actors in order, stops them in reverse."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable

import attrs

from rmq_actors.actors.messages.cell import AskFailed
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.restart import ESCALATE
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.broker.broker_configuration import BrokerFiles, Configuration, updated_config
from rmq_actors.broker.broker_remoting import BrokerRemoting, use_config
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.broker.exchange_partner import ExchangePartner
from rmq_actors.broker.ha_tls import BrokerTls
from rmq_actors.broker.last_round import LastRound
from rmq_actors.broker.log_truncation_service import LogTruncationService, MasterReplaced
from rmq_actors.broker.master_records import MasterRecords
from rmq_actors.broker.peer_states import PeerStates
from rmq_actors.broker.processors.admin import AdminBrokerProcessor
from rmq_actors.broker.processors.exchange import ExchangeProcessor
from rmq_actors.broker.processors.replication_state import ReplicationStateProcessor
from rmq_actors.broker.role_changes import ChangeRole, RoleChangeFailed, RoleChanges, check_term, config_in_role
from rmq_actors.broker.role_exchange import RoleExchange, fence_reason
from rmq_actors.broker.store_host import Machines, StoreHost
from rmq_actors.ha.followed_master import FollowedMaster, NotHalted
from rmq_actors.ha.ha_service import HAService
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.evidence import Doubt, Own, doubt_in_difference
from rmq_actors.protocols.following import Halt
from rmq_actors.protocols.term import Term
from rmq_actors.remoting.tls import Tls
from rmq_actors.settings.configure import Properties, to_properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.exchange_file import ExchangeFile
from rmq_actors.store.lifecycle.truncation import TruncationRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut, PutResult
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text, parse_address
from rmq_actors.wire.record import Message

#: How long a stop waits for a change of role that is under way. Its start reads only what is not checkpointed.
_CHANGE_BUDGET_S = 60.0


@attrs.define(eq=False, repr=False)
class BrokerController:
    """A running broker. A change of its role renews `config`, `store` and `ha_service`: ask for them each time."""

    _host: StoreHost
    system: ActorSystem
    #: None without a listenPort.
    remoting: BrokerRemoting | None
    environment: Environment
    configuration: Configuration
    #: Which exchange of roles this broker was conducting when it died.
    _exchange_file: ExchangeFile
    #: Without a listenPort there is none.
    exchange: RoleExchange | None = attrs.field(default=None, init=False)
    #: How many commands that set the role are not done yet.
    roles_being_set: int = attrs.field(default=0, init=False)
    _role_changes: ActorRef[ChangeRole] = attrs.field(init=False)
    #: Whether LogTruncationService was started.
    _watches_divergence: bool = attrs.field(default=False, init=False)

    @property
    def config(self) -> BrokerConfig:
        """The settings, with the role that it has now."""
        return self._host.config

    @property
    def store(self) -> MessageStore:
        """The store. During a change of role it is still the old one, which refuses puts."""
        return self._host.store

    @property
    def ha_service(self) -> HAService:
        """What serves the log to slaves, in any role."""
        return self._host.ha_service

    @property
    def term(self) -> Term:
        """The greatest term of replication that it has seen, and whether it was promoted to it."""
        return self._host.terms.term

    @property
    def followed_master(self) -> FollowedMaster | None:
        """Which master a slave follows, or why it does not."""
        return self._host.followed

    @property
    def ha_address(self) -> str:
        """Where slaves are served, as "host:port"."""
        return self.ha_service.address

    async def put_message(self, message: Message) -> PutResult:
        """Put a message into the store that is open now, and wait for what the configuration promises. A checkpoint.

        A slave refuses it (SERVICE_NOT_AVAILABLE), and so does a broker that changes its role.
        """
        return await self.store.puts.put_message(message)

    def async_put_message(self, message: Message) -> PendingPut:
        """Put a message without waiting for its answer; many may be in flight."""
        return self.store.puts.async_put_message(message)

    async def change_role(
        self,
        role: BrokerRole,
        *,
        broker_id: int | None = None,
        ha_master_address: str | None = None,
        master_addr: str | None = None,
        term: int | None = None,
    ) -> None:
        """Have another role from now on (changeToMaster, changeToSlave); return when the broker is at work in it.

        A slave follows `ha_master_address` and takes metadata from `master_addr`. Both stay as configured unless they
        are given here; name servers tell what is not configured. Its brokerId stays too; a former master's becomes 1.
        Changes are made one after the other. A change to the present role does nothing. A change that has begun is
        finished even if the caller is cancelled. A promotion goes to the term after the greatest that the broker has
        seen, or to `term`, which must be greater; with `term` a master is promoted again.

        Raises `ValueError` if there can be no such broker, and `OSError` if its disk takes no new term: then the broker
        goes on as it was. Raises `RoleChangeFailed` if the change fails half-way, which stops the broker, or if the
        broker stops meanwhile.
        """
        change = functools.partial(
            config_in_role,
            role=role,
            broker_id=broker_id,
            ha_master_address=ha_master_address,
            master_addr=master_addr,
        )
        async with self._setting_role(change(self.config), term):
            await self._ask(ChangeRole(change, term=term))

    @contextlib.asynccontextmanager
    async def _setting_role(self, config: BrokerConfig, term: int | None) -> AsyncIterator[None]:
        """No exchange of roles is under way while an operator gives this broker a role. Raises `TermRefused`.

        Call it only with a possible `config`: a command that is refused must not give up an exchange.
        """
        check_term(self.term, config, term)
        self.roles_being_set += 1
        try:
            if self.exchange is not None:
                await self.exchange.overrule(by_slave=config.is_slave)
            yield
        finally:
            self.roles_being_set -= 1

    async def set_role(
        self,
        properties: Properties,
        config_of: Callable[[BrokerConfig], BrokerConfig] | None = None,
        *,
        term: int | None = None,
    ) -> None:
        """Like `update_config`, for an exchange of roles. `config_of` sees the settings as the change begins.

        Raises `ValueError` (nothing has changed), `OSError` (the file may be the new one), `RoleChangeFailed`.
        """
        persist = functools.partial(self.configuration.persist, properties.values)
        change = config_of or (lambda config: updated_config(config, properties))
        await self._ask(ChangeRole(change, persist=persist, term=term))

    async def lead(self, term: int) -> None:
        """Lead `term`, or a later one, as a master that stays the master. Raises `OSError`."""
        await self._host.terms.promote(term)

    async def fence(self, reason: str) -> None:
        """Refuse puts, and changes of topics and groups, from now on; an empty `reason` takes them again.

        Once it returns, the log and the tables stay as they are. It survives each opening of the store, but no restart.
        """
        self._host.fence(reason)
        if self.remoting is not None:
            await self.remoting.metadata.fence("exchange", reason, self.config)

    @property
    def life(self) -> int:
        """A number that is another one each time that the store is opened."""
        return self._host.life

    async def update_config(self, properties: Properties, *, term: int | None = None) -> list[str]:
        """Take new settings by RocketMQ's keys, all or none, and keep them in the file; return the keys that changed.

        `term`: see `change_role`.

        If a setting cannot take effect at once, the store is opened again, as for a change of role. Raises
        `ForbiddenKey`, `ConfigurationError`, `OSError` of the file: the broker goes on as it was. Raises
        `RoleChangeFailed`.
        """
        before: list[BrokerConfig] = []

        def config_of(config: BrokerConfig) -> BrokerConfig:
            before.append(config)
            return updated_config(config, properties)

        persist = functools.partial(self.configuration.persist, properties.values)
        async with contextlib.AsyncExitStack() as setting:
            if "brokerRole" in properties.values:
                await setting.enter_async_context(self._setting_role(updated_config(self.config, properties), term))
            await self._ask(ChangeRole(config_of, persist=persist, term=term))
        if self.config.ha.ha_truncate_on_divergence:
            try:
                await self._watch_divergence()
            except NotSupervising as error:
                raise RoleChangeFailed(f"the broker stops: {error}") from error
            if self.followed_master is not None:
                self.followed_master.follow_again()  # a slave that has halted halts again, and then its log is cut
        old, new = to_properties(before[0], BROKER_KEYS), to_properties(self.config, BROKER_KEYS)
        return [key for key in properties.values if old.get(key) != new.get(key)]

    async def truncate_log(self) -> None:
        """Cut the log of a halted slave where it diverges from its master's, and follow again (by command).

        What is cut is kept in `cut/`. The store is closed for that, as for a change of role. Raises `TruncationRefused`
        if it is not known where the logs diverge, or if the master is not the master any more; `OSError`, after which
        the log may be cut or not; `RoleChangeFailed`.
        """
        followed = self._host.followed
        if followed is None:
            raise TruncationRefused("this broker is a master, which follows nobody: there is nothing to cut")
        halted = followed.halted
        if halted is None:
            raise TruncationRefused("this slave has not halted: there is nothing to cut")
        if halted.common_end is None:
            raise TruncationRefused(
                f"it is not known up to where master {halted.master} has the same log: nothing is cut"
            )
        if doubt := await self._doubt_in_master():
            raise MasterReplaced(f"{halted.master} was the master when this slave halted; now {doubt.detail}")

        def as_it_is(config: BrokerConfig) -> BrokerConfig:
            if followed is not self._host.followed or followed.halted is not halted:
                raise TruncationRefused("the broker has changed meanwhile")
            return config

        offsets = None if self.remoting is None else self.remoting.metadata.delay_offsets
        await self._ask(ChangeRole(as_it_is, functools.partial(self._host.truncate, halted.common_end, offsets)))

    async def _doubt_in_master(self) -> Doubt | None:
        """Why the master's word does not count now. If it does not answer, what it said at the halt counts."""
        address = None if self.remoting is None else self.remoting.master_addr
        if self.remoting is None or address is None:
            return None
        with contextlib.suppress(LookupFailed):
            peer = await PeerStates(self.remoting.client).ask(address)
            return doubt_in_difference(Own(self.term, self.config.broker_name), peer, peer)
        return None

    def follow_again(self) -> Halt:
        """Have a slave that has halted ask its master again, and follow it if that ends well (by command).

        Returns why it had halted. Raises `NotHalted`.
        """
        followed = self._host.followed
        if followed is None:
            raise NotHalted("this broker is a master, which follows nobody")
        if followed.halted is None:
            raise NotHalted("this slave has not halted: it follows its master, or tries to")
        followed.follow_again()
        return followed.halted

    async def _ask(self, change: ChangeRole) -> None:
        try:
            refused = await self._role_changes.ask(change, math.inf)
        except AskFailed as error:
            cause = error.__cause__ or error
            raise RoleChangeFailed(f"the broker stops: {cause}") from cause
        if refused is not None:
            raise refused

    async def start(self, tracer: Tracer) -> None:
        """Start everything, once. Raises `OSError` if a port cannot be bound."""
        note = self._exchange_file.note
        if note is not None:
            await self.fence(fence_reason(note.partner.address))
        host, remoting = self._host, self.remoting
        await host.start(self.system)
        if remoting is not None:
            await remoting.begin_role(host.store, is_slave=host.config.is_slave)
            await remoting.start(self.system, self.ha_server_addr, host.ha_masters)
        last_round, use = LastRound(host, remoting, tracer), functools.partial(use_config, host, remoting)
        self._role_changes = await self.system.spawn(
            "RoleChanges",
            lambda: RoleChanges(host, last_round.take, self._leave_role, use, self._take_role, tracer),
            restart=ESCALATE,
            stop_budget_s=_CHANGE_BUDGET_S,
        )
        if remoting is not None:
            ReplicationStateProcessor(self).register(remoting.processors)
            self.exchange = RoleExchange(self, self._exchange_file, tracer)
            admin = AdminBrokerProcessor(self, tracer)
            await admin.start(remoting.processors, self.system)
            partner = ExchangePartner(self, tracer)
            ExchangeProcessor(self.exchange, partner).register(remoting.processors, admin.pool)
        if host.config.ha.ha_truncate_on_divergence:
            await self._watch_divergence()
        await self._start_slave()
        if self.exchange is not None:
            await self.system.start(self.exchange)

    async def _watch_divergence(self) -> None:
        """Cut the log at each divergence from now on, while haTruncateOnDivergence says so."""
        if not self._watches_divergence:
            self._watches_divergence = True
            await self.system.start(LogTruncationService(self._host, self.truncate_log))

    async def _leave_role(self, config: BrokerConfig) -> None:
        # Before the HA port closes: a put that came after that would be confirmed without being on a slave.
        self._host.store.running_flags.set(RunningFlag.NOT_WRITEABLE, "the broker changes its role")
        if self.remoting is None:
            return
        self.remoting.use_store(None, is_slave=self.config.is_slave)
        # A change that is under way ends first: it may need the store, and whoever learns of the new role takes the
        # tables as they are then.
        await self.remoting.metadata.fence("role", "the broker changes its role")

    async def _take_role(self) -> None:
        """Go on with the store that was opened again; name servers are told at once."""
        host, remoting = self._host, self.remoting
        await host.start(self.system)
        if remoting is not None:
            await remoting.begin_role(host.store, is_slave=host.config.is_slave)
            remoting.correct_consumer_offsets(host.store)
            await remoting.change_role(host.config, self.ha_server_addr, host.ha_masters)
        await self._start_slave()

    async def _start_slave(self) -> None:
        remoting, config = self.remoting, self.config
        if remoting is None:
            await self._host.start_slave(self.system, None, None)
        else:
            lookup = None
            if config.master_addr is not None or config.uses_name_servers:
                lookup = MasterRecords(remoting.client, lambda: remoting.master_addr)
            start_others = functools.partial(remoting.start_slave_synchronize, self._host.terms)
            await self._host.start_slave(self.system, lookup, start_others)

    @property
    def ha_server_addr(self) -> str:
        """Where slaves find its HA port, as name servers are told."""
        return address_text((self.config.broker_ip2, parse_address(self.ha_address)[1]))


@contextlib.asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    environment: Environment,
    tracer: Tracer,
    *,
    machines: Machines | None = None,
    tls: Tls | None = None,
    files: BrokerFiles | None = None,
) -> AsyncIterator[BrokerController]:
    """A running broker for the length of a block; on a normal end it stops in order and everything is on the disk.

    Without `files` rocketmqHome is on the store's disk, and no file is written when a request changes settings.
    Raises `StoreLayoutError`, `DamagedLog`, `ConfigFileDamaged`, `TlsConfigError` or `OSError` before the block when it
    cannot start; if an address is taken, the error names host and port.
    """
    ha_tls = BrokerTls.of(tls) if config.ha.ha_tls_enable else None
    host = await StoreHost.open(config, environment, tracer, machines or Machines(), ha_tls)
    with contextlib.closing(host):
        remoting, exchange_file = None, ExchangeFile.load(environment.disk)
        if config.remoting is not None:
            home = environment.disk if files is None else files.home
            remoting = BrokerRemoting.load(config, config.remoting, environment, tracer, tls, home)
        cannot_start: OSError | None = None
        async with open_actor_system(config.broker_name, tracer, entropy=environment.entropy) as system:
            configuration = Configuration(environment.wall_clock, files)
            broker = BrokerController(host, system, remoting, environment, configuration, exchange_file)
            try:
                await broker.start(tracer)
            except OSError as error:
                cannot_start = error
            else:
                yield broker
        if cannot_start is not None:
            # Raised here, as it would leave the system in a group of exceptions.
            raise cannot_start
        await host.shut_down()
