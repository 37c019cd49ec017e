"""Which request an answer belongs to, and whose time is over (NettyRemotingAbstract.responseTable, scanResponseTable).

Opaque numbers are those of one connection. Time is an argument, in seconds. A time-out costs the same whether one
request waits or all that may: behind a broker that stands still they end one by one, each at its own deadline.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

import attrs

T = TypeVar("T")

_OPAQUE_MAX = 2**31 - 1
#: So many deadlines of requests that were answered are kept, and as many more as requests wait.
_ANSWERED_KEPT = 64


@attrs.define(eq=False, repr=False)
class PendingRequests(Generic[T]):
    """The waiting requests, at most `in_flight_max`, each with the waiter that gets its answer."""

    in_flight_max: int
    #: By opaque, `in_flight_max` at most.
    _waiting: dict[int, T] = attrs.field(factory=dict, init=False)
    #: A heap of deadlines with their opaques, also of requests that were answered.
    _deadlines: list[tuple[float, int]] = attrs.field(factory=list, init=False)
    #: From 0 to `_OPAQUE_MAX`: the header's opaque is a signed number of 32 bits.
    _next_opaque: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """A number that no waiting request has; a one-way request needs nothing else."""
        opaque = self._next_opaque
        while opaque in self._waiting:
            opaque = 0 if opaque == _OPAQUE_MAX else opaque + 1
        self._next_opaque = 0 if opaque == _OPAQUE_MAX else opaque + 1
        return opaque

    def begin(self, waiter: T, deadline_s: float = math.inf) -> int | None:
        """Take a request in; its opaque, or None when too many wait already."""
        if len(self._waiting) >= self.in_flight_max:
            return None
        opaque = self.next_opaque()
        self._waiting[opaque] = waiter
        if len(self._deadlines) > 2 * len(self._waiting) + _ANSWERED_KEPT:
            self._deadlines = [each for each in self._deadlines if each[1] in self._waiting]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline_s, opaque))
        return opaque

    def end(self, opaque: int) -> T | None:
        """The waiter of this answer, which waits no more; None for an answer that is late, repeated or to nothing."""
        return self._waiting.pop(opaque, None)

    def next_deadline_s(self) -> float:
        """When the time of the first of them is over; infinity if none waits."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._waiting:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else math.inf

    def end_expired(self, now_s: float) -> Iterator[T]:
        """End, one by one, the requests whose deadline has come, and return their waiters."""
        while self.next_deadline_s() <= now_s:
            yield self._waiting.pop(heapq.heappop(self._deadlines)[1])

    def end_all(self) -> list[T]:
        """End all requests and return their waiters: no answer will come."""
        waiters = list(self._waiting.values())
        self._waiting.clear()
        self._deadlines.clear()
        return waiters
