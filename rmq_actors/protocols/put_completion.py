"""Which waiting put is answered when, and with what status.

One machine holds every put that waits: for a sync of the disk (SYNC_FLUSH), for a slave (SYNC_MASTER), or for both.
Puts enter in the order of their end offsets, so one watermark and one queue per condition are enough: a rising
watermark releases puts from the front, and the sweeper looks only at the front. In RocketMQ this work is spread over
GroupCommitService, FlushDiskWatcher, GroupTransferService and the futures of CommitLog.asyncPutMessage.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import attrs

Token = TypeVar("Token")


class PutStatus(enum.Enum):
    """RocketMQ's PutMessageStatus: how a put ends."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


@attrs.define(eq=False)
class _Waiting(Generic[Token]):
    token: Token
    end_offset: int
    flush_status: PutStatus | None
    replica_status: PutStatus | None

    @property
    def status(self) -> PutStatus | None:
        """The answer, or None while something is awaited. A slave's failure hides the disk's, as in RocketMQ."""
        if self.flush_status is None or self.replica_status is None:
            return None
        return self.flush_status if self.replica_status is PutStatus.PUT_OK else self.replica_status


@attrs.frozen
class Completed(Generic[Token]):
    """An effect: answer the put of `token` with `status`."""

    token: Token
    status: PutStatus


@attrs.define(eq=False)
class _Condition(Generic[Token]):
    """One thing that puts wait for: everything before an offset flushed, or replicated."""

    timeout_status: PutStatus
    reached: int = 0
    queue: deque[tuple[float, _Waiting[Token]]] = attrs.field(factory=deque)

    def wait(self, put: _Waiting[Token], deadline: float) -> None:
        # Puts are swept in the order of their offsets: a deadline before its predecessor's would be seen too late.
        self.queue.append((max(deadline, self.queue[-1][0]) if self.queue else deadline, put))

    def advance(self, offset: int) -> Iterator[_Waiting[Token]]:
        self.reached = max(self.reached, offset)
        while self.queue and self.queue[0][1].end_offset <= self.reached:
            yield self.queue.popleft()[1]

    def expire(self, now: float) -> Iterator[_Waiting[Token]]:
        while self.queue and self.queue[0][0] <= now:
            yield self.queue.popleft()[1]


@attrs.define(eq=False)
class PutCompletion(Generic[Token]):
    """The waiting puts of one store.

    Times are seconds of one monotonic clock, offsets are bytes in the commit log. Every method returns the puts to
    answer now; it returns each put exactly once, so answer it. `waiting_max` bounds memory: past it `has_room` is
    False, and the store refuses the put.
    """

    waiting_max: int = 100_000
    _flush: _Condition[Token] = attrs.field(factory=lambda: _Condition(PutStatus.FLUSH_DISK_TIMEOUT), init=False)
    _replica: _Condition[Token] = attrs.field(factory=lambda: _Condition(PutStatus.FLUSH_SLAVE_TIMEOUT), init=False)
    #: Where the last taken put ends.
    last_end_offset: int = attrs.field(default=0, init=False)

    @property
    def has_room(self) -> bool:
        """Whether another put may wait."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more puts may wait."""
        return max(0, self.waiting_max - max(len(self._flush.queue), len(self._replica.queue)))

    @property
    def waiting(self) -> int:
        """How many puts wait for at least one thing; those that wait for both count once."""
        return len({id(put) for condition in (self._flush, self._replica) for _, put in condition.queue})

    def add(
        self,
        token: Token,
        end_offset: int,
        *,
        flush_deadline: float | None,
        replica_deadline: float | None,
        slave_available: bool = True,
    ) -> list[Completed[Token]]:
        """Take a put whose record ends at `end_offset`; a deadline of None means that thing is not awaited.

        If `slave_available` is False, the put does not wait for a slave, and its status is SLAVE_NOT_AVAILABLE. Raises
        `ValueError` if the offset is not above all earlier ones, which is our mistake.
        """
        if end_offset <= self.last_end_offset:
            raise ValueError(f"a put that ends at {end_offset} after one that ends at {self.last_end_offset}")
        self.last_end_offset = end_offset
        wants_flush = flush_deadline is not None and end_offset > self._flush.reached
        wants_replica = replica_deadline is not None and slave_available and end_offset > self._replica.reached
        put = _Waiting(
            token,
            end_offset,
            None if wants_flush else PutStatus.PUT_OK,
            None if wants_replica else PutStatus.PUT_OK if slave_available else PutStatus.SLAVE_NOT_AVAILABLE,
        )
        if wants_flush and flush_deadline is not None:
            self._flush.wait(put, flush_deadline)
        if wants_replica and replica_deadline is not None:
            self._replica.wait(put, replica_deadline)
        return [] if put.status is None else [Completed(token, put.status)]

    def flushed_to(self, offset: int) -> list[Completed[Token]]:
        """Everything before `offset` is durable."""
        return self._settle_flush(self._flush.advance(offset), PutStatus.PUT_OK)

    def replicated_to(self, offset: int) -> list[Completed[Token]]:
        """Enough live slaves have everything before `offset`."""
        return self._settle_replica(self._replica.advance(offset), PutStatus.PUT_OK)

    def flush_failed(self) -> list[Completed[Token]]:
        """A sync failed: what waits for the disk is not durable and will not become so in this life of the store."""
        return self._settle_flush(self._flush.expire(float("inf")), PutStatus.FLUSH_DISK_TIMEOUT)

    def expire(self, now: float) -> list[Completed[Token]]:
        """Answer what has waited too long."""
        done = self._settle_flush(self._flush.expire(now), self._flush.timeout_status)
        return done + self._settle_replica(self._replica.expire(now), self._replica.timeout_status)

    def wake_at(self) -> float:
        """When `expire` next has something to do; infinite when nothing waits."""
        flush, replica = self._flush.queue, self._replica.queue
        return min(flush[0][0] if flush else float("inf"), replica[0][0] if replica else float("inf"))

    def _settle_flush(self, puts: Iterator[_Waiting[Token]], status: PutStatus) -> list[Completed[Token]]:
        done = []
        for put in puts:
            put.flush_status = status
            if put.status is not None:
                done.append(Completed(put.token, put.status))
        return done

    def _settle_replica(self, puts: Iterator[_Waiting[Token]], status: PutStatus) -> list[Completed[Token]]:
        done = []
        for put in puts:
            put.replica_status = status
            if put.status is not None:
                done.append(Completed(put.token, put.status))
        return done
