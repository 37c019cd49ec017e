"""Replication lag: hand-made cases, and agreement with a plain Python account of a whole campaign."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import DataFrame

from rmq_actors.analysis.jobs.replication_lag import BUCKETS_MAX, replication_lag
from rmq_actors.tracing.event import Event
from tests.spark.conftest import Campaign, EventsBySeed, Row, rows
from tests.worlds.trace_story import Story, run_of

FrameOf = Callable[[EventsBySeed], DataFrame]


def cluster(*slaves: str) -> Story:
    """A master and its slaves, connected, with empty logs, at 0 ms."""
    story = Story()
    for node in ("master", *slaves):
        story.at(0, node, "store.open", offset=0, size=0, status="clean")
    for slave in slaves:
        story.at(0, slave, "ha.client.connect").at(0, "master", "ha.connection.open", conn_id=1)
    return story


def lags(frame: DataFrame, bucket_ms: int = 10) -> list[tuple[int, int]]:
    return [
        (row["lag_bytes_max"], row["lag_bytes_last"])
        for row in rows(replication_lag(frame, bucket_ms=bucket_ms), "slave", "bucket")
    ]


def append(story: Story, time_ms: float, node: str, offset: int, size: int) -> Story:
    return story.at(time_ms, node, "log.append", offset=offset, size=size)


def test_the_largest_and_the_last_of_each_bucket(frame_of: FrameOf) -> None:
    story = cluster("slave")
    append(story, 1, "master", 0, 100)
    append(story, 2, "master", 100, 50)
    append(story, 3, "slave", 0, 120)
    append(story, 12, "slave", 120, 30)
    assert lags(frame_of({1: story.events})) == [(150, 30), (30, 0)]


def test_a_bucket_without_events_is_as_the_one_before_ended(frame_of: FrameOf) -> None:
    story = cluster("slave")
    append(story, 1, "master", 0, 100)
    append(story, 35, "slave", 0, 100)
    story.at(59, "", "run.end", status="passed")
    frame = frame_of({1: story.events})
    assert lags(frame) == [(100, 100), (100, 100), (100, 100), (100, 0), (0, 0), (0, 0)]
    found = rows(replication_lag(frame, bucket_ms=10), "bucket")
    assert [row["begin_ms"] for row in found] == [0, 10, 20, 30, 40, 50]
    assert {row["bucket_ms"] for row in found} == {10.0}
    assert [row["exemplars"][0]["seq"] for row in found] == [4, 4, 4, 4, 5, 5]
    assert {row["exemplars"][0]["run_id"] for row in found} == {run_of(1).run_id}


def test_a_restarted_slave_may_have_a_shorter_log(frame_of: FrameOf) -> None:
    story = cluster("slave")
    append(story, 1, "master", 0, 100)
    append(story, 2, "slave", 0, 100)
    story.at(11, "slave", "node.kill")
    append(story, 12, "master", 100, 50)
    story.at(21, "slave", "store.open", offset=60, size=40, status="torn_tail_cut")
    append(story, 31, "slave", 60, 90)
    assert lags(frame_of({1: story.events})) == [(100, 0), (50, 50), (90, 90), (90, 0)]


def test_a_restarted_master_may_be_behind_its_slave(frame_of: FrameOf) -> None:
    story = cluster("slave")
    append(story, 1, "master", 0, 100)
    append(story, 2, "slave", 0, 100)
    story.at(11, "master", "store.open", offset=70, size=30, status="torn_tail_cut")
    story.at(25, "", "run.end", status="passed")
    assert lags(frame_of({1: story.events})) == [(100, 0), (0, -30), (-30, -30)]


def test_a_slave_that_never_connected_lags_most(frame_of: FrameOf) -> None:
    story = cluster("slave-1")
    story.at(0, "slave-2", "store.open", offset=0, size=0, status="clean")
    append(story, 1, "master", 0, 100)
    append(story, 2, "slave-1", 0, 100)
    story.at(5, "slave-2", "ha.client.close", status="connect_timeout")
    found = rows(replication_lag(frame_of({1: story.events}), bucket_ms=10), "slave")
    assert [(row["slave"], row["master"], row["lag_bytes_last"]) for row in found] == [
        ("slave-1", "master", 0),
        ("slave-2", "master", 100),
    ]


def test_rows_begin_where_both_ends_are_known(frame_of: FrameOf) -> None:
    story = Story()
    story.at(0, "", "run.start").at(1, "master", "store.open", offset=500, size=0, status="clean")
    story.at(2, "master", "put.begin", msg_id=0, offset=0, size=1)
    story.at(25, "slave", "store.open", offset=200, size=0, status="clean").at(26, "slave", "ha.client.connect")
    (row,) = rows(replication_lag(frame_of({1: story.events}), bucket_ms=10), "bucket")
    assert (row["bucket"], row["lag_bytes_max"]) == (2, 300)


def test_the_master_with_the_most_puts_counts_those_told_at_once(frame_of: FrameOf) -> None:
    story = Story().at(0, "", "run.start")
    story.at(1, "old", "put.begin", msg_id=0, offset=0, size=1).at(1, "old", "put.begin", msg_id=1, offset=1, size=1)
    story.at(1, "new", "put.begin", msg_id=0, msg_id_last=2, offset=0, size=3)
    for node in ("old", "new"):
        story.at(2, node, "store.open", offset=500, size=0, status="clean")
    story.at(25, "slave", "store.open", offset=200, size=0, status="clean").at(26, "slave", "ha.client.connect")
    found = rows(replication_lag(frame_of({1: story.events}), bucket_ms=10), "bucket")
    assert {row["master"] for row in found} == {"new"}


def test_a_run_without_replication_has_no_rows(frame_of: FrameOf) -> None:
    alone = Story().at(0, "master", "put.begin", msg_id=0, offset=0, size=1)
    lost = Story().at(0, "slave", "ha.client.close", status="connect_timeout")
    assert lags(frame_of({1: alone.events, 2: lost.events})) == []


def test_the_length_of_a_bucket_is_round_and_follows_the_run(frame_of: FrameOf) -> None:
    lengths_ms = {1: 10.0, 2: 200.0, 3: 201.0, 4: 60_000.0, 5: 123_456.0}
    stories = {}
    for seed, length_ms in lengths_ms.items():
        stories[seed] = cluster("slave").at(length_ms, "", "run.end", status="passed").events
    found = rows(replication_lag(frame_of(stories)), "run_id", "bucket")
    bucket_ms = {run_of(seed).run_id: expected for seed, expected in {1: 1, 2: 1, 3: 2, 4: 500, 5: 1000}.items()}
    for run_id, expected in bucket_ms.items():
        of_run = [row for row in found if row["run_id"] == run_id]
        assert {row["bucket_ms"] for row in of_run} == {expected}
        assert len(of_run) <= BUCKETS_MAX + 1


def account(events: Sequence[Event], slave: str, bucket_ns: int) -> dict[int, tuple[int, int]]:
    """The same in plain Python: (largest, last) by bucket."""
    times = [event.wall_time_ns if event.sim_time_ns is None else event.sim_time_ns for event in events]
    ends: dict[str, int] = {}
    result: dict[int, tuple[int, int]] = {}
    last: int | None = None
    for event, time in zip(events, times, strict=True):
        if event.kind not in {"store.open", "log.append"} or event.node not in {"master", slave}:
            continue
        assert event.offset is not None
        ends[event.node] = event.offset + (event.size or 0 if event.kind == "log.append" else 0)
        if len(ends) < 2:
            continue
        bucket = (time - min(times)) // bucket_ns
        if last is not None:
            for between in range(max(result) + 1, bucket + 1):
                result[between] = (last, last)
        last = ends["master"] - ends[slave]
        most = max(result.get(bucket, (last, last))[0], last)
        result[bucket] = (most, last)
    assert last is not None
    for after in range(max(result) + 1, (max(times) - min(times)) // bucket_ns + 1):
        result[after] = (last, last)
    return result


def test_a_campaign_gives_what_plain_python_gives(campaign: Campaign) -> None:
    by_pair: dict[tuple[int, str], dict[int, Row]] = {}
    for row in campaign.table("replication_lag"):
        by_pair.setdefault((row["run_id"], row["slave"]), {})[row["bucket"]] = row
    assert {run_id for run_id, _ in by_pair} == set(campaign.events)
    for (run_id, slave), found in by_pair.items():
        bucket_ns = round(found[min(found)]["bucket_ms"] * 1e6)
        expected = account(campaign.events[run_id], slave, bucket_ns)
        assert {bucket: (row["lag_bytes_max"], row["lag_bytes_last"]) for bucket, row in found.items()} == expected


def test_an_exemplar_is_an_event_that_moved_an_end(campaign: Campaign) -> None:
    for row in campaign.table("replication_lag"):
        (exemplar,) = row["exemplars"]
        event = campaign.events[exemplar["run_id"]][exemplar["seq"]]
        assert event.kind in {"store.open", "log.append"}


@pytest.mark.parametrize("masters", [("a", "b"), ("b", "a")])
def test_of_two_masters_the_one_with_more_puts_counts(frame_of: FrameOf, masters: tuple[str, str]) -> None:
    busy, idle = masters
    story = Story()
    for node in (busy, idle, "slave"):
        story.at(0, node, "store.open", offset={busy: 10, idle: 20}.get(node, 0), size=0, status="clean")
    story.at(1, busy, "put.begin", msg_id=0, offset=0, size=1).at(1, idle, "ha.connection.open", conn_id=1)
    story.at(2, "slave", "ha.client.connect")
    (row,) = rows(replication_lag(frame_of({1: story.events})), "bucket")[:1]
    assert (row["master"], row["lag_bytes_last"]) == (busy, 10)


def test_a_slave_with_a_slave_of_its_own_is_no_master(frame_of: FrameOf) -> None:
    story = Story()
    for node, end in (("a", 100), ("b", 60), ("c", 10)):
        story.at(0, node, "store.open", offset=end, size=0, status="clean")
    story.at(1, "b", "ha.client.connect").at(1, "a", "ha.connection.open", conn_id=1)
    story.at(2, "c", "ha.client.connect").at(2, "b", "ha.connection.open", conn_id=1)
    found = rows(replication_lag(frame_of({1: story.events}), bucket_ms=10), "slave")
    assert [(row["master"], row["slave"], row["lag_bytes_last"]) for row in found] == [("a", "b", 40), ("a", "c", 90)]
