"""Random faults: every kind can be drawn, every value is valid, and one source of choices decides everything."""

from __future__ import annotations

import random
import subprocess
import sys

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_net import Fault, Kill, Schedule, fault_kind
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.sampling import SAMPLES, sample_fault, sample_schedule
from sim_net.faults.strategies import faults, schedules

NODES = ["a", "b", "c"]


@pytest.mark.parametrize("kind", FAULT_TYPES)
def test_every_kind_can_be_drawn_with_every_value(kind: str) -> None:
    drawn = [sample_fault(random.Random(seed).choice, NODES, kinds=[kind]) for seed in range(300)]
    assert {fault_kind(fault) for fault in drawn} == {kind}
    for field in attrs.fields(FAULT_TYPES[kind]):
        values = {getattr(fault, field.name) for fault in drawn}
        if field.name in {"node", "a", "b"}:
            assert values == set(NODES)
        elif field.name not in {"at_s", "on"}:
            assert values == set(SAMPLES.get(f"{kind}.{field.name}") or SAMPLES[field.name])
    for fault in drawn:
        assert len(set(fault.nodes)) == len(fault.nodes) > 0


def test_the_choices_decide_everything() -> None:
    first, again, other = (sample_schedule(random.Random(seed).choice, NODES, events=["put"]) for seed in (7, 7, 8))
    assert first == again != other


def test_faults_wait_for_the_given_events_of_the_nodes_only() -> None:
    drawn = [sample_fault(random.Random(seed).choice, NODES, events=["put", "disk.*"]) for seed in range(200)]
    waiting = [fault.on for fault in drawn if fault.on is not None]
    assert 50 < len(waiting) < 150
    assert {on.kind for on in waiting} == {"put", "disk.*"}
    assert {on.node for on in waiting} == set(NODES)


def test_a_kind_named_twice_comes_twice_as_often() -> None:
    rng = random.Random(1)
    drawn = [fault_kind(sample_fault(rng.choice, NODES, kinds=["Kill", "Kill", "Reset"])) for _ in range(900)]
    assert 540 < drawn.count("Kill") < 660


def test_a_lone_node_has_no_links() -> None:
    rng = random.Random(1)
    assert all(sample_fault(rng.choice, ["a"]).nodes == ("a",) for _ in range(100))


@pytest.mark.parametrize(
    ("nodes", "kinds", "message"),
    [
        ([], None, r"no kind of fault fits the nodes \[\]"),
        (["a"], ["Partition"], r"no kind of fault fits the nodes \['a'\]"),
        (["a"], ["Kill", "Meteor"], r"no fault is of kind 'Meteor'; there are Delay,"),
    ],
)
def test_impossible_wishes_are_refused(nodes: list[str], kinds: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_fault(random.Random(1).choice, nodes, kinds=kinds)


@given(schedules(NODES, events=["put"], faults_max=3))
def test_schedules_are_about_the_given_nodes(schedule: Schedule) -> None:
    assert len(schedule) <= 3
    assert all(set(fault.nodes) <= set(NODES) for fault in schedule.faults)


@given(st.data())
def test_strategies_keep_to_the_given_kinds(data: st.DataObject) -> None:
    fault: Fault = data.draw(faults(NODES, kinds=["Kill"]))
    assert isinstance(fault, Kill)
    assert fault.on is None


def test_sim_net_does_not_need_hypothesis() -> None:
    program = """
import sys
sys.modules["hypothesis"] = None
import pkgutil, importlib, sim_net
for module in pkgutil.iter_modules(sim_net.__path__):
    if module.name not in ("strategies",):
        importlib.import_module("sim_net." + module.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
