"""The commit-log record: RocketMQ 4.9's layout, big-endian (CommitLog.MessageExtEncoder, MessageDecoder).

Here: encoding a message at an offset, checking that the bytes at an offset are a record, decoding one. Not here: where
records go and what follows them (`store.commit_log`). The layout is in `docs/commit-log-format.md`.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from rmq_actors.wire.java_string import decode_utf8
from rmq_actors.wire.properties import decode_properties, encode_properties

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
#: A file keeps at least this many bytes for the blank record that ends it (CommitLog.END_FILE_MIN_BLANK_LENGTH).
END_FILE_MIN_BLANK_LENGTH = 8
#: Bytes of a record with IPv4 hosts beyond body, topic and properties.
RECORD_OVERHEAD_BYTES = 91

MAGIC_BYTES = MESSAGE_MAGIC.to_bytes(4, "big")
BLANK = struct.Struct(">iI")

#: RocketMQ's UtilAll.crc32 leaves the sign bit out.
BODY_CRC_MASK = 0x7FFFFFFF
MAX_MESSAGE_SIZE_BYTES = 4 * 1024 * 1024
#: A slave keeps no more of a record in memory while it waits for the rest; a body is as much shorter as leaves room for
#: everything else in its record.
RECORD_MAX_BYTES = 64 * 1024 * 1024
BODY_MAX_BYTES = RECORD_MAX_BYTES - 128 * 1024
MAX_TOPIC_BYTES = 127
#: Above this RocketMQ reads a negative length: see `RecordCheck.is_passed_over`.
MAX_PROPERTIES_BYTES = 32767

# MessageSysFlag
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
#: All bits that tell of a transaction.
TRANSACTION_BITS = 0xC
BORNHOST_V6_FLAG = 0x10
STOREHOSTADDRESS_V6_FLAG = 0x20
HOST_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG

# totalSize magic bodyCRC queueId flag queueOffset physicalOffset sysFlag bornTimestamp
_HEAD = struct.Struct(">iIiiiqqiq")
# storeTimestamp and reconsumeTimes preparedTransactionOffset bodyLen stand around the hosts.
_TAIL = struct.Struct(">iqi")
#: All that stands before the body, by the sizes of born host and store host.
BEFORE_BODY = {(born, store): struct.Struct(f">iIiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
_OFFSETS = struct.Struct(">qq")
_OFFSETS_POSITION = 20
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
#: What stands before the properties.
PROPERTIES_LENGTH = struct.Struct(">h")
_UNSIGNED_SHORT = struct.Struct(">H")
_SYS_FLAG_POSITION = 36


class RecordError(ValueError):
    """Bytes that should be a record are not one; says what is wrong."""


class MessageIllegal(ValueError):
    """A message that the log must not take: the caller's mistake (status MESSAGE_ILLEGAL)."""


class PropertiesSizeExceeded(MessageIllegal):
    """Properties of more than 32,767 bytes (status PROPERTIES_SIZE_EXCEEDED)."""


def check_message_types(instance: Any, attribute: attrs.Attribute[bytes], body: object) -> None:  # noqa: ANN401  # two classes
    """A validator of the body that looks at topic and properties, too: three would take three times as long.

    Raises `TypeError`: text has no bytes until somebody chooses its encoding. What properties hold is looked at where
    they are encoded.
    """
    if type(body) is not bytes and not isinstance(body, (bytes, bytearray, memoryview)):
        hint = ": encode it, with .encode() for UTF-8" if isinstance(body, str) else ""
        raise TypeError(f"{type(instance).__name__}.{attribute.name} must be bytes, not {type(body).__name__}{hint}")
    if not isinstance(instance.topic, str):
        raise TypeError(f"{type(instance).__name__}.topic must be text, not {instance.topic!r:.80}")
    if type(instance.properties) is not dict and not isinstance(instance.properties, Mapping):
        raise TypeError(f"{type(instance).__name__}.properties must be a mapping, not {instance.properties!r:.80}")


