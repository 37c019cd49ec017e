"""All files of one store, opened and recovered: the log, what is derived from it, the checkpoint, `lock` and `abort`.

Passive: the services of `MessageStore` write them while it runs. DefaultMessageStore.load, recover and shutdown.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence

import attrs

from rmq_actors.ports.disk import Disk, DiskLock
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.dispatch_while_room import DispatchWhileRoom
from rmq_actors.store.dispatch.flush_consume_queue_service import Checkpointing, Counts
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.dispatch.lost_entries import QueueEnds, QueuesInLog, suspected_from
from rmq_actors.store.dispatch.reput_message_service import Reput
from rmq_actors.store.dispatch.transaction_state_service import TransactionStateService, record_reader
from rmq_actors.store.files.deleted_topics import DeletedTopics, QueueBeginsAgain
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    INDEX_DIRECTORY,
    LOCK_FILE,
)
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError, sync_directories
from rmq_actors.store.files.store_checkpoint import RecoveryPoint, StoreCheckpoint
from rmq_actors.store.lifecycle.recovery import RecoveryPlan, keep_aside, plan_recovery, redo, write_again
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.log_walk import LogEnd, LogWalk
from rmq_actors.store.log.passed_over import PassedOver
from rmq_actors.store.log.read_log import must_be_there
from rmq_actors.tracing.events.store import LogFlush
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import DispatchRequest

_log = logging.getLogger(__name__)

BeginAgain = Callable[[QueueBeginsAgain], Awaitable[None]]

#: What `abort` says while no sync has failed; RocketMQ looks only whether it is there.


@attrs.define(eq=False, repr=False)
class StoreFiles:
    """The open files of a store whose log and derived structures agree."""

    commit_log: CommitLog
    deleted_topics: DeletedTopics
    consume_queues: ConsumeQueues
    index_service: IndexService
    transaction_state_service: TransactionStateService
    reput: Reput
    checkpointing: Checkpointing
    _disk: Disk
    _stack: contextlib.ExitStack

    @classmethod
    async def open(cls, config: MessageStoreConfig, environment: Environment, tracer: Tracer) -> StoreFiles:
        """Open and recover. On return the log is durable to its end, and zeros, durable too, stand after it.

        The file `abort` is there, as it is while a store runs. Raises `StoreLayoutError`, `DamagedLog`,
        `ConfigFileDamaged`, `OSError` (`BlockingIOError`: another process has the store).
        """
        with contextlib.ExitStack() as stack:
            lock: DiskLock = environment.disk.lock(LOCK_FILE)
            stack.callback(lock.close)
            return await _Opening(config, environment, tracer, stack).recover()

    async def make_durable(self) -> None:
        """Dispatch what is not yet, and make everything durable. Raises `OSError`."""
        await self.commit_log.flush()
        while await self._dispatch_some():
            pass
        self.reput.drain()
        if not await self.checkpointing.advance(_flushed_to(self.commit_log)):
            raise OSError("a sync has failed before: the next start recovers from the last checkpoint")

    async def _dispatch_some(self) -> int:
        while True:
            try:
                return self.reput.dispatch_some(self.commit_log.max_offset)
            except QueueBeginsAgain as found:
                await self.begin_again(found)

    async def begin_again(self, found: QueueBeginsAgain) -> None:
        """Let a queue begin with the record that says so. Raises `OSError`, `ValueError`."""
        async with self.checkpointing.removing():
            await self.consume_queues.begin_again(found)

    async def shut_down(self) -> None:
        """Make everything durable and say so: the end of an orderly stop. Raises `OSError`; `abort` then stays."""
        await self.make_durable()
        if self._disk.exists(ABORT_FILE):
            self._disk.remove(ABORT_FILE)
            await self._disk.sync_directory("")

    def close(self) -> None:
        """Close every file, and let others have the store. A second call does nothing."""
        self._stack.close()


def _flushed_to(commit_log: CommitLog) -> Callable[[int], Awaitable[bool]]:
    """For `Checkpointing.advance`, when nobody else flushes the log."""

    async def until_flushed(offset: int) -> bool:
        return commit_log.flushed_where >= offset

    return until_flushed


def _check_links(disk: Disk, config: MessageStoreConfig) -> None:
    """Raise `StoreLayoutError` if a directory is a link that cannot be followed, as when its disk is not mounted.

    Without this a start would find no files, and make queues and index again for an empty log.
    """
    index = [INDEX_DIRECTORY] if config.message_index_enable else []
    ext = [CONSUME_QUEUE_EXT_DIRECTORY] if config.enable_consume_queue_ext else []
    for name in disk.list(""):
        is_needed = name in (COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, CONFIG_DIRECTORY, *index, *ext)
        if is_needed and not disk.exists(name):
            raise StoreLayoutError(f"{name}: a link that cannot be followed: is the disk there that it leads to?")
    if ext and disk.exists(CONSUME_QUEUE_EXT_DIRECTORY) and not disk.list(CONSUME_QUEUE_EXT_DIRECTORY):
        # An empty directory, or a file: that would refuse the first message that has an extension, and the stop.
        with contextlib.suppress(IsADirectoryError):
            disk.open(CONSUME_QUEUE_EXT_DIRECTORY, read_only=True).close()
            raise StoreLayoutError(f"{CONSUME_QUEUE_EXT_DIRECTORY}: a file; a directory has this name")


async def _remove_past(queue: MappedFileQueue, end_offset: int, *, files_left: int) -> None:
    """Remove the files past the log's end, the newest first: of several removals a power loss could undo any."""
    is_durable = True
    while len(queue.files) > files_left and queue.files[-1].from_offset >= end_offset:
        if not is_durable:
            await sync_directories(queue.disk, queue.dirty_directories)
        queue.remove_last_file()
        is_durable = False


