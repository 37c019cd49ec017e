"""What a slave does with the part of a record that its master's bytes end with: it waits in memory for its rest.

A frame may end anywhere in a record, a slave's log only where one ends: a part of a record is nobody's promise, and a
master that comes next has another record there, or none. Where the last whole record of some bytes ends, who appends
them knows (`CommitLog.append_data`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from rmq_actors.protocols.ha_slave import Append, MasterRefused, joined
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, END_FILE_MIN_BLANK_LENGTH, RECORD_MAX_BYTES


class RecordTooLong(MasterRefused):
    """A record, or a file's blank end, that is longer than a slave keeps in memory."""

    reason = "record_too_long"


@attrs.define(eq=False)
class PartOfRecord:
    """The part of one connection: it goes with that. `held_bytes`: how long it is.

    The driver appends what `joined` yields, and tells `hold` before it asks for more where the log ends then.
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

    def joined(self, appends: Iterable[Append]) -> Iterator[Append]:
        """The same appends, neighbours in one file as one, what is held before them; nothing while that is a part.

        Raises what `appends` raises, once what came before has been yielded.
        """
        return joined(self._with_held(appends) if self._held else appends, self._file_size_bytes)

    def _with_held(self, appends: Iterable[Append]) -> Iterator[Append]:
        rest = iter(appends)
        # A long record comes in many frames: it is not put together again with each of them.
        for append in rest:
            self._held += append.data
            if len(self._held) >= self._record_bytes:
                yield Append(self._offset, memoryview(self._held))
                yield from rest

    def hold(self, append: Append, end_offset: int) -> None:
        """Keep what comes after `end_offset`, where the log ends now. Raises `RecordTooLong`."""
        self._offset = end_offset
        if end_offset == append.offset + len(append.data):
            # A report waits for this: most receives end where a record does.
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
