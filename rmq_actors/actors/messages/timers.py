"""Messages that an actor sends to itself later. They wait in a heap of its incarnation and are gone with it.

No task and no Trio deadline a timer: the actor's loop looks at the earliest one when it takes its next message. So a
timer that falls due while a handler runs fires after it, before every user message.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

M_contra = TypeVar("M_contra", contravariant=True)


@attrs.define(eq=False, repr=False)
class Timer:
    """One timer, to cancel it."""

    message: object
    interval_s: float | None
    is_active: bool = attrs.field(default=True, init=False)

    def cancel(self) -> None:
        """Never fire (again). Nothing, if it is over."""
        self.is_active = False


@attrs.define(eq=False, repr=False)
class Timers(Generic[M_contra]):
    """The timers of one incarnation. `timers_max` bounds how many may be set at once."""

    timers_max: int = 1024
    #: Called when a new timer is the earliest: a task beside the actor's own may have set it.
    _wake: Callable[[], None] = attrs.field(default=lambda: None, alias="wake")
    _heap: list[tuple[float, int, Timer]] = attrs.field(factory=list, init=False)
    _next: int = attrs.field(default=0, init=False)

    def after(self, delay_s: float, message: M_contra) -> Timer:
        """Send `message` to the actor itself, `delay_s` from now."""
        return self._add(delay_s, Timer(message, None))

    def every(self, interval_s: float, message: M_contra) -> Timer:
        """Send `message` to the actor itself every `interval_s`, first after one interval.

        An actor that is late gets one message, not one for each interval that it missed.
        """
        if interval_s <= 0:
            raise ValueError(f"the interval of a timer must be more than 0 s, not {interval_s}")
        return self._add(interval_s, Timer(message, interval_s))

    @property
    def next_due(self) -> float:
        """When the earliest fires, in trio time; infinity without any."""
        heap = self._heap
        while heap and not heap[0][2].is_active:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    @property
    def active(self) -> int:
        """How many are set."""
        return sum(timer.is_active for _, _, timer in self._heap)

    def take_due(self, now: float) -> Timer | None:
        """The earliest timer that is due, which is over then, or set for its next interval."""
        if self.next_due > now:
            return None
        due, number, timer = heapq.heappop(self._heap)
        if timer.interval_s is None:
            timer.is_active = False
        else:
            missed = math.floor((now - due) / timer.interval_s)
            following = due + (missed + 1) * timer.interval_s
            heapq.heappush(self._heap, (following if following > now else now + timer.interval_s, number, timer))
        return timer

    def _add(self, delay_s: float, timer: Timer) -> Timer:
        if not delay_s >= 0:
            raise ValueError(f"the delay of a timer must be 0 s or more, not {delay_s}")
        if len(self._heap) >= self.timers_max:
            self._heap = [entry for entry in self._heap if entry[2].is_active]
            heapq.heapify(self._heap)
        if len(self._heap) >= self.timers_max:
            raise RuntimeError(f"{self.timers_max} timers are set already")
        heapq.heappush(self._heap, (trio.current_time() + delay_s, self._next, timer))
        self._next += 1
        if self._heap[0][2] is timer:
            self._wake()
        return timer
