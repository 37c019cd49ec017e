"""Which waiting put is answered when, and with what status.

One machine holds every put that waits: for a sync of the disk (SYNC_FLUSH), for a slave (SYNC_MASTER), or for both.
Puts enter in the order of their end offsets, many at a time as runs, so one watermark and one queue per condition are
enough: a rising watermark releases puts from the front, and the sweeper looks only at the front. In RocketMQ this work
is spread over GroupCommitService, FlushDiskWatcher, GroupTransferService and the futures of CommitLog.asyncPutMessage.
"""

from __future__ import annotations

import bisect
import enum
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

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


@attrs.define(eq=False, repr=False)
class _Progress:
    """How far one condition has come for a run: its first `count` puts have it; `rest`: what the others get instead."""

    #: It never falls.
    count: int
    #: None: they wait.
    rest: PutStatus | None

    def status(self, number: int) -> PutStatus:
        """What this condition says of a put that waits for it no more."""
        return PutStatus.PUT_OK if number < self.count or self.rest is None else self.rest


@attrs.define(eq=False, repr=False)
class _Run(Generic[Token]):
    """Puts that were made together, answered from the first one on."""

    token: Token
    #: Rising.
    end_offsets: Sequence[int]
    flush: _Progress
    replica: _Progress
    #: How many of its puts are answered: those that wait for neither condition. It never falls: each is answered once.
    answered: int = 0

    def answers(self) -> list[Completed[Token]]:
        """Those that are to be answered now. A slave's failure hides the disk's, as in RocketMQ."""
        puts = len(self.end_offsets)
        flush, replica = self.flush, self.replica
        begin, end = self.answered, flush.count if flush.rest is None else puts
        if replica.rest is None and replica.count < end:
            end = replica.count
        assert begin <= end <= puts, "a put that was answered waits again"
        if begin == end:
            return []
        self.answered = end
        done: list[Completed[Token]] = []
        while begin < end:
            edge = end
            if end - begin > 1:
                counts = (flush.count, replica.count)
                edge = min([count for count in counts if begin < count < end], default=end)
            status = replica.status(begin)
            if status is PutStatus.PUT_OK:
                status = flush.status(begin)
            done.append(Completed(self.token, status, begin, edge))
            begin = edge
        return done


class Completed(NamedTuple, Generic[Token]):
    """An effect: answer the puts of `token` from number `begin` to before `end` with `status`. One put is number 0."""

    token: Token
    status: PutStatus
    begin: int = 0
    end: int = 1


@attrs.define(eq=False, repr=False)
class _Condition(Generic[Token]):
    """One thing that puts wait for: everything before an offset flushed, or replicated."""

    timeout_status: PutStatus
    #: It never falls.
    reached: int = 0
    #: The runs of which some puts wait, with their deadlines: offsets rise, deadlines never fall.
    queue: deque[tuple[float, _Run[Token], _Progress]] = attrs.field(factory=deque)
    #: How many puts wait for it: those of `queue` that its progress does not count.
    waiting: int = 0

    def wait(self, run: _Run[Token], progress: _Progress, deadline: float) -> None:
        assert progress.count < len(run.end_offsets), "nothing of it waits"
        # Puts are swept in the order of their offsets: a deadline before its predecessor's would be seen too late.
        self.queue.append((max(deadline, self.queue[-1][0]) if self.queue else deadline, run, progress))
        self.waiting += len(run.end_offsets) - progress.count

    def advance(self, offset: int) -> Iterator[_Run[Token]]:
        self.reached = max(self.reached, offset)
        while self.queue:
            _, run, progress = self.queue[0]
            count = bisect.bisect_right(run.end_offsets, self.reached)
            if count == progress.count:
                return
            assert count > progress.count, "what was reached is reached"
            self.waiting -= count - progress.count
            progress.count = count
            yield run
            if count < len(run.end_offsets):
                return
            self.queue.popleft()

    def expire(self, now: float, status: PutStatus) -> Iterator[_Run[Token]]:
        while self.queue and self.queue[0][0] <= now:
            _, run, progress = self.queue.popleft()
            self.waiting -= len(run.end_offsets) - progress.count
            assert self.waiting >= 0, "more puts have left than came"
            progress.rest = status
            yield run


