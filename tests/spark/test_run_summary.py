"""The summary of each run, against a plain account of its events; and fault intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rmq_actors.analysis.jobs.fault_intervals import fault_intervals
from rmq_actors.analysis.jobs.put_latency import puts
from rmq_actors.analysis.jobs.run_summary import run_summary
from rmq_actors.analysis.sources import Traces
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import FaultBegin, FaultObserved
from rmq_actors.tracing.events.store import PutBegin, PutEnd
from rmq_actors.tracing.spool import TraceWriter
from tests.spark.conftest import Campaign, EventsBySeed, rows
from tests.worlds.trace_story import Story, run_of

FrameOf = Callable[[EventsBySeed], DataFrame]


def fault(kind: str) -> dict[str, str]:
    return {"fault.kind": kind, "fault.nodes": "master,slave"}


def test_what_a_summary_counts(frame_of: FrameOf, spark: SparkSession, tmp_path: Path) -> None:
    story = Story()
    story.at(0, "", "run.start")
    for number, kind in enumerate(("Kill", "Stall", "Kill")):
        story.at(1, "", "fault.begin", fault_id=number, attrs=fault(kind))
    story.at(2, "master", "fault.observed", status="restart").at(2, "master", "fault.observed", status="kill")
    story.at(3, "master", "put.begin", msg_id=0, offset=0, size=70)
    story.at(3, "master", "put.begin", msg_id=1, offset=70, size=80)
    story.at(3, "master", "put.begin", msg_id=2, offset=150, size=90)
    story.at(4, "master", "put.end", msg_id=0, offset=70, status="PUT_OK")
    story.at(5, "master", "put.end", msg_id=1, offset=150, status="FLUSH_SLAVE_TIMEOUT")
    story.at(6, "", "invariant.broken", status="prefix", attrs={"detail": "x"})
    story.at(6, "", "invariant.broken", status="ack", attrs={"detail": "x"})
    story.at(6, "", "invariant.broken", status="ack", attrs={"detail": "y"})
    story.at(2500, "", "run.end", status="invariant")
    events = frame_of({1: story.events, 2: []})
    runs = Traces.find(str(tmp_path)).read_runs(spark)
    by_seed = {row["seed"]: row for row in rows(run_summary(events, runs, puts(events)), "seed")}
    row = by_seed[1]
    run_id = run_of(1).run_id
    assert row["faults_scheduled"] == ["Kill", "Stall"]
    assert row["faults_fired"] == {"Kill": 2, "Stall": 1}
    assert row["faults_observed"] == {"kill": 1, "restart": 1}
    assert row["invariants_broken"] == ["ack", "prefix"]
    assert (row["events"], row["event_count"]) == (15, 15)
    assert (row["virtual_s"], row["wall_s"]) == (2.5, 2.5)
    assert (row["puts_begun"], row["puts_unanswered"]) == (3, 1)
    assert row["puts_by_status"] == {"FLUSH_SLAVE_TIMEOUT": 1, "PUT_OK": 1}
    assert (row["acked_puts"], row["acked_bytes"]) == (1, 70)
    assert row["exemplars"] == [
        {"kind": "invariant.broken", "run_id": run_id, "seq": 11},
        {"kind": "fault.begin", "run_id": run_id, "seq": 1},
        {"kind": "run.end", "run_id": run_id, "seq": 14},
    ]
    empty = by_seed[2]
    assert (empty["events"], empty["puts_begun"], empty["acked_bytes"], empty["virtual_s"]) == (0, 0, 0, None)
    assert (empty["faults_fired"], empty["invariants_broken"], empty["exemplars"]) == ({}, [], [])


def test_a_campaign_gives_what_plain_python_gives(campaign: Campaign) -> None:
    found = campaign.table("run_summary")
    assert {row["run_id"] for row in found} == set(campaign.events)
    assert Counter(row["outcome"] for row in found) == {"passed": len(found) - 1, "invariant": 1}
    for row in found:
        events = campaign.events[row["run_id"]]
        sizes = {(event.msg_id, event.offset): event.size for event in of_kind(events, PutBegin)}
        ends = of_kind(events, PutEnd)
        fired = Counter(event.fault_kind for event in of_kind(events, FaultBegin))
        observed = Counter(event.status for event in of_kind(events, FaultObserved))
        assert row["events"] == len(events)
        assert row["faults_fired"] == fired
        assert row["faults_observed"] == observed
        assert row["puts_begun"] == len(sizes)
        assert row["puts_unanswered"] == len(sizes) - len(ends)
        assert row["puts_by_status"] == Counter(event.status for event in ends)
        acked = [
            size
            for (msg_id, begin), size in sizes.items()
            if any((end.msg_id, end.offset, end.status) == (msg_id, (begin or 0) + size, "PUT_OK") for end in ends)
        ]
        assert (row["acked_puts"], row["acked_bytes"]) == (len(acked), sum(acked))
        is_sim = events[0].sim_time_ns is not None
        assert row["source"] == ("sim" if is_sim else "broker")
        assert row["virtual_s"] == (pytest.approx((events[-1].sim_time_ns or 0) / 1e9) if is_sim else None)
        assert row["wall_s"] == pytest.approx((events[-1].wall_time_ns - events[0].wall_time_ns) / 1e9)


def test_when_faults_were_in_effect(frame_of: FrameOf) -> None:
    story = Story()
    story.at(100, "", "run.start")
    story.at(110, "", "fault.begin", fault_id=0, attrs=fault("Delay"))
    story.at(120, "", "fault.begin", fault_id=1, attrs=fault("Reset")).at(
        120, "", "fault.end", fault_id=1, attrs=fault("Reset")
    )
    story.at(150, "", "fault.end", fault_id=0, attrs=fault("Delay"))
    story.at(160, "", "fault.begin", fault_id=0, attrs=fault("Delay"))
    found = rows(fault_intervals(frame_of({1: story.events})), "begin_ms")
    assert [(row["fault_id"], row["fault_kind"], row["begin_ms"], row["end_ms"]) for row in found] == [
        (0, "Delay", 10, 50),
        (1, "Reset", 20, 20),
        (0, "Delay", 60, None),
    ]
    assert found[0]["exemplars"] == [{"run_id": run_of(1).run_id, "seq": 1}]
    assert found[0]["fault_nodes"] == ["master", "slave"]


def test_a_campaign_has_an_interval_for_each_fault(campaign: Campaign) -> None:
    found = campaign.table("fault_intervals")
    assert Counter(row["run_id"] for row in found) == {
        run_id: begins
        for run_id, events in campaign.events.items()
        if (begins := sum(event.kind == "fault.begin" for event in events))
    }
    for row in found:
        events = campaign.events[row["run_id"]]
        mine = [event for event in events if event.fault_id == row["fault_id"]]
        assert [event.kind for event in mine] == ["fault.begin", "fault.end"]
        begin_ns, end_ns = (event.wall_time_ns for event in mine)
        start_ns = events[0].wall_time_ns
        assert (row["begin_ms"], row["end_ms"]) == pytest.approx(
            ((begin_ns - start_ns) / 1e6, (end_ns - start_ns) / 1e6)
        )


def test_a_run_cut_short_is_summed_up_too(spark: SparkSession, tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "tests", "handmade") as writer:
        live = writer.open_run(run_of(1))
        for event in Story().at(0, "", "run.start").at(1, "", "fault.begin", fault_id=0, attrs=fault("Kill")).events:
            live(event)
    traces = Traces.find(str(tmp_path))
    events = traces.read_events(spark)
    (row,) = rows(run_summary(events, traces.read_runs(spark), puts(events)), "seed")
    assert (row["outcome"], row["events"], row["faults_fired"]) == ("incomplete", 2, {"Kill": 1})
