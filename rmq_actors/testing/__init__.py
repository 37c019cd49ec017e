"""What users import in their tests: a cluster in a simulated world, scenarios, and invariants.

Each name is imported at its first use: a test of one's own actors loads no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_actors.lazy_names import lazy_names

if TYPE_CHECKING:
    from rmq_actors.testing.brokers import BrokersUnderTest as BrokersUnderTest
    from rmq_actors.testing.case_file import CaseFile as CaseFile
    from rmq_actors.testing.clients import Writers as Writers
    from rmq_actors.testing.fail_over import FailOverOperator as FailOverOperator
    from rmq_actors.testing.fail_over import RoleOperator as RoleOperator
    from rmq_actors.testing.fault_families import FaultFamilies as FaultFamilies
    from rmq_actors.testing.fixtures import ClusterFixture as ClusterFixture
    from rmq_actors.testing.fixtures import StoreFixture as StoreFixture
    from rmq_actors.testing.invariants import REPLICATION_INVARIANTS as REPLICATION_INVARIANTS
    from rmq_actors.testing.invariants import REPLICATION_LIMITS as REPLICATION_LIMITS
    from rmq_actors.testing.invariants import Invariant as Invariant
    from rmq_actors.testing.invariants import Limit as Limit
    from rmq_actors.testing.node_view import NodeView as NodeView
    from rmq_actors.testing.operators import Operator as Operator
    from rmq_actors.testing.planted_bugs import PLANTED_BUGS as PLANTED_BUGS
    from rmq_actors.testing.probe import Effects as Effects
    from rmq_actors.testing.probe import run_handler as run_handler
    from rmq_actors.testing.scenario import Scenario as Scenario
    from rmq_actors.testing.scenarios import FAIL_OVER as FAIL_OVER
    from rmq_actors.testing.scenarios import REPLICATION as REPLICATION
    from rmq_actors.testing.scenarios import RunResult as RunResult
    from rmq_actors.testing.scenarios import random_case as random_case
    from rmq_actors.testing.scenarios import run_case as run_case
    from rmq_actors.testing.sim_cluster import SIM_STORE as SIM_STORE
    from rmq_actors.testing.sim_cluster import SIM_WORLD as SIM_WORLD
    from rmq_actors.testing.sim_cluster import ClusterBroken as ClusterBroken
    from rmq_actors.testing.sim_cluster import NotWell as NotWell
    from rmq_actors.testing.sim_cluster import SimCluster as SimCluster
    from rmq_actors.testing.strategies import CLUSTER_FAULTS as CLUSTER_FAULTS
    from rmq_actors.testing.strategies import cluster_schedules as cluster_schedules
    from rmq_actors.testing.topology import Topology as Topology
    from rmq_actors.testing.view import ClusterView as ClusterView
    from rmq_actors.testing.view import Evidence as Evidence
    from rmq_actors.testing.workload import Workload as Workload
    from rmq_actors.testing.workload import choices as choices

#: The module of each public name.
_MODULES = {
    "BrokersUnderTest": "brokers",
    "CLUSTER_FAULTS": "strategies",
    "CaseFile": "case_file",
    "ClusterBroken": "sim_cluster",
    "ClusterFixture": "fixtures",
    "ClusterView": "view",
    "Effects": "probe",
    "Evidence": "view",
    "FAIL_OVER": "scenarios",
    "FailOverOperator": "fail_over",
    "FaultFamilies": "fault_families",
    "Invariant": "invariants",
    "Limit": "invariants",
    "NodeView": "node_view",
    "NotWell": "sim_cluster",
    "Operator": "operators",
    "PLANTED_BUGS": "planted_bugs",
    "REPLICATION": "scenarios",
    "REPLICATION_INVARIANTS": "invariants",
    "REPLICATION_LIMITS": "invariants",
    "RoleOperator": "fail_over",
    "RunResult": "scenarios",
    "SIM_STORE": "sim_cluster",
    "SIM_WORLD": "sim_cluster",
    "Scenario": "scenario",
    "SimCluster": "sim_cluster",
    "StoreFixture": "fixtures",
    "Topology": "topology",
    "Workload": "workload",
    "Writers": "clients",
    "choices": "workload",
    "cluster_schedules": "strategies",
    "random_case": "scenarios",
    "run_case": "scenarios",
    "run_handler": "probe",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
