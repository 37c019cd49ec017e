"""All jobs over a traces directory: what `rmq-actors trace analyze` and the demo call."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # PySpark's own name for it
from pyspark.storagelevel import StorageLevel

from rmq_actors.analysis.jobs.fault_intervals import fault_intervals
from rmq_actors.analysis.jobs.put_latency import put_latency, put_latency_by_scenario, put_latency_histogram, puts
from rmq_actors.analysis.jobs.replication_lag import replication_lag
from rmq_actors.analysis.jobs.run_summary import run_summary
from rmq_actors.analysis.session import DEFAULT_MASTER, open_session
from rmq_actors.analysis.sources import TraceCheckFailed, Traces, local_path

#: (what is being done, steps done, steps in all)
Progress = Callable[[str, int, int], object]


@attrs.frozen
class Inputs:
    """What the jobs start from."""

    events: DataFrame
    runs: DataFrame
    puts: DataFrame


#: Up to so many events the time goes into starting, not into computing.
_SHORT_WORK_EVENTS = 3_000_000

#: Every table by name: what `--only` takes.
TABLES: Mapping[str, Callable[[Inputs], DataFrame]] = {
    "run_summary": lambda inputs: run_summary(inputs.events, inputs.runs, inputs.puts),
    "replication_lag": lambda inputs: replication_lag(inputs.events),
    "fault_intervals": lambda inputs: fault_intervals(inputs.events),
    "put_latency": lambda inputs: put_latency(inputs.puts),
    "put_latency_by_scenario": lambda inputs: put_latency_by_scenario(inputs.puts),
    "put_latency_histogram": lambda inputs: put_latency_histogram(inputs.puts),
}


class UnknownTable(ValueError):
    """A table that no job makes; the message lists those there are."""


@attrs.frozen
class Analysis:
    """What was read, and what was written: rows by table, and where the tables are."""

    runs: int
    events: int
    tables: Mapping[str, Path]
    rows: Mapping[str, int]
    elapsed_s: float


def tables_directory(out: Path) -> Path:
    """Where the tables of an output directory are."""
    return out / "tables"


def analyze(
    traces: str,
    out: str,
    *,
    master: str = DEFAULT_MASTER,
    only: Collection[str] = (),
    progress: Progress = lambda _what, _done, _total: None,
) -> Analysis:
    """Read traces, run the jobs, write OUT/tables/<name>/ as Parquet, each in place of what was there.

    `traces` and `out` are paths or file:// URIs, `only` names some of `TABLES`. Blocks, and starts a Java process.
    Raises `UnknownTable`, `TraceSourceError`, `TraceCheckFailed`, `JavaMissing`, `SparkNotStarted`, `OSError`.
    """
    _check_tables(only)
    found, target = Traces.find(traces), local_path(out)
    progress("starting Spark", 0, _steps(only))
    with open_session(master, short=found.events <= _SHORT_WORK_EVENTS) as session:
        return analyze_in(session, found, target, only=only, progress=progress)


def analyze_in(
    session: SparkSession,
    traces: Traces,
    out: Path,
    *,
    only: Collection[str] = (),
    progress: Progress = lambda _what, _done, _total: None,
) -> Analysis:
    """`analyze`, in a session that is there already."""
    _check_tables(only)
    started = time.monotonic()
    chosen = [name for name in TABLES if not only or name in only]
    total = _steps(only)
    progress("reading traces", 1, total)
    events = traces.read_events(session)
    tables, rows = {}, {}
    with _persisted(puts(events)) as all_puts:
        inputs = Inputs(events, traces.read_runs(session), all_puts)
        for step, name in enumerate(chosen, start=2):
            progress(name, step, total)
            tables[name] = tables_directory(out) / name
            _replace_table(TABLES[name](inputs), tables[name])
            written = session.read.parquet(str(tables[name]))
            rows[name] = written.count()
            if name == "run_summary":
                _check_event_counts(written)
    progress("done", total, total)
    return Analysis(traces.runs, traces.events, tables, rows, time.monotonic() - started)


@contextlib.contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what a frame has found, until the block ends. After an interrupt Java is not asked to let it go."""
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    except Exception:
        frame.unpersist()
        raise
    frame.unpersist()


def _check_tables(only: Collection[str]) -> None:
    for name in only:
        if name not in TABLES:
            raise UnknownTable(f"no table is called {name!r}; there are {', '.join(TABLES)}")


def _steps(only: Collection[str]) -> int:
    return 2 + (len(set(only)) or len(TABLES))


def _replace_table(frame: DataFrame, target: Path) -> None:
    """Write a table beside the old one, then let it take its place: a failed job leaves the old one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
    for left_over in (fresh, old):
        if left_over.exists():
            shutil.rmtree(left_over)
    frame.write.parquet(str(fresh))
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    if old.exists():
        shutil.rmtree(old)


def _check_event_counts(summary: DataFrame) -> None:
    wrong = summary.where(F.col("events") != F.col("event_count")).select("scenario", "seed", "events", "event_count")
    first = wrong.first()
    if first is not None:
        raise TraceCheckFailed(
            f"scenario {first['scenario']} seed {first['seed']}: {first['events']} events were read, "
            f"its writer counted {first['event_count']}"
        )
