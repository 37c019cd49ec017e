"""The replication scenario passes as it is and fails with each planted bug; its case alone decides what happens."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from rmq_actors.broker.processors import send_message
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.testing.bug_hunt import Hunt, hunt_bug
from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.observation import RARELY_OBSERVED
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenarios import (
    REPLICATION,
    SCENARIOS,
    RunResult,
    random_case,
    run_case,
    scenario_of,
)
from rmq_actors.testing.workload import COMBINATIONS, Workload
from rmq_actors.tracing.event import Event, of_kind
from rmq_actors.tracing.events.run import ClientRead, ClientSend, FaultBegin
from rmq_actors.tracing.events.store import LogAppend, LogRoll
from rmq_actors.wire.response_code import ResponseCode
from sim_net import BitRot, Fault, Kill, MisdirectedWrite, On, Partition, PowerLoss, Schedule, fault_kind
from sim_net.net.impairment import Cut
from sim_net.search.search import Case, Parameter

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
FOUND = sorted((Path(__file__).parent / "found_cases").glob("*.json"))
SEEDS, MANY_SEEDS = range(16), range(160)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(random_case(seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(random_case(seed)) for seed in MANY_SEEDS]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


def test_the_runs_do_something(results: list[RunResult]) -> None:
    assert all(result.acked > 0 and result.checks > 100 for result in results)
    assert sum(result.acked for result in results) > 250


def test_all_there_is_is_drawn() -> None:
    cases = [random_case(seed) for seed in range(64)]
    assert 0.3 < sum(bool(each.parameters.get("clients")) for each in cases) / len(cases) < 0.7
    assert {fault_kind(fault) for each in cases for fault in each.schedule.faults} == set(REPLICATION.faults.kinds)


@pytest.mark.long
def test_what_happens_to_runs_that_go_through_clients(many_results: list[RunResult]) -> None:
    by_clients = [each for each in many_results if each.case.parameters.get("clients")]
    sends = [event for each in by_clients for event in of_kind(each.events, ClientSend)]
    assert {"SUCCESS", "FLUSH_SLAVE_TIMEOUT", "RemotingSendRequestError"} <= {event.status for event in sends}
    assert max(Counter((event.node, event.key) for event in sends).values()) > 1  # what was refused is sent again
    reads = [event for each in by_clients for event in of_kind(each.events, ClientRead)]
    assert {event.actor for event in reads} == {"Consumer", LAST_READER}
    others = [each for each in many_results if each not in by_clients]
    assert not any(event.kind.startswith("client.") for each in others for event in each.events)


def test_a_client_that_is_told_more_than_the_store_has_promised_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = Schedule(Partition(0.2, 6.0, "master", slave) for slave in ("slave-1", "slave-2"))
    case = Case(1, cut_off, {"puts": 40, "pause_s": 0.1, "clients": True})
    assert run_case(case).outcome == "passed"
    monkeypatch.setitem(send_message._STORED, PutStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.SUCCESS)
    result = run_case(case)
    assert (result.outcome, result.failure.partition(":")[0]) == ("invariant", "send_ok")


@pytest.mark.long
def test_every_fault_fires_and_is_observed(many_results: list[RunResult]) -> None:
    fired = {fault_kind(fault) for result in many_results for fault in result.case.schedule.faults}
    begun = {event.fault_kind for result in many_results for event in of_kind(result.events, FaultBegin)}
    assert fired == begun == set(REPLICATION.faults.kinds)
    assert set(REPLICATION.observable) - set().union(*(result.observed for result in many_results)) <= RARELY_OBSERVED


@pytest.mark.long
def test_every_fault_strikes_while_it_matters(many_results: list[RunResult]) -> None:
    """While a put waits for the node that it is of, or bytes of the log are on their way to it."""
    assert set().union(*(result.under_load for result in many_results)) == set(REPLICATION.faults.kinds)


def test_each_role_meets_each_way_to_flush() -> None:
    workloads = [Workload.of(random_case(seed).parameters) for seed in range(64)]
    assert {(each.master_role, each.master_flush, each.slave_flush) for each in workloads} == set(COMBINATIONS)
    assert len(COMBINATIONS) == 8
    # They come in turn: a campaign of any length has each equally often.
    assert {Workload.of(random_case(seed).parameters).master_role for seed in range(4)} == {"SYNC_MASTER"}
    assert {each.in_sync_replicas for each in workloads} == {2, 3}
    assert {each.log_file_bytes for each in workloads} == {4096, 8192}
    assert {each.transient_pool for each in workloads if each.master_flush == "ASYNC_FLUSH"} == {False, True}
    assert not any(each.transient_pool for each in workloads if each.master_flush == "SYNC_FLUSH")
    assert {each.clean_every_s for each in workloads} == {0.0, 0.3, 1.0}


@pytest.mark.parametrize(
    ("fault", "parameters"),
    [
        (BitRot(0.0, "master", "commitlog/"), {}),
        (BitRot(0.0, "slave-1", ""), {}),
        (BitRot(0.0, "slave-1", "consumequeue/"), {}),
        (BitRot(0.0, "broker-2", "commitlog/"), {"fail_overs": 1}),
        (MisdirectedWrite(0.0, 1.0, "slave-1", "commitlog/"), {}),
    ],
)
def test_damage_of_which_nothing_is_promised_is_refused(fault: Fault, parameters: dict[str, Parameter]) -> None:
    case = Case(1, Schedule((fault,)), {"puts": 1, "pause_s": 0.1} | parameters)
    with pytest.raises(
        ValueError, match=r"faults\[0\]: of damage on a disk something is promised only where bits flip"
    ):
        scenario_of(case).check(case)


@pytest.mark.parametrize(
    ("runs_max", "expected"),
    [(25, {"all", "less"}), pytest.param(600, {"all", "less", "torn"}, marks=pytest.mark.long)],
)
def test_a_power_loss_at_an_append_loses_what_was_not_synced_and_tears_records(
    runs_max: int, expected: set[str]
) -> None:
    """A random time seldom falls into a sync, which takes milliseconds: here each does.

    How much of a page is left is drawn, and most pages are left as they once were: a torn record takes many runs.
    """
    parameters: dict[str, Parameter] = {
        "puts": 12,
        "pause_s": 0.1,
        "in_flight": 3,
        "body_bytes_max": 2000,
        "master_flush": "SYNC_FLUSH",
    }
    for node in ("master", "slave-1"):
        left: set[str] = set()
        for seed in range(runs_max):
            loss = PowerLoss(0.0, node, 0.5, on=On("log.append", node, 1 + seed % 4))
            result = run_case(Case(seed, Schedule((loss,)), parameters))
            assert result.outcome == "passed", (node, seed, result.failure)
            left.add(what_a_power_loss_left([event for event in result.events if event.node == node]))
            if seed >= 24 and left >= expected:
                break
        assert left >= expected, node


def what_a_power_loss_left(events: Sequence[Event]) -> str:
    """Of what its node had appended until then, by its events."""
    lost_at = next(number for number, event in enumerate(events) if event.kind == "node.power_loss")
    end = max(event.offset + event.size for event in of_kind(events[:lost_at], LogAppend))
    reopened = next(event for event in events[lost_at:] if event.kind == "store.open")
    if reopened.status == "torn_tail_cut":
        return "torn"
    return "all" if reopened.offset == end else "less"


def test_bits_that_flip_in_a_slaves_log_before_it_is_dispatched_harm_nobody_else() -> None:
    """So many that the slave cannot dispatch some; a restart cuts its log there, and it gets the rest again."""
    parameters: dict[str, Parameter] = {
        "puts": 20,
        "pause_s": 0.3,
        "master_flush": "SYNC_FLUSH",
        "slave_flush": "SYNC_FLUSH",
    }
    met: set[str] = set()
    for seed in range(12):
        rot = BitRot(0.0, "slave-1", "commitlog/", bits=40, on=On("log.flush", "slave-1", 2 + seed % 3))
        restart = (Kill(3.0, "slave-1", 0.5),) if seed % 2 else ()
        result = run_case(Case(seed, Schedule((rot, *restart)), parameters))
        assert result.outcome == "passed", (seed, result.failure)
        events = [event for event in result.events if event.node == "slave-1"]
        rotten_at = next(number for number, event in enumerate(events) if event.kind == "storage.rot")
        met |= {f"{event.kind} {event.status}" for event in events[rotten_at:]}
    assert met >= {"store.dispatch_failed DamagedLog", "store.open torn_tail_cut"}


def test_a_bit_that_flips_in_a_message_is_found_by_store_check() -> None:
    """Else the run fails. Of other bits no checksum is made."""
    parameters: dict[str, Parameter] = {"puts": 10, "pause_s": 0.1, "body_bytes_max": 2000, "slave_flush": "SYNC_FLUSH"}
    for seed in range(10):
        rot = BitRot(0.0, "slave-1", "commitlog/", on=On("log.flush", "slave-1", 4))
        result = run_case(Case(seed, Schedule((rot,)), parameters))
        assert (result.outcome, result.failure) == ("passed", "")
        assert "bit_rot" in result.observed


def test_a_slave_whose_master_has_deleted_what_it_needs_is_set_up_anew() -> None:
    parameters: dict[str, Parameter] = {"puts": 60, "pause_s": 0.1, "clean_every_s": 0.3, "master_flush": "SYNC_FLUSH"}
    away = Partition(1.0, 6.0, "master", "slave-1")
    gone = 0
    for seed in range(5):
        result = run_case(Case(seed, Schedule((away,)), parameters))
        assert (result.outcome, result.failure) == ("passed", "")
        assert "log_cleaned" in result.observed
        begins = [event.offset for event in of_kind(result.events, LogRoll) if event.node == "slave-1"]
        is_later = any(later > earlier + 4096 for earlier, later in itertools.pairwise(begins))
        gone += is_later and "offset_gone" in result.observed
    assert gone >= 3  # in others it was back before that


def test_a_case_decides_everything(results: list[RunResult]) -> None:
    for first in results[:5]:
        again = run_case(Case.from_json(first.case.to_json()))
        assert (again.digest, again.events) == (first.digest, first.events)
    assert len({result.digest for result in results}) == len(results)


def test_digests_do_not_depend_on_the_process() -> None:
    outputs = []
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "rmq_actors.cli.entry", "chaos", "run", "--seeds", "0:10", "--digest"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) == 10
    assert outputs[0] == outputs[1]
    assert [line.split()[:2] for line in outputs[0]] == [
        [str(seed), run_case(random_case(seed)).digest] for seed in range(10)
    ]


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_a_planted_bug_is_found_and_made_small(name: str) -> None:
    caught = hunt_bug(Hunt(name, start=1000, runs_max=600, time_max_s=90.0, shrink_runs_max=20))
    assert caught is not None, f"{name} was not found: the pipeline sees nothing"
    assert caught.result.outcome != "passed"
    assert len(caught.result.case.schedule) <= len(caught.first.schedule)
    cured = attrs.evolve(caught.result.case, parameters={**caught.result.case.parameters, "planted_bug": None})
    assert run_case(cured).outcome == "passed"


def test_there_are_regressions() -> None:
    assert CASES


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_kept_schedule_still_shows_its_bug_and_passes_without(path: Path) -> None:
    """A seed is worth something for one version of the code only, a schedule for longer: it is tried with several."""
    kept = CaseFile.load(path).case
    shown = set()
    for seed in (kept.seed, *range(30)):
        case = attrs.evolve(kept, seed=seed)
        cured = attrs.evolve(case, parameters={**case.parameters, "planted_bug": None})
        assert run_case(cured).outcome == "passed"
        shown.add(run_case(case).outcome)
        if len(shown) > 1:
            break
    assert shown & {"invariant", "liveness"}


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_case_that_was_found_passes(path: Path) -> None:
    """Each showed a bug once, of the product or the scenario, with its seed; where it can, a mutant brings it back."""
    found = CaseFile.load(path)
    assert run_case(found.case, SCENARIOS[found.scenario]).outcome == "passed"


def test_a_slave_that_never_comes_back_is_a_liveness_failure() -> None:
    """The liveness check can fail: a cut that nothing mends is seen."""
    case = Case(5, Schedule((Kill(0.5, "slave-2", 0.5),)), {"puts": 10, "pause_s": 0.1})
    assert run_case(case).outcome == "passed"
    result = run_case(case, sabotage=lambda world: world.network.link("master", "slave-1").add(Cut()))
    assert result.outcome == "liveness"
    assert "slave-1" in result.failure
