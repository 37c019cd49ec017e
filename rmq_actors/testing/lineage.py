"""Logs as a cluster's view knows them: what one master after the other has written, and where two diverge."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Sequence

import attrs

from rmq_actors.wire.record import BLANK, BLANK_MAGIC, MESSAGE_MAGIC

_BODY_LENGTH_POSITION, _BODY_LENGTH = 84, struct.Struct(">i")
#: How much of two logs is compared at once: no copy of a whole log is made.
_COMPARED_BYTES = 64 * 1024


@attrs.define(eq=False, repr=False)
class Lineage:
    """A master's log from offset 0 on, and where its records end. A new master goes on with a `fork`."""

    log: bytearray = attrs.field(factory=bytearray)
    _boundaries: list[int] = attrs.field(factory=lambda: [0])

    def append(self, data: bytes) -> None:
        """The master has written one record, a file's blank end, or the records that its transient pool held."""
        at, begin = 0, len(self.log)
        while at + BLANK.size <= len(data):
            size, magic = BLANK.unpack_from(data, at)
            if magic != MESSAGE_MAGIC or not BLANK.size <= size < len(data) - at:
                break
            at += size
            self._boundaries.append(begin + at)
        self.log += data
        self._boundaries.append(len(self.log))

    def append_from(self, other: Lineage, end: int) -> None:
        """The master was sent what `other` has from here to `end`, perhaps the last record of it in part."""
        begin = len(self.log)
        self.log += other.log[begin:end]
        first, last = (bisect.bisect_right(other._boundaries, offset) for offset in (begin, end))
        self._boundaries += other._boundaries[first:last]

    def fill_blank(self, end: int) -> None:
        """If its head is all that there is of a file's blank end: a start takes it for whole, and the rest is zeros."""
        begin = self._boundaries[-1]
        if len(self.log) - begin >= BLANK.size and BLANK.unpack_from(self.log, begin) == (end - begin, BLANK_MAGIC):
            self.log += bytes(end - len(self.log))
            self._boundaries.append(end)

    def whole_records(self, end: int) -> int:
        """Where the last record ends that is whole in the first `end` bytes."""
        return self._boundaries[bisect.bisect_right(self._boundaries, end) - 1]

    def records(self, begin: int, end: int) -> Sequence[int]:
        """Where the records begin that are whole from `begin` to `end`, each of which ends one; blanks too."""
        first, last = bisect.bisect_left(self._boundaries, begin), bisect.bisect_right(self._boundaries, end)
        return self._boundaries[first : last - 1]

    def is_in_a_body(self, offset: int) -> bool:
        """Whether the byte is one of a message's body. The hosts in its record are IPv4."""
        begin = self.whole_records(offset)
        _, magic = BLANK.unpack_from(self.log, begin)
        if magic != MESSAGE_MAGIC:
            return False
        (length,) = _BODY_LENGTH.unpack_from(self.log, begin + _BODY_LENGTH_POSITION)
        return 0 <= offset - begin - _BODY_LENGTH_POSITION - _BODY_LENGTH.size < int(length)

    def fork(self, end: int) -> Lineage:
        """A log with the same first `end` bytes, which end where a record does."""
        return Lineage(self.log[:end], self._boundaries[: bisect.bisect_right(self._boundaries, end)])

    def common(self, other: Lineage) -> int:
        """How many bytes at the beginning are the same in both."""
        if self is other:
            return len(self.log)
        end = min(len(self.log), len(other.log))
        for begin in range(0, end, _COMPARED_BYTES):
            own, others = (log[begin : min(begin + _COMPARED_BYTES, end)] for log in (self.log, other.log))
            if own != others:
                return begin + next(at for at, (one, two) in enumerate(zip(own, others, strict=True)) if one != two)
        return end

    def common_records(self, other: Lineage) -> int:
        """Where the last record ends that both have."""
        return self.whole_records(self.common(other))

    def is_last_record(self, offset: int, end: int) -> bool:
        """Whether the last of the records before `end`, which ends one, ends at `offset`: a blank is no record."""
        if offset == end:
            return True
        return end - offset >= BLANK.size and BLANK.unpack_from(self.log, offset) == (end - offset, BLANK_MAGIC)

    def tells_nothing(self, offset: int, end: int) -> bool:
        """Whether a master that ends at `offset` may have this log, which ends at `end`, for all that a slave can ask.

        So it is with a file's blank end, and with less than that has of a head.
        """
        if end - offset >= BLANK.size:
            size, magic = BLANK.unpack_from(self.log, offset)
            offset += size if magic == BLANK_MAGIC else 0
        return end - offset < BLANK.size
