"""Latency of puts: hand-made cases, and agreement with DuckDB on a whole campaign."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import duckdb
import pytest
from pyspark.sql import DataFrame

from rmq_actors.analysis.jobs.put_latency import (
    BUCKETS_PER_DECADE,
    put_latency,
    put_latency_by_scenario,
    put_latency_histogram,
    puts,
)
from tests.spark.conftest import Campaign, EventsBySeed, rows
from tests.worlds.trace_story import Story, run_of

FrameOf = Callable[[EventsBySeed], DataFrame]


def put(story: Story, msg_id: int, begin_ms: float, end_ms: float | None, status: str = "PUT_OK") -> None:
    story.at(begin_ms, "master", "put.begin", msg_id=msg_id, offset=0, size=100)
    if end_ms is not None:
        story.at(end_ms, "master", "put.end", msg_id=msg_id, offset=100, status=status)


def test_a_begin_is_matched_with_its_end(frame_of: FrameOf) -> None:
    story = Story()
    story.at(1, "master", "put.begin", msg_id=0, offset=0, size=70)
    story.at(2, "master", "put.begin", msg_id=1, offset=70, size=80)
    story.at(5, "master", "put.end", msg_id=1, offset=150, status="PUT_OK")
    story.at(9, "master", "put.end", msg_id=0, offset=70, status="FLUSH_SLAVE_TIMEOUT")
    found = rows(puts(frame_of({1: story.events})), "msg_id")
    assert [(row["size"], row["status"], row["latency_ns"]) for row in found] == [
        (70, "FLUSH_SLAVE_TIMEOUT", 8_000_000),
        (80, "PUT_OK", 3_000_000),
    ]
    assert [(row["seq"], row["end_seq"]) for row in found] == [(0, 3), (1, 2)]


def test_puts_that_are_told_at_once_have_a_row_each(frame_of: FrameOf) -> None:
    story = Story()
    story.at(1, "master", "put.begin", msg_id=0, msg_id_last=2, offset=0, size=90)
    story.at(4, "master", "put.end", msg_id=0, offset=30, status="PUT_OK")
    story.at(6, "master", "put.end", msg_id=1, msg_id_last=2, offset=90, status="FLUSH_SLAVE_TIMEOUT")
    found = rows(puts(frame_of({1: story.events})), "msg_id")
    assert [(row["msg_id"], row["size"], row["status"], row["latency_ns"]) for row in found] == [
        (0, 90, "PUT_OK", 3_000_000),
        (1, None, "FLUSH_SLAVE_TIMEOUT", 5_000_000),
        (2, None, "FLUSH_SLAVE_TIMEOUT", 5_000_000),
    ]


def test_a_restarted_broker_numbers_its_messages_again(frame_of: FrameOf) -> None:
    story = Story()
    put(story, 0, 1, 2)
    put(story, 1, 3, None)
    story.at(4, "master", "node.kill")
    put(story, 0, 10, 14)
    put(story, 1, 20, 29)
    found = rows(puts(frame_of({1: story.events})), "seq")
    assert [(row["msg_id"], row["latency_ns"]) for row in found] == [
        (0, 1_000_000),
        (1, None),
        (0, 4_000_000),
        (1, 9_000_000),
    ]
    assert found[1]["status"] is None


def test_runs_and_nodes_are_kept_apart(frame_of: FrameOf) -> None:
    one, two = Story(), Story(is_sim=False)
    one.at(1, "a", "put.begin", msg_id=0, offset=0, size=1).at(2, "b", "put.end", msg_id=0, offset=1, status="PUT_OK")
    two.at(5, "a", "put.begin", msg_id=0, offset=0, size=1).at(8, "a", "put.end", msg_id=0, offset=1, status="PUT_OK")
    found = rows(puts(frame_of({1: one.events, 2: two.events})), "run_id")
    assert {row["run_id"]: row["latency_ns"] for row in found} == {run_of(1).run_id: None, run_of(2).run_id: 3_000_000}


def test_the_numbers_of_a_run(frame_of: FrameOf) -> None:
    story = Story()
    for number in range(101):
        put(story, number, 10 * number, 10 * number + number / 10)
    put(story, 200, 5000, 8000, "FLUSH_SLAVE_TIMEOUT")
    ok, late = sorted(rows(put_latency(puts(frame_of({1: story.events}))), "status"), key=lambda row: -row["puts"])
    assert ok["puts"] == 101
    assert [ok[name] for name in ("min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms")] == pytest.approx(
        [0, 5, 9, 9.9, 10]
    )
    assert ok["exemplars"] == [{"run_id": run_of(1).run_id, "seq": 200}]
    assert (late["status"], late["puts"], late["min_ms"], late["max_ms"]) == ("FLUSH_SLAVE_TIMEOUT", 1, 3000.0, 3000.0)


def test_a_scenario_is_all_its_runs(frame_of: FrameOf) -> None:
    one, two = Story(), Story()
    put(one, 0, 0, 1)
    put(two, 0, 0, 3)
    put(two, 1, 10, 20)
    frame = puts(frame_of({1: one.events, 2: two.events}))
    (row,) = rows(put_latency_by_scenario(frame), "status")
    assert (row["campaign"], row["scenario"], row["puts"], row["p50_ms"], row["max_ms"]) == (
        "tests",
        "handmade",
        3,
        3,
        10,
    )
    assert row["exemplars"] == [{"run_id": run_of(2).run_id, "seq": 2}]


def test_the_buckets_of_the_histogram(frame_of: FrameOf) -> None:
    story = Story()
    for number, latency_ms in enumerate((0.0, 0.0005, 1.2, 1.25, 12.0, 3000.0)):
        put(story, number, 10 * number, 10 * number + latency_ms)
    found = rows(put_latency_histogram(puts(frame_of({1: story.events}))), "lower_ms")
    assert [row["puts"] for row in found] == [2, 2, 1, 1]
    assert found[0]["lower_ms"] == 0.0
    assert found[0]["upper_ms"] == pytest.approx(0.001 * 10 ** (1 / BUCKETS_PER_DECADE))
    for row, latency_ms in zip(found[1:], (1.2, 12.0, 3000.0), strict=True):
        assert row["lower_ms"] <= latency_ms < row["upper_ms"]
        assert row["upper_ms"] / row["lower_ms"] == pytest.approx(10 ** (1 / BUCKETS_PER_DECADE))


@attrs.frozen
class Answer:
    """A put's answer, as a plain account of the events has it."""

    run_id: int
    scenario: str
    status: str
    latency_ms: float


