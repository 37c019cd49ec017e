"""Where the whole records of a file of the log begin, by their heads alone."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import trio

from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC

_RECORDS_AT_ONCE = 8192


async def record_begins(view: memoryview, begin: int, offset: int, limit: int) -> tuple[Sequence[int], int]:
    """Where the records of `view` begin, from the one at `offset` on, and where the last one ends, at `limit` at most.

    The file of `view` begins at `begin`. A checkpoint now and then.
    """
    offsets = array("q")
    while offset + BLANK.size <= limit:
        size, magic = BLANK.unpack_from(view, offset - begin)
        if magic != MESSAGE_MAGIC or not BLANK.size <= size <= limit - offset:
            break
        offsets.append(offset)
        offset += size
        if not len(offsets) % _RECORDS_AT_ONCE:
            await trio.lowlevel.checkpoint()
    return offsets, offset
