"""Hypothesis strategies for clusters in simulated worlds. This module alone needs Hypothesis (the extra `testing`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from sim_net.faults.schedule import Schedule
from sim_net.faults.strategies import schedules

#: The kinds of faults under which the invariants of replication hold: all but damage on a disk (docs/invariants.md).
CLUSTER_FAULTS: Final = (
    *("Bandwidth", "Delay", "Hold", "Loss", "Partition", "Reset", "Stall"),
    *("ClockDrift", "ClockJump", "Kill", "Pause", "PowerLoss", "ShortIO"),
    *("DiskError", "DiskFull", "DiskSlow", "DiskStuck"),
)
#: Events of a broker that a fault may wait for.
_EVENTS: Final = (
    "log.append",
    "log.roll",
    "log.flush",
    "ha.transfer",
    "ha.client.report",
    "ha.replicated",
    "put.begin",
)


def cluster_schedules(names: Sequence[str], *, faults_max: int = 7) -> st.SearchStrategy[Schedule]:
    """Faults of `CLUSTER_FAULTS` about the brokers `names`; some wait for an event of a broker's trace."""
    return schedules(names, kinds=CLUSTER_FAULTS, events=_EVENTS, faults_max=faults_max)
