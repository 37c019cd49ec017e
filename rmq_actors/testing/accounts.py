"""A scenario whose brokers have accounts, which change while masters are lost and disks fail."""

from __future__ import annotations

import random
from typing import Final

import attrs

from rmq_actors.testing.brokers import STORE
from rmq_actors.testing.fail_over import FailOverOperator
from rmq_actors.testing.fault_families import NODE_KINDS, FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Accounts
from rmq_actors.testing.observation import OBSERVABLE, OBSERVABLE_IN_FAIL_OVERS, UNASKED
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.topology import Topology
from rmq_actors.testing.workload import Workload, draw_fail_overs

#: What of a disk fails: what an account is written with.
_DISK_ERRORS: Final = (
    *(("write", "conf/"), ("sync", "conf/"), ("rename", "conf/"), ("sync_directory", "conf")),
    *(("open", "conf/"), ("", "conf/"), ("sync", "commitlog/"), ("write", "")),
)
_EVENTS: Final = (
    *("client.account_change",) * 4,
    *("client.account", "acl.load", "log.append", "log.append", "ha.transfer", "put.begin"),
)


def draw_accounts(rng: random.Random, seed: int) -> Workload:
    """A random one in which visitors ask in the names of accounts, and often masters are lost."""
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        clients=True,
        puts=rng.choice((10, 20)),
        accounts=rng.choice((40, 60, 90)),
        fail_overs=rng.choice((0, 0, 1, 1, 2)),
    )


ACCOUNTS = Scenario(
    "accounts",
    "brokers with accounts: clients ask for what they may and may not, accounts change, and masters are lost",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_accounts,
    FaultFamilies(
        nodes=(*NODE_KINDS, "Kill", "PowerLoss", "PowerLoss", "DiskError"),
        fewest=0,
        most=5,
        any_link=0.5,
        all_slaves=0.05,
        events=_EVENTS,
        timed_by_events=0.6,
        at_own_events=0.5,
        link_faults=0.3,
        crash_soon=0.2,
        disk_errors=_DISK_ERRORS,
    ),
    FailOverOperator,
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Accounts),
    store=attrs.evolve(STORE, enable_lmq=True, enable_multi_dispatch=True),
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
