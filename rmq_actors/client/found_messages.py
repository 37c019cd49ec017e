"""What a pull consumer has pulled, on its way to the application.

found ─▶ waiting ─▶ taken, for a call that has not returned yet ─▶ given, when it has ─▶ consumed, by the next call
           ▲                              │
           └── given back: it was cancelled
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

import attrs
import trio

from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt

#: So many more than after the last look may wait before it is looked for those of queues that were given up.
_MORE_THAN_AT_THE_LAST_LOOK = 64


@attrs.define(eq=False, repr=False)
class FoundMessages:
    """One call at a time takes messages; the next one begins once this one was ended by `end_call` or `give_back`."""

    waiting: collections.deque[tuple[HeldQueue, MessageExt]] = attrs.field(factory=collections.deque, init=False)
    came: trio.Event = attrs.field(factory=trio.Event, init=False)
    _taken: list[tuple[HeldQueue, MessageExt]] = attrs.field(factory=list, init=False)
    _given: list[tuple[HeldQueue, MessageExt]] = attrs.field(factory=list, init=False)
    #: How many waited after the last look for those of queues that were given up.
    _waited: int = attrs.field(default=0, init=False)

    def add(self, held: HeldQueue, messages: Iterable[MessageExt]) -> None:
        """Messages of a queue came. Those that wait may be of queues that were given up, or sought, meanwhile."""
        while self.waiting and self.waiting[0][0].process_queue.dropped:
            self.waiting.popleft()
        self.waiting.extend((held, message) for message in messages)
        if len(self.waiting) > 2 * self._waited + _MORE_THAN_AT_THE_LAST_LOOK:
            self.waiting = collections.deque(each for each in self.waiting if not each[0].process_queue.dropped)
            self._waited = len(self.waiting)
        self.wake()

    def wake(self) -> None:
        """Have the task that waits look again."""
        self.came.set()
        self.came = trio.Event()

    def take(self, count: int) -> list[MessageExt]:
        """The next messages, but for those of queues that are another's now."""
        while self.waiting and len(self._taken) < count:
            held, message = self.waiting.popleft()
            if not held.process_queue.dropped:
                self._taken.append((held, message))
        return [message for _, message in self._taken]

    def end_call(self) -> None:
        """The call has returned: the application has what it took."""
        self._given += self._taken
        self._taken = []

    def give_back(self) -> None:
        """The call was cancelled, or failed: nobody has what it took. The next call takes that first."""
        if self._taken:
            self.waiting.extendleft(reversed(self._taken))
            self._taken = []
            self.wake()

    def consumed(self) -> dict[HeldQueue, int]:
        """What was given is consumed: how far each of its queues is."""
        given, self._given = self._given, []
        by_queue: dict[HeldQueue, list[MessageExt]] = {}
        for held, message in given:
            by_queue.setdefault(held, []).append(message)
        offsets = dict[HeldQueue, int]()
        for held, messages in by_queue.items():
            offset = held.process_queue.remove_messages(messages, trio.current_time())
            held.changed()
            if offset >= 0 and not held.process_queue.dropped:
                offsets[held] = offset
        return offsets
