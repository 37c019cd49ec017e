"""One broker (BrokerController): opens the store, starts the actors in order, stops them in reverse."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import AsyncIterator, Callable

import attrs

from rmq_actors.actors.messages.cell import AskFailed
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.restart import ESCALATE
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.broker.broker_configuration import BrokerFiles, Configuration, updated_config
from rmq_actors.broker.broker_remoting import BrokerRemoting
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.broker.exchange_file import ExchangeFile
from rmq_actors.broker.exchange_partner import ExchangePartner
from rmq_actors.broker.last_round import LastRound
from rmq_actors.broker.log_truncation_service import LogTruncationService
from rmq_actors.broker.master_records import MasterRecords
from rmq_actors.broker.peer_states import PeerStates
from rmq_actors.broker.processors.admin import AdminBrokerProcessor
from rmq_actors.broker.processors.exchange import ExchangeProcessor
from rmq_actors.broker.processors.replication_state import ReplicationStateProcessor
from rmq_actors.broker.role_changes import ChangeRole, RoleChangeFailed, RoleChanges, check_term, config_in_role
from rmq_actors.broker.role_exchange import RoleExchange, fence_reason
from rmq_actors.broker.store_host import Machines, StoreHost
from rmq_actors.ha.ha_client import HA_HALTS, FollowedMaster, Halt, NotHalted
from rmq_actors.ha.ha_service import HAService
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.evidence import Doubt, Own, doubt_in_difference
from rmq_actors.protocols.term import Term
from rmq_actors.remoting.tls import Tls
from rmq_actors.settings.configure import Properties, to_properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.lifecycle.truncation import TruncationRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut, PutResult
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text, parse_address
from rmq_actors.wire.record import Message

_log = logging.getLogger(__name__)

#: A change of role that is under way ends before the broker does. A start reads no more than what is not checkpointed.
_CHANGE_BUDGET_S = 60.0


class MasterReplaced(TruncationRefused):
    """The slave has halted on the word of a master that is none any more, or of an old term."""


@attrs.define(eq=False, repr=False)
class BrokerController:
    """A running broker. A change of its role renews `config`, `store` and `ha_service`: ask for them each time."""

    _host: StoreHost
    system: ActorSystem
    #: None without a listenPort.
    remoting: BrokerRemoting | None
    environment: Environment
    configuration: Configuration
    #: What a master was doing that exchanged roles when it died.
    _exchange_file: ExchangeFile
    #: Without a listenPort there is none.
    exchange: RoleExchange | None = attrs.field(default=None, init=False)
    #: How many commands that set the role are not done yet.
    roles_being_set: int = attrs.field(default=0, init=False)
    _role_changes: ActorRef[ChangeRole] = attrs.field(init=False)

    @property
    def config(self) -> BrokerConfig:
        """The settings, with the role that it has now."""
        return self._host.config

    @property
    def store(self) -> MessageStore:
        """The store; during a change of role still the one before, which refuses puts."""
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
        """See `MessageStore.put_message`."""
        return await self.store.put_message(message)

    def async_put_message(self, message: Message) -> PendingPut:
        """See `MessageStore.async_put_message`."""
        return self.store.async_put_message(message)

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

        A slave follows `ha_master_address`, and takes metadata from `master_addr`; both stay as they are configured
        unless told, and what is not configured is told by name servers. Its brokerId stays too; a former master's is 1.
        Changes come one after the other. One to what the broker is already does nothing. One that has begun is
        finished, whatever becomes of the caller. A promotion goes to the term after the greatest that the broker has
        seen, or to `term`, which must be greater: then a master goes to it, too.

        Raises `ValueError` when there can be no such broker, and `OSError` when its disk takes no new term; it goes on
        as it was. Raises `RoleChangeFailed` when the change fails half-way, which stops the broker, or when that stops.
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
        """While an operator has this broker be `config`, no exchange of roles is under way. Raises `TermRefused`.

        To be asked with what can be: a command that is refused gives nothing up.
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
        """As `update_config`, for an exchange of roles. `config_of` looks at what is so when the change begins.

        Raises `ValueError` and nothing has changed, `OSError` and the file may be the new one, `RoleChangeFailed`.
        """
        persist = functools.partial(self.configuration.persist, properties.values)
        change = config_of or (lambda config: updated_config(config, properties))
        await self._ask(ChangeRole(change, persist=persist, term=term))

    async def lead(self, term: int) -> None:
        """As a master go on at `term`, or at a later one. Raises `OSError`."""
        await self._host.terms.promote(term)

    async def fence(self, reason: str) -> None:
        """Refuse puts, and changes of topics and groups, from now on; an empty `reason` takes them again.

        When it returns both stay as they are. It outlives every opening of the store, and no restart.
        """
        self._host.fence(reason)
        if self.remoting is not None:
            await self.remoting.metadata.fence(reason)

    @property
    def life(self) -> int:
        """Another one each time that the store is opened."""
        return self._host.life

    async def update_config(self, properties: Properties, *, term: int | None = None) -> list[str]:
        """Take new settings by RocketMQ's keys, all or none of them, keep them in the file; return those that changed.

        `term`: see `change_role`.

        What does not take effect at once has the store opened again, as a change of role has. Raises `ForbiddenKey`,
        `ConfigurationError`, `OSError` of the file: the broker goes on as it was. Raises `RoleChangeFailed`.
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
                self.followed_master.follow_again()  # one that has halted does so again, and is cut
        old, new = to_properties(before[0], BROKER_KEYS), to_properties(self.config, BROKER_KEYS)
        return [key for key in properties.values if old.get(key) != new.get(key)]

    async def truncate_log(self) -> None:
        """Cut the log of a slave that has halted where its master's parts from it, and follow again (by command).

        What is cut is kept in `cut/`. The store is closed for that, as for a change of role. Raises
        `TruncationRefused` where it is not known where the two part, or the master is none any more; `OSError`, and
        the log may be as it was, or cut; `RoleChangeFailed`.
        """
        followed = self._host.followed
        halted = None if followed is None else followed.halted
        end_offset = None if halted is None else halted.common_end
        if end_offset is None:
            if followed is None:
                raise TruncationRefused("this broker is a master, which follows nobody: there is nothing to cut")
            if halted is None:
                raise TruncationRefused("this slave has not halted: there is nothing to cut")
            raise TruncationRefused(f"up to where master {halted.master} has the same log is not known: nothing is cut")
        if halted is not None and (doubt := await self._doubt_in_master()):
            raise MasterReplaced(f"{halted.master} was the master when this slave halted; now {doubt.detail}")

        def as_it_is(config: BrokerConfig) -> BrokerConfig:
            if followed is not self._host.followed or followed is None or followed.halted is not halted:
                raise TruncationRefused("meanwhile the broker has gone on")
            return config

        await self._ask(ChangeRole(as_it_is, functools.partial(self._host.truncate, end_offset)))

    async def _doubt_in_master(self) -> Doubt | None:
        """Why the word of the slave's master does not count now. One that cannot be asked now was asked when it did."""
        address = None if self.remoting is None else self.remoting.master_addr
        if self.remoting is None or address is None:
            return None
        try:
            peer = await PeerStates(self.remoting.client).ask(address)
        except LookupFailed:
            return None
        return doubt_in_difference(Own(self.term, self.config.broker_name), peer, peer)

    def follow_again(self) -> Halt:
        """Have a slave that has halted ask its master again, and follow it if that ends well (by command).

        Why it had halted. Raises `NotHalted`.
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
            remoting.use_store(host.store, is_slave=host.config.is_slave)
            await remoting.start(self.system, self.ha_server_addr, host.ha_masters)
        last_round = LastRound(host, remoting, tracer)
        self._role_changes = await self.system.spawn(
            "RoleChanges",
            lambda: RoleChanges(host, last_round.take, self._leave_role, self._take_role, tracer),
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
        host = self._host
        if host.ha_halts is None:
            host.ha_halts, halts = HA_HALTS.open()
            if host.followed is not None:
                host.followed.halts = host.ha_halts
            await self.system.start(LogTruncationService(halts, self._truncate_if_told))

    async def _truncate_if_told(self) -> None:
        if self.config.ha.ha_truncate_on_divergence:
            try:
                await self.truncate_log()
            except MasterReplaced as error:
                _log.warning("nothing is cut: %s", error)
                if self.followed_master is not None:
                    self.followed_master.follow_again()

    def _leave_role(self) -> None:
        # Before the HA port closes: what came then would be confirmed, and be on no slave.
        self._host.store.running_flags.set(RunningFlag.NOT_WRITEABLE, "the broker changes its role")
        if self.remoting is not None:
            self.remoting.use_store(None, is_slave=self.config.is_slave)

    async def _take_role(self) -> None:
        """Go on with the store that was opened again; name servers are told at once."""
        host, remoting = self._host, self.remoting
        await host.start(self.system)
        if remoting is not None:
            remoting.use_store(host.store, is_slave=host.config.is_slave)
            remoting.correct_consumer_offsets(host.store)
            remoting.change_role(host.config, self.ha_server_addr, host.ha_masters)
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
        """Where slaves find it, as it is registered."""
        _, port = parse_address(self.ha_address)
        return address_text((self.config.broker_ip2, port))


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
    Raises `StoreLayoutError`, `DamagedLog`, `ConfigFileDamaged` or `OSError` before the block when it cannot start:
    of an address that is taken it names host and port.
    """
    host = await StoreHost.open(config, environment, tracer, machines or Machines())
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
            # Not within the system: there it would come out as a group of exceptions.
            raise cannot_start
        await host.shut_down()
