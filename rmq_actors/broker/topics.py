"""The topics of a broker (TopicConfigManager): a table with a version, and `config/topics.json`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet

import attrs
import msgspec
import trio

from rmq_actors.actors.services.channels import LatestChannel, LatestSender
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.quotas import Room
from rmq_actors.broker.table_fence import TableFence
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.offset_moved_event import OFFSET_MOVED_EVENT_TOPIC
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.files.layout import TOPICS_FILE
from rmq_actors.wire.bodies.decoding import decode_file
from rmq_actors.wire.bodies.encoding import encode_file
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC

_log = logging.getLogger(__name__)


PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
_PERM_ALL = PERM_READ | PERM_WRITE | PERM_INHERIT

SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
#: The topic whose settings new topics inherit (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).
AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"
_SCHEDULE_TOPIC_QUEUE_NUMS = 18

TOPIC_CHANGES = LatestChannel[DataVersion].declare(
    "broker.topic_changes",
    carries="the DataVersion of the topics: they changed, durably",
    sender="TopicConfigManager",
    receiver="BrokerRegistrationService",
)

Table = dict[str, TopicConfig]


def system_topics(config: BrokerConfig) -> Table:
    """The topics that a broker has from its start."""
    cluster = config.broker_cluster_name
    topics = [_topic(SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic_enable:
        topics.append(auto_create_key_topic(config))
    topics += [
        _topic(BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, _PERM_ALL if config.cluster_topic_enable else PERM_INHERIT),
        _topic(config.broker_name, 1, _PERM_ALL if config.broker_topic_enable else PERM_INHERIT),
        _topic(OFFSET_MOVED_EVENT_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, _SCHEDULE_TOPIC_QUEUE_NUMS),
    ]
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name, 1))
    topics.append(_topic(f"{cluster}_{REPLY_TOPIC_POSTFIX}", 1))
    return {topic.topic_name: topic for topic in topics}


def auto_create_key_topic(config: BrokerConfig) -> TopicConfig:
    """The topic TBW102: its routes are those of topics that do not exist yet."""
    return _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, _PERM_ALL)


def _topic(name: str, queue_nums: int, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)


@attrs.define(eq=False, repr=False)
class TopicConfigManager:
    """Everybody may read the table; what is in it is durable. Each change is made after the last, with a new version.

    A change that cannot be persisted is not made: it raises `OSError`, and everything stays as it was.
    """

    data_version: DataVersion
    _table: Table
    _broker_permission: int
    _file: JsonFile
    _wall_clock: WallClock
    _changes: LatestSender[DataVersion]
    #: With which permission this version was registered by a master; None if that is not known, as it is another's.
    _versions_permission: int | None
    #: Topics whose deletion has begun and has not ended.
    _half_deleted: set[str] = attrs.field(factory=set, init=False)
    _fence: TableFence = attrs.field(factory=TableFence, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @classmethod
    def load(
        cls, config: BrokerConfig, disk: Disk, wall_clock: WallClock, changes: LatestSender[DataVersion]
    ) -> TopicConfigManager:
        """The topics of the file, and system topics that it lacks. Raises `ConfigFileDamaged`.

        If any were lacking, the version is a new one: a name server that knows the old version would not take them.
        """
        file = JsonFile(disk, TOPICS_FILE)
        loaded = file.load_text(_decode).value
        table, version = system_topics(config), DataVersion(timestamp=wall_clock.now_ms())
        if loaded is not None:
            table = loaded.topic_config_table | {
                name: topic for name, topic in table.items() if name not in loaded.topic_config_table
            }
            lacks = len(table) > len(loaded.topic_config_table)
            version = loaded.data_version.next_version(wall_clock.now_ms()) if lacks else loaded.data_version
        permission = config.broker_permission
        return cls(version, table, permission, file, wall_clock, changes, None if config.is_slave else permission)

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """The settings of a topic; None where there is none of that name."""
        return self._table.get(topic)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """The table as it is sent to a slave."""
        return TopicConfigSerializeWrapper(data_version=self.data_version, topic_config_table=self._table)

    def topic_config_serialize_wrapper(self) -> TopicConfigSerializeWrapper:
        """The table as it is registered: if the broker may not be read or written, each topic says so."""
        table, perm = self._table, self._broker_permission
        if not (perm & PERM_READ and perm & PERM_WRITE):
            table = {name: msgspec.structs.replace(topic, perm=perm) for name, topic in table.items()}
        return TopicConfigSerializeWrapper(data_version=self.data_version, topic_config_table=table)

    @property
    def broker_permission(self) -> int:
        """What clients may do with all topics, as it is registered."""
        return self._broker_permission

    async def use_permission(self, permission: int, *, is_slave: bool) -> None:
        """Let clients do this with all topics from now on. A new version has name servers take all of them again.

        A slave's table stays that of its master. Once promoted it makes a new version of it: RocketMQ's name servers
        would leave a version that they know as the old master has registered it, with the permission that had.

        Raises `OSError`, `TableFenced`: nothing is registered then.
        """
        async with self._lock:
            if is_slave:
                self._versions_permission = None
            elif permission != self._versions_permission:
                self._fence.check()
                await self._show(self._table, self.data_version.next_version(self._wall_clock.now_ms()))
                self._versions_permission = permission
            self._broker_permission = permission

    async def update_topic_config(self, topic_config: TopicConfig, room: Room | None = None) -> None:
        """Create a topic, or replace its settings; return when that is durable. A checkpoint.

        The same settings make a new version too, so that name servers take them again. Raises `QuotaReached` for a new
        topic that `room` has no place for.
        """

        def with_it(table: Table) -> Table:
            if room is not None:
                room.check_name(topic_config.topic_name, table, "topics")
            return table | {topic_config.topic_name: topic_config}

        await self._change(with_it)
        _log.info("topic %s", topic_config)

    async def make_topic_config(self, topic_config: TopicConfig, room: Room | None = None) -> None:
        """Create a topic unless there is one when every earlier change has been made. Else as `update_topic_config`."""
        topic = topic_config.topic_name

        def with_it(table: Table) -> Table | None:
            if topic in table:
                return None
            if room is not None:
                room.check_name(topic, table, "topics")
            return table | {topic: topic_config}

        if await self._change(with_it):
            _log.info("topic %s", topic_config)

    async def delete_topic_config(self, topic: str) -> bool:
        """Delete a topic, durably; whether there was one. A checkpoint."""

        def without_it(table: Table) -> Table | None:
            return {name: config for name, config in table.items() if name != topic} if topic in table else None

        return await self._change(without_it)

    @contextlib.asynccontextmanager
    async def deleting(
        self,
        choose: Callable[[], AbstractSet[str]],
        has_begun: Callable[[AbstractSet[str]], bool],
        finish: Callable[[AbstractSet[str]], Awaitable[None]],
    ) -> AsyncIterator[AbstractSet[str]]:
        """Hide the topics that are chosen for the block, and delete them durably after it; then `finish` them.

        `choose` sees the table as it is when every earlier change has been made, and nothing else changes until the
        end. If that fails they are shown again, unless the deletion `has_begun` and cannot be undone: then they stay
        hidden, and cannot be made again, until it has ended well. Raises `OSError`, and what the block raises.
        """
        async with self._lock:
            self._fence.check()
            topics = choose()
            before, self._table = self._table, {name: each for name, each in self._table.items() if name not in topics}
            are_persisted = bool((before.keys() | self._half_deleted) & topics)
            self._half_deleted |= topics
            try:
                yield topics
                if are_persisted:
                    await self._show(self._table, self.data_version.next_version(self._wall_clock.now_ms()))
                await finish(topics)
            except BaseException:
                if not has_begun(topics):
                    self._table = before
                raise
            finally:
                if not has_begun(topics):
                    self._half_deleted -= topics

    async def update_order_topic_config(self, order_topics: Mapping[str, str]) -> None:
        """Make these topics ordered, and no others: what a name server has in its namespace ORDER_TOPIC_CONFIG."""

        def with_their_order(table: Table) -> Table | None:
            changed = {
                name: msgspec.structs.replace(config, order=name in order_topics)
                for name, config in table.items()
                if config.order is not (name in order_topics)
            }
            return table | changed if changed else None

        await self._change(with_their_order)

    async def fence(self, by: str, reason: str) -> None:
        """Refuse every change from now on, with `TableFenced`, but for a master's table. A change under way ends first.

        An empty `reason` ends that, unless there is a reason of another holder.
        """
        async with self._lock:
            self._fence.hold(by, reason)

    async def follow(self, master: TopicConfigSerializeWrapper) -> bool:
        """Take over a master's table, its version too, if it has another one; whether it had.

        Comparing versions is not enough: two brokers that were masters may have made the same one by their own clocks.
        """
        async with self._lock:
            if master.data_version == self.data_version and master.topic_config_table == self._table:
                return False
            await self._show(master.topic_config_table, master.data_version)
            return True

    async def _change(self, change: Callable[[Table], Table | None]) -> bool:
        """Persist the table that `change` makes of the present one, then show it; whether there was anything to do."""
        async with self._lock:
            self._fence.check()
            table = change(self._table)
            if table is None:
                return False
            if made_again := self._half_deleted & table.keys():
                raise OSError(f"the deletion of topic {min(made_again)} has not ended, ask for it again")
            await self._show(table, self.data_version.next_version(self._wall_clock.now_ms()))
            return True

    async def _show(self, table: Table, version: DataVersion) -> None:
        wrapper = TopicConfigSerializeWrapper(data_version=version, topic_config_table=table)
        await self._file.persist_text(encode_file(wrapper))
        self._table, self.data_version = table, version
        self._changes.put(version)


def _decode(data: memoryview) -> TopicConfigSerializeWrapper:
    return decode_file(TopicConfigSerializeWrapper, data)
