"""Scenarios that draw whole production configurations: settings at their extremes, and everything at once.

Pool, cleaning, flipped bits, fail-overs and every family of faults meet in one run here, which the other scenarios keep
apart.
"""

from __future__ import annotations

import random

import attrs

from rmq_actors.store.config import FlushDiskType
from rmq_actors.testing.drawn_operator import DrawnOperator
from rmq_actors.testing.fail_over import FailOverOperator
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.observation import (
    DAMAGED_MASTER,
    OBSERVABLE,
    OBSERVABLE_IN_FAIL_OVERS,
    OBSERVABLE_IN_REPLICATION,
    QUEUE_BEGUN_AGAIN,
    UNASKED,
)
from rmq_actors.testing.scenario import WORLD, Scenario
from rmq_actors.testing.topology import Topology
from rmq_actors.testing.workload import (
    CHOICES,
    COMBINATIONS,
    DIVERGENCE,
    LOSSES,
    RECORD_BESIDE_BODY_BYTES,
    Workload,
    draws_clients,
    draws_rest,
)
from sim_net import LinkConfig

#: Small buffers, and segments as long as those of Ethernet: a record of 60 KB is under way for a while.
PRODUCTION_WORLD = attrs.evolve(
    WORLD,
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02, segment_bytes=1448),
    send_buffer_bytes=8192,
    receive_buffer_bytes=8192,
)
#: haTransferBatchSize, with the longest body, and how many messages a run puts: a frame a byte is dear.
_BATCHES = (1, 13, 100, 512, 4000, 32 * 1024, 32 * 1024)
_BODIES = {1: (1, 40), 13: (40, 900)}
_ANY_BODY = (1, 100, 900, 900, 6000, 60_000)
_PUTS = {1: (3, 6), 13: (8, 16)}
_ANY_PUTS = (12, 20, 40)
#: So long bodies are rare ones; or, in half of the runs that have any, few messages are put and most of them are long:
#: then a record is under way at most times.
_LONG_BODY_BYTES = 2000
_SKEW, _LONG_SKEW, _LONG_OFTEN_SKEW = 3, 12, 1
_LONG_OFTEN_PUTS = 8
_POOL = 0.3
_CLEANING = 0.3
_AUTO = 0.1


def draw_production(rng: random.Random, seed: int) -> Workload:
    """Each setting from its extremes, and what is usual; role and flush are those of the seed."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    batch = rng.choice(_BATCHES)
    body = rng.choice(_BODIES.get(batch, _ANY_BODY))
    one_record = body + RECORD_BESIDE_BODY_BYTES
    is_long = body > _LONG_BODY_BYTES
    is_often_long = is_long and random.Random(f"long/{seed}").random() < 0.5
    puts, skew = rng.choice(_PUTS.get(batch, _ANY_PUTS)), _LONG_SKEW if is_long else _SKEW
    if is_often_long:
        puts, skew = _LONG_OFTEN_PUTS, _LONG_OFTEN_SKEW
    may_have_pool = FlushDiskType.ASYNC_FLUSH.value in (master_flush, slave_flush)
    return Workload(
        puts=puts,
        pause_s=rng.choice((0.0, 0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 2, 5, 20, 100)),
        body_bytes_max=body,
        body_skew=skew,
        transfer_batch_bytes=batch,
        log_file_bytes=max(300, one_record, rng.choice((0, 0, 4096, 8192, 256 * 1024))),
        queue_file_bytes=rng.choice((20, 400, 400, 6000)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        auto_in_sync_replicas=rng.random() < _AUTO,
        transient_pool=may_have_pool and rng.random() < _POOL,
        clean_every_s=rng.choice((0.3, 1.0)) if rng.random() < _CLEANING else 0.0,
        fail_overs=rng.choice((0, 1, 1, 2)),
        fail_over_at_s=rng.choice((0.5, 1.0, 2.0, 3.0)),
        lost_by=rng.choice(LOSSES),
        promoted=rng.choice((*CHOICES, CHOICES[0])),
        back_after_s=rng.choice((0.0, 0.3, 3.0)),
        divergence=rng.choice(DIVERGENCE),
        table_changes=random.Random(f"tables/{seed}").choice((0, 6, 12)),
        clients=draws_clients(seed),
        rests_s=draws_rest(seed),
    )


PRODUCTION = Scenario(
    "production",
    "whole configurations, settings at their extremes, and everything at once: fail-overs, pool, cleaning, damage",
    Topology("north", ("south", "east")),
    draw_production,
    FaultFamilies(fewest=0, most=5, any_link=0.5, rot=0.15),
    FailOverOperator,
    world=PRODUCTION_WORLD,
    observable=(
        *OBSERVABLE,
        *OBSERVABLE_IN_REPLICATION,
        *OBSERVABLE_IN_FAIL_OVERS,
        UNASKED,
        DAMAGED_MASTER,
        QUEUE_BEGUN_AGAIN,
    ),
)
PRODUCTION_OF_FOUR = attrs.evolve(
    PRODUCTION,
    name="production-of-four",
    description="the same with a master and three slaves",
    topology=Topology("north", ("south", "east", "west")),
)


def draw_operated(rng: random.Random, seed: int) -> Workload:
    """Production settings under a load that lasts; what changes roles is in the schedule."""
    workload = draw_production(rng, seed)
    return attrs.evolve(workload, fail_overs=0, puts=2 * workload.puts, pause_s=rng.choice((0.1, 0.3, 0.6)))


OPERATED = attrs.evolve(
    PRODUCTION,
    name="operated",
    description="production, and an operator who does what is drawn: procedures of operating.md, early, late, twice",
    workload=draw_operated,
    faults=FaultFamilies(fewest=0, most=3, any_link=0.5, all_slaves=0.1, rot=0.1, operations_most=4),
    operator=DrawnOperator,
)