def _written_end(queue: MappedFileQueue) -> int:
    """Where the zeros at the log's end begin."""
    return next((file.from_offset + file.used_bytes() for file in reversed(queue.files) if file.used_bytes()), 0)


@attrs.frozen
class _Derived:
    """What is derived from the log."""

    consume_queues: ConsumeQueues
    index_service: IndexService
    transaction_state_service: TransactionStateService

    @property
    def dispatchers(self) -> Sequence[CommitLogDispatcher]:
        return (self.consume_queues, self.index_service, self.transaction_state_service)

    async def begin_anew(self, store_checkpoint: StoreCheckpoint) -> None:
        """Forget all: entries of records that are gone would be taken for those of the records that come.

        The next start misses nothing of it, nor the log's file, which goes after this.
        """
        await store_checkpoint.miss_nothing()
        for topic in dict.fromkeys(queue.topic for queue in self.consume_queues):
            await self.consume_queues.destroy(topic)
        self.index_service.rebuild()
        self.transaction_state_service.rebuild()

    def begin_again(self, store_checkpoint: StoreCheckpoint) -> BeginAgain:
        """What a recovery does where a queue begins again: the next start misses nothing of what is removed."""

        async def begin_again(found: QueueBeginsAgain) -> None:
            await store_checkpoint.miss_nothing()
            await self.consume_queues.begin_again(found)

        return begin_again

    def count(self) -> Counts:
        index = self.index_service
        return Counts(*self.consume_queues.add_up_ends(), index.file_count, index.newest_begin_timestamp_ms)


