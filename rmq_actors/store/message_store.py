"""The store of one broker (DefaultMessageStore): its log's one writer, for producers and the HAClient alike."""

from __future__ import annotations

import attrs

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel
from rmq_actors.actors.services.supervisor import Supervisor
from rmq_actors.actors.services.timer import Timer
from rmq_actors.ports.disk import BytesLike
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.group_transfer import ReplicationState
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.flush_consume_queue_service import FlushConsumeQueueService
from rmq_actors.store.dispatch.receiving import Receiving
from rmq_actors.store.dispatch.reput_message_service import DISPATCHED, ReputMessageService
from rmq_actors.store.lifecycle.clean_services import LOG_MIN, CleanCommitLogService, CleanConsumeQueueService
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.store.log.allocate_mapped_file_service import AllocateMappedFileService
from rmq_actors.store.log.commit_log import AppendRefused, CommitLog
from rmq_actors.store.log.flush_modes import VisibleEnd, flush_mode
from rmq_actors.store.log.flush_services import (
    FLUSH_OUTCOMES,
    CommitRealTimeService,
    FlushOutcome,
    FlushService,
)
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.store.puts.message_puts import MessagePuts, PendingPut, PutResult
from rmq_actors.store.puts.put_completion_service import PutCompletionService
from rmq_actors.store.read.get_message import GetMessageResult, MessageFilter, MessageReads
from rmq_actors.store.read.query_message import QueryMessageResult, RecordLookup, query_message
from rmq_actors.store.read.queue_offsets import QueueOffsets
from rmq_actors.store.running_flags import RunningFlags
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.batch import MessageBatch
from rmq_actors.wire.record import Message

LOG_END = BroadcastChannel[int].declare(
    "store.log_end",
    carries="the offset after the log's last byte",
    sender="MessageStore",
    receiver="WriteSocketService and ReputMessageService (every flush mode but SYNC_FLUSH)",
)


