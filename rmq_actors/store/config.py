"""Settings of the store: those of RocketMQ's MessageStoreConfig that have an effect here, with its defaults.

Field names are RocketMQ's keys in Python's spelling, with their unit: `flushIntervalCommitLog` is
`flush_interval_commit_log_ms`.
"""

from __future__ import annotations

import enum

import attrs

from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.delay_levels import parse_delay_levels
from rmq_actors.wire.record import BODY_MAX_BYTES, MAX_MESSAGE_SIZE_BYTES, RECORD_OVERHEAD_BYTES

_POSITIVE = attrs.validators.ge(1)
_NOT_NEGATIVE = attrs.validators.ge(0)
#: A blank's length has 32 bits, and RocketMQ maps no longer file.
_INT32 = attrs.validators.le(2**31 - 1)
_PERCENT = attrs.validators.and_(_NOT_NEGATIVE, attrs.validators.le(100))


def _is_hours(_: object, __: object, value: str) -> None:
    parse_hours(value)


def parse_hours(text: str) -> frozenset[int]:
    """The hours of the day in "04;16" (deleteWhen). Raises `ValueError`."""
    words = text.split(";")
    if not all(word.isascii() and word.isdigit() and int(word) < 24 for word in words):
        raise ValueError(f"deleteWhen {text!r} is not a list of hours, 00 to 23, separated by ';'")
    return frozenset(int(word) for word in words)


class BrokerRole(enum.Enum):
    """RocketMQ's brokerRole."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(enum.Enum):
    """RocketMQ's flushDiskType."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@attrs.frozen(field_transformer=typed_fields)
class MessageStoreConfig:
    """The store's settings. Raises `ValueError` naming the field that is out of range.

    The two time-outs count from a put's arrival. They default to less than 4.9's (3,000 and 5,000 ms), so that a put is
    answered before a client's own time-out of 3 s.

    More than 20 fields because they are RocketMQ's settings of a store.
    """

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH

    # Files.
    mapped_file_size_commit_log_bytes: int = attrs.field(
        default=1024 * 1024 * 1024,
        validator=attrs.validators.and_(attrs.validators.ge(2 * RECORD_OVERHEAD_BYTES), _INT32),
    )
    #: Rounded up to whole entries of 20 bytes.
    mapped_file_size_consume_queue_bytes: int = attrs.field(default=300_000 * 20, validator=_POSITIVE)
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext_bytes: int = attrs.field(
        default=48 * 1024 * 1024, validator=attrs.validators.ge(24)
    )
    #: Whether the log's next file is written full of zeros before it is used.
    warm_maped_file_enable: bool = False
    #: While a file is warmed up under SYNC_FLUSH it is synced every so many pages.
    flush_least_pages_when_warm_maped_file: int = attrs.field(default=4096, validator=_POSITIVE)

    # Puts.
    max_message_size_bytes: int = attrs.field(
        default=MAX_MESSAGE_SIZE_BYTES,
        validator=attrs.validators.and_(_POSITIVE, attrs.validators.le(BODY_MAX_BYTES)),
    )
    os_page_cache_busy_time_out_ms: int = attrs.field(default=1000, validator=_POSITIVE)
    waiting_puts_max: int = attrs.field(default=100_000, validator=_POSITIVE)
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = attrs.field(default=20_000, validator=_NOT_NEGATIVE)

    #: Whether StoreStatsService counts rates: it looks at the counters each second.
    store_stats_sampling: bool = True

    # Flush and commit of the log. Pages are 4,096 bytes.
    flush_interval_commit_log_ms: int = attrs.field(default=500, validator=_POSITIVE)
    flush_commit_log_least_pages: int = attrs.field(default=4, validator=_NOT_NEGATIVE)
    flush_commit_log_thorough_interval_ms: int = attrs.field(default=10_000, validator=_POSITIVE)
    transient_store_pool_enable: bool = False
    commit_interval_commit_log_ms: int = attrs.field(default=200, validator=_POSITIVE)
    commit_commit_log_least_pages: int = attrs.field(default=4, validator=_NOT_NEGATIVE)
    commit_commit_log_thorough_interval_ms: int = attrs.field(default=200, validator=_POSITIVE)
    sync_flush_timeout_ms: int = attrs.field(default=2800, validator=_POSITIVE)

    # Replication.
    slave_timeout_ms: int = attrs.field(default=2800, validator=_POSITIVE)
    ha_slave_fallbehind_max_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=_POSITIVE)

    # Recovery. The checkpoint moves so long after a dispatch (RocketMQ: 60,000): a start reads again what came later.
    flush_consume_queue_thorough_interval_ms: int = attrs.field(default=5_000, validator=_POSITIVE)
    #: ... or when so much was dispatched, once a second at most.
    checkpoint_log_bytes_max: int = attrs.field(default=16 * 1024 * 1024, validator=_POSITIVE)
    check_crc_on_recover: bool = True

    # The index.
    message_index_enable: bool = True
    max_hash_slot_num: int = attrs.field(default=5_000_000, validator=_POSITIVE)
    max_index_num: int = attrs.field(default=20_000_000, validator=attrs.validators.ge(2))

    # Reads. In memory is what is nearer to the log's end than this many percent of the machine's memory.
    max_transfer_bytes_on_message_in_memory: int = attrs.field(default=256 * 1024, validator=_POSITIVE)
    max_transfer_count_on_message_in_memory: int = attrs.field(default=32, validator=_POSITIVE)
    max_transfer_bytes_on_message_in_disk: int = attrs.field(default=64 * 1024, validator=_POSITIVE)
    max_transfer_count_on_message_in_disk: int = attrs.field(default=8, validator=_POSITIVE)
    access_message_in_memory_max_ratio: int = attrs.field(default=40, validator=_PERCENT)
    offset_check_in_slave: bool = False
    #: Note how far behind groups are, for `disableConsumeIfConsumerReadSlowly`. False: no group is slow.
    disk_fall_recorded: bool = True
    max_msgs_num_batch: int = attrs.field(default=64, validator=_POSITIVE)
    default_query_max_num: int = attrs.field(default=32, validator=_POSITIVE)

    # Cleaning. `delete_when`: hours of the node's local time, separated by ";".
    clean_resource_interval_ms: int = attrs.field(default=10_000, validator=_POSITIVE)
    delete_when: str = attrs.field(default="04", validator=_is_hours)
    file_reserved_time_hours: int = attrs.field(default=72, validator=_POSITIVE)
    delete_commit_log_files_interval_ms: int = attrs.field(default=100, validator=_NOT_NEGATIVE)
    disk_max_used_space_ratio: int = attrs.field(default=75, validator=_PERCENT)
    disk_space_clean_forcibly_ratio: int = attrs.field(default=85, validator=_PERCENT)
    disk_space_warning_level_ratio: int = attrs.field(default=90, validator=_PERCENT)
    clean_file_forcibly_enable: bool = True

    #: `message_delay_level` in ms, level 1 first.
    delay_levels_ms: tuple[int, ...] = attrs.field(init=False, repr=False, eq=False)

    @delay_levels_ms.default
    def _parse_delay_levels(self) -> tuple[int, ...]:
        return parse_delay_levels(self.message_delay_level)

    @property
    def uses_transient_store_pool(self) -> bool:
        """Whether producers' appends go through the pool: never under SYNC_FLUSH, nor on a slave.

        RocketMQ's pool has transientStorePoolSize buffers of a file's size; here it is what is not committed yet.
        """
        return (
            self.transient_store_pool_enable
            and self.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            and self.broker_role is not BrokerRole.SLAVE
        )
