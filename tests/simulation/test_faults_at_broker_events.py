"""Faults of the replication scenario that wait for an event of the brokers' trace."""

from __future__ import annotations

import attrs
import pytest

from rmq_actors.testing.scenarios import REPLICATION, random_case, run_case
from rmq_actors.tracing.event import Event
from sim_net import Fault, Kill, On, Partition, Pause, Schedule
from sim_net.search.search import Case

MASTER, SLAVES = REPLICATION.topology.master, REPLICATION.topology.slaves


def case_with(*faults: Fault) -> Case:
    return attrs.evolve(random_case(3), schedule=Schedule(faults))


def kinds_of(events: list[Event], node: str) -> list[tuple[str, str]]:
    return [(event.node, event.kind) for event in events if event.node in {node, ""}]


@pytest.mark.parametrize("nth", [1, 2, 7, 20])
def test_a_slave_dies_at_the_nth_append_to_its_log(nth: int) -> None:
    slave = SLAVES[0]
    result = run_case(case_with(Kill(0.0, slave, 1.0, on=On("log.append", slave, nth))))
    assert (result.outcome, result.failure) == ("passed", "")
    events = kinds_of(list(result.events), slave)
    died = events.index((slave, "node.kill"))
    assert events[died - 2 : died] == [(slave, "log.append"), ("", "fault.begin")]
    assert events[:died].count((slave, "log.append")) == nth


def test_the_scenario_waits_for_a_fault_that_an_event_sets_off_late() -> None:
    faults = (
        Pause(0.0, 20.0, SLAVES[0], on=On("log.append", MASTER, 5)),
        Partition(0.5, 6.0, MASTER, SLAVES[1], on=On("node.pause", SLAVES[0])),
    )
    result = run_case(case_with(*faults))
    assert (result.outcome, result.failure) == ("passed", "")
    ends = [event.sim_time_ns or 0 for event in result.events if event.kind == "fault.end"]
    assert len(ends) == 2
    assert result.virtual_s >= max(ends) / 1e9


def test_a_fault_whose_event_never_comes_changes_nothing() -> None:
    never = Kill(0.0, MASTER, 1.0, on=On("log.append", MASTER, 1_000_000))
    result = run_case(case_with(never))
    assert result.outcome == "passed"
    assert not [event for event in result.events if event.kind == "fault.begin"]


def test_an_event_of_no_node_of_the_scenario_is_refused() -> None:
    with pytest.raises(ValueError, match=r"faults\[0\]: no node is called 'ghost'"):
        REPLICATION.check(case_with(Kill(0.0, MASTER, 1.0, on=On("log.append", "ghost"))))


def test_runs_with_events_are_deterministic() -> None:
    case = case_with(
        Kill(0.001, MASTER, 0.5, on=On("put.*", MASTER, 9)), Kill(0.0, SLAVES[1], 0.5, on=On("disk.*", nth=40))
    )
    first, again = run_case(case), run_case(Case.from_json(case.to_json()))
    assert (first.digest, first.outcome) == (again.digest, "passed")
