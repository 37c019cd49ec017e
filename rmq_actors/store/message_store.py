"""The store of one broker (DefaultMessageStore): its log's one writer, for producers and the HAClient alike."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.channels import Broadcast, BroadcastChannel, LatestSender
from rmq_actors.actors.system import ActorSystem
from rmq_actors.ports.disk import BytesLike
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.group_transfer import ReplicationState
from rmq_actors.protocols.put_completion import PutCompletion, PutStatus
from rmq_actors.store.commit_log import AppendMessageResult, AppendRefused, CommitLog
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.flush_services import FLUSH_OUTCOMES, FlushOutcome, FlushService
from rmq_actors.store.put_completion_service import REPLICATION_STATE, PutCompletionService, WaitingPut
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK, IllegalProperty
from rmq_actors.wire.record import Message, MessageIllegal, PropertiesSizeExceeded, encode_message

_log = logging.getLogger(__name__)

LOG_END = BroadcastChannel[int].declare(
    "store.log_end",
    carries="the offset behind the log's last byte",
    sender="MessageStore",
    receiver="WriteSocketService (every flush mode but SYNC_FLUSH)",
)


@attrs.frozen
class PutResult:
    """How a put ended. `append` says where the message is; None if the store did not take it, `reason` then says why.

    A status other than PUT_OK with an `append` is RocketMQ's "stored, but not confirmed".
    """

    status: PutStatus
    append: AppendMessageResult | None
    reason: str = ""


@attrs.define(eq=False)
class PendingPut:
    """A put that was taken or refused, and its answer, once there is one."""

    result: PutResult | None = attrs.field(default=None, init=False)
    _answered: trio.Event = attrs.field(factory=trio.Event, init=False)

    @classmethod
    def answered(cls, result: PutResult) -> PendingPut:
        """One that needs no waiting."""
        pending = cls()
        pending.answer(result)
        return pending

    def answer(self, result: PutResult) -> None:
        """Wake whoever waits."""
        self.result = result
        self._answered.set()

    async def wait(self) -> PutResult:
        """The answer. A checkpoint."""
        await self._answered.wait()
        assert self.result is not None
        return self.result


@attrs.define(eq=False)
class MessageStore:
    """An open store. Create with `open`, start its services with `start`."""

    config: MessageStoreConfig
    commit_log: CommitLog
    log_end: Broadcast[int]
    flush_outcomes: Broadcast[FlushOutcome]
    replication_states: LatestSender[ReplicationState]
    _environment: Environment
    _tracer: Tracer
    _flush_service: FlushService
    _completion_service: PutCompletionService
    _next_msg_id: int = attrs.field(default=0, init=False)

    @classmethod
    def open(cls, config: MessageStoreConfig, environment: Environment, tracer: Tracer) -> MessageStore:
        """Open and recover the store. Raises `StoreLayoutError`, `DamagedLog`, `OSError`."""
        commit_log = CommitLog.open(environment.disk, config.mapped_file_size_commit_log_bytes, tracer)
        outcomes: Broadcast[FlushOutcome] = FLUSH_OUTCOMES.open()
        send, receive = REPLICATION_STATE.open()
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush_service = FlushService("GroupCommitService", 0.0, commit_log, outcomes, tracer)
        else:
            interval_s = config.flush_interval_commit_log_ms / 1000
            flush_service = FlushService("FlushRealTimeService", interval_s, commit_log, outcomes, tracer)
        return cls(
            config,
            commit_log,
            LOG_END.open(),
            outcomes,
            send,
            environment,
            tracer,
            flush_service,
            PutCompletionService(PutCompletion(config.waiting_puts_max), outcomes, receive),
        )

    async def start(self, system: ActorSystem) -> None:
        """Start the store's services in `system`."""
        await system.start(self._completion_service)
        await system.start(self._flush_service)
        self._flush_service.requests.put(self.commit_log.max_offset)

    def close(self) -> None:
        """Close the files, once the services have stopped."""
        self.commit_log.close()

    async def put_message(self, message: Message) -> PutResult:
        """Append a message and wait for what the configuration promises: the disk (SYNC_FLUSH), a slave (SYNC_MASTER).

        With property WAIT=false it waits for neither; WAIT is not stored. Always answers within the longer of
        syncFlushTimeout and slaveTimeout. A checkpoint.
        """
        return await self.async_put_message(message).wait()

    def async_put_message(self, message: Message) -> PendingPut:
        """Append a message now, without waiting for its answer (asyncPutMessage); many may be in flight."""
        arrived = trio.current_time()
        appended = self._append(message)
        if isinstance(appended, PutResult):
            return PendingPut.answered(appended)
        msg_id, self._next_msg_id = self._next_msg_id, self._next_msg_id + 1
        self._tracer.emit("put.begin", "MessageStore", msg_id=msg_id, offset=appended.offset, size=appended.size)
        pending = PendingPut()

        def answer(status: PutStatus) -> None:
            self._tracer.emit("put.end", "MessageStore", msg_id=msg_id, offset=appended.end_offset, status=status.value)
            pending.answer(PutResult(status, appended))

        if message.properties.get(PROPERTY_WAIT_STORE_MSG_OK) == "false":
            answer(PutStatus.PUT_OK)
        else:
            self._await_confirmation(answer, appended.end_offset, arrived)
        return pending

    def _append(self, message: Message) -> AppendMessageResult | PutResult:
        if self.config.broker_role is BrokerRole.SLAVE:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, "a slave takes no puts")
        if self._completion_service.stopped:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, "the store has stopped")
        failure = self._flush_service.failure
        if failure is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, f"a sync failed: {failure.reason}")
        if not self._completion_service.completion.has_room:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, f"{self.config.waiting_puts_max} puts wait already")
        if PROPERTY_WAIT_STORE_MSG_OK in message.properties:
            stored = {name: value for name, value in message.properties.items() if name != PROPERTY_WAIT_STORE_MSG_OK}
            message = attrs.evolve(message, properties=stored)
        try:
            encoded = encode_message(message, max_message_size_bytes=self.config.max_message_size_bytes)
            appended = self.commit_log.append_message(encoded, self._environment.wall_clock.now_ms())
        except PropertiesSizeExceeded as error:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, None, str(error))
        except (MessageIllegal, IllegalProperty) as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, None, str(error))
        except OSError as error:
            _log.warning("a put failed: %s", error)
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, None, str(error))
        self._grown()
        return appended

    def _await_confirmation(self, answer: Callable[[PutStatus], None], end_offset: int, arrived: float) -> None:
        config = self.config
        sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        sync_master = config.broker_role is BrokerRole.SYNC_MASTER
        replication = self._completion_service.replication
        self._completion_service.add(
            WaitingPut(answer),
            end_offset,
            flush_deadline=arrived + config.sync_flush_timeout_ms / 1000 if sync_flush else None,
            replica_deadline=arrived + config.slave_timeout_ms / 1000 if sync_master else None,
            ok=not sync_master or replication.is_slave_ok(end_offset, config.ha_slave_fallbehind_max_bytes),
        )

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

    def append_to_commit_log(self, offset: int, data: BytesLike) -> None:
        """Append a master's bytes (DefaultMessageStore.appendToCommitLog). Raises `AppendRefused`."""
        self.check_follows()
        self.commit_log.append_data(offset, data)
        self._grown()

    def _grown(self) -> None:
        end = self.commit_log.max_offset
        self._flush_service.requests.put(end)
        self.log_end.put(end)
