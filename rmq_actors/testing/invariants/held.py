"""What a consumer gives to its listener is its own, and is given once."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.run import ClientConsume, ClientMember

_Looked = ClientConsume | ClientMember | ConsumerQueue
#: A member of a group, and a queue that it has.
_Place = tuple[str, str, str, int]


@attrs.define(eq=False, repr=False)
class Held(Invariant[_Looked]):
    """A consumer's messages are of queues that it has, and each comes once while it has the queue without a break.

    It comes again only if its listener wanted that. So a message comes twice to a group only after a queue was given up
    or its owner has died, or because it was sent back or sent again, which make messages of their own.
    """

    name = "held"
    kinds = (ClientConsume, ClientMember, ConsumerQueue)

    #: For each queue that a member has now: the messages that it was given, by offsets there and in the log.
    _given: dict[_Place, set[tuple[int, int]]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Keep who has which queue; look at what is given."""
        if isinstance(event, ClientMember):
            self._given = {place: given for place, given in self._given.items() if place[1] != event.client}
            return None
        place = event.group, event.client, event.topic, event.queue_id
        if isinstance(event, ConsumerQueue):
            self._given.pop(place, None)
            if event.status == "taken":
                self._given[place] = set()
            return None
        given = self._given.get(place)
        message = event.queue_offset, event.offset
        if event.status == "later" and given is not None:
            given.discard(message)
        if event.status != "begin":
            return None
        what = f"{event.client} gives offset {event.queue_offset} of queue {event.queue_id} of {event.topic}"
        if given is None:
            return f"{what}, and does not have that queue"
        if message in given:
            return f"{what} twice, and has had the queue without a break"
        given.add(message)
        return None
