"""Consumers and administrators in asyncio programs: the Trio clients' own methods, each awaited by asyncio.

`AsyncioClient` gives them. A method's arguments, result and errors are those of the class that it is taken from. What
is no coroutine there is awaited here, too, as it belongs to Trio's side of the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import attrs

from rmq_actors.actors.asyncio_host import TrioGuest, run_in_asyncio
from rmq_actors.client.admin import Admin
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListener,
    check_listener,
)
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.client.push_consumer import PushConsumer
from rmq_actors.protocols.consume_results import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_actors.wire.bodies.message_queues import MessageQueue

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen
class _InTrio(Generic[C]):
    """A client of Trio's, and where it runs."""

    _guest: TrioGuest
    _client: C


def _awaited(
    method: Callable[Concatenate[C, P], Awaitable[T]],
) -> Callable[Concatenate[_InTrio[C], P], Coroutine[Any, Any, T]]:
    """A coroutine method of a Trio client, for asyncio tasks."""

    async def call(self: _InTrio[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._guest.run(functools.partial(method, self._client, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _called(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[_InTrio[C], P], Coroutine[Any, Any, T]]:
    """The same for a method that is none: it is called on Trio's side."""

    async def call(self: _InTrio[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def there() -> T:
            return method(self._client, *args, **kwargs)

        return await self._guest.run(there)

    functools.update_wrapper(call, method)
    return call


@attrs.frozen
class AsyncioPullConsumer(_InTrio[PullConsumer]):
    """`PullConsumer` for asyncio tasks: `async for message in consumer`, or `await consumer.poll()`."""

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now."""
        return self._client.queues

    def __aiter__(self) -> AsyncioPullConsumer:
        return self

    async def __anext__(self) -> MessageExt:
        """See `PullConsumer.__anext__`."""
        with self._client.polling():
            return await self._guest.run(self._client.take_one)

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """See `PullConsumer.poll`."""
        with self._client.polling():  # a message that comes as asyncio cancels this call was given to nobody
            return await self._guest.run(self._client.take, timeout_ms)

    commit = _awaited(PullConsumer.commit)
    subscribe = _called(PullConsumer.subscribe)
    unsubscribe = _called(PullConsumer.unsubscribe)
    assign = _called(PullConsumer.assign)
    pause = _called(PullConsumer.pause)
    resume = _called(PullConsumer.resume)
    seek = _called(PullConsumer.seek)
    pull = _awaited(PullConsumer.pull)
    fetch_message_queues = _awaited(PullConsumer.fetch_message_queues)
    committed = _awaited(PullConsumer.committed)
    update_consume_offset = _awaited(PullConsumer.update_consume_offset)
    max_offset = _awaited(PullConsumer.max_offset)
    min_offset = _awaited(PullConsumer.min_offset)
    offset_for_timestamp = _awaited(PullConsumer.offset_for_timestamp)


@attrs.frozen
class AsyncioPushConsumer(_InTrio[PushConsumer]):
    """`PushConsumer` for asyncio programs: its listener is a coroutine function of asyncio's."""

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now, those of retries among them."""
        return self._client.queues

    subscribe = _called(PushConsumer.subscribe)
    unsubscribe = _called(PushConsumer.unsubscribe)
    suspend = _called(PushConsumer.suspend)
    resume = _called(PushConsumer.resume)


@attrs.frozen
class AsyncioAdmin(_InTrio[Admin]):
    """`Admin` for asyncio programs."""

    cluster_info = _awaited(Admin.cluster_info)
    topics = _awaited(Admin.topics)
    route = _awaited(Admin.route)
    create_topic = _awaited(Admin.create_topic)
    delete_topic = _awaited(Admin.delete_topic)
    topic_status = _awaited(Admin.topic_status)
    create_group = _awaited(Admin.create_group)
    delete_group = _awaited(Admin.delete_group)
    groups = _awaited(Admin.groups)
    consume_stats = _awaited(Admin.consume_stats)
    consumer_offset = _awaited(Admin.consumer_offset)
    update_consumer_offset = _awaited(Admin.update_consumer_offset)
    reset_offset_by_timestamp = _awaited(Admin.reset_offset_by_timestamp)
    search_offset = _awaited(Admin.search_offset)
    max_offset = _awaited(Admin.max_offset)
    min_offset = _awaited(Admin.min_offset)
    message_by_id = _awaited(Admin.message_by_id)
    messages_by_key = _awaited(Admin.messages_by_key)
    messages_by_unique_id = _awaited(Admin.messages_by_unique_id)


def in_asyncio(listener: MessageListener) -> MessageListener:
    """A listener of asyncio's, for a consumer, whose tasks are Trio's."""
    check_listener(listener)
    if isinstance(listener, Concurrently):
        concurrently = listener.listener

        async def consume(
            messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext
        ) -> ConsumeConcurrentlyStatus | None:
            return await run_in_asyncio(concurrently, messages, context)

        return Concurrently(consume)
    orderly = listener.listener

    async def consume_orderly(
        messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> ConsumeOrderlyStatus | None:
        return await run_in_asyncio(orderly, messages, context)

    return attrs.evolve(listener, listener=consume_orderly)
