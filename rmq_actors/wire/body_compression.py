"""Compressed bodies of messages (ZlibCompressor, MessageDecoder): producers compress, consumers undo it.

A message says in its sysFlag that its body is compressed, and how: RocketMQ 4.9's own way is zlib.
"""

from __future__ import annotations

import zlib

# MessageSysFlag
COMPRESSED_FLAG = 0x1
COMPRESSION_TYPE_BITS = 0x700
#: What a message says whose body is compressed by zlib; older producers say nothing, and mean the same.
COMPRESSION_ZLIB_TYPE = 0x300
#: The level of RocketMQ's producers (rocketmq.message.compressLevel).
COMPRESS_LEVEL = 5


class CompressedBodyError(ValueError):
    """A body that cannot be decompressed, or would be too long."""


class DecompressedBodyTooLong(CompressedBodyError):
    """A body that would be too long."""


def compress_body(body: bytes, level: int = COMPRESS_LEVEL) -> tuple[bytes, int]:
    """The compressed body, and the bits of sysFlag that say so."""
    return zlib.compress(body, level), COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE


def decompress_body(body: bytes, sys_flag: int, max_bytes: int) -> bytes:
    """What a producer has sent. Raises `CompressedBodyError`, also for a body that would be more than `max_bytes`."""
    if not sys_flag & COMPRESSED_FLAG:
        return body
    kind = sys_flag & COMPRESSION_TYPE_BITS
    if kind not in (0, COMPRESSION_ZLIB_TYPE):
        raise CompressedBodyError(f"sysFlag {sys_flag:#x}: the body is compressed by LZ4 or ZSTD, zlib alone is known")
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise CompressedBodyError(f"the body is not what zlib writes: {error}") from error
    if len(found) > max_bytes:
        raise DecompressedBodyTooLong(f"the body has more than {max_bytes} bytes when it is decompressed")
    if not inflater.eof:
        raise CompressedBodyError("the compressed body is cut")
    return found
