"""The two services that make the log durable: GroupCommitService for SYNC_FLUSH, FlushRealTimeService for ASYNC_FLUSH.

`flushed_where` moves only after a successful sync. After a failed one the store takes no more writes: the kernel may
have dropped the pages and called them clean, so a later sync that succeeds proves nothing (RocketMQ goes on, #9713).
"""

from __future__ import annotations

import logging
from typing import Literal

import attrs
import trio

from rmq_actors.actors.channels import Broadcast, BroadcastChannel, LatestChannel, LatestSender
from rmq_actors.store.commit_log import CommitLog
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
    receiver="PutCompletionService, WriteSocketService and HAClient (SYNC_FLUSH)",
)

FlushServiceName = Literal["GroupCommitService", "FlushRealTimeService"]


@attrs.define(eq=False)
class FlushService:
    """Syncs what was appended: as soon as it is asked (interval 0), or at most once in `interval_s`."""

    name: FlushServiceName
    interval_s: float
    _commit_log: CommitLog
    _outcomes: Broadcast[FlushOutcome]
    _tracer: Tracer
    _requests: trio.MemoryReceiveChannel[int] = attrs.field(init=False)
    requests: LatestSender[int] = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    #: Set with the first sync that fails, never taken back.
    failure: FlushFailed | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.requests, self._requests = FLUSH_REQUESTS.open()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush until asked to stop; then once more, so that an orderly stop leaves nothing in the page cache."""
        task_status.started()
        with self._scope:
            await self._flush_on_request()
        await self._flush()

    def request_stop(self) -> None:
        """Flush a last time, then end."""
        self._scope.cancel()

    async def _flush_on_request(self) -> None:
        async for _ in self._requests:
            if not await self._flush():
                await trio.sleep_forever()
            if self.interval_s:
                await trio.sleep(self.interval_s)

    async def _flush(self) -> bool:
        if self.failure is not None:
            return False
        if self._commit_log.flushed_where >= self._commit_log.max_offset:
            return True
        try:
            flushed_where = await self._commit_log.flush()
        except OSError as error:
            self.failure = FlushFailed(str(error))
            _log.error("%s: a sync failed, the store refuses writes from now on: %s", self.name, error)
            self._tracer.emit(
                "log.flush_failed", self.name, offset=self._commit_log.flushed_where, status=type(error).__name__
            )
            self._outcomes.put(self.failure)
            return False
        self._tracer.emit("log.flush", self.name, offset=flushed_where)
        self._outcomes.put(flushed_where)
        return True
