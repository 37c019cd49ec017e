"""The two messages of RocketMQ's HA protocol (DefaultHA, 4.x and 5.x), big-endian, without handshake or version.

A slave sends nothing but its maximum physical offset, 8 bytes. A master sends a header of 12 bytes (offset of the first
byte, int32 size) and that many bytes of its log; size 0 is a heartbeat, whose offset is the next one to be sent.
"""

from __future__ import annotations

import struct

REPORT = struct.Struct(">q")
TRANSFER_HEADER = struct.Struct(">qi")

REPORT_BYTES = REPORT.size
TRANSFER_HEADER_BYTES = TRANSFER_HEADER.size

#: A 4.9 slave reads into a buffer of 4 MiB (HAClient.READ_MAX_BUFFER_SIZE): no frame may be larger.
SLAVE_BUFFER_BYTES = 4 * 1024 * 1024
MAX_BODY_BYTES = SLAVE_BUFFER_BYTES - TRANSFER_HEADER_BYTES


def encode_report(max_offset: int) -> bytes:
    """A slave's report: everything before `max_offset` is in its log."""
    return REPORT.pack(max_offset)


def encode_transfer_header(offset: int, size: int) -> bytes:
    """The header of `size` log bytes from `offset`; size 0 is a heartbeat."""
    return TRANSFER_HEADER.pack(offset, size)
