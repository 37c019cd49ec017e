"""Faults and schedules as JSON: there and back, and errors that say what is wrong and where."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_net import (
    Delay,
    Fault,
    Kill,
    On,
    Partition,
    Reset,
    Schedule,
    ShortIO,
    World,
    fault_from_dict,
    fault_to_dict,
    register_fault,
)
from sim_net.faults.fault import Undo, nothing
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.strategies import faults, schedules

times = st.floats(0.0, 1e6)


@given(schedules(["a", "b", "broker-a"], events=["put", "disk.*"]), st.lists(times, min_size=7, max_size=7))
def test_a_schedule_comes_back_from_json(given_schedule: Schedule, begins_s: list[float]) -> None:
    schedule = Schedule(
        attrs.evolve(fault, at_s=at_s) for fault, at_s in zip(given_schedule.faults, begins_s, strict=False)
    )
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


@given(st.data())
def test_every_kind_comes_back_from_json(data: st.DataObject) -> None:
    for kind in FAULT_TYPES:
        fault = data.draw(faults(["a", "b"], kinds=[kind]))
        again = fault_from_dict(json.loads(json.dumps(fault_to_dict(fault))))
        assert (again, type(again)) == (fault, FAULT_TYPES[kind])


def test_a_fault_that_waits_for_an_event_comes_back_from_json() -> None:
    fault = Kill(0.5, "a", 1.0, on=On("put", "b", 7))
    data = {"kind": "Kill", "at_s": 0.5, "node": "a", "down_s": 1.0, "on": {"kind": "put", "node": "b", "nth": 7}}
    assert fault_to_dict(fault) == data
    assert fault_from_dict(data) == fault
    assert fault_from_dict({**data, "on": {"kind": "put"}}) == Kill(0.5, "a", 1.0, on=On("put"))
    assert fault_from_dict({**data, "on": None}) == Kill(0.5, "a", 1.0)


def test_kept_schedules_of_the_first_kinds_are_read() -> None:
    text = """{"faults": [
        {"kind": "Delay", "at_s": 1.0, "duration_s": 2.0, "a": "a", "b": "b", "extra_s": 0.5, "two_way": true},
        {"kind": "Partition", "at_s": 1.0, "duration_s": 2.0, "a": "a", "b": "b", "two_way": false},
        {"kind": "Stall", "at_s": 1.0, "duration_s": 2.0, "a": "a", "b": "b"},
        {"kind": "Reset", "at_s": 1.0, "a": "a", "b": "b"},
        {"kind": "ShortIO", "at_s": 1.0, "duration_s": 2.0, "node": "a", "bytes_max": 7},
        {"kind": "Kill", "at_s": 1.0, "node": "a", "down_s": 0.5}
    ]}"""
    schedule = Schedule.from_json(text)
    assert [type(fault).__name__ for fault in schedule.faults] == [
        "Delay", "Partition", "Stall", "Reset", "ShortIO", "Kill",
    ]  # fmt: skip
    assert json.loads(schedule.to_json()) == json.loads(text)


def test_every_kind_names_its_nodes() -> None:
    assert Kill(0.0, "x", 1.0).nodes == ("x",)
    assert Reset(0.0, "x", "y").nodes == ("x", "y")


def test_a_schedule_knows_when_its_last_fault_is_over() -> None:
    faults_of_three_lengths: tuple[Fault, ...] = (
        Kill(1.0, "a", 3.0), Partition(2.0, 1.5, "a", "b"), Reset(3.75, "a", "b"),
    )  # fmt: skip
    assert Schedule(faults_of_three_lengths).ends_s == 4.0
    assert Schedule(faults_of_three_lengths[1:]).ends_s == 3.75
    assert Schedule((Kill(9.0, "a", 3.0, on=On("put")), Partition(2.0, 1.5, "a", "b"))).ends_s == 3.5
    assert Schedule().ends_s == 0.0


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
        (json.dumps({"faults": [{**KILL, "on": "put"}]}), r"faults\[0\]: Kill.on must be an On, not 'put'"),
        (json.dumps({"faults": [{**KILL, "on": {}}]}), r"faults\[0\]: Kill.on: missing field 'kind'"),
        (json.dumps({"faults": [{**KILL, "on": {"kind": "put", "n": 1}}]}), r"Kill.on: unknown field 'n'"),
        (json.dumps({"faults": [{**KILL, "on": {"kind": "put", "nth": 0}}]}), r"On.nth must be a whole number of at"),
        (json.dumps({"faults": [{**KILL, "on": {"kind": "*"}}]}), r"On.kind must be a kind of event, not '\*'"),
        (json.dumps({"faults": [{**KILL, "on": {"kind": "put", "node": 3}}]}), r"On.node must be a string, not 3"),
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


def test_a_fault_as_text_is_the_program_that_makes_it() -> None:
    timed = Reset(at_s=2.0, a="a", b="b")
    triggered = Kill(at_s=0.0, node="a", down_s=1.0, on=On("node.boot", "b", 2))
    assert str(timed) == "Reset(at_s=2.0, a='a', b='b')"
    assert str(triggered) == "Kill(at_s=0.0, on=On(kind='node.boot', node='b', nth=2), node='a', down_s=1.0)"


def test_a_kind_of_ones_own_is_json_once_it_is_registered() -> None:
    @attrs.frozen
    class Knock(Fault):
        node: str
        times: int = 1

        def begin(self, world: World) -> Undo:
            return nothing

    data = Schedule((Knock(1.0, "a", on=On("x")),)).to_json()
    with pytest.raises(ValueError, match="no fault is of kind 'Knock'"):
        Schedule.from_json(data)
    assert register_fault(Knock) is Knock
    assert Schedule.from_json(data) == Schedule((Knock(1.0, "a", on=On("x")),))
    with pytest.raises(ValueError, match=r"faults\[0\]: Knock: unknown field 'speed'"):
        Schedule.from_list([{"kind": "Knock", "at_s": 0.0, "node": "a", "speed": 1}])
    for taken in (Knock, Kill):
        with pytest.raises(ValueError, match=f"there is a fault of kind {taken.__name__} already: "):
            register_fault(taken)
