"""A queue that a consumer has now: its messages in memory, where its pulls are, and the task that pulls it."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.client.message_ext import MessageExt
from rmq_actors.protocols.process_queue import ProcessQueue
from rmq_actors.wire.bodies.message_queues import MessageQueue


@attrs.define(eq=False, repr=False)
class HeldQueue:
    """`process_queue.dropped` is set when it is another's: what is still consumed of it is not committed any more."""

    queue: MessageQueue
    process_queue: ProcessQueue[MessageExt]
    next_offset: int
    #: Cancelled when the queue is given up.
    pulling: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    #: Held while a listener has messages of the queue, with order: the lock at the broker is given back after that.
    consuming: trio.Lock = attrs.field(factory=trio.Lock)
    #: It is given up, but its listener was busy when that was tried last: it is tried again, whoever it is assigned to.
    is_leaving: bool = False
    _changed: trio.Event = attrs.field(factory=trio.Event)

    def changed(self) -> None:
        """Messages came or went, or the lock: wake the tasks that wait for that."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self, timeout_s: float) -> None:
        """Return at the next change, or when the time is over. A checkpoint."""
        with trio.move_on_after(timeout_s):
            await self._changed.wait()

    def drop(self) -> None:
        """It is another's now."""
        self.process_queue.dropped = True
        self.pulling.cancel()
        self.changed()
