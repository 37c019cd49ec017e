"""What `FaultFamilies` may have is looked at where it is written: nothing is left to fail when faults are drawn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rmq_actors.testing import FaultFamilies, Topology
from rmq_actors.testing.fault_families import LINK_KINDS, NODE_KINDS

EVENTS = r"; kinds are those of rmq_actors\.tracing\.events\.KINDS, and disk\.open, .*disk\.sync_directory"
#: What is wrong with fields, and what is said after "FaultFamilies.".
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"fewest": 1.5, "most": 2.5}, r"fewest must be a whole number of at least 0, not 1\.5"),
    ({"fewest": -1}, "fewest must be a whole number of at least 0, not -1"),
    ({"most": True}, "most must be a whole number of at least 0, not True"),
    ({"most": None}, "most must be a whole number of at least 0, not None"),
    ({"fewest": 3, "most": 2}, r"fewest must be at most FaultFamilies\.most: from 3 to 2 faults are none"),
    ({"links": "Partition"}, "links must be a tuple of texts, not 'Partition'"),
    ({"links": ([],)}, r"links must be a tuple of texts, not \(\[\],\)"),
    ({"links": ("Earthquake",)}, "links: no fault is called 'Earthquake'; there are Delay, Partition, .*"),
    ({"links": ("Kill",)}, "links: Kill is not a fault of links; there are Delay, Partition, .*"),
    ({"nodes": ("Kill", "Reset")}, "nodes: Reset is not a fault of nodes; there are ShortIO, Kill, .*"),
    (
        {"operations": ("nope",), "operations_most": 3},
        "operations: no operation is called 'nope'; there are exchange, .*",
    ),
    (
        {"operations": (), "operations_most": 1},
        r"operations has none to draw: FaultFamilies\.operations_most must be 0",
    ),
    ({"operations_most": 0.5}, r"operations_most must be a whole number of at least 0, not 0\.5"),
    ({"operation_events": ("no.such.event",)}, f"operation_events: no event is of kind 'no.such.event'{EVENTS}"),
    ({"events": ("no.such.event",)}, f"events: no event is of kind 'no.such.event'{EVENTS}"),
    ({"events": ("put.begin", "disk.chmod")}, f"events: no event is of kind 'disk.chmod'{EVENTS}"),
    ({"events": ("no.such.*",)}, rf"events: no event is of kind 'no\.such\.\*'{EVENTS}"),
    ({"events": ("*",)}, rf"events: no event is of kind '\*'{EVENTS}"),
    ({"events": "put.begin"}, "events must be a tuple of texts, not 'put.begin'"),
    ({"events": ()}, r"events has no kind to wait for: FaultFamilies\.timed_by_events must be 0"),
    (
        {"events": (), "timed_by_events": 0.0, "at_own_events": 0.1},
        r"events has no kind to wait for: FaultFamilies\.at_own_events must be 0",
    ),
    ({"disk_errors": "sync"}, "disk_errors must be a tuple of pairs, not 'sync'"),
    ({"disk_errors": ("sync", "")}, r"disk_errors\[0\] must be an operation and a part of a path, not 'sync'"),
    ({"disk_errors": (("sync", None),)}, r"disk_errors\[0\] must be an operation and a part of a path, not .*"),
    (
        {"disk_errors": (("sync", ""), ("fsync", ""))},
        r"disk_errors\[1\]: no operation of a disk is called 'fsync'; there are open, write, .*",
    ),
]


@pytest.mark.parametrize(("fields", "told"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_what_cannot_be_drawn_is_refused_where_it_is_written(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=rf"^FaultFamilies\.{told}$"):
        FaultFamilies(**fields)


@pytest.mark.parametrize("value", [7.0, -1, float("nan"), "0.5", True, None], ids=str)
@pytest.mark.parametrize(
    "field",
    [
        *("any_link", "all_slaves", "rot", "timed_by_events", "at_an_append", "at_own_events"),
        *("link_faults", "errors_wait", "crash_soon", "crash_again", "standstills"),
    ],
)
def test_a_chance_is_a_number_from_0_to_1(field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=rf"^FaultFamilies\.{field} must be a number from 0 to 1, not "):
        FaultFamilies(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"links": list(LINK_KINDS), "nodes": list(NODE_KINDS)},
        {"events": (), "timed_by_events": 0, "operations": ()},
        {"events": ("disk.*", "disk.sync", "log.*", "net.reset"), "timed_by_events": 1, "at_own_events": 1},
        {"nodes": ("DiskError",), "disk_errors": (("sync", "ENOPE"), ("", "")), "crash_soon": 1, "links": ()},
        {"operations": ("set_role_wrongly",), "operations_most": 2, "operation_events": ("put.begin",)},
    ],
    ids=str,
)
def test_what_can_be_drawn_is_taken(fields: dict[str, Any]) -> None:
    families = FaultFamilies(fewest=5, most=5, **fields)
    drawn = families.draw(random.Random(1), 1, Topology("a", ("b", "c")), master_may_lose_power=True)
    assert len(drawn.faults) >= 5
