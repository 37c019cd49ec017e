"""A scenario in which name servers alone tell slaves who is their master, and operators take brokers out of service.

Name servers die and come back with nothing, and roles change all the while. brokerPermission is set alone, with what
opens the store again, and while an exchange of roles is under way. Once all is quiet, routes are right.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Final

import attrs
import trio

from rmq_actors.embedding.brokers import exchange_roles
from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.clients import TOPIC_OF_ALL
from rmq_actors.testing.drawn_operator import DrawnOperator
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Routed
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.production import OPERATED, draw_production
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.events.run import NameServerTells

_OPERATIONS: Final = (
    *("exchange", "exchange", "exchange_by_hand", "fail_over", "stop_and_fail_over", "restart", "restart"),
    *("set_permission", "set_permission", "set_permission_and_reopen", "set_permission_and_reopen"),
    *("exchange_and_set_permission", "exchange_and_set_permission", "set_up_again", "reopen"),
)
#: What brokerPermission is set to, by what the operator's patience is.
_PERMISSIONS: Final = {0.0: 4, 0.3: 2, 2.0: 6}
_ALL: Final = 6
#: How long brokers need until all name servers have them. A broker leaves a slow name server alone for up to a period.
_REGISTERED_S: Final = 40.0
#: A change of what clients may do is told at once.
_TOLD_S: Final = 3.0
_PERM_BITS: Final = 6
#: When permissions are set, once an exchange has begun, one after the other.
_SET_AFTER_S: Final = (0.0, 0.005, 0.02, 0.05)
#: How long an exchange may take once all is well.
_PATIENCE_S: Final = 30.0
#: Producers ask for routes so often: they have left a broker then, and slaves have its tables.
_LEFT_S: Final = 30.0
#: Too little time for one.
_HASTE_S: Final = 0.1


@attrs.define(eq=False, repr=False)
class RoutesOperator(DrawnOperator):
    """Gives slaves their role, and no address of a master. Sets what clients may do with a broker."""

    #: How often a store was opened again for a setting.
    _reopened: int = attrs.field(default=0, init=False)

    async def _do_set_permission(self, operation: Operation) -> None:
        await self._update(operation.node, brokerPermission=self._permission(operation))

    async def _do_set_permission_and_reopen(self, operation: Operation) -> None:
        await self._update(operation.node, brokerPermission=self._permission(operation), **self._reopening())

    async def _do_exchange_and_set_permission(self, operation: Operation) -> None:
        """What clients may do with the master is set while its exchange begins, or is under way."""
        old = self._leading()
        if old is None or old == operation.node:
            return
        async with self._changing_roles, trio.open_nursery() as nursery:
            nursery.start_soon(self._tried, self._exchange_roles, operation)
            for number, after_s in enumerate(_SET_AFTER_S):
                await trio.sleep(after_s)
                await self._tried(partial(self._give_permission, old, (4, 2)[number % 2]), operation)

    async def _give_permission(self, name: str, permission: int, _: Operation) -> None:
        await self._update(name, brokerPermission=str(permission))

    @staticmethod
    def _permission(operation: Operation) -> str:
        return str(_PERMISSIONS.get(operation.patience_s, 4))

    def _reopening(self) -> dict[str, str]:
        """A setting that opens the store again, as it was not so before."""
        self._reopened += 1
        return {"syncFlushTimeout": str(3000 + self._reopened)}

    async def _make_slave(self, name: str, master: str) -> None:
        """A broker that was told an address in an exchange is told another one; others ask name servers.

        Nobody says which brokerId it has now: another slave may have the same.
        """
        config = self.brokers.broker(name).config
        if config.ha.ha_master_address is not None:
            await super()._make_slave(name, master)
        elif not config.is_slave:
            await self._update(name, brokerRole=BrokerRole.SLAVE.value)

    async def _have_role(self, name: str, master: str) -> None:
        config = self.brokers.broker(name).config
        is_told = config.ha.ha_master_address in (None, self.brokers.addresses(master).ha)
        if name == master or not config.is_slave or not is_told:
            await super()._have_role(name, master)

    # --- in the end -------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """See `DrawnOperator.settle`; then look at routes, take masters out of service and exchange roles."""
        await super().settle()
        await self.restart_unwriteable()
        await trio.sleep(_REGISTERED_S)
        self._look_at_routes()
        await self._exchange_in_haste()
        for sets_permission in (True, False, True):
            await self._exchange_in_the_end(sets_permission=sets_permission)
        await self._exchange_by_hand_in_the_end()
        for name in self.brokers.running:
            await self._update(name, brokerPermission=str(_ALL))
        await trio.sleep(_TOLD_S)
        self._look_at_routes()
        self.brokers.configure(self._leading() or self.brokers.master, self.brokers.names)

    async def _exchange_in_haste(self) -> None:
        """An exchange has too little time, and is taken back; what clients may do is set meanwhile."""
        old, *slaves = self._well()
        if not slaves:
            return
        new = slaves[-1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tried, lambda _: self._ask_exchange(old, new), Operation(0.0, new, "exchange"))
            for permission in (4, 2, 4):
                await trio.sleep(_HASTE_S / 4)
                await self._update(old, brokerPermission=str(permission))
        await trio.sleep(_TOLD_S)
        self._look_at_routes()

    async def _ask_exchange(self, old: str, new: str) -> None:
        address = self.brokers.addresses(new).remoting
        await self._asked(old, partial(exchange_roles, slave_addr=address, limit_s=_HASTE_S))

    def _well(self) -> list[str]:
        """The master, and the slaves that may become it."""
        master, brokers = self._leading() or self.brokers.master, self.brokers
        return [master, *(name for name in brokers.running if name != master and brokers.status(name).is_following)]

    async def _exchange_in_the_end(self, *, sets_permission: bool) -> None:
        """The master is taken out of service first, or is not, and back into it as a slave."""
        old, *slaves = self._well()
        if not slaves:
            return
        new = slaves[0]
        if sets_permission:
            await self._look_with(old, brokerPermission="4")
            await trio.sleep(_LEFT_S)
        await self._tried(self._do_exchange, Operation(0.0, new, "exchange", _PATIENCE_S))
        await trio.sleep(_TOLD_S)
        self._look_at_routes()
        await self._look_with(old, brokerPermission=str(_ALL), **self._reopening())

    async def _exchange_by_hand_in_the_end(self) -> None:
        """Nobody gives the old master a brokerId of its own; then the slave that may have the same is restarted."""
        _, *slaves = self._well()
        if len(slaves) < len(self.brokers.names) - 1:
            return
        await self._tried(self._do_exchange_by_hand, Operation(0.0, slaves[-1], "exchange_by_hand", _PATIENCE_S))
        await trio.sleep(_TOLD_S)
        self._look_at_routes()
        await self._tried(self._do_restart, Operation(0.0, slaves[0], "restart"))
        await trio.sleep(_LEFT_S)
        self._look_at_routes()

    async def _look_with(self, name: str, **properties: str) -> None:
        with contextlib.suppress(BrokerDown):
            await self._update(name, **properties)
            await trio.sleep(_TOLD_S)
            self._look_at_routes()

    def _look_at_routes(self) -> None:
        brokers = self.brokers
        assert brokers.name_servers is not None
        configs = {name: brokers.broker(name).config for name in brokers.running}
        for name_server, routes in brokers.name_servers.routes.items():
            addresses = routes.all_addresses()
            for name, config in configs.items():
                own, is_master = brokers.addresses(name).remoting, not config.is_slave
                ids = [str(number) for each in addresses for number, address in each.items() if address == own]
                at_its_id = {each.get(config.broker_id) for each in addresses}
                told = NameServerTells(
                    broker=name,
                    broker_id=config.broker_id,
                    ids=",".join(ids),
                    has_rival=any(
                        other != name
                        and each.broker_id == config.broker_id
                        and brokers.addresses(other).remoting in at_its_id
                        for other, each in configs.items()
                    ),
                    permission=config.broker_permission if is_master else 0,
                    told=routes.permission(TOPIC_OF_ALL) & _PERM_BITS if is_master else 0,
                )
                brokers.recorder.record(told, name_server)


def draw_routes(rng: random.Random, seed: int) -> Workload:
    """Production settings under a load that lasts, with name servers, and in half of the runs no change of topics."""
    workload = draw_production(rng, seed)
    return attrs.evolve(
        workload,
        fail_overs=0,
        puts=2 * workload.puts,
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        table_changes=rng.choice((0, 0, 6)),
        name_servers=rng.choice((1, 2, 2, 3)),
        rests_s=0.0,
    )


ROUTES = attrs.evolve(
    OPERATED,
    name="routes",
    description="name servers alone tell slaves their master, and are lost; brokers are taken out of service and back",
    workload=draw_routes,
    faults=FaultFamilies(
        fewest=0,
        most=3,
        any_link=0.5,
        all_slaves=0.1,
        operations=_OPERATIONS,
        operations_most=5,
    ),
    operator=RoutesOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Routed),
)
