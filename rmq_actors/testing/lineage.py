"""Logs as a checker knows them: what one master after the other has written, and where two of them part."""

from __future__ import annotations

import bisect

import attrs

from rmq_actors.wire.record import BLANK, BLANK_MAGIC


@attrs.define(eq=False)
class Lineage:
    """A master's log from offset 0 on, and where its records end. A new master goes on with a `fork`."""

    log: bytearray = attrs.field(factory=bytearray)
    _boundaries: list[int] = attrs.field(factory=lambda: [0])

    def append(self, data: bytes) -> None:
        """The master has written one record, or a file's blank end."""
        self.log += data
        self._boundaries.append(len(self.log))

    def whole_records(self, end: int) -> int:
        """Where the last record ends that is whole in the first `end` bytes."""
        return self._boundaries[bisect.bisect_right(self._boundaries, end) - 1]

    def fork(self, end: int) -> Lineage:
        """A log with the same first `end` bytes, which end where a record does."""
        return Lineage(self.log[:end], self._boundaries[: bisect.bisect_right(self._boundaries, end)])

    def common(self, other: Lineage) -> int:
        """So many bytes at the beginning are the same in both."""
        if self is other:
            return len(self.log)
        low, high = 0, min(len(self.log), len(other.log))
        while low < high:
            middle = (low + high + 1) // 2
            if self.log[:middle] == other.log[:middle]:
                low = middle
            else:
                high = middle - 1
        return low

    def common_records(self, other: Lineage) -> int:
        """Where the last record ends that both have."""
        return self.whole_records(self.common(other))

    def is_last_record(self, offset: int, end: int) -> bool:
        """Whether the last of the records before `end`, which ends one, ends at `offset`: a blank is no record."""
        if offset == end:
            return True
        return end - offset >= BLANK.size and BLANK.unpack_from(self.log, offset) == (end - offset, BLANK_MAGIC)
