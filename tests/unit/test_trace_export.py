"""`rmq-actors trace export`: a run's events for ShiViz and for Perfetto."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from rmq_actors.cli.trace import trace_app
from rmq_actors.testing.campaign import write_trace
from rmq_actors.testing.scenarios import SCENARIOS, RunResult, random_case, run_case
from rmq_actors.tracing import read_traces
from rmq_actors.tracing.event import COLUMNS, RUN_COLUMNS, Event
from rmq_actors.tracing.events import OWN_KINDS
from rmq_actors.tracing.events.ha import HaReport
from rmq_actors.tracing.events.store import LogAppend, PutBegin, PutEnd
from rmq_actors.tracing.export.causes import SENDS, Causes, addresses_of, line_of
from rmq_actors.tracing.export.perfetto import trace_entries
from rmq_actors.tracing.export.shiviz import PARSER
from rmq_actors.tracing.export.vector_clocks import came_before
from rmq_actors.tracing.spool import TraceWriter

_SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return [run_case(random_case(seed)) for seed in _SEEDS]


@pytest.fixture
def traces(results: Sequence[RunResult], tmp_path: Path) -> Path:
    with TraceWriter(tmp_path, "chaos", "replication") as writer:
        for result in results:
            write_trace(writer, result)
    return tmp_path


def export(traces: Path, *arguments: object) -> Result:
    return CliRunner().invoke(trace_app, ["export", "--traces", str(traces), *map(str, arguments)])


def exported(traces: Path, result: RunResult, name: str) -> str:
    ended = export(traces, "--run", result.run.run_id, "--format", name)
    assert (ended.exit_code, ended.stderr) == (0, "")
    return ended.stdout


def rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as they are read."""
    names = [column.name for column in COLUMNS if column.name not in {*RUN_COLUMNS, "attrs"}]
    found = []
    for event in events:
        row = {name: value for name in names if (value := getattr(event, name)) is not None}
        found.append(row | ({"attrs": event.attrs} if event.attrs else {}))
    return found


def cause_of(causes: Causes[tuple[str, int]], row: Mapping[str, Any]) -> tuple[str, int] | None:
    """The node and seq of the event that this one comes of."""
    if row["kind"] in SENDS:
        causes.sent(row, (row["node"], row["seq"]))
        return None
    return causes.cause(row)


def shiviz_events(log: str) -> dict[int, dict[str, Any]]:
    """What ShiViz makes of a log: its expression is JavaScript's, Python names groups otherwise."""
    parser, delimiter, body = log.split("\n", 2)
    assert (parser, delimiter) == (PARSER, "")
    found = re.finditer(parser.replace("(?<", "(?P<"), body)
    return {int(match["seq"]): {**match.groupdict(), "clock": json.loads(match["clock"])} for match in found}


def test_shiviz_accepts_the_log_of_a_run(traces: Path, results: Sequence[RunResult]) -> None:
    """What its ModelGraph asks: each event has its host's clock; that begins at 1 and grows by 1; no unknown hosts."""
    for result in results:
        events = shiviz_events(exported(traces, result, "shiviz"))
        assert list(events) == [event.seq for event in result.events]
        count = Counter[str]()
        lengths = Counter(event["host"] for event in events.values())
        for event in events.values():
            host, clock = event["host"], event["clock"]
            count[host] += 1
            assert clock[host] == count[host]
            assert all(1 <= time <= lengths[other] for other, time in clock.items())


def test_a_brokers_line_has_nothing_of_clients() -> None:
    """Those that have a node of their own are on its line."""
    kinds = set[str]()
    for name in ("operated", "strangers", "errands", "topics", "transactions", "produce-consume", "accounts"):
        scenario = SCENARIOS[name]
        for row in rows(run_case(scenario.case(1), scenario).events):
            if row["kind"].startswith("client."):
                kinds.add(row["kind"])
                is_of_broker = row["node"] in scenario.topology.names
                assert line_of(row) == (f"{row['node']}.clients" if is_of_broker else row["node"])
    assert kinds == {kind for kind in OWN_KINDS if kind.startswith("client.")}


