"""A scenario whose faults strike at the moments in which a broker's files change hands.

A store opens, cuts its log, removes a file or moves its checkpoint; a term, a role, a table or a setting is written;
two brokers exchange their roles. Faults that come at a set time seldom meet these moments.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.production import OPERATED
from rmq_actors.testing.workload import CHOICES, COMBINATIONS, DIVERGENCE, Workload, draws_clients

MOMENTS: Final = (
    "store.open",
    "store.term",
    "store.checkpoint",
    "log.roll",
    "log.truncate",
    "log.delete",
    "log.flush",
    "queue.delete",
    "broker.role",
    "broker.exchange",
    "broker.exchange_partner",
    "broker.slave_synchronize",
    "client.table",
    "ha.client.connect",
    "ha.client.compare",
    "ha.client.halt",
    "node.boot",
)
_OPERATIONS: Final = (
    "exchange",
    "exchange",
    "exchange",
    "exchange_twice",
    "exchange_by_hand",
    "fail_over",
    "stop_and_fail_over",
    "restart",
    "restart",
    "truncate",
    "reopen",
)


def draw_crash_points(rng: random.Random, seed: int) -> Workload:
    """Small messages and files, tables that change all the time, and stores that are opened often."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    return Workload(
        puts=rng.choice((20, 40)),
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 2, 5)),
        body_bytes_max=rng.choice((40, 100, 900)),
        transfer_batch_bytes=rng.choice((100, 512, 4000)),
        log_file_bytes=rng.choice((1200, 1200, 4096)),
        queue_file_bytes=rng.choice((20, 60, 400)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        clean_every_s=rng.choice((0.0, 0.0, 0.3)),
        promoted=rng.choice(CHOICES),
        divergence=rng.choice(DIVERGENCE),
        table_changes=rng.choice((6, 12, 18)),
        clients=draws_clients(seed),
    )


CRASH_POINTS = attrs.evolve(
    OPERATED,
    name="crash-points",
    description="roles are exchanged and stores opened; power losses, kills and failing disks come right then",
    workload=draw_crash_points,
    faults=FaultFamilies(
        nodes=("Kill", "PowerLoss", "PowerLoss", "PowerLoss", "DiskError", "DiskError", "DiskFull", "DiskStuck"),
        links=("Partition", "Reset", "Hold"),
        link_faults=0.2,
        fewest=2,
        most=6,
        any_link=0.5,
        all_slaves=0.05,
        events=MOMENTS,
        timed_by_events=0.5,
        at_own_events=0.8,
        operations=_OPERATIONS,
        operations_most=4,
    ),
)
