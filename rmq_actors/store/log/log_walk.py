"""A walk over the log's records to its end: the first place where no whole record stands.

After a crash a torn tail is expected. After an orderly stop nothing can be torn: a bad record with good ones after it
is damage then, and the walk refuses to end there, where RocketMQ deletes all that follows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from rmq_actors.ports.disk import SECTOR_BYTES
from rmq_actors.store.files.mapped_file import MappedFile
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.log.passed_over import PassedOver
from rmq_actors.store.log.read_log import MESSAGE_MAGIC_V2, next_record, record_after, v2_as_v1
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, DispatchRequest, read_dispatch_request
from rmq_actors.wire.record import check_record, text_span

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

#: How many records are dispatched at once, and between two checkpoints of the event loop.
BATCH_RECORDS = 512
#: Records are read as columns where at least this many wait. The first time it must be many: that starts numpy, which
#: takes as long as dispatching thousands.
COLUMNS_RECORDS_FIRST = 4096
COLUMNS_RECORDS_MIN = 64
COLUMNS_RECORDS_MAX = 4096


class DamagedLog(ValueError):
    """A record in the middle of the log is not valid, or files at its end are missing. Nothing was changed."""


@attrs.frozen
class LogEnd:
    """Where the walk ended and why; `cut_bytes` non-zero bytes follow; `survivor`: a whole record among them."""

    end_offset: int
    reason: str = ""
    cut_bytes: int = 0
    survivor: int | None = None


@attrs.define(eq=False, repr=False)
class LogWalk:
    """A walk over the records of a log from `offset` on, a batch at a time; `end` is set when there are no more."""

    _queue: MappedFileQueue
    offset: int
    #: Records before this one are trusted: their checksums are not computed.
    _trusted_to: int
    _after_crash: bool
    _delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    _check_crc: bool = True
    #: Records from here on are not looked at: it is the end of one.
    _limit: int = sys.maxsize
    passed_over: PassedOver = attrs.field(factory=PassedOver)
    end: LogEnd | None = attrs.field(default=None, init=False)
    #: The last record met, before the torn one if there is one.
    last: DispatchRequest | None = attrs.field(default=None, init=False)
    _singles: int = attrs.field(default=0, init=False)

    @property
    def found_end(self) -> LogEnd:
        """The end, once `batches` has given all."""
        assert self.end is not None
        return self.end

    def batches(self) -> Iterator[list[DispatchRequest]]:
        """Every record, in order, in batches of one file each, but for what `next_columns` gives in between."""
        while self.end is None:
            mapped_file = self._queue.find(self.offset)
            if mapped_file is None or self.offset >= self._limit:
                self.end = LogEnd(self.offset)
                return
            yield from self._walk_file(mapped_file)

    def next_columns(self) -> DispatchBatch | None:
        """What comes next, as columns: between two of `batches`, which go on after it. None where those must look.

        That is in a short log, at whatever is no common record, and at a text that may be torn.
        """
        mapped_file = self._queue.find(self.offset)
        is_trusted = self.offset < self._trusted_to
        if (
            mapped_file is None
            or self.offset >= self._limit
            or self._singles < COLUMNS_RECORDS_FIRST
            or not (is_trusted or self._check_crc)
        ):
            return None
        # It imports numpy: a store that has little to recover does without.
        from rmq_actors.wire.dispatch_batch import read_dispatch_batch  # noqa: PLC0415

        view, begin = mapped_file.whole(), mapped_file.from_offset
        found = read_dispatch_batch(
            view,
            self.offset - begin,
            self.offset,
            min(len(view), (self._trusted_to if is_trusted else self._limit) - begin),
            COLUMNS_RECORDS_MAX,
            delay_levels_ms=self._delay_levels_ms,
            check_crc=not is_trusted,
            min_records=COLUMNS_RECORDS_MIN,
        )
        if found is not None:
            self.last, self.offset = found.last, found.last.end_offset
        return found

    def _walk_file(self, mapped_file: MappedFile) -> Iterator[list[DispatchRequest]]:
        view, begin, batch = mapped_file.whole(), mapped_file.from_offset, list[DispatchRequest]()
        while self.offset - begin < len(view) and self.offset < self._limit:
            found = read_dispatch_request(
                view,
                self.offset - begin,
                self.offset,
                check_crc=self._check_crc and self.offset >= self._trusted_to,
                delay_levels_ms=self._delay_levels_ms,
            )
            if not isinstance(found, DispatchRequest):
                if found.what == "blank":
                    self.offset += found.size
                    break
                yield batch
                self.end = self._end(mapped_file, found.reason)
                return
            if self.offset >= self._trusted_to and self._is_torn(view, begin, found):
                yield batch
                self.end = self._end(mapped_file, "a part of its topic or properties is missing")
                return
            self.last = found
            self.offset += found.msg_size
            self._singles += 1
            batch.append(found)
            if len(batch) >= BATCH_RECORDS:
                yield batch
                batch = []
        yield batch

    @staticmethod
    def _is_torn(view: memoryview, begin: int, found: DispatchRequest) -> bool:
        """Whether bytes of the record's text are missing: a sector of it, or, if nothing follows, its end."""
        position, record_end = found.commit_log_offset - begin, found.end_offset - begin
        topic, properties = text_span(view, position)
        if 0 not in bytes(view[properties[0] : record_end]) and "\0" not in found.topic:
            return False
        if _lacks_a_sector(view, *topic) or _lacks_a_sector(view, *properties):
            return True
        text_end = properties[1] if properties[1] > properties[0] else topic[1]
        return view[text_end - 1] == 0 and check_record(view, record_end, found.end_offset).what == "invalid"

    def _end(self, mapped_file: MappedFile, reason: str) -> LogEnd:
        """The log ends at `self.offset`, in `mapped_file`. Raises `DamagedLog` where that cannot be a torn tail."""
        if self.offset < self._trusted_to:
            raise DamagedLog(
                f"{mapped_file.file.path}: no valid record at offset {self.offset} ({reason}), but the log is known to "
                f"be valid to {self._trusted_to}"
            )
        v2 = v2_as_v1(mapped_file.whole(), self.offset - mapped_file.from_offset)
        if v2 is not None and check_record(v2, 0, self.offset).what == "message":
            raise DamagedLog(
                f"{mapped_file.file.path}: at offset {self.offset} is a RocketMQ 5 record "
                f"(magic 0x{MESSAGE_MAGIC_V2:X}), which this store cannot read"
            )
        cut_bytes, survivor = 0, None
        for later in self._queue.files[self._queue.files.index(mapped_file) :]:
            begin = max(0, self.offset - later.from_offset)
            cut_bytes += max(0, later.used_bytes() - begin)
            if survivor is None:
                found = record_after(later, begin) if later is mapped_file else next_record(later, begin)
                survivor = None if found is None else later.from_offset + found
        if survivor is not None and not self._after_crash:
            raise DamagedLog(
                f"{mapped_file.file.path}: no valid record at offset {self.offset} ({reason}), "
                f"but one follows at offset {survivor}: the log is damaged in its middle"
            )
        return LogEnd(self.offset, reason if cut_bytes else "", cut_bytes, survivor)


def _lacks_a_sector(view: memoryview, begin: int, end: int) -> bool:
    """Whether a sector's share of this text is all zeros: no checksum covers topic and properties.

    What was never written reads as zeros, sector by sector; a NUL in a property does not fill its sector's share.
    """
    data = bytes(view[begin:end])
    if 0 not in data:
        return False
    for sector in range(begin - begin % SECTOR_BYTES, end, SECTOR_BYTES):
        share = data[max(0, sector - begin) : sector + SECTOR_BYTES - begin]
        if share.count(0) == len(share):
            return True
    return False
