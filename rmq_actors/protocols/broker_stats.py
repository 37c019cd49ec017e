"""What a broker counts for mqadmin (BrokerStatsManager, StatsItem): sums and rates of the last minute, hour and day.

    a counter:  0 ........ 120 ........ 180 ........ 300        its value, which only grows
    snapshots:  |           |            |            |         every 10 s, every 10 minutes, every hour
                first                                 last      of the minute: sum 300, tps 300 / (last - first)

Pure: times are arguments, in milliseconds of the wall clock. A key is a topic, `topic@group`, or the cluster.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import attrs

MINUTE_INTERVAL_S, HOUR_INTERVAL_S, DAY_INTERVAL_S = 10, 600, 3600
#: How many snapshots there are of a minute and an hour, and of a day.
_SNAPSHOTS, _DAY_SNAPSHOTS = 7, 25
_DAY_MS = 86_400_000
#: Over all statistics. What comes after that is not counted until a topic or a group is deleted.
KEYS_MAX = 200_000


class StatsName(enum.StrEnum):
    """What is counted, by RocketMQ's names."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    #: Milliseconds that a pull took which found something.
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
    BROKER_GET_NUMS = "BROKER_GET_NUMS"


class StatsSnapshot(NamedTuple):
    """What was added in a time, that a second, and that a time that something was added."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class _CallSnapshot(NamedTuple):
    at_ms: int
    times: int
    value: int


_Snapshots = deque[_CallSnapshot]


def _compute(snapshots: _Snapshots) -> StatsSnapshot:
    """computeStatsData: between the first snapshot and the last."""
    if not snapshots:
        return StatsSnapshot()
    first, last = snapshots[0], snapshots[-1]
    total, times, elapsed_ms = last.value - first.value, last.times - first.times, last.at_ms - first.at_ms
    # A wall clock that was set back gives no rate, where RocketMQ's is infinite or negative.
    return StatsSnapshot(total, total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0, total / times if times else 0.0)


@attrs.define(eq=False, repr=False)
class StatsItem:
    """One counter. `times`: how often something was added."""

    value: int = 0
    times: int = 0
    _minute: _Snapshots = attrs.field(factory=lambda: deque(maxlen=_SNAPSHOTS), init=False)
    _hour: _Snapshots = attrs.field(factory=lambda: deque(maxlen=_SNAPSHOTS), init=False)
    _day: _Snapshots = attrs.field(factory=lambda: deque(maxlen=_DAY_SNAPSHOTS), init=False)

    def sample(self, now_ms: int, interval_s: int) -> None:
        """Take a snapshot for the minute, the hour or the day, by its interval."""
        snapshots = {MINUTE_INTERVAL_S: self._minute, HOUR_INTERVAL_S: self._hour, DAY_INTERVAL_S: self._day}[
            interval_s
        ]
        if not snapshots:
            snapshots.append(_CallSnapshot(now_ms - interval_s * 1000, 0, 0))
        snapshots.append(_CallSnapshot(now_ms, self.times, self.value))

    @property
    def minute(self) -> StatsSnapshot:
        """The last minute."""
        return _compute(self._minute)

    @property
    def hour(self) -> StatsSnapshot:
        """The last hour."""
        return _compute(self._hour)

    @property
    def day(self) -> StatsSnapshot:
        """The last day."""
        return _compute(self._day)


@attrs.define(eq=False, repr=False)
class DayTotals:
    """What a total was when yesterday began, when today began, and is now (store.stats.BrokerStats).

    A day begins at midnight UTC; RocketMQ's begins at that of its time zone.
    """

    yesterday_morning: int = 0
    today_morning: int = 0
    now: int = 0
    _day: int | None = attrs.field(default=None, init=False)

    def grow(self, now_ms: int, added: int) -> None:
        """So much was added since the last call. A clock that was set back begins no day."""
        day = now_ms // _DAY_MS
        if self._day is not None and day > self._day:
            # If nobody asked on a day, its total is that of its end.
            self.yesterday_morning = self.today_morning if day == self._day + 1 else self.now
            self.today_morning = self.now
        self._day = day if self._day is None else max(day, self._day)
        self.now += added

    def runtime_info(self, what: str) -> dict[str, str]:
        """By RocketMQ's names; `what` is msgPutTotal or msgGetTotal."""
        return {
            f"{what}YesterdayMorning": str(self.yesterday_morning),
            f"{what}TodayMorning": str(self.today_morning),
            f"{what}TodayNow": str(self.now),
        }


def topic_at_group(topic: str, group: str) -> str:
    """The key of what a group does in a topic (buildStatsKey)."""
    return f"{topic}@{group}"


@attrs.define(eq=False, repr=False)
class BrokerStats:
    """All counters of a broker. Call `sample` at each interval."""

    keys_max: int = KEYS_MAX
    _items: dict[StatsName, dict[str, StatsItem]] = attrs.field(
        factory=lambda: {name: {} for name in StatsName}, init=False
    )
    _keys: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return self._keys

    def add(self, name: StatsName, key: str, value: int, times: int = 1) -> None:
        """Count. The key must be of a topic or a group that there is, or of the cluster."""
        items = self._items[name]
        item = items.get(key)
        if item is None:
            if self._keys >= self.keys_max:
                return
            self._keys += 1
            item = items[key] = StatsItem()
        item.value += value
        item.times += times

    def find(self, name: str, key: str) -> StatsItem | None:
        """The counter, if anything was counted."""
        items = self._items.get(name)  # type: ignore[call-overload]  # a StrEnum's member is the text
        return None if items is None else items.get(key)

    def sample(self, now_ms: int, interval_s: int) -> None:
        """Take a snapshot of every counter."""
        for items in self._items.values():
            for item in items.values():
                item.sample(now_ms, interval_s)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted (onTopicDeleted)."""
        self._forget(lambda key: key.partition("@")[0] == topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted (onGroupDeleted)."""
        self._forget(lambda key: "@" in key and key.rpartition("@")[2] == group)

    def _forget(self, is_gone: Callable[[str], bool]) -> None:
        for name, items in self._items.items():
            if name not in {StatsName.BROKER_PUT_NUMS, StatsName.BROKER_GET_NUMS}:
                for key in [key for key in items if is_gone(key)]:
                    del items[key]
                    self._keys -= 1
