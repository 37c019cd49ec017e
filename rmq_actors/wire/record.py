"""The commit-log record: RocketMQ 4.9's layout, big-endian (CommitLog.MessageExtEncoder, MessageDecoder).

Here: encoding a message at an offset, checking that the bytes at an offset are a record, decoding one. Not here: where
records go and what follows them (`store.commit_log`). The layout is in `docs/commit-log-format.md`.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
import zlib
from collections.abc import Mapping
from typing import Literal

import attrs

from rmq_actors.wire.properties import decode_properties, encode_properties

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
#: A file keeps at least this many bytes for the blank record that ends it (CommitLog.END_FILE_MIN_BLANK_LENGTH).
END_FILE_MIN_BLANK_LENGTH = 8
#: Bytes of a record with IPv4 hosts beyond body, topic and properties.
RECORD_OVERHEAD_BYTES = 91

MAGIC_BYTES = MESSAGE_MAGIC.to_bytes(4, "big")
BLANK = struct.Struct(">iI")

MAX_MESSAGE_SIZE_BYTES = 4 * 1024 * 1024
MAX_TOPIC_BYTES = 127
MAX_PROPERTIES_BYTES = 32767

# MessageSysFlag
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
BORNHOST_V6_FLAG = 0x10
STOREHOSTADDRESS_V6_FLAG = 0x20

# totalSize magic bodyCRC queueId flag queueOffset physicalOffset sysFlag bornTimestamp
_HEAD = struct.Struct(">iIiiiqqiq")
# storeTimestamp and reconsumeTimes preparedTransactionOffset bodyLen stand around the hosts.
_TAIL = struct.Struct(">iqi")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_SYS_FLAG_POSITION = 36


class RecordError(ValueError):
    """Bytes that should be a record are not one; says what is wrong."""


class MessageIllegal(ValueError):
    """A message that the log must not take: the caller's mistake (status MESSAGE_ILLEGAL)."""


class PropertiesSizeExceeded(MessageIllegal):
    """Properties of more than 32,767 bytes (status PROPERTIES_SIZE_EXCEEDED)."""


