"""Checking the index of open transactions against the log: tranRedoLog and tranStateTable. Nothing is changed.

Both stand in the log's order, and are read beside it. Memory: one number for each open transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_files import FileRow, open_mapped
from rmq_actors.store.check.finding import PAST_THE_LOG, REFUSED, CheckContext, Finding, Severity
from rmq_actors.store.dispatch.transaction_state_service import (
    ENDS_SEVERAL_TAGS_CODE,
    PREPARED_MESSAGE_TAGS_CODE,
    TRANSACTION_REDOLOG_TOPIC,
)
from rmq_actors.store.files.layout import TRAN_REDO_LOG_DIRECTORY, TRAN_STATE_TABLE_DIRECTORY
from rmq_actors.wire.dispatch_request import HALF_TOPIC, DispatchRequest
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE

# Both begin with a log offset and a size; then come the tags code, or store time, group hash and state.
_REDO_UNIT = struct.Struct(">qiq")
_TABLE_ENTRY = struct.Struct(">qiiii")
_STATES = {TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE}
_ENDS_AT_OFFSET = 0


class _Entry(NamedTuple):
    place: tuple[str, int]
    number: int
    offset: int
    size: int
    rest: tuple[int, ...]


@attrs.define(eq=False, repr=False)
class _Row:
    """One of the two, followed beside the log."""

    name: str
    disk: Disk
    row: FileRow
    layout: struct.Struct
    next: _Entry | None = None
    entries: Iterator[_Entry] = attrs.field(default=iter(()))

    def start(self) -> None:
        self.entries = self._read()
        self.advance()

    def advance(self) -> None:
        self.next = next(self.entries, None)

    def _read(self) -> Iterator[_Entry]:
        size = self.layout.size
        for file in self.row.files:
            mapped_file = open_mapped(self.disk, file)
            used = -(-mapped_file.used_bytes() // size) * size
            view = mapped_file.whole()[: min(used, file.size_bytes // size * size)]
            mapped_file.file.close()
            first = file.from_offset // size
            for number, (offset, record_size, *rest) in enumerate(self.layout.iter_unpack(view), first):
                place = file.path, number * size - file.from_offset
                yield _Entry(place, number, offset, record_size, tuple(rest))


@attrs.define(eq=False, repr=False)
class TransactionsCheck:
    """The two rows below `transaction/`; nothing to check, if there are none."""

    _context: CheckContext
    _log_min_offset: int
    _redo_log: _Row
    _table: _Row
    #: The offset of the first message in tranRedoLog.
    _begin_offset: int | None
    #: Prepared messages without an end, by tranRedoLog; and by tranStateTable, with the entry.
    _open: dict[int, None] = attrs.field(factory=dict, init=False)
    _prepared: dict[int, _Entry] = attrs.field(factory=dict, init=False)
    #: An op message of RocketMQ 5 ends several at once, and only its body names them.
    _ends_unknown: bool = attrs.field(default=False, init=False)

    @classmethod
    def load(cls, disk: Disk, context: CheckContext, log_min_offset: int, findings: list[Finding]) -> TransactionsCheck:
        """List the files; what is wrong with the rows goes to `findings`."""
        redo = f"{TRAN_REDO_LOG_DIRECTORY}/{TRANSACTION_REDOLOG_TOPIC}/0"
        rows = [
            _Row(
                name,
                disk,
                FileRow.load(disk, path, context.summary, findings, context.severity_of_row, strange),
                layout,
            )
            for name, path, layout, strange in (
                ("tranRedoLog", redo, _REDO_UNIT, REFUSED),
                ("tranStateTable", TRAN_STATE_TABLE_DIRECTORY, _TABLE_ENTRY, "a start makes the table again"),
            )
        ]
        redo_log, table = rows
        redo_log.start()
        table.start()
        begin_offset = None if redo_log.next is None else redo_log.next.offset
        return cls(context, log_min_offset, redo_log, table, begin_offset)

    @property
    def has_files(self) -> bool:
        """Whether there is anything to check."""
        return bool(self._redo_log.row.files or self._table.row.files)

    def take(self, record: DispatchRequest) -> Iterator[Finding]:
        """Compare a record of the log with what stands of it in both."""
        offset = record.commit_log_offset
        yield from self._strays(self._redo_log, offset)
        yield from self._strays(self._table, offset)
        severity = self._context.severity_at(offset)
        entry = self._redo_log.next
        if entry is not None and entry.offset == offset:
            yield from self._compare(self._redo_log, entry, record, severity)
            self._follow(entry)
            self._redo_log.advance()
        elif self._begin_offset is not None and offset >= self._begin_offset and _begins_transaction(record):
            text = f"no entry for the prepared message at {offset}"
            yield Finding(*self._redo_log.row.place(0), severity, text)
        entry = self._table.next
        if entry is not None and entry.offset == offset:
            yield from self._compare(self._table, entry, record, self._severity_of_table())
            stored_s, _, state = entry.rest
            if stored_s != _int32(record.store_timestamp_ms // 1000):
                yield self._finding(self._table, entry, f"has store time {stored_s} s, not its message's")
            if state not in _STATES:
                yield self._finding(self._table, entry, f"has state {state}, which is none")
            if state == TRANSACTION_PREPARED_TYPE:
                self._prepared[offset] = entry
            self._context.summary.transactions += 1
            self._table.advance()

    def _severity_of_table(self) -> Severity:
        """After a crash the table is made again from tranRedoLog."""
        return "error" if self._context.recover_from is None else "recoverable"

    def _finding(self, row: _Row, entry: _Entry, text: str, severity: Severity | None = None) -> Finding:
        return Finding(
            *entry.place, severity or self._severity_of_table(), f"entry {entry.number} of {row.name} {text}"
        )

    def _compare(self, row: _Row, entry: _Entry, record: DispatchRequest, severity: Severity) -> Iterator[Finding]:
        if entry.size != record.msg_size:
            text = f"has size {entry.size}, its message at {entry.offset} has {record.msg_size}"
            yield self._finding(row, entry, text, severity)

    def _follow(self, entry: _Entry) -> None:
        code = entry.rest[0]
        if code == ENDS_SEVERAL_TAGS_CODE:
            self._ends_unknown = True
        elif code >= _ENDS_AT_OFFSET:
            self._open.pop(code, None)
        else:
            if code < PREPARED_MESSAGE_TAGS_CODE:
                self._open.pop(PREPARED_MESSAGE_TAGS_CODE - 1 - code, None)
            self._open[entry.offset] = None

    def _strays(self, row: _Row, offset: int) -> Iterator[Finding]:
        """Entries of offsets before `offset` where no record began."""
        while row.next is not None and row.next.offset < offset:
            entry = row.next
            if entry.offset in self._context.damaged or 0 <= entry.offset < self._log_min_offset:
                if row is self._redo_log:
                    self._follow(entry)
            else:
                severity = self._severity_of_table() if row is self._table else self._context.severity_at(entry.offset)
                yield self._finding(row, entry, f"is of offset {entry.offset}, where no record begins", severity)
            row.advance()

    def finish(self) -> Iterator[Finding]:
        """What is left when the whole log was read: entries past its end, and whether both agree on what is open."""
        for row in (self._redo_log, self._table):
            while row.next is not None:
                entry = row.next
                severity = self._severity_of_table() if row is self._table else self._context.severity_at(entry.offset)
                text = f"is of offset {entry.offset}: out of order, or {PAST_THE_LOG}"
                yield self._finding(row, entry, text, severity)
                row.advance()
        if self._ends_unknown:
            return
        for offset, entry in self._prepared.items():
            if offset not in self._open:
                yield self._finding(self._table, entry, f"is prepared, but the transaction at {offset} has ended")
        for offset in self._open:
            if offset >= self._log_min_offset and offset not in self._prepared and offset not in self._context.damaged:
                text = f"no prepared entry for the open transaction at {offset}"
                yield Finding(*self._table.row.place(0), self._severity_of_table(), text)


def _begins_transaction(record: DispatchRequest) -> bool:
    kind = record.sys_flag & TRANSACTION_ROLLBACK_TYPE
    return record.topic == HALF_TOPIC or kind == TRANSACTION_PREPARED_TYPE


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
