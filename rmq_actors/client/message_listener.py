"""What an application gives to a push consumer (MessageListener), and what it is told with its messages."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

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
#: messages come again, and so it is if anything else is returned.
MessageListenerConcurrently = Callable[
    [Sequence[MessageExt], ConsumeConcurrentlyContext], Awaitable[ConsumeConcurrentlyStatus | None]
]
#: Consumes messages of a queue one after the other. None is SUCCESS; after an exception, or if anything else is
#: returned, the queue stands still for a moment, and the same messages come again.
MessageListenerOrderly = Callable[[Sequence[MessageExt], ConsumeOrderlyContext], Awaitable[ConsumeOrderlyStatus | None]]


def _async_function(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:  # noqa: ANN401  # whatever somebody gives
    called = getattr(type(value), "__call__", None)  # noqa: B004 - whether it is async, not whether it is there
    if not inspect.iscoroutinefunction(value) and not inspect.iscoroutinefunction(called):
        raise TypeError(f"{attribute.name} {repr(value)[:200]} is no async function")


@attrs.frozen
class Concurrently:
    """Have this listener called for several messages of a queue at once, in any order.

    Raises `TypeError` for what is no async function, nor has an async `__call__`.
    """

    listener: MessageListenerConcurrently = attrs.field(validator=_async_function)


@attrs.frozen
class Orderly:
    """Have this listener called for the messages of a queue one after the other, by one consumer of the group.

    Raises `TypeError` for what is no async function, nor has an async `__call__`.
    """

    listener: MessageListenerOrderly = attrs.field(validator=_async_function)


MessageListener = Concurrently | Orderly
