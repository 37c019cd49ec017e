"""When delayed messages are due, in seconds of the monotonic clock: never early, also where the wall clock jumps.

A record says by the wall clock when it was stored, and its queue's entry when it is due. The clock is watched while
records come: as long as it keeps step with the monotonic clock, one number translates all their times. A record that
came together with a jump may have been stamped before or after it, so only what was seen counts of it: it is due a
whole delay after it was seen. So is one whose stamp is not of the time in which it came: the clock may have jumped
there and back while no record came. What was there before anybody watched is taken as the wall clock says now, but is
not kept longer than its delay.

Pure: clocks are arguments. RocketMQ compares with the wall clock alone (ScheduleMessageService), and delivers at once
what a clock that went back makes due later than its delay.
"""

from __future__ import annotations

import bisect

import attrs

#: A clock that differs by more has jumped. Slewing by 500 ppm, as NTP does, reaches it after some seconds.
_STEP_S = 0.002
#: Time stamps are whole milliseconds, cut off; together with `_STEP_S` that is how wrong a translated time may be.
_SLACK_S = _STEP_S + 0.001
#: A record may be seen so long after it was stamped, as where a transient pool is committed each 200 ms. A period with
#: one translation lasts twice as long at most, from the earliest stamp of what comes in it, unless nothing came longer.
PERIOD_S = 1.0
#: Where nothing was seen for longer, as where a queue had no room, a stamp is believed that is no older than this.
LAG_MAX_S = 60.0
#: How many periods are remembered. More are made fewer: neighbours become one, the shortest ones first.
PERIODS_MAX = 1_000


@attrs.define(eq=False, repr=False)
class _Period:
    """Records up to `end_offset`, which came between `begin_s` and `end_s`.

    `shift_s`: the wall clock less the monotonic one when they were stamped; None if that is not known.
    """

    end_offset: int
    begin_s: float
    end_s: float
    shift_s: float | None


@attrs.define(eq=False, repr=False)
class DueClock:
    """Made when the watch begins: the records before `log_offset` are there. Call `saw` as soon as more have come.

    Offsets are those of the log; `now_s` is of the monotonic clock, `wall_ms` of the wall clock at the same time. No
    record is delayed longer than `longest_delay_s`. At most `PERIODS_MAX` periods are remembered, so a record may be
    due later after more jumps than these: by 4 / `PERIODS_MAX` of the longest delay at most.
    """

    begin_offset: int
    begin_s: float
    begin_wall_ms: int
    longest_delay_s: float
    _periods: list[_Period] = attrs.field(factory=list, init=False)
    _seen_offset: int = attrs.field(init=False)
    _seen_s: float = attrs.field(init=False)
    _shift_s: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen_offset, self._seen_s = self.begin_offset, self.begin_s
        self._shift_s = self.begin_wall_ms / 1000 - self.begin_s

    def saw(self, log_offset: int, now_s: float, wall_ms: int) -> None:
        """All records before `log_offset` have come by now."""
        if log_offset <= self._seen_offset:
            return
        periods, shift_s = self._periods, wall_ms / 1000 - now_s
        if abs(shift_s - self._shift_s) > _STEP_S:
            periods.append(_Period(log_offset, self._seen_s, now_s, None))
            self._shift_s = shift_s
        elif periods and periods[-1].shift_s is not None and now_s - periods[-1].begin_s <= 2 * PERIOD_S:
            periods[-1].end_offset, periods[-1].end_s = log_offset, now_s
        else:
            # Before a jump was seen, records were stamped by another clock, and may be seen only now.
            after_jump = not periods or periods[-1].shift_s is None
            earliest_s = max(self._seen_s, now_s - LAG_MAX_S)
            begin_s = earliest_s if after_jump else min(earliest_s, now_s - PERIOD_S)
            periods.append(_Period(log_offset, begin_s, now_s, shift_s))
        self._seen_offset, self._seen_s = log_offset, now_s
        if len(periods) > PERIODS_MAX:
            self._join_periods(now_s)

    def _join_periods(self, now_s: float) -> None:
        """Leave about half of the periods at most. What is over for every delay is one: its records are due anyway."""
        over_s = now_s - self.longest_delay_s
        waiting = [period for period in self._periods if period.end_s >= over_s]
        joined: list[_Period] = []
        if len(waiting) < len(self._periods):
            last_over = self._periods[-len(waiting) - 1]
            joined.append(_Period(last_over.end_offset, self._periods[0].begin_s, last_over.end_s, None))
        first_waiting = len(joined)
        # Any two neighbours that are left are longer together than this, so few are left.
        span_s = 4 * (now_s - waiting[0].begin_s) / PERIODS_MAX
        for period in waiting:
            if len(joined) > first_waiting and period.end_s - joined[-1].begin_s <= span_s:
                shift_s = _shift_of_both(joined[-1].shift_s, period.shift_s)
                joined[-1] = _Period(period.end_offset, joined[-1].begin_s, period.end_s, shift_s)
            else:
                joined.append(period)
        self._periods = joined

    def due_at_s(self, offset: int, due_wall_ms: int, delay_ms: int, now_s: float) -> float:
        """When the record at `offset`, due at `due_wall_ms` by the clock that stamped it, is due.

        `delay_ms`: how long it is delayed.
        """
        delay_s = delay_ms / 1000
        if offset < self.begin_offset:
            due_s = due_wall_ms / 1000 - (self.begin_wall_ms / 1000 - self.begin_s) + _SLACK_S
            return min(due_s, self.begin_s + delay_s)
        number = bisect.bisect_right(self._periods, offset, key=lambda period: period.end_offset)
        if number == len(self._periods):
            return now_s + delay_s
        period = self._periods[number]
        latest_s = period.end_s + delay_s
        if period.shift_s is None:
            return latest_s
        due_s = due_wall_ms / 1000 - period.shift_s + _SLACK_S
        if due_s < period.begin_s + delay_s:  # by this translation it was stamped before it can have come
            return latest_s
        return min(due_s, latest_s)


def _shift_of_both(first_s: float | None, second_s: float | None) -> float | None:
    """One translation for two periods, if there is one."""
    if first_s is None or second_s is None or abs(first_s - second_s) > _STEP_S:
        return None
    return first_s
