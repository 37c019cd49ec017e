"""Checking the units of consume-queue extension files that entries name. Nothing is changed."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_files import FileRow
from rmq_actors.store.check.finding import REFUSED_WITH_EXT, CheckContext, Finding
from rmq_actors.store.dispatch.consume_queue_ext import MAX_ADDR, MIN_EXT_UNIT_SIZE
from rmq_actors.store.dispatch.consume_queues import parse_queue_id
from rmq_actors.store.files.layout import CONSUME_QUEUE_EXT_DIRECTORY
from rmq_actors.wire.dispatch_request import DispatchRequest

# size tagsCode msgStoreTime length of the bit map
_UNIT = struct.Struct(">hqqh")
_LONG_MIN = -(1 << 63)


@attrs.define(eq=False, repr=False)
class ConsumeQueueExtCheck:
    """The files below `consumequeue_ext/`; one is mapped at a time for each queue."""

    _disk: Disk
    _context: CheckContext
    _rows: dict[tuple[str, int], FileRow] = attrs.field(factory=dict, init=False)
    _views: dict[tuple[str, int], tuple[int, memoryview]] = attrs.field(factory=dict, init=False)

    def load(self, topic: str, queue_id: int) -> list[Finding]:
        """List the files of a queue, if it has any; what is wrong with the row."""
        findings: list[Finding] = []
        directory = f"{CONSUME_QUEUE_EXT_DIRECTORY}/{topic}/{queue_id}"
        context = self._context
        row = FileRow.load(self._disk, directory, context.summary, findings, context.severity_of_row, REFUSED_WITH_EXT)
        if row.files:
            self._rows[topic, queue_id] = row
        return findings

    def load_lone(self, queues: Collection[tuple[str, int]]) -> Iterator[Finding]:
        """What is wrong with rows whose queue has no directory: a start removes them, if it can."""
        for topic in self._disk.list(CONSUME_QUEUE_EXT_DIRECTORY):
            for name in self._disk.list(f"{CONSUME_QUEUE_EXT_DIRECTORY}/{topic}"):
                queue_id = parse_queue_id(name)
                if queue_id is not None and (topic, queue_id) not in queues:
                    yield from self.load(topic, queue_id)

    def is_address(self, tags_code: int, record: DispatchRequest) -> bool:
        """Whether what stands in the entry of a record is the address of a unit."""
        return tags_code <= MAX_ADDR and (record.topic, record.queue_id) in self._rows

    def compare(self, address: int, record: DispatchRequest) -> Iterator[Finding]:
        """What is wrong with the unit of a record."""
        key, offset = (record.topic, record.queue_id), address - _LONG_MIN
        row = self._rows[key]
        severity = self._context.severity_at(record.commit_log_offset)
        place = row.place(offset)
        unit = self._unit(key, row, offset)
        if unit is None:
            text = f"no unit here for the record at {record.commit_log_offset}, whose entry names it"
            yield Finding(*place, severity, text)
        elif unit != (record.tags_code, record.store_timestamp_ms):
            text = f"tags code {unit[0]} and store time {unit[1]} are not those of the record at "
            yield Finding(*place, severity, f"{text}{record.commit_log_offset}")

    def _unit(self, key: tuple[str, int], row: FileRow, offset: int) -> tuple[int, int] | None:
        """Tags code and store time at an offset; None if no whole unit stands there."""
        file = row.find(offset)
        if file is None:
            return None
        begin, view = self._views.get(key, (-1, memoryview(b"")))
        if begin != file.from_offset:
            opened = self._disk.open(file.path, read_only=True)
            begin, view = self._views[key] = file.from_offset, opened.map()
            opened.close()
        position = offset - begin
        if position + MIN_EXT_UNIT_SIZE > len(view):
            return None
        size, tags_code, stored_ms, bit_map_size = _UNIT.unpack_from(view, position)
        if size != MIN_EXT_UNIT_SIZE + max(0, bit_map_size) or position + size > len(view):
            return None
        return tags_code, stored_ms
