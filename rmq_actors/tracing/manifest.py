"""What lies where below a traces directory, and how a reader knows that it is whole.

    traces/v1/campaign=C/scenario=S/part-<worker>-<n>.parquet            events of many whole runs
    traces/v1/campaign=C/scenario=S/_part-<worker>-<n>.manifest.json     how many rows, bytes and runs that is
    traces/v1/campaign=C/scenario=S/.part-<worker>-<n>.arrows.inprogress a spool: being written, or left by a crash
    traces/v1-runs/campaign=C/scenario=S/part-<worker>-<n>.parquet       the runs table: one row for each of those runs

There is one manifest per part, written once and last: a part without one does not count as published. So several
processes share a directory without a lock, and nothing is ever merged. Names that begin with a dot or an underscore are
invisible to Spark, so `traces/v1` and `traces/v1-runs` can be read by anything that knows Hive partitions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import attrs
import pyarrow as pa

from rmq_actors.tracing.event import SCHEMA_VERSION, SCHEMA_VERSIONS_READ, RunInfo
from rmq_actors.tracing.path_names import why_no_path_name

EVENTS_DIRECTORY = "v1"
RUNS_DIRECTORY = "v1-runs"

#: The one good outcome; the others say what went wrong (`invariant`, `crash`, `liveness`, ...).
OUTCOME_PASSED = "passed"
#: The writer died, or was closed, before the run ended.
OUTCOME_INCOMPLETE = "incomplete"

_PART_FILE = re.compile(r"[._]?part-(?P<worker>\d+)-(?P<number>\d+)\.(?P<suffix>.+)")

RUNS_SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.int64(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("config", pa.string(), nullable=False),
        pa.field("git_revision", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("fault_kinds", pa.list_(pa.string()), nullable=False),
        pa.field("event_count", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("schema_version", pa.int16(), nullable=False),
    ]
)


class ManifestError(ValueError):
    """A manifest that cannot be understood, or a name that cannot stand in a path."""


def check_name(what: str, name: str) -> str:
    """Return `name` if it can be a directory's name and a partition value as it is; raise `ManifestError` if not."""
    if why := why_no_path_name(name):
        raise ManifestError(f"{what} {why}")
    return name


@attrs.frozen
class PartName:
    """The names of one part's files."""

    campaign: str
    scenario: str
    worker: int
    number: int

    @property
    def stem(self) -> str:
        """The name without prefix and suffix."""
        return f"part-{self.worker}-{self.number}"

    @property
    def partition(self) -> str:
        """The directories that stand for the campaign and the scenario."""
        return f"campaign={self.campaign}/scenario={self.scenario}"

    def events(self, traces: Path) -> Path:
        """The Parquet file of events."""
        return traces / EVENTS_DIRECTORY / self.partition / f"{self.stem}.parquet"

    def runs(self, traces: Path) -> Path:
        """The Parquet file of the runs table."""
        return traces / RUNS_DIRECTORY / self.partition / f"{self.stem}.parquet"

    def manifest(self, traces: Path) -> Path:
        """The manifest."""
        return traces / EVENTS_DIRECTORY / self.partition / f"_{self.stem}.manifest.json"

    def spool(self, traces: Path) -> Path:
        """The spool that the other three are made from."""
        return traces / EVENTS_DIRECTORY / self.partition / f".{self.stem}.arrows.inprogress"

    @classmethod
    def of(cls, path: Path) -> Self:
        """The part that a file below a traces directory belongs to. Raises `ManifestError`."""
        file = _PART_FILE.fullmatch(path.name)
        campaign, scenario = path.parent.parent.name, path.parent.name
        if not file or not campaign.startswith("campaign=") or not scenario.startswith("scenario="):
            raise ManifestError(f"{path}: not campaign=C/scenario=S/part-<worker>-<n>")
        return cls(
            check_name("campaign", campaign.removeprefix("campaign=")),
            check_name("scenario", scenario.removeprefix("scenario=")),
            int(file["worker"]),
            int(file["number"]),
        )


@attrs.frozen
class RunRecord:
    """A row of the runs table: a run, how it ended, and how much it left."""

    run: RunInfo
    outcome: str
    fault_kinds: tuple[str, ...]
    event_count: int

    def row(self) -> dict[str, Any]:
        """The values of `RUNS_SCHEMA`; campaign and scenario are the directory's."""
        return {
            "run_id": self.run.run_id,
            "seed": self.run.seed,
            "config": self.run.config,
            "git_revision": self.run.git_revision,
            "outcome": self.outcome,
            "fault_kinds": list(self.fault_kinds),
            "event_count": self.event_count,
            "source": self.run.source,
            "schema_version": SCHEMA_VERSION,
        }


def runs_table(records: Iterable[RunRecord]) -> pa.Table:
    """The runs table of some runs."""
    return pa.Table.from_pylist([record.row() for record in records], schema=RUNS_SCHEMA)


@attrs.frozen
class PartManifest:
    """What a part holds. Sizes are of the files, in bytes."""

    part: PartName
    events: int
    size_bytes: int
    runs: int
    runs_size_bytes: int

    def write(self, traces: Path) -> None:
        """Write it, all or nothing, durably."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "file": self.part.events(traces).name,
            "events": self.events,
            "size_bytes": self.size_bytes,
            "runs": self.runs,
            "runs_size_bytes": self.runs_size_bytes,
        }
        path = self.part.manifest(traces)
        temporary = path.with_name(f".{path.name}.inprogress")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read one. Raises `ManifestError` naming the file, `OSError`."""
        part = PartName.of(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            version = document["schema_version"]
            counts = [document[name] for name in ("events", "size_bytes", "runs", "runs_size_bytes")]
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"{path}: not a manifest: {error!r}") from error
        if version not in SCHEMA_VERSIONS_READ:
            readable = ", ".join(map(str, sorted(SCHEMA_VERSIONS_READ)))
            raise ManifestError(f"{path}: schema version {version}, this program reads {readable}")
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ManifestError(f"{path}: a count is no number from 0 up: {counts}")
        return cls(part, *counts)


def read_manifests(traces: Path) -> list[PartManifest]:
    """Every published part below a traces directory, in order of its name. Raises `ManifestError`, `OSError`."""
    found = (traces / EVENTS_DIRECTORY).glob("campaign=*/scenario=*/_part-*.manifest.json")
    return [PartManifest.read(path) for path in sorted(found)]


def part_numbers(traces: Path, campaign: str, scenario: str, worker: int) -> set[int]:
    """The numbers that a worker's parts have taken already, spools included."""
    directory = PartName(campaign, scenario, worker, 0).events(traces).parent
    matches = (_PART_FILE.fullmatch(path.name) for path in directory.iterdir())
    return {int(match["number"]) for match in matches if match and int(match["worker"]) == worker}


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    sync_file(path)
