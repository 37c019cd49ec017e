"""BrokerStats: sums and rates as RocketMQ's StatsItem computes them, and no more keys than there may be."""

from __future__ import annotations

from rmq_actors.protocols.broker_stats import (
    DAY_INTERVAL_S,
    HOUR_INTERVAL_S,
    MINUTE_INTERVAL_S,
    BrokerStats,
    StatsItem,
    StatsName,
    StatsSnapshot,
)


def test_the_last_minute_is_between_seven_snapshots() -> None:
    item = StatsItem()
    assert item.minute == StatsSnapshot(0, 0.0, 0.0)
    for number in range(12):
        item.value, item.times = 100 * number, 10 * number
        item.sample(1_000_000 + 10_000 * number, MINUTE_INTERVAL_S)
    assert item.minute == StatsSnapshot(sum=600, tps=10.0, avgpt=10.0)
    assert item.hour == item.day == StatsSnapshot(0, 0.0, 0.0)


def test_a_first_snapshot_stands_for_the_time_before_it() -> None:
    """As if it had been 0 one interval ago."""
    for interval_s in (MINUTE_INTERVAL_S, HOUR_INTERVAL_S, DAY_INTERVAL_S):
        item = StatsItem(value=600, times=3)
        item.sample(50_000_000, interval_s)
        snapshot = {MINUTE_INTERVAL_S: item.minute, HOUR_INTERVAL_S: item.hour, DAY_INTERVAL_S: item.day}[interval_s]
        assert snapshot == StatsSnapshot(600, 600 / interval_s, 200.0)


def test_a_day_has_twenty_five_snapshots() -> None:
    item = StatsItem()
    for number in range(40):
        item.value = number
        item.sample(3_600_000 * number, DAY_INTERVAL_S)
    assert item.day.sum == 24


def test_a_clock_that_was_set_back_gives_no_rate() -> None:
    item = StatsItem(value=5, times=1)
    item.sample(100_000, MINUTE_INTERVAL_S)
    item.sample(80_000, MINUTE_INTERVAL_S)
    assert item.minute.tps == 0.0


def test_what_is_deleted_is_forgotten_and_no_other() -> None:
    stats = BrokerStats()
    for topic in ("T", "T2", "Cluster"):
        stats.add(StatsName.TOPIC_PUT_NUMS, topic, 1)
        for group in ("G", "G2"):
            stats.add(StatsName.GROUP_GET_NUMS, f"{topic}@{group}", 1)
    stats.add(StatsName.BROKER_PUT_NUMS, "Cluster", 1)
    stats.forget_topic("T")
    stats.forget_topic("Cluster")
    stats.forget_group("G")
    left = [
        (name, key)
        for name in StatsName
        for key in ("T", "T2", "Cluster", "T@G", "T@G2", "T2@G", "T2@G2")
        if stats.find(name, key)
    ]
    assert left == [
        (StatsName.TOPIC_PUT_NUMS, "T2"),
        (StatsName.GROUP_GET_NUMS, "T2@G2"),
        (StatsName.BROKER_PUT_NUMS, "Cluster"),
    ]
    assert len(stats) == len(left)


def test_there_are_no_more_keys_than_allowed() -> None:
    stats = BrokerStats(keys_max=3)
    for number in range(10):
        stats.add(StatsName.TOPIC_PUT_NUMS, f"T{number}", 1)
    assert len(stats) == 3
    assert stats.find("TOPIC_PUT_NUMS", "T3") is None
    stats.add(StatsName.TOPIC_PUT_NUMS, "T2", 5)
    found = stats.find("TOPIC_PUT_NUMS", "T2")
    assert found is not None
    assert found.value == 6
    stats.forget_topic("T0")
    stats.add(StatsName.TOPIC_PUT_NUMS, "T9", 1)
    assert stats.find("TOPIC_PUT_NUMS", "T9") is not None


def test_another_name_finds_nothing() -> None:
    assert BrokerStats().find("NO_SUCH_STATS", "T") is None