def test_an_answer_that_waited_for_a_slave_comes_after_the_slaves_append(
    traces: Path, results: Sequence[RunResult]
) -> None:
    """All these runs have a SYNC_MASTER: PUT_OK says that a slave has the message."""
    looked = 0
    for result in results:
        assert "master_role" not in result.case.parameters  # SYNC_MASTER
        told = shiviz_events(exported(traces, result, "shiviz"))
        appends: list[LogAppend] = []
        for event in result.events:
            if isinstance(event, LogAppend) and event.node.startswith("slave"):
                appends.append(event)
            elif isinstance(event, PutEnd) and event.status == "PUT_OK":
                answer = told[event.seq]["clock"]
                have = [each for each in appends if each.offset < event.offset <= each.offset + each.size]
                assert any(came_before(told[each.seq]["clock"], each.node, answer) for each in have)
                looked += 1
    assert looked > 20


def test_in_a_simulated_run_all_that_slaves_said_and_were_given_is_linked(results: Sequence[RunResult]) -> None:
    for result in results:
        events = rows(result.events)
        causes = Causes[tuple[str, int]](addresses_of(events))
        for event in events:
            cause = cause_of(causes, event)
            if event["kind"] == "ha.report":
                assert cause is not None
                report = result.events[cause[1]]
                assert (report.kind, report.node, report.offset) == ("ha.client.report", cause[0], event["offset"])
            elif event["kind"] == "log.append" and event["node"] != "master":
                assert cause is not None
                transfer, end = result.events[cause[1]], event["offset"] + event["size"]
                assert (transfer.kind, transfer.node) == ("ha.transfer", "master")
                assert (transfer.offset or 0) < end <= (transfer.offset or 0) + (transfer.size or 0)
            elif cause is not None:
                assert event["kind"] == "client.send"


def test_slaves_do_not_come_after_each_others_appends(traces: Path, results: Sequence[RunResult]) -> None:
    events = shiviz_events(exported(traces, results[0], "shiviz"))
    appends = {
        name: [each for each in events.values() if each["event"].startswith("log.append") and each["host"] == name]
        for name in ("slave-1", "slave-2")
    }
    first, second = appends["slave-1"][-1], appends["slave-2"][-1]
    assert not (
        came_before(first["clock"], "slave-1", second["clock"])
        and came_before(second["clock"], "slave-2", first["clock"])
    )
    earliest = appends["slave-1"][0], appends["slave-2"][0]
    for one, other in (earliest, earliest[::-1]):
        assert not came_before(one["clock"], one["host"], other["clock"])


def test_reports_alone_say_which_slave_a_connection_is_of(results: Sequence[RunResult]) -> None:
    """Simulated slaves have an address each: what is found without addresses must agree with them."""
    for result in results:
        causes, found, hosts = Causes[tuple[str, int]](), Counter[str](), dict[tuple[str, int], str]()
        of_host: dict[str, str] = {}
        for row in rows(result.events):
            del row["sim_time_ns"]
            cause_of(causes, row)
            if row["kind"] == "ha.connection.open":
                hosts[row["node"], row["conn_id"]] = row["attrs"]["network.peer.address"].rpartition(":")[0]
            elif row["kind"] == "ha.report" and (slave := causes.slave_of(row["node"], row["conn_id"])):
                found[slave] += 1
                assert of_host.setdefault(hosts[row["node"], row["conn_id"]], slave) == slave
        assert len(set(of_host.values())) == len(of_host) == 2
        reports = sum(isinstance(event, HaReport) for event in result.events)
        assert sum(found.values()) >= reports * 0.8


