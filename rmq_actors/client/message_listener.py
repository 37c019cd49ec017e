"""What an application gives to a push consumer (MessageListener), and what it is told with its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs

from rmq_actors.client.message_ext import MessageExt
from rmq_actors.protocols.consume_results import FOR_EVER, ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_actors.wire.bodies.message_queues import MessageQueue


@attrs.define
class ConsumeConcurrentlyContext:
    """A listener may set the last two before it returns."""

    message_queue: MessageQueue
    #: When messages that are not consumed come again: 0: the broker decides, later each time; -1: never, they become
    #: dead letters; a level of RocketMQ's delays otherwise.
    delay_level_when_next_consume: int = 0
    #: The index of the last message that is consumed: those after it come again.
    ack_index: int = FOR_EVER


@attrs.define
class ConsumeOrderlyContext:
    """A listener may set the last one before it returns."""

    message_queue: MessageQueue
    #: How long the queue stands still if its messages are not consumed: 10 to 30,000; -1: as the settings say.
    suspend_current_queue_time_ms: int = -1


#: Consumes messages without order. None, and no `return` at all, is CONSUME_SUCCESS; an exception is logged, and the
#: messages come again.
MessageListenerConcurrently = Callable[
    [Sequence[MessageExt], ConsumeConcurrentlyContext], Awaitable[ConsumeConcurrentlyStatus | None]
]
#: Consumes messages of a queue one after the other. None is SUCCESS; after an exception the queue stands still for a
#: moment, and the same messages come again.
MessageListenerOrderly = Callable[[Sequence[MessageExt], ConsumeOrderlyContext], Awaitable[ConsumeOrderlyStatus | None]]


@attrs.frozen
class Concurrently:
    """Have this listener called for several messages of a queue at once, in any order."""

    listener: MessageListenerConcurrently


@attrs.frozen
class Orderly:
    """Have this listener called for the messages of a queue one after the other, by one consumer of the group."""

    listener: MessageListenerOrderly


MessageListener = Concurrently | Orderly
