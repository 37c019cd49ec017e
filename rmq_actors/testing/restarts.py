"""A scenario whose brokers die in their starts, and in the starts after these: what a start has done must be durable.

A broker crashes, often soon after its disk has failed. As it starts again its disk fails or is full, its power is lost
or it is killed, at any moment of that start; and perhaps so again in the next ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import attrs

from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Checkpointed, Delayed
from rmq_actors.testing.operation import Operation, draw_operations
from rmq_actors.testing.production import OPERATED
from rmq_actors.testing.store_work import STORE_WORK
from rmq_actors.testing.topology import Topology
from rmq_actors.testing.workload import CHOICES, COMBINATIONS, DIVERGENCE, Workload, draws_clients
from sim_net import DiskError, DiskFull, Fault, Kill, On, PowerLoss, Schedule

_STORE: Final = attrs.evolve(
    STORE_WORK.store,
    # Under ASYNC_FLUSH much is not synced when a crash comes.
    flush_interval_commit_log_ms=5000,
)
#: At what a disk fails before the first crash, and in a start.
BEFORE: Final = (
    *(("sync", "commitlog/"), ("sync", "commitlog/")),
    *(("sync", "commitlog/"), ("sync", "commitlog/"), ("sync", "commitlog/"), ("write", "commitlog/")),
    *(("write", "consumequeue/"), ("write", "consumequeue/"), ("write", "index/"), ("sync", "config/")),
)
IN_A_START: Final = (
    *(("sync", "commitlog/"), ("write", "commitlog/"), ("remove", "commitlog/"), ("sync_directory", "commitlog")),
    *(("write", "index/"), ("write", "consumequeue/"), ("sync", "config/"), ("write", "config/"), ("write", "")),
)
#: How many brokers have this, and how many of their starts are disturbed.
_BROKERS: Final = (1, 1, 2, 3)
_STARTS: Final = (1, 1, 2, 3)
#: How often a disk fails first, from when on and how often; what comes then, and how soon.
_OF_DISKS: Final = 0.6
_FROM_S: Final = (0.0, 0.3, 1.0, 2.0)
_ERRORS: Final = (1, 2, 3, 30, 300)
_LASTS_S: Final = 60.0
_THEN: Final = ("crash", "crash", "crash", "crash", "restart", "nothing")
_CRASH_S: Final = (0.0, 0.0003, 0.003, 0.03, 0.3, 1.0, 3.0)
#: After which append a broker crashes whose disk is well.
_APPENDS: Final = (3, 8, 13, 21, 34)
_DOWN_S: Final = (0.01, 0.3, 2.0)
#: A start takes some milliseconds: how soon after the process begins something comes, from and to; or else later.
_IN_TIME, _SOON_S, _LATER_S = 0.7, (0.0002, 0.01), (0.03, 0.3, 1.0, 3.0)
#: How often power is lost rather than that the process is killed; and so of a broker whose sync has failed.
_POWER_IS_LOST, _POWER_AFTER_A_SYNC = 0.7, 0.2
_KINDS: Final = ("crash", "crash", "crash", "error", "error", "full")
_FULL_S: Final = (1.0, 5.0, 20.0)
_OPERATIONS: Final = ("restart", "restart", "reopen", "truncate", "exchange", "stop_and_fail_over", "fail_over")


@attrs.frozen
class FaultsOfStarts(FaultFamilies):
    """See the module. Of what `FaultFamilies` has it draws the operations, and faults of clients' links, alone."""

    def draw(self, rng: random.Random, seed: int, topology: Topology, *, master_may_lose_power: bool) -> Schedule:
        """The faults of a seed."""
        may_lose_power = topology.names if master_may_lose_power else topology.slaves
        faults: list[Fault] = []
        for node in rng.sample(topology.names, rng.choice(_BROKERS)):
            faults += self._before(rng, node, may_lose_power)
            faults += (self._in_a_start(rng, node, may_lose_power, 2 + k) for k in range(rng.choice(_STARTS)))
        faults += draw_operations(rng, topology.names, rng.randint(0, self.operations_most), self.operations)
        return Schedule(tuple(faults))

    def _before(self, rng: random.Random, node: str, may_lose_power: Sequence[str]) -> list[Fault]:
        """A crash; or a disk that fails, and a broker that crashes then, is restarted in order, or goes on."""
        if rng.random() >= _OF_DISKS:
            return [_crash(rng, node, may_lose_power, 0.0, On("log.append", node, rng.choice(_APPENDS)))]
        operation, path = rng.choice(BEFORE)
        from_s, count = rng.choice(_FROM_S), rng.choice(_ERRORS)
        error = DiskError(from_s, _LASTS_S, node, operation=operation, path=path, count=count)
        met = On("storage.error", node, rng.choice((1, 1, 2)))
        then = rng.choice(_THEN)
        if then == "nothing":
            return [error]
        if then == "restart":
            return [error, Operation(rng.choice(_CRASH_S), node, "restart", on=met)]
        share = _POWER_AFTER_A_SYNC if operation == "sync" else _POWER_IS_LOST
        return [error, _crash(rng, node, may_lose_power, rng.choice(_CRASH_S), met, share)]

    def _in_a_start(self, rng: random.Random, node: str, may_lose_power: Sequence[str], number: int) -> Fault:
        """What comes while the process begins for the `number`th time."""
        low, high = _SOON_S
        soon_s = round(low * (high / low) ** rng.random(), 5) if rng.random() < _IN_TIME else rng.choice(_LATER_S)
        on = On("node.boot", node, number)
        kind = rng.choice(_KINDS)
        if kind == "full":
            return DiskFull(rng.choice((0.0, soon_s)), rng.choice(_FULL_S), node, on=on)
        if kind == "error":
            operation, path = rng.choice(IN_A_START)
            count = rng.choice(_ERRORS)
            return DiskError(rng.choice((0.0, soon_s)), 1.0, node, operation=operation, path=path, count=count, on=on)
        return _crash(rng, node, may_lose_power, soon_s, on)


def _crash(
    rng: random.Random, node: str, may_lose_power: Sequence[str], at_s: float, on: On, share: float = _POWER_IS_LOST
) -> Fault:
    crash = PowerLoss if node in may_lose_power and rng.random() < share else Kill
    return crash(at_s, node, rng.choice(_DOWN_S), on=on)


def draw_restarts(rng: random.Random, seed: int) -> Workload:
    """Short messages and tiny files, so that a start has several of each kind to look at."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    body_bytes_max, log_file_bytes = rng.choice(((40, 300), (100, 300), (100, 600), (900, 1200)))
    has_clients = draws_clients(seed)
    return Workload(
        puts=rng.choice((20, 40)),
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 5, 10, 20)),
        body_bytes_max=body_bytes_max,
        log_file_bytes=log_file_bytes,
        transfer_batch_bytes=rng.choice((100, 512, 4000)),
        queue_file_bytes=rng.choice((20, 60, 100)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        promoted=rng.choice(CHOICES),
        divergence=rng.choice(DIVERGENCE),
        table_changes=rng.choice((0, 6)),
        delays=rng.choice((0.0, 0.5)) if has_clients else 0.0,
        clients=has_clients,
    )


RESTARTS = attrs.evolve(
    OPERATED,
    name="restarts",
    description="brokers crash, often after their disks failed, and again in their starts, whose disks fail, too",
    workload=draw_restarts,
    faults=FaultsOfStarts(
        links=("Partition",),
        nodes=("DiskError", "DiskFull", "Kill", "PowerLoss"),
        operations=_OPERATIONS,
        operations_most=2,
    ),
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Checkpointed, Delayed),
    store=_STORE,
)