@attrs.define(eq=False, repr=False)
class _Opening:
    """The steps of `StoreFiles.open`."""

    config: MessageStoreConfig
    environment: Environment
    tracer: Tracer
    stack: contextlib.ExitStack
    passed_over: PassedOver = attrs.field(factory=PassedOver, init=False)

    async def recover(self) -> StoreFiles:
        config, disk = self.config, self.environment.disk
        _check_links(disk, config)
        store_checkpoint = StoreCheckpoint.open(disk)
        self.stack.callback(store_checkpoint.close)
        checkpoint, has_aborted = store_checkpoint.checkpoint, disk.exists(ABORT_FILE)
        point = checkpoint.recovery_point
        if point is not None:
            # All that a start changes goes by it, and what a killed process left of it may be in memory alone; it may
            # have died before there was an `abort`. Written again: a failed sync is no sync.
            await store_checkpoint.write(checkpoint)
        queue = self._load_log(point, after_crash=has_aborted)
        plan = plan_recovery(queue, checkpoint, after_crash=has_aborted)
        while plan.drops_log and queue.remove_last_file():
            pass
        # A long log takes minutes: the log says what the start waits for.
        read_bytes = max(0, _written_end(queue) - plan.read_from)
        _log.info("recovery reads %d bytes of log from offset %d on: %s", read_bytes, plan.read_from, plan.reason)
        deleted = DeletedTopics.load(disk)
        derived = self._derived(queue, plan, deleted, is_orderly=not has_aborted)
        room = DispatchWhileRoom(derived.dispatchers, derived.consume_queues)
        end, last = await self._bring_to_the_end(queue, plan, store_checkpoint, derived, room)
        first, flushed_where = queue.min_offset, plan.read_from if plan.is_trusted else queue.min_offset
        is_new = config.broker_role is BrokerRole.SLAVE and bool(queue.files) and end.end_offset == first
        if is_new:
            await derived.begin_anew(store_checkpoint)
        await self._correct_points(deleted, end.end_offset, is_new=is_new)
        # Nothing is left of a new one's: it begins where its master's log does, which may have cleaned that file.
        await _remove_past(queue, end.end_offset, files_left=0 if is_new else 1)
        if is_new:
            end, flushed_where = attrs.evolve(end, end_offset=0), 0
        table = room.topic_queue_table()
        commit_log = CommitLog.recovered(
            queue, end, table, flushed_where, self.tracer, on_begin=store_checkpoint.begin_at
        )
        self.stack.callback(commit_log.close)
        if point is not None and has_aborted:
            # A sync may have failed as the process died, and nobody was left to say so.
            await write_again(queue, commit_log.flushed_where, end.end_offset)
        self.tracer.emit(LogFlush(offset=await commit_log.flush()), "CommitLog")
        while sum(dispatcher.delete_expired(first) for dispatcher in derived.dispatchers):
            pass
        derived.consume_queues.correct_min_offset(first)
        if config.broker_role is not BrokerRole.SLAVE:
            derived.consume_queues.begin_own(end.end_offset)
        reput_from, last = (end.end_offset, last) if room.stopped_at is None else (room.stopped_at, room.last)
        reput = Reput(
            *(commit_log, derived.dispatchers, config.delay_levels_ms, reput_from, last, self.passed_over),
            is_within_batch=room.stopped_at is not None,
            checks_rows=self.environment.checks_rows,
            numpy_is_loaded=self.environment.numpy_is_loaded,
        )
        checkpointing = Checkpointing(commit_log, reput, store_checkpoint, derived.count, self.tracer)
        if not plan.is_trusted or checkpoint.is_overtaken or is_new:
            # A new store, or RocketMQ's, which promises nothing: from here on a crash finds a recovery point.
            derived.consume_queues.mark_dirty()
            await checkpointing.advance(_flushed_to(commit_log), force=True)
        disk.open(ABORT_FILE, allocate_bytes=0).close()
        await disk.sync_directory("")
        return StoreFiles(
            commit_log,
            deleted,
            derived.consume_queues,
            derived.index_service,
            derived.transaction_state_service,
            reput,
            checkpointing,
            disk,
            self.stack.pop_all(),
        )

    async def _correct_points(self, deleted: DeletedTopics, end_offset: int, *, is_new: bool) -> None:
        if is_new:
            await deleted.clear()
        elif self.config.broker_role is not BrokerRole.SLAVE:  # a slave's log may still have to come to these points
            await deleted.lower_to(end_offset)

    def _load_log(self, point: RecoveryPoint | None, *, after_crash: bool) -> MappedFileQueue:
        size_bytes = self.config.mapped_file_size_commit_log_bytes
        if point is not None and point.file_size_bytes != size_bytes:
            raise StoreLayoutError(
                f"its log has files of {point.file_size_bytes} bytes, mappedFileSizeCommitLog is {size_bytes}: "
                f"set it to {point.file_size_bytes}, or begin with another, empty directory"
            )
        queue = MappedFileQueue(self.environment.disk, COMMIT_LOG_DIRECTORY, size_bytes)
        self.stack.callback(queue.close)
        if point is None:
            queue.load()
        else:
            queue.load(holds_durable=must_be_there(point, after_crash=after_crash))
        return queue

    def _derived(
        self, queue: MappedFileQueue, plan: RecoveryPlan, deleted: DeletedTopics, *, is_orderly: bool
    ) -> _Derived:
        disk, wall_clock = self.environment.disk, self.environment.wall_clock
        derived = _Derived(
            ConsumeQueues(disk, self.config, deleted),
            IndexService(disk, self.config, wall_clock, is_orderly=is_orderly, is_trusted=plan.is_trusted),
            TransactionStateService(disk, record_reader(queue), is_orderly=is_orderly, is_trusted=plan.is_trusted),
        )
        for dispatcher in derived.dispatchers:
            self.stack.callback(dispatcher.close)
        return derived

    async def _bring_to_the_end(
        self,
        queue: MappedFileQueue,
        plan: RecoveryPlan,
        store_checkpoint: StoreCheckpoint,
        derived: _Derived,
        room: DispatchWhileRoom,
    ) -> tuple[LogEnd, DispatchRequest | None]:
        """Find the log's end, and dispatch what is missing of anything derived; also the last record met."""
        dispatchers, durable_to = derived.dispatchers, plan.durable_to
        begin_again, in_log = derived.begin_again(store_checkpoint), QueuesInLog(derived.consume_queues.deleted)
        if durable_to is None:
            checked = self.walk(queue, plan, plan.read_from, plan.read_from)
            durable_to = (await redo(checked, (in_log,))).end_offset
            if checked.last is not None:
                await queue.flush()
                log_end = RecoveryPoint.behind(checked.last, queue.file_size_bytes, durable_to)
                await store_checkpoint.begin_rebuilding(log_end)
        point = store_checkpoint.checkpoint.recovery_point
        is_rebuilding = plan.is_trusted and point is not None and point.is_rebuilding
        derived_to = queue.min_offset if is_rebuilding else durable_to
        begin = min([derived_to, *(dispatcher.recover(derived_to) for dispatcher in dispatchers)])
        last = None
        if not is_rebuilding:
            lost = _Lost(self, queue, plan, derived, durable_to, point if plan.is_trusted else None)
            if (lost_from := await lost.begin(in_log)) is not None:
                begin = min(begin, lost_from)
                if plan.is_trusted and point is not None:
                    await store_checkpoint.begin_rebuilding(point)
            last = await lost.dispatch_again(begin, begin_again)
        walk = self.walk(queue, plan, begin if is_rebuilding else durable_to, durable_to)
        end = await redo(walk, (room,), begin_again)
        why = f" ({end.reason})" if end.reason else ""
        _log.info("the log ends at %d%s; dispatched from %d: %s", end.end_offset, why, begin, plan.reason)
        if end.survivor is not None:
            await self._keep_aside(queue, end)
        return end, walk.last or last

    def walk(
        self, queue: MappedFileQueue, plan: RecoveryPlan, begin: int, trusted_to: int, limit: int = sys.maxsize
    ) -> LogWalk:
        """A walk over the log, from its first byte on at the earliest."""
        begin, trusted_to = max(begin, queue.min_offset), max(trusted_to, queue.min_offset)
        levels, check_crc = self.config.delay_levels_ms, self.config.check_crc_on_recover
        return LogWalk(queue, begin, trusted_to, plan.after_crash, levels, check_crc, limit, self.passed_over)

    async def _keep_aside(self, queue: MappedFileQueue, end: LogEnd) -> None:
        try:
            await keep_aside(self.environment.disk, queue, end)
        except OSError:
            _log.error("whole records stand past the log's end %d: what cannot be kept is not cut", end.end_offset)
            raise
        _log.warning("whole records stand past the log's end %d (%s): kept in cut/", end.end_offset, end.reason)


