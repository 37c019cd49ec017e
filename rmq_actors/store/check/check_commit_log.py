"""Checking a commit log: the row of its files, and every record in them. Nothing is changed.

The log is read once, file after file. What is kept of it is a pair of numbers for each damaged place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_files import FileRow, RowFile, open_mapped
from rmq_actors.store.check.finding import CheckContext, Finding, Progress
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.log.read_log import record_after, v2_as_v1, v2_record_size
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, DispatchRequest, read_dispatch_request
from rmq_actors.wire.record import BLANK, MAX_PROPERTIES_BYTES, RecordCheck, text_span

_PROGRESS_BYTES = 16 * 1024 * 1024


@attrs.define(eq=False, repr=False)
class _Kind:
    """Records of a kind that is worth a note: how many there are, and where the first stands."""

    text: str
    count: int = 0
    path: str = ""
    offset: int = 0

    def add(self, path: str, offset: int) -> None:
        """One more."""
        if not self.count:
            self.path, self.offset = path, offset
        self.count += 1

    def findings(self) -> Iterator[Finding]:
        """A note of the first one, if there is one."""
        if self.count:
            yield Finding(self.path, self.offset, "note", f"{self.text}; {self.count} in the log")


def _v2_kind() -> _Kind:
    return _Kind("a RocketMQ 5 record (magic 0xDAA320AB), which RocketMQ 4 cannot read")


def _passed_over_kind() -> _Kind:
    text = f"a record with more than {MAX_PROPERTIES_BYTES} bytes of properties"
    return _Kind(f"{text}, which no queue and no index has: RocketMQ cannot read them")


def _no_utf8_kind() -> _Kind:
    return _Kind("a record whose topic or properties are not UTF-8: U+FFFD is read instead, as RocketMQ does")


def _is_utf8(view: memoryview, position: int) -> bool:
    """Whether topic and properties of the record at `position` are."""
    try:
        for begin, end in text_span(view, position):
            str(view[begin:end], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


@attrs.define(eq=False, repr=False)
class CommitLogCheck:
    """One pass over a log. `end_offset`: after the last record (or blank) met so far."""

    _disk: Disk
    row: FileRow
    _context: CheckContext
    _progress: Progress | None
    _delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    end_offset: int = attrs.field(init=False)
    newest_store_timestamp_ms: int = attrs.field(default=0, init=False)
    #: How often a record was stored before the one before it, and the first such.
    _times_back: int = attrs.field(default=0, init=False)
    _first_back: Finding | None = attrs.field(default=None, init=False)
    _v2_records: _Kind = attrs.field(factory=_v2_kind, init=False)
    _passed_over: _Kind = attrs.field(factory=_passed_over_kind, init=False)
    _no_utf8: _Kind = attrs.field(factory=_no_utf8_kind, init=False)
    _last_store_timestamp_ms: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.end_offset = self.row.min_offset

    @classmethod
    def open(
        cls,
        disk: Disk,
        context: CheckContext,
        progress: Progress | None,
        delay_levels_ms: Sequence[int],
        findings: list[Finding],
    ) -> CommitLogCheck:
        """Look at the row of files; what is wrong with it goes to `findings`."""
        row = FileRow.load(disk, COMMIT_LOG_DIRECTORY, context.summary, findings, context.severity_of_damage)
        return cls(disk, row, context, progress, delay_levels_ms)

    def walk(self) -> Iterator[DispatchRequest | Finding]:
        """Every record of the log in order, and what is wrong, where it is met."""
        last_used = self._last_used_file()
        for file in self.row.files:
            for begin, end in self.row.gaps:
                if end == file.from_offset:
                    self._context.damaged.add(begin, end)
            if last_used is not None and file.from_offset <= last_used.from_offset:
                yield from self._walk_file(file, is_last=file is last_used)
            self._tell(file.end_offset)
        if self._first_back is not None:
            text = f"stored before the record before it; {self._times_back} such records in the log"
            yield self._first_back._replace(text=text)
        for kind in (self._v2_records, self._passed_over, self._no_utf8):
            yield from kind.findings()

    def _tell(self, offset: int) -> None:
        if self._progress is not None:
            self._progress(offset - self.row.min_offset, self.row.capacity_end - self.row.min_offset)

    def _last_used_file(self) -> RowFile | None:
        """The last file that holds anything: those after it were allocated ahead."""
        for file in reversed(self.row.files):
            try:
                mapped_file = open_mapped(self._disk, file)
            except OSError:
                return file
            used_bytes = mapped_file.used_bytes()
            mapped_file.file.close()
            if used_bytes:
                return file
        return None

    def _walk_file(self, file: RowFile, *, is_last: bool) -> Iterator[DispatchRequest | Finding]:
        try:
            mapped_file = open_mapped(self._disk, file)
        except OSError as error:
            yield Finding(file.path, file.from_offset, "error", f"cannot be read: {error.strerror}")
            self._damaged(file.from_offset, file.end_offset)
            return
        try:
            yield from self._records(mapped_file, is_last=is_last)
        finally:
            mapped_file.file.close()

    def _records(self, mapped_file: MappedFile, *, is_last: bool) -> Iterator[DispatchRequest | Finding]:
        view, begin, position = mapped_file.whole(), mapped_file.from_offset, 0
        summary, shown_to, levels = self._context.summary, 0, self._delay_levels_ms
        while position < len(view):
            found = read_dispatch_request(view, position, begin + position, delay_levels_ms=levels)
            if isinstance(found, DispatchRequest):
                if found.is_passed_over:
                    self._passed_over.add(mapped_file.file.path, begin + position)
                if not _is_utf8(view, position):
                    self._no_utf8.add(mapped_file.file.path, begin + position)
            elif found.what == "blank":
                yield from self._blank(mapped_file, position)
                return
            else:
                found = self._read_v2(mapped_file, position) or found
            if isinstance(found, DispatchRequest):
                position += found.msg_size
                self.end_offset = begin + position
                summary.records += 1
                summary.log_bytes += found.msg_size
                self._note_time(mapped_file.file.path, found)
                yield found
                if position - shown_to > _PROGRESS_BYTES:
                    shown_to = position
                    self._tell(begin + position)
                continue
            resumes_at = record_after(mapped_file, position)
            finding = self._unreadable(mapped_file, position, found, resumes_at, is_last=is_last)
            if finding is not None:
                yield finding
            if resumes_at is None:
                return
            position = resumes_at

    def _unreadable(
        self, mapped_file: MappedFile, position: int, check: RecordCheck, resumes_at: int | None, *, is_last: bool
    ) -> Finding | None:
        """What is wrong at `position`, where no record stands; None at the log's end, if only zeros follow."""
        path, offset = mapped_file.file.path, mapped_file.from_offset + position
        file_end = mapped_file.from_offset + mapped_file.size_bytes
        left_bytes = mapped_file.used_bytes() - position
        if resumes_at is not None:
            self._damaged(offset, mapped_file.from_offset + resumes_at)
            severity = self._context.severity_of_damage(offset)
            text = f"{check.reason}; the next record stands at {mapped_file.from_offset + resumes_at}"
            return Finding(path, offset, severity, text)
        if not is_last:
            self._damaged(offset, file_end)
            reason = check.reason if left_bytes > 0 else "zeros"
            text = f"{reason}; no record follows in this file, and no blank ends it, but later files hold records"
            return Finding(path, offset, self._context.severity_of_damage(offset), text)
        if left_bytes <= 0:
            return None
        text = f"{check.reason}; past the log's end stand {left_bytes} bytes that hold no whole record"
        return Finding(path, offset, self._context.severity_at(offset), text)

    def _damaged(self, begin: int, end: int) -> None:
        self._context.damaged.add(begin, end)
        self.end_offset = end

    def _blank(self, mapped_file: MappedFile, position: int) -> Iterator[Finding]:
        self.end_offset = mapped_file.from_offset + mapped_file.size_bytes
        left_bytes = mapped_file.used_bytes() - position - BLANK.size
        if left_bytes > 0:
            offset = mapped_file.from_offset + position + BLANK.size
            text = "bytes after the blank that ends the file are not zero; nobody reads them"
            yield Finding(mapped_file.file.path, offset, "note", text)

    def _read_v2(self, mapped_file: MappedFile, position: int) -> DispatchRequest | None:
        record = v2_as_v1(mapped_file.whole(), position)
        if record is None:
            return None
        offset = mapped_file.from_offset + position
        found = read_dispatch_request(record, 0, offset, delay_levels_ms=self._delay_levels_ms)
        if not isinstance(found, DispatchRequest):
            return None
        self._v2_records.add(mapped_file.file.path, offset)
        return found._replace(msg_size=v2_record_size(mapped_file.whole(), position))

    def _note_time(self, path: str, record: DispatchRequest) -> None:
        stored_ms = record.store_timestamp_ms
        if stored_ms < self._last_store_timestamp_ms:
            self._times_back += 1
            if self._first_back is None:
                self._first_back = Finding(path, record.commit_log_offset, "note", "")
        elif stored_ms > self.newest_store_timestamp_ms:
            self.newest_store_timestamp_ms = stored_ms
        self._last_store_timestamp_ms = stored_ms
