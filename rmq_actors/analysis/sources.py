"""Reading traces: what the manifests promise is compared with what is there before anything is computed.

A file that is missing, cut or extra is named. Spark alone would skip a hidden spool, infer a schema from whichever file
comes first, or count what happens to be there.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import attrs
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from rmq_actors.analysis.schema import EVENTS_SCHEMA, RUNS_SCHEMA
from rmq_actors.tracing.manifest import (
    EVENTS_DIRECTORY,
    RUNS_DIRECTORY,
    ManifestError,
    PartManifest,
    read_manifests,
)


class TraceSourceError(ValueError):
    """There are no traces to read: no directory, no manifest, a place that this program cannot reach."""


class TraceCheckFailed(RuntimeError):
    """There are traces, but not the ones that the manifests promise."""


@attrs.frozen
class Traces:
    """Checked traces below `directory`: their manifests, and the sums of what they promise."""

    directory: Path
    manifests: tuple[PartManifest, ...]

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(manifest.events for manifest in self.manifests)

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(manifest.runs for manifest in self.manifests)

    @classmethod
    def find(cls, traces: str) -> Traces:
        """Look at a traces directory, a path or a file:// URI, without Spark.

        Raises `TraceSourceError`; `TraceCheckFailed` for files that are missing, cut, or in no manifest; `OSError`.
        """
        directory = local_path(traces)
        events = directory / EVENTS_DIRECTORY
        if not directory.is_dir():
            raise TraceSourceError(f"{directory}: no such directory")
        if not events.is_dir():
            raise TraceSourceError(f"{directory}: no traces: there is no {EVENTS_DIRECTORY}/ in it")
        try:
            manifests = tuple(read_manifests(directory))
        except ManifestError as error:
            raise TraceCheckFailed(str(error)) from error
        if not manifests:
            left_over = list(events.glob("campaign=*/scenario=*/.part-*.arrows.inprogress"))
            hint = f"; {len(left_over)} unfinished: run `rmq-actors trace recover {directory}`" if left_over else ""
            raise TraceSourceError(f"{events}: no manifest in it, so no published trace{hint}")
        found = cls(directory, manifests)
        found._check_files()
        return found

    def _check_files(self) -> None:
        for manifest in self.manifests:
            part = manifest.part
            _check_file(part.events(self.directory), manifest.size_bytes, manifest.events)
            _check_file(part.runs(self.directory), manifest.runs_size_bytes, manifest.runs)
        for kind in (EVENTS_DIRECTORY, RUNS_DIRECTORY):
            there = set((self.directory / kind).glob("**/[!._]*.parquet"))
            promised = {
                (part.events if kind == EVENTS_DIRECTORY else part.runs)(self.directory)
                for part in (manifest.part for manifest in self.manifests)
            }
            if there - promised:
                extra = ", ".join(str(path) for path in sorted(there - promised))
                raise TraceCheckFailed(f"in no manifest, so perhaps not whole: {extra}")
        self._check_run_ids()

    def _check_run_ids(self) -> None:
        seen: Counter[int] = Counter()
        for manifest in self.manifests:
            table = parquet.ParquetFile(manifest.part.runs(self.directory)).read(["run_id", "seed", "event_count"])
            seen.update(table["run_id"].to_pylist())
            twice = [row for row in table.to_pylist() if seen[row["run_id"]] > 1]
            if twice:
                raise TraceCheckFailed(
                    f"{manifest.part.events(self.directory)}: the run of seed {twice[0]['seed']} is there twice; "
                    "were the same seeds traced into this directory again?"
                )
            promised = sum(table["event_count"].to_pylist())
            if promised != manifest.events:
                raise TraceCheckFailed(
                    f"{manifest.part.runs(self.directory)}: its runs have {promised} events, "
                    f"the manifest says {manifest.events}"
                )

    def read_events(self, session: SparkSession) -> DataFrame:
        """The events, as `schema.EVENTS_SCHEMA`. Raises `TraceCheckFailed` if Spark sees another number."""
        frame = session.read.schema(EVENTS_SCHEMA).parquet(str(self.directory / EVENTS_DIRECTORY))
        _check_rows(frame, self.events, self.directory / EVENTS_DIRECTORY)
        return frame

    def read_runs(self, session: SparkSession) -> DataFrame:
        """The runs, as `schema.RUNS_SCHEMA`. Raises `TraceCheckFailed` if Spark sees another number."""
        frame = session.read.schema(RUNS_SCHEMA).parquet(str(self.directory / RUNS_DIRECTORY))
        _check_rows(frame, self.runs, self.directory / RUNS_DIRECTORY)
        return frame


def local_path(uri: str) -> Path:
    """The path that a path or file:// URI names. Raises `TraceSourceError` for other schemes."""
    parsed = urlparse(uri)
    if parsed.scheme in {"", "file"}:
        return Path(unquote(parsed.path) if parsed.scheme else uri)
    raise TraceSourceError(f"{uri}: only local paths and file:// can be read, not {parsed.scheme}://")


def _check_file(path: Path, size_bytes: int, rows: int) -> None:
    if not path.is_file():
        raise TraceCheckFailed(f"{path}: missing; its manifest promises {rows} rows")
    found_bytes = path.stat().st_size
    if found_bytes < size_bytes:
        raise TraceCheckFailed(f"{path}: truncated: {found_bytes} bytes, its manifest says {size_bytes}")
    try:
        found = parquet.read_metadata(path).num_rows
    except pa.ArrowInvalid as error:
        raise TraceCheckFailed(f"{path}: not readable as Parquet: {error}") from error
    if found != rows:
        raise TraceCheckFailed(f"{path}: {found} rows, its manifest says {rows}")


def _check_rows(frame: DataFrame, expected: int, where: Path) -> None:
    found = frame.count()
    if found != expected:
        raise TraceCheckFailed(f"{where}: Spark read {found} rows, the manifests say {expected}")
