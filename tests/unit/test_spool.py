"""Traces on disk: what is written comes back, a crash at any point loses at most the last batch."""

from __future__ import annotations

import errno
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rmq_actors.tracing import spool as spool_module
from rmq_actors.tracing.event import COLUMNS, Event, RunInfo, attribute
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import FaultBegin
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.tracing.manifest import ManifestError, PartManifest, PartName, check_name, read_manifests
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.tracing.spool import (
    EVENTS_SCHEMA,
    TraceValueError,
    TraceWriter,
    TraceWriterMisuse,
    record_batch,
    recover,
)


class Everything(Event, kind="test_spool.everything", actor="CommitLog"):
    """A kind of a program's own: it has every column, and attributes."""

    status: str
    state_from: str
    state_to: str
    task: int
    parent_seq: int
    link_id: int
    conn_id: int
    conn_dir: int
    offset: int
    size: int
    msg_id: int
    msg_id_last: int
    fault_id: int
    topic: str
    message_id: str
    lamport: int
    links: tuple[tuple[str, int], ...]
    detail: str
    more: int = attribute("test.more")
    nothing: str | None = None


VALUES: Mapping[str, Any] = {
    "status": "s",
    "state_from": "a",
    "state_to": "b",
    "task": 1,
    "parent_seq": 2,
    "link_id": 3,
    "conn_id": 4,
    "conn_dir": 1,
    "offset": 1 << 40,
    "size": 100,
    "msg_id": 9,
    "msg_id_last": 11,
    "fault_id": 0,
    "topic": "T",
    "message_id": "AC11",
    "lamport": 6,
    "links": (("slave", 3), ("client", 4)),
}


def full(**other: Any) -> Event:
    return Everything(**{**VALUES, "detail": "x", "more": 8, **other})


def run_of(seed: int, scenario: str = "replication") -> RunInfo:
    return RunInfo("tests", scenario, seed, config='{"puts": 1}', git_revision="abc")


def events_of(count: int, *, fault: str | None = None) -> list[Event]:
    ticks = itertools.count()
    recorder = Recorder(run_of(0), lambda: (10 * (tick := next(ticks)), 1000 + tick))
    for _ in range(count):
        recorder.record(LogAppend(offset=0, size=1), "master")
    if fault is not None:
        recorder.record(FaultBegin(fault_id=0, fault_kind=fault, nodes=""))
    return recorder.events


def read_events(traces: Path) -> pa.Table:
    return pa.concat_tables(
        parquet.ParquetFile(path).read()
        for path in sorted((traces / "v1").glob("campaign=*/scenario=*/part-*.parquet"))
    )


def read_runs(traces: Path) -> list[dict[str, object]]:
    paths = sorted((traces / "v1-runs").glob("campaign=*/scenario=*/part-*.parquet"))
    return [row for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]


def only_spool(traces: Path) -> Path:
    (path,) = traces.glob("v1/campaign=*/scenario=*/.part-*.arrows.inprogress")
    return path


def test_every_column_comes_back(tmp_path: Path) -> None:
    run = run_of(3)
    with TraceWriter(tmp_path, "tests", "replication") as writer:
        recorder = Recorder(run, lambda: (5, 7))
        recorder.record(NodeBoot(), "master")
        recorder.record(full(), "master")
        writer.write_run(run, recorder.events[1:], outcome="passed")
    (row,) = read_events(tmp_path).to_pylist(maps_as_pydicts="strict")
    assert row == {
        **VALUES,
        "run_id": run.run_id,
        "seed": 3,
        "schema_version": 2,
        "seq": 1,
        "sim_time_ns": 5,
        "wall_time_ns": 7,
        "node": "master",
        "life": 1,
        "actor": "CommitLog",
        "kind": "test_spool.everything",
        "links": [{"node": "slave", "seq": 3}, {"node": "client", "seq": 4}],
        "attrs": {"detail": "x", "test.more": "8"},
    }
    assert list(row) == [column.name for column in COLUMNS]


