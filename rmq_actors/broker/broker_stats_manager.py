"""Counts what clients put and get, and takes the snapshots that mqadmin's rates come from (BrokerStatsManager).

What was put is not counted here: the store counts it by topic already, and the sampling reads it there, so a put costs
nothing more. A pull that finds something makes one call.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.broker_stats import (
    DAY_INTERVAL_S,
    HOUR_INTERVAL_S,
    MINUTE_INTERVAL_S,
    BrokerStats,
    DayTotals,
    StatsName,
    topic_at_group,
)
from rmq_actors.store.message_store import MessageStore


@attrs.define(eq=False, repr=False)
class BrokerStatsManager(ServiceThread):
    """The counters, written by processors, and the service that samples them."""

    name = "BrokerStatsManager"
    #: None while there is no store.
    _open_store: Callable[[], MessageStore | None]
    _cluster_name: Callable[[], str]
    _wall_clock: WallClock
    stats: BrokerStats = attrs.field(factory=BrokerStats, init=False)
    _puts: DayTotals = attrs.field(factory=DayTotals, init=False)
    _gets: DayTotals = attrs.field(factory=DayTotals, init=False)
    #: What pulls found, all in all.
    _got: int = attrs.field(default=0, init=False)
    #: What was counted of a store's puts, by topic: messages and bytes.
    _counted_store: MessageStore | None = attrs.field(default=None, init=False)
    _counted: dict[str, tuple[int, int]] = attrs.field(factory=dict, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Sample every 10 s, 10 minutes and hour, at once too, as RocketMQ does."""
        task_status.started()
        seconds = 0
        while True:
            for interval_s in (MINUTE_INTERVAL_S, HOUR_INTERVAL_S, DAY_INTERVAL_S):
                if seconds % interval_s == 0:
                    self.sample(interval_s)
            await trio.sleep(MINUTE_INTERVAL_S)
            seconds += MINUTE_INTERVAL_S

    def sample(self, interval_s: int) -> None:
        """Take a snapshot of every counter for the minute, the hour or the day."""
        self._count()
        self.stats.sample(self._wall_clock.now_ms(), interval_s)

    def got(self, group: str, topic: str, messages: int, size_bytes: int, latency_ms: int) -> None:
        """A pull of a group has found so many messages."""
        key, add = topic_at_group(topic, group), self.stats.add
        add(StatsName.GROUP_GET_NUMS, key, messages)
        add(StatsName.GROUP_GET_SIZE, key, size_bytes)
        add(StatsName.GROUP_GET_LATENCY, key, latency_ms)
        add(StatsName.BROKER_GET_NUMS, self._cluster_name(), messages, 0)
        self._got += messages

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: what it was sent since the last sample would come back with the next one."""
        self._count()
        self.stats.forget_topic(topic)

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """How many messages a group got a second, in the last minute."""
        item = self.stats.find(StatsName.GROUP_GET_NUMS, topic_at_group(topic, group))
        return 0.0 if item is None else item.minute.tps

    def runtime_info(self) -> dict[str, str]:
        """How many messages were put and got until the mornings, and until now, for `mqadmin clusterList -m`."""
        self._count()
        return {**self._puts.runtime_info("msgPutTotal"), **self._gets.runtime_info("msgGetTotal")}

    def _count(self) -> None:
        now_ms = self._wall_clock.now_ms()
        self._gets.grow(now_ms, self._got - self._gets.now)
        self._puts.grow(now_ms, self._count_puts())

    def _count_puts(self) -> int:
        store, all_messages = self._open_store(), 0
        if store is None:
            return 0
        if store is not self._counted_store:  # its counters began at 0
            self._counted_store, self._counted = store, {}
        sizes = store.stats.put_message_topic_size_total
        for topic, messages in store.stats.put_message_topic_times_total.items():
            before, size_before = self._counted.get(topic, (0, 0))
            if messages != before:
                size = sizes.get(topic, 0)
                self.stats.add(StatsName.TOPIC_PUT_NUMS, topic, messages - before, messages - before)
                self.stats.add(StatsName.TOPIC_PUT_SIZE, topic, size - size_before, messages - before)
                self._counted[topic] = messages, size
                all_messages += messages - before
        if all_messages:
            self.stats.add(StatsName.BROKER_PUT_NUMS, self._cluster_name(), all_messages, 0)
        return all_messages
