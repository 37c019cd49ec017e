"""ReputMessageService: gives every record of the log to what is derived from it, as soon as consumers may see it.

Under SYNC_FLUSH that is when the record is durable: nobody reads what a power cut can take back (RocketMQ's #8239).
RocketMQ looks for new records every millisecond; here the log's end, or the flushed offset, wakes the service.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.actors.services.timer import Timer
from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.handed_rows import HandedRows
from rmq_actors.store.dispatch.receiving import Receiving
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import VisibleEnd
from rmq_actors.store.log.log_walk import (
    BATCH_RECORDS,
    COLUMNS_RECORDS_FIRST,
    COLUMNS_RECORDS_MAX,
    COLUMNS_RECORDS_MIN,
    DamagedLog,
)
from rmq_actors.store.log.passed_over import PassedOver
from rmq_actors.store.running_flags import RunningFlag, RunningFlags
from rmq_actors.tracing.events.store import StoreDispatch, StoreDispatchFailed
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from rmq_actors.wire.index_key import index_keys
from rmq_actors.wire.record import BLANK

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)

DISPATCHED = BroadcastChannel[int].declare(
    "store.dispatched",
    carries="the offset before which every record is in its queue, and in the index or soon will be",
    sender="ReputMessageService",
    receiver="FlushConsumeQueueService, PullRequestHoldService",
)

#: The pause before a failed dispatch (a full disk, say) is tried again.
RETRY_INTERVAL_S = 1.0
#: What waits is guessed from its bytes and the size of the last record.
_GUESSED_RECORD_BYTES = 256
#: How long, and how many bytes, a slave that receives all the time leaves undispatched at most; then it dispatches
#: until nothing waits. Whoever consumes from it waits for that, and so does an orderly stop.
GIVE_WAY_MAX_S = 10.0
GIVE_WAY_MAX_BYTES = 2 * 1024**3
#: How many rows, and how long, what lags may lag: see `CommitLogDispatcher.drain`. So long, too, a slave that receives
#: often leaves undispatched what it has received.
LAG_MAX_ROWS = 256
LAG_MAX_S = 0.05
#: The task that makes the log grow dispatches so few rows itself, if the growth before that was its own, too, and so
#: long ago: this costs less than to wake another task. Many at once cost less each.
AT_ONCE_ROWS_MAX = 4
AT_ONCE_AFTER_S = 0.00005


@attrs.define(eq=False, repr=False)
class Reput:
    """How far the log has been dispatched, and the step that takes it further. Passive: one owner at a time.

    Rows that the log's writer has handed over are taken as they are; all else is read from the log.
    """

    _commit_log: CommitLog
    dispatchers: Sequence[CommitLogDispatcher]
    _delay_levels_ms: Sequence[int]
    reput_from_offset: int
    #: The record that ends at `reput_from_offset`, if one was met.
    last: DispatchRequest | None
    passed_over: PassedOver = attrs.field(factory=PassedOver)
    #: A batch that was dispatched in part: queues and index may hold entries of records from `reput_from_offset` on.
    is_within_batch: bool = False
    #: Whether each row is compared with the log.
    checks_rows: bool = False
    #: Whether reading as columns need not start numpy first: few records pay for it then, too.
    numpy_is_loaded: bool = False
    rows: HandedRows = attrs.field(factory=HandedRows, init=False)
    #: How many rows were dispatched that something derived may lack, and whether it could not take them when it should.
    lagging: int = attrs.field(default=0, init=False)
    drain_failed: bool = attrs.field(default=False, init=False)
    #: Before it nothing lags, and the record that ends there.
    _drained: tuple[int, DispatchRequest | None] = attrs.field(init=False)
    #: So many records at least are read as columns next time.
    _columns_records: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._drained = self.reput_from_offset, self.last
        self._columns_records = COLUMNS_RECORDS_MIN if self.numpy_is_loaded else COLUMNS_RECORDS_FIRST

    @property
    def drained(self) -> tuple[int, DispatchRequest | None]:
        """Before which offset everything derived has every record, and the one that ends there, if one was met."""
        return self._drained if self.lagging else (self.reput_from_offset, self.last)

    def drain(self) -> None:
        """Let nothing lag. Raises `OSError`; then try again."""
        if not self.lagging:
            return
        self.drain_failed = True
        for dispatcher in self.dispatchers:
            dispatcher.drain()
        self.lagging, self.drain_failed = 0, False

    def rewind(self, offset: int) -> None:
        """Dispatch what stands from `offset` on once more. Nothing may lag."""
        assert not self.lagging
        if offset < self.reput_from_offset:
            self.rows.drop()
            self.reput_from_offset, self.last = offset, None
            self._drained = offset, None

    def dispatch_at_once(self, limit: int) -> int:
        """Dispatch rows if they are few, and all that is new before `limit`; how many there were, else 0.

        Raises `OSError` or `QueueBeginsAgain`, and then `dispatch_some` reads them from the log.
        """
        if not 0 < len(self.rows) <= AT_ONCE_ROWS_MAX or self.rows.end_offset != limit:
            return 0
        rows = self.rows.take(self.reput_from_offset, limit)
        if rows:
            self._dispatch_rows(rows)
        return len(rows)

    def dispatch_some(self, limit: int) -> int:
        """Dispatch the next records that end at or before `limit`; how many there were: 0 when there is none.

        Raises `OSError` or `QueueBeginsAgain`, and then dispatches the same records again at the next call, or
        `DamagedLog`.
        """
        # A cleaned log begins later than where this one stands.
        began = offset = max(self.reput_from_offset, self._commit_log.min_offset)
        rows = self.rows.take(offset, limit)
        if rows:
            self._dispatch_rows(rows)
            return len(rows)
        limit_of_rows, handed_from = limit, self.rows.begin_offset
        if handed_from is not None:
            limit = min(limit, handed_from)
        record_bytes = _GUESSED_RECORD_BYTES if self.last is None else self.last.msg_size
        if limit - offset >= self._columns_records * record_bytes:
            columns = self._read_columns(offset, limit)
            if columns is not None:
                self.drain()
                self.is_within_batch = True
                for dispatcher in self.dispatchers:
                    dispatcher.dispatch_batch(columns)
                self.is_within_batch = False
                self.last, self.reput_from_offset = columns.last, columns.last.end_offset
                return len(columns)
        batch: list[DispatchRequest] = []
        while not batch and offset + BLANK.size <= limit:
            view, begin = self._commit_log.file_at(offset)
            before = offset
            offset = self._read(view, begin, offset, limit, batch)
            if offset == before:
                break
        if batch:
            self.drain()
            requests = self.passed_over.take_out(batch)
            self.is_within_batch = True
            for dispatcher in self.dispatchers:
                dispatcher.dispatch(requests)
            self.is_within_batch = False
            self.last = batch[-1]
        self.reput_from_offset = offset
        if not batch and began < offset == handed_from:
            return self.dispatch_some(limit_of_rows)
        return len(batch)

    def _dispatch_rows(self, rows: Sequence[DispatchRequest]) -> None:
        if self.checks_rows:
            self._check_rows(rows)
        try:
            if self.lagging >= LAG_MAX_ROWS:
                self.drain()
            if not self.lagging:
                self._drained = self.reput_from_offset, self.last
            self.is_within_batch = True
            for dispatcher in self.dispatchers:
                dispatcher.dispatch_rows(rows)
        except (OSError, QueueBeginsAgain):
            self.rows.drop()  # and read these from the log
            raise
        self.is_within_batch = False
        self.lagging += len(rows)
        self.last, self.reput_from_offset = rows[-1], rows[-1].end_offset

    def _check_rows(self, rows: Sequence[DispatchRequest]) -> None:
        """Raise `AssertionError` unless the log has these rows."""
        for row in rows:
            view, begin = self._commit_log.file_at(row.commit_log_offset)
            offset = row.commit_log_offset
            record = read_dispatch_request(
                view, offset - begin, offset, check_crc=True, delay_levels_ms=self._delay_levels_ms
            )
            same = isinstance(record, DispatchRequest) and _derived_of(row) == _derived_of(record)
            assert same, f"the writer has handed on {row}, the log has {record}"

    def _read_columns(self, offset: int, limit: int) -> DispatchBatch | None:
        """Many records of one file; None where the next ones must be read one by one."""
        # It imports numpy: a broker that dispatches record by record does without.
        from rmq_actors.wire.dispatch_batch import read_dispatch_batch  # noqa: PLC0415

        self._columns_records = COLUMNS_RECORDS_MIN
        view, begin = self._commit_log.file_at(offset)
        return read_dispatch_batch(
            view,
            offset - begin,
            offset,
            limit - begin,
            COLUMNS_RECORDS_MAX,
            delay_levels_ms=self._delay_levels_ms,
            min_records=COLUMNS_RECORDS_MIN,
        )

    def _read(self, view: memoryview, begin: int, offset: int, limit: int, batch: list[DispatchRequest]) -> int:
        """Fill `batch` with records of one file; where the next one begins."""
        while len(batch) < BATCH_RECORDS and offset + BLANK.size <= limit and offset - begin < len(view):
            found = read_dispatch_request(
                view, offset - begin, offset, check_crc=False, delay_levels_ms=self._delay_levels_ms
            )
            if isinstance(found, DispatchRequest):
                if found.end_offset > limit:
                    break
                batch.append(found)
                offset = found.end_offset
            elif found.what == "blank":
                if begin + len(view) > limit:
                    break  # a slave has received a part of it, or synced that
                return begin + len(view)
            elif offset + BLANK.unpack_from(view, offset - begin)[0] > limit:
                break  # a slave has received a part of it
            else:
                raise DamagedLog(f"no valid record at offset {offset}: {found.reason}")
        return offset


_fields_of = attrgetter(*(name for name in DispatchRequest._fields if name != "properties"))


def _derived_of(request: DispatchRequest) -> tuple[object, ...]:
    """All of a plain message that anything is derived from."""
    return _fields_of(request), index_keys(request)


@attrs.define(eq=False, repr=False)
class ReputMessageService(ServiceThread):
    """Dispatches whenever there is more to see. What fails is tried again; puts are refused meanwhile."""

    name = "ReputMessageService"
    _reput: Reput
    _visible_end: VisibleEnd
    dispatched: Broadcast[int]
    _flags: RunningFlags
    _tracer: Tracer
    _timer: Timer
    _receiving: Receiving = attrs.field(factory=Receiving)
    #: Lets a queue begin with the record that says so. None: no dispatcher has queues.
    _begin_again: Callable[[QueueBeginsAgain], Awaitable[None]] | None = None
    _failing: bool = attrs.field(default=False, init=False)
    #: Whether its task looks for more before it waits for growth again: it works, or has been woken.
    _is_awake: bool = attrs.field(default=True, init=False)
    #: When the log grew last by rows.
    _grew_at_s: float = attrs.field(default=float("-inf"), init=False)
    #: By which task, or one that may be gone.
    _grower: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    #: Whether the timer calls `_drain`, and what ends that.
    _drains: bool = attrs.field(default=False, init=False)
    _jobs: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)
    _drain_again_at_s: float = attrs.field(default=float("-inf"), init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Dispatch what comes. What is left at a stop `MessageStore.shut_down` dispatches."""
        growth = self._visible_end.growth
        with growth.subscribe(self._take_growth, others_first=True) as wake_ups, self._jobs:
            task_status.started()
            while True:
                self._is_awake = True
                await self._catch_up()
                self._is_awake = False
                await wake_ups.receive()

    def _take_growth(self, _: object) -> bool:
        """Whether growth needs nobody to be woken for it: it is dispatched, or the task is awake that does it.

        Whatever else follows the log has been told before: a slave is sent a put before its queue has it.
        """
        try:
            if self._is_awake or (self._reput.rows and not self._failing and self._dispatch_at_once()):
                return True
        except Exception as error:  # noqa: BLE001  # this service crashes by it, not the put: the log has its record
            self.fail(error)
        self._is_awake = True  # by this growth, or never again
        return False

    def _dispatch_at_once(self) -> bool:
        now, before, task = trio.current_time(), self._grew_at_s, trio.lowlevel.current_task()
        is_alone, self._grew_at_s, self._grower = task is self._grower, now, task
        if not is_alone or now < before + AT_ONCE_AFTER_S:
            return False
        try:
            count = self._reput.dispatch_at_once(self._visible_end.offset())
        except (OSError, QueueBeginsAgain):  # the task that is woken meets it, too
            return False
        if not count:
            return False
        if now >= before + LAG_MAX_S:
            with contextlib.suppress(OSError):  # the timer's job tries again, and says what is wrong
                self._reput.drain()
        self._tell(count)
        return True

    async def _catch_up(self) -> None:
        count = count_before_others = 0
        began_s = trio.current_time()
        while True:
            await self._give_way(began_s)
            try:
                dispatched = self._reput.dispatch_some(self._visible_end.offset())
            except QueueBeginsAgain as found:
                await self._let_begin_again(found)
                continue
            except (OSError, DamagedLog) as error:
                self._fail(error)
                await trio.sleep(RETRY_INTERVAL_S)
                continue
            if self._failing and not self._reput.drain_failed:
                self._works_again()
            if not dispatched:
                break
            count += dispatched
            if count - count_before_others >= BATCH_RECORDS:
                count_before_others = count
                await trio.lowlevel.checkpoint()
        if count:
            self._tell(count)

    def _tell(self, count: int) -> None:
        """So many were dispatched."""
        offset = self._reput.reput_from_offset
        self._tracer.emit(StoreDispatch(offset=offset, size=count))
        self.dispatched.put(offset)
        if self._reput.lagging and not self._drains:
            self._drains = True
            self._jobs.enter_context(self._timer.every(LAG_MAX_S, self._drain, self))

    async def _let_begin_again(self, found: QueueBeginsAgain) -> None:
        if self._begin_again is None:
            raise found
        try:
            await self._begin_again(found)
        except (OSError, ValueError) as error:
            self._fail(error)
            await trio.sleep(RETRY_INTERVAL_S)

    def _drain(self) -> None:
        """Let nothing lag for long; and rest where nothing does."""
        if not self._reput.lagging:
            if self._failing and not self._is_awake:  # a checkpoint or a query has drained what this could not
                self._works_again()
            self._drains = False
            self._jobs.close()
        elif not self._reput.drain_failed or trio.current_time() >= self._drain_again_at_s:
            try:
                self._reput.drain()
            except OSError as error:
                self._drain_again_at_s = trio.current_time() + RETRY_INTERVAL_S
                self._fail(error)
            else:
                if self._failing:
                    self._works_again()

    async def _give_way(self, began_s: float) -> None:
        """Wait while a slave has more to receive, or receives often. No checkpoint if it does not.

        `began_s`: since when something has been waiting to be dispatched.
        """
        receiving = self._receiving
        while True:
            resume_at = max(
                min(receiving.busy_until, began_s + GIVE_WAY_MAX_S), min(receiving.often_until, began_s + LAG_MAX_S)
            )
            if resume_at <= trio.current_time():
                break
            if self._visible_end.offset() - self._reput.reput_from_offset >= GIVE_WAY_MAX_BYTES:
                break
            await trio.sleep_until(resume_at)

    def _works_again(self) -> None:
        self._failing = False
        self._flags.clear(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
        _log.warning("%s: dispatching works again", self.name)

    def _fail(self, error: Exception) -> None:
        self._flags.set(RunningFlag.WRITE_LOGICS_QUEUE_ERROR, f"records cannot be dispatched: {error}")
        if not self._failing:
            self._failing = True
            _log.error("%s: cannot dispatch, puts are refused: %s", self.name, error)
        self._tracer.emit(
            StoreDispatchFailed(offset=self._reput.reput_from_offset, status=type(error).__name__, detail=str(error))
        )
