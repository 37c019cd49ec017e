"""SEND_MESSAGE_V2 as rows: out of the frames of one receive, and the frames that answer them.

A row is a frame whose every part is as Java's client writes it, and whose message is plain. Every other frame, however
legal, is a `RemotingCommand`, which the broker's general door takes. So a row never says anything of its own: what it
says is what the general door would read, and whoever cannot use a row asks for its `command`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import attrs
import msgspec

from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC, PROPERTY_DELAY, PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.java_numbers import Int32, Int64
from rmq_actors.wire.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PROPERTY_WAIT_STORE_MSG_OK
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE
from rmq_actors.wire.remoting_command import (
    CURRENT_VERSION,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command_within,
    encode_command,
)
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: fastjson writes the members in the order of the alphabet.
_BEGINNING = b'{"code":%d,"extFields":{' % RequestCode.SEND_MESSAGE_V2
_HEAD = struct.Struct(">ii")
_HEADER_WORD = struct.Struct(">I")
#: A longer header is left to the general door, which bounds what an odd one may cost.
_HEADER_MAX_LENGTH_BYTES = 64 * 1024
_WAITS = PROPERTY_WAIT_STORE_MSG_OK + NAME_VALUE_SEPARATOR + "true"
_NO_PROPERTIES: tuple[bytes, Mapping[str, str]] = b"", {}
#: What the broker does something about, or writes itself.
_UNUSUAL_PROPERTIES = frozenset(
    {PROPERTY_DELAY, PROPERTY_INNER_MULTI_DISPATCH, "TRAN_MSG", "CLUSTER", "REAL_TOPIC", ""}
)
_UNUSUAL_TOPIC_PREFIXES = ("%RETRY%", "RMQ_SYS_", CHECK_MAX_TIME_TOPIC)


class _Fields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`SendMessageRequestHeaderV2`, and the broker's name, which every client sends. Values are text: not strict."""

    a: str
    b: str
    c: str
    d: Int32
    e: Int32
    f: Int32
    g: Int64
    h: Int32
    i: str | None = None
    j: Int32 | None = None
    k: bool = False
    l: Int32 | None = None  # noqa: E741
    m: bool = False
    n: str | None = None
    bname: str | None = None


