"""Each directory of tests has a budget of seconds; the table at the end of `make test` warns where it is exceeded."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.architecture.budget_table import budget_lines, read_budgets, seconds_by_directory
from tests.architecture.project_copy import PROJECT


def report_of(nodeid: str, when: Literal["setup", "call", "teardown"], duration_s: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", None, ""), {}, "passed", None, when=when, duration=duration_s)


def test_each_directory_with_tests_has_a_budget() -> None:
    directories = {path.relative_to(PROJECT / "tests").parts[0] for path in PROJECT.glob("tests/*/**/test_*.py")}
    assert set(read_budgets()) == directories


def test_durations_are_added_up_by_directory() -> None:
    reports = [
        report_of("tests/unit/test_a.py::test_a", "setup", 1.0),
        report_of("tests/unit/test_a.py::test_a", "call", 2.0),
        report_of("tests/unit/java/test_b.py::test_b[tests/interop]", "call", 4.0),
        report_of("tests/spark/test_c.py::test_c", "call", 8.0),
    ]
    assert seconds_by_directory(reports) == {"unit": 7.0, "spark": 8.0}


def test_a_directory_over_its_budget_is_warned_of_and_the_dearest_comes_first() -> None:
    lines = budget_lines({"unit": 7.0, "spark": 9.0}, {"unit": 8.0, "spark": 8.0, "interop": 4.0})
    assert [line.split() for line in lines[:4]] == [
        ["directory", "seconds", "budget"],
        ["spark", "9", "8"],
        ["unit", "7", "8"],
        ["all", "16", "20"],
    ]
    assert lines[4:] == ["warning: tests/spark took 9 s, its budget is 8 s"]
