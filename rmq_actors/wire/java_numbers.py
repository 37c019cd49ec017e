"""The ranges of Java's integers: as types that msgspec checks, and as such."""

from __future__ import annotations

from typing import Annotated

import msgspec

#: An `int` or `Integer` of Java: 32 bits.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: A `long` or `Long` of Java: 64 bits.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
