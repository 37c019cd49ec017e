"""A scenario is a value: the brokers, what clients, operator and faults do, and what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs

from rmq_actors.settings.field_types import shown
from rmq_actors.store.config import FlushDiskType, MessageStoreConfig
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.testing.account_table import VISITORS
from rmq_actors.testing.brokers import STORE
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.mistakes import MISTAKES, told
from rmq_actors.testing.observation import OBSERVABLE
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.operators import Operator
from rmq_actors.testing.scenario_checks import (
    BadScenario,
    check_function,
    check_invariants,
    check_is,
    check_line,
    check_name,
    check_observable,
    check_operator,
    check_seconds,
)
from rmq_actors.testing.topology import CONSUMERS, NAME_SERVER, NAME_SERVERS, OTHER_CONSUMERS, PRODUCERS, Topology
from rmq_actors.testing.workload import Workload
from sim_net import BitRot, LinkConfig, MisdirectedWrite, PowerLoss, Schedule, WorldConfig
from sim_net.search.search import Case

#: After the last fault everything must be as it should within this time (invariant I5: 30 s).
CONVERGENCE_S = 30.0
WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02, segment_bytes=400),
    send_buffer_bytes=2048,
    receive_buffer_bytes=2048,
    journal_keep=False,
    virtual_time_max_s=3600.0,
)


@attrs.frozen
class Scenario:
    """What runs have in common; `case` draws what differs by the seed.

    `workload` draws the parameters of clients, settings and operator (see `choices`), `faults` the schedule. Each run
    makes an `operator` and `invariants` of its own; where one event breaks several, the first of these is told.
    `converges_in_s` is how long after the last fault all must be well. `store` has the settings that no parameter sets.
    `observable`: what a campaign should meet over all its runs, as `FaultObserver` calls it, or by the name of a limit.
    """

    name: str = attrs.field(validator=check_name)
    description: str = attrs.field(validator=check_line)
    topology: Topology = attrs.field(validator=check_is(Topology))
    workload: Callable[[random.Random, int], Workload] = attrs.field(validator=check_function)
    faults: FaultFamilies = attrs.field(factory=FaultFamilies, validator=check_is(FaultFamilies))
    operator: type[Operator] = attrs.field(default=Operator, validator=check_operator)
    invariants: tuple[type[Invariant[Any]], ...] = attrs.field(
        default=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS), validator=check_invariants
    )
    converges_in_s: float = attrs.field(default=CONVERGENCE_S, validator=check_seconds)
    world: WorldConfig = attrs.field(default=WORLD, validator=check_is(WorldConfig))
    store: MessageStoreConfig = attrs.field(default=STORE, validator=check_is(MessageStoreConfig))
    observable: tuple[str, ...] = attrs.field(default=OBSERVABLE, validator=check_observable)

    def case(self, seed: int, *, planted_bug: str | None = None) -> Case:
        """The case that an integer stands for. Raises `BadScenario` if it draws none, or one that it cannot run."""
        rng = random.Random(f"{self.name}/{seed}")
        workload = attrs.evolve(self._drawn(rng, seed), planted_bug=planted_bug)
        may_lose_power = self._master_may_lose_power(workload)
        schedule = self.faults.draw(rng, seed, self.topology, master_may_lose_power=may_lose_power)
        if workload.clients:
            of_clients = self.faults.draw_for_clients(
                random.Random(f"{self.name}/clients/{seed}"), self.topology, machines_of_clients(workload)
            )
            schedule = Schedule((*schedule.faults, *of_clients))
        if workload.name_servers:
            of_name_servers = self.faults.draw_for_name_servers(
                random.Random(f"{self.name}/name_servers/{seed}"), self.topology, NAME_SERVERS[: workload.name_servers]
            )
            schedule = Schedule((*schedule.faults, *of_name_servers))
        case = Case(seed, schedule, workload.to_parameters())
        try:
            self.check(case)
        except ValueError as error:
            raise BadScenario(f"scenario {self.name}, seed {seed}: {error}") from error
        return case

    def check(self, case: Case) -> None:
        """Whether it can run `case`, which somebody may have edited. Raises ValueError naming what it cannot."""
        workload, names = Workload.of(case.parameters), self.topology.names
        if workload.in_sync_replicas > len(names):
            raise ValueError(
                f"parameters['in_sync_replicas'] is {workload.in_sync_replicas}, there are {len(names)} brokers"
            )
        if workload.fail_overs and not self.operator.changes_roles:
            raise ValueError(f"parameters['fail_overs']: scenario {self.name} keeps its roles")
        if workload.name_servers and not self.operator.changes_roles:
            raise ValueError(f"parameters['name_servers']: the brokers of scenario {self.name} register nowhere")
        if workload.table_changes and not self.operator.changes_roles:
            raise ValueError(
                f"parameters['table_changes']: the brokers of scenario {self.name} have no port for tables"
            )
        clients = (*machines_of_clients(workload), *NAME_SERVERS[: workload.name_servers])
        for number, fault in enumerate(case.schedule.faults):
            waits_for = fault.on.node if fault.on is not None else ""
            unknown = {*fault.nodes, waits_for or names[0]} - {*names, *clients}
            if unknown:
                raise ValueError(f"faults[{number}]: no node is called {min(unknown)!r}; there are {', '.join(names)}")
            if isinstance(fault, Operation) and not self.operator.takes_orders:
                raise ValueError(f"faults[{number}]: the operator of scenario {self.name} takes no orders")
            is_kept = isinstance(fault, BitRot) and fault.path.startswith(f"{COMMIT_LOG_DIRECTORY}/")
            is_known = is_kept and fault.nodes != names[:1] and self.faults.rot > 0
            if isinstance(fault, MisdirectedWrite | BitRot) and not is_known:
                raise ValueError(
                    f"faults[{number}]: of damage on a disk something is promised only where bits flip in "
                    f"{COMMIT_LOG_DIRECTORY}/ of a slave, in a scenario that draws that"
                )
            if isinstance(fault, PowerLoss) and fault.node == names[0] and not self._master_may_lose_power(workload):
                raise ValueError(
                    f"faults[{number}]: without master_flush SYNC_FLUSH the master may lose what its slaves have, "
                    f"and without fail_overs they have no port to notice it by"
                )

    def can_run(self, case: Case) -> bool:
        """Whether `check` has nothing against it: a shrinker tries many."""
        try:
            self.check(case)
        except ValueError:
            return False
        return True

    def _drawn(self, rng: random.Random, seed: int) -> Workload:
        try:
            drawn: object = self.workload(rng, seed)
        except MISTAKES as error:
            raise BadScenario(f"scenario {self.name}, seed {seed}: its workload raises {told(error)}") from error
        if not isinstance(drawn, Workload):
            raise BadScenario(f"scenario {self.name}, seed {seed}: its workload returns {shown(drawn)}, not a Workload")
        return drawn

    def _master_may_lose_power(self, workload: Workload) -> bool:
        """Whether the master may: its slaves must not be ahead of it then, or notice that."""
        return self.operator.changes_roles or workload.master_flush == FlushDiskType.SYNC_FLUSH.value


def machines_of_clients(workload: Workload) -> tuple[str, ...]:
    """The machines that clients have; that of the name server is of the same kind where its routes are judged."""
    if workload.groups != "none":
        return PRODUCERS, CONSUMERS, OTHER_CONSUMERS
    if workload.errands:
        return PRODUCERS, CONSUMERS, NAME_SERVER
    if workload.accounts:
        return PRODUCERS, CONSUMERS, VISITORS
    return (PRODUCERS, CONSUMERS) if workload.clients else ()
