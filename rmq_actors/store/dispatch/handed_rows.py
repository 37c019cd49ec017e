"""The last rows of the log, as its writer hands them to ReputMessageService: what that would read of them.

They have no gap among them. Where they cannot have all of what is new they are dropped, all of them: the log has them.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import attrs

from rmq_actors.wire.dispatch_request import DispatchRequest

#: How many rows, and how many bytes of properties, wait at most.
ROWS_MAX = 4096
PROPERTIES_MAX_BYTES = 4 * 1024 * 1024


@attrs.define(eq=False, repr=False)
class HandedRows:
    """Written by `MessagePuts`, taken by `Reput`, which asks only for what may be seen."""

    rows_max: int = ROWS_MAX
    properties_max_bytes: int = PROPERTIES_MAX_BYTES
    _waiting: list[DispatchRequest] = attrs.field(factory=list, init=False)
    _properties_bytes: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def begin_offset(self) -> int | None:
        """Where the first row begins that waits."""
        return self._waiting[0].commit_log_offset if self._waiting else None

    @property
    def end_offset(self) -> int | None:
        """Where the last row ends that waits."""
        return self._waiting[-1].end_offset if self._waiting else None

    def put(self, rows: Sequence[DispatchRequest], properties_bytes: int) -> None:
        """Hand on rows that were appended, one after the other, in the log's order."""
        waiting = self._waiting
        if waiting:
            size_bytes = self._properties_bytes + properties_bytes
            is_full = len(waiting) + len(rows) > self.rows_max or size_bytes > self.properties_max_bytes
            if not is_full and waiting[-1].end_offset == rows[0].commit_log_offset:
                waiting += rows
                self._properties_bytes = size_bytes
                return
        self._waiting, self._properties_bytes = list(rows), properties_bytes

    def put_one(self, row: DispatchRequest, properties_bytes: int) -> None:
        """`put` of one row, as most puts of a store are."""
        waiting = self._waiting
        size_bytes = self._properties_bytes + properties_bytes
        if (
            not waiting
            or len(waiting) >= self.rows_max
            or size_bytes > self.properties_max_bytes
            or waiting[-1].end_offset != row.commit_log_offset
        ):
            self._waiting, self._properties_bytes = [row], properties_bytes
        else:
            waiting.append(row)
            self._properties_bytes = size_bytes

    def take(self, offset: int, limit: int) -> Sequence[DispatchRequest]:
        """The rows from `offset` on that end at or before `limit`; none where the one there does not wait here."""
        waiting = self._waiting
        if not waiting:
            return ()
        begin = waiting[0].commit_log_offset
        if begin != offset:
            if begin < offset:
                self.drop()
            return ()
        if waiting[-1].end_offset <= limit:
            self.drop()
            return waiting
        count = bisect.bisect_right(waiting, limit, key=_end_offset)
        self._waiting = waiting[count:]
        self._properties_bytes -= self._properties_bytes * count // len(waiting)
        return waiting[:count]

    def drop(self) -> None:
        """Forget all that waits."""
        self._waiting, self._properties_bytes = [], 0


def _end_offset(row: DispatchRequest) -> int:
    return row.end_offset
