"""What users import in their tests: a cluster in a simulated world, and what is looked for there.

Each name is imported at its first use: a test of one's own actors loads no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq_actors.testing.planted_bugs import PLANTED_BUGS as PLANTED_BUGS
    from rmq_actors.testing.probe import Effects as Effects
    from rmq_actors.testing.probe import run_handler as run_handler
    from rmq_actors.testing.sim_cluster import SIM_STORE as SIM_STORE
    from rmq_actors.testing.sim_cluster import SIM_WORLD as SIM_WORLD
    from rmq_actors.testing.sim_cluster import SimCluster as SimCluster

#: The module of each public name.
_MODULES = {
    "Effects": "probe",
    "PLANTED_BUGS": "planted_bugs",
    "SIM_STORE": "sim_cluster",
    "SIM_WORLD": "sim_cluster",
    "SimCluster": "sim_cluster",
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