@attrs.define(eq=False, repr=False)
class PutCompletion(Generic[Token]):
    """The waiting puts of one store.

    Times are seconds of one monotonic clock, offsets are bytes in the commit log. Every method returns the puts to
    answer now; it returns each put exactly once, so answer it. `waiting_max` bounds memory: past it `has_room` is
    False, and the store refuses the put.
    """

    waiting_max: int = 100_000
    _flush: _Condition[Token] = attrs.field(factory=lambda: _Condition(PutStatus.FLUSH_DISK_TIMEOUT), init=False)
    _replica: _Condition[Token] = attrs.field(factory=lambda: _Condition(PutStatus.FLUSH_SLAVE_TIMEOUT), init=False)
    #: Where the last taken put ends. It rises with each put.
    last_end_offset: int = attrs.field(default=0, init=False)

    @property
    def has_room(self) -> bool:
        """Whether another put may wait."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more puts may wait."""
        return max(0, self.waiting_max - max(self._flush.waiting, self._replica.waiting))

    @property
    def waiting(self) -> int:
        """How many puts wait for at least one thing; those that wait for both count once."""
        runs = {id(run): run for condition in (self._flush, self._replica) for _, run, _ in condition.queue}
        return sum(len(run.end_offsets) - run.answered for run in runs.values())

    def add(
        self,
        token: Token,
        end_offset: int,
        *,
        flush_deadline: float | None,
        replica_deadline: float | None,
        slave_available: bool = True,
    ) -> list[Completed[Token]]:
        """`add_run` of one put, whose record ends at `end_offset`."""
        return self.add_run(
            token,
            (end_offset,),
            flush_deadline=flush_deadline,
            replica_deadline=replica_deadline,
            slave_available=slave_available,
        )

    def add_run(
        self,
        token: Token,
        end_offsets: Sequence[int],
        *,
        flush_deadline: float | None,
        replica_deadline: float | None,
        slave_available: bool = True,
    ) -> list[Completed[Token]]:
        """Take puts whose records end at these offsets; a deadline of None means that thing is not awaited.

        If `slave_available` is False, they do not wait for a slave, and their status is SLAVE_NOT_AVAILABLE. Raises
        `ValueError` if an offset is not above all earlier ones, which is our mistake.
        """
        if end_offsets[0] <= self.last_end_offset:
            raise ValueError(f"a put that ends at {end_offsets[0]} after one that ends at {self.last_end_offset}")
        self.last_end_offset = end_offsets[-1]
        flush = self._progress(self._flush, end_offsets, flush_deadline)
        if slave_available:
            replica = self._progress(self._replica, end_offsets, replica_deadline)
        else:
            replica = _Progress(0, PutStatus.SLAVE_NOT_AVAILABLE)
        run = _Run(token, end_offsets, flush, replica)
        if flush.rest is None and flush_deadline is not None:
            self._flush.wait(run, flush, flush_deadline)
        if replica.rest is None and replica_deadline is not None:
            self._replica.wait(run, replica, replica_deadline)
        return run.answers()

    @staticmethod
    def _progress(condition: _Condition[Token], end_offsets: Sequence[int], deadline: float | None) -> _Progress:
        puts = len(end_offsets)
        count = puts if deadline is None else bisect.bisect_right(end_offsets, condition.reached)
        return _Progress(count, PutStatus.PUT_OK if count == puts else None)

    def flushed_to(self, offset: int) -> list[Completed[Token]]:
        """Everything before `offset` is durable."""
        return _answers(self._flush.advance(offset))

    def replicated_to(self, offset: int) -> list[Completed[Token]]:
        """Enough live slaves have everything before `offset`."""
        return _answers(self._replica.advance(offset))

    def flush_failed(self) -> list[Completed[Token]]:
        """A sync failed: what waits for the disk is not durable and will not become so in this life of the store."""
        return _answers(self._flush.expire(float("inf"), self._flush.timeout_status))

    def expire(self, now: float) -> list[Completed[Token]]:
        """Answer what has waited too long."""
        done = _answers(self._flush.expire(now, self._flush.timeout_status))
        return done + _answers(self._replica.expire(now, self._replica.timeout_status))

    def wake_at(self) -> float:
        """When `expire` next has something to do; infinite when nothing waits."""
        flush, replica = self._flush.queue, self._replica.queue
        return min(flush[0][0] if flush else float("inf"), replica[0][0] if replica else float("inf"))


def _answers(runs: Iterator[_Run[Token]]) -> list[Completed[Token]]:
    return [completed for run in runs for completed in run.answers()]
