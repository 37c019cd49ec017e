"""Faults and schedules as JSON: there and back, and errors that say what is wrong and where."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_net import Delay, Fault, Kill, Partition, Reset, Schedule, ShortIO, Stall, fault_from_dict, fault_to_dict
from sim_net.faults import FAULT_TYPES, fault_nodes

names = st.sampled_from(["a", "b", "broker-a"])
times = st.floats(0.0, 1e6)
spans = st.floats(1e-9, 1e6)
faults: st.SearchStrategy[Fault] = st.one_of(
    st.builds(Delay, times, spans, names, names, times, st.booleans()),
    st.builds(Partition, times, spans, names, names, st.booleans()),
    st.builds(Stall, times, spans, names, names),
    st.builds(Reset, times, names, names),
    st.builds(ShortIO, times, spans, names, st.integers(1, 1 << 20)),
    st.builds(Kill, times, names, spans),
)


@given(st.lists(faults, max_size=8))
def test_a_schedule_comes_back_from_json(given_faults: list[Fault]) -> None:
    schedule = Schedule(tuple(given_faults))
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert [type(fault) for fault in again.faults] == [type(fault) for fault in schedule.faults]
    assert again.to_json() == schedule.to_json()


def test_the_json_is_plain() -> None:
    schedule = Schedule((Partition(1.5, 2.0, "a", "b", two_way=False),))
    assert json.loads(schedule.to_json()) == {
        "faults": [{"kind": "Partition", "at_s": 1.5, "duration_s": 2.0, "a": "a", "b": "b", "two_way": False}]
    }


def test_what_has_a_default_may_be_left_out() -> None:
    data = {"kind": "Delay", "at_s": 0, "duration_s": 1, "a": "a", "b": "b", "extra_s": 0.5}
    assert fault_from_dict(data) == Delay(0, 1, "a", "b", 0.5, two_way=True)


def test_every_kind_names_its_nodes() -> None:
    assert list(FAULT_TYPES) == ["Delay", "Partition", "Stall", "Reset", "ShortIO", "Kill"]
    assert fault_nodes(Kill(0.0, "x", 1.0)) == ("x",)
    assert fault_nodes(Reset(0.0, "x", "y")) == ("x", "y")


KILL = fault_to_dict(Kill(1.0, "a", 1.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a schedule must be JSON"),
        ("[]", 'an object with the one key "faults"'),
        ('{"faults": [], "more": 1}', 'an object with the one key "faults"'),
        ('{"faults": {}}', "faults must be a list, not dict"),
        ('{"faults": [3]}', r"faults\[0\]: a fault must be an object, not 3"),
        (
            json.dumps({"faults": [KILL, {**KILL, "kind": "Meteor"}]}),
            r"faults\[1\]: no fault is of kind 'Meteor'; there are Delay,",
        ),
        (json.dumps({"faults": [{**KILL, "kind": ["Kill"]}]}), r"faults\[0\]: no fault is of kind \['Kill'\]"),
        (json.dumps({"faults": [{**KILL, "node": 7}]}), r"faults\[0\]: Kill.node must be the name of a node, not 7"),
        (json.dumps({"faults": [{**KILL, "nodes": "a"}]}), r"faults\[0\]: Kill: unknown field 'nodes'"),
        ('{"faults": [{"kind": "Kill", "at_s": 1}]}', r"Kill: missing field 'node', missing field 'down_s'"),
        (json.dumps({"faults": [{**KILL, "at_s": -1}]}), r"Kill.at_s must be a finite number of at least 0, not -1"),
        (json.dumps({"faults": [{**KILL, "at_s": "soon"}]}), r"Kill.at_s must be a finite number"),
        (json.dumps({"faults": [{**KILL, "at_s": True}]}), r"Kill.at_s must be a finite number"),
        ('{"faults": [{"kind": "Kill", "at_s": NaN, "node": "a", "down_s": 1}]}', r"Kill.at_s must be a finite number"),
        (json.dumps({"faults": [{**KILL, "down_s": 0}]}), r"Kill.down_s must be above 0, not 0"),
        (
            json.dumps({"faults": [fault_to_dict(ShortIO(0.0, 1.0, "a", 1)) | {"bytes_max": 0}]}),
            r"ShortIO.bytes_max must be a whole number of at least 1, not 0",
        ),
        (
            json.dumps({"faults": [fault_to_dict(Partition(0.0, 1.0, "a", "b")) | {"two_way": 1}]}),
            r"Partition.two_way must be true or false, not 1",
        ),
    ],
)
def test_bad_input_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.from_json(text)


def test_faults_are_values() -> None:
    assert Kill(1.0, "a", 1.0) == Kill(1.0, "a", 1.0)
    assert hash(Kill(1.0, "a", 1.0)) == hash(Kill(1.0, "a", 1.0))
    with pytest.raises(AttributeError):
        Kill(1.0, "a", 1.0).at_s = 2.0  # type: ignore[misc]
    assert len(Schedule((Kill(1.0, "a", 1.0),))) == 1
