"""What a producer is told of how safely its message is stored."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.send_retries import SendStatus
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientSend
from rmq_actors.tracing.events.store import PutBegin, PutEnd, StoreOpen
from rmq_actors.wire.response_code import ResponseCode

_Looked = ClientSend | PutBegin | PutEnd | StoreOpen
#: What says so: a producer's result, and the code of a broker's answer, which is all that simple clients have.
_SAFE = frozenset({SendStatus.SEND_OK.name, ResponseCode.SUCCESS.name})


@attrs.define(eq=False, repr=False)
class _Put:
    """One put, or several that began at once: where their records are, and by where the last ones end the answers."""

    begin: int
    end: int
    answers: dict[int, str] = attrs.field(factory=dict)

    def answer(self, offset: int) -> str | None:
        """The answer to the message there; None if it has none."""
        end = min((end for end in self.answers if end > offset), default=None)
        return None if end is None else self.answers[end]


@attrs.define(eq=False, repr=False)
class SendOk(Invariant[_Looked]):
    """A producer says SEND_OK of a message, and a broker answers a client SUCCESS, only of a put answered PUT_OK.

    So what *acknowledged* says of PUT_OK holds for SEND_OK. A message's put is the one that began there; of
    several that began at once, the one that ends next after its offset.
    """

    name = "send_ok"
    kinds = (ClientSend, PutBegin, PutEnd, StoreOpen)

    #: By node, for each life of its store, the last one last: puts by id.
    _puts: dict[str, list[dict[int, _Put]]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """A message's answer is compared with its put's."""
        lives = self._puts.setdefault(event.node, [{}])
        if isinstance(event, StoreOpen):
            lives.append({})  # an answer may come later than this
        elif isinstance(event, PutBegin):
            put = _Put(event.offset, event.offset + event.size)
            lives[-1].update(dict.fromkeys(event.msg_ids, put))
        elif isinstance(event, PutEnd):
            for msg_id in event.msg_ids:
                lives[-1][msg_id].answers[event.offset] = event.status
        elif event.status in _SAFE:
            its_own = [put for puts in lives for put in puts.values() if put.begin <= event.offset < put.end]
            told = [status for put in its_own if (status := put.answer(event.offset)) is not None]
            if not {"PUT_OK", "not_waited"}.intersection(told):
                answered = f"answered {told[-1]}" if told else "answered nothing"
                return f"{event.key} at {event.offset} is {event.status} to its producer; {event.node} {answered}"
        return None
