"""What consume queues and the index need of a record (DispatchRequest), read without copying the body.

`CommitLog.checkMessageAndReturnSize` makes the same from a record's bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rmq_actors.wire.java_string import decode_utf8, java_hash_code
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import (
    BORNHOST_V6_FLAG,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    STOREHOSTADDRESS_V6_FLAG,
    RecordCheck,
    body_crc,
    check_record,
    decode_record,
    takes_queue_offset,
)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PROPERTY_TAGS = "TAGS"
PROPERTY_KEYS = "KEYS"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_DELAY = "DELAY"
#: The topic and the queue that a message was sent to, while it waits in another one.
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
#: The offset in the log of the half message that a check has stored again as this one, the first of all such copies.
#: Only this project's brokers write it, and only where a key does not tell: RocketMQ copies it with the others.
PROPERTY_TRANSACTION_ORIGIN = "TRAN_ORIGIN_OFFSET"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
#: The further queues of a message, and its indexes in them.
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
MULTI_DISPATCH_QUEUE_SPLITTER = ","

#: Where the half messages of transactions go, the op messages that end them, and those that were checked too often.
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_TOPICS = frozenset({HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC})
#: Whose messages are meant for other topics; in these alone, which take none from clients, REAL_TOPIC is the broker's.
WAITING_TOPICS = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, CHECK_MAX_TIME_TOPIC})

#: messageDelayLevel's default, "1s 5s 10s 30s 1m 2m ... 10m 20m 30m 1h 2h": level 1 is the first.
DELAY_LEVELS_MS: Sequence[int] = (
    1_000,
    5_000,
    10_000,
    30_000,
    *(minutes * 60_000 for minutes in (*range(1, 11), 20, 30, 60, 120)),
)

# The head of a record with IPv4 hosts: totalSize magic bodyCRC queueId (flag) queueOffset physicalOffset sysFlag (born)
# storeTimestamp (storeHost reconsumeTimes) preparedTransactionOffset bodyLen.
_HEAD = struct.Struct(">iIii4xqqi16xq12xqi")
#: What a put takes as a level too. `int` fails on thousands of digits, which would stop the dispatch.
_LEVEL = re.compile(r"[+-]?[0-9]{1,10}")
_LONG_MAX = (1 << 63) - 1
_V6_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


class DispatchRequest(NamedTuple):
    """One record of the log, as its dispatchers see it. Offsets and sizes are bytes of the commit log.

    `tags_code` is what stands in the consume queue: the tags' hash code, or, in SCHEDULE_TOPIC_XXXX, when to deliver.
    `consume_queue_offset` is the entry's number in its queue. Dispatchers are not given what `is_passed_over` (see
    `RecordCheck`): its tags code and its properties are left empty.
    """

    topic: str
    queue_id: int
    commit_log_offset: int
    msg_size: int
    tags_code: int
    store_timestamp_ms: int
    consume_queue_offset: int
    sys_flag: int
    prepared_transaction_offset: int
    properties: Mapping[str, str]
    is_passed_over: bool = False

    @property
    def end_offset(self) -> int:
        """The offset after the record."""
        return self.commit_log_offset + self.msg_size

    @property
    def takes_queue_offset(self) -> bool:
        """Whether the record has a place in a consume queue: prepared and rolled-back ones have none."""
        return not self.is_passed_over and takes_queue_offset(self.sys_flag)


def split_multi_dispatch(text: str) -> Sequence[str]:
    """The further queues, or the indexes in them, that a property names, as Java splits it.

    A blank text names none, and empty names at the end do not count.
    """
    if not text.strip():
        return ()
    names = text.split(MULTI_DISPATCH_QUEUE_SPLITTER)
    while names and not names[-1]:
        names.pop()
    return names


def tags_code_of(
    topic: str,
    properties: Mapping[str, str],
    store_timestamp_ms: int,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> int:
    """The tags code of a record: int64."""
    if topic == SCHEDULE_TOPIC:
        delay = properties.get(PROPERTY_DELAY, "")
        level = min(int(delay), len(delay_levels_ms)) if _LEVEL.fullmatch(delay) else 0
        if level > 0:
            return min(store_timestamp_ms + delay_levels_ms[level - 1], _LONG_MAX)
    tags = properties.get(PROPERTY_TAGS)
    return tags_hash_code(tags) if tags else 0


#: The tags code of a message that is not delayed. Many messages have few tags.
tags_hash_code = lru_cache(maxsize=4096)(java_hash_code)


def read_dispatch_request(
    view: memoryview,
    position: int,
    physical_offset: int,
    *,
    check_crc: bool = True,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> DispatchRequest | RecordCheck:
    """The record at `position` of a commit-log file's bytes; a `RecordCheck` where a blank or nothing valid stands."""
    if position + RECORD_OVERHEAD_BYTES > len(view):
        return _read_slowly(view, position, physical_offset, check_crc, delay_levels_ms)
    (
        total_size,
        magic,
        crc,
        queue_id,
        queue_offset,
        stored_offset,
        sys_flag,
        store_timestamp_ms,
        prepared_transaction_offset,
        body_length,
    ) = _HEAD.unpack_from(view, position)
    topic_at = position + _HEAD.size + body_length
    end = position + total_size
    if (
        magic != MESSAGE_MAGIC
        or stored_offset != physical_offset
        or sys_flag & _V6_FLAGS
        or body_length < 0
        or topic_at + 3 > end
        or end > len(view)
    ):
        return _read_slowly(view, position, physical_offset, check_crc, delay_levels_ms)
    properties_at = topic_at + 1 + view[topic_at]
    properties_length = end - properties_at - 2
    if (
        not 0 <= properties_length <= MAX_PROPERTIES_BYTES
        or view[topic_at] > MAX_TOPIC_BYTES
        or (view[properties_at] << 8 | view[properties_at + 1]) != properties_length
        or (check_crc and body_length and body_crc(view[position + _HEAD.size : topic_at]) != crc)
    ):
        return _read_slowly(view, position, physical_offset, check_crc, delay_levels_ms)
    topic = decode_utf8(bytes(view[topic_at + 1 : properties_at]))
    properties = decode_properties(bytes(view[properties_at + 2 : end]))
    return DispatchRequest(
        topic,
        queue_id,
        physical_offset,
        total_size,
        tags_code_of(topic, properties, store_timestamp_ms, delay_levels_ms),
        store_timestamp_ms,
        queue_offset,
        sys_flag,
        prepared_transaction_offset,
        properties,
    )


def _read_slowly(
    view: memoryview, position: int, physical_offset: int, check_crc: bool, delay_levels_ms: Sequence[int]
) -> DispatchRequest | RecordCheck:
    """Blanks, IPv6 hosts, what is passed over, and the reason why something is no record."""
    check = check_record(view, position, physical_offset, check_crc=check_crc)
    if check.what != "message":
        return check
    message = decode_record(view, position, physical_offset, check=check)
    properties = {} if check.is_passed_over else message.properties
    return DispatchRequest(
        message.topic,
        message.queue_id,
        physical_offset,
        message.total_size,
        tags_code_of(message.topic, properties, message.store_timestamp_ms, delay_levels_ms),
        message.store_timestamp_ms,
        message.queue_offset,
        message.sys_flag,
        message.prepared_transaction_offset,
        properties,
        check.is_passed_over,
    )
