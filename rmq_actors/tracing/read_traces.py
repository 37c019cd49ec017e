"""Reading traces without Spark: which runs there are, and the events of one of them."""

from __future__ import annotations

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
        found += [StoredRun(part, row) for row in _table(part.runs(traces)).to_pylist()]
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
    parts = [run.part for run in stored_runs(traces) if run.row["run_id"] == run_id]
    if not parts:
        raise NoSuchRun(f"{traces} holds no run {run_id}")
    wanted = (compute.field("run_id") == run_id) & (compute.field("seq") >= first_seq)
    if last_seq is not None:
        wanted &= compute.field("seq") <= last_seq
    if kinds:
        wanted &= compute.field("kind").isin(sorted(kinds))
    if nodes:
        wanted &= compute.field("node").isin(sorted(nodes))
    for part in parts:
        for batch in _table(part.events(traces), wanted).to_batches(_BATCH_EVENTS):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield {name: value for name, value in row.items() if value is not None}


def _table(path: Path, wanted: compute.Expression | None = None) -> pa.Table:
    try:
        # Without partitioning: what the directories' names say would come as further columns.
        return parquet.read_table(path, filters=wanted, partitioning=None)
    except pa.ArrowInvalid as error:
        raise OSError(f"{path}: not the Parquet file that its manifest promises: {error}") from error
