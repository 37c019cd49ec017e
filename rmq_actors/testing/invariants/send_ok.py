"""What a producer is told of how safely its message is stored."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientSend
from rmq_actors.tracing.events.store import PutEnd, StoreOpen

_Looked = ClientSend | PutEnd | StoreOpen


@attrs.define(eq=False)
class SendOk(Invariant[_Looked]):
    """A producer says SEND_OK of a message only if the broker has answered its put PUT_OK.

    So what *acknowledged* says of PUT_OK holds for SEND_OK. A message's put is that which ends next after its offset.
    """

    name = "send_ok"
    kinds = (ClientSend, PutEnd, StoreOpen)

    #: By node, for each life of its store, the last one last: how puts ended, by where their last records end.
    _puts: dict[str, list[dict[int, str]]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """A message's answer is compared with its put's."""
        lives = self._puts.setdefault(event.node, [{}])
        if isinstance(event, StoreOpen):
            lives.append({})  # an answer may come later than this
        elif isinstance(event, PutEnd):
            lives[-1][event.offset] = event.status
        elif event.status == "SEND_OK":
            told = [status for puts in lives if (status := _status_at(event.offset, puts)) is not None]
            if not {"PUT_OK", "not_waited"}.intersection(told):
                answered = told[-1] if told else "not at all"
                return f"a producer says SEND_OK of {event.key} at {event.offset}; {event.node} answered {answered}"
        return None


def _status_at(offset: int, puts: Mapping[int, str]) -> str | None:
    end = min((end for end in puts if end > offset), default=None)
    return None if end is None else puts[end]
