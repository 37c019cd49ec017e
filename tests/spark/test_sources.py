"""What is wrong with a traces directory is said before, or while, it is read; and the whole of `analyze`."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rmq_actors.analysis import analyze as analyze_module
from rmq_actors.analysis.analyze import TABLES, UnknownTable, analyze, analyze_in
from rmq_actors.analysis.schema import EVENTS_SCHEMA, RUNS_SCHEMA
from rmq_actors.analysis.session import JavaMissing, check_java
from rmq_actors.analysis.sources import TraceCheckFailed, Traces, TraceSourceError, local_path
from rmq_actors.tracing.event import Event, RunInfo, attribute
from rmq_actors.tracing.manifest import RUNS_SCHEMA as ARROW_RUNS_SCHEMA
from rmq_actors.tracing.manifest import PartManifest, PartName
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.tracing.spool import EVENTS_SCHEMA as ARROW_SCHEMA
from rmq_actors.tracing.spool import TraceWriter
from tests.spark.conftest import Campaign
from tests.worlds.trace_story import Story, run_of

PART = PartName("tests", "handmade", 0, 0)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path, "tests", "handmade") as writer:
        for seed in range(3):
            story = Story().at(0, "", "run.start").at(seed, "", "run.end", status="passed")
            writer.write_run(run_of(seed), story.events, outcome="passed")
    return tmp_path


def rewrite(path: Path, table: pa.Table, traces: Path) -> None:
    """Write another table in a file's place, with a manifest that says the new size but the old counts."""
    pq.write_table(table, path)
    events, runs = PART.events(traces).stat().st_size, PART.runs(traces).stat().st_size
    promised = PartManifest.read(PART.manifest(traces))
    attrs.evolve(promised, size_bytes=events, runs_size_bytes=runs).write(traces)


def with_column(table: pa.Table, name: str, values: list[int]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), [values])


def test_whole_traces_are_found(traces: Path) -> None:
    for uri in (str(traces), traces.as_uri()):
        found = Traces.find(uri)
        assert (found.directory, found.runs, found.events) == (traces, 3, 6)


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(TraceSourceError, match=r"nowhere: no such directory"):
        Traces.find(str(tmp_path / "nowhere"))
    with pytest.raises(TraceSourceError, match=r"no traces: there is no v1/"):
        Traces.find(str(tmp_path))


def test_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(TraceSourceError, match=r"v1: no manifest in it, so no published trace$"):
        Traces.find(str(tmp_path))
    writer = TraceWriter(tmp_path, "tests", "handmade")
    writer.write_run(run_of(1), [], outcome="passed")
    with pytest.raises(TraceSourceError, match=r"1 unfinished: run `rmq-actors trace recover"):
        Traces.find(str(tmp_path))
    writer.close()


def test_places_that_cannot_be_reached() -> None:
    with pytest.raises(TraceSourceError, match=r"s3a://bucket/x: only local paths and file://"):
        local_path("s3a://bucket/x")
    assert local_path("file:///a%20b/c") == Path("/a b/c")
    assert local_path("a%20b") == Path("a%20b")


@pytest.mark.parametrize("of", [PartName.events, PartName.runs])
def test_a_truncated_file_is_named(traces: Path, of: object) -> None:
    assert callable(of)
    path: Path = of(PART, traces)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceCheckFailed, match=r"part-0-0.parquet: truncated: \d+ bytes, its manifest says \d+"):
        Traces.find(str(traces))


def test_a_damaged_file_is_named(traces: Path) -> None:
    path = PART.events(traces)
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(TraceCheckFailed, match=r"part-0-0.parquet: not readable as Parquet"):
        Traces.find(str(traces))


def test_a_missing_file_is_named(traces: Path) -> None:
    PART.events(traces).unlink()
    with pytest.raises(TraceCheckFailed, match=r"part-0-0.parquet: missing; its manifest promises 6 rows"):
        Traces.find(str(traces))


def test_a_file_in_no_manifest_is_named(traces: Path) -> None:
    PART.manifest(traces).rename(traces / "elsewhere")
    shutil.copy(PART.events(traces), PART.events(traces).with_name("part-0-1.parquet"))
    (traces / "elsewhere").rename(PART.manifest(traces))
    with pytest.raises(TraceCheckFailed, match=r"in no manifest, so perhaps not whole: .*part-0-1.parquet"):
        Traces.find(str(traces))


