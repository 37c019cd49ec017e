"""Case files: what is saved is loaded again; whatever cannot be run is refused before it is, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_actors.testing.case_file import CaseFile, IllegalCaseFile
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenarios import REPLICATION, random_case

KILL = {"kind": "Kill", "at_s": 1.0, "node": "slave-1", "down_s": 1.0}


def content(**case: Any) -> dict[str, Any]:
    whole = {"seed": 1, "parameters": {"puts": 5, "pause_s": 0.1}, "faults": [KILL], **case}
    return {"format": 1, "scenario": REPLICATION.name, "outcome": "passed", "failure": "", "case": whole}


def load(tmp_path: Path, value: object) -> CaseFile:
    path = tmp_path / "case.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return CaseFile.load(path)


@pytest.mark.parametrize("bug", [None, *PLANTED_BUGS])
def test_what_is_saved_is_loaded_again(tmp_path: Path, bug: str | None) -> None:
    for seed in range(30):
        saved = CaseFile(REPLICATION.name, random_case(seed, planted_bug=bug), "invariant", "prefix: ...")
        saved.save(tmp_path / "failures" / "case.json")
        assert CaseFile.load(tmp_path / "failures" / "case.json") == saved


def test_the_least_that_a_case_needs(tmp_path: Path) -> None:
    assert load(tmp_path, content(faults=[], parameters={"puts": 0, "pause_s": 0})).case.seed == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pause_s": 0.1}, r"parameters\['puts'\] must be a whole number of at least 0, not None"),
        ({"puts": "many", "pause_s": 0.1}, r"parameters\['puts'\] must be .*, not 'many'"),
        ({"puts": True, "pause_s": 0.1}, r"parameters\['puts'\] must be .*, not True"),
        ({"puts": 1}, r"parameters\['pause_s'\] must be a finite number of at least 0, not None"),
        ({"puts": 1, "pause_s": float("nan")}, r"parameters\['pause_s'\] must be .*, not nan"),
        ({"puts": 1, "pause_s": -1}, r"parameters\['pause_s'\] must be .*, not -1"),
        ({"puts": 1, "pause_s": 1, "planted_bug": "nope"}, "no planted bug is called 'nope'; there are stale_frame, "),
        (
            {"puts": 1, "pause_s": 1, "slave_flush": "SYNC"},
            r"parameters\['slave_flush'\] must be one of SYNC_FLUSH, ASYNC_FLUSH, not 'SYNC'",
        ),
        ({"puts": 1, "pause_s": 1, "writers": 3}, "no parameter is called 'writers'"),
    ],
)
def test_parameters_that_cannot_be_run_are_named(tmp_path: Path, parameters: Any, message: str) -> None:
    with pytest.raises(IllegalCaseFile, match=f"case.json: {message}"):
        load(tmp_path, content(parameters=parameters))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "case.json: Expecting property name"),
        ("[]", "case.json: not a case of format 1"),
        ({**content(), "format": 2}, "case.json: not a case of format 1"),
        ({**content(), "scenario": "other"}, "case.json: no scenario is called 'other'; there are replication"),
        ({"format": 1, "scenario": REPLICATION.name}, "case.json: 'case' is missing"),
        (content(seed="one"), "case.json: seed must be a whole number, not 'one'"),
        (
            content(faults=[{**KILL, "node": "nobody"}]),
            r"case.json: faults\[0\]: no node is called 'nobody'; there are",
        ),
        (content(faults=[KILL, {"kind": "Fire"}]), r"case.json: faults\[1\]: no fault is of kind 'Fire'"),
    ],
)
def test_what_is_no_case_is_named(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(IllegalCaseFile, match=message):
        load(tmp_path, value)
