"""What a check of a store directory says: findings, and how much was looked at."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import attrs

from rmq_actors.settings.field_types import on_one_line

#: `error`: no crash explains it. `recoverable`: a crash leaves it, and the next start mends it. `note`: nothing wrong.
Severity = Literal["error", "recoverable", "note"]


#: How the text of a finding ends that no start takes, or none with a setting; how that of a file begins that cannot be
#: opened; and what is said of derived entries whose records the log should have.
REFUSED = "a start refuses it"
REFUSED_WITH_EXT = "a start with enableConsumeQueueExt refuses it"
CANNOT_BE_OPENED = "cannot be opened"
PAST_THE_LOG = "past the log's end"


class Finding(NamedTuple):
    """One thing that is not as it should be, or worth knowing.

    `offset`: in the commit log, a physical offset; in every other file, the position in the file.
    """

    path: str
    offset: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return on_one_line(f"{self.path}: offset {self.offset}: {self.severity}: {self.text}")

    @property
    def is_refused(self) -> bool:
        """Whether a start refuses what was found, whatever else there is."""
        return self.text.startswith(CANNOT_BE_OPENED) or self.text.endswith((REFUSED, REFUSED_WITH_EXT))

    @property
    def is_past_the_log(self) -> bool:
        """Whether it tells that the log has had more than it has now."""
        return PAST_THE_LOG in self.text


@attrs.define
class CheckSummary:
    """How much a check has looked at; grows while it runs. `entries`: of consume queues; `keys`: of the index."""

    files: int = 0
    records: int = 0
    log_bytes: int = 0
    queues: int = 0
    entries: int = 0
    keys: int = 0
    transactions: int = 0


#: Told of bytes of the log that were read, and how many there are.
Progress = Callable[[int, int], None]


@attrs.define(eq=False, repr=False)
class DamagedRanges:
    """Where the log cannot be read, in order: what refers to records there cannot be held against anybody."""

    _begins: list[int] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=list)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._begins, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._begins)

    def __contains__(self, offset: int) -> bool:
        at = bisect.bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, begin: int, end: int) -> None:
        """Add a range after all others."""
        self._begins.append(begin)
        self._ends.append(end)


@attrs.define(eq=False, repr=False)
class CheckContext:
    """What every part of a check goes by.

    `recover_from`: from this offset of the log on the next start dispatches again; None after an orderly stop, which
    leaves nothing to mend. `durable_to`: the log was durable up to there when the crash came; None if nothing says so.
    `queues_to`: the next start drops entries of records from there on, and makes them again; None: of no record.
    """

    recover_from: int | None = None
    durable_to: int | None = None
    queues_to: int | None = None
    damaged: DamagedRanges = attrs.field(factory=DamagedRanges)
    summary: CheckSummary = attrs.field(factory=CheckSummary)

    def severity_at(self, log_offset: int) -> Severity:
        """How bad it is that something is missing or wrong that belongs to the record at `log_offset`."""
        return "recoverable" if self.recover_from is not None and log_offset >= self.recover_from else "error"

    def severity_of_row(self, _: int) -> Severity:
        """How bad it is that a row of derived files is not whole: what is missing in it is found by itself."""
        return "error" if self.recover_from is None else "recoverable"

    def severity_of_damage(self, log_offset: int) -> Severity:
        """How bad a place is after which whole records stand.

        Pages reach the disk in any order, so a crash leaves such places where nothing was synced; elsewhere they rot.
        """
        return "recoverable" if self.durable_to is not None and log_offset >= self.durable_to else "error"
