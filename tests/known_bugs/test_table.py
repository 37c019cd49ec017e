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


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.numbers)
def test_a_row_says_what_is_tested(row: Row) -> None:
    first = re.search(r"\w+$", row.numbers.split(",")[0])
    assert first is not None
    assert row.symptom
    if row.test.startswith("../"):
        return
    assert f"::test_{first[0].lower()}_" in row.test
    if row.mutant:
        assert f"tests/known_bugs/{row.test}" in load(MUTANTS / f"{row.mutant}.toml").fails
    else:
        path, _, name = row.test.partition("::")
        function = next(node for node in ast.parse((HERE / path).read_text()).body if getattr(node, "name", "") == name)
        assert isinstance(function, ast.FunctionDef)
        assert "Cannot exist: " in (ast.get_docstring(function) or "")
