"""Delayed messages, whatever clocks, puts and reads do: none early, none late without reason, none passed over."""

from __future__ import annotations

import itertools
import math

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq_actors.protocols.delayed_deliveries import RETRY_MAX_S, TRIES_MAX, DelayedDeliveries, Verdict
from rmq_actors.protocols.due_clock import PERIODS_MAX, DueClock, StampedRecord
from rmq_actors.protocols.put_completion import PutStatus

EPOCH_MS = 1_700_000_000_000
#: How wrong a time may be that was translated from one clock to the other: see `due_clock`.
LATE_MAX_S = 0.005
LONGEST_S = 7_200.0
steps_s = st.sampled_from([0.0, 0.0004, 0.001, 0.3, 1.0, 7.25, 3600.0])
jumps_ms = st.sampled_from([0, 0, 0, 1, -1, 5, -5, 700, -700, 10_000, -10_000, 3_600_000, -3_600_000])
#: How much later the monotonic clock is read.
reads_s = st.sampled_from([0.0, 0.0, 0.0004, 0.3])
delays_ms = st.sampled_from([0, 1, 1_000, 10_000, 7_200_000])


@attrs.define
class Clocks:
    """A monotonic clock, and a wall clock that jumps."""

    now_s: float = 1000.0
    ahead_ms: int = EPOCH_MS

    @property
    def wall_ms(self) -> int:
        return self.ahead_ms + math.floor(self.now_s * 1000)


@given(st.lists(st.tuples(steps_s, jumps_ms, delays_ms, reads_s), min_size=1, max_size=30), st.data())
@example([(1.0, 0, 1_000, 0.0), (7.25, -10_000, 1_000, 0.0), (0.3, 10_000, 1_000, 0.0)], None)
def test_a_message_is_due_after_its_delay_whatever_the_wall_clock_does(
    messages: list[tuple[float, int, int, float]], data: st.DataObject | None
) -> None:
    """The clock jumps before a message is stamped; the other clock is read a bit later."""
    clocks = Clocks()
    clock = DueClock(0, clocks.now_s, clocks.wall_ms, LONGEST_S)
    stored: list[tuple[float, float, int, int]] = []
    for number, (pause_s, jump_ms, delay_ms, read_s) in enumerate(messages):
        clocks.now_s += pause_s
        clocks.ahead_ms += jump_ms
        stamped_s, wall_ms = clocks.now_s, clocks.wall_ms
        clocks.now_s += read_s
        clock.saw(StampedRecord(number + 1, clocks.now_s, wall_ms))
        stored.append((stamped_s, clocks.now_s, wall_ms + delay_ms, delay_ms))
    number = len(stored) - 1 if data is None else data.draw(st.integers(0, len(stored) - 1))
    stamped_s, noted_s, due_ms, delay_ms = stored[number]
    due_at_s = clock.due_at_s(number, due_ms, delay_ms, clocks.now_s)
    assert stamped_s + delay_ms / 1000 - 1e-6 <= due_at_s <= noted_s + delay_ms / 1000 + LATE_MAX_S


@given(steps_s, jumps_ms, delays_ms, steps_s, jumps_ms)
def test_a_message_that_was_there_before_is_due_by_the_clock_of_the_start_and_after_its_delay_at_the_latest(
    before_s: float, jump_ms: int, delay_ms: int, later_s: float, later_jump_ms: int
) -> None:
    clocks = Clocks()
    due_ms = clocks.wall_ms + delay_ms
    clocks.now_s += before_s
    clocks.ahead_ms += jump_ms
    clock = DueClock(10, clocks.now_s, clocks.wall_ms, LONGEST_S)
    start_s, rest_s = clocks.now_s, (due_ms - clocks.wall_ms) / 1000
    clocks.now_s += later_s
    clocks.ahead_ms += later_jump_ms
    due_at_s = clock.due_at_s(9, due_ms, delay_ms, clocks.now_s)
    assert due_at_s == clock.due_at_s(9, due_ms, delay_ms, clocks.now_s + 5)
    assert start_s + min(rest_s, delay_ms / 1000) - 1e-6 <= due_at_s <= start_s + delay_ms / 1000
    assert due_at_s <= start_s + rest_s + LATE_MAX_S


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.01, 4.0]), st.sampled_from([0, 2, 1000, -1000])), min_size=2, max_size=5
    ).filter(lambda steps: any(jump_ms for _, jump_ms in steps)),
    st.sampled_from([1_000, 300_000, 7_200_000]),
)
@example([(2.0, 3), (2.0, 0)], 7_200_000)  # each jump is followed by a message of a calm clock
def test_a_clock_that_jumps_time_and_again_costs_bounded_memory_and_makes_nothing_early_nor_late(
    steps: list[tuple[float, int]], delay_ms: int
) -> None:
    clocks, delay_s = Clocks(), delay_ms / 1000
    clock = DueClock(0, clocks.now_s, clocks.wall_ms, LONGEST_S)
    stored = []
    for number, (pause_s, jump_ms) in enumerate(itertools.islice(itertools.cycle(steps), 3 * PERIODS_MAX)):
        clocks.now_s += pause_s
        clocks.ahead_ms += jump_ms
        stored.append((clocks.now_s, clocks.wall_ms + delay_ms))
        clock.saw(StampedRecord(number + 1, clocks.now_s, clocks.wall_ms))
        assert len(clock._periods) <= PERIODS_MAX
    # A record may be one of a joined period.
    late_max_s = LATE_MAX_S + 4 * min(LONGEST_S + 4.0, clocks.now_s - 1000.0) / PERIODS_MAX
    for number, (stored_s, due_ms) in enumerate(stored):
        due_at_s = clock.due_at_s(number, due_ms, delay_ms, clocks.now_s)
        assert due_at_s >= stored_s + delay_s - 1e-6
        assert due_at_s <= max(stored_s + delay_s + late_max_s, clocks.now_s)


