"""FlushConsumeQueueService: makes queues, index and transactions durable, and then moves the checkpoint.

RocketMQ stamps its checkpoint when a queue entry is appended, in memory, and trusts it after a crash (#678, #10073).
Here the recovery point moves only behind syncs of everything that it speaks of, and never again after one that failed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.store.dispatch.reput_message_service import Reput
from rmq_actors.store.files.store_checkpoint import Checkpoint, RecoveryPoint, StoreCheckpoint
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_services import FlushFailed, FlushOutcome
from rmq_actors.store.log.record_begins import record_begins
from rmq_actors.tracing.events.store import StoreCheckpointEvent, StoreCheckpointFailed
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request

_log = logging.getLogger(__name__)

#: From one checkpoint to the next at least, however much is dispatched: each syncs many files.
_PAUSE_S = 1.0


@attrs.frozen
class Counts:
    """What stands beside the log: see `RecoveryPoint`.

    `index_begin_ms`: the newest index file's first time stamp; None without one.
    """

    queues: int
    queue_ends: int
    index_files: int
    index_begin_ms: int | None


@attrs.define(eq=False, repr=False)
class Checkpointing:
    """The step that moves the recovery point up to what is dispatched. One at a time."""

    _commit_log: CommitLog
    _reput: Reput
    _store_checkpoint: StoreCheckpoint
    _count: Callable[[], Counts]
    _tracer: Tracer
    #: A failed sync: what it should have written may never become durable, whatever later ones say.
    failed: bool = attrs.field(default=False, init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @property
    def offset(self) -> int:
        """The recovery point's offset."""
        point = self._store_checkpoint.checkpoint.recovery_point
        return point.offset if point is not None else 0

    @property
    def record_offset(self) -> int | None:
        """Where the record begins that ends at the recovery point; None if none is named."""
        point = self._store_checkpoint.checkpoint.recovery_point
        return point.record_offset if point is not None and point.record_size else None

    @property
    def behind_bytes(self) -> int:
        """How much of the log was dispatched since: what a start would read."""
        return self._reput.reput_from_offset - self.offset

    @property
    def is_behind(self) -> bool:
        """Whether something was dispatched, or files were removed, since."""
        point = self._store_checkpoint.checkpoint.recovery_point
        if point is None or self._reput.reput_from_offset != point.offset:
            return True
        counts = self._counts()
        before = (point.queues, point.queue_ends, point.index_files)
        return (counts.queues, counts.queue_ends, counts.index_files) != before

    def _counts(self) -> Counts:
        """What a start must find again: nothing, while a part of it may be behind the point.

        That is so while a batch is dispatched in part, or something lags.
        """
        counts = self._count()
        if not self._reput.is_within_batch and not self._reput.lagging:
            return counts
        return attrs.evolve(counts, queues=0, queue_ends=0, index_files=0)

    async def advance(self, until_flushed: Callable[[int], Awaitable[bool]], *, force: bool = False) -> bool:
        """Make all that was dispatched durable, and move the recovery point there; whether it stands there now.

        `until_flushed` returns when the log is durable up to an offset, False if it never will be. With `force` files
        and names are synced even if nothing was dispatched. Raises `OSError`, and stays where it is from then on.
        """
        async with self._turn:
            if self.failed:
                return False
            if not self.is_behind and not force:
                return True
            with contextlib.suppress(OSError):  # ReputMessageService says so, and tries again
                self._reput.drain()
            (offset, last), counts = self._reput.drained, self._counts()
            if not await until_flushed(offset):
                return False
            try:
                for dispatcher in self._reput.dispatchers:
                    await dispatcher.flush()
                # A slave's empty log may have begun meanwhile: nothing stands before its first byte.
                begin = max(offset, self._commit_log.min_offset)
                last = last or await self._last_before(begin)
                await self._store_checkpoint.write(self._checkpoint_at(begin, last, counts))
            except OSError:
                self.failed = True
                raise
            self._tracer.emit(StoreCheckpointEvent(offset=offset))
            return True

    @contextlib.asynccontextmanager
    async def removing(self, *, rebuilds: bool = False) -> AsyncIterator[None]:
        """Queues are removed in the block, and a crash within it may leave any part of them.

        A start misses no entries until the next checkpoint; if `rebuilds`, it makes all that is derived again. No
        checkpoint is written meanwhile. Raises `OSError`.
        """
        async with self._turn:
            point = self._store_checkpoint.checkpoint.recovery_point
            if point is not None and rebuilds:
                await self._store_checkpoint.begin_rebuilding(point)
            else:
                await self._store_checkpoint.miss_nothing()
            yield

    async def _last_before(self, offset: int) -> DispatchRequest | None:
        """The log's last record before `offset`, where one ends or a file; None if the log has none there.

        Dispatching was taken back to `offset`, or has met nothing since the start. What the last checkpoint names may
        be after it, or of a log that was replaced since; else the search begins there. A checkpoint of Trio now and
        then.
        """
        log, end = self._commit_log, offset
        near = self.record_offset
        if near is None or not log.min_offset <= near < offset or self._record_at(near) is None:
            near = -1
        while end > log.min_offset:
            view, begin = log.file_at(end - 1)
            offsets, _ = await record_begins(view, begin, max(begin, near), end)
            if offsets and offsets[-1] >= log.min_offset:
                return self._record_at(offsets[-1])
            end = begin
        return None

    def _record_at(self, offset: int) -> DispatchRequest | None:
        view, begin = self._commit_log.file_at(offset)
        found = read_dispatch_request(view, offset - begin, offset)
        return found if isinstance(found, DispatchRequest) else None

    def _checkpoint_at(self, offset: int, last: DispatchRequest | None, counts: Counts) -> Checkpoint:
        point, stamp = RecoveryPoint(self._commit_log.file_size_bytes, offset), 0
        if last is not None:
            stamp = last.store_timestamp_ms
            point = RecoveryPoint.behind(last, self._commit_log.file_size_bytes, offset)
        if counts.index_begin_ms is not None:
            # RocketMQ drops the newest index file after a crash: it must dispatch again all that stood in it.
            stamp = min(stamp, counts.index_begin_ms)
        point = attrs.evolve(point, queues=counts.queues, queue_ends=counts.queue_ends, index_files=counts.index_files)
        return Checkpoint(stamp, stamp, stamp, point)


