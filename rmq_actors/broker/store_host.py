"""What a running broker can open again: the store, its services, and replication in its role."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable

import attrs

from rmq_actors.actors.restart import Restart
from rmq_actors.actors.services.channels import Broadcast, LatestReceiver, LatestSender
from rmq_actors.actors.services.supervisor import Supervisor
from rmq_actors.actors.system import ActorSystem
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.followed_master import HA_HALTS, HA_MASTERS, FollowedMaster
from rmq_actors.ha.group_transfer_service import GroupTransferService
from rmq_actors.ha.ha_client import HAClient, MakeSlave, make_ha_slave
from rmq_actors.ha.ha_service import HAService
from rmq_actors.ha.master_evidence import MasterQuestions
from rmq_actors.ha.master_record_lookup import MasterLookup
from rmq_actors.ha.tls import HaTls
from rmq_actors.ports.environment import Environment
from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend, try_sendmsg
from rmq_actors.protocols.following import Halt
from rmq_actors.protocols.group_transfer import GroupTransfer
from rmq_actors.store.dispatch.dispatch_while_room import NO_ROOM
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.term_file import TermFile
from rmq_actors.store.lifecycle.truncation import truncate_store
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import parse_address

_log = logging.getLogger(__name__)

#: A crashed client is restarted: nothing else depends on it, and a new one asks the log where to go on.
_HA_CLIENT = Restart()
#: The services of a life are not restarted: a failure goes up and ends the broker.
_LIFE = Restart(on=(), type="transient")


@attrs.frozen
class Machines:
    """The pure machines that a broker decides by; tests hand in wrong ones."""

    make_slave: MakeSlave = make_ha_slave
    make_group_transfer: type[GroupTransfer] = GroupTransfer


class ServiceStuck(RuntimeError):
    """A service of the store ignores its cancellation: its files cannot be given to another."""


@attrs.define(eq=False, repr=False)
class StoreHost:
    """Opens one store after the other, each with its services below a supervisor of its own: a *life*.

    `store`, `ha_service` and `ha_masters` belong to the present life, and a change of role stops them. So do not keep
    them; ask here each time.
    """

    config: BrokerConfig
    store: MessageStore
    #: The term of replication; it outlives each life.
    terms: TermFile
    _environment: Environment
    _tracer: Tracer
    _machines: Machines
    _tls: HaTls | None
    ha_service: HAService = attrs.field(init=False)
    #: Tells the HAClient where its master is, unless that is configured.
    ha_masters: LatestSender[str] = attrs.field(init=False)
    #: Which master the HAClient follows, on a slave.
    followed: FollowedMaster | None = attrs.field(default=None, init=False)
    #: Where the HAClient of each life tells that it has halted.
    ha_halts: Broadcast[Halt] = attrs.field(factory=HA_HALTS.open, init=False)
    #: Whether `store` was opened and not closed since.
    _is_open: bool = attrs.field(default=True, init=False)
    #: Counts the lives; it is part of their names, as the name of a life that has just ended is not free at once.
    life: int = attrs.field(default=0, init=False)
    #: Why no life takes puts; empty while they do.
    _fenced: str = attrs.field(default="", init=False)
    #: Parent of each life's services: started first, hence stopped last.
    _store_services: Supervisor | None = attrs.field(default=None, init=False)
    _life_services: Supervisor | None = attrs.field(default=None, init=False)
    _slave_services: Supervisor | None = attrs.field(default=None, init=False)
    _told: LatestReceiver[str] = attrs.field(init=False)
    #: The port that the system chose for haListenPort 0: slaves know it.
    _ha_port: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.ha_masters, self._told = HA_MASTERS.open()

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        environment: Environment,
        tracer: Tracer,
        machines: Machines,
        tls: HaTls | None = None,
    ) -> StoreHost:
        """Open and recover the store. Raises what `MessageStore.open` raises, and `ConfigFileDamaged` for the term."""
        store = await MessageStore.open(config.store, environment, tracer)
        try:
            terms = TermFile.load(environment.disk, tracer)
            if config.is_slave:
                await _give_up(terms)
            elif not terms.term.is_masters:
                await _promote_at_start(terms)
        except BaseException:
            store.close()
            raise
        return cls(config, store, terms, environment, tracer, machines, tls)

    def fence(self, reason: str) -> None:
        """Refuse puts from now on, in this life of the store and all others; an empty `reason` takes them again."""
        self._fenced = reason
        self._apply_fence()

    def _apply_fence(self) -> None:
        if self._fenced:
            self.store.running_flags.set(RunningFlag.FENCED, self._fenced)
        else:
            self.store.running_flags.clear(RunningFlag.FENCED)

    async def start(self, system: ActorSystem) -> None:
        """Start the store's services and the master's side of replication: slaves may follow this one in any role."""
        self.life += 1
        store, config, tracer = self.store, self.config, self._tracer
        if self._store_services is None:
            self._store_services = await system.supervisor("store", own_restart=_LIFE)
        services = self._life_services = await self._store_services.supervisor(f"{self.life}", own_restart=_LIFE)
        await store.start(services)
        group_transfer = GroupTransferService(
            self._machines.make_group_transfer(config.ha.acks_required, config.ha.acks_min),
            store.replicated,
            tracer,
        )
        ha_config = config.ha_config
        if self._ha_port is not None:
            ha_config = attrs.evolve(ha_config, ha_listen_port=self._ha_port)
        self.ha_service = HAService(ha_config, store, group_transfer, tracer, *self._socket_calls(), self._tls)
        await services.start(self.ha_service)
        self._ha_port = parse_address(self.ha_service.address)[1]

    async def start_slave(
        self,
        system: ActorSystem,
        lookup: MasterLookup | None,
        start_others: Callable[[Supervisor, FollowedMaster], Awaitable[None]] | None,
    ) -> None:
        """As a slave, follow the master from now on, and start what else a slave does. Otherwise do nothing."""
        self.followed = None
        if not self.config.is_slave:
            return
        services = self._slave_services = await system.supervisor(f"slave-{self.life}", own_restart=_LIFE)
        configured = self.config.ha.ha_master_address
        self.followed = FollowedMaster(configured, self._told if configured is None else None, self.ha_halts)
        make_client = functools.partial(
            HAClient,
            self.config.ha,
            self.followed,
            self.store,
            self._environment.entropy,
            self._tracer,
            self._machines.make_slave,
            None if lookup is None else MasterQuestions(lookup, self.terms, self.config.broker_name),
            *self._socket_calls(),
            self._tls,
        )
        await services.start_supervised("HAClient", make_client, restart=_HA_CLIENT)
        if start_others is not None:
            await start_others(services, self.followed)

    def _socket_calls(self) -> tuple[TrySend, Receive]:
        """The environment's own are for sockets of the system."""
        if self._tls is not None:
            return try_sendmsg, receive_into
        return self._environment.try_send, self._environment.receive

    def use(self, config: BrokerConfig) -> None:
        """Go on with these settings, none of which needs another store."""
        self.config = config

    async def stop(self) -> None:
        """Stop what a slave does, then the store in order: every waiting put is answered, everything is durable.

        Raises `ServiceStuck`; `OSError` if the disk does not take everything.
        """
        await self.stop_slave()
        services, self._life_services = self._life_services, None
        await _stop(services)
        await self.shut_down()

    async def stop_slave(self) -> None:
        """Stop what a slave does alone. Raises `ServiceStuck`."""
        services, self._slave_services = self._slave_services, None
        await _stop(services)

    async def truncate(self, end_offset: int, delay_offsets: DelayOffsets | None) -> None:
        """Cut the log of the store that `stop` has closed. Raises what `truncate_store` raises.

        Without `delay_offsets`, those that the store's file has are lowered: raises `ConfigFileDamaged` then, too.
        """
        if delay_offsets is None:
            delay_offsets = DelayOffsets.load(self._environment.disk)
        await truncate_store(self.config.store, self._environment, self._tracer, end_offset, delay_offsets)

    async def reopen(self, config: BrokerConfig, term: int | None = None) -> None:
        """Open the store that `stop` has closed, with these settings. Raises what `MessageStore.open` raises.

        A slave that becomes a master is promoted, to `term` at least. Persist the term before you serve anybody.
        """
        self.store = await MessageStore.open(config.store, self._environment, self._tracer)
        self._is_open = True
        self._apply_fence()
        if config.is_slave:
            await _give_up(self.terms)
        elif self.config.is_slave or term is not None:
            await self.terms.promote(term)
        self.config = config
        self.ha_masters, self._told = HA_MASTERS.open()

    async def shut_down(self) -> None:
        """End an orderly stop, once the services have stopped. Raises `OSError`."""
        if self._is_open:
            await self.store.shut_down()
            self.close()

    def close(self) -> None:
        """Close the files, however it ends. A second call does nothing."""
        self._is_open = False
        self.store.close()


async def _stop(services: Supervisor | None) -> None:
    if services is not None:
        await services.stop()
        stuck = [child.path for child in services.children if child.state == "stuck"]
        if stuck:
            raise ServiceStuck(f"{', '.join(stuck)} does not stop")


async def _promote_at_start(terms: TermFile) -> None:
    """Raises `OSError`. A store that knows no term starts on a full disk all the same, or it could not be cleaned.

    It stays in term 0, in which its word counts for no broker that knows a greater term.
    """
    try:
        await terms.promote()
    except OSError as error:
        if error.errno not in NO_ROOM or terms.term.number:
            raise
        _log.error("this master is in term 0 until it is started again, as the disk is full: %s", error)


async def _give_up(terms: TermFile) -> None:
    try:
        await terms.give_up()
    except OSError as error:
        # The slave starts all the same: at worst, a later start as a master goes on in the term that this broker has
        # led.
        _log.warning(
            "cannot record that this broker is not the master any more in term %d: %s", terms.term.number, error
        )
