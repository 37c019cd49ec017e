"""Java's strings: text out of bytes, and its hash code, which tags codes and index keys are made of."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import cache
from operator import mul

_CHUNK_UNITS = 1024
_MASK = 0xFFFFFFFF
#: What would be a surrogate is one malformed sequence for Java, whose three bytes are three for Python.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)` in Java: one U+FFFD in place of each malformed sequence."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


@cache
def _powers(count: int) -> tuple[int, ...]:
    """31^(count-1) ... 31, 1, modulo 2^32: what the units of a string of that length weigh. At most `_CHUNK_UNITS`."""
    return tuple(pow(31, exponent, 1 << 32) for exponent in range(count - 1, -1, -1))


def java_hash_code(text: str, prefix_code: int = 0) -> int:
    """`text.hashCode()` in Java: over UTF-16 code units, as a signed 32-bit number.

    With `prefix_code`, the hash code of a string, that of this string and `text` after it.
    """
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(data) // 2}H", data)
    code, count = prefix_code, len(units)
    if count <= _CHUNK_UNITS:
        code = (code * pow(31, count, 1 << 32) if code else 0) + sum(map(mul, units, _powers(count)))
    else:
        for begin in range(0, count, _CHUNK_UNITS):
            part = units[begin : begin + _CHUNK_UNITS]
            code = code * pow(31, len(part), 1 << 32) + sum(map(mul, part, _powers(len(part))))
    code &= _MASK
    return code - (1 << 32) if code >> 31 else code
