"""The messages of one queue that a consumer has pulled and not consumed yet (ProcessQueue), by their queue offsets.

What may be committed is the offset of the lowest message that is still here: a message that takes long holds the offset
back, and those after it are consumed again after a crash. Orderly consumption takes messages out, and commits, or puts
them back. Time is an argument, in seconds.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import attrs

from rmq_actors.protocols.rebalance import REBALANCE_LOCK_MAX_LIVE_TIME_S


class Queued(Protocol):
    """What is kept here."""

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""
        ...

    @property
    def body(self) -> bytes:
        """What counts for the size."""
        ...


M = TypeVar("M", bound=Queued)


@attrs.define(eq=False, repr=False)
class _TreeMap(Generic[M]):
    """Messages in the order of their offsets."""

    _messages: dict[int, M] = attrs.field(factory=dict)
    #: Sorted; all before `_begin` are gone, and some after it may be.
    _offsets: list[int] = attrs.field(factory=list)
    _begin: int = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: M) -> bool:
        """Whether there was none at that offset."""
        offset = message.queue_offset
        is_new = offset not in self._messages
        self._messages[offset] = message
        if is_new:
            at = bisect.bisect_left(self._offsets, offset, self._begin)
            if at == len(self._offsets) or self._offsets[at] != offset:
                self._offsets.insert(at, offset)
        return is_new

    def remove(self, offset: int) -> M | None:
        found = self._messages.pop(offset, None)
        if found is not None:
            self._trim()
        return found

    @property
    def first(self) -> int:
        return self._offsets[self._begin]

    @property
    def last(self) -> int:
        return self._offsets[-1]

    def pop_first(self) -> M:
        found = self._messages.pop(self.first)
        self._trim()
        return found

    def clear(self) -> None:
        self._messages.clear()
        self._trim()

    def __iter__(self) -> Iterator[M]:
        return (self._messages[offset] for offset in self._offsets[self._begin :] if offset in self._messages)

    def _trim(self) -> None:
        messages, offsets = self._messages, self._offsets
        if not messages:
            offsets.clear()
            self._begin = 0
            return
        while offsets[-1] not in messages:
            offsets.pop()
        while offsets[self._begin] not in messages:
            self._begin += 1
        if self._begin > len(offsets) // 2:
            del offsets[: self._begin]
            self._begin = 0


@attrs.define(eq=False, repr=False)
class ProcessQueue(Generic[M]):
    """One queue's messages, and how the consumer stands to the queue. `dropped`: it is another's, commit no more."""

    #: When it was pulled last, consumed last, and when the broker has granted the lock last.
    last_pull_s: float
    last_consume_s: float = 0.0
    last_lock_s: float = 0.0
    locked: bool = False
    dropped: bool = False
    #: How many messages of the queue were not pulled yet, at the last pull (msgAccCnt).
    behind: int = 0
    _waiting: _TreeMap[M] = attrs.field(factory=_TreeMap, init=False)
    _consuming: _TreeMap[M] = attrs.field(factory=_TreeMap, init=False)
    _size_bytes: int = attrs.field(default=0, init=False)
    _queue_offset_max: int = attrs.field(default=0, init=False)

    def put_messages(self, messages: Iterable[M]) -> int:
        """Take what was pulled; how many of them were not here already."""
        count = 0
        for message in messages:
            if self._waiting.put(message):
                count += 1
                self._size_bytes += len(message.body)
                self._queue_offset_max = message.queue_offset
        return count

    def remove_messages(self, messages: Iterable[M], now_s: float) -> int:
        """Forget what was consumed; the offset to commit, -1: there was nothing here."""
        self.last_consume_s = now_s
        if not self._waiting:
            return -1
        for message in messages:
            removed = self._waiting.remove(message.queue_offset)
            if removed is not None:
                self._size_bytes -= len(removed.body)
        return self._waiting.first if self._waiting else self._queue_offset_max + 1

    # --- with order -------------------------------------------------------------------------------------------------

    def take_messages(self, count: int, now_s: float) -> list[M]:
        """Take out the first ones, to be consumed; end with `commit`, `make_to_consume_again` or `rollback`."""
        self.last_consume_s = now_s
        taken: list[M] = []
        while self._waiting and len(taken) < count:
            message = self._waiting.pop_first()
            self._consuming.put(message)
            taken.append(message)
        return taken

    def commit(self) -> int:
        """What was taken out is consumed; the offset to commit, -1: nothing was taken."""
        if not self._consuming:
            return -1
        offset = self._consuming.last + 1
        self._size_bytes -= sum(len(message.body) for message in self._consuming)
        self._consuming.clear()
        return offset

    def make_to_consume_again(self, messages: Sequence[M]) -> None:
        """Put back what was taken; `messages` may be copies with another count of attempts."""
        for message in messages:
            self._consuming.remove(message.queue_offset)
            self._waiting.put(message)

    def rollback(self) -> None:
        """Put back all that was taken."""
        self.make_to_consume_again(list(self._consuming))

    def is_lock_expired(self, now_s: float) -> bool:
        """Whether the last grant of the lock is so old that the broker may soon give it to another consumer."""
        return now_s - self.last_lock_s > REBALANCE_LOCK_MAX_LIVE_TIME_S

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def message_count(self) -> int:
        """Those that wait and those that are taken out."""
        return len(self._waiting) + len(self._consuming)

    @property
    def size_bytes(self) -> int:
        """Their bodies."""
        return self._size_bytes

    @property
    def max_span(self) -> int:
        """How far the offsets of those that wait are apart."""
        return self._waiting.last - self._waiting.first if self._waiting else 0

    @property
    def has_waiting(self) -> bool:
        """Whether any is not taken out."""
        return bool(self._waiting)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of those that wait or are taken out; None if there are none."""
        return min((each.first for each in (self._waiting, self._consuming) if each), default=None)

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest offset of those that wait; zeros if none does."""
        return (self._waiting.first, self._waiting.last) if self._waiting else (0, 0)

    @property
    def consuming_bounds(self) -> tuple[int, int, int]:
        """How many are taken out, and the lowest and the highest of their offsets."""
        if not self._consuming:
            return 0, 0, 0
        return len(self._consuming), self._consuming.first, self._consuming.last

    def clear(self) -> None:
        """Forget everything: the queue's offset is another one now."""
        self._waiting.clear()
        self._consuming.clear()
        self._size_bytes = self._queue_offset_max = 0
