"""How replication is doing (HARuntimeInfo of RocketMQ 5): what mqadmin haStatus prints."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32, Int64


class HAConnectionRuntimeInfo(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """One slave of a master. `diff`: bytes of the log that it has not confirmed."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """A slave's side. Timestamps are ms since the epoch, 0 for never; 4.9's masters tell no `master_flush_offset`."""

    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(RemotingSerializable, frozen=True, kw_only=True):
    """A master tells of its slaves, a slave of itself; the other part is left at its defaults."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
