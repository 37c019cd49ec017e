"""Reading a queue: the messages from an offset on that a filter lets pass (DefaultMessageStore.getMessage).

What 4.9 does, it does: statuses, where to go on, limits of a transfer, when a slave is the better place. Two things are
stricter. A record that a power cut could still take back is not given out (RocketMQ: #8239), and one that is not what
its queue's entry says is passed over, with a warning, instead of being sent.
"""

from __future__ import annotations

import enum
import logging
import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol

import attrs
import trio

from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.dispatch.consume_queue_ext import CqExtUnit
from rmq_actors.store.files.formats import BLANK_SIZE, CQ_STORE_UNIT_SIZE, QUEUE_ENTRY
from rmq_actors.store.store_stats import StoreStatsService

_log = logging.getLogger(__name__)

# totalSize and, after magic bodyCRC queueId flag queueOffset, physicalOffset.
_RECORD_HEAD = struct.Struct(">i24xq")
#: How many entries of a queue a call looks at, at least.
_SCAN_UNITS = 16_000 // CQ_STORE_UNIT_SIZE
#: And at most, whatever a caller asks for, unless more may be given: a filter may want none of them.
_SCAN_UNITS_MAX = 10_000
#: BrokerStatsManager.SIZE_PER_COUNT: a message counts once for each this many bytes of it, or part of them.
_SIZE_PER_COUNT_BYTES = 64 * 1024


class GetMessageStatus(enum.Enum):
    """How a read ended; RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadEnd(enum.Enum):
    """Why a read went no further; a limit by its name: `max_msg_nums` is the caller's, the others are settings."""

    QUEUE_END = "the queue has no more to be seen"
    MAX_MSG_NUMS = "max_msg_nums"
    BYTES_IN_MEMORY = "maxTransferBytesOnMessageInMemory"
    COUNT_IN_MEMORY = "maxTransferCountOnMessageInMemory"
    BYTES_IN_DISK = "maxTransferBytesOnMessageInDisk"
    COUNT_IN_DISK = "maxTransferCountOnMessageInDisk"
    FILTER_WORK = "what a filter may cost one read"
    #: So many as `max_msg_nums`, 800 at least, and of one file of the queue.
    ENTRIES_LOOKED_AT = "the entries of a queue that one read looks at"


class ReadableLog(Protocol):
    """What reads ask of the commit log. Offsets are bytes."""

    @property
    def min_offset(self) -> int:
        """The offset of the first byte."""
        ...

    @property
    def max_offset(self) -> int:
        """The offset after the last byte."""
        ...

    @property
    def file_size_bytes(self) -> int:
        """The size of each file."""
        ...

    def file_at(self, offset: int) -> tuple[memoryview, int]:
        """The bytes of the file that holds `offset`, and its first byte's offset. Raises `ValueError`."""
        ...


class MessageFilter(Protocol):
    """Which messages of a queue are wanted."""

    def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
        """Decide by the queue's entry; `tags_code` is None where it is not known."""
        ...

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Decide by the record, once the entry was let pass."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether it has done as much as one read may cost: the read ends with the record that was decided last."""
        ...


@attrs.frozen
class DefaultMessageFilter:
    """Lets pass whose tags have one of some hash codes: the consumer compares the tags themselves."""

    code_set: AbstractSet[int]

    def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
        """See `MessageFilter`."""
        return tags_code is None or tags_code in self.code_set

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """See `MessageFilter`."""
        return True

    @property
    def is_exhausted(self) -> bool:
        """See `MessageFilter`: it costs next to nothing."""
        return False


