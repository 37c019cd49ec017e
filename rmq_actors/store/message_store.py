"""The store of one broker (DefaultMessageStore): its log's one writer, for producers and the HAClient alike."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import attrs

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel
from rmq_actors.actors.services.service import Service
from rmq_actors.actors.services.supervisor import Supervisor
from rmq_actors.actors.services.timer import Timer
from rmq_actors.ports.disk import BytesLike
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.due_clock import StampedRecord
from rmq_actors.protocols.group_transfer import ReplicationState
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.flush_consume_queue_service import FlushConsumeQueueService
from rmq_actors.store.dispatch.receiving import Receiving
from rmq_actors.store.dispatch.reput_message_service import DISPATCHED, ReputMessageService
from rmq_actors.store.dispatch.transaction_state_service import TransactionStateService
from rmq_actors.store.lifecycle.clean_services import LOG_MIN, CleanCommitLogService, CleanConsumeQueueService
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.store.lifecycle.topic_deletion import TopicDeletion
from rmq_actors.store.log.allocate_mapped_file_service import ALLOCATE_REQUESTS, AllocateMappedFileService
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import VisibleEnd, flush_mode
from rmq_actors.store.log.flush_services import (
    COMMIT_REQUESTS,
    FLUSH_OUTCOMES,
    CommitRealTimeService,
    FlushOutcome,
    FlushService,
)
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.store.puts.message_puts import MessagePuts
from rmq_actors.store.puts.put_completion_service import PutCompletionService
from rmq_actors.store.read.get_message import MessageReads
from rmq_actors.store.read.query_message import QueryMessageResult, RecordLookup, query_message
from rmq_actors.store.read.queue_offsets import QueueOffsets
from rmq_actors.store.running_flags import RunningFlags
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.tracing.recorder import Tracer

LOG_END = BroadcastChannel[int].declare(
    "store.log_end",
    carries="the offset after the log's last byte",
    sender="MessageStore",
    receiver="WriteSocketService and ReputMessageService (every flush mode but SYNC_FLUSH)",
)

DELAYED = BroadcastChannel[StampedRecord].declare(
    "store.delayed",
    carries="where a delayed record ends that a put has appended, and both clocks when it was stamped",
    sender="MessageStore",
    receiver="ScheduleMessageService",
)


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageStore:
    """An open store. Create with `open`, start its services with `start`, end an orderly stop with `shut_down`.

    `puts` takes messages; `reads`, `offsets` and `records` answer everything that consumers and tools ask.
    """

    config: MessageStoreConfig
    files: StoreFiles
    #: For all that the broker does from time to time while this store is open.
    timer: Timer
    log_end: Broadcast[int]
    flush_outcomes: Broadcast[FlushOutcome]
    #: How far others may see the log: to be asked by everything that shows or sends it.
    visible_end: VisibleEnd
    #: The offset before which every record is in its queue, and in the index or soon will be.
    dispatched: Broadcast[int]
    receiving: Receiving
    running_flags: RunningFlags
    stats: StoreStatsService
    puts: MessagePuts
    reads: MessageReads
    offsets: QueueOffsets
    records: RecordLookup
    topic_deletion: TopicDeletion = attrs.field(init=False)
    _flush_consume_queue_service: FlushConsumeQueueService
    clean_commit_log_service: CleanCommitLogService
    _flush_service: FlushService
    _completion_service: PutCompletionService
    #: All services, in the order in which they start; they stop in the reverse order.
    _services: Sequence[Service]

    def __attrs_post_init__(self) -> None:
        self.topic_deletion = TopicDeletion(
            self.files, self.sync_log, self._flush_consume_queue_service.sync, self._look_again
        )

    def _look_again(self) -> None:
        """Wake everybody who follows the log."""
        self.visible_end.growth.put(self.visible_end.offset())

    @classmethod
    async def open(cls, config: MessageStoreConfig, environment: Environment, tracer: Tracer) -> MessageStore:
        """Open and recover the store. Raises `StoreLayoutError`, `DamagedLog`, `ConfigFileDamaged`, `OSError`."""
        files = await StoreFiles.open(config, environment, tracer)
        return _Assembly(config, environment, tracer, files).make_store()

    @property
    def commit_log(self) -> CommitLog:
        """The log."""
        return self.files.commit_log

    @property
    def dispatched_to(self) -> int:
        """The offset before which every record has been dispatched: all that is derived from the log knows of it."""
        return self.files.reput.reput_from_offset

    @property
    def transactions(self) -> TransactionStateService:
        """The open transactions."""
        return self.files.transaction_state_service

    async def start(self, system: Supervisor) -> None:
        """Start the store's services in `system`."""
        for service in self._services:
            await system.start(service)
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

    async def query_message(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryMessageResult:
        """Find records by a key and when they were stored. See `query_message.query_message`. A checkpoint."""
        with contextlib.suppress(OSError):  # of a full disk: ReputMessageService says so, and what is there is found
            self.files.reput.drain()
        files = self.files
        return await query_message(
            *(self.config, files.index_service, self.records, topic, key, max_num, begin_ms, end_ms),
            deleted=files.deleted_topics,
        )

    async def clean_expired_consume_queue(self) -> int:
        """Remove the files of queues and index that speak only of what the log has lost; how many.

        Each removal of a queue is durable before the next (cleanExpiredConsumerQueue). Raises `OSError`.
        """
        total = 0
        while await self._flush_consume_queue_service.sync():
            log_min = self.commit_log.min_offset
            removed = sum(dispatcher.delete_expired(log_min) for dispatcher in self.files.reput.dispatchers)
            total += removed
            if not removed:
                break
        return total

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


@attrs.define(eq=False, repr=False)
class _Assembly:
    """Makes a store of its open files: the channels first, then whoever is at their ends, then the store.

    Each part is made once, complete: nobody sets anything of it later.
    """

    config: MessageStoreConfig
    environment: Environment
    tracer: Tracer
    files: StoreFiles
    log_end: Broadcast[int] = attrs.field(factory=LOG_END.open, init=False)
    delayed: Broadcast[StampedRecord] = attrs.field(factory=DELAYED.open, init=False)
    log_min: Broadcast[int] = attrs.field(factory=LOG_MIN.open, init=False)
    dispatched: Broadcast[int] = attrs.field(factory=DISPATCHED.open, init=False)
    outcomes: Broadcast[FlushOutcome] = attrs.field(factory=FLUSH_OUTCOMES.open, init=False)
    timer: Timer = attrs.field(factory=Timer, init=False)
    flags: RunningFlags = attrs.field(factory=RunningFlags, init=False)

    def make_store(self) -> MessageStore:
        config, files, log = self.config, self.files, self.files.commit_log
        mode, receiving = flush_mode(config), Receiving()
        stats = StoreStatsService(self.environment.wall_clock, self.timer)
        visible_end = mode.visible_end(log, self.log_end, self.outcomes)
        flush_service = mode.flush_service(config, log, self.outcomes, self.tracer)
        completion_service = PutCompletionService(config, self.outcomes)
        puts, helpers = self._puts(flush_service, completion_service, stats)
        flush_consume_queue_service = self._flush_consume_queue_service(flush_service)
        clean_commit_log_service = self._clean_commit_log_service()
        reads = MessageReads.create(
            config,
            log,
            files.consume_queues.find,
            visible_end.offset,
            stats,
            self.environment.physical_memory_bytes,
        )
        return MessageStore(
            config=config,
            files=files,
            timer=self.timer,
            log_end=self.log_end,
            flush_outcomes=self.outcomes,
            visible_end=visible_end,
            dispatched=self.dispatched,
            receiving=receiving,
            running_flags=self.flags,
            stats=stats,
            puts=puts,
            reads=reads,
            offsets=QueueOffsets(log, files.consume_queues.find, reads),
            records=RecordLookup(log, visible_end.offset),
            flush_consume_queue_service=flush_consume_queue_service,
            clean_commit_log_service=clean_commit_log_service,
            flush_service=flush_service,
            completion_service=completion_service,
            services=[
                self.timer,
                completion_service,
                flush_consume_queue_service,
                flush_service,
                *helpers,
                ReputMessageService(
                    files.reput,
                    visible_end,
                    self.dispatched,
                    self.flags,
                    self.tracer,
                    self.timer,
                    receiving,
                    files.begin_again,
                ),
                *([stats] if config.store_stats_sampling else []),
                CleanConsumeQueueService(
                    files.reput.dispatchers, flush_consume_queue_service.sync, self.log_min, self.tracer
                ),
                clean_commit_log_service,
            ],
        )

    def _puts(
        self, flush_service: FlushService, completion_service: PutCompletionService, stats: StoreStatsService
    ) -> tuple[MessagePuts, Sequence[Service]]:
        """Puts, and the services that write what they leave in memory and prepare the files that they need."""
        config, log = self.config, self.files.commit_log
        commit_requests, to_commit = COMMIT_REQUESTS.open()
        allocate_requests, to_allocate = ALLOCATE_REQUESTS.open()
        puts = MessagePuts(
            config=config,
            commit_log=log,
            log_end=self.log_end,
            delayed=self.delayed,
            environment=self.environment,
            tracer=self.tracer,
            flush_service=flush_service,
            completion_service=completion_service,
            running_flags=self.flags,
            stats=stats,
            commit_requests=commit_requests,
            allocate_requests=allocate_requests,
            handed_rows=self.files.reput.rows,
        )
        allocate_service = AllocateMappedFileService(config, log, self.environment.disk, self.tracer, to_allocate)
        if not config.transient_store_pool_enable:
            return puts, [allocate_service]
        return puts, [CommitRealTimeService(config, log, puts.log_grew, to_commit), allocate_service]

    def _flush_consume_queue_service(self, flush_service: FlushService) -> FlushConsumeQueueService:
        return FlushConsumeQueueService(
            checkpointing=self.files.checkpointing,
            commit_log=self.files.commit_log,
            dispatched=self.dispatched,
            outcomes=self.outcomes,
            flush_failure=lambda: flush_service.failure,
            sync_to=flush_service.sync_to,
            interval_s=self.config.flush_consume_queue_thorough_interval_ms / 1000,
            bytes_max=self.config.checkpoint_log_bytes_max,
            tracer=self.tracer,
        )

    def _clean_commit_log_service(self) -> CleanCommitLogService:
        return CleanCommitLogService(
            config=self.config,
            commit_log=self.files.commit_log,
            disk=self.environment.disk,
            wall_clock=self.environment.wall_clock,
            flags=self.flags,
            needed_from=lambda: self.files.checkpointing.offset,
            log_min=self.log_min,
            tracer=self.tracer,
            timer=self.timer,
        )
