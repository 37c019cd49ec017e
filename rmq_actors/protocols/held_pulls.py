"""Pulls that wait for a message to come (PullRequestHoldService.pullRequestTable). Time is an argument, in seconds.

What comes costs time with the pulls of the queues that it came to, what is over with those that are over, and a
connection that ends with its own: a broker holds a pull for each queue of each consumer, and most have nothing to do
with what happens next. They are given back one by one, so that whoever answers them may do something else in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import attrs

PullT = TypeVar("PullT", bound=Hashable)

Queue = tuple[str, int]


@attrs.define(eq=False, repr=False)
class _Held(Generic[PullT]):
    pull: PullT
    queue: Queue
    offset: int
    deadline_s: float
    owner: Hashable
    size_bytes: int
    #: It was given back, and its deadline means nothing.
    is_taken: bool = False


@attrs.define(eq=False, repr=False)
class HeldPulls(Generic[PullT]):
    """At most `held_max` pulls of `held_max_bytes`; each waits for a message at its offset, or until its deadline."""

    held_max: int
    held_max_bytes: int
    #: What all that are held take.
    size_bytes: int = attrs.field(default=0, init=False)
    #: By queue and by owner, in the order in which they came; nothing in them is empty. A set has no order.
    _by_queue: dict[Queue, dict[_Held[PullT], None]] = attrs.field(factory=dict, init=False)
    _by_owner: dict[Hashable, dict[_Held[PullT], None]] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)
    #: A heap of deadlines, also of some that were taken: fewer than are held, and one.
    _deadlines: list[tuple[float, int, _Held[PullT]]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return self._count

    def hold(
        self, queue: Queue, offset: int, deadline_s: float, pull: PullT, *, owner: Hashable = None, size_bytes: int = 0
    ) -> bool:
        """Hold a pull; False if there are too many already, or they are too long. `owner`: see `let_go`."""
        if self._count >= self.held_max or self.size_bytes + size_bytes > self.held_max_bytes:
            return False
        held = _Held(pull, queue, offset, deadline_s, owner, size_bytes)
        self._by_queue.setdefault(queue, {})[held] = None
        self._by_owner.setdefault(owner, {})[held] = None
        self._count += 1
        self.size_bytes += size_bytes
        self._push(held)
        return True

    def _push(self, held: _Held[PullT]) -> None:
        self._number += 1
        heapq.heappush(self._deadlines, (held.deadline_s, self._number, held))

    def next_deadline_s(self) -> float:
        """When the first of them has waited for long enough; infinity if there is none."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].is_taken or deadlines[0][0] != deadlines[0][2].deadline_s):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else float("inf")

    def take_arrived(
        self, end_of_queue: Callable[[str, int], int], queues: Iterable[Queue] | None = None
    ) -> Iterator[PullT]:
        """Take out, one by one, the pulls whose queue ends after their offset: of these queues, None: of all."""
        for queue in list(self._by_queue if queues is None else queues):
            if queue in self._by_queue:
                end = end_of_queue(*queue)
                for held in list(self._by_queue[queue]):
                    if held.offset < end and not held.is_taken:
                        self._take(held)
                        yield held.pull
        self._forget_taken()

    def take_expired(self, now_s: float) -> Iterator[PullT]:
        """Take out, one by one, the pulls whose deadline has come."""
        while self.next_deadline_s() <= now_s:
            held = self._deadlines[0][2]
            self._take(held)
            yield held.pull

    def expire(self, wanted: Callable[[Queue], bool]) -> None:
        """The time of the pulls of the queues for which `wanted(queue)` is true is over."""
        for queue in [queue for queue in self._by_queue if wanted(queue)]:
            for held in self._by_queue[queue]:
                held.deadline_s = float("-inf")
                self._push(held)

    def let_go(self, owner: Hashable) -> None:
        """Forget the pulls of an owner."""
        for held in list(self._by_owner.get(owner, ())):
            self._take(held)
        self._forget_taken()

    def _take(self, held: _Held[PullT]) -> None:
        held.is_taken = True
        of_queue, of_owner = self._by_queue[held.queue], self._by_owner[held.owner]
        del of_queue[held], of_owner[held]
        if not of_queue:
            del self._by_queue[held.queue]
        if not of_owner:
            del self._by_owner[held.owner]
        self._count -= 1
        self.size_bytes -= held.size_bytes
        assert self._count > 0 or not self._by_queue, "nothing is counted, and a pull is held"

    def _forget_taken(self) -> None:
        """Drop deadlines of pulls that were taken once there are more of them than of those that are held."""
        if len(self._deadlines) > 2 * self._count + 1:
            self._deadlines = [
                entry for entry in self._deadlines if not entry[2].is_taken and entry[0] == entry[2].deadline_s
            ]
            heapq.heapify(self._deadlines)
