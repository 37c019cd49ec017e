"""The records of an open log by where they are, for comparing it with a master's: heads alone are read."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rmq_actors.protocols.divergence import LogTail, is_blank
from rmq_actors.store.log.record_begins import record_begins
from rmq_actors.store.read.get_message import ReadableLog
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC


class LogCleaned(ValueError):
    """What was looked for is in this log no more."""

    reason = "log_cleaned"


@attrs.frozen
class LogRecords:
    """Nobody appends meanwhile. Cleaning may go on: each method raises `LogCleaned` for what it has removed."""

    _log: ReadableLog

    def at(self, offset: int) -> memoryview:
        """The record at `offset`, or as much of it as there is; nothing at the log's end."""
        if offset == self._log.max_offset:
            return memoryview(b"")
        view, begin = self._file_at(offset)
        ours = view[offset - begin : self._log.max_offset - begin]
        if len(ours) < BLANK.size:
            return ours
        size, _ = BLANK.unpack_from(ours)
        return ours[: max(0, size)]

    def file_begins(self) -> Sequence[int]:
        """Where each file begins; but the last one, if it holds no whole record, only if there is no other."""
        begins = range(self._log.min_offset, self._log.max_offset, self._log.file_size_bytes)
        return begins if len(begins) < 2 or self._is_whole(begins[-1]) else begins[:-1]

    def _file_at(self, offset: int) -> tuple[memoryview, int]:
        try:
            return self._log.file_at(offset)
        except ValueError as error:
            raise LogCleaned(f"{error}: it was cleaned meanwhile") from error

    def _is_whole(self, offset: int) -> bool:
        record = self.at(offset)
        return len(record) >= BLANK.size and BLANK.unpack_from(record) == (len(record), MESSAGE_MAGIC)

    async def from_offset(self, offset: int) -> tuple[Sequence[int], int]:
        """Where the whole records of one file begin, from the one at `offset` on, and where the last one ends.

        A checkpoint now and then.
        """
        view, begin = self._file_at(offset)
        return await record_begins(view, begin, offset, min(self._log.max_offset, begin + len(view)))

    async def tail(self, near: int | None) -> LogTail | None:
        """The log's end; None if it is empty. `near`: where some record begins, the later the sooner found.

        Of a log's first record a part may have come alone: that is then the last record.
        """
        size = self._log.file_size_bytes
        begins = self.file_begins()
        for begin in reversed(begins):
            is_near = near is not None and begin <= near < min(begin + size, self._log.max_offset)
            start = near if near is not None and is_near and self._is_whole(near) else begin
            offsets, end = await self.from_offset(start)
            if offsets:
                return self._tail(begin, offsets[-1], end)
        return self._tail(begins[0], begins[0], self._log.max_offset) if begins else None

    def _tail(self, begin: int, record_offset: int, rest_offset: int) -> LogTail:
        end, file_end = self._log.max_offset, begin + self._log.file_size_bytes
        rests: list[tuple[int, bool]] = []
        for offset in dict.fromkeys((rest_offset, file_end)):
            if offset < end:
                rest = self.at(offset)
                rests.append((offset, is_blank(rest) or len(rest) < BLANK.size))
        return LogTail(record_offset, rests)
