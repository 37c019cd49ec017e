"""A scenario of one's own: what it draws, what it refuses, and that its invariants and its operator are heard."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import attrs
import pytest
import trio

from rmq_actors.testing import (
    FAIL_OVER,
    REPLICATION,
    ClusterView,
    FaultFamilies,
    Invariant,
    Operator,
    Scenario,
    Topology,
    Workload,
    choices,
    random_case,
    run_case,
)
from rmq_actors.testing.bug_hunt import signature
from rmq_actors.testing.scenarios import scenario_of
from rmq_actors.tracing.events.store import LogAppend, PutEnd
from sim_net import Kill, Schedule, fault_kind
from sim_net.search.search import Case


class FewPuts(Invariant[PutEnd]):
    """Nobody is answered after the fifth put: it breaks in every run."""

    name = "few_puts"
    kinds = (PutEnd,)

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        return f"{event.node} has answered {view.acked} puts" if view.acked > 5 else None


class Waits(Invariant[PutEnd]):
    """A mistake: nobody awaits it."""

    name = "waits"
    kinds = (PutEnd,)

    async def check(self, event: PutEnd, view: ClusterView) -> str | None:  # type: ignore[override]
        return None


@attrs.define(eq=False)
class KillsTheMaster(Operator):
    """At once."""

    async def act(self) -> None:
        await self.brokers.kill(self.brokers.master)
        self.brokers.restart_node(self.brokers.master)


@attrs.define(eq=False)
class Stumbles(Operator):
    """After a while."""

    async def act(self) -> None:
        await trio.sleep(0.5)
        raise KeyError("sendai")


CITIES = Scenario(
    "cities",
    "four brokers of any names",
    Topology("tokyo", ("osaka", "kyoto", "nagoya")),
    choices(puts=(10, 20), in_sync_replicas=(2, 3, 4), master_role=("SYNC_MASTER",)),
    FaultFamilies(links=("Delay",), nodes=("Pause",), fewest=1, most=3, all_slaves=0.0),
)


def test_its_runs_are_those_of_its_brokers() -> None:
    result = run_case(random_case(1, scenario=CITIES), CITIES)
    appends = {event.node for event in result.events if isinstance(event, LogAppend)}
    assert (result.outcome, result.failure, result.run.scenario) == ("passed", "", "cities")
    assert appends == {"tokyo", "osaka", "kyoto", "nagoya"}
    assert run_case(random_case(1, scenario=CITIES), CITIES).digest == result.digest


def test_its_invariants_are_heard() -> None:
    scenario = attrs.evolve(CITIES, invariants=(*CITIES.invariants, FewPuts))
    result = run_case(random_case(1, scenario=scenario), scenario)
    assert result.outcome == "invariant"
    assert result.failure.startswith("few_puts: tokyo has answered 6 puts (at event ")


def test_an_invariant_that_returns_no_text_is_the_one_that_is_wrong() -> None:
    """As a check does that is `async`, or returns whether all is well."""
    scenario = attrs.evolve(CITIES, invariants=(*CITIES.invariants, Waits))
    result = run_case(random_case(1, scenario=scenario), scenario)
    assert result.outcome == "invariant"
    assert result.failure.startswith(
        "waits: it raises TypeError: Waits returns a coroutine, where it should say in words what is wrong, or None"
    )


def test_an_invariant_that_is_left_out_is_not_asked() -> None:
    scenario = attrs.evolve(CITIES, invariants=())
    case = scenario.case(1, planted_bug="any_ack")
    assert run_case(case, attrs.evolve(scenario, invariants=CITIES.invariants)).outcome == "invariant"
    assert run_case(case, scenario).outcome != "invariant"


def test_its_operator_acts() -> None:
    scenario = attrs.evolve(CITIES, operator=KillsTheMaster, faults=FaultFamilies(fewest=0, most=0, all_slaves=0.0))
    result = run_case(random_case(1, scenario=scenario), scenario)
    assert result.outcome == "passed"
    assert [event.node for event in result.events if event.kind == "node.kill"] == ["tokyo"]


def test_an_operator_that_fails_is_a_run_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """So a campaign goes on, and its case is kept."""
    scenario = attrs.evolve(CITIES, operator=Stumbles)
    result = run_case(random_case(1, scenario=scenario), scenario)
    assert result.outcome == "crash"
    told = r"the operator, or the scenario, failed: KeyError: 'sendai' \(test_scenario.py, line \d+\)"
    assert re.fullmatch(told, result.failure)
    assert result.events[-1].kind == "run.end"
    assert "in act" in caplog.text  # where it was raised
    assert signature(result.outcome, result.failure) == "crash by KeyError"


def test_what_it_draws_is_from_its_choices() -> None:
    drawn = [Workload.of(CITIES.case(seed).parameters) for seed in range(30)]
    assert {each.in_sync_replicas for each in drawn} == {2, 3, 4}
    assert {each.puts for each in drawn} == {10, 20}
    assert {each.fail_overs for each in drawn} == {0}
    faults = [fault for seed in range(30) for fault in CITIES.case(seed).schedule.faults]
    assert {fault_kind(fault) for fault in faults} == {"Delay", "Pause"} == set(CITIES.faults.kinds)
    assert {len(CITIES.case(seed).schedule.faults) for seed in range(30)} == {1, 2, 3}
    assert {node for fault in faults for node in fault.nodes} == set(CITIES.topology.names)


def test_families_of_links_or_of_nodes_alone() -> None:
    for families in (FaultFamilies(links=("Loss",), nodes=()), FaultFamilies(links=(), nodes=("Kill",))):
        rng, topology = random.Random(1), CITIES.topology
        drawn = families.draw(rng, 1, topology, master_may_lose_power=False)
        assert {fault_kind(fault) for fault in drawn.faults} <= {*families.kinds, "Partition"}
        assert drawn.faults


def test_the_scenario_of_a_case_of_this_project() -> None:
    for scenario in (REPLICATION, FAIL_OVER):
        assert all(scenario_of(scenario.case(seed)) is scenario for seed in range(20))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology("a", ()), "a has no slave"),
        (lambda: Topology("a", ("b", "a")), "each broker needs a name of its own: a, b, a"),
        (lambda: Topology("a", ("",)), "each broker needs a name of its own"),
        (lambda: choices(writers=(2,)), "no parameter is called 'writers'"),
        (lambda: choices(puts=(1, -1)), r"parameters\['puts'\] must be a whole number of at least 0, not -1"),
        *(
            (
                lambda values=values: choices(puts=values),
                rf"^parameters\['puts'\] must be a tuple of the values that .* {told}$",
            )
            for values, told in ((5, "5"), ({1, 2}, r"\{1, 2\}"), ("5", "'5'"), (iter([5]), "<list_iterator .*>"))
        ),
        (lambda: choices(puts=()), r"parameters\['puts'\] needs a value to choose"),
        (lambda: FaultFamilies(links=("Earthquake",)), "no fault is called 'Earthquake'; there are "),
        (lambda: FaultFamilies(fewest=3, most=2), "from 3 to 2 faults are none"),
        (lambda: FaultFamilies(links=(), nodes=()), "faults must be of links or of nodes"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("parameters", "schedule", "message"),
    [
        ({"in_sync_replicas": 5}, (), r"parameters\['in_sync_replicas'\] is 5, there are 4 brokers"),
        ({"fail_overs": 1}, (), r"parameters\['fail_overs'\]: scenario cities keeps its roles"),
        ({}, (Kill(0.1, "master", 0.1),), r"no node is called 'master'; there are tokyo, osaka, kyoto, nagoya"),
    ],
)
def test_a_case_that_it_cannot_run_is_refused(
    parameters: dict[str, int], schedule: tuple[Kill, ...], message: str
) -> None:
    case = Case(1, Schedule(schedule), {"puts": 1, "pause_s": 0.1, **parameters})
    with pytest.raises(ValueError, match=message):
        run_case(case, CITIES)
    assert not CITIES.can_run(case)
