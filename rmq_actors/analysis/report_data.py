"""What the page shows, taken from the result tables: small enough to hold, and no Spark any more."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from rmq_actors.tracing.manifest import OUTCOME_INCOMPLETE, OUTCOME_PASSED

#: `caught`: the run failed because a bug was planted in it, as it should.
Result = Literal["passed", "failed", "caught", "incomplete"]

_LAG_RUNS = 4
_RUN_COLUMNS = [
    "run_id", "campaign", "scenario", "seed", "source", "outcome", "git_revision", "faults_scheduled", "faults_fired",
    "faults_observed", "invariants_broken", "events", "virtual_s", "wall_s", "puts_begun", "puts_unanswered",
    "acked_puts", "acked_bytes", "config",
]  # fmt: skip


@attrs.frozen
class RunRow:
    """One run. Durations in seconds, sizes in bytes; `lag_bytes_max` and `p99_ms` are None where there is none.

    More than 20 fields because they are the columns of a table of the report.
    """

    run_id: int
    campaign: str
    scenario: str
    seed: int
    source: str
    outcome: str
    git_revision: str
    faults_scheduled: Sequence[str]
    faults_fired: Mapping[str, int]
    faults_observed: Mapping[str, int]
    invariants_broken: Sequence[str]
    events: int
    virtual_s: float | None
    wall_s: float | None
    puts_begun: int
    puts_unanswered: int
    acked_puts: int
    acked_bytes: int
    planted_bug: str | None = None
    lag_bytes_max: int | None = None
    p99_ms: float | None = None

    @property
    def is_real(self) -> bool:
        """Whether real brokers left it."""
        return self.source == "broker"

    @property
    def result(self) -> Result:
        """Its outcome, reduced to four."""
        if self.outcome == OUTCOME_PASSED:
            return "passed"
        if self.outcome == OUTCOME_INCOMPLETE:
            return "incomplete"
        return "failed" if self.planted_bug is None else "caught"

    @property
    def duration_s(self) -> float | None:
        """How long it took, on its own clock."""
        return self.wall_s if self.virtual_s is None else self.virtual_s


@attrs.frozen
class LagSeries:
    """The lag of one slave, bucket by bucket without a gap: the largest value of each, in bytes."""

    slave: str
    first_ms: float
    bucket_ms: float
    lag_bytes: Sequence[int]


@attrs.frozen
class FaultInterval:
    """When a fault was in effect, in ms since the start of its run; no end: until the run's end."""

    kind: str
    begin_ms: float
    end_ms: float | None


@attrs.frozen
class LagOfRun:
    """What the lag plot of one run needs, and why this run was chosen."""

    run: RunRow
    why: str
    series: Sequence[LagSeries]
    faults: Sequence[FaultInterval]


@attrs.frozen
class LatencyBucket:
    """A bar of the histogram."""

    lower_ms: float
    upper_ms: float
    puts: Mapping[str, int]


@attrs.frozen
class LatencyOfScenario:
    """The answers to the puts of a scenario; quantiles are of those with PUT_OK, None if there are none."""

    scenario: str
    is_real: bool
    puts: Mapping[str, int]
    buckets: Sequence[LatencyBucket]
    p50_ms: float | None
    p99_ms: float | None


@attrs.frozen
class ReportData:
    """All of it."""

    runs: Sequence[RunRow]
    lags: Sequence[LagOfRun]
    latencies: Sequence[LatencyOfScenario]

    def by_result(self, result: Result) -> list[RunRow]:
        """The runs with a result."""
        return [run for run in self.runs if run.result == result]

    @property
    def judged_runs(self) -> Sequence[RunRow]:
        """The runs that the product is judged by: those with a planted bug are left out, unless all have one."""
        return [run for run in self.runs if run.planted_bug is None] or self.runs

    @property
    def sim_runs(self) -> list[RunRow]:
        """The simulated ones of `judged_runs`."""
        return [run for run in self.judged_runs if not run.is_real]

    @property
    def real_runs(self) -> list[RunRow]:
        """The runs of real brokers."""
        return [run for run in self.runs if run.is_real]

    @property
    def planted_runs(self) -> list[RunRow]:
        """The runs with a planted bug."""
        return [run for run in self.runs if run.planted_bug is not None]

    @classmethod
    def read(cls, tables: Path) -> ReportData:
        """Read the tables below a directory. Raises `OSError` for one that is missing."""
        peaks = _peaks(parquet.read_table(tables / "replication_lag", columns=["run_id", "lag_bytes_max"]))
        p99 = _p99(parquet.read_table(tables / "put_latency", columns=["run_id", "status", "p99_ms"]))
        rows = parquet.read_table(tables / "run_summary", columns=_RUN_COLUMNS).to_pylist(maps_as_pydicts="strict")
        runs = [
            RunRow(
                **{name: value for name, value in row.items() if name != "config"},
                planted_bug=_planted_bug(row["config"]),
                lag_bytes_max=peaks.get(row["run_id"]),
                p99_ms=p99.get(row["run_id"]),
            )
            for row in rows
        ]
        runs.sort(key=lambda run: (not run.is_real, run.campaign, run.scenario, run.seed, run.run_id))
        chosen = _choose(runs)
        return cls(runs, _lags(tables, chosen), _latencies(tables, runs))


