"""What a slave asks its master before it follows, driven by the commands of a transcript."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import trio

from rmq_actors.ha.log_comparison import LogComparison
from rmq_actors.protocols.divergence import Ahead, compare
from rmq_actors.store.read.log_records import LogRecords
from tests.worlds.log_pairs import FILE_BYTES, Log, Master, log_of


@attrs.define(eq=False)
class Comparison:
    """Two logs of small files, and this project's master."""

    slave: Log = attrs.field(factory=lambda: log_of([]))
    master: Log = attrs.field(factory=lambda: log_of([]))

    def set_records(self, who: str, *records: str) -> Iterator[str]:
        """`records slave|master NAME:SIZE ... [end=N] [deleted=N]`: a log, cut at N, without its first N files."""
        log = log_of([(int(size), name) for name, _, size in (each.partition(":") for each in records if ":" in each)])
        names = dict(zip(log.offsets, (each.partition(":")[0] for each in records), strict=False))
        for setting, _, value in (each.partition("=") for each in records if "=" in each):
            log = log.cut(int(value)) if setting == "end" else log.delete(int(value))
        if who == "slave":
            self.slave = log
        else:
            self.master = log
        text = ", ".join(f"{names[offset]} at {offset}" for offset in log.offsets)
        yield f"{who}: files of {FILE_BYTES}, log {log.min_offset}..{log.max_offset}: {text or 'no whole record'}"

    def compare(self) -> Iterator[str]:
        """`compare`: what a slave does on each new connection, before its first report."""
        asked = _Asked(self.slave, Master(self.master, "own"))
        comparison = LogComparison(asked, LogRecords(self.slave))
        found = trio.run(comparison.divergence, None)
        yield from asked.taken()
        if found is None:
            yield "slave: follows"
            return
        if isinstance(found, Ahead):
            yield f"slave: waits, slave_ahead: {found}"
            return
        yield f"slave: diverged: {found}"
        end = trio.run(comparison.common_end)
        yield from asked.taken()
        yield f"slave: halts; the logs agree {'nowhere that is known' if end is None else f'up to {end}'}"


@attrs.define(eq=False)
class _Asked:
    """Notes the questions and what their answers mean."""

    _slave: Log
    _master: Master
    _lines: list[str] = attrs.field(factory=list, init=False)

    async def record_at(self, offset: int) -> bytes | None:
        theirs = await self._master.record_at(offset)
        answer = compare(LogRecords(self._slave).at(offset), theirs)
        self._lines.append(f"slave: asks for {offset}: {answer.value}")
        return theirs

    def taken(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines
