"""Removing what is old, or in the way (CleanCommitLogService, CleanConsumeQueueService).

The log loses whole files, the oldest first, and never the last: at the hours of deleteWhen, when the disk fills up, or
by hand. A file is expired fileReservedTime after its last record was stored. (4.9 goes by when the file was last
modified, which a copy or a slave's catching up sets again: #1948, #4549.) Queues and index follow the log's beginning.

Each removal is durable before the next: a power cut leaves a log without a gap. Views of a removed file stay readable,
and its space is free when the last of them is gone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel
from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.actors.services.timer import Timer
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.store.config import MessageStoreConfig, parse_hours
from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.read.queue_offsets import NO_TIME, store_timestamp_at
from rmq_actors.store.running_flags import RunningFlag, RunningFlags
from rmq_actors.tracing.events.store import LogDelete, QueueDelete, StoreDiskFull
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, MAGIC_BYTES, check_record

_log = logging.getLogger(__name__)

LOG_MIN = BroadcastChannel[int].declare(
    "store.log_min",
    carries="the offset of the log's first byte: what is before it was removed",
    sender="CleanCommitLogService",
    receiver="CleanConsumeQueueService",
)

FIRST_ROUND_AFTER_S = 60.0
#: Files that one round removes, but for want of space.
DELETE_FILES_BATCH_MAX = 10
MAX_MANUAL_DELETE_FILE_TIMES = 20
_HOUR_MS = 3_600_000
_CHUNK_BYTES = 64 * 1024


@attrs.frozen
class CleaningDecision:
    """What a round may remove. `disk_full`: whether puts must be refused; None where that is not known.

    `reason` is empty if nothing is to be removed. `delete_any`: without regard to age, for want of space.
    """

    reason: str
    delete_any: bool
    disk_full: bool | None


def used_percent(used_bytes: int, available_bytes: int) -> int:
    """How full a disk is, rounded up, of what its user may fill."""
    return -(-used_bytes * 100 // max(1, used_bytes + available_bytes))


def decide(config: MessageStoreConfig, percent: int | None, local_hour: int, *, manual: bool) -> CleaningDecision:
    """What to do on a disk that is used so far, at this hour of the node's day. `manual`: somebody has asked."""
    if percent is None:
        # As 4.9: what cannot be measured may be short.
        reason, delete_any, disk_full = "disk usage unknown", False, None
    else:
        reason = f"disk used {percent} %" if percent > config.disk_max_used_space_ratio else ""
        delete_any = config.clean_file_forcibly_enable and percent > config.disk_space_clean_forcibly_ratio
        disk_full = percent > config.disk_space_warning_level_ratio
    if manual and not reason:
        reason = "by hand"
    if local_hour in parse_hours(config.delete_when) and not reason:
        reason = "deleteWhen"
    return CleaningDecision(reason, delete_any, disk_full)


def last_store_timestamp(view: memoryview, begin: int) -> int:
    """When the last record of a full file of the log was stored, in ms; `NO_TIME` if none is found.

    Sought from the end: the last record has the file's blank, or its end, right after it.
    """
    end = len(view)
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        chunk = bytes(view[start : min(len(view), end + len(MAGIC_BYTES) - 1)])
        at = chunk.rfind(MAGIC_BYTES)
        while at >= 0:
            position = start + at - 4
            if position >= 0 and _is_last_record(view, position, begin):
                return store_timestamp_at(view, position)
            at = chunk.rfind(MAGIC_BYTES, 0, at + len(MAGIC_BYTES) - 1)
        end = start
    return NO_TIME


def _is_last_record(view: memoryview, position: int, begin: int) -> bool:
    check = check_record(view, position, begin + position, check_crc=False)
    end = position + check.size
    if check.what != "message" or end == len(view):
        return check.what == "message"
    return end + BLANK.size <= len(view) and BLANK.unpack_from(view, end) == (len(view) - end, BLANK_MAGIC)


