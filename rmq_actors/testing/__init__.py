"""What users import in their tests: a cluster in a simulated world, and what is looked for there.

Each name is imported at its first use: a test of one's own actors loads no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq_actors.testing.invariants import REPLICATION_INVARIANTS as REPLICATION_INVARIANTS
    from rmq_actors.testing.invariants import Invariant as Invariant
    from rmq_actors.testing.invariants import Limit as Limit
    from rmq_actors.testing.node_view import NodeView as NodeView
    from rmq_actors.testing.planted_bugs import PLANTED_BUGS as PLANTED_BUGS
    from rmq_actors.testing.probe import Effects as Effects
    from rmq_actors.testing.probe import run_handler as run_handler
    from rmq_actors.testing.sim_cluster import SIM_STORE as SIM_STORE
    from rmq_actors.testing.sim_cluster import SIM_WORLD as SIM_WORLD
    from rmq_actors.testing.sim_cluster import ClusterBroken as ClusterBroken
    from rmq_actors.testing.sim_cluster import NotWell as NotWell
    from rmq_actors.testing.sim_cluster import SimCluster as SimCluster
    from rmq_actors.testing.strategies import CLUSTER_FAULTS as CLUSTER_FAULTS
    from rmq_actors.testing.strategies import cluster_schedules as cluster_schedules
    from rmq_actors.testing.view import ClusterView as ClusterView

#: The module of each public name.
_MODULES = {
    "CLUSTER_FAULTS": "strategies",
    "ClusterBroken": "sim_cluster",
    "ClusterView": "view",
    "Effects": "probe",
    "Invariant": "invariants",
    "Limit": "invariants",
    "NodeView": "node_view",
    "NotWell": "sim_cluster",
    "PLANTED_BUGS": "planted_bugs",
    "REPLICATION_INVARIANTS": "invariants",
    "SIM_STORE": "sim_cluster",
    "SIM_WORLD": "sim_cluster",
    "SimCluster": "sim_cluster",
    "cluster_schedules": "strategies",
    "run_handler": "probe",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. AttributeError for any other."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
