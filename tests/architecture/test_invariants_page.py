"""docs/invariants.md tells of each invariant, in the order in which they are told, and of what it looks at."""

from __future__ import annotations

import re
from typing import Any

from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS
from rmq_actors.testing.invariants.invariant import Invariant
from tests.architecture.project_copy import PROJECT

PAGE = PROJECT / "docs" / "invariants.md"
END = "the end of the run"


def rows() -> list[tuple[str, set[str]]]:
    """Name, and what the last column says, of each row of the page's first table."""
    table = PAGE.read_text().partition("\n| name |")[2].partition("\n\n")[0]
    cells = [re.split(r" \| ", line.strip("| ")) for line in table.splitlines()[2:]]
    return [(row[0], set(re.split(r", ", row[-1].replace("`", "")))) for row in cells]


def looks_at(invariant: type[Invariant[Any]]) -> set[str]:
    return {*(kind.kind for kind in invariant.kinds), *([END] if invariant.at_end is not Invariant.at_end else [])}


def test_the_page_tells_of_each_invariant() -> None:
    assert rows() == [(each.name, looks_at(each)) for each in REPLICATION_INVARIANTS]


def test_each_limit_is_in_the_page() -> None:
    page = PAGE.read_text()
    assert [each.name for each in REPLICATION_LIMITS if f"`{each.name}`" not in page] == []


def test_each_has_a_file_of_its_own_and_a_name_of_its_own() -> None:
    every = [*REPLICATION_INVARIANTS, *REPLICATION_LIMITS]
    assert [each.__module__.rpartition(".")[2] for each in every] == [each.name for each in every]
    assert len({each.name for each in every}) == len(every)


def test_each_looks_at_something() -> None:
    assert [each.name for each in REPLICATION_INVARIANTS if not looks_at(each)] == []
