"""The extension of a consume queue: store time and filter bit map of each entry (ConsumeQueueExt).

With `enableConsumeQueueExt` an entry of the queue has the address of its unit here in place of its tags code. A unit is
`int16 size | int64 tags code | int64 store time | int16 length of the bit map | bit map`; after the last one of a file
that is full stands the int16 -1. RocketMQ calls it weakly reliable: here it is cut with its queue.
"""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

import attrs

from rmq_actors.store.files.formats import CQ_EXT_UNIT_HEAD
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue

_log = logging.getLogger(__name__)

MIN_EXT_UNIT_SIZE = CQ_EXT_UNIT_HEAD.size
MAX_EXT_UNIT_SIZE = 0x7FFF
_END_OF_FILE = struct.pack(">h", -1)
END_BLANK_DATA_LENGTH = 4
_LONG_MIN = -(1 << 63)
#: Addresses are at or below it: no hash code is, nor a time of delivery.
MAX_ADDR = -(1 << 31) - 1
MAX_REAL_OFFSET = MAX_ADDR - _LONG_MIN


class CqExtUnit(NamedTuple):
    """One unit. Times are in ms since the epoch."""

    tags_code: int
    msg_store_time_ms: int
    filter_bit_map: bytes

    @property
    def size(self) -> int:
        """Its length in the file, in bytes."""
        return MIN_EXT_UNIT_SIZE + len(self.filter_bit_map)


@attrs.define(eq=False, repr=False)
class ConsumeQueueExt:
    """The units of one queue."""

    queue: MappedFileQueue

    @property
    def has_files(self) -> bool:
        """Whether there is a file, opened or not."""
        return bool(self.queue.files or self.queue.disk.list(self.queue.directory))

    @staticmethod
    def is_ext_addr(address: int) -> bool:
        """Whether what stands in an entry is an address, not a tags code."""
        return address <= MAX_ADDR

    def recover(self, max_address: int | None) -> None:
        """Open the files; the unit at `max_address` is the last one that an entry names, and the last one kept.

        Raises `StoreLayoutError`, `OSError`.
        """
        self.queue.load(holds_durable=lambda offset, _: max_address is not None and offset <= max_address - _LONG_MIN)
        self.truncate_by_max_address(max_address)

    def put(self, unit: CqExtUnit) -> int | None:
        """Append a unit: its address; None if it is too large, or all addresses are used. Raises `OSError`."""
        size, queue = unit.size, self.queue
        if size > min(MAX_EXT_UNIT_SIZE, queue.file_size_bytes - END_BLANK_DATA_LENGTH):
            _log.warning("%s: an extension unit of %d bytes is too large", queue.directory, size)
            return None
        if queue.max_offset + size > MAX_REAL_OFFSET:
            _log.warning("%s: its addresses are used up", queue.directory)
            return None
        if queue.files and size > queue.files[-1].room_bytes - END_BLANK_DATA_LENGTH:
            room = queue.files[-1].room_bytes
            if room:
                queue.files[-1].append(_END_OF_FILE, advance=room)
        if not queue.files or not queue.files[-1].room_bytes:
            queue.add_file(queue.max_offset)
        offset = queue.max_offset
        bit_map = unit.filter_bit_map
        head = CQ_EXT_UNIT_HEAD.pack(size, unit.tags_code, unit.msg_store_time_ms, len(bit_map))
        queue.files[-1].append(head + bit_map)
        return offset + _LONG_MIN

    def get(self, address: int) -> CqExtUnit | None:
        """The unit at an address; None where none is."""
        if not self.is_ext_addr(address):
            return None
        offset = address - _LONG_MIN
        mapped_file = self.queue.find(offset)
        if mapped_file is None:
            return None
        view = mapped_file.whole()[offset - mapped_file.from_offset : mapped_file.wrote_position]
        if len(view) < MIN_EXT_UNIT_SIZE:
            return None
        size, tags_code, store_time_ms, bit_map_size = CQ_EXT_UNIT_HEAD.unpack_from(view)
        if not MIN_EXT_UNIT_SIZE <= size <= len(view) or size != MIN_EXT_UNIT_SIZE + max(0, bit_map_size):
            return None
        return CqExtUnit(tags_code, store_time_ms, bytes(view[MIN_EXT_UNIT_SIZE:size]))

    def truncate_by_max_address(self, max_address: int | None) -> None:
        """Make the unit at `max_address` the last one; without it, remove all. Raises `OSError`."""
        if max_address is None or self.queue.find(max_address - _LONG_MIN) is None:
            while self.queue.remove_last_file():
                pass
            if max_address is not None:
                # Its file is gone. An address is given once: what old entries name must not be another's unit.
                size = self.queue.file_size_bytes
                self.queue.add_file((max_address - _LONG_MIN) // size * size + size)
            return
        unit = self.get(max_address)
        if unit is None:
            _log.warning("%s: no unit at address %d", self.queue.directory, max_address)
        self.queue.truncate(max_address - _LONG_MIN + (MIN_EXT_UNIT_SIZE if unit is None else unit.size))

    def truncate_by_min_address(self, min_address: int) -> None:
        """Remove the oldest file if all of it is before `min_address`. Raises `OSError`."""
        if not self.is_ext_addr(min_address) or not self.queue.files:
            return
        if self.queue.files[0].from_offset + self.queue.file_size_bytes < min_address - _LONG_MIN:
            self.queue.remove_first_file()
