"""Keeps the part of a record at the end of a master's bytes in memory until the rest comes.

A frame may end in the middle of a record, but a slave's log must not: nobody has promised a part of a record, and the
next master may have another record there, or none. `CommitLog.append_data` finds where the last whole record ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from rmq_actors.protocols.ha_slave import Append, MasterRefused, joined
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, END_FILE_MIN_BLANK_LENGTH, RECORD_MAX_BYTES


class RecordTooLong(MasterRefused):
    """A record, or a file's blank end, that is longer than a slave keeps in memory."""

    reason = "record_too_long"


@attrs.define(eq=False, repr=False)
class PartOfRecord:
    """The held part of one connection; it ends with the connection.

    Append what `joined` yields, and tell `hold` where the log ends before you ask for the next.
    """

    _file_size_bytes: int
    _record_max_bytes: int = RECORD_MAX_BYTES
    _offset: int = attrs.field(default=0, init=False)
    _held: bytearray = attrs.field(factory=bytearray, init=False)
    #: How long the record is; a head's length while no more is known.
    _record_bytes: int = attrs.field(default=BLANK.size, init=False)

    @property
    def held_bytes(self) -> int:
        """How much of a record waits for its rest."""
        return len(self._held)

    def joined(self, appends: Iterable[Append]) -> Iterable[Append]:
        """The held part and the appends, neighbours in one file as one; nothing while all is a part of one record.

        Raises what `appends` raises, after yielding what came before.
        """
        if self._held:
            appends = self._with_held(appends)
        elif isinstance(appends, tuple):  # it is alone
            return appends
        return joined(appends, self._file_size_bytes)

    def _with_held(self, appends: Iterable[Append]) -> Iterator[Append]:
        rest = iter(appends)
        # A long record comes in many frames: do not join it again for each of them.
        for append in rest:
            self._held += append.data
            if len(self._held) >= self._record_bytes:
                yield Append(self._offset, memoryview(self._held))
                yield from rest

    def hold(self, append: Append, end_offset: int) -> None:
        """Keep what comes after `end_offset`, where the log ends now. Raises `RecordTooLong`."""
        self._offset = end_offset
        if end_offset == append.offset + len(append.data):
            # The fast way, as a report waits for this: most receives end where a record does.
            if self._held:
                self._held = bytearray()
            return
        self._held = bytearray(append.data[end_offset - append.offset :])
        self._record_bytes = BLANK.size
        if len(self._held) < BLANK.size:
            return
        self._record_bytes, magic = BLANK.unpack_from(self._held)
        # A blank is where a record of that length has no room.
        most = self._record_max_bytes + (END_FILE_MIN_BLANK_LENGTH if magic == BLANK_MAGIC else 0)
        if self._record_bytes > most:
            raise RecordTooLong(
                f"the record at offset {end_offset} has {self._record_bytes} bytes, a slave takes at most {most}"
            )