def test_a_connection_that_may_be_of_two_slaves_is_of_neither() -> None:
    peer = {"network.peer.address": "127.0.0.1:1"}  # as of real brokers: it tells nothing

    def event(seq: int, node: str, kind: str, **more: object) -> dict[str, Any]:
        return {"seq": seq, "wall_time_ns": 0, "node": node, "actor": "a", "kind": kind, **more}

    events = [
        event(0, "one", "ha.client.connect", attrs=peer),
        event(1, "two", "ha.client.connect", attrs=peer),
        event(2, "one", "ha.client.report", offset=0),
        event(3, "two", "ha.client.report", offset=0),
        event(4, "master", "ha.connection.open", conn_id=1, attrs=peer),
        event(5, "master", "ha.connection.open", conn_id=2, attrs=peer),
        event(6, "master", "ha.report", conn_id=1, offset=0),
        event(7, "master", "ha.report", conn_id=2, offset=0),
        event(8, "master", "ha.transfer", conn_id=1, offset=0, size=100),
        event(9, "two", "log.append", offset=0, size=100),
        event(10, "two", "ha.client.report", offset=100),
        event(11, "master", "ha.report", conn_id=1, offset=100),  # none but "two" has said this
        event(12, "one", "ha.client.report", offset=0),
        event(13, "master", "ha.transfer", conn_id=1, offset=100, size=50),
        event(14, "two", "log.append", offset=100, size=50),
        event(15, "master", "ha.report", conn_id=2, offset=0),
        event(16, "two", "put.begin", offset=150, size=10, msg_id=0),  # it is the master now
        event(17, "two", "log.append", offset=150, size=10),
    ]
    causes = Causes[tuple[str, int]]()
    found = {each["seq"]: cause for each in events if (cause := cause_of(causes, each)) is not None}
    assert found == {11: ("two", 10), 14: ("master", 13), 15: ("one", 12)}
    assert (causes.slave_of("master", 1), causes.slave_of("master", 2)) == ("two", "one")


@attrs.define(eq=False, weakref_slot=True)
class Told:
    """What is given with an event: it lives as long as the event may be a cause."""


def replication(seq: int, kind: str, **more: object) -> dict[str, Any]:
    """An event of a real run."""
    return {"seq": seq, "wall_time_ns": 0, "actor": "a", "kind": kind, **more}


def follow(causes: Causes[Any], slaves: Sequence[str]) -> None:
    peer = {"network.peer.address": "127.0.0.1:1"}
    for number, slave in enumerate(slaves):
        causes.cause(replication(0, "ha.client.connect", node=slave, attrs=peer))
        causes.cause(replication(0, "ha.connection.open", node="master", conn_id=number, attrs=peer))


def test_what_can_be_no_cause_any_more_is_let_go() -> None:
    causes, alive, linked = Causes[Told](), weakref.WeakSet[Told](), Counter[str]()
    follow(causes, ["one"])

    def sent(kind: str, **more: object) -> None:
        causes.sent(replication(0, kind, **more), told := Told())
        alive.add(told)

    for offset in range(0, 100_000, 100):
        sent("put.begin", node="master", offset=offset, size=100)
        sent("ha.transfer", node="master", conn_id=0, offset=offset, size=100)
        sent("ha.transfer", node="master", conn_id=0, offset=offset + 100, size=0)
        linked["append"] += causes.cause(replication(0, "log.append", node="one", offset=offset, size=100)) is not None
        for _ in range(2):
            sent("ha.client.report", node="one", offset=offset + 100)
        report = replication(0, "ha.report", node="master", conn_id=0, offset=offset + 100)
        linked["report"] += causes.cause(report) is not None
        assert len(alive) < 10
    assert linked == {"append": 999, "report": 1_000}


def test_what_slaves_have_is_let_go_although_nobody_knows_which_is_which() -> None:
    causes, alive = Causes[Told](), weakref.WeakSet[Told]()
    follow(causes, ["one", "two"])
    for offset in range(0, 100_000, 100):
        for number, slave in enumerate(("one", "two")):
            causes.sent(
                replication(0, "ha.transfer", node="master", conn_id=number, offset=offset, size=100), told := Told()
            )
            alive.add(told)
            del told
            causes.sent(replication(0, "ha.client.report", node=slave, offset=offset + 100), Told())
        for number in range(2):
            causes.cause(replication(0, "ha.report", node="master", conn_id=number, offset=offset + 100))
            assert causes.slave_of("master", number) is None
        assert not alive