def test_other_rows_than_promised(traces: Path) -> None:
    path = PART.events(traces)
    rewrite(path, pq.ParquetFile(path).read().slice(0, 5), traces)
    with pytest.raises(TraceCheckFailed, match=r"part-0-0.parquet: 5 rows, its manifest says 6"):
        Traces.find(str(traces))


def test_runs_that_do_not_add_up(traces: Path) -> None:
    path = PART.runs(traces)
    rewrite(path, with_column(pq.ParquetFile(path).read(), "event_count", [2, 2, 3]), traces)
    with pytest.raises(TraceCheckFailed, match=r"its runs have 7 events, the manifest says 6"):
        Traces.find(str(traces))


def test_a_run_traced_twice_is_named(traces: Path) -> None:
    with TraceWriter(traces, "tests", "handmade") as writer:
        writer.write_run(run_of(2), [], outcome="passed")
    with pytest.raises(TraceCheckFailed, match=r"part-0-1.parquet: the run of seed 2 is there twice"):
        Traces.find(str(traces))


def test_a_manifest_of_another_version_is_named(traces: Path) -> None:
    path = PART.manifest(traces)
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 3'))
    with pytest.raises(TraceCheckFailed, match=r"schema version 3, this program reads 1, 2"):
        Traces.find(str(traces))


def test_what_vanishes_after_the_look_is_noticed_when_reading(spark: SparkSession, traces: Path) -> None:
    found = Traces.find(str(traces))
    table = pq.ParquetFile(PART.events(traces)).read()
    pq.write_table(table.slice(0, 4), PART.events(traces))
    with pytest.raises(TraceCheckFailed, match=r"v1: Spark read 4 rows, the manifests say 6"):
        found.read_events(spark)


def test_events_that_changed_runs_are_noticed(spark: SparkSession, traces: Path, tmp_path: Path) -> None:
    path = PART.events(traces)
    table = pq.ParquetFile(path).read()
    rewrite(path, with_column(table, "run_id", [run_of(0).run_id] * table.num_rows), traces)
    with pytest.raises(TraceCheckFailed, match=r"scenario handmade seed \d: \d events were read, its writer counted 2"):
        analyze_in(spark, Traces.find(str(traces)), tmp_path / "out", only=["run_summary"])


def test_spools_and_manifests_are_invisible_to_spark(spark: SparkSession, traces: Path) -> None:
    with TraceWriter(traces, "tests", "handmade", worker=1) as writer:
        writer.write_run(run_of(9), Story().at(0, "", "run.start").events, outcome="passed")
        assert spark.read.parquet(str(traces / "v1")).count() == 6


def test_spark_sees_every_column_and_the_partitions(spark: SparkSession, traces: Path) -> None:
    found = Traces.find(str(traces))
    events, runs = found.read_events(spark), found.read_runs(spark)
    assert events.columns == [*ARROW_SCHEMA.names, "campaign", "scenario"]
    assert [field.dataType for field in events.schema] == [field.dataType for field in EVENTS_SCHEMA]
    assert runs.columns == [*ARROW_RUNS_SCHEMA.names, "campaign", "scenario"]
    assert [field.dataType for field in runs.schema] == [field.dataType for field in RUNS_SCHEMA]
    assert {(row["campaign"], row["scenario"]) for row in events.collect()} == {("tests", "handmade")}


def test_a_name_that_looks_like_a_number_stays_a_name(spark: SparkSession, tmp_path: Path) -> None:
    run = RunInfo("007", "2026.10", 1)
    with TraceWriter(tmp_path, "007", "2026.10") as writer:
        writer.write_run(run, Story().at(0, "", "run.start").events, outcome="passed")
    row = Traces.find(str(tmp_path)).read_events(spark).first()
    assert row is not None
    assert (row["campaign"], row["scenario"]) == ("007", "2026.10")


def test_an_analysis_writes_every_table(campaign: Campaign) -> None:
    assert set(campaign.analysis.tables) == set(TABLES)
    for name, path in campaign.analysis.tables.items():
        assert path == campaign.out / "tables" / name
        (count,) = duckdb.execute(f"select count(*) from '{path}/*.parquet'").fetchall()[0]
        assert count == campaign.analysis.rows[name] > 0
    assert campaign.analysis.runs == len(campaign.events)
    assert campaign.analysis.events == sum(len(events) for events in campaign.events.values())


