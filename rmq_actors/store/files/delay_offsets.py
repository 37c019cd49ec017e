"""How far the delayed messages of each level are delivered: config/delayOffset.json (ScheduleMessageService's table).

An offset that the queue does not have would stop its level for ever (#1869): a broker that is going to deliver corrects
each into what its queue has (#7077: also what a master sent). A slave keeps its master's as they are: its own log may
lag behind them for now, and what it lowered it would deliver again.

An offset says that the messages before it are in the log once more, as delivered. Where the log does not have them,
they would be lost by it. So the table *rests on* the log before `rests_on`: it is written after the log is synced up to
there, and a slave takes it when its own log reaches there.

Where a log is cut before that, it lacks some of what counts as delivered, and other bytes will come in its place. So
the table is lowered first. The file remembers some earlier tables for that, each with what it rests on, in a key that
RocketMQ passes over. The latest one that rests on what is left takes the place of the table; without one, each level
begins again with what its queue has. Some messages come twice then, but none is lost.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.files.layout import DELAY_OFFSET_FILE
from rmq_actors.wire.fastjson import JsonValue, integer_keys, parse_fastjson, write_fastjson

_OFFSET_TABLE = "offsetTable"
#: Lists of numbers: what a table rests on, and its levels with their offsets in turn. The last one is of `offsetTable`.
_RESTS_ON = "restsOn"
#: How many tables are remembered. The older they are, the fewer are left: an early cut is rarer than a late one.
MARKS_MAX = 16

_log = logging.getLogger(__name__)

#: The first and the next offset of a queue of SCHEDULE_TOPIC_XXXX, by its id: its level less one. (0, 0) without one.
QueueBounds = Callable[[int], tuple[int, int]]


@attrs.frozen
class _Mark:
    """A table that was durable, and the end of its last delivered message in the log."""

    rests_on: int
    offset_table: dict[int, int]

    def encode(self) -> list[int]:
        return [self.rests_on, *itertools.chain.from_iterable(self.offset_table.items())]

    @classmethod
    def decode(cls, value: JsonValue) -> _Mark:
        """Raises `ValueError`."""
        if not isinstance(value, list) or len(value) % 2 == 0:
            raise ValueError(f"{_RESTS_ON}: {str(value)[:100]} is not an offset and pairs of levels and offsets")
        numbers = [_natural(number, _RESTS_ON) for number in value]
        return cls(numbers[0], dict(zip(numbers[1::2], numbers[2::2], strict=True)))


def _natural(value: JsonValue, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{where} has offset {value!r}")
    return value


def _decode(value: JsonValue) -> dict[int, int]:
    """The table by level. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError("the delay offsets are not a map")  # noqa: TRY004 - bad input, not a bad call
    table = {}
    for level, offset in integer_keys(value.get(_OFFSET_TABLE, {}), _OFFSET_TABLE).items():
        table[level] = _natural(offset, f"{_OFFSET_TABLE}: level {level}")
        if level < 1:
            raise ValueError(f"{_OFFSET_TABLE}: level {level} has offset {offset!r}")
    return table


def decode_delay_offsets(value: JsonValue) -> tuple[dict[int, int], list[_Mark]]:
    """The table, and the marks, of which the last one is of the table. Raises `ValueError`."""
    table, marks = _decode(value), value.get(_RESTS_ON, []) if isinstance(value, dict) else []
    if not isinstance(marks, list):
        raise ValueError(f"{_RESTS_ON} is not a list")  # noqa: TRY004 - bad input, not a bad call
    found = [_Mark.decode(mark) for mark in marks]
    return table, found if found and found[-1].offset_table == table else []


def _thinned(marks: list[_Mark]) -> list[_Mark]:
    """At most `MARKS_MAX` of them, in order: the first, the last, and fewer the farther they are from the last."""
    if len(marks) <= MARKS_MAX:
        return marks
    end = marks[-1].rests_on

    def gap_without(number: int) -> float:
        before = marks[number - 1].rests_on
        return (marks[number + 1].rests_on - before) / (end - before)

    dropped = min(range(1, len(marks) - 1), key=gap_without)
    return marks[:dropped] + marks[dropped + 1 :]


