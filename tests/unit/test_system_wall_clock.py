"""The wall clock of the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rmq_actors.real_io.wall_clock import SystemWallClock


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def test_it_tells_milliseconds_since_the_epoch() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemWallClock().now_ms() <= time.time_ns() // 1_000_000


@pytest.mark.usefixtures("berlin")
def test_the_offset_is_that_of_the_local_zone_at_that_time() -> None:
    clock = SystemWallClock()
    winter_ms, summer_ms, change_ms = 1_704_103_200_000, 1_719_828_000_000, 1_711_846_800_000
    assert [clock.utc_offset_s(at_ms) for at_ms in (winter_ms, summer_ms)] == [3600, 7200]
    assert [clock.utc_offset_s(change_ms + by_ms) for by_ms in (-1, 0)] == [3600, 7200]
    assert clock.utc_offset_s(-1) == 3600