@attrs.define(eq=False, repr=False)
class CleanCommitLogService(ServiceThread):
    """Looks every cleanResourceInterval, first after a minute. `needed_from`: where the next start begins to read."""

    name = "CleanCommitLogService"
    _config: MessageStoreConfig
    _commit_log: CommitLog
    _disk: Disk
    _wall_clock: WallClock
    _flags: RunningFlags
    _needed_from: Callable[[], int]
    _log_min: Broadcast[int]
    _tracer: Tracer
    _timer: Timer
    #: How many of the rounds that somebody has asked for are still to come.
    manual_delete_file_several_times: int = attrs.field(default=0, init=False)
    #: A name that could not be synced: the next removal might survive a power cut that this one does not.
    failed: bool = attrs.field(default=False, init=False)
    #: The oldest file's first offset, and when its last record was stored.
    _oldest: tuple[int, int] = attrs.field(default=(-1, NO_TIME), init=False)
    #: That something is to be removed, and whether somebody has asked for that; None while nothing is.
    _found: tuple[CleaningDecision, bool] | None = attrs.field(default=None, init=False)
    _has_found: WakeUp = attrs.field(factory=WakeUp, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Look when it is time, and remove what was found."""
        interval_s = self._config.clean_resource_interval_ms / 1000
        with self._timer.every(interval_s, self._look, self, first_after_s=FIRST_ROUND_AFTER_S):
            task_status.started()
            while True:
                await self._has_found.wait_for_running(math.inf)
                if self._found is not None:
                    await self._remove(*self._found)
                    self._found = None
                    self._log_min.put(self._commit_log.min_offset)

    def _look(self) -> None:
        """A round, but for the removals: most have none, and wake nobody."""
        if self._found is not None:
            return  # an earlier round still removes
        decision, manual = self._decide()
        if self._may_remove(decision):
            self._found = decision, manual
            self._has_found.wakeup()
        else:
            self._log_min.put(self._commit_log.min_offset)

    def execute_delete_files_manually(self) -> None:
        """Let the next 20 rounds remove what is expired, whatever the hour."""
        self.manual_delete_file_several_times = MAX_MANUAL_DELETE_FILE_TIMES

    def check_space(self, *, manual: bool = False) -> CleaningDecision:
        """Measure the disk, set or clear DISK_FULL, and say what to do."""
        try:
            usage = self._disk.usage()
            percent = used_percent(usage.used_bytes, usage.available_bytes)
        except OSError as error:
            _log.warning("%s: how full the disk is cannot be found out: %s", self.name, error)
            percent = None
        now_ms = self._wall_clock.now_ms()
        hour = (now_ms + 1000 * self._wall_clock.utc_offset_s(now_ms)) // _HOUR_MS % 24
        decision = decide(self._config, percent, hour, manual=manual)
        if decision.disk_full:
            changed = self._flags.set(RunningFlag.DISK_FULL, f"the disk is {percent} % full")
        else:
            changed = decision.disk_full is False and self._flags.clear(RunningFlag.DISK_FULL)
        if changed and percent is not None:  # nothing changes unless it is known
            _log.warning("%s: the disk is %s %% full, puts are %s", self.name, percent, _accepted(decision.disk_full))
            self._tracer.emit(StoreDiskFull(status=_accepted(decision.disk_full), size=percent))
        return decision

    async def clean(self) -> int:
        """One round; how many files it removed. A checkpoint if it removes any."""
        decision, manual = self._decide()
        return await self._remove(decision, manual) if self._may_remove(decision) else 0

    def _decide(self) -> tuple[CleaningDecision, bool]:
        manual = self.manual_delete_file_several_times > 0
        self.manual_delete_file_several_times -= manual
        return self.check_space(manual=manual), manual

    async def _remove(self, decision: CleaningDecision, manual: bool) -> int:
        """Remove files, the first as decided; how many.

        For want of space it goes on while that helps: pauses and a bound let the disk fill up meanwhile (#1137).
        """
        used_at_first, removed = self._used_bytes(), 0
        while self._may_remove(decision) and await self._remove_oldest(decision.reason):
            removed += 1
            is_short = decision.delete_any or decision.disk_full
            if removed >= DELETE_FILES_BATCH_MAX and not (is_short and self._used_bytes() < used_at_first):
                return removed
            await trio.sleep(0 if is_short else self._config.delete_commit_log_files_interval_ms / 1000)
            decision = self.check_space(manual=manual)
        return removed

    def _used_bytes(self) -> int:
        try:
            return self._disk.usage().used_bytes
        except OSError:
            return 0

    def _may_remove(self, decision: CleaningDecision) -> bool:
        """Whether the oldest file may go: others follow, it is synced and dispatched, and expired or in the way."""
        log = self._commit_log
        end = log.min_offset + log.file_size_bytes
        if not decision.reason or self.failed:
            return False
        if end >= log.max_offset or end > log.flushed_where or end >= self._needed_from():
            return False
        return decision.delete_any or self._is_expired(end)

    def _is_expired(self, end: int) -> bool:
        begin = self._commit_log.min_offset
        if self._oldest[0] != begin:
            stored_ms = last_store_timestamp(*self._commit_log.file_at(begin))
            if stored_ms == NO_TIME:  # no record in all of it: it is as old as the one that follows
                view, next_begin = self._commit_log.file_at(end)
                stored_ms = store_timestamp_at(view, end - next_begin)
            self._oldest = begin, stored_ms
        reserved_ms = self._config.file_reserved_time_hours * _HOUR_MS
        return self._wall_clock.now_ms() - self._oldest[1] >= reserved_ms

    async def _remove_oldest(self, reason: str) -> bool:
        """Whether it was removed, for good."""
        log = self._commit_log
        try:
            await log.sync_names()
            if not log.remove_oldest_file():
                return False
        except OSError as error:
            _log.warning("%s: the log's oldest file cannot be removed: %s", self.name, error)
            return False
        self._tracer.emit(LogDelete(offset=log.min_offset, status=reason))
        _log.info("%s: the log begins at %d now (%s)", self.name, log.min_offset, reason)
        try:
            await log.sync_names()
        except OSError as error:
            self.failed = True
            _log.error("%s: a removal cannot be made durable, there are no more of them: %s", self.name, error)
            return False
        return True


def _accepted(disk_full: bool | None) -> str:
    return "refused" if disk_full else "accepted"


@attrs.define(eq=False, repr=False)
class CleanConsumeQueueService(ServiceThread):
    """Lets queues, index and transactions begin where the log does.

    `flush` makes durable all that the dispatchers have changed, and says whether it is.
    """

    name = "CleanConsumeQueueService"
    _dispatchers: Sequence[CommitLogDispatcher]
    _flush: Callable[[], Awaitable[bool]]
    _log_min: Broadcast[int]
    _tracer: Tracer
    _last_physical_min_offset: int = attrs.field(default=0, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Clean when the log has lost a file."""
        task_status.started()
        with self._log_min.subscribe(take=self._is_done) as log_mins:
            async for log_min in log_mins:
                if not self._is_done(log_min):
                    await self._clean(log_min)

    def _is_done(self, log_min: int) -> bool:
        """Whether nothing is left of before `log_min`: most rounds remove no file, and this service sleeps on."""
        return log_min <= self._last_physical_min_offset

    async def _clean(self, log_min: int) -> None:
        """Remove what speaks of nothing at or after `log_min`: of each queue one file, then all is synced, and again.

        What fails is tried again in the next round.
        """
        total = 0
        try:
            while await self._flush():
                removed = sum(dispatcher.delete_expired(log_min) for dispatcher in self._dispatchers)
                total += removed
                if not removed:
                    self._last_physical_min_offset = log_min
                    break
        except OSError as error:
            _log.warning("%s: files of before offset %d cannot be removed: %s", self.name, log_min, error)
        if total:
            self._tracer.emit(QueueDelete(offset=log_min, size=total))
