"""What becomes of open half messages, and how far their queues are done with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.transaction_check import (
    CheckRules,
    EndedTransactions,
    Fate,
    HalfMessage,
    first_undone,
    half_offset,
    is_op_done,
)
from rmq_actors.wire.record import StoredMessage

HOUR_MS = 3_600_000
RULES = CheckRules(time_out_ms=6_000, check_max=15, reserved_ms=72 * HOUR_MS)
NOW = 1_000 * HOUR_MS


def fate(now_ms: int = NOW, *, asks: bool = True, **fields: int | None) -> Fate:
    half = HalfMessage(**{"born_ms": NOW, "stored_ms": NOW, **fields})  # type: ignore[arg-type]
    return half.fate(now_ms, RULES, somebody_can_be_asked=asks)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Fate.WAIT),
        ({"born_ms": NOW - 5_999, "stored_ms": NOW - 5_999}, Fate.WAIT),
        ({"born_ms": NOW - 6_000, "stored_ms": NOW - 6_000}, Fate.ASK),  # RocketMQ spins: #544
        ({"born_ms": NOW - 6_000}, Fate.ASK),
        ({"born_ms": NOW + HOUR_MS, "stored_ms": NOW - 5_999}, Fate.WAIT),  # a producer's clock that is ahead
        ({"born_ms": NOW + HOUR_MS, "stored_ms": NOW - 6_000}, Fate.ASK),
        ({"born_ms": NOW + 1, "stored_ms": NOW + 1}, Fate.ASK),  # the broker's clock has gone back
        ({"born_ms": NOW - 60_000, "immunity_ms": 60_001}, Fate.WAIT),
        ({"born_ms": NOW - 60_000, "immunity_ms": 60_000}, Fate.ASK),
        ({"immunity_ms": 0}, Fate.ASK),
        ({"born_ms": NOW - 60_000, "check_times": 14}, Fate.ASK),
        ({"born_ms": NOW - 60_000, "check_times": 15}, Fate.CHECKED_TOO_OFTEN),
        ({"born_ms": NOW - 60_000, "check_times": 15, "asks": False}, Fate.CHECKED_TOO_OFTEN),
        ({"born_ms": NOW - 60_000, "asks": False}, Fate.WAIT),
        ({"born_ms": NOW - 73 * HOUR_MS}, Fate.ASK),
        ({"born_ms": NOW - 73 * HOUR_MS, "check_times": 0}, Fate.ASK),  # resumed by an operator
        ({"born_ms": NOW - 73 * HOUR_MS, "check_times": 1}, Fate.TOO_OLD),
        ({"born_ms": NOW - 72 * HOUR_MS, "check_times": 1}, Fate.ASK),
        ({"born_ms": NOW - 73 * HOUR_MS, "asks": False}, Fate.TOO_OLD),
        ({"born_ms": NOW - 73 * HOUR_MS, "immunity_ms": 1_000 * HOUR_MS}, Fate.ASK),  # no immunity is for ever
    ],
)
def test_the_fate_of_a_half_message(fields: dict[str, int | None], expected: Fate) -> None:
    assert fate(**fields) is expected  # type: ignore[arg-type]


@given(
    st.integers(-HOUR_MS, 80 * HOUR_MS),
    st.integers(0, 80 * HOUR_MS),
    st.none() | st.integers(-1, 20),
    st.none() | st.integers(-(10**9), 100 * HOUR_MS),
    st.booleans(),
)
def test_what_is_done_is_never_too_early_and_once_given_up_it_stays_so(
    age: int, stored_ago: int, times: int | None, immunity: int | None, asks: bool
) -> None:
    half = HalfMessage(NOW - age, NOW - stored_ago, times, immunity)
    now = half.fate(NOW, RULES, somebody_can_be_asked=asks)
    if now is Fate.ASK:
        assert asks
        assert half.due_ms(RULES) <= NOW
        assert (times or 0) < RULES.check_max
    if now.is_given_up:
        assert (times or 0) >= RULES.check_max or (age > RULES.reserved_ms and (not asks or (times or 0) > 0))
        assert half.fate(NOW + 1, RULES, somebody_can_be_asked=asks).is_given_up
    # In the end everything is asked about or given up.
    assert half.fate(NOW + 200 * HOUR_MS, RULES, somebody_can_be_asked=asks) is not Fate.WAIT


@given(st.integers(0, 30), st.integers(0, 200))
def test_a_message_that_nobody_ends_is_asked_about_so_often_and_then_given_up(check_max: int, interval_s: int) -> None:
    rules = CheckRules(6_000, check_max + 1, 72 * HOUR_MS)
    half, now, asked = HalfMessage(NOW, NOW), NOW, 0
    while not (found := half.fate(now, rules, somebody_can_be_asked=True)).is_given_up:
        if found is Fate.ASK:
            asked += 1
            half = HalfMessage(half.born_ms, now, half.times_asked_next)
        now += 1_000 * (interval_s + 1)
    assert (asked, found) == (check_max + 1, Fate.CHECKED_TOO_OFTEN)


@pytest.mark.parametrize(
    ("properties", "times", "immunity"),
    [
        ({}, None, None),
        ({"TRANSACTION_CHECK_TIMES": "3", "CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}, 3, 20_000),
        ({"TRANSACTION_CHECK_TIMES": "x", "CHECK_IMMUNITY_TIME_IN_SECONDS": "x"}, -1, None),
        ({"TRANSACTION_CHECK_TIMES": "9" * 5000, "CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 5000}, -1, None),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, None, None),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-7"}, None, -7_000),
    ],
)
def test_a_record_says_it_in_properties(properties: dict[str, str], times: int | None, immunity: int | None) -> None:
    record = StoredMessage(0, 1, 0, 0, 0, 0, 0, 5, "1.1.1.1:1", 6, "1.1.1.1:1", 0, 0, b"", "T", properties)
    half = HalfMessage.of(record)
    assert half == HalfMessage(5, 6, times, immunity)
    assert half.times_asked_next == {None: 1, -1: 1, 3: 4}[times]


# --- queues -----------------------------------------------------------------------------------------------------------


@given(st.integers(-1, 12), st.integers(0, 9), st.integers(0, 9), st.sets(st.integers(0, 9)))
def test_the_half_offset_has_nothing_open_before_it_and_goes_back_only_with_the_log(
    committed: int, low: int, count: int, open_offsets: set[int]
) -> None:
    end = low + count
    open_offsets = {offset for offset in open_offsets if offset < end}
    found = half_offset(committed, low, end, open_offsets)
    begin = first_undone(committed, low, end)
    assert low <= begin <= found <= end
    assert not any(begin <= offset < found for offset in open_offsets)
    assert found == end or found in open_offsets
    assert found >= min(committed, end)


def test_an_op_message_is_needed_as_long_as_a_half_message_that_it_names_is() -> None:
    assert is_op_done([], 0)
    assert is_op_done([1, 2], 3)
    assert not is_op_done([1, 3], 3)


# --- ends that the table has not taken up -----------------------------------------------------------------------------


def test_an_end_counts_until_the_table_knows_of_it() -> None:
    ended = EndedTransactions()
    ended.note(100, 500, 8)
    assert (100 in ended, ended.state(100), len(ended)) == (True, 8, 1)
    ended.forget_to(500)
    assert 100 in ended
    ended.forget_to(501)
    assert (100 in ended, ended.state(100), len(ended)) == (False, None, 0)


def test_a_half_message_that_was_stored_again_stands_for_the_first_one() -> None:
    ended = EndedTransactions()
    ended.note(100, 500, 12, 500)
    ended.note(500, 900, 12, 900)
    assert (ended.successor(100), ended.successor(500), ended.successor(900), ended.successor(7)) == (900, 900, 900, 7)
    ended.note(900, 1000, 8)
    assert ended.successor(100) == 900
    assert ended.state(ended.successor(100)) == 8
