"""The scenario `lost-files`: files of stores are lost, spoilt and put back, and no promise is broken."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rmq_actors.testing.lost_files import LOST_FILES
from rmq_actors.testing.operation import FILES, Operation
from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.testing.spoilt_files import SPOILINGS, Files, make_so, read_file
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import OperatorCommand, OperatorFiles
from rmq_actors.tracing.events.store import StoreOpen
from sim_net import Schedule, World
from sim_net.search.search import Case, Parameter

SEEDS = range(10)
CALM: dict[str, Parameter] = {
    "puts": 30,
    "pause_s": 0.2,
    "table_changes": 6,
    "clients": True,
    "log_file_bytes": 2400,
    "queue_file_bytes": 100,
    "body_bytes_max": 100,
}


#: Slaves have no tables so soon, RocketMQ's records are the master's, and a master does not take over from itself.
AT = {"tables_to_backups": ("north",), "records_of_rocketmq": ("north",), "directory_in_the_way": ("south", "east")}


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(LOST_FILES.case(seed), LOST_FILES) for seed in SEEDS]


def failed(results: list[RunResult]) -> list[tuple[int, str]]:
    return [(each.case.seed, each.failure) for each in results if each.outcome != "passed"]


def test_every_run_passes(results: list[RunResult]) -> None:
    assert failed(results) == []


@pytest.mark.long
def test_many_runs_pass_and_each_thing_is_done_to_files_in_some() -> None:
    results = [run_case(LOST_FILES.case(seed), LOST_FILES) for seed in range(40)]
    assert failed(results) == []
    commands = [event for each in results for event in of_kind(each.events, OperatorCommand)]
    assert {event.status for event in commands if event.detail is None} >= {*FILES}


def test_each_thing_is_drawn() -> None:
    faults = [fault for seed in range(200) for fault in LOST_FILES.case(seed).schedule.faults]
    drawn = Counter(fault.what for fault in faults if isinstance(fault, Operation))
    assert drawn.keys() == {*LOST_FILES.faults.operations} >= {*FILES} >= {*SPOILINGS}
    assert min(drawn.values()) > 20


@pytest.mark.parametrize("what", FILES)
def test_an_operation_alone_is_done(what: str) -> None:
    """Under load, without any fault, at a slave and at the master: what must be refused is tried, and put back."""
    names = AT.get(what, LOST_FILES.topology.names[:2])
    told = []
    for name in names:
        case = Case(1, Schedule((Operation(2.0, name, what, 1.0),)), CALM)
        result = run_case(case, LOST_FILES)
        assert (result.outcome, result.failure) == ("passed", "")
        (command,) = of_kind(result.events, OperatorCommand)
        assert (command.node, command.status, command.detail) == (name, what, None)
        told += [(event.status, event.node) for event in of_kind(result.events, OperatorFiles)]
    if what in SPOILINGS:
        statuses = ["refused", "mended"] if SPOILINGS[what].refused_as else ["changed"]
        assert told == [(status, name) for name in names for status in statuses]


@pytest.mark.parametrize("what", [what for what, each in SPOILINGS.items() if each.refused_as])
def test_a_broker_that_must_not_start_tries_more_than_once(what: str) -> None:
    result = run_case(Case(1, Schedule((Operation(2.0, "south", what, 1.0),)), CALM), LOST_FILES)
    refused, mended = of_kind(result.events, OperatorFiles)
    boots = [event for event in of_kind(result.events, NodeBoot) if event.node == "south"]
    assert any(refused.seq < event.seq < mended.seq for event in boots)
    assert any(event.node == "south" and event.seq > mended.seq for event in of_kind(result.events, StoreOpen))


@pytest.mark.parametrize("what", SPOILINGS)
def test_there_must_be_something_to_spoil(what: str) -> None:
    world = World(0)
    disk = world.node("empty").disk

    async def main(_: World) -> None:
        with pytest.raises(ValueError, match=r"there is no|no file|no record"):
            SPOILINGS[what].change(Files(disk, 0, random.Random(0)))

    world.run(main)


def test_files_have_what_they_shall_after_a_power_loss() -> None:
    world = World(0)
    disk = world.node("node").disk

    async def main(_: World) -> None:
        disk.open("a/old", allocate_bytes=3).close()
        await make_so(disk, {"a/old": None, "a/new": b"content", "b": b""})
        world.nodes["node"].disk.power_off()
        assert [read_file(disk, path) for path in ("a/old", "a/new", "b")] == [None, b"content", b""]

    world.run(main)
