"""Traces of version 1 stay readable: `tests/traces_of_version_1` was written by the program of then.

A part of a run of seed 3, cut to 400 events, and the spool of a killed process, with 300 events of seed 4.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyarrow import parquet

from rmq_actors.tracing.event import COLUMNS
from rmq_actors.tracing.manifest import read_manifests
from rmq_actors.tracing.spool import recover

WRITTEN = Path(__file__).parents[1] / "traces_of_version_1"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return shutil.copytree(WRITTEN, tmp_path / "traces")


def test_its_manifest_is_believed(traces: Path) -> None:
    assert [(manifest.events, manifest.runs) for manifest in read_manifests(traces)] == [(400, 1)]


def test_a_spool_of_then_becomes_a_part(traces: Path) -> None:
    (recovered,) = recover(traces)
    assert recovered.published is not None
    assert (recovered.published.manifest.events, recovered.published.unread_bytes) == (300, 0)
    assert not recovered.spool.exists()
    rows = parquet.ParquetFile(recovered.published.manifest.part.events(traces)).read()
    assert set(rows["schema_version"].to_pylist()) == {1}


def test_only_columns_that_nothing_filled_went() -> None:
    (path,) = WRITTEN.glob("v1/*/*/part-*.parquet")
    rows = parquet.ParquetFile(path).read()
    gone = set(rows.column_names) - {column.name for column in COLUMNS}
    assert gone == {"digest", "msg_uid"}
    assert all(rows[name].null_count == rows.num_rows for name in gone)
