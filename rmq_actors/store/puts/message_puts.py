"""Puts: from a producer's message to a record in the log, and to the answer that the configuration promises.

RocketMQ's path through DefaultMessageStore.asyncPutMessage(s) and CommitLog.asyncPutMessage(s). Only waiting for
the answer yields.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, LatestSender
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.due_clock import StampedRecord
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch.handed_rows import HandedRows
from rmq_actors.store.files.topic_names import IllegalTopic
from rmq_actors.store.log.commit_log import AppendMessageResult, CommitLog
from rmq_actors.store.log.flush_modes import FlushMode, flush_mode
from rmq_actors.store.log.flush_services import FlushService
from rmq_actors.store.puts.failed_puts import FailedPuts
from rmq_actors.store.puts.message_encoder import (
    LmqConsumeQueueNumExceeded,
    MessageEncoder,
    MultiDispatchFailed,
    check_topic_once,
)
from rmq_actors.store.puts.put_completion_service import PutCompletionService, WaitingPuts
from rmq_actors.store.puts.row_answers import RowAnswers, WaitingRows
from rmq_actors.store.running_flags import RunningFlags
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.tracing.events.store import PutBegin, PutEnd
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.batch import MessageBatch
from rmq_actors.wire.dispatch_request import PROPERTY_UNIQ_KEY, SCHEDULE_TOPIC, DispatchRequest
from rmq_actors.wire.message_rows import EncodedRows, MessageRow, encode_rows
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK, IllegalProperty
from rmq_actors.wire.record import (
    EncodedMessage,
    Message,
    MessageIllegal,
    PropertiesSizeExceeded,
    encode_host,
)
from rmq_actors.wire.row_of_message import row_of_message

_log = logging.getLogger(__name__)

#: In traces, the status of a put that is answered PUT_OK without having waited for disk and slave (WAIT=false).
NOT_WAITED = "not_waited"


class PutResult(NamedTuple):
    """How a put ended. `append` says where the message is; None if the store did not take it, `reason` then says why.

    A status other than PUT_OK with an `append` is RocketMQ's "stored, but not confirmed".
    """

    status: PutStatus
    append: AppendMessageResult | None
    reason: str = ""


@attrs.define(eq=False, repr=False)
class PendingPut:
    """A put that was taken or refused, and its answer, once there is one."""

    _append: AppendMessageResult | None = None
    _msg_id: int = -1
    _tracer: Tracer | None = None
    #: Told of the answer: how long it took.
    _took: Callable[[float], object] | None = None
    _arrived: float = 0.0
    result: PutResult | None = None
    _waited_for: trio.Event | None = attrs.field(default=None, init=False)
    _tell: Callable[[PutResult], object] | None = attrs.field(default=None, init=False)

    @classmethod
    def refused(cls, status: PutStatus, reason: str) -> PendingPut:
        """One that the store did not take."""
        return cls(result=PutResult(status, None, reason))

    @property
    def append(self) -> AppendMessageResult | None:
        """Where the message is, before there is an answer too; None if the store did not take it."""
        return self._append

    def answered(self, status: PutStatus, begin: int = 0, end: int = 1, *, waited: bool = True) -> None:
        """Give the answer, and wake the task that waits for it; `waited` False: it says nothing of disk and slave."""
        append = self._append
        if append is not None and self._tracer is not None:
            told = status.value if waited else NOT_WAITED
            self._tracer.emit(PutEnd(msg_id=self._msg_id, offset=append.offset + append.size, status=told))
        self.result = PutResult(status, append)
        if self._took is not None:
            self._took(1000 * (trio.current_time() - self._arrived))
        if self._waited_for is not None:
            self._waited_for.set()
        if self._tell is not None:
            self._tell(self.result)

    def tell(self, tell: Callable[[PutResult], object]) -> None:
        """Call `tell` with the answer: at once if there is one, else in the step that gives it. It must not raise."""
        if self.result is not None:
            tell(self.result)
        else:
            self._tell = tell

    async def wait(self) -> PutResult:
        """The answer. A checkpoint."""
        if self.result is None:
            if self._waited_for is None:
                self._waited_for = trio.Event()
            await self._waited_for.wait()
            assert self.result is not None
        else:
            await trio.lowlevel.checkpoint()
        return self.result


class PutRows(NamedTuple):
    """Rows that were appended, and their answers."""

    encoded: EncodedRows
    answers: RowAnswers


@attrs.define(eq=False, repr=False)
class MessagePuts:
    """Takes a master's puts: the log's one writer as far as producers are concerned."""

    config: MessageStoreConfig
    _commit_log: CommitLog
    _log_end: Broadcast[int]
    #: Told before the record is dispatched.
    delayed: Broadcast[StampedRecord]
    _environment: Environment
    _tracer: Tracer
    _flush_service: FlushService
    _completion_service: PutCompletionService
    running_flags: RunningFlags
    stats: StoreStatsService
    #: To CommitRealTimeService: the end of what is appended, when that is after what is committed.
    _commit_requests: LatestSender[int]
    #: To AllocateMappedFileService: where the next file will begin.
    _allocate_requests: LatestSender[int]
    #: To ReputMessageService: the rows that were appended, which it need not read.
    _handed_rows: HandedRows
    _flush_mode: FlushMode = attrs.field(init=False)
    _encoder: MessageEncoder = attrs.field(init=False)
    _busy_until: float = attrs.field(default=float("-inf"), init=False)
    _next_msg_id: int = attrs.field(default=0, init=False)
    _failed_puts: FailedPuts = attrs.field(factory=FailedPuts, init=False)
    #: What the followers of the log's end, and the service that prepares files, were told last.
    _told_end: int = attrs.field(default=-1, init=False)
    _told_next_file: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._flush_mode = flush_mode(self.config)
        self._encoder = MessageEncoder(self.config, self._commit_log)

    async def put_message(self, message: Message) -> PutResult:
        """Append a message and wait for what the configuration promises: the disk (SYNC_FLUSH), a slave (SYNC_MASTER).

        With property WAIT=false it waits for neither. Always answers within the longer of syncFlushTimeout and
        slaveTimeout. A checkpoint.
        """
        return await self.async_put_message(message).wait()

    async def put_messages(self, batch: MessageBatch) -> PutResult:
        """Append a batch, all of it or nothing, in one file, and wait like `put_message`. A checkpoint."""
        return await self.async_put_messages(batch).wait()

    def async_put_message(self, message: Message, *, waits: bool | None = None) -> PendingPut:
        """Append a message now, without waiting for its answer (asyncPutMessage); many may be in flight.

        `waits`, for what the broker itself makes: whether it waits for disk and slave, whatever its property WAIT says,
        which is stored.
        """
        arrived = trio.current_time()
        refusal = self._refusal(arrived)
        if refusal is not None:
            return refusal
        try:
            encoded = self._encoder.encode(message, keeps_wait=waits is not None)
        except (MessageIllegal, IllegalProperty, IllegalTopic) as error:
            return self._refuse(_status_of(error), str(error))
        if waits is None:
            waits = _waits(message.properties)
        return self._append(encoded, message.store_host, arrived, message, waits=waits)

    def async_put_messages(self, batch: MessageBatch) -> PendingPut:
        """Append a batch now, without waiting for its answer (asyncPutMessages)."""
        arrived = trio.current_time()
        refusal = self._refusal(arrived)
        if refusal is not None:
            return refusal
        try:
            encoded = self._encoder.encode_batch(batch)
        except (MessageIllegal, IllegalProperty, IllegalTopic) as error:
            return self._refuse(_status_of(error), str(error))
        return self._append(encoded, batch.store_host, arrived, None, waits=_waits(batch.properties))

    def put_rows(self, rows: Sequence[MessageRow], store_host: str) -> PutRows | None:
        """Append rows in one write: all of them, or those before a special one.

        A special one needs another file, or is illegal, or may not wait. None where nothing was appended: no row can
        be, or the write failed. Put what is left one by one: that says why.
        """
        arrived = trio.current_time()
        if self.config.uses_transient_store_pool or self._why_refused(arrived) is not None:
            return None
        log, waits = self._commit_log, self._puts_may_wait
        if waits:
            rows = rows[: self._completion_service.completion.room]
        try:
            for topic in {row.topic for row in rows}:
                check_topic_once(topic)
            encoded = encode_rows(
                rows,
                store_host=encode_host(store_host),
                begin_offset=log.append_offset,
                room_bytes=log.room_for_rows_bytes,
                store_timestamp_ms=self._environment.wall_clock.now_ms(),
                max_message_size_bytes=self.config.max_message_size_bytes,
                next_queue_offset=log.next_queue_offset,
            )
            if not encoded:
                return None
            log.append_rows(encoded)
        except (MessageIllegal, IllegalTopic, OSError):
            return None
        self._handed_rows.put(encoded.requests, encoded.properties_bytes)
        self.log_grew()
        if self._failed_puts.fail:
            self._failed_puts.succeeded()
        self._note_duration(arrived)
        for topic, (size_bytes, count) in encoded.topics.items():
            self.stats.put(topic, size_bytes, count)
        answers = RowAnswers(waits)
        if waits:
            self._await_rows(encoded, answers, arrived)
        else:
            self._answer_rows(encoded, answers, arrived)
        return PutRows(encoded, answers)

    @property
    def may_more_wait(self) -> bool:
        """Whether fewer than waitingPutsMax wait for a disk or a slave."""
        return self._completion_service.completion.has_room

    @property
    def _puts_may_wait(self) -> bool:
        return self._flush_mode.puts_wait_for_sync or self.config.broker_role is BrokerRole.SYNC_MASTER

    def _answer_rows(self, encoded: EncodedRows, answers: RowAnswers, arrived: float) -> None:
        """All of them: they wait for nothing."""
        count, end = len(encoded), encoded.end_offset
        first_id, self._next_msg_id = self._next_msg_id, self._next_msg_id + count
        last_id = first_id + count - 1 if count > 1 else None
        self._tracer.emit(_rows_begun(encoded, encoded.requests, first_id))
        self._tracer.emit(PutEnd(msg_id=first_id, msg_id_last=last_id, offset=end, status=PutStatus.PUT_OK.value))
        self.stats.puts_took(1000 * (trio.current_time() - arrived), count)
        answers.answered(0, count, PutStatus.PUT_OK)

    def _begin_rows(
        self, encoded: EncodedRows, answers: RowAnswers, begin: int, end: int, arrived: float
    ) -> WaitingRows:
        """Tell of some rows as puts that have begun."""
        rows = encoded.requests[begin:end]
        first_id, self._next_msg_id = self._next_msg_id, self._next_msg_id + len(rows)
        self._tracer.emit(_rows_begun(encoded, rows, first_id))
        ends = [row.end_offset for row in rows]
        return WaitingRows(answers, begin, ends, first_id, self._tracer, self.stats, arrived)

    def _await_rows(self, encoded: EncodedRows, answers: RowAnswers, arrived: float) -> None:
        """Let rows wait, together where they wait for the same things."""
        begin = 0
        ends = [request.end_offset for request in encoded.requests]
        for wait, of_group in itertools.groupby(ends, self._what_to_await):
            end = begin + len(list(of_group))
            rows = self._begin_rows(encoded, answers, begin, end, arrived)
            if wait is None:
                rows.answered(PutStatus.PUT_OK, 0, end - begin)
            else:
                self._await(rows, rows.end_offsets, wait, arrived)
            begin = end

    def _pending(
        self, appended: AppendMessageResult, topic: str, message: Message | None, arrived: float
    ) -> PendingPut:
        msg_id, self._next_msg_id = self._next_msg_id, self._next_msg_id + 1
        message_id = None if message is None else message.properties.get(PROPERTY_UNIQ_KEY)
        self._tracer.emit(
            PutBegin(msg_id=msg_id, offset=appended.offset, size=appended.size, topic=topic, message_id=message_id)
        )
        return PendingPut(appended, msg_id, self._tracer, self.stats.put_took, arrived)

    def log_grew(self) -> None:
        """Tell services that follow the log's end that it has moved: one wake-up each, however many puts moved it."""
        log = self._commit_log
        end = log.max_offset
        if end != self._told_end:
            self._told_end = end
            self._flush_service.request(end)
            self._log_end.put(end)
            if log.next_file_offset != self._told_next_file:
                self._told_next_file = log.next_file_offset
                if self._told_next_file is not None:
                    self._allocate_requests.put(self._told_next_file)
        if log.append_offset != end:
            self._commit_requests.put(log.append_offset)

    # Refusing.

    def _refusal(self, now: float) -> PendingPut | None:
        """The answer while the store takes no put, whatever it is."""
        why = self._why_refused(now)
        return None if why is None else self._refuse(*why)

    def _why_refused(self, now: float) -> tuple[PutStatus, str] | None:
        """Why the store takes no put now: the order is RocketMQ's (checkStoreStatus)."""
        not_available = ""
        if self._completion_service.stopped:
            not_available = "the store has stopped"
        elif self._flush_service.is_stopping:
            not_available = "the store is stopping"
        elif self.config.broker_role is BrokerRole.SLAVE:
            not_available = "a slave takes no puts"
        elif self._flush_service.failure is not None:
            not_available = f"a sync failed: {self._flush_service.failure.reason}"
        elif not self.running_flags.is_writeable:
            not_available = f"the store is not writeable: {self.running_flags.why_not_writeable}"
        elif not self._completion_service.completion.has_room:
            not_available = f"{self.config.waiting_puts_max} puts wait already"
        if not_available:
            return PutStatus.SERVICE_NOT_AVAILABLE, not_available
        if now < self._busy_until:
            limit_ms = self.config.os_page_cache_busy_time_out_ms
            return PutStatus.OS_PAGECACHE_BUSY, f"an append took longer than {limit_ms} ms"
        return None

    def _note_duration(self, began: float) -> None:
        """RocketMQ refuses puts while another has been at the log for long; here nobody can see one that is under way.

        So a put that has held up everything is followed by a pause of puts, in which all else gets its turn.
        """
        limit_s = self.config.os_page_cache_busy_time_out_ms / 1000
        now = trio.current_time()
        if now - began > limit_s:
            self._busy_until = now + limit_s
            _log.warning("an append took %.3f s: no puts for %.3f s", now - began, limit_s)

    def _refuse(self, status: PutStatus, reason: str) -> PendingPut:
        self.stats.put_failed()
        return PendingPut.refused(status, reason)

    # Appending.

    def _append(
        self, encoded: EncodedMessage, store_host: str, arrived: float, message: Message | None, *, waits: bool
    ) -> PendingPut:
        to_pool, (topic, _) = self.config.uses_transient_store_pool, encoded.topic_queue
        wall_ms = self._environment.wall_clock.now_ms()
        stamped_s = trio.current_time() if topic == SCHEDULE_TOPIC else None
        try:
            appended = self._commit_log.append_message(encoded, wall_ms, store_host=store_host, to_pool=to_pool)
            if stamped_s is not None:
                self.delayed.put(StampedRecord(appended.end_offset, stamped_s, wall_ms))
            if message is not None and not to_pool:
                self._hand_on(message, encoded, appended)
        except MessageIllegal as error:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, str(error))
        except OSError as error:
            log = self._commit_log
            self._failed_puts.failed(error, log.append_offset, log.file_size_bytes, arrived)
            return self._refuse(PutStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        finally:
            self.log_grew()  # also by a blank alone, when the next file could not be made
        if self._failed_puts.fail:
            self._failed_puts.succeeded()
        self._note_duration(arrived)
        self.stats.put(topic, appended.size, len(appended.starts))
        pending = self._pending(appended, topic, message, arrived)
        if not waits:
            pending.answered(PutStatus.PUT_OK, waited=False)
        else:
            self._await_confirmation(pending, appended.end_offset, arrived)
        return pending

    def _hand_on(self, message: Message, encoded: EncodedMessage, appended: AppendMessageResult) -> None:
        """Spare the dispatcher the reading of a plain message."""
        row = row_of_message(message, encoded, appended.offset, appended.queue_offset, appended.store_timestamp_ms)
        if row is not None:
            self._handed_rows.put_one(row, len(encoded.data) - len(message.body))

    def _await_confirmation(self, pending: PendingPut, end_offset: int, arrived: float) -> None:
        wait = self._what_to_await(end_offset)
        if wait is None:
            pending.answered(PutStatus.PUT_OK)
        else:
            self._await(pending, (end_offset,), wait, arrived)

    def _what_to_await(self, end_offset: int) -> tuple[bool, bool] | None:
        """Whether a put that ends there waits for a slave, and whether one is near enough; None: it waits for nothing.

        Whether it waits for the disk is the same for all puts.
        """
        config = self.config
        if config.broker_role is not BrokerRole.SYNC_MASTER:
            return (False, True) if self._flush_mode.puts_wait_for_sync else None
        replication = self._completion_service.replication_for(end_offset)
        if not replication.is_needed:
            return (False, True) if self._flush_mode.puts_wait_for_sync else None
        return True, replication.is_slave_ok(end_offset, config.ha_slave_fallbehind_max_bytes)

    def _await(self, waiting: WaitingPuts, end_offsets: Sequence[int], wait: tuple[bool, bool], arrived: float) -> None:
        config, (for_slave, is_slave_ok) = self.config, wait
        sync_flush = self._flush_mode.puts_wait_for_sync
        self._completion_service.add(
            waiting,
            end_offsets,
            flush_deadline=arrived + config.sync_flush_timeout_ms / 1000 if sync_flush else None,
            replica_deadline=arrived + config.slave_timeout_ms / 1000 if for_slave else None,
            ok=is_slave_ok,
        )


def _rows_begun(encoded: EncodedRows, rows: Sequence[DispatchRequest], first_id: int) -> PutBegin:
    """What is told of some of the rows that were encoded: of one topic if all of them are."""
    first, count = rows[0], len(rows)
    return PutBegin(
        msg_id=first_id,
        msg_id_last=first_id + count - 1 if count > 1 else None,
        offset=first.commit_log_offset,
        size=rows[-1].end_offset - first.commit_log_offset,
        topic=first.topic if len({topic for topic, _ in encoded.next_queue_offsets}) == 1 else None,
        message_id=first.properties.get(PROPERTY_UNIQ_KEY) if count == 1 else None,
    )


def _status_of(error: MessageIllegal | IllegalProperty | IllegalTopic) -> PutStatus:
    if isinstance(error, PropertiesSizeExceeded):
        return PutStatus.PROPERTIES_SIZE_EXCEEDED
    if isinstance(error, LmqConsumeQueueNumExceeded):
        return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    if isinstance(error, MultiDispatchFailed):
        return PutStatus.UNKNOWN_ERROR
    return PutStatus.MESSAGE_ILLEGAL


def _waits(properties: Mapping[str, str]) -> bool:
    """Whether the put waits for disk and slave (Message.isWaitStoreMsgOK)."""
    wait = properties.get(PROPERTY_WAIT_STORE_MSG_OK)
    return wait is None or wait.lower() == "true"