def test_tables_are_written_in_place_of_old_ones(spark: SparkSession, traces: Path, tmp_path: Path) -> None:
    out, steps = tmp_path / "out", []
    found = Traces.find(str(traces))
    for _ in range(2):
        analysis = analyze_in(
            spark,
            found,
            out,
            only=["run_summary"],
            progress=lambda what, done, total: steps.append((what, done, total)),
        )
    assert analysis.rows == {"run_summary": 3}
    assert [path.name for path in (out / "tables").iterdir()] == ["run_summary"]
    assert steps[:3] == [("reading traces", 1, 3), ("run_summary", 2, 3), ("done", 3, 3)]


def test_a_failed_job_leaves_the_old_table(
    spark: SparkSession, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    found = Traces.find(str(traces))
    analyze_in(spark, found, out, only=["run_summary"])

    def fail(inputs: analyze_module.Inputs) -> object:
        return inputs.runs.selectExpr("raise_error('broken on purpose')")

    monkeypatch.setattr(analyze_module, "TABLES", {"run_summary": fail})
    with pytest.raises(Exception, match="broken on purpose"):
        analyze_in(spark, found, out)
    assert pq.read_table(out / "tables" / "run_summary").num_rows == 3


def test_unknown_tables_are_named(traces: Path) -> None:
    with pytest.raises(UnknownTable, match=r"no table is called 'nope'; there are run_summary, "):
        analyze(str(traces), str(traces), only=["nope"])


# Java. These need none.


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, traces: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"^Java 17 or later is needed for the analysis: PATH has no java$"):
        analyze(str(traces), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"Java 17 or later is needed .*: JAVA_HOME=.* has no java"):
        check_java()


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "has Java 11"),
        ('java version "1.8.0_292"', "has Java 8"),
        ("what?", "`java -version` said 'what\\?'"),
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
    ],
)
def test_the_version_of_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, message: str | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if message is None:
        assert check_java() == str(java)
        return
    with pytest.raises(JavaMissing, match=message):
        check_java()


def test_traces_of_version_1_are_read_beside_new_ones(spark: SparkSession, tmp_path: Path) -> None:
    traces = shutil.copytree(Path(__file__).parents[1] / "traces_of_version_1", tmp_path / "traces")
    with TraceWriter(traces, "earlier", "handmade") as writer:
        story = Story().at(0, "a", "node.boot").at(1, "a", "store.open", offset=7, status="clean")
        writer.write_run(attrs.evolve(run_of(1), campaign="earlier"), story.events, outcome="passed")
    found = Traces.find(str(traces))
    events = found.read_events(spark)
    assert events.columns == [*ARROW_SCHEMA.names, "campaign", "scenario"]
    opened = events.where("kind = 'store.open'").select("schema_version", "life", "offset").collect()
    assert {(row["schema_version"], row["life"]) for row in opened} == {(1, None), (2, 1)}
    assert analyze_in(spark, found, tmp_path / "out").events == 402


class _JobDone(Event, kind="test_sources.job_done", emitter="tests"):
    """A kind of a program's own."""

    status: str
    job_name: str = attribute("test_sources.job")
    files: int
    took_s: float | None = None


def test_a_kind_of_ones_own_is_read_with_its_attributes(spark: SparkSession, tmp_path: Path) -> None:
    run = RunInfo("tests", "handmade", 1, source="broker")
    recorder = Recorder(run, lambda: (None, 1))
    recorder.record(_JobDone(status="ok", job_name="nightly", files=3), "a", "Jobs")
    recorder.record(_JobDone(status="failed", job_name="hourly", files=0, took_s=0.5), "a", "Jobs")
    with TraceWriter(tmp_path, "tests", "handmade") as writer:
        writer.write_run(run, recorder.events, outcome="passed")
    events = Traces.find(str(tmp_path)).read_events(spark).where("kind = 'test_sources.job_done'")
    assert [(row["actor"], row["status"], row["attrs"]) for row in events.orderBy("seq").collect()] == [
        ("Jobs", "ok", {"test_sources.job": "nightly", "files": "3"}),
        ("Jobs", "failed", {"test_sources.job": "hourly", "files": "0", "took_s": "0.5"}),
    ]