def account(campaign: Campaign) -> tuple[list[Answer], int]:
    """The answers of a campaign, and how many puts were never answered."""
    answers, begun = [], 0
    for run_id, events in campaign.events.items():
        waiting: dict[tuple[str, int | None], int] = {}
        for event in events:
            time_ns = event.wall_time_ns if event.sim_time_ns is None else event.sim_time_ns
            scenario = "loopback" if event.sim_time_ns is None else "replication"
            if event.kind == "put.begin":
                begun += 1
                waiting[event.node, event.msg_id] = time_ns
            elif event.kind == "put.end":
                latency_ns = time_ns - waiting.pop((event.node, event.msg_id))
                answers.append(Answer(run_id, scenario, str(event.status), latency_ns / 1e6))
    return answers, begun - len(answers)


def duck_quantiles(values: list[float]) -> list[float]:
    sql = "select quantile_cont(v, [0.5, 0.9, 0.99]) from (select unnest($values) v)"
    (row,) = duckdb.execute(sql, {"values": values}).fetchall()
    return [float(value) for value in row[0]]


def test_a_campaign_gives_what_duckdb_gives(campaign: Campaign) -> None:
    answers, unanswered = account(campaign)
    assert unanswered > 0
    assert {answer.status for answer in answers} == {"PUT_OK", "FLUSH_SLAVE_TIMEOUT"}
    by_key: dict[tuple[object, object], list[float]] = {}
    for answer in answers:
        by_key.setdefault((answer.run_id, answer.status), []).append(answer.latency_ms)
        by_key.setdefault((answer.scenario, answer.status), []).append(answer.latency_ms)
    found = campaign.table("put_latency") + campaign.table("put_latency_by_scenario")
    assert {(row.get("run_id", row["scenario"]), row["status"]) for row in found} == set(by_key)
    for row in found:
        values = by_key[row.get("run_id", row["scenario"]), row["status"]]
        assert row["puts"] == len(values)
        assert (row["min_ms"], row["max_ms"]) == (min(values), max(values))
        assert [row["p50_ms"], row["p90_ms"], row["p99_ms"]] == pytest.approx(duck_quantiles(values))


def test_every_answer_of_a_campaign_is_in_its_bucket(campaign: Campaign) -> None:
    answers, _ = account(campaign)
    found = campaign.table("put_latency_histogram")
    assert sum(row["puts"] for row in found) == len(answers)
    for row in found:
        inside = [
            answer
            for answer in answers
            if (answer.scenario, answer.status) == (row["scenario"], row["status"])
            and row["lower_ms"] <= answer.latency_ms < row["upper_ms"]
        ]
        assert row["puts"] == len(inside)


def test_the_exemplar_is_the_slowest_put(campaign: Campaign) -> None:
    for row in campaign.table("put_latency"):
        (exemplar,) = row["exemplars"]
        begin = campaign.events[exemplar["run_id"]][exemplar["seq"]]
        assert begin.kind == "put.begin"
        end = next(
            event
            for event in campaign.events[exemplar["run_id"]][begin.seq :]
            if event.kind == "put.end" and event.msg_id == begin.msg_id
        )
        assert (end.wall_time_ns - begin.wall_time_ns) / 1e6 == row["max_ms"]
