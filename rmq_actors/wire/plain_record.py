"""Records of an answer to a pull, cut into what a consumer reads, without decoding what it may not read.

*Plain* is what nearly all records are: IPv4 hosts, a body that is not compressed, lengths as RocketMQ writes them. All
checks of `record.decode_message` are done here, too; a record that is not plain, or fails one, is left to it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from rmq_actors.wire.body_compression import COMPRESSED_FLAG
from rmq_actors.wire.java_string import decode_utf8
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import (
    BEFORE_BODY,
    BODY_CRC_MASK,
    HOST_FLAGS,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD_BYTES,
    decode_host,
)

_HEAD = BEFORE_BODY[8, 8]
_HEAD_BYTES = _HEAD.size
_unpack_head = _HEAD.unpack_from
_OFFSET = struct.Struct(">q")
_NOT_PLAIN_FLAGS = HOST_FLAGS | COMPRESSED_FLAG
#: The upper half of a store host's port, which is an int32: any other one is no port.
_NO_UPPER_HALF = b"\0\0"
#: A topic's length and the properties' one, at least, stand after a body.
_AFTER_BODY_BYTES = 3

#: What stands before the body, by the places below; the body; and what stands after it: topic and properties.
PlainRecord = tuple[tuple[Any, ...], bytes, bytes]
(
    _,
    _MAGIC,
    _CRC,
    QUEUE_ID,
    FLAG,
    QUEUE_OFFSET,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    BORN_TIMESTAMP,
    _BORN_HOST,
    STORE_TIMESTAMP,
    _STORE_HOST,
    RECONSUME_TIMES,
    PREPARED_TRANSACTION_OFFSET,
    _BODY_LENGTH,
) = range(15)


def cut_plain_record(data: bytes, at: int, size: int) -> PlainRecord | None:
    """The record of `size` bytes at `at`, which are all there; None if it is not plain, or no record."""
    if size < RECORD_OVERHEAD_BYTES:
        return None
    head = _unpack_head(data, at)
    body_length = head[_BODY_LENGTH]
    body_at, end = at + _HEAD_BYTES, at + size
    topic_length_at = body_at + body_length
    if (
        head[_MAGIC] != MESSAGE_MAGIC
        or head[SYS_FLAG] & _NOT_PLAIN_FLAGS
        or body_length < 0
        or topic_length_at + _AFTER_BODY_BYTES > end
    ):
        return None
    topic_length = data[topic_length_at]
    properties_at = topic_length_at + topic_length + _AFTER_BODY_BYTES
    if topic_length > MAX_TOPIC_BYTES or properties_at > end:
        return None
    properties_length = data[properties_at - 2] << 8 | data[properties_at - 1]
    if properties_length > MAX_PROPERTIES_BYTES or properties_at + properties_length != end:
        return None
    body = data[body_at:topic_length_at]
    if (body and zlib.crc32(body) & BODY_CRC_MASK != head[_CRC]) or head[_STORE_HOST][4:6] != _NO_UPPER_HALF:
        return None
    return head, body, data[topic_length_at:end]


def topic_of(after_body: bytes) -> str:
    """The topic. What is not UTF-8 becomes U+FFFD, as in `record.decode_record`."""
    return decode_utf8(after_body[1 : 1 + after_body[0]])


def properties_of(after_body: bytes) -> dict[str, str]:
    """The properties."""
    return decode_properties(after_body[_AFTER_BODY_BYTES + after_body[0] :])


def born_host_of(head: tuple[Any, ...]) -> str:
    """The producer's "ip:port"."""
    return decode_host(head[_BORN_HOST])


def store_host_of(head: tuple[Any, ...]) -> str:
    """The broker's "ip:port"."""
    return decode_host(head[_STORE_HOST])


def message_id_of(head: tuple[Any, ...]) -> str:
    """The id that the broker gives, as `message_id.create_message_id` makes it."""
    store_host: bytes = head[_STORE_HOST]
    return (store_host + _OFFSET.pack(head[PHYSICAL_OFFSET])).hex().upper()
