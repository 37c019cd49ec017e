"""A scenario whose operator exchanges roles, and makes mistakes; what a broker has to write down just then fails.

A command comes that cannot be done, or a second one while the first is under way; settings, notes and terms cannot be
written; a broker stops or dies at a step of an exchange. A slave that halts is told what to do at once.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs
import trio

from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.races import RACES, RacingOperator

EVENTS: Final = (
    *("broker.exchange",) * 2,
    *("broker.exchange_partner",) * 4,
    *("operator.role",) * 3,
    *("broker.role", "store.term", "ha.client.halt"),
)
_OPERATIONS: Final = (
    "exchange",
    "exchange",
    "exchange",
    "exchange",
    "exchange_twice",
    "exchange_by_hand",
    "exchange_by_hand",
    "set_role_wrongly",
    "set_role_wrongly",
    "set_role_and_exchange",
    "exchange_and_set_role",
    "fail_over",
    "restart",
    "truncate",
    "follow_again",
    "follow_again",
)
#: What of a disk fails: what brokers write as they exchange their roles, and what they look at before.
DISK_ERRORS: Final = (
    *(("write", "conf/"), ("write", "conf/"), ("sync", "conf/"), ("rename", "conf/"), ("rename", "conf/")),
    *(("open", "conf/"), ("", "conf/"), ("sync_directory", "conf")),
    *(("write", "roleExchange"), ("sync", "roleExchange"), ("remove", "roleExchange")),
    *(("open", "replicationTerm"), ("write", "replicationTerm")),
)
#: When an operation begins: many wait for an exchange, and some for what comes in every run.
_OPERATION_EVENTS: Final = (*EVENTS, "log.append", "log.append", "put.begin", "ha.client.report")
#: How many exchanges are planned, and the pause before each.
_PLANNED: Final = 5
_PAUSE_S: Final = 1.2
_PATIENCE_S: Final = 5.0
#: How long the operator looks for a slave that has halted, at least.
_WATCHES_S: Final = 5.0
#: How long after one command the other comes, by the operator's patience.
_SECOND_AFTER: Final = 1 / 100


@attrs.define(eq=False, repr=False)
class ExchangingOperator(RacingOperator):
    """Exchanges roles now and then. Gives commands that are refused, too, and looks for the slave that has halted."""

    async def act(self) -> None:
        """Exchange the roles with one slave after the other."""
        for number in range(_PLANNED):
            await trio.sleep(_PAUSE_S)
            master = self._leading()
            slaves = [name for name in self.brokers.names if name != master]
            await self._tried(self._do_exchange, Operation(0.0, slaves[number % len(slaves)], "exchange", _PATIENCE_S))

    async def _do_set_role_wrongly(self, operation: Operation) -> None:
        """The master is to be a slave with a master's brokerId."""
        master = self._leading()
        if master is not None:
            await self._update(master, brokerRole=BrokerRole.SLAVE.value, brokerId="0")

    async def _do_set_role_and_exchange(self, operation: Operation) -> None:
        """The master is given its role again, with a setting for which it opens its store again; then it exchanges."""
        role, time_out_ms = self.brokers.workload.master_role, str(int(2500 + 20 * operation.patience_s))
        async with self._changing_roles, trio.open_nursery() as nursery:
            # Who led before this operator's last exchange ended may be a slave now: there would be two masters.
            master = self._leading()
            if master is None or master == operation.node:
                return
            given = partial(self._update, master, brokerRole=role, syncFlushTimeout=time_out_ms)
            nursery.start_soon(self._tried, lambda _: given(), operation)
            await trio.sleep(0.0005 + min(operation.patience_s, 2.0) * _SECOND_AFTER)
            nursery.start_soon(self._tried, self._exchange_roles, operation)

    async def _do_truncate(self, operation: Operation) -> None:
        await super()._do_truncate(await self._once_one_has_halted(operation))

    async def _do_follow_again(self, operation: Operation) -> None:
        await super()._do_follow_again(await self._once_one_has_halted(operation))

    async def _once_one_has_halted(self, operation: Operation) -> Operation:
        """For the broker that has halted, once one has; or as it is, if none does."""
        await self._look(lambda: any(map(self._has_halted, self.brokers.names)), _WATCHES_S + operation.patience_s)
        names = (operation.node, *self.brokers.names)
        return attrs.evolve(operation, node=next(filter(self._has_halted, names), operation.node))

    def _has_halted(self, name: str) -> bool:
        try:
            followed = self.brokers.broker(name).followed_master
        except BrokerDown:
            return False
        return followed is not None and followed.halted is not None


EXCHANGES = attrs.evolve(
    RACES,
    name="exchanges",
    description="roles are exchanged again and again, by mistaken commands too, and what that writes fails or is lost",
    operator=ExchangingOperator,
    faults=attrs.evolve(
        RACES.faults,
        nodes=("Kill", "PowerLoss", "Pause", "DiskSlow", *("DiskError",) * 6),
        links=("Partition", "Hold", "Reset"),
        link_faults=0.25,
        most=6,
        events=EVENTS,
        at_own_events=0.8,
        crash_soon=0.2,
        disk_errors=DISK_ERRORS,
        operations=_OPERATIONS,
        operations_most=6,
        operation_events=_OPERATION_EVENTS,
    ),
)
