"""Spark's view of a trace, made from the registry of columns; and the tables of `docs/trace-schema.md`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from rmq_actors.tracing.event import COLUMNS, KINDS, ColumnType

_SPARK_TYPES: Mapping[ColumnType, DataType] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "string": StringType(),
    "dictionary": StringType(),
    "links": ArrayType(StructType([StructField("node", StringType()), StructField("seq", LongType())])),
    "string_map": MapType(StringType(), StringType()),
}

#: What the directories `campaign=C/scenario=S` say.
PARTITION_FIELDS = (StructField("campaign", StringType()), StructField("scenario", StringType()))

#: A row of the events table. Columns that a file does not have yet are null.
EVENTS_SCHEMA = StructType(
    [StructField(column.name, _SPARK_TYPES[column.type], column.nullable) for column in COLUMNS]
    + list(PARTITION_FIELDS)
)

#: A row of the runs table; the Arrow side is `rmq_actors.tracing.manifest.RUNS_SCHEMA`.
RUNS_SCHEMA = StructType(
    [
        StructField("run_id", LongType(), nullable=False),
        StructField("seed", LongType(), nullable=False),
        StructField("config", StringType(), nullable=False),
        StructField("git_revision", StringType(), nullable=False),
        StructField("outcome", StringType(), nullable=False),
        StructField("fault_kinds", ArrayType(StringType()), nullable=False),
        StructField("event_count", LongType(), nullable=False),
        StructField("source", StringType(), nullable=False),
        StructField("schema_version", ShortType(), nullable=False),
        *PARTITION_FIELDS,
    ]
)


def trace_schema_tables() -> str:
    """The columns and the kinds as Markdown tables, for `docs/trace-schema.md`."""
    columns = [
        f"| `{column.name}` | {column.type} | {'yes' if column.nullable else 'no'} | {column.meaning} |"
        for column in COLUMNS
    ]
    kinds = [
        f"| `{kind.name}` | {_names(kind.columns)} | {_names(kind.attributes)} | {kind.emitter} | {kind.meaning} |"
        for kind in KINDS.values()
    ]
    return "\n".join(
        [
            "### Columns",
            "",
            "| column | type | null allowed | meaning |",
            "|--|--|--|--|",
            *columns,
            "",
            "### Kinds",
            "",
            "| kind | columns it needs | `attrs` it needs | emitted by | meaning |",
            "|--|--|--|--|--|",
            *kinds,
            "",
        ]
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"
