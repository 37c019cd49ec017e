"""The message store: its log, its queues, its puts."""

from __future__ import annotations

from typing import Literal

from rmq_actors.tracing.event import Event


class StoreOpen(Event, kind="store.open", emitter="store.log.commit_log", actor="CommitLog"):
    """Recovery ended; offset is the log's end, status clean or torn_tail_cut; size: what was cut."""

    offset: int
    status: Literal["clean", "torn_tail_cut"]
    size: int = 0


class LogAppend(Event, kind="log.append", emitter="store.log.commit_log, testing.lost_files", actor="CommitLog"):
    """Bytes were appended at offset."""

    offset: int
    size: int


class LogRoll(Event, kind="log.roll", emitter="store.log.commit_log", actor="CommitLog"):
    """A new file begins at offset."""

    offset: int


class LogAllocate(
    Event, kind="log.allocate", emitter="store.log.allocate_mapped_file_service", actor="AllocateMappedFileService"
):
    """The next file was prepared; status ok, or what failed."""

    offset: int
    status: str


class LogDelete(Event, kind="log.delete", emitter="store.lifecycle.clean_services", actor="CleanCommitLogService"):
    """The oldest file was removed; offset is where the log begins now, status why."""

    offset: int
    status: str


class QueueDelete(
    Event, kind="queue.delete", emitter="store.lifecycle.clean_services", actor="CleanConsumeQueueService"
):
    """So many files of queues, index and transactions were removed: they spoke of nothing from offset on."""

    offset: int
    size: int


class StoreDiskFull(
    Event, kind="store.disk_full", emitter="store.lifecycle.clean_services", actor="CleanCommitLogService"
):
    """The disk is so many percent full; status: puts are refused, or accepted again."""

    status: str
    size: int


class LogTruncate(Event, kind="log.truncate", emitter="store.lifecycle.truncation", actor="CommitLog"):
    """A slave's log was cut at offset; size bytes after it were kept aside."""

    offset: int
    size: int


class LogFlush(Event, kind="log.flush", emitter="store.log.flush_services, store.lifecycle.store_files"):
    """Everything before offset is durable."""

    offset: int


class LogFlushFailed(Event, kind="log.flush_failed", emitter="store.log.flush_services"):
    """A sync failed: the store refuses writes."""

    offset: int
    status: str


class StoreTerm(Event, kind="store.term", emitter="store.files.term_file", actor="TermFile"):
    """The term of replication is another one, durably; status promoted, resigned, adopted."""

    status: str
    term: int
    leads: bool


class StoreDispatch(
    Event, kind="store.dispatch", emitter="store.dispatch.reput_message_service", actor="ReputMessageService"
):
    """Every record before offset is in its queue, and in the index or soon will be; size: records of this batch."""

    offset: int
    size: int


class StoreDispatchFailed(
    Event, kind="store.dispatch_failed", emitter="store.dispatch.reput_message_service", actor="ReputMessageService"
):
    """Records cannot be dispatched; it is tried again, and puts are refused meanwhile."""

    offset: int
    status: str
    detail: str


class StoreCheckpointEvent(
    Event,
    kind="store.checkpoint",
    emitter="store.dispatch.flush_consume_queue_service",
    actor="FlushConsumeQueueService",
):
    """Log, queues, index and transactions are durable before offset: a recovery begins there."""

    offset: int


class StoreCheckpointFailed(
    Event,
    kind="store.checkpoint_failed",
    emitter="store.dispatch.flush_consume_queue_service",
    actor="FlushConsumeQueueService",
):
    """A sync failed: the recovery point stays where it is until the next start."""

    status: str


class _Puts(Event):
    """One put, or several that are told at once."""

    msg_id: int
    #: None: it is one put.
    msg_id_last: int | None = None

    @property
    def msg_ids(self) -> range:
        """The numbers of the puts, in order."""
        return range(self.msg_id, (self.msg_id if self.msg_id_last is None else self.msg_id_last) + 1)


class PutBegin(_Puts, kind="put.begin", emitter="store.puts.message_puts", actor="MessageStore"):
    """Messages up to msg_id_last, or the one, were appended from offset on, and their puts wait.

    topic: theirs, if they have the same one; message_id: of a single message whose producer gave it one.
    """

    offset: int
    size: int
    topic: str | None = None
    message_id: str | None = None


class PutEnd(_Puts, kind="put.end", emitter="store.puts.message_puts, store.puts.row_answers", actor="MessageStore"):
    """Puts up to msg_id_last, or the one, were answered with status; offset is the last record's end.

    status not_waited: PUT_OK of a put that waits for neither disk nor slave.
    """

    offset: int
    status: str
