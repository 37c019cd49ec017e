"""The slave's half of an HA connection: makes appends of the master's bytes, and says what to report when (HAClient).

A machine lives as long as one connection, so nothing of a broken connection can reach the next one. RocketMQ's slave
waits 5 s before its first report and never notices a silent master; this one reports at once and times the master out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import attrs

from rmq_actors.wire.ha_frames import SLAVE_BUFFER_BYTES, TRANSFER_HEADER, TRANSFER_HEADER_BYTES, encode_report

#: How much is received at once: the processor's cache still holds it when it is written to the log.
RECEIVE_BYTES = 512 * 1024


class MasterRefused(ValueError):
    """The master's mistake: this connection cannot go on. `reason` is short and stable."""

    reason = "refused"


class OffsetMismatch(MasterRefused):
    """The master sends other bytes than the ones that come next in this log."""

    reason = "offset_mismatch"


class IllegalFrame(MasterRefused):
    """A frame of a negative size, or too large for the buffer."""

    reason = "illegal_frame"


class MasterSilent(MasterRefused):
    """Nothing was heard from the master for haHousekeepingInterval."""

    reason = "housekeeping"


class ReportStuck(MasterSilent):
    """For most of that time the master took no report either; nothing is read while a report is being sent."""

    reason = "report_stuck"


class Append(NamedTuple):
    """An effect: append `data` to the log at `offset`. The view is valid until `HaSlave.free` is called."""

    offset: int
    data: memoryview


def joined(appends: Iterable[Append], file_size_bytes: int) -> Iterator[Append]:
    """The same appends, but neighbours in one file of the log are one append: a call costs more than its bytes.

    What no file could hold stays as it is. Raises what `appends` raises, after yielding what came before.
    """
    views: list[memoryview] = []
    begin = end = file_end = 0
    try:
        for offset, data in appends:
            is_neighbour, end = offset == end, offset + len(data)
            if not is_neighbour or end > file_end:
                yield from _as_one(begin, views)
                views, begin = [], offset
                file_end = begin - begin % file_size_bytes + file_size_bytes
            views.append(data)
    except MasterRefused:
        yield from _as_one(begin, views)
        raise
    yield from _as_one(begin, views)


def _as_one(offset: int, views: list[memoryview]) -> Iterator[Append]:
    if views:
        yield Append(offset, views[0] if len(views) == 1 else memoryview(b"".join(views)))


@attrs.define(eq=False, repr=False)
class HaSlave:
    """One connection to a master. Times are seconds of one monotonic clock, offsets bytes in the log.

    Receive into `free()`, call `received`, carry out each `Append` in order, send what `report` returns, and call
    `sent` when all of it is sent.
    """

    #: Where the log ends once what was yielded is appended. It never falls.
    max_offset: int
    last_read: float
    heartbeat_interval_s: float
    housekeeping_interval_s: float
    buffer_bytes: int = SLAVE_BUFFER_BYTES
    #: How many whole frames were taken, heartbeats among them.
    frames: int = attrs.field(default=0, init=False)
    #: What was received and not yielded yet is `_buffer[_begin:_end]`: 0 <= `_begin` <= `_end` <= `buffer_bytes`.
    _buffer: bytearray = attrs.field(init=False)
    _begin: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)
    _reported: int = attrs.field(default=-1, init=False)
    _last_write: float = attrs.field(default=float("-inf"), init=False)
    #: Since when a report is being sent.
    _sending_since: float | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._buffer = bytearray(self.buffer_bytes)

    def free(self) -> memoryview:
        """Where the next bytes go, `RECEIVE_BYTES` at most; never empty."""
        if self._begin:
            rest = self._end - self._begin
            if rest:
                self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
        assert self._end < len(self._buffer), "a frame that fills the buffer was taken, or refused by its header"
        return memoryview(self._buffer)[self._end : self._end + RECEIVE_BYTES]

    def received(self, size: int, now: float) -> Iterable[Append]:
        """`size` bytes were put into `free()`: what whole frames ask for, in order. Go through it once, to its end.

        Raises `OffsetMismatch` or `IllegalFrame` when it reaches a bad frame; what came before stands.
        """
        self.last_read = now
        self._end = end = self._end + size
        assert end <= len(self._buffer), "no more was received than there was room for"
        if self._begin or end <= TRANSFER_HEADER_BYTES:
            return self._frames()
        offset, body_bytes = TRANSFER_HEADER.unpack_from(self._buffer)
        if offset != self.max_offset or not 0 < body_bytes == end - TRANSFER_HEADER_BYTES:
            return self._frames()
        # One whole frame, and nothing else: a put, whose master waits.
        self._begin = end
        self.frames += 1
        self.max_offset = offset + body_bytes
        return (Append(offset, memoryview(self._buffer)[TRANSFER_HEADER_BYTES:end]),)

    def _frames(self) -> Iterator[Append]:
        view, unpack = memoryview(self._buffer), TRANSFER_HEADER.unpack_from
        while (body_at := self._begin + TRANSFER_HEADER_BYTES) <= self._end:  # for each 32 KiB that a slave receives
            offset, body_bytes = unpack(view, self._begin)
            if offset != self.max_offset or not 0 <= body_bytes <= len(view) - TRANSFER_HEADER_BYTES:
                self._check_header(offset, body_bytes)
            body_end = body_at + body_bytes
            if self._end < body_end:
                return
            self._begin = body_end
            self.frames += 1
            if body_bytes:
                self.max_offset = offset + body_bytes
                yield Append(offset, view[body_at:body_end])

    def _check_header(self, offset: int, body_bytes: int) -> None:
        if not 0 <= body_bytes <= len(self._buffer) - TRANSFER_HEADER_BYTES:
            raise IllegalFrame(f"the master announces a frame of {body_bytes} bytes at offset {offset}")
        # An empty log takes any beginning: the master's minimum offset need not be 0.
        if self.max_offset != offset and (self.max_offset or offset < 0):
            raise OffsetMismatch(f"the master sends offset {offset}, this slave's log ends at {self.max_offset}")

    def report(self, log_offset: int, now: float) -> bytes | None:
        """The report to send now, or None: at once after connecting, when `log_offset` grew, and as a heartbeat."""
        if log_offset <= self._reported and now < self._last_write + self.heartbeat_interval_s:
            return None
        self._reported = log_offset
        self._last_write = now
        self._sending_since = now
        return encode_report(log_offset)

    def sent(self) -> None:
        """All of the last report was handed to the network."""
        self._sending_since = None

    @property
    def wake_at(self) -> float:
        """When the next heartbeat report is due."""
        return self._last_write + self.heartbeat_interval_s

    @property
    def silent_at(self) -> float:
        """When the master has been silent too long."""
        return self.last_read + self.housekeeping_interval_s

    def check_silence(self, now: float) -> None:
        """Raise `MasterSilent` once `now` has reached `silent_at`."""
        if now < self.silent_at:
            return
        since = self._sending_since
        if since is not None and now - since >= self.housekeeping_interval_s / 2:
            raise ReportStuck(f"the master takes no report, and nothing was read for {now - self.last_read:g} s")
        raise MasterSilent(f"nothing was heard from the master for {self.housekeeping_interval_s:g} s")
