"""When delayed messages are due, in seconds of the monotonic clock: never early, also where the wall clock jumps.

A record says by the wall clock when it was stored, and its queue's entry when it is due. Both clocks are read when a
delayed record is stamped: how far one was ahead of the other translates its time exactly, whatever the wall clock did
before and does after. Records that came one after the other while the clocks kept step share one translation. What was
there before anybody watched is taken as the wall clock says at the start of the watch, but is not kept longer than its
delay.

Pure: clocks are arguments. RocketMQ compares with the wall clock alone (ScheduleMessageService), and delivers at once
what a clock that went back makes due later than its delay.
"""

from __future__ import annotations

import bisect
import functools
from typing import NamedTuple

import attrs

#: Records whose translations differ by no more share the first one's: slewing by 500 ppm, as NTP does, needs 4 s for
#: that.
_STEP_S = 0.002
#: Time stamps are whole milliseconds, cut off.
_SLACK_S = _STEP_S + 0.001
#: How many periods are remembered. More are made fewer: neighbours become one, the shortest ones first.
PERIODS_MAX = 1_000


class StampedRecord(NamedTuple):
    """A delayed record that ends at `end_offset` of the log, and the monotonic clock when it was stamped `wall_ms`."""

    end_offset: int
    at_s: float
    wall_ms: int


@attrs.define(eq=False, repr=False)
class _Period:
    """Records that end after the period before, and no later than `end_offset`; stamped from `begin_s` to `end_s`.

    `shift_s`: the wall clock less the monotonic one when they were stamped, at least.
    """

    end_offset: int
    begin_s: float
    end_s: float
    shift_s: float

    def joined(self, later: _Period) -> _Period:
        """One period for this one and the next. None of their records is due earlier by it."""
        return _Period(later.end_offset, self.begin_s, later.end_s, min(self.shift_s, later.shift_s))


@attrs.define(eq=False, repr=False)
class DueClock:
    """Made when the watch begins: the records before `begin_offset` are there. Call `saw` with each later one.

    Offsets are those of the log; `begin_s` is of the monotonic clock, `begin_wall_ms` of the wall clock at the same
    time. No record is delayed longer than `longest_delay_s`. At most `PERIODS_MAX` periods are remembered, so a record
    may be due later after more jumps than these: by 4 / `PERIODS_MAX` of the longest delay at most.
    """

    begin_offset: int
    begin_s: float
    begin_wall_ms: int
    longest_delay_s: float
    _periods: list[_Period] = attrs.field(factory=list, init=False)

    def saw(self, record: StampedRecord) -> None:
        """A delayed record was appended, after those before."""
        end_offset, at_s, wall_ms = record
        shift_s = wall_ms / 1000 - at_s
        periods = self._periods
        if periods and abs(shift_s - periods[-1].shift_s) <= _STEP_S:
            periods[-1].end_offset, periods[-1].end_s = end_offset, at_s
            return
        periods.append(_Period(end_offset, at_s, at_s, shift_s))
        if len(periods) > PERIODS_MAX:
            self._join_periods(at_s)

    def _join_periods(self, now_s: float) -> None:
        """Leave about half of the periods at most. What is over for every delay is one: its records are due anyway."""
        over_s = now_s - self.longest_delay_s
        first_waiting = bisect.bisect_left(self._periods, over_s, key=lambda period: period.end_s)
        over, waiting = self._periods[:first_waiting], self._periods[first_waiting:]
        joined: list[_Period] = []
        # Any two neighbours that are left are longer together than this, so few are left.
        span_s = 4 * (now_s - waiting[0].begin_s) / PERIODS_MAX
        for period in waiting:
            if joined and period.end_s - joined[-1].begin_s <= span_s:
                joined[-1] = joined[-1].joined(period)
            else:
                joined.append(period)
        if over:
            joined.insert(0, functools.reduce(_Period.joined, over))
        self._periods = joined

    def due_at_s(self, offset: int, due_wall_ms: int, delay_ms: int, now_s: float) -> float:
        """When the record at `offset`, due at `due_wall_ms` by the clock that stamped it, is due.

        `delay_ms`: how long it is delayed.
        """
        delay_s = delay_ms / 1000
        if offset < self.begin_offset:
            shift_s, latest_s = self.begin_wall_ms / 1000 - self.begin_s, self.begin_s + delay_s
        else:
            number = bisect.bisect_right(self._periods, offset, key=lambda period: period.end_offset)
            if number == len(self._periods):
                return now_s + delay_s
            period = self._periods[number]
            shift_s, latest_s = period.shift_s, period.end_s + delay_s
        return min(due_wall_ms / 1000 - shift_s + _SLACK_S, latest_s)
