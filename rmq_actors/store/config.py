"""Settings of the store: those of RocketMQ's MessageStoreConfig that have an effect here, with its defaults.

Field names are RocketMQ's keys in Python's spelling, with their unit: `flushIntervalCommitLog` is
`flush_interval_commit_log_ms`.
"""

from __future__ import annotations

import enum

import attrs

from rmq_actors.wire.record import MAX_MESSAGE_SIZE_BYTES, RECORD_OVERHEAD_BYTES


class BrokerRole(enum.Enum):
    """RocketMQ's brokerRole."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(enum.Enum):
    """RocketMQ's flushDiskType."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@attrs.frozen
class MessageStoreConfig:
    """The store's settings. Raises `ValueError` naming the field that is out of range.

    The two time-outs count from a put's arrival. They default to less than 4.9's (3,000 and 5,000 ms), so that a put is
    answered before a client's own time-out of 3 s.
    """

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    mapped_file_size_commit_log_bytes: int = attrs.field(
        default=1024 * 1024 * 1024, validator=attrs.validators.ge(2 * RECORD_OVERHEAD_BYTES)
    )
    max_message_size_bytes: int = attrs.field(default=MAX_MESSAGE_SIZE_BYTES, validator=attrs.validators.ge(1))
    flush_interval_commit_log_ms: int = attrs.field(default=500, validator=attrs.validators.ge(1))
    sync_flush_timeout_ms: int = attrs.field(default=2800, validator=attrs.validators.ge(1))
    slave_timeout_ms: int = attrs.field(default=2800, validator=attrs.validators.ge(1))
    ha_slave_fallbehind_max_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=attrs.validators.ge(1))
    waiting_puts_max: int = attrs.field(default=100_000, validator=attrs.validators.ge(1))
