"""docs/known-bugs.md names tests and mutants that there are, and leaves none of them out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants.mutant import HERE as MUTANTS
from tests.mutants.mutant import load

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


#: What RocketMQ's users have reported of what this project does, and S1 to S14 of its source: all of it has a row.
REPORTED = """
#3015 #1155 #2706 #3349 #3388 #3661 #9580 alibaba#69 #1082 #1118 #2821 #1244 #1535 ROCKETMQ-272 #3484 #5657 ROCKETMQ-290
ROCKETMQ-145 ROCKETMQ-33 #323 #2784 #3664 #1372 #3825 #6537 #2585 #7083 #5651 #6306 #9897 #2611 #2259 #1934 #2357 #1869
#3966 #9248 #9249 #7077 #8539 #3381 #5374 #11043 #7790 ROCKETMQ-74 #288 #1989 #3401 #6096 #9328 #9705 #467 #405 #1434
#678 #10073 #1456 ROCKETMQ-320 ROCKETMQ-265 ROCKETMQ-332 ROCKETMQ-321 #3868 #8007 #4463 #8239 #3408 #7523 #3099 #2098
#2457 #5714 #5960 #7610 ROCKETMQ-98 #6904 #10108 #1948 #4549 #1137 #544 #9500 #7511 S1 S2 S3 S4 S6 S9 S10 S11 S13 S14
"""


class Row(NamedTuple):
    """One line of the table."""

    numbers: str
    symptom: str
    test: str
    mutant: str


def rows() -> list[Row]:
    lines = (ROOT / "docs" / "known-bugs.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    return [Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in table]


def numbered_tests() -> list[str]:
    """Every test of this directory that bears a number."""
    return [
        f"{path.name}::{node.name}"
        for path in sorted(HERE.glob("test_*_bugs.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_test_is_in_the_table_once_and_is_there() -> None:
    named = [row.test for row in rows()]
    assert sorted(name for name in named if not name.startswith("../")) == sorted(numbered_tests())
    assert all((HERE / name).is_file() for name in named if name.startswith("../"))


def test_every_reported_bug_has_a_row() -> None:
    assert set(REPORTED.split()) - {number for row in rows() for number in row.numbers.split(", ")} == set()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.numbers)
def test_a_row_says_what_is_tested(row: Row) -> None:
    first = re.search(r"\w+$", row.numbers.split(",")[0])
    assert first is not None
    assert row.symptom
    if row.test.startswith("../"):
        fails = load(MUTANTS / f"{row.mutant}.toml").fails
        assert any(name.startswith(f"tests/{row.test.removeprefix('../')}::") for name in fails)
        return
    assert f"::test_{first[0].lower()}_" in row.test
    if row.mutant:
        assert f"tests/known_bugs/{row.test}" in load(MUTANTS / f"{row.mutant}.toml").fails
    else:
        path, _, name = row.test.partition("::")
        function = next(node for node in ast.parse((HERE / path).read_text()).body if getattr(node, "name", "") == name)
        assert isinstance(function, ast.FunctionDef)
        assert "Cannot exist: " in (ast.get_docstring(function) or "")