@attrs.frozen
class GetMessageResult:
    """What was read. `messages` are whole records, views of the log's files that stay readable.

    `next_begin_offset`: where the next read goes on. `fall_behind_bytes`: from the last record that was looked at to
    the log's end (diskFallRecorded); 0 if none was. `ended_by`: why there are not more; None if nothing was looked at,
    as `status` says.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[memoryview] = attrs.field(factory=list)
    buffer_total_size: int = 0
    suggest_pulling_from_slave: bool = False
    fall_behind_bytes: int = 0
    ended_by: ReadEnd | None = None

    @property
    def message_count(self) -> int:
        """How many messages were found."""
        return len(self.messages)

    @property
    def msg_count_4_commercial(self) -> int:
        """How many messages of 64 KiB they count for."""
        return sum(-(-len(message) // _SIZE_PER_COUNT_BYTES) for message in self.messages)


@attrs.define(eq=False, repr=False)
class MessageReads:
    """Reads of queues. `readable_to`: the offset after the last record that may be seen."""

    _config: MessageStoreConfig
    _commit_log: ReadableLog
    _find_consume_queue: Callable[[str, int], ConsumeQueue | None]
    _readable_to: Callable[[], int]
    _stats: StoreStatsService
    #: A record counts as in memory if it is no farther from the log's end than this.
    _in_memory_bytes: int
    #: Seconds of some clock that never goes back.
    _now: Callable[[], float]

    @classmethod
    def create(
        cls,
        config: MessageStoreConfig,
        commit_log: ReadableLog,
        find_consume_queue: Callable[[str, int], ConsumeQueue | None],
        readable_to: Callable[[], int],
        stats: StoreStatsService,
        physical_memory_bytes: int,
        now: Callable[[], float] = trio.current_time,
    ) -> MessageReads:
        """The reads of a store on a machine with so much memory."""
        in_memory_bytes = physical_memory_bytes * config.access_message_in_memory_max_ratio // 100
        return cls(config, commit_log, find_consume_queue, readable_to, stats, in_memory_bytes, now)

    def is_in_disk(self, offset: int) -> bool:
        """Whether a record is too far behind the log's end to be in memory still (checkInDiskByCommitOffset)."""
        return self._commit_log.max_offset - offset > self._in_memory_bytes

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None = None
    ) -> GetMessageResult:
        """Read up to `max_msg_nums` messages from `offset` on, one at least if one is there, whatever the limits.

        There are often fewer, as in RocketMQ: at most 32, and 256 KiB (maxTransferCountOnMessageInMemory,
        maxTransferBytesOnMessageInMemory), or 8 and 64 KiB if they are so far behind the log's end that they may be on
        the disk alone (...InDisk; accessMessageInMemoryMaxRatio). `ended_by` of the result says which limit it was, and
        `next_begin_offset` where to go on.
        """
        began = self._now()
        result = self._get_message(topic, queue_id, offset, max_msg_nums, message_filter)
        self._stats.got(len(result.messages), 1000 * (self._now() - began))
        return result

    def _get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        queue = self._find_consume_queue(topic, queue_id)
        if queue is None:
            return self._nothing(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0, 0)
        first, end = queue.min_offset_in_queue, queue.max_offset_in_queue
        if end == 0:
            return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, offset, 0, first, end)
        if offset < first:
            return self._nothing(GetMessageStatus.OFFSET_TOO_SMALL, offset, first, first, end)
        if offset == end:
            return self._nothing(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, offset, first, end)
        if offset > end:
            return self._nothing(GetMessageStatus.OFFSET_OVERFLOW_BADLY, offset, end, first, end)
        wanted = min(max_msg_nums, max(_SCAN_UNITS_MAX, self._config.max_transfer_count_on_message_in_memory))
        entries = queue.entries(offset, max(_SCAN_UNITS, wanted))
        if not entries:
            _log.warning("%s queue %d has %d to %d, but no entry %d", topic, queue_id, first, end, offset)
            return self._nothing(GetMessageStatus.OFFSET_FOUND_NULL, offset, queue.roll_next_file(offset), first, end)
        log_end = self._commit_log.max_offset
        scan = _Scan(self._config, self._commit_log, log_end, self._readable_to(), self._in_memory_bytes)
        scanned = scan.run(entries, queue, max_msg_nums, message_filter)
        if scanned == 0:
            # The entry is there, its record is not yet to be seen: as if the queue ended here.
            return self._nothing(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, offset, first, offset)
        fall_behind = log_end - scan.last_offset
        return GetMessageResult(
            scan.status,
            offset + scanned,
            first,
            end,
            scan.messages,
            scan.total_bytes,
            fall_behind > self._in_memory_bytes,
            fall_behind,
            scan.ended_by if scan.ended_by is not None else _end_of_entries(offset + scanned, end),
        )

    def _nothing(self, status: GetMessageStatus, asked: int, better: int, first: int, end: int) -> GetMessageResult:
        """No message: go on at `better`. A slave may be behind its master, and leaves the offset as it was."""
        corrects = self._config.broker_role is not BrokerRole.SLAVE or self._config.offset_check_in_slave
        return GetMessageResult(status, better if corrects else asked, first, end)


