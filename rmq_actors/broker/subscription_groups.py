"""The groups of a broker (SubscriptionGroupManager): a table with a version, and `config/subscriptionGroup.json`."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.broker.quotas import Room
from rmq_actors.broker.table_fence import TableFence
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.files.layout import SUBSCRIPTION_GROUP_FILE
from rmq_actors.wire.bodies.decoding import decode_file
from rmq_actors.wire.bodies.encoding import encode_body, encode_file
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES

_log = logging.getLogger(__name__)

#: The groups that every broker has.
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

Table = dict[str, SubscriptionGroupConfig]


@attrs.define(eq=False, repr=False)
class SubscriptionGroupManager:
    """Everybody may read the table; what is in it is durable. A change that cannot be persisted is not made: `OSError`.

    A table that is too long for an answer is refused: `ValueError`.
    """

    data_version: DataVersion
    _table: Table
    _file: JsonFile
    _wall_clock: WallClock
    _fence: TableFence = attrs.field(factory=TableFence, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @classmethod
    def load(cls, disk: Disk, wall_clock: WallClock) -> SubscriptionGroupManager:
        """The groups of the file, and system groups that it lacks. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, SUBSCRIPTION_GROUP_FILE)
        loaded = file.load_text(_decode).value
        table = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        if loaded is None:
            return cls(DataVersion(timestamp=wall_clock.now_ms()), table, file, wall_clock)
        return cls(loaded.data_version, table | loaded.subscription_group_table, file, wall_clock)

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """The settings of a group; None where there is none of that name."""
        return self._table.get(group)

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The table as it is sent to a slave."""
        return SubscriptionGroupWrapper(data_version=self.data_version, subscription_group_table=self._table)

    async def update_subscription_group_config(self, config: SubscriptionGroupConfig, room: Room | None = None) -> None:
        """Create a group, or replace its settings; return when that is durable. A checkpoint. Raises `OSError`.

        Raises `QuotaReached` for a new group that `room` has no place for.
        """
        await self.change_subscription_group_config(config.group_name, lambda _: config, room)

    async def change_subscription_group_config(
        self,
        group: str,
        change: Callable[[SubscriptionGroupConfig | None], SubscriptionGroupConfig | None],
        room: Room | None = None,
    ) -> bool:
        """Give a group the settings that `change` makes of those that it has; whether there was anything to do.

        `change` sees what every earlier change has left, None for a group that is missing, and returns None if nothing
        is to be done. A checkpoint. Raises as `update_subscription_group_config` does.
        """
        async with self._lock:
            self._fence.check()
            config = change(self._table.get(group))
            if config is None:
                return False
            if room is not None:
                room.check_name(group, self._table, "groups")
            version = self.data_version.next_version(self._wall_clock.now_ms())
            await self._show(self._table | {group: config}, version)
            return True

    async def delete_subscription_group_config(self, group: str) -> bool:
        """Delete a group, durably; whether there was one. A checkpoint. Raises `OSError`."""
        async with self._lock:
            self._fence.check()
            if group not in self._table:
                return False
            table = {name: config for name, config in self._table.items() if name != group}
            await self._show(table, self.data_version.next_version(self._wall_clock.now_ms()))
            return True

    async def fence(self, by: str, reason: str) -> None:
        """As `TopicConfigManager.fence`."""
        async with self._lock:
            self._fence.hold(by, reason)

    async def follow(self, master: SubscriptionGroupWrapper) -> bool:
        """Take over a master's table, its version too, if it has another one; whether it had.

        Raises `OSError`, and `ValueError` for a table without any group: every broker has the system groups.
        """
        if not master.subscription_group_table:
            raise ValueError("the master sent no subscription groups")
        async with self._lock:
            # Comparing versions is not enough: see `TopicConfigManager.follow`.
            if master.data_version == self.data_version and master.subscription_group_table == self._table:
                return False
            await self._show(master.subscription_group_table, master.data_version)
            return True

    async def _show(self, table: Table, version: DataVersion) -> None:
        wrapper = SubscriptionGroupWrapper(data_version=version, subscription_group_table=table)
        body = encode_body(wrapper)
        if len(body) > FRAME_MAX_LENGTH_BYTES:
            raise ValueError(f"{SUBSCRIPTION_GROUP_FILE}: {len(body)} bytes could be neither sent nor read again")
        await self._file.persist_text(encode_file(wrapper))
        self._table, self.data_version = table, version


def _decode(data: memoryview) -> SubscriptionGroupWrapper:
    return decode_file(SubscriptionGroupWrapper, data)
