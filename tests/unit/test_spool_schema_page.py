"""docs/trace-schema.md says what the registry says."""

from __future__ import annotations

from pathlib import Path

from rmq_actors.analysis.schema import trace_schema_tables
from rmq_actors.tracing.event import COLUMNS
from rmq_actors.tracing.events import OWN_KINDS
from rmq_actors.tracing.manifest import RUNS_SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "trace-schema.md"
BEGIN, END = "<!-- begin: rmq-actors trace schema -->\n", "<!-- end: rmq-actors trace schema -->\n"


def test_the_tables_are_current() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    tables = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert tables == trace_schema_tables(), "run `rmq-actors trace schema` and put its output between the two marks"


def test_every_column_and_kind_has_a_row() -> None:
    rows = [line.split("|")[1].strip() for line in trace_schema_tables().splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in (*(column.name for column in COLUMNS), *OWN_KINDS)]


def test_every_column_of_the_runs_table_is_described() -> None:
    text = PAGE.read_text()
    section = text[text.index("## The runs table") : text.index("## The events table")]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in RUNS_SCHEMA.names]
