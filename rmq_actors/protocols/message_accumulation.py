"""Messages of several tasks become batches, without a pause for that (autoBatch of RocketMQ 5). Pure.

    tasks:        1   2 3 4   5 6 7 8
    to a broker: [1]         [2 3 4]         [5 6 7 8]
                     the answer      the answer

Messages of one `AggregateKey` share a lane. A lane that is free sends what waits at once; while a batch is under way,
the next one gathers. So the slower the answers, the longer the batches, and a message that is alone waits for nobody.
RocketMQ's ProduceAccumulator holds each message for up to 10 ms instead.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import attrs

from rmq_actors.protocols.send_requests import Outgoing, batch_item_bytes
from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.dispatch_request import PROPERTY_DELAY, PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.record import MAX_PROPERTIES_BYTES, Message

Token = TypeVar("Token")

#: A broker puts the batch's own property WAIT after those of each message.
_COMMON_PROPERTIES_BYTES = 64
#: Properties that brokers heed in single messages alone: delays, 5.x's among them, and entries in further queues.
_PROPERTIES_OF_SINGLE_MESSAGES = frozenset(
    {PROPERTY_DELAY, "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", PROPERTY_INNER_MULTI_DISPATCH}
)


class AggregateKey(NamedTuple):
    """What messages of one batch have in common. `queue` is None for the next one; `wait`: property WAIT, as it is."""

    topic: str
    queue: MessageQueue | None
    wait: str | None


def may_be_batched(message: Message, outgoing: Outgoing) -> bool:
    """Whether a message that is ready to be sent may share a request with others.

    What says anything in its sysFlag goes alone: a compressed body, as a batch's are not, and a transaction.
    """
    properties_bytes = batch_item_bytes(outgoing) - len(outgoing.body)
    return (
        outgoing.sys_flag == 0
        and not outgoing.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        and _PROPERTIES_OF_SINGLE_MESSAGES.isdisjoint(message.properties)
        and properties_bytes <= MAX_PROPERTIES_BYTES - _COMMON_PROPERTIES_BYTES
    )


@attrs.define(eq=False, repr=False)
class MessageAccumulation(Generic[Token]):
    """The messages of one key that wait, in their order, each named by a token."""

    #: What the messages of a batch may take together, unless it is one alone; how many they may be.
    max_bytes: int
    max_messages: int
    _waiting: dict[Token, int] = attrs.field(factory=dict, init=False)
    _is_busy: bool = attrs.field(default=False, init=False)

    def add(self, token: Token, size_bytes: int) -> bool:
        """A message is to be sent. True if the lane was free: begin to `take` batches, until there is none."""
        self._waiting[token] = size_bytes
        was_free, self._is_busy = not self._is_busy, True
        return was_free

    def withdraw(self, token: Token) -> bool:
        """A message is not to be sent any more. False if it is under way, or was sent."""
        return self._waiting.pop(token, None) is not None

    def take(self) -> list[Token]:
        """The next batch, once the last one was answered. Without one, the lane is free again."""
        batch = list[Token]()
        left_bytes = self.max_bytes
        for token, size_bytes in self._waiting.items():
            left_bytes -= size_bytes
            if batch and (left_bytes < 0 or len(batch) == self.max_messages):
                break
            batch.append(token)
        for token in batch:
            del self._waiting[token]
        self._is_busy = bool(batch)
        return batch
