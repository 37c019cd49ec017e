"""How far the delayed messages of each level are delivered: config/delayOffset.json (ScheduleMessageService's table).

An offset that the queue does not have would stop its level for ever (#1869): a broker that is going to deliver corrects
each into what its queue has (#7077: also what a master sent). A slave keeps its master's as they are: its own log may
lag behind them for now, and what it lowered it would deliver again.

An offset says that the messages before it are in the log once more, as delivered. Where the log does not have them,
they would be lost by it. So the table *rests on* the log before `rests_on`: it is written after the log is synced up to
there, and a slave takes it when its own log reaches there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.files.layout import DELAY_OFFSET_FILE
from rmq_actors.wire.fastjson import JsonValue, integer_keys, parse_fastjson, write_fastjson

_OFFSET_TABLE = "offsetTable"

_log = logging.getLogger(__name__)

#: The first and the next offset of a queue of SCHEDULE_TOPIC_XXXX, by its id: its level less one. (0, 0) without one.
QueueBounds = Callable[[int], tuple[int, int]]


def _decode(value: JsonValue) -> dict[int, int]:
    """The table by level. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError("the delay offsets are not a map")  # noqa: TRY004 - bad input, not a bad call
    table = {}
    for level, offset in integer_keys(value.get(_OFFSET_TABLE, {}), _OFFSET_TABLE).items():
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63 or level < 1:
            raise ValueError(f"{_OFFSET_TABLE}: level {level} has offset {offset!r}")
        table[level] = offset
    return table


@attrs.define(eq=False)
class DelayOffsets:
    """`offset_table`: the next queue offset to deliver, by level; only `delivered` moves them on."""

    offset_table: dict[int, int]
    _file: JsonFile
    #: What the file is known to hold.
    _persisted: dict[int, int] | None
    #: The end of the last delivered message in the log.
    rests_on: int = 0

    @classmethod
    def load(cls, disk: Disk) -> DelayOffsets:
        """Read the file. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, DELAY_OFFSET_FILE)
        loaded = file.load(_decode)
        table = loaded.value or {}
        return cls(table, file, None if loaded.source == "backup" else dict(table))

    def delivered(self, level: int, next_offset: int, log_offset: int) -> None:
        """The messages of a level before `next_offset` are delivered, the last one ends at `log_offset`."""
        self.offset_table[level] = next_offset
        self.rests_on = max(self.rests_on, log_offset)

    def correct(self, bounds: QueueBounds, log_end: int) -> None:
        """Move each offset into what its queue has (correctDelayOffset). The log has all that is delivered."""
        self.rests_on = log_end if self.offset_table else 0
        for level, offset in self.offset_table.items():
            first, after = bounds(level - 1)
            corrected = min(max(offset, first), after)
            if corrected != offset:
                _log.warning(
                    "delay level %d: offset %d is corrected to %d, its queue has %d to %d",
                    level, offset, corrected, first, after,
                )  # fmt: skip
                self.offset_table[level] = corrected

    def encode(self) -> bytes:
        """The table as a master sends it to a slave (GET_ALL_DELAY_OFFSET)."""
        return write_fastjson({_OFFSET_TABLE: self.offset_table})

    def replace(self, data: bytes, rests_on: int = 0) -> bool:
        """Take a master's table; whether it is another one. Raises `ValueError` with the table as it was."""
        value = parse_fastjson(data)
        if not isinstance(value, dict) or value.get(_OFFSET_TABLE) is None:
            raise ValueError(f"no {_OFFSET_TABLE} in {data[:100]!r}")
        before, self.offset_table = self.offset_table, _decode(value)
        self.rests_on = rests_on
        return self.offset_table != before

    async def persist(self, synced_to: Callable[[int], Awaitable[bool]]) -> bool:
        """Write the file if the table has changed; return when it is durable: whether it was written.

        `synced_to` makes the log durable up to an offset, or returns False: then nothing is written now. Raises
        `OSError`, and what `synced_to` raises.
        """
        table, rests_on = dict(self.offset_table), self.rests_on
        if table == self._persisted or not await synced_to(rests_on):
            return False
        self._persisted = None
        await self._file.persist({_OFFSET_TABLE: table})
        self._persisted = table
        return True
