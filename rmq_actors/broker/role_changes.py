"""Changes a broker's role while it runs (changeToMaster, changeToSlave), one change after the other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.ref import Request
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.broker.broker_configuration import reopens_store
from rmq_actors.broker.config import MASTER_ID, BrokerConfig
from rmq_actors.broker.store_host import StoreHost
from rmq_actors.protocols.term import Term, TermRefused
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)


class RoleChangeFailed(RuntimeError):
    """The broker has left its old role and cannot take the new one, so it stops. The cause says what went wrong."""


@attrs.frozen
class ChangeRole(Request[ValueError | OSError | None]):
    """Change to `config_of(present configuration)`; answered when that is done, or with why it cannot be done.

    `persist` gets the new configuration before anything is changed: nothing is changed if it raises, or if a
    promotion's term could not be written. `while_closed` is called while the store is closed. If it raises, that is the
    answer, and the store is opened again as it is.
    """

    config_of: Callable[[BrokerConfig], BrokerConfig]
    while_closed: Callable[[], Awaitable[object]] | None = None
    persist: Callable[[BrokerConfig], Awaitable[None]] | None = None
    #: The term that a promotion goes to; by default the one after the greatest that was seen.
    term: int | None = None


def config_in_role(
    config: BrokerConfig,
    role: BrokerRole,
    broker_id: int | None,
    ha_master_address: str | None,
    master_addr: str | None,
) -> BrokerConfig:
    """`config` in another role. Raises `ValueError` if there can be no such broker."""
    store = attrs.evolve(config.store, broker_role=role)
    if role is not BrokerRole.SLAVE:
        if (broker_id or MASTER_ID) != MASTER_ID or ha_master_address is not None or master_addr is not None:
            raise ValueError(f"broker {config.broker_name}: a master's brokerId is 0, and it follows nobody")
        return attrs.evolve(config, store=store, broker_id=MASTER_ID)
    if broker_id is None:
        broker_id = config.broker_id if config.broker_id != MASTER_ID else MASTER_ID + 1
    elif broker_id <= MASTER_ID:
        raise ValueError(f"broker {config.broker_name}: a slave's brokerId must be > 0, not {broker_id}")
    ha = config.ha if ha_master_address is None else attrs.evolve(config.ha, ha_master_address=ha_master_address)
    return attrs.evolve(config, store=store, ha=ha, broker_id=broker_id, master_addr=master_addr or config.master_addr)


def check_term(own: Term, config: BrokerConfig, asked: int | None) -> None:
    """Raise `TermRefused` if a broker with `config` cannot go to the term that is asked for, if one is."""
    if asked is None:
        return
    if config.is_slave:
        raise TermRefused(f"term {asked}: a slave does not choose its term, it takes its master's")
    own.check(asked)


@attrs.define(eq=False, repr=False)
class RoleChanges(Actor[ChangeRole]):
    """Stops what the old role does, opens the store again, and lets the broker go on in the new role.

    A failure is a crash and ends the broker: a broker must not be half a master.
    """

    _host: StoreHost
    #: Called before a promotion, once nothing else follows the master: takes the tables that this broker still lacks.
    _take_last_tables: Callable[[], Awaitable[None]]
    #: Called with the settings of the new role.
    _leave: Callable[[BrokerConfig], Awaitable[None]]
    #: Called with settings that need no other store: all that holds a copy of the settings takes them.
    _use: Callable[[BrokerConfig], Awaitable[None]]
    _go_on: Callable[[], Awaitable[None]]
    _tracer: Tracer

    async def handle(self, message: ChangeRole, context: Context[ChangeRole]) -> None:
        """Change the role, unless the broker has it already."""
        try:
            config = message.config_of(self._host.config)
            check_term(self._host.terms.term, config, message.term)
            if not config.is_slave and (self._host.config.is_slave or message.term is not None):
                self._host.terms.term.promoted(message.term)  # before anything is closed
                await self._host.terms.check_writable()
            if message.persist is not None:
                await message.persist(config)
        except (ValueError, OSError) as error:
            context.reply(message, error)
            return
        refused = None
        is_reopened = message.while_closed is not None or message.term is not None
        if not is_reopened and not reopens_store(self._host.config, config):
            await self._use(config)
        else:
            try:
                refused = await self._change(config, message)
            except NotSupervising:
                return  # the broker stops: what is open now ends in order with it, and nobody hears of a new role
        context.reply(message, refused)

    async def _change(self, config: BrokerConfig, message: ChangeRole) -> ValueError | OSError | None:
        old, new = self._host.config.store.broker_role.value, config.store.broker_role.value
        what = "opens its store again" if old == new else f"changes from {old} to {new}"
        _log.info("broker %s %s", config.broker_name, what)
        step, refused = "stop", None
        try:
            if self._host.config.is_slave and not config.is_slave:
                await self._host.stop_slave()
                await self._take_last_tables()
            await self._leave(config)
            await self._host.stop()
            if message.while_closed is not None:
                try:
                    await message.while_closed()
                except (ValueError, OSError) as error:
                    refused = error
            step = "open"
            await self._host.reopen(config, message.term)
            step = "start"
            await self._go_on()
        except NotSupervising:
            raise
        except Exception as error:
            self._trace(config, f"{step}_failed", str(error))
            raise RoleChangeFailed(f"broker {config.broker_name}: {old} to {new}: cannot {step}: {error}") from error
        self._trace(config, "changed" if old != new else "reopened", "" if refused is None else str(refused))
        followed = "nobody"
        if config.is_slave:
            followed = config.ha.ha_master_address or "the master that name servers name"
        what = "has opened its store again" if old == new else "has changed"
        _log.info(
            "broker %s %s: brokerRole %s, brokerId %d, it follows %s",
            config.broker_name,
            what,
            new,
            config.broker_id,
            followed,
        )
        return refused

    def _trace(self, config: BrokerConfig, status: str, detail: str) -> None:
        self._tracer.emit(
            BrokerRoleEvent(
                status=status,
                offset=self._host.store.commit_log.max_offset,
                role=config.store.broker_role.value,
                broker_id=config.broker_id,
                detail=detail[:200],
            )
        )
