"""Which request an answer belongs to (NettyRemotingAbstract.responseTable): opaque numbers of one connection."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

T = TypeVar("T")

_OPAQUE_MAX = 2**31 - 1


@attrs.define(eq=False)
class PendingRequests(Generic[T]):
    """The waiting requests, at most `in_flight_max`, each with the waiter that gets its answer."""

    in_flight_max: int
    #: By opaque, `in_flight_max` at most.
    _waiting: dict[int, T] = attrs.field(factory=dict, init=False)
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

    def begin(self, waiter: T) -> int | None:
        """Take a request in; its opaque, or None when too many wait already."""
        if len(self._waiting) >= self.in_flight_max:
            return None
        opaque = self.next_opaque()
        self._waiting[opaque] = waiter
        return opaque

    def end(self, opaque: int) -> T | None:
        """The waiter of this answer, which waits no more; None for an answer that is late, repeated or to nothing."""
        return self._waiting.pop(opaque, None)

    def waiting(self) -> list[T]:
        """The waiters of all requests."""
        return list(self._waiting.values())

    def end_all(self) -> list[T]:
        """End all requests and return their waiters: no answer will come."""
        waiters = self.waiting()
        self._waiting.clear()
        return waiters
