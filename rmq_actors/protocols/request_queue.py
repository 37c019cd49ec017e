"""Requests that wait for a worker: a bounded queue, and the failure of those that waited too long (fast failure)."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, NamedTuple, TypeVar

import attrs

T = TypeVar("T")


class Expired(NamedTuple, Generic[T]):
    """A request that waited `waited_ms`, with `queue_size` requests left after it."""

    request: T
    waited_ms: int
    queue_size: int


@attrs.define(eq=False, repr=False)
class RequestQueue(Generic[T]):
    """First in, first out; `wait_time_max_ms` None means that a request may wait for ever. Times are in seconds."""

    capacity: int = attrs.field(validator=attrs.validators.ge(1))
    wait_time_max_ms: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    _waiting: deque[tuple[float, T]] = attrs.field(factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, request: T, now_s: float) -> bool:
        """Take a request in; False when the queue is full."""
        if len(self._waiting) >= self.capacity:
            return False
        self._waiting.append((now_s, request))
        return True

    def take(self) -> T | None:
        """The request that waited longest; None when there is none. Call `expire` first."""
        return self._waiting.popleft()[1] if self._waiting else None

    def expire(self, now_s: float) -> list[Expired[T]]:
        """Remove and return those that waited `wait_time_max_ms` or longer."""
        expired: list[Expired[T]] = []
        while self._waiting and now_s >= self.next_expiry_s():
            since_s, request = self._waiting.popleft()
            expired.append(Expired(request, int((now_s - since_s) * 1000), len(self._waiting)))
        return expired

    def head_wait_s(self, now_s: float) -> float:
        """How long the first request has waited; 0 when there is none."""
        return now_s - self._waiting[0][0] if self._waiting else 0.0

    def next_expiry_s(self) -> float:
        """When `expire` will have something to do; infinity when never."""
        if self.wait_time_max_ms is None or not self._waiting:
            return math.inf
        return self._waiting[0][0] + self.wait_time_max_ms / 1000