def test_the_runs_table_has_a_row_a_run(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication") as writer:
        writer.write_run(run_of(1), events_of(3, fault="Kill"), outcome="passed")
        writer.write_run(run_of(2), events_of(2), outcome="invariant", fault_kinds=["Stall", "Delay", "Stall"])
        writer.write_run(run_of(3), [], outcome="passed")
    first, second, third = read_runs(tmp_path)
    assert first == {
        "run_id": run_of(1).run_id,
        "seed": 1,
        "config": '{"puts": 1}',
        "git_revision": "abc",
        "outcome": "passed",
        "fault_kinds": ["Kill"],
        "event_count": 4,
        "source": "sim",
        "schema_version": 2,
    }
    assert (second["outcome"], second["fault_kinds"], second["event_count"]) == ("invariant", ["Delay", "Stall"], 2)
    assert (third["fault_kinds"], third["event_count"]) == ([], 0)
    (manifest,) = read_manifests(tmp_path)
    part = PartName("tests", "replication", 0, 0)
    sizes = (part.events(tmp_path).stat().st_size, part.runs(tmp_path).stat().st_size)
    assert manifest == PartManifest(part, events=6, size_bytes=sizes[0], runs=3, runs_size_bytes=sizes[1])


def test_names_that_cannot_stand_in_a_path_are_refused(tmp_path: Path) -> None:
    for name in ("", "a/b", "..", ".hidden", "_hidden", "a=b", "a b", "ä", "x" * 101):
        with pytest.raises(ManifestError, match="campaign"):
            TraceWriter(tmp_path, name, "replication")
        with pytest.raises(ManifestError, match="scenario"):
            TraceWriter(tmp_path, "tests", name)
    assert list(tmp_path.iterdir()) == []
    assert check_name("campaign", "Nightly-2026.11_x") == "Nightly-2026.11_x"
    with (
        TraceWriter(tmp_path, "tests", "replication") as writer,
        pytest.raises(ManifestError, match=r"outcome 'not ok'"),
    ):
        writer.write_run(run_of(1), [], outcome="not ok")


def test_a_part_is_rolled_between_runs_only(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication", part_size_bytes_max=1) as writer:
        for seed in range(3):
            writer.write_run(run_of(seed), events_of(10), outcome="passed")
        assert [manifest.part.number for manifest in writer.published] == [0, 1, 2]
    assert [manifest.events for manifest in read_manifests(tmp_path)] == [10, 10, 10]
    table = read_events(tmp_path)
    assert table["seed"].to_pylist() == [0] * 10 + [1] * 10 + [2] * 10


def test_only_finished_files_can_be_seen_by_spark(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "replication")
    writer.write_run(run_of(1), events_of(2), outcome="passed")
    assert all(path.name.startswith(".") for path in tmp_path.rglob("*") if path.is_file())
    writer.close()
    visible = [path for path in tmp_path.rglob("*") if path.is_file() and path.name[0] not in "._"]
    assert {path.suffix for path in visible} == {".parquet"}
    assert not [path for path in tmp_path.rglob("*") if "inprogress" in path.name]


def test_a_writer_without_runs_leaves_nothing(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_later_writer_takes_the_next_number(tmp_path: Path) -> None:
    for seed in range(2):
        with TraceWriter(tmp_path, "tests", "replication", worker=4) as writer:
            writer.write_run(run_of(seed), events_of(1), outcome="passed")
    assert [manifest.part.stem for manifest in read_manifests(tmp_path)] == ["part-4-0", "part-4-1"]


def test_writers_side_by_side_get_parts_of_their_own(tmp_path: Path) -> None:
    writers = [TraceWriter(tmp_path, "tests", "replication", worker=worker) for worker in (0, 0, 1)]
    for seed, writer in enumerate(writers):
        writer.write_run(run_of(seed), events_of(seed + 1), outcome="passed")
    for writer in reversed(writers):
        writer.close()
    manifests = {manifest.part.stem: manifest.events for manifest in read_manifests(tmp_path)}
    assert manifests == {"part-0-0": 1, "part-0-1": 2, "part-1-0": 3}


def test_a_live_run_is_written_buffer_by_buffer(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "replication", buffer_events_max=10)
    run = run_of(1)
    recorder = Recorder(run, lambda: (None, 123), keep=False)
    live = writer.open_run(run)
    recorder.subscribe(live)
    for _ in range(10):
        recorder.record(LogAppend(offset=0, size=1), "master")
    size = only_spool(tmp_path).stat().st_size
    for _ in range(9):
        recorder.record(LogAppend(offset=0, size=1), "master")
    assert only_spool(tmp_path).stat().st_size == size
    recorder.record(FaultBegin(fault_id=0, fault_kind="Kill", nodes="master"))
    assert only_spool(tmp_path).stat().st_size > size
    live.end("passed")
    writer.close()
    (row,) = read_runs(tmp_path)
    assert (row["outcome"], row["event_count"], row["fault_kinds"]) == ("passed", 20, ["Kill"])
    assert read_events(tmp_path)["seq"].to_pylist() == list(range(20))
    with pytest.raises(TraceWriterMisuse, match=r"log.append after the end of run replication seed 1"):
        recorder.record(LogAppend(offset=0, size=1), "master")


def test_a_run_still_open_at_close_is_incomplete(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication") as writer:
        live = writer.open_run(run_of(1))
        for event in events_of(5):
            live(event)
    (row,) = read_runs(tmp_path)
    assert (row["outcome"], row["event_count"]) == ("incomplete", 5)


def test_a_run_that_cannot_be_written_to_its_end_fails_by_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    writer = TraceWriter(tmp_path, "tests", "replication")
    live = writer.open_run(run_of(1))
    monkeypatch.setattr(spool_module._Spool, "write", full)
    with pytest.raises(OSError, match="no room"):
        live.end("passed")
    writer.close()


def test_misuse_is_named(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication") as writer:
        with pytest.raises(TraceWriterMisuse, match=r"a run of tests/other in the writer of tests/replication"):
            writer.open_run(run_of(1, "other"))
        live = writer.open_run(run_of(1))
        with pytest.raises(TraceWriterMisuse, match="run seed 1 of replication is still open"):
            writer.open_run(run_of(2))
        live.end("passed")
        with pytest.raises(TraceWriterMisuse, match="seed 1 has ended already"):
            live.end("passed")


def test_a_value_that_does_not_fit_names_its_column() -> None:
    event = full(size=1 << 31)
    with pytest.raises(TraceValueError, match=r"scenario replication seed 1: column size"):
        record_batch(run_of(1), [event])


def test_half_a_surrogate_pair_is_written_as_what_stands_for_it() -> None:
    """In every sort of column; what stands beside it stays."""
    event = full(topic="a\udc80", detail="\ud800b", links=(("\udcff", 1),))
    told = record_batch(run_of(1), [event, full(topic="é")]).to_pylist()
    assert [each["topic"] for each in told] == ["a\\udc80", "é"]
    assert dict(told[0]["attrs"])["detail"] == "\\ud800b"
    assert [(link["node"], link["seq"]) for link in told[0]["links"]] == [("\\udcff", 1)]


# Crashes.


@pytest.fixture
def left_over(tmp_path: Path) -> Path:
    """A traces directory with a spool of three runs, 30 events each, as a killed process leaves it."""
    writer = TraceWriter(tmp_path, "tests", "replication")
    for seed in range(3):
        writer.write_run(run_of(seed), events_of(30), outcome="passed")
    abandon(writer)
    return tmp_path


def abandon(writer: TraceWriter) -> None:
    spool = writer._spool
    assert spool is not None
    spool.close()


def test_a_left_over_spool_becomes_parquet(left_over: Path) -> None:
    (recovered,) = recover(left_over)
    assert recovered.published is not None
    assert (recovered.published.manifest.events, recovered.published.manifest.runs) == (90, 3)
    assert (recovered.published.incomplete, recovered.published.unread_bytes) == ((), 0)
    assert [row["outcome"] for row in read_runs(left_over)] == ["passed"] * 3
    assert not recovered.spool.exists()
    assert recover(left_over) == []


def test_a_spool_cut_anywhere_gives_back_its_whole_batches(left_over: Path) -> None:
    spool = only_spool(left_over)
    content = spool.read_bytes()
    seen = set()
    for size in (*range(0, len(content), 307), len(content)):
        spool.write_bytes(content[:size])
        (recovered,) = recover(left_over)
        if recovered.published is None:
            # Only a cut in the very first batch leaves something that is neither nothing nor events.
            assert recovered.is_failure is spool.exists()
            spool.unlink(missing_ok=True)
            continue
        runs = recovered.published.manifest.runs
        assert recovered.published.manifest.events == 30 * runs
        assert read_events(left_over).num_rows == 30 * runs
        assert [row["seed"] for row in read_runs(left_over)] == list(range(runs))
        seen.add(runs)
    assert seen == {1, 2, 3}


def test_the_last_run_of_a_cut_spool_is_marked_incomplete(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "replication", buffer_events_max=10)
    writer.write_run(run_of(1), events_of(5), outcome="passed")
    live = writer.open_run(run_of(2))
    for event in events_of(25):
        live(event)
    abandon(writer)
    (recovered,) = recover(tmp_path)
    assert recovered.published is not None
    assert recovered.published.incomplete == (run_of(2),)
    assert [(row["seed"], row["outcome"], row["event_count"]) for row in read_runs(tmp_path)] == [
        (1, "passed", 5),
        (2, "incomplete", 20),
    ]


@pytest.mark.parametrize("step", range(4))
def test_publishing_can_be_done_again_after_a_crash_at_any_step(
    left_over: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    part = PartName("tests", "replication", 0, 0)
    syncs = 0

    def crash(path: Path) -> None:
        nonlocal syncs
        if syncs == step:
            raise KeyboardInterrupt
        syncs += 1

    with monkeypatch.context() as patch:
        patch.setattr(spool_module, "sync_file", crash)
        patch.setattr(spool_module, "sync_directory", crash)
        with pytest.raises(KeyboardInterrupt):
            recover(left_over)
    assert only_spool(left_over).exists()
    assert not part.manifest(left_over).exists()
    (recovered,) = recover(left_over)
    assert recovered.published is not None
    assert PartManifest.read(part.manifest(left_over)) == recovered.published.manifest
    assert len(read_runs(left_over)) == 3
    assert not [path for path in left_over.rglob("*") if "inprogress" in path.name]


def test_a_spool_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "replication") as writer:
        writer.write_run(run_of(1), events_of(5), outcome="passed")
        (recovered,) = recover(tmp_path)
        assert recovered.published is None
        assert "a running process is writing it" in recovered.reason
        assert not recovered.is_failure
    assert len(read_runs(tmp_path)) == 1


def test_what_cannot_be_read_at_all_stays_and_is_reported(left_over: Path) -> None:
    spool = only_spool(left_over)
    spool.write_bytes(b"no arrow stream" * 1000)
    (recovered,) = recover(left_over)
    assert recovered.is_failure
    assert str(spool) in recovered.reason
    assert spool.exists()


def test_a_spool_that_gives_back_less_is_not_removed(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "replication")
    writer.write_run(run_of(1), events_of(50), outcome="passed")
    spool = only_spool(tmp_path)
    with spool.open("r+b") as file:
        file.truncate(spool.stat().st_size - 200)
    with pytest.raises(spool_module.TraceDamaged, match=r"50 events of 1 runs were written, 0 of 0 came back"):
        writer.close()
    assert spool.exists()


def test_a_failing_disk_is_no_torn_tail(left_over: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_source: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(pa.ipc, "open_stream", fail)
    with pytest.raises(OSError, match="Input/output error"):
        recover(left_over)
    assert only_spool(left_over).exists()


def test_no_traces_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/v1: no such directory"):
        recover(tmp_path / "nowhere")


KILLED = """
import os, signal, sys
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.tracing.spool import TraceWriter

run = RunInfo("tests", "replication", 1)
writer = TraceWriter(sys.argv[1], "tests", "replication", buffer_events_max=100)
recorder = Recorder(run, lambda: (1, 1), keep=False)
recorder.subscribe(writer.open_run(run))
for seq in range(1050):
    recorder.record(LogAppend(offset=seq, size=1), "master")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_one_buffer_at_most(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    recover(tmp_path)
    (row,) = read_runs(tmp_path)
    assert (row["outcome"], row["event_count"]) == ("incomplete", 1000)
    assert read_events(tmp_path)["seq"].to_pylist() == list(range(1000))


# Manifests.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a manifest"),
        ("[]", "not a manifest"),
        ("{}", "not a manifest: KeyError"),
        (
            json.dumps({"schema_version": 99, "events": 1, "size_bytes": 1, "runs": 1, "runs_size_bytes": 1}),
            "version 99",
        ),
        (
            json.dumps({"schema_version": 1, "events": -1, "size_bytes": 1, "runs": 1, "runs_size_bytes": 1}),
            "no number",
        ),
        (
            json.dumps({"schema_version": 1, "events": "1", "size_bytes": 1, "runs": 1, "runs_size_bytes": 1}),
            "no number",
        ),
    ],
)
def test_a_bad_manifest_is_named(left_over: Path, content: str, message: str) -> None:
    recover(left_over)
    path = PartName("tests", "replication", 0, 0).manifest(left_over)
    path.write_text(content)
    with pytest.raises(ManifestError, match=message) as caught:
        read_manifests(left_over)
    assert str(path) in str(caught.value)


def test_a_file_outside_of_the_layout_is_no_part() -> None:
    for path in ("part-0-0.parquet", "campaign=a/part-0-0.parquet", "campaign=a/scenario=b/other.parquet"):
        with pytest.raises(ManifestError, match="not campaign=C/scenario=S"):
            PartName.of(Path(path))


def test_the_schema_is_that_of_the_columns() -> None:
    assert EVENTS_SCHEMA.names == [column.name for column in COLUMNS]
    assert [field.nullable for field in EVENTS_SCHEMA] == [column.nullable for column in COLUMNS]