@attrs.frozen
class Message:
    """A message to be appended (MessageExtBrokerInner). Hosts are "ip:port"; time stamps are ms since the epoch."""

    topic: str
    body: bytes
    queue_id: int = 0
    properties: Mapping[str, str] = attrs.field(factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@attrs.frozen
class StoredMessage:
    """A decoded record (MessageExt)."""

    physical_offset: int
    total_size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: Mapping[str, str]

    @property
    def takes_queue_offset(self) -> bool:
        """Whether the record has a place in a consume queue: prepared and rolled-back ones have none."""
        return self.sys_flag & TRANSACTION_ROLLBACK_TYPE not in {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE}


@attrs.frozen
class RecordCheck:
    """What stands at an offset: a message of `size` bytes, the blank that ends a file, or nothing valid."""

    what: Literal["message", "blank", "invalid"]
    size: int
    reason: str = ""


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 without the sign bit, as RocketMQ's UtilAll.crc32."""
    return zlib.crc32(body) & 0x7FFFFFFF


@functools.lru_cache(maxsize=4096)
def encode_host(host: str) -> bytes:
    """Encode "ip:port" (IPv6 in brackets) as address and int32 port: 8 or 20 bytes. Raises `MessageIllegal`."""
    address, _, port = host.rpartition(":")
    try:
        number = int(port)
        packed = ipaddress.ip_address(address.strip("[]")).packed
    except ValueError as error:
        raise MessageIllegal(f"host {host!r} is not an IP address and a port") from error
    if not 0 <= number <= 65535:
        raise MessageIllegal(f"host {host!r}: the port is not in 0..65535")
    return packed + _INT.pack(number)


@functools.lru_cache(maxsize=4096)
def decode_host(data: bytes) -> str:
    """The inverse of `encode_host`, for 8 or 20 bytes."""
    address = ipaddress.ip_address(data[:-4])
    port = _INT.unpack(data[-4:])[0]
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def host_bytes(sys_flag: int) -> tuple[int, int]:
    """Sizes of born host and store host under `sys_flag`."""
    return 20 if sys_flag & BORNHOST_V6_FLAG else 8, 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8


@attrs.frozen
class EncodedMessage:
    """A message encoded but for what only the log knows: queue offset, physical offset, store time stamp."""

    data: bytearray
    store_timestamp_position: int
    topic_queue: tuple[str, int]
    takes_queue_offset: bool

    def place(self, *, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> None:
        """Fill in the three fields."""
        struct.pack_into(">qq", self.data, 20, queue_offset, physical_offset)
        _LONG.pack_into(self.data, self.store_timestamp_position, store_timestamp_ms)


def encode_message(message: Message, *, max_message_size_bytes: int = MAX_MESSAGE_SIZE_BYTES) -> EncodedMessage:
    """Encode a message. Raises `MessageIllegal`, `PropertiesSizeExceeded` or `IllegalProperty` with what is wrong."""
    try:
        topic = message.topic.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"topic {message.topic!r} is no Unicode text: {error}") from error
    properties = encode_properties(message.properties)
    if topic.endswith(b"\0"):
        raise MessageIllegal(f"topic {message.topic!r} ends in 0x00: recovery could not tell it from a torn record")
    if not topic or len(topic) > MAX_TOPIC_BYTES:
        raise MessageIllegal(f"topic of {len(topic)} bytes: 1 to {MAX_TOPIC_BYTES} are allowed")
    if len(message.body) > max_message_size_bytes:
        raise MessageIllegal(f"body of {len(message.body)} bytes: at most {max_message_size_bytes} are allowed")
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise PropertiesSizeExceeded(
            f"properties of {len(properties)} bytes: at most {MAX_PROPERTIES_BYTES} are allowed"
        )
    born_host, store_host = encode_host(message.born_host), encode_host(message.store_host)
    sys_flag = message.sys_flag & ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
    sys_flag |= BORNHOST_V6_FLAG if len(born_host) == 20 else 0
    sys_flag |= STOREHOSTADDRESS_V6_FLAG if len(store_host) == 20 else 0
    fixed = _HEAD.size + len(born_host) + _LONG.size + len(store_host) + _TAIL.size + 3
    total_size = fixed + len(message.body) + len(topic) + len(properties)
    try:
        data = bytearray().join(
            (
                _HEAD.pack(
                    total_size,
                    MESSAGE_MAGIC,
                    body_crc(message.body),
                    message.queue_id,
                    message.flag,
                    0,
                    0,
                    sys_flag,
                    message.born_timestamp_ms,
                ),
                born_host,
                bytes(_LONG.size),
                store_host,
                _TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
                message.body,
                bytes((len(topic),)),
                topic,
                _SHORT.pack(len(properties)),
                properties,
            )
        )
    except struct.error as error:
        raise MessageIllegal(f"a number of the message does not fit its field: {error}") from error
    transaction = sys_flag & TRANSACTION_ROLLBACK_TYPE
    return EncodedMessage(
        data,
        _HEAD.size + len(born_host),
        (message.topic, message.queue_id),
        transaction not in {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE},
    )


def encode_blank(remaining_bytes: int) -> bytes:
    """The 8 bytes that end a file: how many remain in it, and the blank magic."""
    return BLANK.pack(remaining_bytes, BLANK_MAGIC)


def check_record(view: memoryview, position: int, physical_offset: int, *, check_crc: bool = True) -> RecordCheck:
    """Say what stands at `position` of a commit-log file's bytes, which is `physical_offset` in the log.

    Unlike RocketMQ's checkMessageAndReturnSize, the record's own physicalOffset must be where the record stands.
    """
    room = len(view) - position
    if room < BLANK.size:
        return RecordCheck("invalid", 0, f"{room} bytes are left, a record needs more")
    total_size, magic = BLANK.unpack_from(view, position)
    if magic == BLANK_MAGIC:
        if total_size != room:
            return RecordCheck("invalid", 0, f"a blank record of {total_size} bytes where {room} are left")
        return RecordCheck("blank", room)
    if magic != MESSAGE_MAGIC:
        return RecordCheck("invalid", 0, f"magic 0x{magic:08X} is neither a message's nor a blank's")
    if not RECORD_OVERHEAD_BYTES <= total_size <= room:
        return RecordCheck("invalid", 0, f"totalSize {total_size}: {RECORD_OVERHEAD_BYTES} to {room} are possible here")
    return _check_message(view, position, total_size, physical_offset, check_crc=check_crc)


def _check_message(
    view: memoryview, position: int, total_size: int, physical_offset: int, *, check_crc: bool
) -> RecordCheck:
    crc = _INT.unpack_from(view, position + 8)[0]
    stored_offset = _LONG.unpack_from(view, position + 28)[0]
    if stored_offset != physical_offset:
        return RecordCheck("invalid", 0, f"physicalOffset {stored_offset} in a record that stands at {physical_offset}")
    born_bytes, store_bytes = host_bytes(_INT.unpack_from(view, position + _SYS_FLAG_POSITION)[0])
    end = position + total_size
    body_length_at = position + _HEAD.size + born_bytes + _LONG.size + store_bytes + 12
    if body_length_at + 4 > end:
        return RecordCheck("invalid", 0, f"totalSize {total_size} is too small for its hosts")
    body_length = _INT.unpack_from(view, body_length_at)[0]
    body_at = body_length_at + 4
    topic_length_at = body_at + body_length
    if body_length < 0 or topic_length_at + 1 > end:
        return RecordCheck("invalid", 0, f"bodyLen {body_length} does not fit totalSize {total_size}")
    properties_length_at = topic_length_at + 1 + view[topic_length_at]
    if properties_length_at + 2 > end:
        return RecordCheck("invalid", 0, f"topicLen {view[topic_length_at]} does not fit totalSize {total_size}")
    properties_length = _SHORT.unpack_from(view, properties_length_at)[0]
    if properties_length < 0 or properties_length_at + 2 + properties_length != end:
        return RecordCheck("invalid", 0, f"propsLen {properties_length} does not fit totalSize {total_size}")
    if check_crc and body_crc(view[body_at:topic_length_at]) != crc:
        return RecordCheck("invalid", 0, f"bodyCRC {crc} is not that of the body")
    return RecordCheck("message", total_size)


def decode_record(
    view: memoryview, position: int, physical_offset: int, *, check: RecordCheck | None = None
) -> StoredMessage:
    """Decode the message at `position`. Raises `RecordError` if `check_record` finds none there.

    `check`: what it has found, for who has asked it already.
    """
    check = check or check_record(view, position, physical_offset)
    if check.what != "message":
        raise RecordError(f"offset {physical_offset}: {check.reason or 'a blank record, not a message'}")
    total_size, _, crc, queue_id, flag, queue_offset, _, sys_flag, born_timestamp_ms = _HEAD.unpack_from(view, position)
    born_bytes, store_bytes = host_bytes(sys_flag)
    at = position + _HEAD.size
    born_host = bytes(view[at : at + born_bytes])
    at += born_bytes
    store_timestamp_ms = _LONG.unpack_from(view, at)[0]
    at += _LONG.size
    store_host = bytes(view[at : at + store_bytes])
    at += store_bytes
    reconsume_times, prepared_transaction_offset, body_length = _TAIL.unpack_from(view, at)
    at += _TAIL.size
    body = bytes(view[at : at + body_length])
    at += body_length
    topic = bytes(view[at + 1 : at + 1 + view[at]])
    at += 1 + len(topic)
    properties = bytes(view[at + 2 : position + total_size])
    try:
        return StoredMessage(
            physical_offset=physical_offset,
            total_size=total_size,
            body_crc=crc,
            queue_id=queue_id,
            flag=flag,
            queue_offset=queue_offset,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=decode_host(born_host),
            store_timestamp_ms=store_timestamp_ms,
            store_host=decode_host(store_host),
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
            body=body,
            topic=topic.decode(),
            properties=decode_properties(properties),
        )
    except UnicodeDecodeError as error:
        raise RecordError(f"offset {physical_offset}: topic or properties are not UTF-8: {error}") from error
