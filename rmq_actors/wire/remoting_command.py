"""One frame of the remoting protocol (RemotingCommand): a request or a response, its header in JSON or ROCKETMQ.

    i32 length | i32 serializeType << 24 | headerLength | header | body

`length` counts all that follows it. What codes, header fields and bodies mean: `request_code`, `response_code`,
`headers`, `bodies`.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Mapping

import msgspec

from rmq_actors.wire.fastjson import FastJsonError, JsonValue, parse_fastjson
from rmq_actors.wire.java_numbers import INT32, Int32

#: com.rocketmq.remoting.frameMaxLength: the most bytes of a frame, its length field included.
FRAME_MAX_LENGTH_BYTES = 16 * 1024 * 1024
#: The most bytes of a header; the frame has 24 bits for it. Properties of a message, the longest of fields, are 32 KiB.
HEADER_MAX_LENGTH_BYTES = 1024 * 1024
#: What this side says it is (MQVersion.V4_9_7): what was seen on the wire between real peers.
CURRENT_VERSION = 407

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

#: Bounds a header that fastjson reads but does not write: it takes up to 1 us a byte, and every other peer waits.
_ODD_HEADER_MAX_LENGTH_BYTES = 64 * 1024
_FIELDS_MAX = 1024
_TOO_MANY_FIELDS = f"extFields has more than {_FIELDS_MAX} fields"
_SHOWN_CHARS = 80

_HEAD = struct.Struct(">ii")
_HEADER_WORD = struct.Struct(">I")
_HEADER_LENGTH_MASK = 0xFFFFFF
_ROCKETMQ_WORD = 1 << 24


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


class RemotingCommand(msgspec.Struct, gc=False):
    """A request or a response.

    `ext_fields` is None where the header has none at all. `body` is the frame's own copy. `unknown_fields` names header
    fields that RocketMQ does not have, 80 characters of each; they are not written again.
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


def encode_command(command: RemotingCommand) -> bytes:
    """The whole frame. Raises `ValueError` when it would exceed a limit of frames or headers, or a number its field.

    Half of a surrogate pair, which UTF-8 has no bytes for, is a `?`, as Java writes it.
    """
    try:
        if command.serialize_type is SerializeType.JSON:
            header, word = _encode_json_header(command), 0
        else:
            header, word = _encode_rocketmq_header(command), _ROCKETMQ_WORD
    except UnicodeEncodeError:
        return encode_command(_well_formed_command(command))
    except struct.error as error:
        numbers = f"code {command.code}, flag {command.flag}, opaque {command.opaque} or version {command.version}"
        raise ValueError(f"{numbers} is too large a number for its field: {error}") from error
    body, header_length = command.body, len(header)
    length = 4 + header_length + len(body)
    if length + 4 > FRAME_MAX_LENGTH_BYTES or header_length > HEADER_MAX_LENGTH_BYTES:
        raise ValueError(
            f"a frame of {length + 4} bytes (code {command.code}), {header_length} of them in its header: "
            f"at most {FRAME_MAX_LENGTH_BYTES} and {HEADER_MAX_LENGTH_BYTES} can be sent"
        )
    return _HEAD.pack(length, word | header_length) + header + body


