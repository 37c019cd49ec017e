"""The body of SEND_BATCH_MESSAGE (MessageDecoder.encodeMessages), and its messages as records (MessageExtEncoder).

A body repeats `total4 magic4 crc4 flag4 bodyLen4 body propsLen2 props`. As in RocketMQ, total, magic and crc are not
read: what counts are the two lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import attrs

from rmq_actors.wire.dispatch_request import PROPERTY_INNER_MULTI_QUEUE_OFFSET
from rmq_actors.wire.properties import (
    IllegalProperty,
    check_not_torn,
    check_utf8,
    decode_properties,
    encode_properties,
)
from rmq_actors.wire.record import (
    MAX_MESSAGE_SIZE_BYTES,
    MAX_PROPERTIES_BYTES,
    EncodedMessage,
    MessageIllegal,
    PropertiesSizeExceeded,
    check_message_types,
    encode_host,
    encode_topic,
    record_parts,
    store_timestamp_position,
    sys_flag_for_hosts,
    takes_queue_offset,
)

_HEAD = struct.Struct(">iiiii")
_HEAD_NUMBERS = struct.Struct(">12xii")
_SHORT = struct.Struct(">h")
_PROPERTY_SEPARATOR = 0x02
_INNER_MULTI_QUEUE_OFFSET = PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()

#: What a message of a batch takes beside its body and properties.
BATCH_ITEM_BYTES = _HEAD.size + _SHORT.size
#: What the records of a batch may take: a file of the log is no longer.
MAX_TOTAL_BYTES = 2**31 - 1


@attrs.frozen
class MessageBatch:
    """Messages of one queue, to be appended together (MessageExtBatch). `body` is the client's; hosts are "ip:port"."""

    topic: str
    body: bytes = attrs.field(validator=check_message_types)
    queue_id: int = 0
    properties: Mapping[str, str] = attrs.field(factory=dict)
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0


class BatchItem(NamedTuple):
    """One message of a batch; its properties as the client has encoded them."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[tuple[bytes, int, Mapping[str, str]]]) -> bytes:
    """A client's body of (body, flag, properties). Raises `IllegalProperty`, `PropertiesSizeExceeded`."""
    return encode_batch_items((body, flag, encode_properties(properties)) for body, flag, properties in items)


def encode_batch_items(items: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """The same of (body, flag, encoded properties). Raises `PropertiesSizeExceeded`."""
    parts: list[bytes] = []
    for number, (body, flag, encoded) in enumerate(items):
        if len(encoded) > MAX_PROPERTIES_BYTES:
            raise PropertiesSizeExceeded(f"message {number} of the batch: properties of {len(encoded)} bytes")
        parts += (
            _HEAD.pack(BATCH_ITEM_BYTES + len(body) + len(encoded), 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(encoded)),
            encoded,
        )
    return b"".join(parts)


def decode_batch(body: bytes) -> Iterator[BatchItem]:
    """The messages of a client's body. Raises `MessageIllegal` naming the one that is cut or has a bad length."""
    position, number = 0, 0
    while position < len(body):
        if position + _HEAD.size > len(body):
            raise MessageIllegal(f"message {number} of the batch is cut: {len(body) - position} bytes are left")
        flag, body_bytes = _HEAD_NUMBERS.unpack_from(body, position)
        begin = position + _HEAD.size
        end = begin + body_bytes
        if body_bytes < 0 or end + _SHORT.size > len(body):
            raise MessageIllegal(
                f"message {number} of the batch: bodyLen {body_bytes} of {len(body) - begin} bytes left"
            )
        properties_bytes = _SHORT.unpack_from(body, end)[0]
        position = end + _SHORT.size + properties_bytes
        if properties_bytes < 0 or position > len(body):
            left = len(body) - end - _SHORT.size
            raise MessageIllegal(f"message {number} of the batch: propsLen {properties_bytes} of {left} bytes left")
        yield BatchItem(flag, body[begin:end], body[end + _SHORT.size : position])
        number += 1


def encode_message_batch(
    batch: MessageBatch,
    *,
    max_message_size_bytes: int = MAX_MESSAGE_SIZE_BYTES,
    max_total_bytes: int = MAX_TOTAL_BYTES,
) -> EncodedMessage:
    """Encode every message of a batch as a record of its own, with the batch's properties after its own.

    `max_message_size_bytes` bounds the body, `max_total_bytes` the records, which may be many times as long.
    Raises `MessageIllegal`, `PropertiesSizeExceeded` or `IllegalProperty` with what is wrong.
    """
    if len(batch.body) > max_message_size_bytes:
        raise MessageIllegal(f"batch of {len(batch.body)} bytes: at most {max_message_size_bytes} are allowed")
    topic, common = encode_topic(batch.topic), encode_properties(batch.properties)
    born_host, store_host = encode_host(batch.born_host), encode_host(batch.store_host)
    sys_flag = sys_flag_for_hosts(batch.sys_flag, born_host, store_host)
    parts: list[bytes | memoryview] = []
    starts, position = [], 0
    for number, item in enumerate(decode_batch(batch.body)):
        record = record_parts(
            batch.queue_id,
            item.flag,
            sys_flag,
            batch.born_timestamp_ms,
            born_host,
            store_host,
            batch.reconsume_times,
            0,
            item.body,
            topic,
            _item_properties(number, item.properties, common),
        )
        starts.append(position)
        position += sum(map(len, record))
        if position > max_total_bytes:
            raise MessageIllegal(f"message {number} of the batch: the records take more than {max_total_bytes} bytes")
        parts += record
    if not starts:
        raise MessageIllegal("a batch without a message")
    return EncodedMessage(
        bytearray().join(parts),
        store_timestamp_position(born_host),
        (batch.topic, batch.queue_id),
        takes_queue_offset(sys_flag),
        starts,
    )


def _item_properties(number: int, own: bytes, common: bytes) -> bytes:
    """The properties to be stored. RocketMQ writes a length of more than 32,767 bytes into its 16 bits unseen.

    Indexes in further queues are the broker's to give, and it gives none to a batch: whose client says them would get
    entries in any topic's queues.
    """
    separator = b"\x02" if own and common and own[-1] != _PROPERTY_SEPARATOR else b""
    properties = own + separator + common
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise PropertiesSizeExceeded(
            f"message {number} of the batch: properties of {len(properties)} bytes with those of the batch, "
            f"at most {MAX_PROPERTIES_BYTES} are allowed"
        )
    try:
        check_not_torn(properties)
        check_utf8(properties)
    except IllegalProperty as error:
        raise IllegalProperty(f"message {number} of the batch: {error}") from error
    if _INNER_MULTI_QUEUE_OFFSET in properties and PROPERTY_INNER_MULTI_QUEUE_OFFSET in decode_properties(properties):
        raise MessageIllegal(
            f"message {number} of the batch: property {PROPERTY_INNER_MULTI_QUEUE_OFFSET} is the broker's, "
            "and messages of a batch go to no further queues"
        )
    return properties