@attrs.define(eq=False, repr=False)
class FlushConsumeQueueService(ServiceThread):
    """Advances the checkpoint some time after something was dispatched."""

    name = "FlushConsumeQueueService"
    _checkpointing: Checkpointing
    _commit_log: CommitLog
    _dispatched: Broadcast[int]
    _outcomes: Broadcast[FlushOutcome]
    _flush_failure: Callable[[], FlushFailed | None]
    #: Asks for a sync of the log up to an offset.
    _sync_to: Callable[[int], object]
    interval_s: float
    #: With so much of the log dispatched since, the checkpoint moves sooner, once a second at most.
    bytes_max: int
    _tracer: Tracer

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Advance it until nothing can become durable any more. `MessageStore.shut_down` writes the last checkpoint."""
        task_status.started()
        while not self._checkpointing.failed:
            with self._dispatched.subscribe() as dispatched:
                if not self._checkpointing.is_behind:
                    await dispatched.receive()
            await self._wait_until_due()
            if not await self._advance():
                await trio.sleep_forever()

    async def _wait_until_due(self) -> None:
        with trio.move_on_after(self.interval_s):
            await trio.sleep(_PAUSE_S)
            with self._dispatched.subscribe(take=self._is_little) as dispatched:
                if self._is_little():
                    await dispatched.receive()

    def _is_little(self, _: object = None) -> bool:
        """Whether what was dispatched since the checkpoint may wait for its time."""
        return self._checkpointing.behind_bytes < self.bytes_max

    async def _advance(self) -> bool:
        try:
            return await self._checkpointing.advance(self._until_flushed)
        except OSError as error:
            _log.error("%s: the checkpoint stays where it is until the next start: %s", self.name, error)
            self._tracer.emit(StoreCheckpointFailed(status=type(error).__name__))
            return False

    async def sync(self) -> bool:
        """Make all that the dispatchers have changed durable, removals too; whether it is. Raises `OSError`.

        The log is synced for that: under ASYNC_FLUSH its own time for a little is ten seconds away.
        """
        # Whoever moves the checkpoint at present waits for that, too.
        self._ask_for_sync(self._commit_log.max_offset)
        return await self._checkpointing.advance(self._until_synced, force=True)

    async def _until_synced(self, offset: int) -> bool:
        self._ask_for_sync(offset)
        return await self._until_flushed(offset)

    def _ask_for_sync(self, offset: int) -> None:
        if self._commit_log.flushed_where < offset:
            self._sync_to(offset)

    async def _until_flushed(self, offset: int) -> bool:
        with self._outcomes.subscribe() as outcomes:
            while self._commit_log.flushed_where < offset:
                if self._flush_failure() is not None or isinstance(await outcomes.receive(), FlushFailed):
                    return False
        return True
