"""What a broker tells operators about itself: by 4.9's names (prepareRuntimeInfo), and how replication is doing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.ha.followed_master import FollowedMaster
from rmq_actors.ha.slave_status import SlaveStatus
from rmq_actors.ports.disk import Disk
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.bodies.ha_runtime_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.remoting_command import CURRENT_VERSION

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController

#: MQVersion's name of `CURRENT_VERSION`.
_VERSION_DESC = "V4_9_7"
#: A speed is measured over at least this long.
_SPEED_INTERVAL_S = 1.0
_PREFIXES = "KMGTPE"
#: Integer.MAX_VALUE, as RocketMQ says without a transient pool; this one's has no size.
_NO_BOUND = str(2**31 - 1)


def human_readable_byte_count(size: int) -> str:
    """1536 is "1.5 KiB" (MixAll.humanReadableByteCount)."""
    if size < 1024:
        return f"{size} B"
    power = min(int(math.log(size, 1024)), len(_PREFIXES))
    return f"{size / 1024**power:.1f} {_PREFIXES[power - 1]}iB"


@attrs.define(eq=False, repr=False)
class _Speed:
    """Bytes per second since the last question, or since the counted thing began."""

    at_s: float
    count: int
    bytes_s: float = 0.0

    def at(self, now: float, count: int) -> int:
        """The speed, with `count` bytes by now. Within `_SPEED_INTERVAL_S` the last answer is repeated."""
        elapsed_s = now - self.at_s
        if elapsed_s >= _SPEED_INTERVAL_S:
            self.at_s, self.bytes_s, self.count = now, (count - self.count) / elapsed_s, count
        return int(self.bytes_s)


@attrs.define(eq=False, repr=False)
class RuntimeInfo:
    """Assembles what the broker's parts know."""

    _broker: BrokerController
    #: By connection number: those of a master's slaves, and a slave's to its master.
    _to_slaves: dict[int, _Speed] = attrs.field(factory=dict, init=False)
    _from_master: tuple[FollowedMaster, int, _Speed] | None = attrs.field(default=None, init=False)

    # --- RocketMQ 4.9: mqadmin brokerStatus ---------------------------------------------------------------------------

    def table(self) -> dict[str, str]:
        """4.9's entries, as far as they mean something here; then role and replication, which 4.9 does not tell."""
        broker, store = self._broker, self._broker.store
        log = store.commit_log
        return {
            **store.stats.runtime_info(),
            **({} if broker.remoting is None else broker.remoting.runtime_info()),
            **_disk_info(broker.environment.disk),
            **self._schedule_offsets(store),
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.max_offset),
            "brokerVersionDesc": _VERSION_DESC,
            "brokerVersion": str(CURRENT_VERSION),
            "dispatchBehindBytes": str(log.max_offset - store.files.reput.reput_from_offset),
            "earliestMessageTimeStamp": str(store.offsets.get_earliest_message_time_of_store()),
            "remainHowManyDataToCommit": human_readable_byte_count(log.append_offset - log.max_offset),
            "remainTransientStoreBufferNumbs": _NO_BOUND,
            "remainHowManyDataToFlush": human_readable_byte_count(log.max_offset - log.flushed_where),
            **self._transactions(store),
            **self._role(),
            **(self._slave_side() if broker.config.is_slave else {}),
            **self._master_side(),
        }

    def _schedule_offsets(self, store: MessageStore) -> dict[str, str]:
        remoting = self._broker.remoting
        offsets: Mapping[int, int] = {} if remoting is None else remoting.metadata.delay_offsets.offset_table
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{_delayed(store, level)}" for level, offset in offsets.items()
        }

    def _transactions(self, store: MessageStore) -> dict[str, str]:
        remoting = self._broker.remoting
        counts = {} if remoting is None else remoting.transactions.counts
        names = {"committed": "Committed", "rolled_back": "RolledBack", "asked": "Asked", "given_up": "GivenUp"}
        return {
            "transactionsOpen": str(store.transactions.open_count),
            **{f"transactions{names[name]}": str(count) for name, count in counts.items()},
        }

    def _role(self) -> dict[str, str]:
        config, why = self._broker.config, self._broker.store.running_flags.why_not_writeable
        return {
            **({"putsRefused": why} if why else {}),
            "brokerName": config.broker_name,
            "brokerId": str(config.broker_id),
            "brokerRole": config.store.broker_role.value,
            "flushDiskType": config.store.flush_disk_type.value,
            "haListenAddress": self._broker.ha_address,
        }

    def _slave_side(self) -> dict[str, str]:
        remoting, followed = self._broker.remoting, self._broker.followed_master
        info = {"masterAddr": (remoting.master_addr if remoting is not None else None) or ""}
        if followed is not None:
            halted = followed.halted
            info["haMasterAddress"] = followed.address or ""
            info["haFollowed"] = str(followed.connections)
            info["haFollowing"] = followed.following(trio.current_time())
            info["haFollowEnds"] = _by_reason(followed.ends)
            info["haHalted"] = "" if halted is None else f"{halted.reason}: {halted.detail}"
            info["haCommonEnd"] = "" if halted is None or halted.common_end is None else str(halted.common_end)
        return info

    def _master_side(self) -> dict[str, str]:
        service = self._broker.ha_service
        counters, slaves = service.counters(), service.slave_statuses()
        return {
            "haConnections": str(counters.connections),
            "haRefusedConnections": str(counters.refused_connections),
            "haSentBytes": str(counters.sent_bytes),
            "haConnectionEnds": _by_reason(counters.ends),
            "haSlaves": str(len(slaves)),
            "haReplicas": str(service.replicas()),
            **{f"haSlave_{slave.peer}": _describe(slave) for slave in slaves},
        }

    # --- RocketMQ 5: mqadmin haStatus ---------------------------------------------------------------------------------

    def ha_runtime_info(self) -> HARuntimeInfo:
        """A master's slaves, or what a slave follows."""
        if self._broker.config.is_slave:
            return HARuntimeInfo(master=False, ha_client_runtime_info=self._ha_client())
        slaves = self._broker.ha_service.slave_statuses()
        in_sync = [self._is_in_sync(slave) for slave in slaves]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self._broker.store.commit_log.max_offset,
            in_sync_slave_nums=sum(in_sync),
            ha_connection_info=self._ha_connections(slaves, in_sync),
        )

    def _is_in_sync(self, slave: SlaveStatus) -> bool:
        """Whether the slave is one of those that a put may wait for."""
        return slave.lag_bytes is not None and (
            slave.lag_bytes < self._broker.config.store.ha_slave_fallbehind_max_bytes
        )

    def _ha_connections(self, slaves: Sequence[SlaveStatus], in_sync: Sequence[bool]) -> list[HAConnectionRuntimeInfo]:
        now = trio.current_time()
        self._to_slaves = {
            slave.conn_id: self._to_slaves.get(slave.conn_id) or _Speed(now - slave.connected_s, 0) for slave in slaves
        }
        return [
            HAConnectionRuntimeInfo(
                addr=slave.peer,
                slave_ack_offset=-1 if slave.ack_offset is None else slave.ack_offset,
                diff=self._broker.store.commit_log.max_offset if slave.lag_bytes is None else slave.lag_bytes,
                in_sync=is_in_sync,
                transferred_byte_in_second=self._to_slaves[slave.conn_id].at(now, slave.sent_bytes),
                transfer_from_where=-1 if slave.next_offset is None else slave.next_offset,
            )
            for slave, is_in_sync in zip(slaves, in_sync, strict=True)
        ]

    def _ha_client(self) -> HAClientRuntimeInfo:
        followed, max_offset = self._broker.followed_master, self._broker.store.commit_log.max_offset
        if followed is None or followed.slave is None:
            address = None if followed is None else followed.address
            return HAClientRuntimeInfo(master_addr=address, max_offset=max_offset)
        slave, now = followed.slave, trio.current_time()
        known = self._from_master
        if known is None or known[0] is not followed or known[1] != followed.connections:
            speed = _Speed(followed.followed_since_s, followed.followed_from)
            known = self._from_master = followed, followed.connections, speed
        return HAClientRuntimeInfo(
            master_addr=followed.address,
            max_offset=max_offset,
            transferred_byte_in_second=known[2].at(now, max_offset),
            last_read_timestamp=self._timestamp_ms(slave.last_read, now),
            last_write_timestamp=self._timestamp_ms(slave.wake_at - slave.heartbeat_interval_s, now),
        )

    def _timestamp_ms(self, at_s: float, now: float) -> int:
        if not math.isfinite(at_s):
            return 0
        return self._broker.environment.wall_clock.now_ms() - int((now - at_s) * 1000)


def _disk_info(disk: Disk) -> dict[str, str]:
    try:
        usage = disk.usage()
    except OSError:  # 4.9 says it so, too
        return {"commitLogDiskRatio": "-1.0", "consumeQueueDiskRatio": "-1.0"}
    total = usage.used_bytes + usage.available_bytes
    ratio = str(usage.used_bytes / total)
    total_text, free = human_readable_byte_count(total), human_readable_byte_count(usage.available_bytes)
    return {
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": f"Total : {total_text}, Free : {free}.",
    }


def _delayed(store: MessageStore, level: int) -> int:
    return store.offsets.get_max_offset_in_queue(SCHEDULE_TOPIC, level - 1)


def _describe(slave: SlaveStatus) -> str:
    connected_ms = int(slave.connected_s * 1000)
    if slave.last_ack_age_s is None:
        return f"nothing reported yet, sentBytes={slave.sent_bytes}, connectedMs={connected_ms}"
    return (
        f"ackOffset={slave.ack_offset}, behindBytes={slave.lag_bytes}, lastAckAgeMs={int(slave.last_ack_age_s * 1000)}"
        f", sentBytes={slave.sent_bytes}, connectedMs={connected_ms}"
    )


def _by_reason(ends: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(ends.items()))
