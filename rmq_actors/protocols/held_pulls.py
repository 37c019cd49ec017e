"""Pulls that wait for a message to come (PullRequestHoldService.pullRequestTable). Time is an argument, in seconds.

What comes costs time with the pulls of the queues that it came to, and what is over with those that are over: a broker
holds a pull for each queue of each consumer, and most have nothing to do with the next message.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import attrs

PullT = TypeVar("PullT", bound=Hashable)

Queue = tuple[str, int]


@attrs.define(eq=False)
class _Held(Generic[PullT]):
    pull: PullT
    queue: Queue
    offset: int
    deadline_s: float
    #: It was given back, and its deadline means nothing.
    is_taken: bool = False


@attrs.define(eq=False)
class HeldPulls(Generic[PullT]):
    """At most `held_max` pulls, by queue; each waits for a message at its offset, or until its deadline."""

    held_max: int
    #: No list is empty; together they have `_count` pulls, `held_max` at most.
    _by_queue: dict[Queue, list[_Held[PullT]]] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)
    #: A heap of deadlines, also of some that were taken: fewer than are held, and one.
    _deadlines: list[tuple[float, int, _Held[PullT]]] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return self._count

    def hold(self, queue: Queue, offset: int, deadline_s: float, pull: PullT) -> bool:
        """Hold a pull; False if there are too many already."""
        if self._count >= self.held_max:
            return False
        held = _Held(pull, queue, offset, deadline_s)
        self._by_queue.setdefault(queue, []).append(held)
        self._count += 1
        self._number += 1
        heapq.heappush(self._deadlines, (deadline_s, self._number, held))
        return True

    def next_deadline_s(self) -> float:
        """When the first of them has waited for long enough; infinity if there is none."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].is_taken:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else float("inf")

    def take_arrived(
        self, end_of_queue: Callable[[str, int], int], queues: Iterable[Queue] | None = None
    ) -> list[PullT]:
        """Take out the pulls whose queue ends after the offset that they wait for: of these queues, None: of all."""
        taken = list[PullT]()
        for queue in list(self._by_queue if queues is None else queues):
            if queue in self._by_queue:
                end = end_of_queue(*queue)
                self._take(queue, lambda each, end=end: each.offset < end, taken)  # type: ignore[misc]
        self._forget_taken()
        return taken

    def take_expired(self, now_s: float) -> list[PullT]:
        """Take out the pulls whose deadline has come."""
        taken = list[PullT]()
        while self.next_deadline_s() <= now_s:
            queue = self._deadlines[0][2].queue
            self._take(queue, lambda each: each.deadline_s <= now_s, taken)
        return taken

    def take_if(self, wanted: Callable[[PullT, float], bool]) -> list[PullT]:
        """Take out the pulls for which `wanted(pull, deadline)` is true."""
        taken = list[PullT]()
        for queue in list(self._by_queue):
            self._take(queue, lambda each: wanted(each.pull, each.deadline_s), taken)
        self._forget_taken()
        return taken

    def take_of(self, wanted: Callable[[Queue], bool]) -> list[PullT]:
        """Take out the pulls of the queues for which `wanted(queue)` is true."""
        taken = list[PullT]()
        for queue in [queue for queue in self._by_queue if wanted(queue)]:
            self._take(queue, lambda _: True, taken)
        self._forget_taken()
        return taken

    def _take(self, queue: Queue, wanted: Callable[[_Held[PullT]], bool], taken: list[PullT]) -> None:
        held = self._by_queue[queue]
        left = list[_Held[PullT]]()
        for each in held:
            if wanted(each):
                each.is_taken = True
                taken.append(each.pull)
            else:
                left.append(each)
        if len(left) == len(held):
            return
        self._count -= len(held) - len(left)
        if left:
            self._by_queue[queue] = left
        else:
            del self._by_queue[queue]
        assert self._count > 0 or not self._by_queue, "nothing is counted, and a pull is held"

    def _forget_taken(self) -> None:
        """Drop deadlines of pulls that were taken once there are more of them than of those that are held."""
        if len(self._deadlines) > 2 * self._count + 1:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_taken]
            heapq.heapify(self._deadlines)
