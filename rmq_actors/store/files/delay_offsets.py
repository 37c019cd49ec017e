"""How far the delayed messages of each level are delivered: config/delayOffset.json (ScheduleMessageService's table).

An offset that the queue does not have would stop its level for ever (#1869): a broker that is going to deliver corrects
each into what its queue has (#7077: also what a master sent). A slave keeps its master's as they are: its own log may
lag behind them for now, and what it lowered it would deliver again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    """`offset_table`: the next queue offset to deliver, by level; who delivers writes it."""

    offset_table: dict[int, int]
    _file: JsonFile
    #: What the file is known to hold.
    _persisted: dict[int, int] | None

    @classmethod
    def load(cls, disk: Disk) -> DelayOffsets:
        """Read the file. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, DELAY_OFFSET_FILE)
        loaded = file.load(_decode)
        table = loaded.value or {}
        return cls(table, file, None if loaded.source == "backup" else dict(table))

    def correct(self, bounds: QueueBounds) -> None:
        """Move each offset into what its queue has (correctDelayOffset)."""
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

    def replace(self, data: bytes) -> bool:
        """Take a master's table; whether it is another one. Raises `ValueError` with the table as it was."""
        value = parse_fastjson(data)
        if not isinstance(value, dict) or value.get(_OFFSET_TABLE) is None:
            raise ValueError(f"no {_OFFSET_TABLE} in {data[:100]!r}")
        before, self.offset_table = self.offset_table, _decode(value)
        return self.offset_table != before

    async def persist(self) -> bool:
        """Write the file if the table has changed; return when it is durable: whether it was written.

        Raises `OSError`.
        """
        table = dict(self.offset_table)
        if table == self._persisted:
            return False
        self._persisted = None
        await self._file.persist({_OFFSET_TABLE: table})
        self._persisted = table
        return True