class _JavaHeader(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    code: Int32
    extFields: msgspec.Raw  # noqa: N815 - names of the protocol
    language: str
    opaque: Int32
    version: Int32
    flag: Int32 = 0
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815


_decode_header = msgspec.json.Decoder(_JavaHeader).decode
_decode_fields = msgspec.json.Decoder(_Fields, strict=False).decode


class SendRow(msgspec.Struct, frozen=True, gc=False):
    """A SEND_MESSAGE_V2 of a plain message. Its views are valid for as long as what it was decoded from.

    `properties` are encoded, as sent but for WAIT=true, which is not stored; `names` are all of them, decoded.
    """

    opaque: int
    is_oneway: bool
    version: int
    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int
    properties: bytes
    names: Mapping[str, str]
    body: memoryview
    _frame: memoryview

    def command(self) -> RemotingCommand:
        """The same request as the general door takes it."""
        return decode_command_within(self._frame, 0, len(self._frame))


def decode_row_or_command(buffer: memoryview, begin: int, end: int) -> SendRow | RemotingCommand:
    """Decode what follows the length field of a frame that stands in a buffer. Raises `RemotingCommandError`."""
    return _decode_row(buffer, begin, end) or decode_command_within(buffer, begin, end)


def _decode_row(buffer: memoryview, begin: int, end: int) -> SendRow | None:
    """The row, or None: then the general door says what the frame is."""
    header_begin = begin + 4
    (header_length,) = _HEADER_WORD.unpack_from(buffer, begin)
    header_end = header_begin + header_length
    if header_length > _HEADER_MAX_LENGTH_BYTES or header_end > end:
        return None
    text = bytes(buffer[header_begin:header_end])
    if not text.startswith(_BEGINNING):
        return None
    try:
        header = _decode_header(text)
        fields = _decode_fields(header.extFields)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    is_oneway = header.flag == ONEWAY_FLAG
    properties = row_properties(fields.i) if fields.i else _NO_PROPERTIES
    if (
        header.code != RequestCode.SEND_MESSAGE_V2
        or (header.flag and not is_oneway)
        or properties is None
        or fields.m
        or fields.e < 0
        or fields.f & TRANSACTION_ROLLBACK_TYPE
        or fields.b.startswith(_UNUSUAL_TOPIC_PREFIXES)
    ):
        return None
    return SendRow(
        header.opaque,
        is_oneway,
        header.version,
        fields.b,
        fields.e,
        fields.h,
        fields.f,
        fields.g,
        fields.j or 0,
        properties[0],
        properties[1],
        buffer[header_end:end],
        buffer[begin:end],
    )


def row_properties(text: str) -> tuple[bytes, Mapping[str, str]] | None:
    """Properties as they are stored, encoded; and decoded. None but for well-formed, plain ones with unique names.

    Decoding and encoding them again gives the same bytes, but for WAIT=true, which is left out. There must be some.
    """
    if "\0" in text:
        return None
    plain = text[:-1] if text[-1] == PROPERTY_SEPARATOR else text
    entries = plain.split(PROPERTY_SEPARATOR)
    try:
        found = dict([entry.split(NAME_VALUE_SEPARATOR) for entry in entries])
    except ValueError:  # an entry without a separator, or with two
        return None
    if len(found) != len(entries) or not _UNUSUAL_PROPERTIES.isdisjoint(found) or "" in found.values():
        return None
    waits = found.get(PROPERTY_WAIT_STORE_MSG_OK)
    if waits is not None:
        if waits != "true":
            return None
        entries.remove(_WAITS)
        plain = PROPERTY_SEPARATOR.join(entries)
    try:
        return plain.encode(), found
    except UnicodeEncodeError:
        return None


#: What stands for these in a template, and nowhere else in an answer.
_ID_MARK = "\N{LEFT BLACK LENTICULAR BRACKET}id"
_QUEUE_MARK, _OFFSET_MARK, _OPAQUE_MARK = 1_618_033_988, 2_718_281_828_459_045_235, 1_414_213_562


@attrs.frozen
class SendAnswers:
    """Frames that tell producers where their messages are: those of `encode_command`, by a template."""

    _template: bytes

    @classmethod
    def of(cls, region_id: str, trace_switch: str, store_host: bytes) -> SendAnswers | None:
        """The answers of a broker; None where its settings have no place in a template."""
        header = SendMessageResponseHeader(_ID_MARK, _QUEUE_MARK, _OFFSET_MARK)
        ext_fields = encode_header(header) | {"MSG_REGION": region_id, "TRACE_ON": trace_switch}
        command = RemotingCommand(
            ResponseCode.SUCCESS, ext_fields, RESPONSE_FLAG, "PYTHON", _OPAQUE_MARK, None, CURRENT_VERSION
        )
        template = encode_command(command)[8:].replace(b"%", b"%%")
        msg_id = store_host.hex().upper().encode() + b"%016X"
        for mark, place in ((_ID_MARK, msg_id), (_QUEUE_MARK, b"%d"), (_OFFSET_MARK, b"%d"), (_OPAQUE_MARK, b"%d")):
            text = str(mark).encode()
            if template.count(text) != 1:
                return None
            template = template.replace(text, place)
        return cls(template)

    def frames(self, placed: Iterable[tuple[int, int, int, int]]) -> bytes:
        """The answers to requests: of each the offset in the log, the queue, the place in it, and the opaque."""
        parts: list[bytes] = []
        template, pack = self._template, _HEAD.pack
        for each in placed:
            header = template % each
            length = len(header)
            parts += pack(length + 4, length), header
        return b"".join(parts)