def _planted_bug(config: str) -> str | None:
    """The bug that was planted in a run, which its config then names: {"parameters": {"planted_bug": ...}}."""
    try:
        bug = json.loads(config).get("parameters", {}).get("planted_bug")
    except (ValueError, AttributeError):
        # A config is whatever its writer wanted: one of another shape plants nothing.
        return None
    return None if bug is None else str(bug)


def _peaks(table: pa.Table) -> dict[int, int]:
    grouped = table.group_by("run_id").aggregate([("lag_bytes_max", "max")])
    return dict(zip(grouped["run_id"].to_pylist(), grouped["lag_bytes_max_max"].to_pylist(), strict=True))


def _p99(table: pa.Table) -> dict[int, float]:
    confirmed = table.filter(pc.field("status") == "PUT_OK")
    return dict(zip(confirmed["run_id"].to_pylist(), confirmed["p99_ms"].to_pylist(), strict=True))


def _choose(runs: Iterable[RunRow]) -> list[tuple[RunRow, str]]:
    """A few runs that are worth a lag plot, with the reason."""
    with_lag = [run for run in runs if run.lag_bytes_max is not None]
    chosen: dict[int, tuple[RunRow, str]] = {}

    def take(candidates: list[RunRow], why: str) -> None:
        for run in candidates:
            if run.run_id not in chosen:
                chosen[run.run_id] = (run, why)
                return

    real = [run for run in with_lag if run.is_real]
    take(sorted(real, key=lambda run: -run.events), "real brokers")
    simulated = [run for run in with_lag if not run.is_real]
    take([run for run in simulated if run.result == "failed"], "the first that failed")
    take([run for run in simulated if run.result == "caught"], "with the planted bug")
    passed = [run for run in simulated if run.result == "passed"]
    take(sorted(passed, key=lambda run: -(run.lag_bytes_max or 0)), "the largest lag of those that passed")
    take(sorted(passed, key=lambda run: -len(run.faults_fired)), "the most kinds of fault")
    if len(simulated) == 1 and simulated[0].planted_bug is None:
        # Not chosen: it is all there is.
        chosen[simulated[0].run_id] = (simulated[0], "")
    while len(chosen) < _LAG_RUNS and len(chosen) < len(with_lag):
        take(simulated, "one of the others")
        if all(run.run_id in chosen for run in simulated):
            break
    return list(chosen.values())


def _lags(tables: Path, chosen: Sequence[tuple[RunRow, str]]) -> list[LagOfRun]:
    ids = pa.array([run.run_id for run, _ in chosen], pa.int64())
    of_chosen = pc.field("run_id").isin(ids)
    lags = parquet.read_table(tables / "replication_lag", filters=of_chosen).sort_by(
        [("run_id", "ascending"), ("slave", "ascending"), ("bucket", "ascending")]
    )
    series: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for row in lags.to_pylist():
        series.setdefault(row["run_id"], {}).setdefault(row["slave"], []).append(row)
    faults: dict[int, list[FaultInterval]] = {}
    for row in parquet.read_table(tables / "fault_intervals", filters=of_chosen).to_pylist():
        interval = FaultInterval(row["fault_kind"], row["begin_ms"], row["end_ms"])
        faults.setdefault(row["run_id"], []).append(interval)
    return [
        LagOfRun(
            run,
            why,
            [
                LagSeries(slave, rows[0]["begin_ms"], rows[0]["bucket_ms"], [row["lag_bytes_max"] for row in rows])
                for slave, rows in series[run.run_id].items()
            ],
            sorted(faults.get(run.run_id, []), key=lambda fault: (fault.begin_ms, fault.kind)),
        )
        for run, why in chosen
    ]


def _latencies(tables: Path, runs: Iterable[RunRow]) -> list[LatencyOfScenario]:
    real = {(run.campaign, run.scenario) for run in runs if run.is_real}
    quantiles = {
        (row["campaign"], row["scenario"]): (row["p50_ms"], row["p99_ms"])
        for row in parquet.read_table(tables / "put_latency_by_scenario").to_pylist()
        if row["status"] == "PUT_OK"
    }
    buckets: dict[tuple[str, str], dict[tuple[float, float], Counter[str]]] = {}
    for row in parquet.read_table(tables / "put_latency_histogram").to_pylist():
        of_scenario = buckets.setdefault((row["campaign"], row["scenario"]), {})
        of_scenario.setdefault((row["lower_ms"], row["upper_ms"]), Counter())[row["status"]] += row["puts"]
    # What a broken broker takes says nothing, unless it is all there is.
    sound = {(run.campaign, run.scenario) for run in runs if run.planted_bug is None} or set(buckets)
    found = [
        LatencyOfScenario(
            key[1],
            key in real,
            sum(of_scenario.values(), Counter()),
            [LatencyBucket(*bounds, of_scenario[bounds]) for bounds in sorted(of_scenario)],
            *quantiles.get(key, (None, None)),
        )
        for key, of_scenario in buckets.items()
        if key in sound
    ]
    return sorted(found, key=lambda each: (not each.is_real, -sum(each.puts.values()), each.scenario))
