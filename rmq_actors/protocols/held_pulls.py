"""Pulls that wait for a message to come (PullRequestHoldService.pullRequestTable). Time is an argument, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import attrs

PullT = TypeVar("PullT", bound=Hashable)

Queue = tuple[str, int]


@attrs.define(eq=False)
class _Held(Generic[PullT]):
    pull: PullT
    offset: int
    deadline_s: float


@attrs.define(eq=False)
class HeldPulls(Generic[PullT]):
    """At most `held_max` pulls, by queue; each waits for a message at its offset, or until its deadline."""

    held_max: int
    #: No list is empty; together they have `_count` pulls, `held_max` at most.
    _by_queue: dict[Queue, list[_Held[PullT]]] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return self._count

    def hold(self, queue: Queue, offset: int, deadline_s: float, pull: PullT) -> bool:
        """Hold a pull; False if there are too many already."""
        if self._count >= self.held_max:
            return False
        self._by_queue.setdefault(queue, []).append(_Held(pull, offset, deadline_s))
        self._count += 1
        return True

    def next_deadline_s(self) -> float:
        """When the first of them has waited for long enough; infinity if there is none."""
        return min((each.deadline_s for held in self._by_queue.values() for each in held), default=float("inf"))

    def take_arrived(self, end_of_queue: Callable[[str, int], int]) -> list[PullT]:
        """Take out the pulls whose queue ends after the offset that they wait for."""
        taken = list[PullT]()
        for queue in list(self._by_queue):
            end = end_of_queue(*queue)
            self._take(queue, lambda each, end=end: each.offset < end, taken)  # type: ignore[misc]
        return taken

    def take_expired(self, now_s: float) -> list[PullT]:
        """Take out the pulls whose deadline has come."""
        return self.take_if(lambda _, deadline_s: deadline_s <= now_s)

    def take_if(self, wanted: Callable[[PullT, float], bool]) -> list[PullT]:
        """Take out the pulls for which `wanted(pull, deadline)` is true."""
        taken = list[PullT]()
        for queue in list(self._by_queue):
            self._take(queue, lambda each: wanted(each.pull, each.deadline_s), taken)
        return taken

    def take_of(self, wanted: Callable[[Queue], bool]) -> list[PullT]:
        """Take out the pulls of the queues for which `wanted(queue)` is true."""
        taken = list[PullT]()
        for queue in [queue for queue in self._by_queue if wanted(queue)]:
            self._take(queue, lambda _: True, taken)
        return taken

    def _take(self, queue: Queue, wanted: Callable[[_Held[PullT]], bool], taken: list[PullT]) -> None:
        held = self._by_queue[queue]
        left = [each for each in held if not wanted(each)]
        if len(left) == len(held):
            return
        taken += [each.pull for each in held if wanted(each)]
        self._count -= len(held) - len(left)
        if left:
            self._by_queue[queue] = left
        else:
            del self._by_queue[queue]
        assert self._count > 0 or not self._by_queue, "nothing is counted, and a pull is held"
