"""How far a consumer is in its queues, before a broker or a file is told (RemoteBrokerOffsetStore's table)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rmq_actors.wire.bodies.message_queues import MessageQueue


@attrs.define(eq=False, repr=False)
class OffsetTable:
    """Offsets by queue: the next message to be consumed."""

    _offsets: dict[MessageQueue, int] = attrs.field(factory=dict, init=False)

    def update_offset(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """A queue is consumed up to here. `increase_only`: a lower offset than the present one is ignored."""
        present = self._offsets.get(queue)
        if present is None or not increase_only or offset > present:
            self._offsets[queue] = offset

    def read_offset(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        return self._offsets.get(queue)

    def of_queues(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offsets of these queues, as far as there are any."""
        return {queue: offset for queue in queues if (offset := self._offsets.get(queue)) is not None}

    def remove_offset(self, queue: MessageQueue) -> None:
        """The queue is another consumer's now."""
        self._offsets.pop(queue, None)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """All of them, or those of a topic."""
        return {queue: offset for queue, offset in self._offsets.items() if topic is None or queue.topic == topic}
