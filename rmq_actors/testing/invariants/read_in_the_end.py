"""What a consumer reads when the run is over."""

from __future__ import annotations

import attrs

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.queue_numbers import messages
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientPull, ClientRead

#: The reader that reads all queues from their beginnings when the run is over.
LAST_READER = "LastReader"
_Looked = ClientPull | ClientRead


@attrs.define(eq=False, repr=False)
class ReadInTheEnd(Invariant[_Looked]):
    """A consumer that reads all queues from their beginnings gets every message that the master's log has.

    So what was acknowledged, and is not lost in a way that *acknowledged* allows, is read. After a power loss the
    offsets of a queue's first file may be gone.
    """

    name = "read_in_the_end"
    kinds = (ClientPull, ClientRead)

    #: Where each message stands that was read, by queue and offset there; and the least offset of each queue.
    _read: dict[tuple[int, int], int] = attrs.field(factory=dict, init=False)
    _least: dict[int, int] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Keep what the last reader gets."""
        if event.actor != LAST_READER:
            return None
        if isinstance(event, ClientRead):
            self._read[event.queue_id, event.queue_offset] = event.offset
        else:
            self._least[event.queue_id] = event.queue_offset_min
        return None

    def at_end(self, view: ClusterView) -> str | None:
        """Whether it got all."""
        if not self._least:
            return None  # no clients
        master = view.master
        for at, (topic, queue_id), offset in messages(master.lineage, master.begin, master.end):
            may_be_gone = at < master.power_back_at and offset < self._least.get(queue_id, 0)
            found = self._read.get((queue_id, offset))
            if topic == CHAOS_TOPIC and found != at and not may_be_gone:
                what = f"offset {offset} of queue {queue_id}"
                return f"{master.name} has {what} at {at}; a consumer gets {'nothing' if found is None else found}"
        return None
