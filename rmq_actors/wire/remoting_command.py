"""One frame of the remoting protocol (RemotingCommand): a request or a response, its header in JSON or ROCKETMQ.

    i32 length | i32 serializeType << 24 | headerLength | header | body

`length` counts all that follows it. What codes, header fields and bodies mean: `request_code`, `response_code`,
`headers`, `bodies`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping

import attrs
import msgspec

from rmq_actors.wire.fastjson import FastJsonError, JsonValue, parse_fastjson

#: com.rocketmq.remoting.frameMaxLength: the most bytes of a frame, its length field included.
FRAME_MAX_LENGTH_BYTES = 16 * 1024 * 1024
#: What this side says it is (MQVersion.V4_9_7): what was seen on the wire between real peers.
CURRENT_VERSION = 407

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_ROCKETMQ_HEAD = struct.Struct(">hBhiii")
_HEADER_LENGTH_MASK = 0xFFFFFF
_EXT_FIELDS_MAX = 1024
_I16 = struct.Struct(">h")


class RemotingCommandError(ValueError):
    """A frame that breaks the protocol, or a header field that is missing or no number; says which and where."""


class SerializeType(enum.IntEnum):
    """How the header is written (SerializeType); a response follows its request."""

    JSON = 0
    ROCKETMQ = 1


class LanguageCode(enum.IntEnum):
    """What a peer is written in (LanguageCode). JSON has the name, ROCKETMQ the number."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12