@attrs.frozen
class _Lost:
    """What queues and index lack of the records before `durable_to`, though all of it was there once."""

    opening: _Opening
    queue: MappedFileQueue
    plan: RecoveryPlan
    derived: _Derived
    durable_to: int
    #: None if RocketMQ wrote the store.
    point: RecoveryPoint | None

    async def begin(self, in_log: QueuesInLog) -> int | None:
        """From which log offset on something is missing; None if nothing is. `in_log`: of RocketMQ's last files.

        What the index lacks is all of it: then it is emptied.
        """
        point, queues, log_min = self.point, self.derived.consume_queues, self.queue.min_offset
        if point is None:
            begins = [begin for begin in (in_log.missing_from(queues), suspected_from(queues)) if begin is not None]
            return await self._confirmed(min(begins)) if begins else None
        counts = self.derived.count()
        if self.opening.config.message_index_enable and counts.index_files < point.index_files:
            _log.warning("%d of %d index files are there: all are made again", counts.index_files, point.index_files)
            self.derived.index_service.rebuild()
            return log_min
        if counts.queue_ends >= point.queue_ends:
            return None
        lost = point.queue_ends - counts.queue_ends
        _log.warning("%d entries of the queues are missing: their records are dispatched again", lost)
        suspected = None if counts.queues < point.queues else suspected_from(queues)
        return log_min if suspected is None else await self._confirmed(suspected)

    async def _confirmed(self, begin: int) -> int:
        """`begin`, or the log's first byte: if records from `begin` on do not join the queues, or are not enough."""
        queues = self.derived.consume_queues
        in_log = QueuesInLog(queues.deleted)
        await redo(self._walk(begin), (in_log,))
        earlier = in_log.missing_from(queues)
        is_enough = self.point is None or in_log.ends_after(queues) >= self.point.queue_ends
        return begin if is_enough and (earlier is None or earlier >= begin) else self.queue.min_offset

    async def dispatch_again(self, begin: int, begin_again: BeginAgain) -> DispatchRequest | None:
        """Dispatch what stands before `durable_to`, and say what was missing of the queues; the last record met."""
        if begin >= self.durable_to:
            return None
        queues = self.derived.consume_queues
        before = QueueEnds.of(queues)
        walk = self._walk(begin)
        await redo(walk, self.derived.dispatchers, begin_again)
        before.tell_what_was_missing(queues)
        _, ends = queues.add_up_ends()
        if self.point is not None and ends < self.point.queue_ends:
            missing = self.point.queue_ends - ends
            _log.warning("%d entries of the queues stay missing: the log does not have their records", missing)
        return walk.last

    def _walk(self, begin: int) -> LogWalk:
        return self.opening.walk(self.queue, self.plan, begin, self.durable_to, self.durable_to)