def decode_command(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """Decode what follows the length field of a frame. Raises `RemotingCommandError`."""
    return decode_command_within(memoryview(frame), 0, len(frame))


def decode_command_within(buffer: memoryview, begin: int, end: int) -> RemotingCommand:
    """The same of a frame that stands in a buffer. Nothing of the buffer is kept."""
    if end - begin < 4:
        raise RemotingCommandError(f"a frame of {end - begin} bytes has no room for the length of its header")
    (word,) = _HEADER_WORD.unpack_from(buffer, begin)
    header_begin, header_length = begin + 4, word & _HEADER_LENGTH_MASK
    header_end = header_begin + header_length
    if header_end > end:
        raise RemotingCommandError(f"the header has {header_length} bytes, the frame {end - header_begin}")
    if header_length > HEADER_MAX_LENGTH_BYTES:
        raise RemotingCommandError(f"a header of {header_length} bytes: at most {HEADER_MAX_LENGTH_BYTES} are read")
    header, body = buffer[header_begin:header_end], bytes(buffer[header_end:end])
    if word == header_length:
        return _decode_json_header(header, body)
    if word >> 24 == SerializeType.ROCKETMQ:
        return _decode_rocketmq_header(bytes(header), body)
    raise RemotingCommandError(f"serialize type {word >> 24} is neither JSON (0) nor ROCKETMQ (1)")


_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_UNSET = msgspec.UNSET


class _WrittenJsonHeader(msgspec.Struct, gc=False):
    """In the order in which fastjson writes: that of the alphabet."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815 - names of the protocol
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


class _JsonHeader(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What Java and Go write. What is absent has the value that Java's object begins with."""

    code: Int32
    extFields: dict[str, str] | None = None  # noqa: N815
    flag: Int32 = 0
    language: str = "JAVA"
    opaque: Int32 = 0
    remark: str | None = None
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815
    version: Int32 = 0


class _PlainJsonHeader(_JsonHeader, forbid_unknown_fields=True, gc=False):
    """What C++ writes: numbers without quotes in extFields."""

    extFields: dict[str, str | int] | None = None  # type: ignore[assignment]  # noqa: N815


_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_decode_plain_json = msgspec.json.Decoder(_PlainJsonHeader).decode
#: The numbers of a JSON header are 32 bits, of which msgspec knows nothing when it writes.
_JSON_NUMBERS = struct.Struct(">iiii")


def _encode_json_header(command: RemotingCommand) -> bytes:
    ext_fields, remark = command.ext_fields, command.remark
    code, flag, opaque, version = command.code, command.flag, command.opaque, command.version
    _JSON_NUMBERS.pack(code, flag, opaque, version)
    return _encode_json(
        _WrittenJsonHeader(
            code,
            _UNSET if ext_fields is None else ext_fields,
            flag,
            command.language,
            opaque,
            _UNSET if remark is None else remark,
            "JSON",
            version,
        )
    )


def _well_formed_command(command: RemotingCommand) -> RemotingCommand:
    ext_fields, remark = command.ext_fields, command.remark
    return msgspec.structs.replace(
        command,
        ext_fields=ext_fields and {_well_formed(name): _well_formed(text) for name, text in ext_fields.items()},
        language=_well_formed(command.language),
        remark=remark and _well_formed(remark),
    )


def _well_formed(text: str) -> str:
    """Half of a surrogate pair is what Java writes for it: a '?'."""
    return text.encode(errors="replace").decode()


def _decode_json_header(header: memoryview, body: bytes) -> RemotingCommand:
    try:
        found = _decode_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_plain_json_header(bytes(header), body)
    ext_fields = found.extFields
    if ext_fields is not None and len(ext_fields) > _FIELDS_MAX:
        raise RemotingCommandError(_TOO_MANY_FIELDS)
    return RemotingCommand(
        found.code, ext_fields, found.flag, found.language, found.opaque, found.remark, found.version, body
    )


def _decode_plain_json_header(header: bytes, body: bytes) -> RemotingCommand:
    try:
        found = _decode_plain_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_odd_json_header(header, body)
    ext_fields = None if found.extFields is None else {name: str(item) for name, item in found.extFields.items()}
    if ext_fields is not None and len(ext_fields) > _FIELDS_MAX:
        raise RemotingCommandError(_TOO_MANY_FIELDS)
    return RemotingCommand(
        found.code, ext_fields, found.flag, found.language, found.opaque, found.remark, found.version, body
    )


def _decode_odd_json_header(header: bytes, body: bytes) -> RemotingCommand:
    """What fastjson reads though it does not write it: numbers as text, plain values as text, null, unknown fields.

    As in Java, bytes that are no UTF-8 are U+FFFD: a client with texts in another encoding can still send.
    """
    if len(header) > _ODD_HEADER_MAX_LENGTH_BYTES:
        limit = f"at most {_ODD_HEADER_MAX_LENGTH_BYTES} are read"
        raise RemotingCommandError(f"a header of {len(header)} bytes that is not as Java writes it: {limit}")
    try:
        value = parse_fastjson(_java_text(header).encode())
    except FastJsonError as error:
        raise RemotingCommandError(f"the header is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RemotingCommandError("the header is not a JSON object")
    fields = {name: value.pop(name, None) for name in _JsonHeader.__struct_fields__}
    if len(value) > _FIELDS_MAX:
        raise RemotingCommandError(f"the header has more than {_FIELDS_MAX} unknown fields")
    if fields["code"] is None:
        raise RemotingCommandError("the header has no code")
    return RemotingCommand(
        _int32(fields["code"], "code"),
        _ext_fields(fields["extFields"]),
        _int32(fields["flag"], "flag"),
        _language(fields["language"]),
        _int32(fields["opaque"], "opaque"),
        _text(fields["remark"], "remark"),
        _int32(fields["version"], "version"),
        body,
        unknown_fields=tuple(_well_formed(str(name)[:_SHOWN_CHARS]) for name in value),
    )


def _int32(value: JsonValue, name: str) -> int:
    if value is None:
        return 0
    number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or number not in INT32:
        raise RemotingCommandError(f"{name} in the header is no 32-bit number: {_short(value)}")
    return number


def _language(value: JsonValue) -> str:
    """A name, or the number that fastjson takes for it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _language_name(value)
    return _text(value, "language") or LanguageCode.JAVA.name


def _text(value: JsonValue, name: str) -> str | None:
    """As fastjson makes a String of a plain value."""
    if value is None:
        return None
    if isinstance(value, str):
        return _well_formed(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise RemotingCommandError(f"{name} in the header is no plain value: {_short(value)}")


def _ext_fields(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise RemotingCommandError(f"extFields in the header is no object: {_short(value)}")
    if len(value) > _FIELDS_MAX:
        raise RemotingCommandError(_TOO_MANY_FIELDS)
    ext_fields = {}
    for key, item in value.items():
        if isinstance(key, tuple):
            raise RemotingCommandError("extFields in the header has an object as a key")
        name = _well_formed(str(key))
        text = _text(item, f"extFields.{name[:_SHOWN_CHARS]}")
        if text is not None:
            ext_fields[name] = text
    return ext_fields


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


_ROCKETMQ_HEAD = struct.Struct(">hBhiii")
_LENGTH = struct.Struct(">i")
_KEY_MAX_BYTES = 2**15 - 1
_LANGUAGE_NAMES = {code.value: code.name for code in LanguageCode}


def _language_name(number: int) -> str:
    return _LANGUAGE_NAMES.get(number, LanguageCode.OTHER.name)


def _encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """RocketMQSerializable: code 2, language 1, version 2, opaque 4, flag 4, remark 4 + n, fields 4 + n.

    A field is key 2 + n, value 4 + n. No remark and an empty one are the same, and so are no fields and none.
    """
    remark = (command.remark or "").encode()
    fields = _encode_rocketmq_fields(command.ext_fields or {})
    language = LanguageCode.__members__.get(command.language, LanguageCode.OTHER)
    head = _ROCKETMQ_HEAD.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((head, remark, _LENGTH.pack(len(fields)), fields))


def _encode_rocketmq_fields(ext_fields: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, text in ext_fields.items():
        key, value = name.encode(), text.encode()
        if len(key) > _KEY_MAX_BYTES:
            raise ValueError(f"extFields has a key of {len(key)} bytes: at most {_KEY_MAX_BYTES} can be sent")
        parts += (len(key).to_bytes(2, "big"), key, len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def _decode_rocketmq_header(header: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_length = _ROCKETMQ_HEAD.unpack_from(header)
        remark_begin = _ROCKETMQ_HEAD.size
        remark_end = remark_begin + remark_length
        if remark_length < 0:
            raise RemotingCommandError(f"remark has {remark_length} bytes")
        (fields_length,) = _LENGTH.unpack_from(header, remark_end)
    except struct.error as error:
        raise RemotingCommandError(f"the header ends after {len(header)} bytes, before its remark does") from error
    fields = header[remark_end + 4 :]
    if fields_length != len(fields):
        raise RemotingCommandError(f"extFields has {fields_length} bytes, the header {len(fields)} left for it")
    remark = _java_text(header[remark_begin:remark_end]) or None
    ext_fields = _decode_rocketmq_fields(fields) if fields else None
    return RemotingCommand(
        code, ext_fields, flag, _language_name(language), opaque, remark, version, body, SerializeType.ROCKETMQ
    )


def _decode_rocketmq_fields(data: bytes) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    at, end = 0, len(data)
    while at < end:
        key_begin = at + 2
        key_end = key_begin + int.from_bytes(data[at:key_begin], "big")
        value_begin = key_end + 4
        value_end = value_begin + int.from_bytes(data[key_end:value_begin], "big")
        if value_end > end or key_end - key_begin > _KEY_MAX_BYTES:
            sizes = f"{key_end - key_begin} and {value_end - value_begin} bytes"
            raise RemotingCommandError(f"extFields has a field of {sizes} at byte {at} of {end}")
        try:
            ext_fields[data[key_begin:key_end].decode()] = data[value_begin:value_end].decode()
        except UnicodeDecodeError:
            ext_fields[_java_text(data[key_begin:key_end])] = _java_text(data[value_begin:value_end])
        at = value_end
    if len(ext_fields) > _FIELDS_MAX:
        raise RemotingCommandError(_TOO_MANY_FIELDS)
    return ext_fields


def _java_text(data: bytes) -> str:
    """As Java reads it: what is no UTF-8 is U+FFFD."""
    return data.decode(errors="replace")