class CountedOffset(int):
    """It counts how often offsets are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedOffset.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_slaves_that_report_alike_cost_no_more_with_time() -> None:
    causes = Causes[None]()
    follow(causes, ["one", "two"])
    for count in range(1, 1_001):
        for slave in ("one", "two"):
            causes.sent(replication(0, "ha.client.report", node=slave, offset=CountedOffset(count)), None)
        for number in range(2):
            causes.cause(replication(0, "ha.report", node="master", conn_id=number, offset=count))
    assert CountedOffset.compared <= 4 * 1_000


_REQUIRED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ph", "ts", "pid", "tid", "s", "args"},
    "b": {"name", "cat", "ph", "ts", "pid", "id2", "args"},
    "e": {"name", "cat", "ph", "ts", "pid", "id2", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}


def test_perfetto_has_what_its_format_asks_for(traces: Path, results: Sequence[RunResult]) -> None:
    for result in results:
        document = json.loads(exported(traces, result, "perfetto"))
        assert document["otherData"]["run_id"] == result.run.run_id
        named: set[tuple[str, int]] = set()
        processes: dict[int, int] = {}
        begun, sent = dict[tuple[int, str, str], dict[str, Any]](), dict[str, float]()
        for entry in document["traceEvents"]:
            assert _REQUIRED[entry["ph"]] <= entry.keys()
            if entry["ph"] == "M":
                key = "pid" if entry["name"] == "process_name" else "tid"
                assert (key, entry[key]) not in named
                named.add((key, entry[key]))
                continue
            assert ("pid", entry["pid"]) in named
            assert entry["ts"] >= 0
            assert processes.setdefault(entry["tid"], entry["pid"]) == entry["pid"]  # Perfetto knows threads by tid
            if entry["ph"] in "Xi":
                assert ("tid", entry["tid"]) in named
            if entry["ph"] in "be":
                span = entry["pid"], entry["cat"], entry["id2"]["local"]
                if entry["ph"] == "b":
                    assert span not in begun
                    begun[span] = entry
                else:
                    begin = begun.pop(span)
                    assert (begin["name"], begin["ts"] <= entry["ts"]) == (entry["name"], True)
            if entry.get("flow_out"):
                sent[entry["bind_id"]] = entry["ts"]
            elif entry.get("flow_in"):
                assert sent[entry["bind_id"]] <= entry["ts"]
        assert not begun  # each span has its end
        told = [entry["args"]["seq"] for entry in document["traceEvents"] if entry["ph"] in "Xi"]
        assert told == [event.seq for event in result.events]


def test_a_put_is_a_span_from_its_append_to_its_answer(results: Sequence[RunResult]) -> None:
    entries = [entry for entry in trace_entries(rows(results[0].events), Causes[int]()) if entry.get("cat") == "put"]
    spans = Counter(str(entry["ph"]) for entry in entries if entry["ph"] in ("b", "e"))
    puts = [event for event in results[0].events if isinstance(event, PutBegin)]
    assert spans == {"b": len(puts), "e": len(puts)}
    first = next(entry for entry in entries if entry["ph"] == "b")
    assert first["ts"] == (puts[0].sim_time_ns or 0) / 1000
    answer: Any = next(entry for entry in entries if (entry["ph"], entry.get("id2")) == ("e", first["id2"]))
    end = next(event for event in results[0].events if isinstance(event, PutEnd) and event.msg_id == puts[0].msg_id)
    assert (answer["ts"], answer["args"]["status"]) == ((end.sim_time_ns or 0) / 1000, end.status)


def test_what_a_death_interrupts_ends_with_it() -> None:
    def event(seq: int, kind: str, **more: object) -> dict[str, Any]:
        return {
            "seq": seq,
            "sim_time_ns": seq * 1000,
            "wall_time_ns": 0,
            "node": "master",
            "actor": "a",
            "kind": kind,
            **more,
        }

    entries = list(
        trace_entries(
            [
                event(0, "node.boot", life=1),
                event(1, "put.begin", msg_id=0, msg_id_last=2, offset=0, size=300),
                event(2, "node.kill"),
                event(3, "node.boot", life=2),
            ],
            Causes[int](),
        )
    )
    spans = [(entry["ph"], entry["name"], entry["ts"]) for entry in entries if entry["ph"] in ("b", "e")]
    assert spans == [
        *(("b", "life 1", 0.0), ("b", "put of 3", 1.0), ("e", "put of 3", 2.0), ("e", "life 1", 2.0)),
        *(("b", "life 2", 3.0), ("e", "life 2", 3.0)),
    ]


def test_a_file_is_written_whole(traces: Path, results: Sequence[RunResult], tmp_path: Path) -> None:
    out = tmp_path / "run.log"
    out.write_text("of before")
    for name in ("shiviz", "perfetto"):
        ended = export(traces, "--run", results[0].run.run_id, "--format", name, "--out", out)
        assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "")
        assert out.read_text() == exported(traces, results[0], name)
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".run")] == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_cannot_be_exported(traces: Path, results: Sequence[RunResult], tmp_path: Path) -> None:
    ended = export(traces, "--run", 77, "--format", "shiviz")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert f"{traces} holds no run 77: `rmq-actors trace show --traces {traces}` lists" in ended.stderr
    run = results[0].run.run_id
    ended = export(tmp_path / "nowhere", "--run", run, "--format", "shiviz")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "holds no traces" in ended.stderr
    for arguments in (("--format", "svg"), ("--format", "shiviz", "--out", tmp_path), ()):
        assert export(traces, "--run", run, *arguments).exit_code == 2
    nowhere = tmp_path / "no" / "run.log"
    ended = export(traces, "--run", run, "--format", "shiviz", "--out", nowhere)
    assert ended.exit_code == 2
    assert "--out" in ended.stderr


@pytest.fixture
def traces_with_an_event_missing(traces: Path, results: Sequence[RunResult]) -> Path:
    """The runs table says one more than there are."""
    for path in (traces / "v1-runs").rglob("*.parquet"):
        table = parquet.read_table(path)
        place = table.column_names.index("event_count")
        counts = pa.array([count + 1 for count in table.column(place).to_pylist()], table.schema.field(place).type)
        parquet.write_table(table.set_column(place, table.schema.field(place), counts), path)
    return traces


@pytest.mark.parametrize("to_file", [False, True], ids=["stdout", "file"])
def test_nothing_is_written_of_a_run_without_all_its_events(
    traces_with_an_event_missing: Path, results: Sequence[RunResult], tmp_path: Path, to_file: bool
) -> None:
    run, count = results[0].run.run_id, len(results[0].events)
    out = ("--out", tmp_path / "run.log") if to_file else ()
    ended = export(traces_with_an_event_missing, "--run", run, "--format", "shiviz", *out)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert f"run {run} has {count} events, the runs table says {count + 1}" in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if "run.log" in path.name] == []


def test_an_interrupt_of_the_first_pass_says_so_too(
    traces: Path, results: Sequence[RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(read_traces, "stored_events", interrupted)
    ended = export(traces, "--run", results[0].run.run_id, "--format", "shiviz")
    assert (ended.exit_code, ended.stdout) == (130, "")
    assert ended.stderr == f"rmq-actors trace export: interrupted after 0 of {len(results[0].events)} events\n"


def test_where_to_write_is_looked_at_before_the_events(
    traces: Path, results: Sequence[RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        raise AssertionError("events are read")

    monkeypatch.setattr(read_traces, "stored_events", read)
    ended = export(traces, "--run", results[0].run.run_id, "--format", "shiviz", "--out", tmp_path)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "is a directory" in " ".join(ended.stderr.replace("│", " ").split())


def test_what_is_no_file_is_not_replaced_and_a_link_goes_on_to_be_one(
    traces: Path, results: Sequence[RunResult], tmp_path: Path
) -> None:
    wanted = ("--run", results[0].run.run_id, "--format", "shiviz", "--out")
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    ended = export(traces, *wanted, pipe)
    assert ended.exit_code == 2
    assert pipe.is_fifo()
    target.write_text("before")
    link.symlink_to(target)
    assert export(traces, *wanted, link).exit_code == 0
    assert link.is_symlink()
    assert target.read_text() != "before"
    around = tmp_path / "around"
    around.symlink_to(around)
    assert export(traces, *wanted, around).exit_code == 2
    assert around.is_symlink()
