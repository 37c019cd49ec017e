"""What a producer is told of its message."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.logs_of_masters import LogsOfMasters
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientSend
from rmq_actors.tracing.events.store import LogAppend, PutEnd

_Looked = ClientSend | LogAppend | PutEnd


@attrs.define(eq=False, repr=False)
class Sent(Invariant[_Looked]):
    """A message stands in a log where its producer was told: at that offset, in that queue, with that offset there.

    What was answered from a transient pool may be lost before it is in any log: where that is so nothing is said.
    """

    name = "sent"
    kinds = (ClientSend, LogAppend, PutEnd)

    _logs: LogsOfMasters = attrs.field(factory=LogsOfMasters, init=False)

    _has_pool: bool = attrs.field(default=False, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """The answer."""
        if isinstance(event, LogAppend):
            self._logs.note(event, view)
            return None
        if isinstance(event, PutEnd):
            self._has_pool |= event.offset > view.nodes[event.node].end
            return None
        if event.offset < 0:
            return None
        told = event.key, event.queue_id, event.queue_offset
        messages = self._logs.messages_at(event.offset, view)
        found = [(each.properties.get("KEYS"), each.queue_id, each.queue_offset) for each in messages]
        if told in found or self._has_pool:
            return None
        there = found[0] if found else "no message"
        return f"{event.node} says that key, queue and offset {told} are at {event.offset}; there is {there}"
