"""Message ids that a broker gives (MessageDecoder.createMessageId): where the record is, and in which broker's log."""

from __future__ import annotations

import struct

from rmq_actors.wire.record import decode_host, encode_host

_OFFSET = struct.Struct(">q")
_PORT = struct.Struct(">i")
_PORT_MAX = 65535
#: Hex digits of an id, by the address family of the store host.
_IPV4_DIGITS = 32
_IPV6_DIGITS = 56


class MessageIdError(ValueError):
    """Text that is no message id."""


def create_message_id(store_host: str, physical_offset: int) -> str:
    """The id of the record at `physical_offset` of the broker at "ip:port": 32 or 56 upper-case hex digits.

    Raises `MessageIllegal` for a host that is none.
    """
    return (encode_host(store_host) + _OFFSET.pack(physical_offset)).hex().upper()


def decode_message_id(text: str) -> tuple[str, int]:
    """The store host "ip:port" and the physical offset of an id. Raises `MessageIdError`."""
    if len(text) not in {_IPV4_DIGITS, _IPV6_DIGITS}:
        raise MessageIdError(f"message id {text!r} has {len(text)} characters, not {_IPV4_DIGITS} or {_IPV6_DIGITS}")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise MessageIdError(f"message id {text!r} is not hexadecimal") from error
    if len(data) * 2 != len(text):
        raise MessageIdError(f"message id {text!r} is not hexadecimal")
    offset = _OFFSET.unpack(data[-8:])[0]
    if offset < 0:
        raise MessageIdError(f"message id {text!r}: offset {offset} is below 0")
    port = _PORT.unpack(data[-12:-8])[0]
    if not 0 <= port <= _PORT_MAX:
        raise MessageIdError(f"message id {text!r}: the port is {port}")
    return decode_host(data[:-8]), offset
