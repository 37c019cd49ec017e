"""The store's counters, the rates over windows of samples, and the names that operators read."""

from __future__ import annotations

import bisect
import logging

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.actors.services.timer import Timer
from rmq_actors.store.store_stats import StoreStatsService
from sim_net import World
from tests.worlds.running_store import StillClock

#: DefaultMessageStore.getRuntimeInfo's, of StoreStatsService.
NAMES = [
    "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes",
    "putMessageSizeTotal", "putMessageDistributeTime", "putMessageAverageSize", "dispatchMaxBuffer",
    "getMessageEntireTimeMax", "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps",
    "putLatency99", "putLatency999",
]  # fmt: skip


def stats() -> StoreStatsService:
    return StoreStatsService(StillClock(), Timer())


def put(counters: StoreStatsService, topic: str, size_bytes: int, elapsed_ms: float, messages: int = 1) -> None:
    """A put that was appended, and answered after so long."""
    counters.put(topic, size_bytes, messages)
    counters.put_took(elapsed_ms)


def test_a_fresh_store_has_every_name_and_no_rates() -> None:
    info = stats().runtime_info()
    assert list(info) == NAMES
    assert (info["bootTimestamp"], info["runtime"]) == (
        str(StillClock().ms),
        "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
    )
    # As 4.9: at least one, since the average is divided by it.
    assert (info["putMessageTimesTotal"], info["putMessageAverageSize"]) == ("1", "0.0")
    assert (info["putTps"], info["getTotalTps"]) == ("  ", "0.0 0.0 0.0")
    assert (info["putLatency99"], info["putLatency999"]) == ("0.00", "0.00")


def test_puts_are_counted_by_topic() -> None:
    counters = stats()
    put(counters, "T", 100, 3)
    put(counters, "U", 900, 12.9, messages=3)
    put(counters, "T", 200, 0)
    counters.put_failed()
    assert counters.put_message_topic_times_total == {"T": 2, "U": 3}
    assert counters.put_message_topic_size_total == {"T": 300, "U": 900}
    info = counters.runtime_info()
    expected = {
        "putMessageTimesTotal": "5", "putMessageSizeTotal": "1200", "putMessageAverageSize": "240.0",
        "putMessageFailedTimes": "1", "putMessageEntireTimeMax": "12",
    }  # fmt: skip
    assert {name: info[name] for name in expected} == expected


def test_reads_are_found_or_missed() -> None:
    counters = stats()
    counters.got(0, 0.1)
    counters.got(32, 7.5)
    counters.got(1, 2)
    assert counters.get_message_times_total_found == 2
    assert counters.get_message_times_total_miss == 1
    assert counters.get_message_transferred_msg_count == 33
    assert counters.runtime_info()["getMessageEntireTimeMax"] == "7"


def test_rates_are_of_the_last_10_60_and_600_seconds() -> None:
    counters = stats()
    for second in range(700):
        counters.sample(float(second))
        for _ in range(2 if second < 650 else 4):
            put(counters, "T", 1, 0)
        counters.got(3, 0)
        counters.got(0, 0)
    info = counters.runtime_info()
    # In the last 60 samples: 11 seconds with 2 puts, and 49 with 4.
    assert [float(rate) for rate in info["putTps"].split(" ")] == [
        4.0,
        (11 * 2 + 49 * 4) / 60,
        (551 * 2 + 49 * 4) / 600,
    ]
    for name, rate in (("getFoundTps", 1.0), ("getMissTps", 1.0), ("getTotalTps", 2.0), ("getTransferedTps", 3.0)):
        assert [float(text) for text in info[name].split(" ")] == [rate] * 3
    assert len(counters._samples) <= 602


def test_a_window_without_enough_samples_has_no_rate() -> None:
    counters = stats()
    for second in range(11):
        counters.sample(float(second))
        put(counters, "T", 1, 0)
    assert counters.runtime_info()["putTps"] == "1.0  "


def test_the_distribution_shown_is_that_of_the_minute_before() -> None:
    counters = stats()
    for elapsed_ms in (
        0,
        0.9,
        1,
        9,
        10,
        49,
        50,
        99,
        100,
        200,
        500,
        999,
        1000,
        2000,
        3000,
        4000,
        5000,
        9999,
        10_000,
        10**9,
    ):
        counters.put_took(elapsed_ms)
    assert ":1" not in counters.runtime_info()["putMessageDistributeTime"]
    counters.begin_minute()
    assert counters.runtime_info()["putMessageDistributeTime"] == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:2 [100~200ms]:1 [200~500ms]:1 [500ms~1s]:2 [1~2s]:1 [2~3s]:1 "
        "[3~4s]:1 [4~5s]:1 [5~10s]:2 [10s~]:2 "
    )
    counters.begin_minute()
    assert ":1" not in counters.runtime_info()["putMessageDistributeTime"]


@given(
    st.lists(st.integers(0, 20_000), min_size=1), st.sampled_from([("putLatency99", 0.99), ("putLatency999", 0.999)])
)
def test_a_latency_is_in_the_bucket_of_the_sorted_list(times_ms: list[int], asked: tuple[str, float]) -> None:
    ends_ms = [*range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10), *range(250, 501, 50),
               *range(600, 1001, 100), *range(2000, 10_001, 1000), 20_000]  # fmt: skip
    counters = stats()
    for elapsed_ms in times_ms:
        counters.put_took(elapsed_ms)
    counters.begin_minute()
    name, part = asked
    rank = int(len(times_ms) * part)
    latency = float(counters.runtime_info()[name])
    if not rank:
        assert latency == 0
    else:
        bucket = bisect.bisect_left(ends_ms, sorted(times_ms)[rank - 1])
        assert (ends_ms[bucket - 1] if bucket else 0) <= latency <= ends_ms[bucket]


def test_rates_are_printed_once_there_are_some(caplog: pytest.LogCaptureFixture) -> None:
    """4.9 prints the first line without a number in it."""
    caplog.set_level(logging.INFO)
    counters = stats()
    for second in range(60):
        counters.sample(float(second))
    counters.begin_minute()
    assert [line.split()[0] for line in caplog.messages] == ["[PAGECACHERT]"]
    counters.sample(60.0)
    counters.begin_minute()
    assert caplog.messages[1] == "[STORETPS] put_tps 0.0 get_found_tps 0.0 get_miss_tps 0.0 get_transfered_tps 0.0"


def test_the_service_samples_each_second_and_turns_the_minute() -> None:
    async def main(world: World) -> None:
        timer = Timer()
        counters = StoreStatsService(world.node("a").wall_clock, timer)
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: timer.run(task_status=task_status))
            await nursery.start(lambda task_status: counters.run(task_status=task_status))
            for _ in range(59):
                await trio.sleep(1)
                put(counters, "T", 10, 5)
            assert counters.runtime_info()["putTps"].startswith("1.0 ")
            assert "[0~10ms]:0 " in counters.runtime_info()["putMessageDistributeTime"]
            await trio.sleep(5)
            assert "[0~10ms]:59 " in counters.runtime_info()["putMessageDistributeTime"]
            assert counters.runtime_info()["runtime"] == "[ 0 days, 0 hours, 1 minutes, 4 seconds ]"
            counters.request_stop()
            timer.request_stop()

    World(1).run(main)
