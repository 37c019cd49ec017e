"""Reading traces without Spark: which runs there are, and the events of one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import compute, parquet

from rmq_actors.tracing.manifest import PartName, read_manifests

#: So many events are decoded at a time.
_BATCH_EVENTS = 8_192


class NoSuchRun(LookupError):
    """A run that no published part holds, or a directory that holds none."""


@attrs.frozen
class StoredRun:
    """A row of the runs table, and the part that has the run's events."""

    part: PartName
    row: Mapping[str, Any]


def stored_runs(traces: Path) -> list[StoredRun]:
    """The runs of all published parts, in order of campaign, scenario and seed.

    Raises `NoSuchRun` if there are none, `ManifestError`, and `OSError` for a file that is missing or cut.
    """
    found = []
    for manifest in read_manifests(traces):
        part = manifest.part
        with _reading(part.runs(traces)) as file:
            found += [StoredRun(part, row) for row in file.read().to_pylist()]
    if not found:
        raise NoSuchRun(f"{traces} holds no traces: no v1/campaign=*/scenario=*/ with a manifest")
    return sorted(found, key=lambda run: (run.part.campaign, run.part.scenario, run.row["seed"], run.row["run_id"]))


def stored_events(
    traces: Path,
    run_id: int,
    *,
    first_seq: int = 0,
    last_seq: int | None = None,
    kinds: Collection[str] = (),
    nodes: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """The events of a run in order, each with the columns that it fills; of these kinds and nodes, if any are given.

    Raises as `stored_runs`, and `NoSuchRun` for another run.
    """
    wanted = (compute.field("run_id") == run_id) & (compute.field("seq") >= first_seq)
    if last_seq is not None:
        wanted &= compute.field("seq") <= last_seq
    if kinds:
        wanted &= compute.field("kind").isin(sorted(kinds))
    if nodes:
        wanted &= compute.field("node").isin(sorted(nodes))
    for part in _parts_of(traces, run_id):
        with _reading(part.events(traces)) as file:
            for batch in file.iter_batches(_BATCH_EVENTS, row_groups=_row_groups_of(file, run_id)):
                for row in pa.Table.from_batches([batch]).filter(wanted).to_pylist(maps_as_pydicts="strict"):
                    yield {name: value for name, value in row.items() if value is not None}


def count_events(traces: Path, run_id: int) -> int:
    """How many events of a run are there: a single column is read. Raises as `stored_events`."""
    count = 0
    for part in _parts_of(traces, run_id):
        with _reading(part.events(traces)) as file:
            for batch in file.iter_batches(row_groups=_row_groups_of(file, run_id), columns=["run_id"]):
                count += compute.equal(batch.column(0), run_id).true_count
    return count


def _parts_of(traces: Path, run_id: int) -> list[PartName]:
    parts = [run.part for run in stored_runs(traces) if run.row["run_id"] == run_id]
    if not parts:
        raise NoSuchRun(f"{traces} holds no run {run_id}")
    return parts


def _row_groups_of(file: parquet.ParquetFile, run_id: int) -> list[int]:
    """Those that may have events of a run, as far as the file tells."""
    column = file.schema.names.index("run_id")
    found = []
    for number in range(file.num_row_groups):
        told = file.metadata.row_group(number).column(column).statistics
        if told is None or not told.has_min_max or told.min <= run_id <= told.max:
            found.append(number)
    return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[parquet.ParquetFile]:
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's own, which names the file
            raise
        raise OSError(f"{path}: not the Parquet file that its manifest promises: {error}") from error