class _Scan:
    """One walk over entries of a queue. After it: what was found, and where the last entry looked at points."""

    def __init__(
        self, config: MessageStoreConfig, commit_log: ReadableLog, log_end: int, readable_to: int, in_memory_bytes: int
    ) -> None:
        self._config = config
        self._commit_log = commit_log
        self._log_end = log_end
        self._readable_to = readable_to
        #: Records before it are taken to be on the disk alone.
        self._in_memory_from = log_end - in_memory_bytes
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE
        self.messages: list[memoryview] = []
        self.total_bytes = 0
        self.last_offset = 0
        #: None: all entries that were given.
        self.ended_by: ReadEnd | None = None
        self._view, self._file_begin = memoryview(b""), 0

    def run(
        self, entries: memoryview, queue: ConsumeQueue, max_msg_nums: int, message_filter: MessageFilter | None
    ) -> int:
        """Fill `messages`; how many entries are done with."""
        readable_to, log_min, log_end = self._readable_to, self._commit_log.min_offset, self._log_end
        scanned = self._take_plain(entries, max_msg_nums, log_min) if message_filter is None else 0
        if scanned * QUEUE_ENTRY.size == len(entries):
            return scanned
        for offset, size, tags_code in QUEUE_ENTRY.iter_unpack(entries[scanned * QUEUE_ENTRY.size :]):
            is_blank = size == BLANK_SIZE
            if not is_blank:
                if readable_to < offset + size <= log_end:
                    self.ended_by = ReadEnd.QUEUE_END
                    break
                self.last_offset = offset
                if self.messages and (limit := self._limit(offset, size, max_msg_nums)) is not None:
                    self.ended_by = limit
                    break
            scanned += 1
            if message_filter is not None and not _is_wanted(message_filter, queue, tags_code):
                if offset >= log_min:
                    self._pass_over(GetMessageStatus.NO_MATCHED_MESSAGE)
            elif is_blank or offset < log_min:
                self._pass_over(GetMessageStatus.MESSAGE_WAS_REMOVING)
            else:
                self._take(offset, size, log_end, message_filter)
                if message_filter is not None and message_filter.is_exhausted:
                    self.ended_by = ReadEnd.FILTER_WORK
                    break
        return scanned

    def _take_plain(self, entries: memoryview, max_msg_nums: int, log_min: int) -> int:
        """Take the first entries, up to one that needs a second look: how many.

        Each is of a whole record in the same file, in memory, that may be seen, within all limits. What `run` does of
        the same entries is the same, at three times the cost; most pulls have no others.
        """
        log, config, unpack_head = self._commit_log, self._config, _RECORD_HEAD.unpack_from
        first_offset: int = QUEUE_ENTRY.unpack_from(entries)[0]
        seen_from, seen_to = max(log_min, self._in_memory_from), min(self._readable_to, self._log_end)
        if not seen_from <= first_offset < seen_to:
            return 0
        view, file_begin = log.file_at(first_offset)
        self._view, self._file_begin = view, file_begin
        seen_from, seen_to = max(seen_from, file_begin), min(seen_to, file_begin + len(view))
        bytes_max, total_bytes = config.max_transfer_bytes_on_message_in_memory, 0
        records, last_offset = list[memoryview](), 0
        count = min(max_msg_nums, config.max_transfer_count_on_message_in_memory)
        for offset, size, _ in QUEUE_ENTRY.iter_unpack(entries[: max(0, count) * QUEUE_ENTRY.size]):
            total_bytes += size
            if size < _RECORD_HEAD.size or offset < seen_from or offset + size > seen_to or total_bytes > bytes_max:
                total_bytes -= size
                break
            begin = offset - file_begin
            if unpack_head(view, begin) != (size, offset):
                total_bytes -= size
                break
            records.append(view[begin : begin + size])
            last_offset = offset
        if records:
            self.messages, self.total_bytes, self.last_offset = records, total_bytes, last_offset
            self.status = GetMessageStatus.FOUND
        return len(records)

    def _pass_over(self, status: GetMessageStatus) -> None:
        """Without a message the last entry says how the read ended."""
        if not self.messages:
            self.status = status

    def _take(self, offset: int, size: int, log_end: int, message_filter: MessageFilter | None) -> None:
        if not self._file_begin <= offset < self._file_begin + len(self._view) and offset < log_end:
            self._view, self._file_begin = self._commit_log.file_at(offset)
        begin = offset - self._file_begin
        record = self._view[begin : begin + size]
        if len(record) != size or size < _RECORD_HEAD.size or _RECORD_HEAD.unpack_from(record) != (size, offset):
            _log.warning("an entry of %d bytes at offset %d of the log: no such record is there", size, offset)
        elif message_filter is None or message_filter.is_matched_by_commit_log(record):
            self.messages.append(record)
            self.total_bytes += size
            self.status = GetMessageStatus.FOUND
        else:
            self._pass_over(GetMessageStatus.NO_MATCHED_MESSAGE)

    def _limit(self, offset: int, size: int, max_msg_nums: int) -> ReadEnd | None:
        """The limit that leaves no room for the next record (isTheBatchFull); None while there is room."""
        config, count = self._config, len(self.messages)
        if count >= max_msg_nums:
            return ReadEnd.MAX_MSG_NUMS
        if offset < self._in_memory_from:
            if self.total_bytes + size > config.max_transfer_bytes_on_message_in_disk:
                return ReadEnd.BYTES_IN_DISK
            return ReadEnd.COUNT_IN_DISK if count >= config.max_transfer_count_on_message_in_disk else None
        if self.total_bytes + size > config.max_transfer_bytes_on_message_in_memory:
            return ReadEnd.BYTES_IN_MEMORY
        return ReadEnd.COUNT_IN_MEMORY if count >= config.max_transfer_count_on_message_in_memory else None


def _end_of_entries(next_index: int, end: int) -> ReadEnd:
    return ReadEnd.QUEUE_END if next_index >= end else ReadEnd.ENTRIES_LOOKED_AT


def _is_wanted(message_filter: MessageFilter, queue: ConsumeQueue, tags_code: int) -> bool:
    if queue.ext is None or not queue.ext.is_ext_addr(tags_code):
        return message_filter.is_matched_by_consume_queue(tags_code, None)
    unit = queue.ext.get(tags_code)
    return message_filter.is_matched_by_consume_queue(unit.tags_code if unit is not None else None, unit)
