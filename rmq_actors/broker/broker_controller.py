"""One broker (BrokerController): opens the store, starts the actors in order, stops them in reverse."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator

import attrs

from rmq_actors.actors.restart import Restart
from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.group_transfer_service import GroupTransferService
from rmq_actors.ha.ha_client import HAClient, MakeSlave, make_ha_slave
from rmq_actors.ha.ha_service import HAService
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.group_transfer import GroupTransfer
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.message_puts import PendingPut, PutResult
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import Message

#: Nothing else of a slave depends on its client, and a fresh one asks the log where to go on.
_HA_CLIENT = Restart()


@attrs.frozen
class Machines:
    """The pure machines that a broker decides by; tests hand in wrong ones."""

    make_slave: MakeSlave = make_ha_slave
    make_group_transfer: type[GroupTransfer] = GroupTransfer


@attrs.define(eq=False)
class BrokerController:
    """A running broker."""

    config: BrokerConfig
    store: MessageStore
    ha_service: HAService
    system: ActorSystem

    async def put_message(self, message: Message) -> PutResult:
        """See `MessageStore.put_message`."""
        return await self.store.put_message(message)

    def async_put_message(self, message: Message) -> PendingPut:
        """See `MessageStore.async_put_message`."""
        return self.store.async_put_message(message)

    @property
    def ha_address(self) -> str:
        """Where slaves are served, as "host:port"."""
        return self.ha_service.address


@contextlib.asynccontextmanager
async def open_broker(
    config: BrokerConfig, environment: Environment, tracer: Tracer, *, machines: Machines | None = None
) -> AsyncIterator[BrokerController]:
    """A running broker for the length of a block; on a normal end it stops in order and everything is on the disk.

    Raises `StoreLayoutError`, `DamagedLog` or `OSError` before the block when it cannot start.
    """
    machines = machines or Machines()
    store = await MessageStore.open(config.store, environment, tracer)
    with contextlib.closing(store):
        async with open_actor_system(config.broker_name, tracer, entropy=environment.entropy) as system:
            await store.start(system)
            group_transfer = GroupTransferService(
                machines.make_group_transfer(config.ha.acks_required, config.ha.acks_min),
                store.replication_states,
                tracer,
            )
            await system.start(group_transfer)
            ha_service = HAService(config.ha, store, group_transfer.events, tracer)
            await system.start(ha_service)
            if config.store.broker_role is BrokerRole.SLAVE and config.ha.ha_master_address is not None:
                make_client = functools.partial(
                    HAClient,
                    config.ha,
                    config.ha.ha_master_address,
                    store,
                    environment.entropy,
                    tracer,
                    machines.make_slave,
                )
                await system.start_supervised("HAClient", make_client, restart=_HA_CLIENT)
            yield BrokerController(config, store, ha_service, system)
        await store.shut_down()
