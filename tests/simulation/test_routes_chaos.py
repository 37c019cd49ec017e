"""The scenario `routes`: name servers alone tell slaves who is their master, and brokers are taken out of service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import pytest

from rmq_actors.testing.operation import PERMISSIONS, Operation
from rmq_actors.testing.routes import ROUTES
from rmq_actors.testing.scenarios import REPLICATION, RunResult, run_case
from rmq_actors.testing.topology import NAME_SERVERS
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerMaster
from rmq_actors.tracing.events.namesrv import NamesrvRemove
from rmq_actors.tracing.events.run import NameServerEmpty, NameServerTells
from sim_net import Kill, Schedule, World
from sim_net.net.impairment import Cut
from sim_net.search.search import Case

SEEDS, MANY_SEEDS = range(8), range(40)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(ROUTES.case(seed), ROUTES) for seed in SEEDS]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


@pytest.mark.long
def test_many_runs_pass() -> None:
    results = [run_case(ROUTES.case(seed), ROUTES) for seed in MANY_SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_slaves_learn_their_masters_and_name_servers_begin_again(results: list[RunResult]) -> None:
    learned, empty, gone = Counter[str](), Counter[str](), set[str]()
    for result in results:
        learned.update(event.node for event in of_kind(result.events, BrokerMaster))
        empty.update(event.node for event in of_kind(result.events, NameServerEmpty))
        gone.update(event.status for event in of_kind(result.events, NamesrvRemove))
    assert learned.keys() == {*ROUTES.topology.names}
    assert empty.total() > sum(int(str(each.case.parameters["name_servers"])) for each in results)
    assert gone >= {"closed", "unregistered"}


def test_each_name_server_is_looked_at_with_each_permission(results: list[RunResult]) -> None:
    for result in results:
        name_servers = NAME_SERVERS[: int(str(result.case.parameters["name_servers"]))]
        of_masters = [event for event in of_kind(result.events, NameServerTells) if event.broker_id == 0]
        assert {(event.node, event.told) for event in of_masters} >= {
            (name_server, permission) for name_server in name_servers for permission in (4, 6)
        }
    assert {event.told for result in results for event in of_kind(result.events, NameServerTells)} >= {2}


def test_operations_set_permissions() -> None:
    drawn = _operations(range(60))
    assert drawn.keys() >= {*PERMISSIONS, "exchange", "restart"}


def _operations(seeds: Sequence[int]) -> Counter[str]:
    faults = [fault for seed in seeds for fault in ROUTES.case(seed).schedule.faults]
    return Counter(fault.what for fault in faults if isinstance(fault, Operation))


def test_name_servers_meet_faults_of_their_own() -> None:
    schedules = [ROUTES.case(seed).schedule for seed in range(60)]
    faults = [fault for each in schedules for fault in each.faults if _is_of_name_servers(fault.nodes)]
    met = Counter(type(fault).__name__ for fault in faults)
    assert met.keys() >= {"Kill", "Pause", "Partition", "Reset"}
    assert met["Kill"] > 30


def _is_of_name_servers(nodes: Sequence[str]) -> bool:
    return bool({*nodes} & {*NAME_SERVERS})


def test_a_scenario_that_keeps_its_roles_has_no_name_servers() -> None:
    case = REPLICATION.case(0)
    with pytest.raises(ValueError, match=r"parameters\['name_servers'\]"):
        REPLICATION.check(attrs.evolve(case, parameters={**case.parameters, "name_servers": 1}))


# --- the runs can fail ------------------------------------------------------------------------------------------------


def test_a_slave_that_no_name_server_hears_of_breaks_the_run() -> None:
    quiet = Case(0, Schedule((Kill(0.5, "east", 0.5),)), {"puts": 5, "pause_s": 0.1, "name_servers": 1})
    assert run_case(quiet, ROUTES).outcome == "passed"

    def forget(world: World) -> None:
        world.network.link("south", "names-1").add(Cut())

    result = run_case(quiet, ROUTES, sabotage=forget)
    assert result.outcome == "invariant"
    assert "routed: south has brokerId 1, names-1 routes its address as nothing" in result.failure
