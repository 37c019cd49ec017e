"""Spark's view of a trace, made from the registry of columns; and the tables of `docs/trace-schema.md`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from inspect import get_annotations
from typing import Any, cast

import msgspec
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

from rmq_actors.tracing.event import COLUMNS, ColumnType, Event, unfilled_columns
from rmq_actors.tracing.events import OWN_KINDS

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
    unfilled = unfilled_columns(OWN_KINDS.values())
    columns = [
        f"| `{column.name}` | {column.type} | {'yes' if column.nullable else 'no'} | "
        f"{'not yet filled: ' if column.name in unfilled else ''}{column.meaning} |"
        for column in COLUMNS
    ]
    kinds = [_row(kind) for kind in OWN_KINDS.values()]
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
            "| kind | columns | `attrs` | emitted by | meaning |",
            "|--|--|--|--|--|",
            *kinds,
            "",
        ]
    )


def _row(kind: type[Event]) -> str:
    optional = {
        field.encode_name
        for field in msgspec.structs.fields(cast("Any", kind))
        if not field.required and field.default is None
    }
    types = {name: str(each) for base in reversed(kind.__mro__) for name, each in get_annotations(base).items()}
    columns = [name for name in kind.field_names if name not in kind.attribute_names]
    attributes = {name: types[field].removesuffix(" | None") for name, field in kind.attribute_names.items()}
    texts = (
        _listed(dict.fromkeys(columns, ""), optional),
        _listed({name: "" if text == "str" else f" {text}" for name, text in attributes.items()}, optional),
        kind.emitter,
        " ".join((kind.__doc__ or "").split()),
    )
    return f"| `{kind.kind}` | {' | '.join(texts)} |"


def _listed(names: Mapping[str, str], optional: AbstractSet[str]) -> str:
    """Names with what is to be said of each; those in brackets may be missing."""
    texts = (f"`{name}`{text}" if name not in optional else f"[`{name}`{text}]" for name, text in names.items())
    return ", ".join(texts) or "-"
