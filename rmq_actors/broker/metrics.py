"""What a broker tells a Prometheus: the names of RocketMQ's exporter where it has them, `rmq_actors_` for the rest.

    rocketmq_producer_tps{cluster="C", broker="broker-a", topic="Orders"} 12.5
    rocketmq_producer_tps{cluster="C", broker="broker-a", topic="other"} 3.0      topics beyond metricsTopicsMax

Rates are those of the last minute, as VIEW_BROKER_STATS_DATA has them. See docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.broker.consumer_offsets import TOPIC_GROUP_SEPARATOR
from rmq_actors.protocols.broker_stats import StatsName
from rmq_actors.protocols.metric_labels import BoundedLabels

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController
    from rmq_actors.store.message_store import MessageStore

OTHER = "other"
#: After so many topics, or groups of a topic, others run: their queues are asked one by one.
_CHUNK = 50
_TOPIC, _GROUP = ("topic",), ("topic", "group")


@attrs.frozen
class MetricFamily:
    """A gauge with its samples: the values of `labels`, and the number. No two samples have the same labels."""

    name: str
    documentation: str
    labels: tuple[str, ...]
    samples: dict[tuple[str, ...], float]


@attrs.define(eq=False, repr=False)
class BrokerMetrics:
    """Gathers what the broker's parts count. It counts nothing by itself, so a broker nobody asks pays nothing."""

    _broker: BrokerController
    _topics: BoundedLabels[str] = attrs.field(init=False)
    _groups: BoundedLabels[tuple[str, str]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        limit = self._broker.config.metrics_topics_max
        self._topics, self._groups = BoundedLabels(limit), BoundedLabels(limit)

    async def gather(self) -> list[MetricFamily]:
        """All families. While the store is opened again, only what needs none. There are checkpoints in here."""
        broker, remoting = self._broker, self._broker.remoting
        for labels in (self._topics, self._groups):
            labels.resize(broker.config.metrics_topics_max)
        found = _Families((broker.config.broker_cluster_name, broker.config.broker_name))
        if remoting is None:
            return found.families
        found.add("rmq_actors_connections", "Connections of clients, of both ports", remoting.connections)
        found.add("rmq_actors_producers", "Producers, once for each of their groups", remoting.producers)
        found.add("rmq_actors_consumers", "Consumers, once for each of their groups", remoting.consumers)
        found.add("rmq_actors_held_pulls", "Pulls that wait for a message", remoting.held_pulls)
        census = broker.system.census()
        found.add("rmq_actors_restarts", "Restarts of live services", sum(each.restarts for each in census.entries))
        store = remoting.open_store
        if store is not None:
            self._store(found, store)
            self._replication(found, store)
            await self._of_topics(found, store)
            await self._of_groups(found, store)
        return found.families

    def _store(self, found: _Families, store: MessageStore) -> None:
        log, stats = store.commit_log, self._stats
        cluster = self._broker.config.broker_cluster_name
        found.add("rocketmq_broker_tps", "Messages put a second", stats(StatsName.BROKER_PUT_NUMS, cluster))
        found.add("rocketmq_broker_qps", "Messages got a second", stats(StatsName.BROKER_GET_NUMS, cluster))
        found.add("rocketmq_brokeruntime_commitlog_maxoffset", "The end of the log", log.max_offset)
        found.add("rocketmq_brokeruntime_commitlog_minoffset", "The begin of the log", log.min_offset)
        behind = log.max_offset - store.files.reput.reput_from_offset
        found.add("rocketmq_brokeruntime_dispatch_behind_bytes", "Bytes of the log that no queue has yet", behind)
        size = store.stats.put_message_size_total
        found.add("rocketmq_brokeruntime_put_message_size_total", "Bytes put since the start", size)
        found.add("rmq_actors_not_synced_bytes", "Bytes of the log not synced yet", log.max_offset - log.flushed_where)
        refuses = bool(store.running_flags.why_not_writeable)
        found.add("rmq_actors_puts_refused", "1 while the store takes no puts", refuses)

    def _replication(self, found: _Families, store: MessageStore) -> None:
        broker = self._broker
        found.add("rmq_actors_is_master", "1 if the broker is a master", not broker.config.is_slave)
        followed = broker.followed_master
        if broker.config.is_slave and followed is not None:
            found.add("rmq_actors_following", "1 if the slave's master sends it its log", followed.is_followed)
            found.add("rmq_actors_halted", "1 if the slave follows no more", followed.halted is not None)
            return
        # Not by slave: each connection has another port, and would be another series.
        slaves = broker.ha_service.slave_statuses()
        lags = [store.commit_log.max_offset if each.lag_bytes is None else each.lag_bytes for each in slaves]
        found.add("rmq_actors_slaves", "Slaves that are connected", len(slaves))
        found.add("rmq_actors_slave_lag_bytes_max", "What the last of the slaves lacks", max(lags, default=0))

    async def _of_topics(self, found: _Families, store: MessageStore) -> None:
        remoting = self._broker.remoting
        assert remoting is not None
        table = dict(remoting.metadata.topics.wrapper().topic_config_table)
        self._topics.update(list(table))
        tps = found.family("rocketmq_producer_tps", "Messages put a second", _TOPIC)
        sizes = found.family("rocketmq_producer_message_size", "Bytes put a second", _TOPIC)
        offsets = found.family("rocketmq_producer_offset", "Messages of all queues, ever", _TOPIC)
        for number, (topic, config) in enumerate(table.items()):
            if number % _CHUNK == 0:
                await trio.lowlevel.checkpoint()
            label = (topic if self._topics.is_shown(topic) else OTHER,)
            tps(label, self._stats(StatsName.TOPIC_PUT_NUMS, topic))
            sizes(label, self._stats(StatsName.TOPIC_PUT_SIZE, topic))
            queues = range(max(config.write_queue_nums, config.read_queue_nums))
            offsets(label, sum(store.offsets.get_max_offset_in_queue(topic, each) for each in queues))

    async def _of_groups(self, found: _Families, store: MessageStore) -> None:
        remoting = self._broker.remoting
        assert remoting is not None
        table = remoting.metadata.consumer_offsets.wrapper().offset_table
        keys = [(topic, group) for topic, _, group in (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in table)]
        self._groups.update(keys)
        tps = found.family("rocketmq_consumer_tps", "Messages got a second", _GROUP)
        sizes = found.family("rocketmq_consumer_message_size", "Bytes got a second", _GROUP)
        offsets = found.family("rocketmq_consumer_offset", "Messages confirmed, over all queues", _GROUP)
        diffs = found.family("rocketmq_group_diff", "Messages not confirmed yet, over all queues", _GROUP)
        for number, (topic, group) in enumerate(keys):
            if number % _CHUNK == 0:
                await trio.lowlevel.checkpoint()
            label = (topic, group) if self._groups.is_shown((topic, group)) else (OTHER, OTHER)
            key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
            tps(label, self._stats(StatsName.GROUP_GET_NUMS, key))
            sizes(label, self._stats(StatsName.GROUP_GET_SIZE, key))
            committed = remoting.metadata.consumer_offsets.offsets_of(group, topic)
            offsets(label, sum(committed.values()))
            ends = (store.offsets.get_max_offset_in_queue(topic, queue) for queue in committed)
            diffs(label, sum(max(0, end - offset) for end, offset in zip(ends, committed.values(), strict=True)))

    def _stats(self, name: StatsName, key: str) -> float:
        """A second, in the last minute."""
        remoting = self._broker.remoting
        item = None if remoting is None else remoting.stats.find(name, key)
        return 0.0 if item is None else item.minute.tps


@attrs.define(eq=False, repr=False)
class _Families:
    """Families as they are gathered; each sample has the cluster and the broker as its first labels."""

    _broker: tuple[str, str]
    families: list[MetricFamily] = attrs.field(factory=list, init=False)

    def add(self, name: str, documentation: str, value: float) -> None:
        """A family with one sample."""
        self.family(name, documentation, ())((), value)

    def family(self, name: str, documentation: str, labels: Iterable[str]) -> Callable[[tuple[str, ...], float], None]:
        """A family, and what adds to its samples: values with the same labels are summed."""
        family = MetricFamily(name, documentation, ("cluster", "broker", *labels), {})
        self.families.append(family)

        def sum_up(values: tuple[str, ...], value: float) -> None:
            key = (*self._broker, *values)
            family.samples[key] = family.samples.get(key, 0.0) + value

        return sum_up
