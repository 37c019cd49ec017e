"""The services that bring the log to the disk.

GroupCommitService (SYNC_FLUSH) and FlushRealTimeService (ASYNC_FLUSH) make it durable; CommitRealTimeService writes
what the transient store pool holds to the file. `flushed_where` moves only after a successful sync. After a failed one
the store takes no more writes: the kernel may have dropped the pages and called them clean, so a later sync that
succeeds proves nothing (RocketMQ goes on, #9713).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel, LatestChannel, LatestReceiver, LatestSender
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.tracing.events.store import LogFlush, LogFlushFailed
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)


@attrs.frozen
class FlushFailed:
    """A sync failed; `reason` is the operating system's."""

    reason: str


#: What the flush service tells: the new flushed_where, or that there will be none.
FlushOutcome = int | FlushFailed

FLUSH_REQUESTS = LatestChannel[int].declare(
    "store.flush_requests",
    carries="the log's end: there is something to flush",
    sender="MessageStore",
    receiver="GroupCommitService or FlushRealTimeService",
)
FLUSH_OUTCOMES = BroadcastChannel[FlushOutcome].declare(
    "store.flush_outcomes",
    carries="flushed_where, or the failure of a sync",
    sender="GroupCommitService or FlushRealTimeService",
    receiver="PutCompletionService, FlushConsumeQueueService; "
    "SYNC_FLUSH: WriteSocketService, HAClient, ReputMessageService",
)
COMMIT_REQUESTS = LatestChannel[int].declare(
    "store.commit_requests",
    carries="the end of what the transient store pool holds: there is something to commit",
    sender="MessageStore",
    receiver="CommitRealTimeService",
)

FlushServiceName = Literal["GroupCommitService", "FlushRealTimeService"]


@attrs.define(eq=False, repr=False)
class FlushService(ServiceThread):
    """Syncs what was appended: as soon as it is asked (interval 0), or at most once in `interval_s`.

    With `least_pages` it waits until as many pages of 4,096 bytes are new, but not longer than `thorough_interval_s`
    after its last sync.
    """

    name: FlushServiceName
    interval_s: float
    _commit_log: CommitLog
    _outcomes: Broadcast[FlushOutcome]
    _tracer: Tracer
    least_pages: int = 0
    thorough_interval_s: float = 0.0
    _requests: LatestReceiver[int] = attrs.field(init=False)
    requests: LatestSender[int] = attrs.field(init=False)
    #: Whether a request waits to be taken.
    _is_requested: bool = attrs.field(default=False, init=False)
    _last_flush: float = attrs.field(default=float("-inf"), init=False)
    #: What is appended before here is synced however little it is.
    _wanted_to: int = attrs.field(default=0, init=False)
    #: Set with the first sync that fails, never taken back.
    failure: FlushFailed | None = attrs.field(default=None, init=False)
    #: What is appended from here on is not flushed any more: the store refuses it.
    is_stopping: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.requests, self._requests = FLUSH_REQUESTS.open()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush until asked to stop; then once more, so that an orderly stop leaves nothing in memory."""
        await super().run(task_status=task_status)
        try:
            self._commit_log.commit()
        except OSError as error:
            _log.error("%s: the last commit failed, what the pool holds is lost: %s", self.name, error)
        await self._flush()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Flush what is asked for."""
        task_status.started()
        await self._flush_on_request()

    def request(self, end: int) -> None:
        """Ask for a flush: one wake-up, however often this is called before the service runs."""
        if not self._is_requested:
            self._is_requested = True
            self.requests.put(end)

    def sync_to(self, end: int) -> None:
        """Ask for a flush up to `end`, however little that is: within `interval_s` or so, not `thorough_interval_s`."""
        self._wanted_to = max(self._wanted_to, end)
        self.request(end)

    def request_stop(self) -> None:
        """Flush a last time, then end."""
        self.is_stopping = True
        super().request_stop()

    async def _flush_on_request(self) -> None:
        while True:
            if self._is_clean:
                await self._requests.receive()
            else:  # some is left that was too little
                with trio.move_on_at(self._last_flush + self.thorough_interval_s):
                    await self._requests.receive()
            self._is_requested = False
            if self._is_due and not await self._flush():
                await trio.sleep_forever()
            if self.interval_s:
                await trio.sleep(self.interval_s)

    @property
    def _is_clean(self) -> bool:
        return self._commit_log.flushed_where >= self._commit_log.max_offset

    @property
    def _is_due(self) -> bool:
        return (
            self._commit_log.unflushed_pages() >= self.least_pages
            or trio.current_time() >= self._last_flush + self.thorough_interval_s
            or self._commit_log.flushed_where < self._wanted_to
        )

    async def _flush(self) -> bool:
        if self.failure is not None:
            return False
        if self._is_clean:
            return True
        self._last_flush = trio.current_time()
        try:
            flushed_where = await self._commit_log.flush()
        except OSError as error:
            self.failure = FlushFailed(str(error))
            _log.error("%s: a sync failed, the store refuses writes from now on: %s", self.name, error)
            self._tracer.emit(
                LogFlushFailed(offset=self._commit_log.flushed_where, status=type(error).__name__), self.name
            )
            self._outcomes.put(self.failure)
            return False
        self._tracer.emit(LogFlush(offset=flushed_where), self.name)
        self._outcomes.put(flushed_where)
        return True


@attrs.define(eq=False, repr=False)
class CommitRealTimeService(ServiceThread):
    """Writes what the transient store pool holds to the file, once an interval, and says so by `committed`.

    Less than the least pages wait, but not longer than the thorough interval after the last commit (#3099). A commit
    that fails is tried again after the interval; meanwhile puts are refused, each after a try of its own.
    """

    name = "CommitRealTimeService"
    _config: MessageStoreConfig
    _commit_log: CommitLog
    _committed: Callable[[], None]
    _requests: LatestReceiver[int]
    _last_commit: float = attrs.field(default=float("-inf"), init=False)
    _is_failing: bool = attrs.field(default=False, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until asked to stop, and then the rest."""
        await super().run(task_status=task_status)
        self._commit()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Commit what is due."""
        task_status.started()
        while True:
            if self._commit_log.append_offset == self._commit_log.max_offset:
                await self._requests.receive()
            await trio.sleep(self._config.commit_interval_commit_log_ms / 1000)
            if self._is_due:
                self._commit()

    @property
    def _is_due(self) -> bool:
        return (
            self._commit_log.uncommitted_pages() >= self._config.commit_commit_log_least_pages
            or trio.current_time() >= self._last_commit + self._config.commit_commit_log_thorough_interval_ms / 1000
        )

    def _commit(self) -> None:
        self._last_commit = trio.current_time()
        try:
            self._commit_log.commit()
        except OSError as error:
            if not self._is_failing:
                _log.warning("%s: a commit failed: %s", self.name, error)
            self._is_failing = True
        else:
            self._is_failing = False
        self._committed()
