"""The file that the demo writes for the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_actors.analysis.demo_facts import DemoFacts, DemoFactsError, ScheduledFault

REPLICATION: dict[str, Any] = {
    "messages": 2215,
    "bytes": 1_482_752,
    "files_rolled": 5,
    "sha256_master": "ab" * 32,
    "sha256_slave": "ab" * 32,
    "identical": True,
}
BUG: dict[str, Any] = {
    "name": "stale_frame",
    "description": "a slave keeps half a frame <of> a broken connection",
    "runs_to_find": 12,
    "seconds": 3.5,
    "original_faults": 6,
    "shrunk_schedule": [
        {"kind": "ShortIO", "at_s": 0.2, "duration_s": 2.0, "node": "slave-1", "bytes_max": 7},
        {"kind": "Reset", "at_s": 1, "a": "master", "b": "slave-1"},
        {"kind": "Partition", "at_s": 1.4, "duration_s": 0.5, "a": "master", "b": "slave-1", "two_way": False},
        {
            "kind": "Delay",
            "at_s": 1.5,
            "duration_s": 1,
            "a": "master",
            "b": "slave-2",
            "two_way": True,
            "extra_s": 0.05,
        },
        {"kind": "Kill", "at_s": 1.6, "node": "slave-2", "down_s": 0.01},
    ],
    "replay_command": "rmq-actors chaos replay out/demo/failures/stale_frame.json",
    "failure": "prefix: slave-1 has other bytes than the master",
}


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text(json.dumps({"replication": REPLICATION, "planted_bug": BUG}))
    facts = DemoFacts.load(path)
    assert facts.replication is not None
    assert facts.replication.identical
    assert facts.planted_bug is not None
    assert facts.planted_bug.shrunk_schedule == (
        ScheduledFault("ShortIO", 0.2, 2.0, "slave-1", {"bytes_max": "7"}),
        ScheduledFault("Reset", 1.0, None, "master, slave-1", {}),
        ScheduledFault("Partition", 1.4, 0.5, "master → slave-1", {}),
        ScheduledFault("Delay", 1.5, 1.0, "master ↔ slave-2", {"extra_s": "0.05"}),
        ScheduledFault("Kill", 1.6, 0.01, "slave-2", {}),
    )


@pytest.mark.parametrize("data", [{}, {"replication": None}, {"replication": None, "planted_bug": None}])
def test_both_sections_may_be_missing(data: object) -> None:
    assert DemoFacts.of(data) == DemoFacts()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "an object is needed, not list"),
        ({"other": 1}, "unknown keys: other"),
        ({"replication": []}, "replication: an object is needed, not list"),
        ({"replication": REPLICATION | {"more": 1}}, "replication: unknown keys: more"),
        ({"replication": REPLICATION | {"bytes": "1"}}, "replication: bytes is '1'"),
        ({"replication": REPLICATION | {"bytes": True}}, "replication: bytes is True"),
        ({"replication": REPLICATION | {"identical": False}}, "replication: identical contradicts"),
        ({"planted_bug": BUG | {"shrunk_schedule": [1]}}, r"planted_bug: shrunk_schedule\[0\]: an object"),
        ({"planted_bug": BUG | {"shrunk_schedule": [{"kind": "Kill"}]}}, r"shrunk_schedule\[0\]: at_s is missing"),
        (
            {"planted_bug": BUG | {"shrunk_schedule": [{"kind": "Kill", "at_s": 1, "down_s": "x"}]}},
            r"shrunk_schedule\[0\]: duration_s is no number: 'x'",
        ),
    ],
)
def test_another_shape_is_named(data: object, message: str) -> None:
    with pytest.raises(DemoFactsError, match=message):
        DemoFacts.of(data)


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text("{")
    with pytest.raises(DemoFactsError, match=r"demo.json: Expecting property name"):
        DemoFacts.load(path)
