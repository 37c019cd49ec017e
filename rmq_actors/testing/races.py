"""A scenario whose operator and faults come right at what brokers do: while a role, a term or a setting changes.

Two commands meet, a command meets a stop or a start, a broker comes back by its file; in the end the operator is away
for a while, and brokers get well by themselves.
"""

from __future__ import annotations

import random
from typing import Final

import attrs
import trio

from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.testing.crash_points import CRASH_POINTS, draw_crash_points
from rmq_actors.testing.drawn_operator import DrawnOperator
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.workload import Workload

MOMENTS: Final = (
    "broker.exchange",
    "broker.exchange",
    "broker.exchange",
    "broker.exchange_partner",
    "broker.exchange_partner",
    "broker.role",
    "broker.slave_synchronize",
    "client.table",
    "store.term",
    "store.open",
    "store.checkpoint",
    "disk.open",
    "ha.client.connect",
    "ha.client.compare",
    "ha.client.halt",
    "ha.client.close",
    "ha.connection.open",
    "node.boot",
)
_OPERATIONS: Final = (
    "exchange",
    "exchange",
    "exchange",
    "exchange_twice",
    "exchange_by_hand",
    "exchange_by_hand",
    "exchange_and_set_role",
    "set_role_again",
    "come_back_by_file",
    "fail_over",
    "restart",
    "restart_and_set",
    "restart_and_set",
    "truncate",
    "follow_again",
    "truncate_on_divergence",
    "reopen",
)
#: What of a disk fails: mostly small files, of terms, roles, settings and tables.
DISK_ERRORS: Final = (
    *(("write", "config/"), ("sync", "config/"), ("rename", "config/"), ("sync_directory", "config")),
    *(("write", "conf/"), ("sync", "conf/"), ("rename", "conf/"), ("sync_directory", "conf")),
    *(("write", "replicationTerm"), ("sync", "replicationTerm"), ("rename", "replicationTerm"), ("sync", ""), ("", "")),
)
#: How long the operator is away when the faults are over: a slave that has halted asks again, an idle pair stays one.
_AWAY_S: Final = 75.0
#: When settings come after a stop has begun.
_SET_AFTER_S: Final = (0.0, 0.0005, 0.004, 0.03)


@attrs.define(eq=False, repr=False)
class RacingOperator(DrawnOperator):
    """Also gives commands that meet others, and takes its time in the end."""

    async def settle(self) -> None:
        """See `DrawnOperator.settle`; before that, let brokers be."""
        await trio.sleep(_AWAY_S)
        await super().settle()

    async def _do_exchange_and_set_role(self, operation: Operation) -> None:
        """The role of the master is set while its exchange begins, or is under way."""
        old, new = self._leading(), operation.node
        if old is None or old == new:
            return
        async with self._changing_roles, trio.open_nursery() as nursery:
            nursery.start_soon(self._tried, self._exchange_roles, operation)
            await trio.sleep(min(operation.patience_s, 1.0) / 10)
            nursery.start_soon(self._tried, lambda _: self._make_slave(old, new), operation)

    async def _do_set_role_again(self, operation: Operation) -> None:
        """A command gives a broker the role that it has."""
        try:
            role = self.brokers.broker(operation.node).config.store.broker_role.value
        except BrokerDown:
            return
        await self._update(operation.node, brokerRole=role)

    async def _do_come_back_by_file(self, operation: Operation) -> None:
        """The master was made a slave by mistake: it is stopped, its file is edited, and it starts as the master."""
        async with self._changing_roles:
            brokers, old, new = self.brokers, self._leading(), operation.node
            if old is None or old == new:
                return
            await self._make_slave(old, new)
            await trio.sleep(min(operation.patience_s, 2.0))
            await self._stop(old)
            brokers.configure(old, [old])
            if not brokers.nodes[old].is_up:
                brokers.restart_node(old)
            self._note(old)

    async def _do_restart_and_set(self, operation: Operation) -> None:
        """Settings come while the broker stops."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tried, self._do_restart, operation)
            for after_s in _SET_AFTER_S:
                await trio.sleep(after_s)
                nursery.start_soon(self._tried, self._set_truncation, operation)

    async def _set_truncation(self, operation: Operation) -> None:
        await self._update(operation.node, haTruncateOnDivergence="true")


def draw_races(rng: random.Random, seed: int) -> Workload:
    """As `crash-points`, with more changes of tables, and slaves that halt in most runs."""
    workload = draw_crash_points(rng, seed)
    return attrs.evolve(workload, table_changes=rng.choice((12, 18, 30)), divergence=rng.choice(("halt", "command")))


RACES = attrs.evolve(
    CRASH_POINTS,
    name="races",
    description="commands and faults meet role changes, and each other; then the operator is away for a while",
    workload=draw_races,
    operator=RacingOperator,
    faults=FaultFamilies(
        nodes=(
            *("Kill", "Kill", "PowerLoss", "Pause", "ShortIO"),
            *("DiskError", "DiskError", "DiskFull", "DiskStuck", "DiskSlow", "DiskSlow"),
        ),
        links=("Partition", "Reset", "Hold", "Stall"),
        link_faults=0.3,
        fewest=1,
        most=5,
        any_link=0.5,
        all_slaves=0.05,
        events=MOMENTS,
        timed_by_events=0.7,
        at_own_events=0.7,
        crash_soon=0.3,
        disk_errors=DISK_ERRORS,
        operations=_OPERATIONS,
        operations_most=5,
        operation_events=MOMENTS,
    ),
)
