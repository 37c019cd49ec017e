"""The kinds of TCP segments, and what an arrival of one, or of a datagram, is in the digest of a run."""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

Address = tuple[str, int]
#: Bytes of DATA, the size of a WINDOW's opening, how often a SYN was repeated, why a RESET came.
Payload = bytes | int | str

#: A handshake is tried again after this time, then after twice that, and so on (RFC 6298).
SYN_AGAIN_S: Final = 1.0
#: The status of a reset that answers a segment, and so is sent again whenever the segment is.
NO_CONNECTION: Final = "no_connection"

DATA: Final = 0
FIN: Final = 1
RESET: Final = 2
WINDOW: Final = 3
SYN: Final = 4
SYN_ACK: Final = 5
ACK: Final = 6
_DATAGRAM: Final = 7
_KINDS: Final = ("DATA", "FIN", "RESET", "WINDOW", "SYN", "SYN_ACK", "ACK", "datagram")

# What, from which end or at which socket, size and checksum of the payload.
_arrival = struct.Struct("<BIII")
#: An arrival in the digest: kind, number of the end that sent it, size and CRC-32 of the payload.
pack_arrival = _arrival.pack


def pack_datagram_arrival(serial: int, data: bytes) -> bytes:
    """What a datagram's arrival at the socket of that number (0 for none) is in the digest."""
    return pack_arrival(_DATAGRAM, serial, len(data), crc32(data))


def describe_arrival(piece: bytes) -> str:
    """An arrival in the digest, in words."""
    kind, serial, size, checksum = _arrival.unpack(piece)
    payload = f" of {size} bytes (CRC-32 {checksum:08x})" if size else ""
    return f"{_KINDS[kind]}{payload} {'at' if kind == _DATAGRAM else 'from'} socket {serial}"