@pytest.mark.parametrize("ahead_ppm", [-500, 500])
def test_a_clock_that_is_slewed_all_the_time_makes_nothing_late(ahead_ppm: int) -> None:
    """There are more periods than are remembered: those that become one differ by milliseconds."""
    clock, delay_ms = DueClock(0, 1000.0, EPOCH_MS, LONGEST_S), 7_200_000
    stored = []
    for number in range(4 * PERIODS_MAX):
        now_s = 1000.0 + 2.0 * number
        wall_ms = EPOCH_MS + math.floor(2_000 * number * (1 + ahead_ppm / 1e6))
        clock.saw(StampedRecord(number + 1, now_s, wall_ms))
        stored.append((now_s, wall_ms + delay_ms))
    for number, (stored_s, due_ms) in enumerate(stored):
        due_at_s = clock.due_at_s(number, due_ms, delay_ms, now_s)
        assert stored_s + delay_ms / 1000 - 1e-6 <= due_at_s
        if due_at_s > now_s:
            assert due_at_s <= stored_s + delay_ms / 1000 + 0.05


# --- what comes of each delivery --------------------------------------------------------------------------------------

TOO_MANY = PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
STATUSES = [PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGECACHE_BUSY, TOO_MANY]


@given(st.lists(st.sampled_from([*STATUSES, None]), max_size=40), st.integers(1, 18))
def test_a_level_goes_on_after_a_message_only_when_the_log_has_it_or_it_was_tried_in_vain_time_and_again(
    outcomes: list[PutStatus | None], level: int
) -> None:
    """None: the record cannot be read. `TOO_MANY`: light queues."""
    machine = DelayedDeliveries([1_000] * 18)
    now_s, in_vain = 5.0, 0
    for outcome in outcomes:
        assert machine.is_due(level, now_s)
        verdict = machine.unreadable(level, now_s) if outcome is None else machine.put(level, outcome, now_s)
        if outcome is PutStatus.PUT_OK:
            assert verdict is Verdict.DELIVERED
        elif outcome not in {None, TOO_MANY}:
            assert verdict is Verdict.RETRIED
        else:
            assert (verdict is Verdict.PASSED_OVER) is (in_vain == TRIES_MAX - 1)
        in_vain = in_vain + 1 if outcome in {None, TOO_MANY} and verdict is Verdict.RETRIED else 0
        if verdict is Verdict.RETRIED:
            assert not machine.is_due(level, now_s)
            now_s += RETRY_MAX_S


def test_a_level_is_looked_at_first_and_then_when_something_may_be_due() -> None:
    machine = DelayedDeliveries([1_000, 5_000])
    assert machine.due(0.0) == [1, 2]
    machine.empty(1)
    machine.not_due(2, 4.0)
    assert (machine.due(3.9), machine.looks_at_s) == ([], 4.0)
    machine.came(2)  # another one, after the first
    assert machine.looks_at_s == 4.0
    machine.came(1)
    assert machine.due(3.9) == [1]
    machine.empty(1)
    assert machine.due(4.0) == [2]
    machine.empty(2)
    assert machine.looks_at_s == math.inf


def test_pauses_double_and_begin_again_after_a_success() -> None:
    machine = DelayedDeliveries([1_000])
    pauses = []
    for _ in range(6):
        machine.put(1, PutStatus.SERVICE_NOT_AVAILABLE, 0.0)
        pauses.append(machine.looks_at_s)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 1.6]
    machine.put(1, PutStatus.PUT_OK, 0.0)
    machine.put(1, PutStatus.SERVICE_NOT_AVAILABLE, 0.0)
    assert machine.looks_at_s == 0.1


def test_what_the_log_never_takes_is_passed_over_at_once() -> None:
    machine = DelayedDeliveries([1_000])
    for status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.UNKNOWN_ERROR):
        assert machine.put(1, status, 0.0) is Verdict.PASSED_OVER
