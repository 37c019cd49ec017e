"""What the tests of each directory took, beside the budget that it has: `make test` ends with the table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

BUDGETS_FILE = Path(__file__).parent / "budgets.toml"


def read_budgets() -> dict[str, float]:
    """The seconds of each directory below tests/."""
    return tomllib.loads(BUDGETS_FILE.read_text())


def seconds_by_directory(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """The durations of set-up, call and tear-down added up, in whichever process they ran."""
    seconds: dict[str, float] = {}
    for report in reports:
        directory = report.nodeid.removeprefix("tests/").partition("/")[0]
        seconds[directory] = seconds.get(directory, 0.0) + report.duration
    return seconds


def budget_lines(seconds: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """The table, the dearest directory first, and a warning for each that exceeds its budget."""
    dearest = sorted(seconds, key=lambda directory: (-seconds[directory], directory))
    lines = [f"{'directory':16}{'seconds':>8}{'budget':>8}"]
    lines += [f"{directory:16}{seconds[directory]:8.0f}{budgets.get(directory, 0):8.0f}" for directory in dearest]
    lines.append(f"{'all':16}{sum(seconds.values()):8.0f}{sum(budgets.values()):8.0f}")
    return lines + [
        f"warning: tests/{directory} took {seconds[directory]:.0f} s, its budget is {budgets.get(directory, 0):.0f} s"
        for directory in dearest
        if seconds[directory] > budgets.get(directory, 0)
    ]
