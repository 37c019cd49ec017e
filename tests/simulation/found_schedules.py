"""Schedules that showed a bug once, of the product or of a scenario, and the seeds that each is tried with since."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.testing.case_file import CaseFile

_DIRECTORY = Path(__file__).parent / "found_cases"

#: A schedule is worth something for longer than a seed: besides its own it passes with these. With its own each case
#: runs in test_replication_chaos.py.
OTHER_SEEDS = [
    pytest.param(range(1), id="one seed"),
    pytest.param(range(1, 6), id="more seeds", marks=pytest.mark.long),
]


def found_schedules(scenario: str) -> list[Path]:
    """The files of a scenario's cases."""
    return [path for path in sorted(_DIRECTORY.glob("*.json")) if CaseFile.load(path).scenario == scenario]
