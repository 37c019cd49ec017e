"""Checking consume queues against the log: entry k of a queue is the record whose queueOffset is k. Nothing is changed.

A queue is followed by a cursor while the log is read: what is kept of it is its list of files, one mapping, and a few
numbers, whatever its length. Mappings are bounded over all queues.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_consume_queue_ext import ConsumeQueueExtCheck
from rmq_actors.store.check.check_files import FileRow, open_mapped
from rmq_actors.store.check.finding import CANNOT_BE_OPENED, PAST_THE_LOG, REFUSED, CheckContext, Finding, Severity
from rmq_actors.store.dispatch.consume_queue import holds_record_between, parse_queue_offset
from rmq_actors.store.dispatch.consume_queues import parse_queue_id
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.files.layout import CONSUME_QUEUE_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError
from rmq_actors.store.files.topic_names import IllegalTopic, check_topic, is_lmq
from rmq_actors.wire.dispatch_request import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    SCHEDULE_TOPIC,
    DispatchRequest,
)

ENTRY = struct.Struct(">qiq")
_NO_ENTRY = bytes(ENTRY.size)
#: What stands before the first entry of a queue whose first file does not begin with it (fillPreBlank).
_PRE_BLANK = ENTRY.pack(0, 0x7FFFFFFF, 0)
_MAPPINGS_MAX = 4096
#: After every record.
_ANY_OFFSET = 1 << 62


@attrs.define(eq=False, repr=False)
class _MissingEntries:
    """Entries in a row that are not there: number `first` to `last`, of records from `log_offset` on."""

    first: int
    last: int
    log_offset: int
    severity: Severity


@attrs.define(eq=False, repr=False)
class QueueCursor:
    """One queue. `next_entry`: the number of the entry that the next record should have, None before the first one."""

    name: str
    row: FileRow
    next_entry: int | None = None
    records: int = 0
    first_record: int = 0
    missing: _MissingEntries | None = None
    view: memoryview = attrs.field(factory=lambda: memoryview(b""))
    #: The number of the first entry in `view`.
    view_first: int = 0

    @property
    def first_entry(self) -> int:
        """The number of the first entry that a file has room for."""
        return self.row.min_offset // ENTRY.size

    def place(self, number: int) -> tuple[str, int]:
        """The file and the position in it where an entry stands, or would."""
        return self.row.place(number * ENTRY.size) if self.row.files else (self.row.directory, 0)


@attrs.define(eq=False, repr=False)
class ConsumeQueuesCheck:
    """All queues below `consumequeue/`. `is_deleted` tells of a topic without files that it has not lost them."""

    _disk: Disk
    _context: CheckContext
    _log: FileRow
    _is_deleted: Callable[[str], bool]
    #: Which records have no entry, as their topic was deleted since.
    _deleted: DeletedTopics
    _ext: ConsumeQueueExtCheck
    _queues: dict[tuple[str, int], QueueCursor] = attrs.field(factory=dict, init=False)
    _mapped: dict[QueueCursor, None] = attrs.field(factory=dict, init=False)

    def load(self) -> Iterator[Finding]:
        """List the queues and their files."""
        for topic in self._disk.list(CONSUME_QUEUE_DIRECTORY):
            yield from _no_directory(self._disk, f"{CONSUME_QUEUE_DIRECTORY}/{topic}")
            for queue in self._disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic}"):
                directory = f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue}"
                if parse_queue_id(queue) is None:
                    yield Finding(directory, 0, "note", "not the number of a queue: nobody reads it")
                    continue
                findings: list[Finding] = []
                row = FileRow.load(
                    self._disk, directory, self._context.summary, findings, self._context.severity_of_row
                )
                yield from findings
                if not any(finding.is_refused for finding in findings):
                    begin = self._deleted.begin_of(topic, int(queue))
                    yield from _misfit(self._disk, row, begin, self._context.queues_to)
                if row.file_size_bytes % ENTRY.size:
                    text = f"a file of {row.file_size_bytes} bytes is not made of entries of {ENTRY.size}"
                    yield Finding(row.files[0].path, 0, "error", text)
                    row.files.clear()
                cursor = QueueCursor(f"{topic}-{int(queue)}", row)
                self._queues[topic, int(queue)] = cursor
                yield from self._ext.load(topic, int(queue))
                if row.files:
                    self._context.summary.queues += 1
                    cursor.next_entry = yield from self._skip_cleaned(cursor)
        yield from self._ext.load_lone(self._queues.keys())

    def _skip_cleaned(self, queue: QueueCursor) -> Generator[Finding, None, int]:
        """The number of the first entry whose record the log still has. Those before it can only be in order."""
        number, end_before = queue.first_entry, 0
        while (entry := self._entry(queue, number)) is not None and entry != _NO_ENTRY:
            # Blank entries stand also where a queue went on with a later number than its next.
            if entry != _PRE_BLANK:
                offset, size, _ = ENTRY.unpack(entry)
                if offset >= self._log.min_offset:
                    break
                if offset < end_before or size <= 0:
                    text = f"entry {number} of {queue.name} is of offset {offset}, size {size}; the one before it"
                    yield Finding(*queue.place(number), "error", f"{text} ends at {end_before}")
                end_before = offset + size
            number += 1
        return number

    def take(self, record: DispatchRequest) -> Iterable[Finding]:
        """Compare a record of the log with its entries: what is wrong."""
        findings: Iterable[Finding] = ()
        if PROPERTY_INNER_MULTI_DISPATCH in record.properties:
            return self._take_all(record)
        if record.takes_queue_offset and not self._deleted.hides(
            record.topic, record.queue_id, record.commit_log_offset
        ):
            queue = self._queues.get((record.topic, record.queue_id)) or self._add(record.topic, record.queue_id)
            number = record.consume_queue_offset
            at = (number - queue.view_first) * ENTRY.size
            if (
                number == queue.next_entry
                and at >= 0
                and queue.missing is None
                and queue.view[at : at + ENTRY.size]
                == ENTRY.pack(record.commit_log_offset, record.msg_size, record.tags_code)
            ):
                queue.next_entry = number + 1
                queue.records += 1
                self._context.summary.entries += 1
            else:
                findings = self._compare(queue, number, record)
        return findings

    def pass_over(self, record: DispatchRequest) -> None:
        """Know of a record that has no entry, as it is passed over: where one would stand is none, or a blank one."""
        number = record.consume_queue_offset
        queue = self._queues.get((record.topic, record.queue_id)) or self._add(record.topic, record.queue_id)
        if queue.next_entry is None or (
            number == queue.next_entry and self._entry(queue, number) in {None, _NO_ENTRY, _PRE_BLANK}
        ):
            queue.next_entry = number + 1

    def _take_all(self, record: DispatchRequest) -> Iterator[Finding]:
        """A record that names further queues, and its number in each (multi-dispatch)."""
        names = record.properties[PROPERTY_INNER_MULTI_DISPATCH].rstrip(",").split(",")
        numbers = record.properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").rstrip(",").split(",")
        yield from self.take(record._replace(properties={}))
        if not record.takes_queue_offset or len(names) != len(numbers):
            return
        entered = {(record.topic, record.queue_id)}
        for name, text in zip(names, numbers, strict=True):
            queue_id, number = record.queue_id, parse_queue_offset(text)
            if is_lmq(name) and (name, queue_id) not in self._queues:
                queue_id = 0
            if (name, queue_id) in entered:
                continue  # a queue that is named twice, or is the record's own, gets the record once
            entered.add((name, queue_id))
            # The property alone does not tell whether the broker had enableMultiDispatch.
            if (name, queue_id) in self._queues and number is not None:
                yield from self.take(
                    record._replace(topic=name, queue_id=queue_id, consume_queue_offset=number, properties={})
                )

    def _add(self, topic: str, queue_id: int) -> QueueCursor:
        """A queue that the log speaks of and that has no directory."""
        row = FileRow(f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}")
        queue = self._queues[topic, queue_id] = QueueCursor(f"{topic}-{queue_id}", row)
        return queue

    def _compare(self, queue: QueueCursor, number: int, record: DispatchRequest) -> Iterator[Finding]:
        is_first, queue.records = not queue.records, queue.records + 1
        if is_first:
            queue.first_record = record.commit_log_offset
            if queue.next_entry is None:
                # A log from its very beginning has the first record of each queue.
                queue.next_entry = number if self._log.min_offset else 0
            # What the log has counts: an entry that seemed to be of a cleaned record is wrong then.
            queue.next_entry = min(queue.next_entry, number)
        if number != queue.next_entry and not (yield from self._out_of_order(queue, number, record)):
            return
        queue.next_entry = number + 1
        yield from self._compare_entry(queue, number, record)

    def _out_of_order(self, queue: QueueCursor, number: int, record: DispatchRequest) -> Generator[Finding, None, bool]:
        """Whether the record stands for entry `number` all the same."""
        expected = queue.next_entry
        assert expected is not None
        place = self._log.place(record.commit_log_offset)[0], record.commit_log_offset
        what = f"queueOffset {number} of {queue.name}"
        if self._is_of(queue, expected, record):
            yield Finding(*place, "error", f"{what}, but entry {expected} of the queue is this record")
            queue.next_entry = expected + 1
            return False
        if number < expected:
            yield Finding(*place, "error", f"{what} comes again: {expected} is next")
            return False
        if not self._is_explained(queue, range(expected, number)):
            text = f"{what} where {expected} is next: the records between are not in the log"
            yield Finding(*place, "error", text)
        return not queue.row.files or number * ENTRY.size < queue.row.capacity_end

    def _is_of(self, queue: QueueCursor, number: int, record: DispatchRequest) -> bool:
        entry = self._entry(queue, number)
        return entry is not None and ENTRY.unpack(entry)[:2] == (record.commit_log_offset, record.msg_size)

    def _is_explained(self, queue: QueueCursor, numbers: range) -> bool:
        """Whether the records of these entries stood where the log cannot be read."""
        if not self._context.damaged:
            return False
        for number in numbers:
            entry = self._entry(queue, number)
            if entry is None:  # no file has room for these: there is nothing to compare with
                return True
            if entry != _NO_ENTRY and ENTRY.unpack(entry)[0] not in self._context.damaged:
                return False
        return True

    def _compare_entry(self, queue: QueueCursor, number: int, record: DispatchRequest) -> Iterator[Finding]:
        if not queue.row.files:
            return
        entry = self._entry(queue, number)
        severity = self._context.severity_at(record.commit_log_offset)
        if entry is None or entry == _NO_ENTRY:
            if queue.missing is not None and (queue.missing.last, queue.missing.severity) == (number - 1, severity):
                queue.missing.last = number
            else:
                yield from self._end_missing(queue)
                queue.missing = _MissingEntries(number, number, record.commit_log_offset, severity)
            return
        yield from self._end_missing(queue)
        self._context.summary.entries += 1
        offset, size, tags_code = ENTRY.unpack(entry)
        if (offset, size, tags_code) == (record.commit_log_offset, record.msg_size, record.tags_code):
            return
        if (offset, size) == (record.commit_log_offset, record.msg_size):
            if self._ext.is_address(tags_code, record):
                yield from self._ext.compare(tags_code, record)
                return
            text = f"has tags code {tags_code}, its record at {offset} has {record.tags_code}"
            if record.topic == SCHEDULE_TOPIC:
                text += " (with another messageDelayLevel it is another: see --message-delay-level)"
        elif offset == record.commit_log_offset:
            text = f"has size {size}, its record at {offset} has {record.msg_size}"
        else:
            text = f"is of offset {offset}, size {size}; its record stands at {record.commit_log_offset}"
        yield Finding(*queue.place(number), severity, f"entry {number} of {queue.name} {text}")

    @staticmethod
    def _end_missing(queue: QueueCursor) -> Iterator[Finding]:
        run, queue.missing = queue.missing, None
        if run is not None:
            which = f"entry {run.first}" if run.first == run.last else f"entries {run.first} to {run.last}"
            verb, of = ("is", "its record stands") if run.first == run.last else ("are", "the first's record stands")
            text = f"{which} of {queue.name} {verb} missing: {of} at {run.log_offset}"
            yield Finding(*queue.place(run.first), run.severity, text)

    def finish(self, log_end_offset: int) -> Iterator[Finding]:
        """What is left when the whole log was read: entries missing at the ends, and entries of no record."""
        for (topic, _), queue in self._queues.items():
            yield from self._end_missing(queue)
            if queue.row.files:
                yield from self._after_the_last(queue, log_end_offset)
            elif queue.records:
                yield self._without_files(topic, queue)

    def _without_files(self, topic: str, queue: QueueCursor) -> Finding:
        text = f"{queue.records} records of {queue.name} in the log, the first at {queue.first_record}, and "
        try:
            check_topic(topic)
        except IllegalTopic as error:
            return Finding(CONSUME_QUEUE_DIRECTORY, 0, "note", f"{text}no queue: {error}")
        if self._is_deleted(topic):
            return Finding(queue.row.directory, 0, "note", f"{text}no queue: the topic was deleted")
        directory, _, name = queue.row.directory.rpartition("/")
        if name in self._disk.list(directory) and any(_no_directory(self._disk, queue.row.directory)):
            return Finding(queue.row.directory, 0, "error", f"{text}no directory of their queue: {REFUSED}")
        severity = self._context.severity_at(queue.first_record)
        return Finding(queue.row.directory, 0, severity, f"{text}no file of their queue")

    def _after_the_last(self, queue: QueueCursor, log_end_offset: int) -> Iterator[Finding]:
        """Entries after that of the last record. All others were compared, or are of records cleaned long ago."""
        assert queue.next_entry is not None
        count, first = 0, Finding("", 0, "note", "")
        severity: Severity = "recoverable"
        for file in queue.row.files:
            if file.end_offset <= queue.next_entry * ENTRY.size:
                continue
            mapped_file = open_mapped(self._disk, file)
            begin = max(0, queue.next_entry * ENTRY.size - file.from_offset)
            # Rounded up: the end of an entry may be zeros.
            end = min(-(-mapped_file.used_bytes() // ENTRY.size) * ENTRY.size, mapped_file.size_bytes)
            # A file of another length, which is a finding of its own, may end within an entry.
            whole = max(0, end - begin) // ENTRY.size * ENTRY.size
            entries = ENTRY.iter_unpack(mapped_file.whole()[begin : begin + whole])
            mapped_file.file.close()
            for number, (offset, size, tags_code) in enumerate(entries, (file.from_offset + begin) // ENTRY.size):
                if not (offset or size or tags_code) or offset in self._context.damaged:
                    continue
                if not count:
                    text = f"the first, {number}, is of offset {offset}, size {size}"
                    text += f", {PAST_THE_LOG}" if offset >= log_end_offset else ""
                    first = Finding(*queue.place(number), "error", text)
                count += 1
                if self._context.severity_at(offset) == "error":
                    severity = "error"
        if count:
            text = f"{count} of {queue.name} after that of the last record: {first.text}"
            yield first._replace(severity=severity, text=("entry " if count == 1 else "entries ") + text)

    def _entry(self, queue: QueueCursor, number: int) -> bytes | None:
        """The bytes of an entry; None where no file has room for it. Maps its file, for the entries that follow."""
        at = (number - queue.view_first) * ENTRY.size
        if not 0 <= at < len(queue.view):
            file = queue.row.find(number * ENTRY.size)
            if file is None:
                return None
            mapped_file = open_mapped(self._disk, file)
            queue.view, queue.view_first = mapped_file.whole(), file.from_offset // ENTRY.size
            mapped_file.file.close()
            self._mapped.pop(queue, None)
            self._mapped[queue] = None
            if len(self._mapped) > _MAPPINGS_MAX:
                oldest = next(iter(self._mapped))
                del self._mapped[oldest]
                oldest.view = memoryview(b"")
            at = (number - queue.view_first) * ENTRY.size
        entry = bytes(queue.view[at : at + ENTRY.size])
        return entry if len(entry) == ENTRY.size else None


def _misfit(disk: Disk, row: FileRow, begin: int, queues_to: int | None) -> Iterator[Finding]:
    """Whether a start refuses the row: it drops files that do not fit if no entry in them should be there.

    Those should be of records from `begin` on, the point of the topic's deletion.
    """
    durable_to = _ANY_OFFSET if queues_to is None else queues_to
    queue = MappedFileQueue(disk, row.directory, row.file_size_bytes, "mappedFileSizeConsumeQueue")
    try:
        queue.load(read_only=True, holds_durable=lambda _, file: holds_record_between(file, begin, durable_to))
    except StoreLayoutError as error:
        yield Finding(row.directory, 0, "error", f"{error}: {REFUSED}")
    except OSError:
        pass  # a finding of its own
    finally:
        queue.close()


def _no_directory(disk: Disk, path: str) -> Iterator[Finding]:
    """What is wrong with what stands where the directory of a topic or a queue should."""
    try:
        disk.open(path, read_only=True).close()
    except IsADirectoryError:
        return
    except FileNotFoundError:
        yield Finding(path, 0, "error", f"a link that leads nowhere: {REFUSED}")
    except OSError as error:
        yield Finding(path, 0, "error", f"{CANNOT_BE_OPENED}: {error.strerror}")
    else:
        yield Finding(path, 0, "note", "a file where topics have directories: nobody reads it")
