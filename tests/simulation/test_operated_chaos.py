"""An operator whose work is drawn as faults are: every run passes, and each procedure is begun and done in some."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.operation import OPERATIONS, Operation
from rmq_actors.testing.production import OPERATED
from rmq_actors.testing.scenarios import REPLICATION, RunResult, run_case
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerExchange
from rmq_actors.tracing.events.run import OperatorCommand, OperatorPromote
from sim_net import Schedule, World, fault_kind
from sim_net.search.search import Case, Parameter
from tests.simulation.found_schedules import OTHER_SEEDS, found_schedules

SEEDS, MANY_SEEDS = range(8), range(40)
FOUND = found_schedules(OPERATED.name)
CALM: dict[str, Parameter] = {"puts": 12, "pause_s": 0.1}


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(OPERATED.case(seed), OPERATED) for seed in SEEDS]


@pytest.fixture(scope="module")
def many_results() -> list[RunResult]:
    """Between them all happens that the scenario is for."""
    return [run_case(OPERATED.case(seed), OPERATED) for seed in MANY_SEEDS]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


@pytest.mark.long
def test_many_runs_pass(many_results: list[RunResult]) -> None:
    assert [(each.case.seed, each.failure) for each in many_results if each.outcome != "passed"] == []


@pytest.mark.long
def test_each_operation_is_given_and_most_are_done(many_results: list[RunResult]) -> None:
    commands = [event for result in many_results for event in of_kind(result.events, OperatorCommand)]
    assert {each.status for each in commands} == set(OPERATIONS)
    # What cannot be done is refused: a log that has not halted is not cut, say.
    done = Counter(each.status for each in commands if each.detail is None)
    assert set(OPERATIONS) - done.keys() <= {"truncate", "follow_again"}


@pytest.mark.long
def test_roles_are_exchanged_and_slaves_promoted(many_results: list[RunResult]) -> None:
    assert sum(len(of_kind(result.events, OperatorPromote)) for result in many_results) > len(MANY_SEEDS) / 4
    exchanges = [event for result in many_results for event in of_kind(result.events, BrokerExchange)]
    assert {"fence", "promote", "ended"} <= {event.status for event in exchanges}


def test_runs_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps errors that were logged
    before = [each for each in gc.get_objects() if isinstance(each, World)]
    for seed in range(3):
        run_case(OPERATED.case(seed), OPERATED)
    gc.collect()
    after = [each for each in gc.get_objects() if isinstance(each, World)]
    assert len(after) <= len(before) + 1  # the loop's last task keeps the last one


def test_operations_meet_faults() -> None:
    kinds = [{fault_kind(fault) for fault in OPERATED.case(seed).schedule.faults} for seed in range(200)]
    assert all("Operation" in each for each in kinds)
    assert set().union(*kinds) >= {"Kill", "PowerLoss", "Pause", "Partition", "DiskFull", "BitRot"}


@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_alone(what: str) -> None:
    """Under load, without any fault, at each broker."""
    for name in OPERATED.topology.names:
        case = Case(1, Schedule((Operation(0.4, name, what, 1.0),)), CALM)
        result = run_case(case, OPERATED)
        assert (result.outcome, result.failure) == ("passed", "")
        (command,) = of_kind(result.events, OperatorCommand)
        assert (command.node, command.status) == (name, what)


def test_a_case_is_the_same_from_its_file(tmp_path: Path) -> None:
    case = OPERATED.case(3)
    CaseFile(OPERATED.name, case, "passed", "").save(tmp_path / "case.json")
    again = CaseFile.load(tmp_path / "case.json").case
    assert again == case
    assert run_case(again, OPERATED).digest == run_case(case, OPERATED).digest


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
@pytest.mark.parametrize("seeds", OTHER_SEEDS)
def test_a_schedule_that_was_found_passes_with_any_seed(path: Path, seeds: range) -> None:
    case = CaseFile.load(path).case
    results = [run_case(attrs.evolve(case, seed=seed), OPERATED) for seed in seeds]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []


def test_operations_need_an_operator_who_takes_orders() -> None:
    case = Case(1, Schedule((Operation(0.4, "master", "restart"),)), CALM)
    with pytest.raises(ValueError, match=r"faults\[0\]: the operator of scenario replication takes no orders"):
        run_case(case, REPLICATION)
    with pytest.raises(ValueError, match="this world has no operator who takes orders"):
        Operation(0.4, "a", "restart").begin(World(1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"what": "reboot"}, "Operation.what must be one of exchange, .*, not 'reboot'"),
        ({"patience_s": -1}, "Operation.patience_s must be a finite number of at least 0, not -1"),
        ({"patience_s": True}, "Operation.patience_s must be"),
    ],
)
def test_what_there_is_not_cannot_be_ordered(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        attrs.evolve(Operation(0.4, "a", "restart"), **change)
