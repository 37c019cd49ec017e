"""Random faults between name servers and brokers: in the end, and within the bounds, every route is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import FaultBegin
from sim_net import Kill, Schedule
from sim_net.net.impairment import Cut
from sim_net.search.search import Case
from tests.simulation.name_server_chaos import CHAOS_KINDS, Plan, Result, random_case, run_case
from tests.simulation.name_server_command import keep, load

CASES = sorted((Path(__file__).parent / "name_server_cases").glob("*.json"))
SEEDS, MANY_SEEDS = range(10), range(40)

#: What has to happen somewhere in `MANY_SEEDS`: kinds of events with their status.
EXPECTED = {
    "namesrv.register": {"new", "renewed", "superseded"},
    "namesrv.remove": {"unregistered", "closed", "expired"},
    "broker.register": {"ok", "RemotingConnectError", "RemotingSendRequestError", "RemotingTimeoutError"},
    "broker.unregister": {"ok", "RemotingTimeoutError"},
    "remoting.close": {"closed_by_peer", "ConnectionResetError", "idle", "broker_expired"},
}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [run_case(random_case(seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[Result]:
    """Between them all happens that the scenario is for."""
    return [run_case(random_case(seed)) for seed in MANY_SEEDS]


def test_every_run_passes(results: list[Result]) -> None:
    failing = [keep(result) for result in results if result.outcome != "passed"]
    assert not failing, "\n".join(failing)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 2100, 100))
def test_many_more_runs_pass(first: int) -> None:
    results = (run_case(random_case(seed)) for seed in range(first, first + 100))
    failing = [keep(result) for result in results if result.outcome != "passed"]
    assert not failing, "\n".join(failing)


def test_the_runs_do_something(results: list[Result]) -> None:
    assert all(result.checks > 20 for result in results)
    plans = [Plan(**random_case(seed).parameters) for seed in MANY_SEEDS]  # type: ignore[arg-type]
    for field in attrs.fields(Plan):
        assert len({getattr(plan, field.name) for plan in plans}) > 1, field.name


@pytest.mark.long
def test_the_runs_meet_what_they_are_for(many_results: list[Result]) -> None:
    assert any(result.converged_s > 5.0 for result in many_results)
    seen: dict[str, set[str | None]] = {}
    for result in many_results:
        for event in result.events:
            seen.setdefault(event.kind, set()).add(event.status)
    assert not {f"{kind} {status}" for kind in EXPECTED for status in EXPECTED[kind] - seen[kind]}


@pytest.mark.long
def test_every_kind_of_fault_begins(many_results: list[Result]) -> None:
    begun = {event.fault_kind for result in many_results for event in of_kind(result.events, FaultBegin)}
    assert begun == set(CHAOS_KINDS)


def test_a_case_decides_everything(results: list[Result]) -> None:
    for first in results[:3]:
        again = run_case(Case.from_json(first.case.to_json()))
        assert (again.digest, again.events) == (first.digest, first.events)
    assert len({result.digest for result in results}) == len(results)


def test_digests_do_not_depend_on_the_process(results: list[Result]) -> None:
    """This one hashes by a seed that is drawn, or by another one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.name_server_command", "digest", "0:6"],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"{result.case.seed} {result.digest} {len(result.events)}" for result in results[:6]
    ]


def test_there_are_kept_cases() -> None:
    assert CASES


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_kept_case_passes(path: Path) -> None:
    """A seed is worth something for one version of the code only, a schedule for longer: it is tried with several."""
    kept = load(path)
    for seed in (kept.seed, *range(10)):
        result = run_case(attrs.evolve(kept, seed=seed))
        assert result.outcome == "passed", result.failure


# --- the runs can fail ------------------------------------------------------------------------------------------------

_CALM = Plan(name_servers=2, broker_names=1, slaves=1)


def _calm(*faults: Kill) -> Case:
    return Case(5, Schedule(faults), _CALM.to_parameters())


def test_a_broker_that_never_comes_back_is_a_liveness_failure() -> None:
    case = _calm(Kill(0.5, "a-1", 0.5))
    assert run_case(case).outcome == "passed"
    result = run_case(case, sabotage=lambda world: world.network.link("a-1", "ns-2").add(Cut()))
    assert result.outcome == "liveness"
    assert "ns-2 has None for ('broker', 'DefaultCluster', 'broker-a', 1)" in result.failure


def test_a_broker_that_goes_for_no_reason_is_an_invariant_failure() -> None:
    case = _calm(Kill(0.5, "a-1", 0.5))
    result = run_case(case, sabotage=lambda world: world.at(30.0, lambda: world.network.reset("a-0", "ns-1", "fault")))
    assert result.outcome == "invariant"
    assert "broker-a" in result.failure


def test_a_failing_run_says_how_to_replay_it(tmp_path: Path) -> None:
    case = _calm(Kill(0.5, "a-1", 0.5))
    result = run_case(case, sabotage=lambda world: world.network.link("a-0", "ns-2").add(Cut()))
    message = keep(result, tmp_path)
    path = message.split()[-1]
    assert message.endswith(f".venv/bin/python -m tests.simulation.name_server_command replay {path}")
    assert load(Path(path)) == case