@attrs.define
class RemotingCommand:
    """A request or a response.

    `ext_fields` is None where the header has none at all. `body` is the frame's own copy. `unknown_fields` names header
    fields that RocketMQ does not have; they are not written again.
    """

    code: int
    ext_fields: dict[str, str] | None = None
    flag: int = 0
    language: str = "PYTHON"
    opaque: int = 0
    remark: str | None = None
    version: int = CURRENT_VERSION
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON
    unknown_fields: tuple[str, ...] = ()

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return self.flag & ONEWAY_FLAG != 0

    def response(
        self, code: int, remark: str | None = None, ext_fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The answer to this request: its opaque and its encoding."""
        return RemotingCommand(
            code, ext_fields, RESPONSE_FLAG, "PYTHON", self.opaque, remark, CURRENT_VERSION, body, self.serialize_type
        )


class _JsonHeader(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """In the order in which fastjson writes: that of the alphabet."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - names of the protocol
    flag: int = 0
    language: str = "JAVA"
    opaque: int = 0
    remark: str | msgspec.UnsetType = msgspec.UNSET
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815
    version: int = 0


_JSON_DECODER = msgspec.json.Decoder(_JsonHeader)
_JSON_ENCODER = msgspec.json.Encoder()
_INT32 = range(-(2**31), 2**31)
_UNSET = msgspec.UNSET


def encode_command(command: RemotingCommand) -> bytes:
    """The whole frame. Raises `ValueError` when it would exceed `FRAME_MAX_LENGTH_BYTES`, or a number its field."""
    if command.serialize_type is SerializeType.JSON:
        ext_fields, remark = command.ext_fields, command.remark
        header = _JSON_ENCODER.encode(
            _JsonHeader(
                command.code,
                _UNSET if ext_fields is None else ext_fields,
                command.flag,
                command.language,
                command.opaque,
                _UNSET if remark is None else remark,
                "JSON",
                command.version,
            )
        )
    else:
        header = _encode_rocketmq_header(command)
    body = command.body
    length = 4 + len(header) + len(body)
    if length + 4 > FRAME_MAX_LENGTH_BYTES or len(header) > _HEADER_LENGTH_MASK:
        raise ValueError(
            f"a frame of {length + 4} bytes (code {command.code}): at most {FRAME_MAX_LENGTH_BYTES} can be sent"
        )
    return _HEAD.pack(length, command.serialize_type << 24 | len(header)) + header + body


def decode_command(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """Decode one frame from behind its length field. Raises `RemotingCommandError`."""
    if len(frame) < 4:
        raise RemotingCommandError(f"a frame of {len(frame)} bytes has no room for the length of its header")
    (word,) = _LENGTH.unpack_from(frame)
    header_length, serialize_type = word & _HEADER_LENGTH_MASK, word >> 24 & 0xFF
    end = 4 + header_length
    if end > len(frame):
        raise RemotingCommandError(f"the header has {header_length} bytes, the frame {len(frame) - 4}")
    header, body = bytes(frame[4:end]), bytes(frame[end:])
    if serialize_type == SerializeType.JSON:
        return _decode_json_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return _decode_rocketmq_header(header, body)
    raise RemotingCommandError(f"serialize type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")


def _decode_json_header(header: bytes, body: bytes) -> RemotingCommand:
    try:
        found = _JSON_DECODER.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_odd_json_header(header, body)
    if found.code not in _INT32 or found.opaque not in _INT32 or found.flag not in _INT32:
        raise RemotingCommandError(f"code {found.code}, opaque {found.opaque} or flag {found.flag} is no 32-bit number")
    ext_fields, remark = found.extFields, found.remark
    return RemotingCommand(
        found.code,
        None if ext_fields is _UNSET else ext_fields,
        found.flag,
        found.language,
        found.opaque,
        None if remark is _UNSET else remark,
        found.version,
        body,
    )


def _decode_odd_json_header(header: bytes, body: bytes) -> RemotingCommand:
    """What fastjson reads though it does not write it: numbers as text, plain values as text, null, unknown fields."""
    try:
        value = parse_fastjson(header)
    except FastJsonError as error:
        raise RemotingCommandError(f"the header is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RemotingCommandError("the header is no JSON object")
    fields = {name: value.pop(name, None) for name in _JsonHeader.__struct_fields__}
    if fields["code"] is None:
        raise RemotingCommandError("the header has no code")
    return RemotingCommand(
        _int32(fields["code"], "code"),
        _ext_fields(fields["extFields"]),
        _int32(fields["flag"], "flag"),
        _text(fields["language"], "language") or "JAVA",
        _int32(fields["opaque"], "opaque"),
        _text(fields["remark"], "remark"),
        _int32(fields["version"], "version"),
        body,
        unknown_fields=tuple(str(name) for name in value),
    )


def _int32(value: JsonValue, name: str) -> int:
    if value is None:
        return 0
    try:
        number = int(value) if isinstance(value, str) and len(value) <= 11 else value
    except ValueError:
        number = value
    if isinstance(number, bool) or not isinstance(number, int) or number not in _INT32:
        raise RemotingCommandError(f"{name} in the header is no 32-bit number: {_short(value)}")
    return number


def _text(value: JsonValue, name: str) -> str | None:
    """As fastjson makes a String of a plain value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise RemotingCommandError(f"{name} in the header is no plain value: {_short(value)}")


def _ext_fields(value: JsonValue) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise RemotingCommandError(f"extFields in the header is no object: {_short(value)}")
    ext_fields = {}
    for key, item in value.items():
        if isinstance(key, tuple):
            raise RemotingCommandError("extFields in the header has an object as a key")
        text = _text(item, f"extFields.{key}")
        if text is not None:
            ext_fields[str(key)] = text
    return ext_fields


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """RocketMQSerializable: code 2, language 1, version 2, opaque 4, flag 4, remark 4 + n, fields 4 + n.

    A field is key 2 + n, value 4 + n.
    """
    remark = (command.remark or "").encode()
    parts = []
    for key, value in (command.ext_fields or {}).items():
        key_bytes, value_bytes = key.encode(), value.encode()
        parts += [_I16.pack(len(key_bytes)), key_bytes, _LENGTH.pack(len(value_bytes)), value_bytes]
    fields = b"".join(parts)
    language = LanguageCode.__members__.get(command.language, LanguageCode.OTHER)
    try:
        head = _ROCKETMQ_HEAD.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    except struct.error as error:
        raise ValueError(f"code {command.code} or version {command.version} does not fit 16 bits: {error}") from error
    return b"".join((head, remark, _LENGTH.pack(len(fields)), fields))


def _decode_rocketmq_header(header: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_length = _ROCKETMQ_HEAD.unpack_from(header)
        at = _ROCKETMQ_HEAD.size
        remark, at = _take(header, at, remark_length, "remark")
        (fields_length,) = _LENGTH.unpack_from(header, at)
        fields_begin = at + 4
    except struct.error as error:
        raise RemotingCommandError(f"the header ends after {len(header)} bytes, within its fixed fields") from error
    if fields_length < 0 or fields_begin + fields_length > len(header):
        raise RemotingCommandError(f"extFields has {fields_length} bytes, the header {len(header) - fields_begin} left")
    ext_fields = _decode_rocketmq_fields(header[fields_begin : fields_begin + fields_length]) if fields_length else None
    name = LanguageCode(language).name if language in LanguageCode.__members__.values() else LanguageCode.OTHER.name
    return RemotingCommand(code, ext_fields, flag, name, opaque, remark or None, version, body, SerializeType.ROCKETMQ)


def _decode_rocketmq_fields(data: bytes) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    at = 0
    while at < len(data):
        try:
            (key_length,) = _I16.unpack_from(data, at)
            key, at = _take(data, at + 2, key_length, "a key of extFields")
            (value_length,) = _LENGTH.unpack_from(data, at)
            value, at = _take(data, at + 4, value_length, f"extFields.{key[:80]}")
        except struct.error as error:
            raise RemotingCommandError(f"extFields ends within a length, at byte {at} of {len(data)}") from error
        ext_fields[key] = value
        if len(ext_fields) > _EXT_FIELDS_MAX:
            raise RemotingCommandError(f"extFields has more than {_EXT_FIELDS_MAX} fields")
    return ext_fields


def _take(data: bytes, at: int, length: int, what: str) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise RemotingCommandError(f"{what} has {length} bytes, {len(data) - at} are left")
    try:
        return data[at:end].decode(), end
    except UnicodeDecodeError as error:
        raise RemotingCommandError(f"{what} is no UTF-8: byte {error.start}, {error.reason}") from error
