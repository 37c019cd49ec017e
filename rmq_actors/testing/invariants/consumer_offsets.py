"""What a slave takes over of consumers' offsets."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerOffsetBack, BrokerSlaveSynchronize
from rmq_actors.tracing.events.run import OperatorSetUpAnew
from rmq_actors.tracing.events.store import StoreOpen

_Looked = BrokerSlaveSynchronize | BrokerOffsetBack | StoreOpen | OperatorSetUpAnew


@attrs.define(eq=False, repr=False)
class ConsumerOffsets(Invariant[_Looked]):
    """No consumer's offset at a slave goes back by what the slave copies.

    If its store was opened since, offsets may be lower, but only as far as the end of their queue. So may one that a
    client has set back there since: a commit that was long under way, say.
    """

    name = "consumer_offsets"
    kinds = (BrokerSlaveSynchronize, BrokerOffsetBack, StoreOpen, OperatorSetUpAnew)

    #: What each node had after its last question.
    _known: dict[str, dict[str, dict[int, int]]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """The file after a question that has changed it."""
        node = event.node
        if isinstance(event, BrokerOffsetBack):
            known = self._known.get(node, {}).get(f"{event.topic}@{event.group}", {})
            if event.queue_id in known:
                known[event.queue_id] = min(known[event.queue_id], event.queue_offset_next)
            return None
        if not isinstance(event, BrokerSlaveSynchronize):
            self._known.pop(node, None)
            return None
        if event.part != "consumer_offsets" or event.status != "changed":
            return None
        before, now = self._known.get(node, {}), view.evidence.consumer_offsets(node)
        self._known[node] = {key: dict(offsets) for key, offsets in now.items()}
        for key, offsets in before.items():
            if key.partition("@")[0] in view.deleted_topics:
                continue  # what a life of the topic had says nothing of the next one: see `TopicLives`
            for queue, offset in offsets.items():
                if now.get(key, {}).get(queue, offset) < offset:
                    return f"{node} takes {now[key][queue]} over for {key} in queue {queue}, it had {offset}"
        return None