@attrs.frozen
class Message:
    """A message to be appended (MessageExtBrokerInner). Hosts are "ip:port"; time stamps are ms since the epoch.

    `delay_time_level` 0: not delayed, whatever property DELAY says, which stays; None: as that says.
    """

    topic: str
    body: bytes = attrs.field(validator=check_message_types)
    queue_id: int = 0
    properties: Mapping[str, str] = attrs.field(factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_time_level: int | None = None


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
    #: See `RecordCheck`.
    is_passed_over: bool = False

    @property
    def takes_queue_offset(self) -> bool:
        """Whether the record has a place in a consume queue: prepared and rolled-back ones have none."""
        return not self.is_passed_over and takes_queue_offset(self.sys_flag)


@attrs.frozen
class RecordCheck:
    """What stands at an offset: a message of `size` bytes, the blank that ends a file, or nothing valid.

    `is_passed_over`: the message has properties of 32,768 to 65,535 bytes, as a RocketMQ master makes them of a batch
    whose own come after each message's. It belongs to the log. But no queue and no index gets it, at RocketMQ's slaves
    neither: their readers take the length for a negative one, and cannot find the end of the record.
    """

    what: Literal["message", "blank", "invalid"]
    size: int
    reason: str = ""
    is_passed_over: bool = False


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 without the sign bit, as RocketMQ's UtilAll.crc32."""
    return zlib.crc32(body) & BODY_CRC_MASK


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


@attrs.define(eq=False, repr=False)
class EncodedMessage:
    """A message, or a batch, encoded but for what only the log knows: queue offset, physical offset, store time stamp.

    `starts`: where each record begins in `data`. `multi_queues`: the queues that the message goes to besides its own.
    """

    data: bytearray
    store_timestamp_position: int
    topic_queue: tuple[str, int]
    takes_queue_offset: bool
    starts: Sequence[int] = (0,)
    multi_queues: Sequence[tuple[str, int]] = ()
    #: As it is stored. 0 of a batch.
    sys_flag: int = 0

    def place(self, *, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> None:
        """Fill in the three fields; a batch takes consecutive queue offsets."""
        data = self.data
        for number, start in enumerate(self.starts):
            _OFFSETS.pack_into(data, start + _OFFSETS_POSITION, queue_offset + number, physical_offset + start)
            _LONG.pack_into(data, start + self.store_timestamp_position, store_timestamp_ms)


def encode_message(
    message: Message,
    *,
    max_message_size_bytes: int = MAX_MESSAGE_SIZE_BYTES,
    properties: bytes | None = None,
) -> EncodedMessage:
    """Encode a message; `properties` are its encoded ones, if not those of the message as they are.

    Raises `MessageIllegal`, `PropertiesSizeExceeded` or `IllegalProperty` with what is wrong.
    """
    topic = encode_topic(message.topic)
    if properties is None:
        properties = encode_properties(message.properties)
    check_sizes(len(message.body), len(properties), max_message_size_bytes)
    born_host, store_host = encode_host(message.born_host), encode_host(message.store_host)
    sys_flag = sys_flag_for_hosts(message.sys_flag, born_host, store_host)
    parts = record_parts(
        message.queue_id,
        message.flag,
        sys_flag,
        message.born_timestamp_ms,
        born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        topic,
        properties,
    )
    return EncodedMessage(
        bytearray().join(parts),
        store_timestamp_position(born_host),
        (message.topic, message.queue_id),
        takes_queue_offset(sys_flag),
        sys_flag=sys_flag,
    )


@functools.lru_cache(maxsize=4096)
def encode_topic(topic: str) -> bytes:
    """Encode a topic, its length before it. Raises `MessageIllegal`."""
    try:
        data = topic.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"topic {topic!r} is no Unicode text: {error}") from error
    if not data or len(data) > MAX_TOPIC_BYTES:
        raise MessageIllegal(f"topic of {len(data)} bytes: 1 to {MAX_TOPIC_BYTES} are allowed")
    if data[0] == 0 or data[-1] == 0:
        at = "begins with" if data[0] == 0 else "ends in"
        raise MessageIllegal(f"topic {topic!r} {at} 0x00: recovery could not tell it from a torn record")
    return bytes((len(data),)) + data


def check_sizes(body_bytes: int, properties_bytes: int, max_message_size_bytes: int) -> None:
    """Raise `PropertiesSizeExceeded` or `MessageIllegal` for what is too long."""
    if properties_bytes > MAX_PROPERTIES_BYTES:
        raise PropertiesSizeExceeded(
            f"properties of {properties_bytes} bytes: at most {MAX_PROPERTIES_BYTES} are allowed"
        )
    if body_bytes > max_message_size_bytes:
        raise MessageIllegal(f"body of {body_bytes} bytes: at most {max_message_size_bytes} are allowed")


def sys_flag_for_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """`sys_flag` with the two bits that say which of these encoded hosts are IPv6."""
    sys_flag &= ~HOST_FLAGS
    sys_flag |= BORNHOST_V6_FLAG if len(born_host) == 20 else 0
    return sys_flag | (STOREHOSTADDRESS_V6_FLAG if len(store_host) == 20 else 0)


def store_timestamp_position(born_host: bytes) -> int:
    """Where the store time stamp stands in a record with this encoded born host."""
    return _HEAD.size + len(born_host)


def record_parts(
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes | memoryview,
    topic: bytes,
    properties: bytes,
    *,
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp_ms: int = 0,
) -> tuple[bytes | memoryview, ...]:
    """The bytes of a record, to be joined; all but numbers is encoded, and checked, already.

    One that is not placed yet has zeros for its offsets and its store time stamp.

    Raises `MessageIllegal` for a number that does not fit its field.
    """
    before_body = BEFORE_BODY[len(born_host), len(store_host)]
    try:
        head = before_body.pack(
            before_body.size + len(body) + len(topic) + PROPERTIES_LENGTH.size + len(properties),
            MESSAGE_MAGIC,
            body_crc(body),
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise MessageIllegal(f"a number of the message does not fit its field: {error}") from error
    return head, body, topic, PROPERTIES_LENGTH.pack(len(properties)), properties


def takes_queue_offset(sys_flag: int) -> bool:
    """Whether a record has a place in a consume queue: prepared and rolled-back ones have none."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE not in {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE}


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
    # As RocketMQ, whose lengths have a sign: a negative one means 0, if the record ends accordingly.
    topic_length_at = body_at + max(0, body_length)
    if topic_length_at + 1 > end:
        return RecordCheck("invalid", 0, f"bodyLen {body_length} does not fit totalSize {total_size}")
    topic_length = view[topic_length_at]
    properties_length_at = topic_length_at + 1 + topic_length
    if properties_length_at + 2 > end:
        return RecordCheck("invalid", 0, f"topicLen {topic_length} does not fit totalSize {total_size}")
    if topic_length > MAX_TOPIC_BYTES:
        return RecordCheck("invalid", 0, f"topicLen {topic_length}: at most {MAX_TOPIC_BYTES} are possible")
    properties_length = _UNSIGNED_SHORT.unpack_from(view, properties_length_at)[0]
    properties_end = properties_length_at + 2 + properties_length
    is_negative = properties_length > MAX_PROPERTIES_BYTES
    if properties_end != end and not (is_negative and properties_length_at + 2 == end):
        return RecordCheck("invalid", 0, f"propsLen {properties_length} does not fit totalSize {total_size}")
    if check_crc and topic_length_at > body_at and body_crc(view[body_at:topic_length_at]) != crc:
        return RecordCheck("invalid", 0, f"bodyCRC {crc} is not that of the body")
    return RecordCheck("message", total_size, is_passed_over=is_negative and properties_end == end)


def text_span(view: memoryview, position: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where topic and properties of the valid record at `position` stand: (begin, end) of each."""
    born_bytes, store_bytes = host_bytes(_INT.unpack_from(view, position + _SYS_FLAG_POSITION)[0])
    body_length_at = position + _HEAD.size + born_bytes + _LONG.size + store_bytes + 12
    topic_at = body_length_at + 4 + max(0, _INT.unpack_from(view, body_length_at)[0]) + 1
    properties_length_at = topic_at + view[topic_at - 1]
    end = position + _INT.unpack_from(view, position)[0]
    return (topic_at, properties_length_at), (properties_length_at + 2, end)


def decode_record(
    view: memoryview, position: int, physical_offset: int, *, check: RecordCheck | None = None
) -> StoredMessage:
    """Decode the message at `position`, as RocketMQ does: what is not UTF-8 in topic and properties becomes U+FFFD.

    Raises `RecordError` if `check_record` finds no message there.

    `check`: what it has found, for a caller that has asked it already.
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
    body = bytes(view[at : at + max(0, body_length)])
    at += len(body)
    topic = bytes(view[at + 1 : at + 1 + view[at]])
    at += 1 + len(topic)
    properties = bytes(view[at + 2 : position + total_size])
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
        topic=decode_utf8(topic),
        properties=decode_properties(properties),
        is_passed_over=check.is_passed_over,
    )


def decode_message(record: memoryview) -> StoredMessage:
    """Decode one record, as reads give it, wherever it came from (MessageDecoder.decode). Raises `RecordError`."""
    if len(record) < RECORD_OVERHEAD_BYTES:
        raise RecordError(f"{len(record)} bytes: a record has at least {RECORD_OVERHEAD_BYTES}")
    return decode_record(record, 0, _LONG.unpack_from(record, 28)[0])
