"""Java's String.hashCode: what tags codes and index keys are made of."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import mul

_POWERS_MAX = 1024
#: 31^(n-1) ... 31, 1: the last k of them weigh a string of k code units.
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_POWERS_MAX - 1, -1, -1)]


def java_hash_code(text: str) -> int:
    """`text.hashCode()` in Java: over UTF-16 code units, as a signed 32-bit number."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(data) // 2}H", data)
    code = 0
    for begin in range(0, len(units), _POWERS_MAX):
        part = units[begin : begin + _POWERS_MAX]
        code = code * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[_POWERS_MAX - len(part) :]))
    code &= 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