@attrs.define(eq=False, repr=False)
class DelayOffsets:
    """`offset_table`: the next queue offset to deliver, by level; only `delivered` moves them on."""

    offset_table: dict[int, int]
    _file: JsonFile
    #: What the file is known to hold.
    _persisted: dict[int, int] | None
    #: The end of the last delivered message in the log; None if that is not known, as RocketMQ does not say it.
    rests_on: int | None = 0
    #: What the file holds of earlier tables, and of its own, by what they rest on.
    _marks: list[_Mark] = attrs.field(factory=list)
    #: How often the log was cut: what was begun before that is not written after it.
    _cuts: int = attrs.field(default=0, init=False)
    _writing: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @classmethod
    def load(cls, disk: Disk) -> DelayOffsets:
        """Read the file. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, DELAY_OFFSET_FILE)
        loaded = file.load(decode_delay_offsets)
        table, marks = loaded.value or ({}, [])
        rests_on = marks[-1].rests_on if marks else None if table else 0
        return cls(table, file, None if loaded.source == "backup" else dict(table), rests_on, marks)

    def delivered(self, level: int, next_offset: int, log_offset: int) -> None:
        """The messages of a level before `next_offset` are delivered, the last one ends at `log_offset`."""
        self.offset_table[level] = next_offset
        if self.rests_on is not None:
            self.rests_on = max(self.rests_on, log_offset)

    def correct(self, bounds: QueueBounds, log_end: int) -> None:
        """Move each offset into what its queue has (correctDelayOffset).

        Where nobody has said what the table rests on, the log counts as having it all. Otherwise call `log_ends_at`
        before.
        """
        if self.rests_on is None:
            self.rests_on = log_end
        for level, offset in self.offset_table.items():
            first, after = bounds(level - 1)
            corrected = min(max(offset, first), after)
            if corrected != offset:
                _log.warning(
                    "delay level %d: offset %d is corrected to %d, its queue has %d to %d",
                    level, offset, corrected, first, after,
                )  # fmt: skip
                self.offset_table[level] = corrected

    async def log_ends_at(self, log_end: int) -> None:
        """A log was opened: it may have lost its end. Call it before other bytes come there. Raises `OSError`."""
        if self.rests_on is not None and log_end < self.rests_on:
            await self.cut_log(log_end)

    async def cut_log(self, log_end: int) -> None:
        """The log is going to be cut at `log_end`: count as delivered only what is before that, durably.

        Raises `OSError`: then do not cut, or call it again.
        """
        if self.rests_on is None or log_end < self.rests_on:
            self._lower(log_end)
        if not self._file_rests_before(log_end):
            self._cuts += 1
            self._marks = [mark for mark in self._marks if mark.rests_on <= log_end]
            await self._write(dict(self.offset_table), self.rests_on, self._cuts)

    def _lower(self, log_end: int) -> None:
        before, proven = self.offset_table, _Mark(0, {})
        for mark in self._marks:
            if mark.rests_on <= log_end:
                proven = mark
        self.offset_table = {level: min(offset, proven.offset_table.get(level, 0)) for level, offset in before.items()}
        if before:
            _log.warning(
                "the log ends at %d, but the delay offsets count what it had up to %s: they go back from %s to %s",
                log_end, "its end" if self.rests_on is None else self.rests_on, before, self.offset_table,
            )  # fmt: skip
        self.rests_on = proven.rests_on

    def _file_rests_before(self, log_end: int) -> bool:
        """Whether the file holds nothing that counts what a log has after `log_end`."""
        if self._persisted is None or self._writing.locked():
            return False
        if not self._persisted:
            return True
        last = self._marks[-1] if self._marks else None
        return last is not None and last.offset_table == self._persisted and last.rests_on <= log_end

    def encode(self) -> bytes:
        """The table as a master sends it to a slave (GET_ALL_DELAY_OFFSET)."""
        return write_fastjson({_OFFSET_TABLE: self.offset_table})

    def replace(self, data: bytes, rests_on: int | None = None) -> bool:
        """Take a master's table; whether it is another one. Raises `ValueError` with the table as it was.

        `rests_on`: as the master says it; RocketMQ's does not.
        """
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
        table, rests_on, cuts = dict(self.offset_table), self.rests_on, self._cuts
        if table == self._persisted or not await synced_to(rests_on or 0):
            return False
        return await self._write(table, rests_on, cuts)

    async def _write(self, table: dict[int, int], rests_on: int | None, cuts: int) -> bool:
        """Write a table with its mark, unless the log was cut since; whether it was written."""
        async with self._writing:
            if cuts != self._cuts:
                return False
            marks: list[_Mark] = []  # where it is not known what the table rests on, no mark can be the last one
            if rests_on is not None:
                marks = _thinned([*(mark for mark in self._marks if mark.rests_on < rests_on), _Mark(rests_on, table)])
            self._persisted = None
            earlier = {_RESTS_ON: [mark.encode() for mark in marks]} if marks else {}
            await self._file.persist({_OFFSET_TABLE: table, **earlier})
            if cuts == self._cuts:  # otherwise another one waits to write
                self._persisted, self._marks = table, marks
            return True
