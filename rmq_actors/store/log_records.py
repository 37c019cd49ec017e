"""The records of an open log by where they are, for comparing it with a master's: heads alone are read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import attrs
import trio

from rmq_actors.protocols.divergence import LogTail, is_blank
from rmq_actors.store.get_message import ReadableLog
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC

_RECORDS_AT_ONCE = 8192


@attrs.frozen
class LogRecords:
    """Nobody appends meanwhile."""

    _log: ReadableLog

    def at(self, offset: int) -> memoryview:
        """The record at `offset`, or as much of it as there is; nothing at the log's end."""
        if offset == self._log.max_offset:
            return memoryview(b"")
        view, begin = self._log.file_at(offset)
        ours = view[offset - begin : self._log.max_offset - begin]
        if len(ours) < BLANK.size:
            return ours
        size, _ = BLANK.unpack_from(ours)
        return ours[: max(0, size)]

    def file_begins(self) -> Sequence[int]:
        """Where each file begins that holds a whole record."""
        begins = range(self._log.min_offset, self._log.max_offset, self._log.file_size_bytes)
        return begins if not begins or self._is_whole(begins[-1]) else begins[:-1]

    def _is_whole(self, offset: int) -> bool:
        record = self.at(offset)
        return len(record) >= BLANK.size and BLANK.unpack_from(record) == (len(record), MESSAGE_MAGIC)

    async def from_offset(self, offset: int) -> tuple[Sequence[int], int]:
        """Where the whole records of one file begin, from the one at `offset` on, and where the last one ends.

        A checkpoint now and then.
        """
        view, begin = self._log.file_at(offset)
        limit = min(self._log.max_offset, begin + len(view))
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

    async def tail(self, near: int | None) -> LogTail | None:
        """The log's end; None without a whole record. `near`: where some record begins, the later the sooner found."""
        size = self._log.file_size_bytes
        for begin in reversed(self.file_begins()):
            is_near = near is not None and begin <= near < min(begin + size, self._log.max_offset)
            start = near if near is not None and is_near and self._is_whole(near) else begin
            offsets, end = await self.from_offset(start)
            if offsets:
                return self._tail(begin, offsets[-1], end)
        return None

    def _tail(self, begin: int, record_offset: int, rest_offset: int) -> LogTail:
        end, file_end = self._log.max_offset, begin + self._log.file_size_bytes
        rests: list[tuple[int, bool]] = []
        for offset in dict.fromkeys((rest_offset, file_end)):
            if offset < end:
                rest = self.at(offset)
                rests.append((offset, is_blank(rest) or len(rest) < BLANK.size))
        return LogTail(begin, file_end, record_offset, end, rests)
