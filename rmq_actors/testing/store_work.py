"""A scenario in which stores have much to do: tiny files of every sort, and disks that fail again after a crash.

Logs, queues and indexes roll all the time, so that faults meet files that are made, filled and removed. An operator
stops, opens and cuts stores meanwhile. A broker that has crashed often crashes once more, within its next start or soon
after it: what the start before has done may not be durable then.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from rmq_actors.testing.brokers import STORE
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Checkpointed, Delayed
from rmq_actors.testing.production import OPERATED
from rmq_actors.testing.workload import CHOICES, COMBINATIONS, DIVERGENCE, Workload, draws_clients

#: An index file has room for this many keys, in this many chains.
_STORE_WORK: Final = attrs.evolve(
    STORE, max_hash_slot_num=4, max_index_num=8, flush_consume_queue_thorough_interval_ms=1000
)
#: At what a disk fails. Each kind of file fails in every way that it is used in.
ERRORS: Final = (
    *(("sync", "commitlog/"), ("write", "commitlog/"), ("write", "commitlog/"), ("remove", "commitlog/")),
    *(("sync_directory", "commitlog"), ("open", "commitlog/"), ("sync_directory", "consumequeue")),
    *(("write", "consumequeue/"), ("open", "consumequeue/"), ("sync", "consumequeue/"), ("remove", "consumequeue/")),
    *(("write", "index/"), ("write", "index/"), ("open", "index/"), ("sync", "index/")),
    *(("write", "config/"), ("sync", "config/"), ("rename", "config/"), ("", "checkpoint"), ("write", "")),
)
#: After which of its own events a broker's disk or power fails.
EVENTS: Final = (
    *("disk.write", "disk.sync", "disk.rename", "disk.remove", "disk.remove", "disk.open"),
    *("log.append", "log.roll", "log.flush", "disk.sync_directory", "log.delete", "queue.delete"),
    *("store.open", "store.open", "store.checkpoint", "store.dispatch", "node.boot"),
)
_OPERATIONS: Final = (
    *("restart", "restart", "restart", "reopen", "truncate", "set_up_again"),
    *("exchange", "exchange_by_hand", "fail_over", "stop_and_fail_over"),
)
_POOL: Final = 0.3


def draw_store_work(rng: random.Random, seed: int) -> Workload:
    """Short messages, several in a file of the log, and one or a few entries in a file of a queue."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    body_bytes_max, log_file_bytes = rng.choice(((40, 300), (100, 600), (100, 1200), (900, 1200), (900, 4096)))
    has_clients = draws_clients(seed)
    workload = Workload(
        puts=rng.choice((20, 40)),
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 2, 5, 10)),
        body_bytes_max=body_bytes_max,
        log_file_bytes=log_file_bytes,
        transfer_batch_bytes=rng.choice((100, 512, 4000)),
        queue_file_bytes=rng.choice((20, 60, 100, 400)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        transient_pool=rng.random() < _POOL,
        clean_every_s=rng.choice((0.0, 0.0, 0.3)),
        promoted=rng.choice(CHOICES),
        divergence=rng.choice(DIVERGENCE),
        table_changes=rng.choice((0, 6)),
        delays=rng.choice((0.0, 0.3)) if has_clients else 0.0,
        clients=has_clients,
    )
    # What is cleaned away before it is due is never delivered. A message of the pool is in the log, where the judge
    # sees it, a moment after it was put: its delay counts from the put.
    is_delayed = not (workload.clean_every_s or workload.transient_pool)
    return workload if is_delayed else attrs.evolve(workload, delays=0.0)


STORE_WORK = attrs.evolve(
    OPERATED,
    name="store-work",
    description="tiny files of logs, queues and indexes; disks fail and fill up, and power is lost twice in a row",
    workload=draw_store_work,
    faults=FaultFamilies(
        links=("Partition", "Reset"),
        nodes=("DiskError", "DiskError", "DiskError", "DiskFull", "DiskFull", "DiskStuck", "PowerLoss", "Kill"),
        fewest=2,
        most=5,
        any_link=0.5,
        all_slaves=0.05,
        events=EVENTS,
        timed_by_events=0.7,
        at_own_events=0.7,
        link_faults=0.15,
        crash_soon=0.6,
        crash_again=0.5,
        disk_errors=ERRORS,
        operations=_OPERATIONS,
        operations_most=3,
    ),
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Checkpointed, Delayed),
    store=_STORE_WORK,
)
