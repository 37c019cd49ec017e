"""`rmq-actors trace show`: the runs of traces, and the events of one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyarrow import compute, parquet
from typer.testing import CliRunner, Result

from rmq_actors.cli.trace import trace_app
from rmq_actors.testing.campaign import write_trace
from rmq_actors.testing.scenarios import RunResult, random_case, run_case
from rmq_actors.tracing.event import COLUMNS, RUN_COLUMNS, Event
from rmq_actors.tracing.manifest import PartName
from rmq_actors.tracing.read_traces import stored_events
from rmq_actors.tracing.spool import TraceWriter

PART = PartName("chaos", "replication", 0, 0)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(random_case(seed)) for seed in (1, 2)]


@pytest.fixture
def traces(results: Sequence[RunResult], tmp_path: Path) -> Path:
    with TraceWriter(tmp_path, PART.campaign, PART.scenario) as writer:
        for result in results:
            write_trace(writer, result)
    return tmp_path


def show(traces: Path, *arguments: object) -> Result:
    return CliRunner().invoke(trace_app, ["show", "--traces", str(traces), *map(str, arguments)])


def objects(traces: Path, *arguments: object) -> list[dict[str, object]]:
    ended = show(traces, *arguments, "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def columns(event: Event) -> dict[str, object]:
    names = [column.name for column in COLUMNS if column.name not in {*RUN_COLUMNS, "attrs"}]
    found = {name: value for name in names if (value := getattr(event, name)) is not None}
    return found | ({"attrs": dict(event.attrs)} if event.attrs else {})


def test_its_runs(traces: Path, results: Sequence[RunResult]) -> None:
    assert [(run["run_id"], run["seed"], run["outcome"], run["event_count"]) for run in objects(traces)] == [
        (result.run.run_id, result.case.seed, "passed", len(result.events)) for result in results
    ]
    header, *rows = show(traces).stdout.splitlines()
    assert header.split()[:4] == ["run_id", "campaign", "scenario", "seed"]
    assert len(rows) == len(results)


def test_a_runs_events_are_those_that_were_written(traces: Path, results: Sequence[RunResult]) -> None:
    for result in results:
        shown = objects(traces, "--run", result.run.run_id)
        stripped = [{name: value for name, value in each.items() if name not in RUN_COLUMNS} for each in shown]
        assert stripped == [columns(event) for event in result.events]


def test_some_events(traces: Path, results: Sequence[RunResult]) -> None:
    run, events = results[0].run.run_id, results[0].events
    kinds, node = ("put.begin", "log.append"), events[-1].node
    wanted = [event.seq for event in events if event.kind in kinds and 40 <= event.seq <= 400]
    given = ("--run", run, "--kind", kinds[0], "--kind", kinds[1], "--first", 40, "--last", 400)
    assert [event["seq"] for event in objects(traces, *given)] == wanted != []
    of_node = [event.seq for event in events if event.node == node]
    assert [event["seq"] for event in objects(traces, "--run", run, "--node", node)] == of_node != []


def test_a_line_tells_what_an_event_tells(traces: Path, results: Sequence[RunResult]) -> None:
    event = next(event for event in results[0].events if event.kind == "log.append")
    ended = show(traces, "--run", results[0].run.run_id, "--first", event.seq, "--last", event.seq)
    (line,) = ended.stdout.splitlines()
    assert line.split()[0] == str(event.seq)
    assert f" {event.node} " in line
    assert " log.append " in line
    assert f" offset={event.offset} " in f"{line} "


def test_what_is_not_there(traces: Path, tmp_path: Path) -> None:
    ended = show(traces, "--run", 77)
    assert (ended.exit_code, ended.stderr) == (2, f"rmq-actors trace show: {traces} holds no run 77\n")
    ended = show(tmp_path / "nowhere")
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"rmq-actors trace show: {tmp_path / 'nowhere'} holds no traces")


def test_what_chooses_events_needs_a_run(traces: Path) -> None:
    for arguments in (("--kind", "put.begin"), ("--node", "master"), ("--first", 1), ("--last", 0)):
        ended = show(traces, *arguments)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert "--run" in ended.stderr


def test_a_number_that_no_event_can_have(traces: Path, results: Sequence[RunResult]) -> None:
    ended = show(traces, "--run", results[0].run.run_id, "--last", 1 << 64)
    assert ended.exit_code == 2
    assert "--last" in ended.stderr


def test_a_reader_that_has_seen_enough_ends_it_silently(
    traces: Path, results: Sequence[RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = typer.echo

    def echo_into_a_broken_pipe(text: str, *, err: bool = False) -> None:
        if not err:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        echo(text, err=True)

    monkeypatch.setattr(typer, "echo", echo_into_a_broken_pipe)
    ended = show(traces, "--run", results[0].run.run_id)
    assert (ended.exit_code, ended.stderr) == (1, "")


def test_a_long_run_is_read_piece_by_piece(traces: Path, results: Sequence[RunResult]) -> None:
    path, run_id = PART.events(traces), results[0].run.run_id
    one = parquet.read_table(path, partitioning=None).filter(compute.field("run_id") == run_id)
    copies = 100_000 // len(one)
    with parquet.ParquetWriter(path, one.schema) as file:
        for _ in range(copies):
            file.write_table(one)
    before = pa.total_allocated_bytes()
    events = stored_events(traces, run_id)
    next(events)
    held = pa.total_allocated_bytes() - before
    assert held < len(one) * copies * 60  # of about 200 bytes each
    assert sum(1 for _ in events) == len(one) * copies - 1


def test_a_file_that_is_cut_is_named(traces: Path, results: Sequence[RunResult]) -> None:
    path = PART.events(traces)
    path.write_bytes(path.read_bytes()[:-50])
    ended = show(traces, "--run", results[0].run.run_id)
    assert ended.exit_code == 2
    assert f"{path}: not the Parquet file that its manifest promises" in ended.stderr
    path.unlink()
    assert str(path) in show(traces, "--run", results[0].run.run_id).stderr


def test_a_file_that_has_rotten_is_named(traces: Path, results: Sequence[RunResult]) -> None:
    path = PART.events(traces)
    whole = path.read_bytes()
    rotten = bytes(byte ^ 0x5A for byte in whole[2000:2400])
    path.write_bytes(whole[:2000] + rotten + whole[2400:])
    ended = show(traces, "--run", results[0].run.run_id)
    assert ended.exit_code == 2
    assert f"{path}: not the Parquet file that its manifest promises" in ended.stderr
