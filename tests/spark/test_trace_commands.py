"""`rmq-actors trace`: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from rmq_actors.analysis.analyze import TABLES
from rmq_actors.analysis.session import JavaMissing, check_java
from rmq_actors.cli.trace import trace_app
from rmq_actors.tracing.manifest import PartName
from rmq_actors.tracing.spool import TraceWriter
from tests.worlds.trace_story import Story, run_of

PART = PartName("tests", "handmade", 0, 0)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace_app, [str(argument) for argument in arguments])


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    directory = tmp_path / "traces"
    with TraceWriter(directory, "tests", "handmade") as writer:
        for seed in range(2):
            writer.write_run(run_of(seed), Story().at(0, "", "run.start").events, outcome="passed")
    return directory


def test_help_says_what_it_needs() -> None:
    help_text = run("--help").output
    for command in ("analyze", "report", "recover", "schema"):
        assert command in help_text
    assert "Java 17" in help_text
    analyze_help = run("analyze", "--help").output
    assert "Exit code 1" in analyze_help
    for name in TABLES:
        assert name in analyze_help


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_no_such_directory(command: str, tmp_path: Path) -> None:
    ended = run(command, "--traces", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert ended.exit_code == 2
    assert f"rmq-actors trace {command}: {tmp_path}/nowhere: no such directory" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_damaged_traces_are_a_failed_check(traces: Path, tmp_path: Path) -> None:
    path = PART.events(traces)
    path.write_bytes(path.read_bytes()[:-50])
    ended = run("analyze", "--traces", traces, "--out", tmp_path / "out")
    assert ended.exit_code == 1
    assert f"{path}: truncated" in ended.stderr


def test_an_unknown_table(traces: Path, tmp_path: Path) -> None:
    ended = run("analyze", "--traces", traces, "--out", tmp_path / "out", "--only", "nope")
    assert ended.exit_code == 2
    assert "no table is called 'nope'; there are run_summary, " in ended.stderr


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_no_java(command: str, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ended = run(command, "--traces", traces, "--out", tmp_path / "out")
    assert ended.exit_code == 2
    assert f"rmq-actors trace {command}: Java 17 or later is needed for the analysis: JAVA_HOME=" in ended.stderr


def test_demo_facts_are_looked_at_first(traces: Path, tmp_path: Path) -> None:
    facts = tmp_path / "demo.json"
    facts.write_text('{"replication": {"messages": 1}}')
    ended = run("report", "--traces", traces, "--out", tmp_path / "out", "--demo-json", facts)
    assert ended.exit_code == 2
    assert f"{facts}: replication: bytes is missing" in ended.stderr
    ended = run("report", "--traces", traces, "--out", tmp_path / "out", "--demo-json", tmp_path / "none.json")
    assert ended.exit_code == 2
    assert "none.json" in ended.stderr


def test_missing_options_are_a_usage_error() -> None:
    assert run("analyze").exit_code == 2
    assert run("report", "--traces", "x").exit_code == 2


def test_recover(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "handmade", buffer_events_max=2)
    live = writer.open_run(run_of(4))
    for event in Story().at(0, "", "run.start").at(1, "", "run.end", status="passed").events:
        live(event)
    assert "a running process is writing it" in run("recover", tmp_path).stdout
    assert writer._spool is not None
    writer._spool.close()
    ended = run("recover", tmp_path, "--json")
    assert ended.exit_code == 0
    (row,) = json.loads(ended.stdout)
    assert (row["events"], row["runs"], row["incomplete_seeds"], row["unread_bytes"]) == (2, 1, [4], 0)
    assert row["note"] == "recovered"
    assert run("recover", tmp_path).stdout == f"{tmp_path}: nothing was left over\n"


def test_recover_reports_what_it_cannot_read(tmp_path: Path) -> None:
    spool = PART.spool(tmp_path)
    spool.parent.mkdir(parents=True)
    spool.write_bytes(b"?" * 100)
    ended = run("recover", tmp_path)
    assert ended.exit_code == 1
    assert "left in place" in ended.stdout
    assert str(spool) in ended.stdout


def test_recover_without_traces(tmp_path: Path) -> None:
    ended = run("recover", tmp_path)
    assert ended.exit_code == 2
    assert "v1: no such directory" in ended.stderr


def test_the_schema_is_markdown() -> None:
    ended = run("schema")
    assert ended.exit_code == 0
    assert ended.stdout.startswith("### Columns\n")


def test_commands_do_not_import_spark_before_they_need_it() -> None:
    code = (
        "import sys; import rmq_actors.cli.trace; sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_report_from_end_to_end(traces: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user starts it: with a session of its own, and warnings as errors."""
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    out = tmp_path / "out"
    program = "from rmq_actors.cli.trace import trace_app; trace_app()"
    command = [sys.executable, "-W", "error", "-c", program]
    command += ["report", "--traces", str(traces), "--out", str(out), "--master", "local[1]", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert (document["runs"], document["events"]) == (2, 2)
    assert document["page"] == str(out / "report.html")
    assert {table["table"]: table["rows"] for table in document["tables"]} == dict.fromkeys(TABLES, 0) | {
        "run_summary": 2
    }
    assert pq.read_table(out / "tables" / "run_summary").num_rows == 2
    assert "All 2 runs passed" in (out / "report.html").read_text()
    assert "WARN" not in ended.stderr