@attrs.define(eq=False, repr=False)
class MessageStore:
    """An open store. Create with `open`, start its services with `start`, end an orderly stop with `shut_down`.

    `reads`, `offsets` and `records` answer everything that consumers and tools ask.
    """

    config: MessageStoreConfig
    files: StoreFiles
    #: For all that the broker does from time to time while this store is open.
    timer: Timer
    log_end: Broadcast[int]
    flush_outcomes: Broadcast[FlushOutcome]
    #: How far others may see the log: to be asked by everything that shows or sends it.
    visible_end: VisibleEnd
    #: The offset before which every record is in its queue and in the index.
    dispatched: Broadcast[int]
    receiving: Receiving
    running_flags: RunningFlags
    stats: StoreStatsService
    puts: MessagePuts
    reads: MessageReads
    offsets: QueueOffsets
    records: RecordLookup
    _flush_service: FlushService
    _commit_service: CommitRealTimeService
    _allocate_service: AllocateMappedFileService
    _completion_service: PutCompletionService
    _reput_service: ReputMessageService
    _flush_consume_queue_service: FlushConsumeQueueService
    clean_commit_log_service: CleanCommitLogService
    _clean_consume_queue_service: CleanConsumeQueueService

    @classmethod
    async def open(cls, config: MessageStoreConfig, environment: Environment, tracer: Tracer) -> MessageStore:
        """Open and recover the store. Raises `StoreLayoutError`, `DamagedLog`, `OSError`."""
        files = await StoreFiles.open(config, environment, tracer)
        commit_log = files.commit_log
        outcomes: Broadcast[FlushOutcome] = FLUSH_OUTCOMES.open()
        log_end, dispatched, log_min = LOG_END.open(), DISPATCHED.open(), LOG_MIN.open()
        timer, flags, receiving = Timer(), RunningFlags(), Receiving()
        stats = StoreStatsService(environment.wall_clock, timer)
        mode = flush_mode(config)
        flush_service = mode.flush_service(config, commit_log, outcomes, tracer)
        visible_end = mode.visible_end(commit_log, log_end, outcomes)
        completion_service = PutCompletionService(config, outcomes)
        puts = MessagePuts(
            config, commit_log, log_end, environment, tracer, flush_service, completion_service, flags, stats
        )
        commit_service = CommitRealTimeService(config, commit_log, puts.log_grew)
        allocate_service = AllocateMappedFileService(config, commit_log, environment.disk, tracer)
        puts.commit_requests, puts.allocate_requests = commit_service.requests, allocate_service.requests
        flush_consume_queue_service = FlushConsumeQueueService(
            files.checkpointing,
            commit_log,
            dispatched,
            outcomes,
            lambda: flush_service.failure,
            config.flush_consume_queue_thorough_interval_ms / 1000,
            config.checkpoint_log_bytes_max,
            tracer,
        )
        find_queue, memory_bytes = files.consume_queues.find, environment.physical_memory_bytes
        reads = MessageReads.create(config, commit_log, find_queue, visible_end.offset, stats, memory_bytes)
        return cls(
            config,
            files,
            timer,
            log_end,
            outcomes,
            visible_end,
            dispatched,
            receiving,
            flags,
            stats,
            puts,
            reads,
            QueueOffsets(commit_log, find_queue, reads),
            RecordLookup(commit_log, visible_end.offset),
            flush_service,
            commit_service,
            allocate_service,
            completion_service,
            ReputMessageService(files.reput, visible_end, dispatched, flags, tracer, receiving),
            flush_consume_queue_service,
            CleanCommitLogService(
                config,
                commit_log,
                environment.disk,
                environment.wall_clock,
                flags,
                lambda: files.checkpointing.offset,
                log_min,
                tracer,
                timer,
            ),
            CleanConsumeQueueService(files.reput.dispatchers, flush_consume_queue_service.sync, log_min, tracer),
        )

    @property
    def commit_log(self) -> CommitLog:
        """The log."""
        return self.files.commit_log

    async def start(self, system: Supervisor) -> None:
        """Start the store's services in `system`."""
        await system.start(self.timer)
        await system.start(self._completion_service)
        await system.start(self._flush_consume_queue_service)
        await system.start(self._flush_service)
        if self.config.transient_store_pool_enable:
            await system.start(self._commit_service)
        await system.start(self._allocate_service)
        await system.start(self._reput_service)
        if self.config.store_stats_sampling:
            await system.start(self.stats)
        await system.start(self._clean_consume_queue_service)
        await system.start(self.clean_commit_log_service)
        self.puts.log_grew()

    @property
    def failure(self) -> str:
        """Why nothing can become durable any more in this life of the store; empty while it can."""
        if self._flush_service.failure is not None:
            return f"a sync of the log failed: {self._flush_service.failure.reason}"
        return "a sync of what is derived from the log failed" if self.files.checkpointing.failed else ""

    async def shut_down(self) -> None:
        """Make everything durable, once the services have stopped in order. Raises `OSError`; `abort` then stays.

        So it does where a record cannot be read: what is after it is in no queue.
        """
        if self.failure:
            raise OSError(f"not stopped in order, the next start recovers: {self.failure}")
        try:
            await self.files.shut_down()
        except DamagedLog as error:
            raise OSError(f"not stopped in order, the next start recovers: {error}") from error

    def close(self) -> None:
        """Close the files, once the services have stopped."""
        self.files.close()

    async def put_message(self, message: Message) -> PutResult:
        """See `MessagePuts.put_message`."""
        return await self.puts.put_message(message)

    def async_put_message(self, message: Message) -> PendingPut:
        """See `MessagePuts.async_put_message`."""
        return self.puts.async_put_message(message)

    async def put_messages(self, batch: MessageBatch) -> PutResult:
        """See `MessagePuts.put_messages`."""
        return await self.puts.put_messages(batch)

    def async_put_messages(self, batch: MessageBatch) -> PendingPut:
        """See `MessagePuts.async_put_messages`."""
        return self.puts.async_put_messages(batch)

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: MessageFilter | None = None
    ) -> GetMessageResult:
        """See `MessageReads.get_message`."""
        return self.reads.get_message(topic, queue_id, offset, max_msg_nums, message_filter)

    async def query_message(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryMessageResult:
        """Find records by a key and when they were stored. See `query_message.query_message`. A checkpoint."""
        index = self.files.index_service
        return await query_message(self.config, index, self.records, topic, key, max_num, begin_ms, end_ms)

    def replicated(self, state: ReplicationState) -> None:
        """Take what is known of the slaves now, and answer the puts that enough of them have."""
        self._completion_service.replicated(state)

    async def wait_for_slaves(self, count: int) -> None:
        """Return when `count` slaves are connected: from then on a sync put waits for one instead of being refused.

        Raises `StoreStopped`.
        """
        await self._completion_service.wait_for_slaves(count)

    def check_follows(self) -> None:
        """Raise `AppendRefused` if this store takes no master's bytes any more: a sync has failed."""
        failure = self._flush_service.failure
        if failure is not None:
            raise AppendRefused(f"a sync failed: {failure.reason}")

    async def sync_log(self) -> int:
        """Return when what is in the log now is on the disk, and up to where that is, whatever the flush type.

        Raises `AppendRefused` after a failed sync. A checkpoint only if it has to wait.
        """
        end = self.commit_log.max_offset
        with self.flush_outcomes.subscribe() as outcomes:
            while self.commit_log.flushed_where < end:
                self.check_follows()
                self._flush_service.sync_to(end)
                await outcomes.receive()
        return end

    def append_to_commit_log(self, offset: int, data: BytesLike, *, whole_records: bool = False) -> int:
        """Append a master's bytes (DefaultMessageStore.appendToCommitLog); see `CommitLog.append_data`."""
        self.check_follows()
        end = self.commit_log.append_data(offset, data, whole_records=whole_records)
        self.puts.log_grew()
        return end
