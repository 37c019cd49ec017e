"""How many messages were put until the morning of yesterday, of today, and until now."""

from __future__ import annotations

from rmq_actors.protocols.broker_stats import DayTotals

DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


def known(totals: DayTotals) -> tuple[int, int, int]:
    return totals.yesterday_morning, totals.today_morning, totals.now


def test_mornings_are_what_the_total_was_when_the_day_began() -> None:
    totals = DayTotals()
    totals.grow(NOON_MS, 5)
    assert known(totals) == (0, 0, 5)
    totals.grow(NOON_MS + DAY_MS, 0)
    assert known(totals) == (0, 5, 5)
    totals.grow(NOON_MS + DAY_MS, 2)
    totals.grow(NOON_MS + 2 * DAY_MS, 1)
    assert known(totals) == (5, 7, 8)
    assert totals.runtime_info("msgPutTotal") == {
        "msgPutTotalYesterdayMorning": "5",
        "msgPutTotalTodayMorning": "7",
        "msgPutTotalTodayNow": "8",
    }


def test_days_without_a_question_had_no_messages() -> None:
    totals = DayTotals()
    totals.grow(NOON_MS, 5)
    totals.grow(NOON_MS + 3 * DAY_MS, 1)
    assert known(totals) == (5, 5, 6)


def test_a_clock_that_is_set_back_begins_no_day() -> None:
    totals = DayTotals()
    totals.grow(NOON_MS, 5)
    totals.grow(NOON_MS - DAY_MS, 1)
    totals.grow(NOON_MS, 1)
    assert known(totals) == (0, 0, 7)
