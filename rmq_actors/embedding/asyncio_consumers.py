"""Consumers and administrators in asyncio programs: the Trio clients' own methods, each awaited by asyncio.

`AsyncioClient` gives them. A method's arguments, result and errors are those of the class that it is taken from. What
is no coroutine there is awaited here, too, as it belongs to Trio's side of the loop.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import attrs

from rmq_actors.actors.asyncio_host import TrioEnded, TrioGuest, run_in_asyncio
from rmq_actors.client.admin import Admin
from rmq_actors.client.client_error import ClientClosed
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListener,
)
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.client.push_consumer import PushConsumer
from rmq_actors.protocols.consume_results import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_actors.settings.argument_checks import check_arguments
from rmq_actors.wire.bodies.message_queues import MessageQueue

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen
class InTrio(Generic[C]):
    """A client of Trio's, and where it runs."""

    _guest: TrioGuest
    _client: C


@contextlib.contextmanager
def _closed_with_its_guest() -> Iterator[None]:
    """The end of what runs Trio is the end of its clients."""
    try:
        yield
    except TrioEnded as error:
        raise ClientClosed(f"the block of open_asyncio_client is over: {error}") from error


def awaited(
    method: Callable[Concatenate[C, P], Awaitable[T]],
) -> Callable[Concatenate[InTrio[C], P], Coroutine[Any, Any, T]]:
    """A coroutine method of a Trio client, for asyncio tasks."""

    async def call(self: InTrio[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _closed_with_its_guest():
            return await self._guest.run(functools.partial(method, self._client, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def called(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[InTrio[C], P], Coroutine[Any, Any, T]]:
    """The same for a method that is none: it is called on Trio's side."""

    async def call(self: InTrio[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def there() -> T:
            return method(self._client, *args, **kwargs)

        with _closed_with_its_guest():
            return await self._guest.run(there)

    functools.update_wrapper(call, method)
    return call


@attrs.frozen
class AsyncioPullConsumer(InTrio[PullConsumer]):
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
        with _closed_with_its_guest(), self._client.polling():
            return await self._guest.run(self._client.take_one)

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """See `PullConsumer.poll`."""
        check_arguments(PullConsumer.poll, timeout_ms=timeout_ms)
        # A message that comes as asyncio cancels this call was given to nobody.
        with _closed_with_its_guest(), self._client.polling():
            return await self._guest.run(self._client.take, timeout_ms)

    commit = awaited(PullConsumer.commit)
    subscribe = called(PullConsumer.subscribe)
    unsubscribe = called(PullConsumer.unsubscribe)
    assign = called(PullConsumer.assign)
    pause = called(PullConsumer.pause)
    resume = called(PullConsumer.resume)
    seek = called(PullConsumer.seek)
    pull = awaited(PullConsumer.pull)
    fetch_message_queues = awaited(PullConsumer.fetch_message_queues)
    committed = awaited(PullConsumer.committed)
    update_consume_offset = awaited(PullConsumer.update_consume_offset)
    max_offset = awaited(PullConsumer.max_offset)
    min_offset = awaited(PullConsumer.min_offset)
    offset_for_timestamp = awaited(PullConsumer.offset_for_timestamp)


@attrs.frozen
class AsyncioPushConsumer(InTrio[PushConsumer]):
    """`PushConsumer` for asyncio programs: its listener is a coroutine function of asyncio's."""

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now, those of retries among them."""
        return self._client.queues

    subscribe = called(PushConsumer.subscribe)
    unsubscribe = called(PushConsumer.unsubscribe)
    suspend = called(PushConsumer.suspend)
    resume = called(PushConsumer.resume)


@attrs.frozen
class AsyncioAdmin(InTrio[Admin]):
    """`Admin` for asyncio programs."""

    cluster_info = awaited(Admin.cluster_info)
    topics = awaited(Admin.topics)
    route = awaited(Admin.route)
    create_topic = awaited(Admin.create_topic)
    delete_topic = awaited(Admin.delete_topic)
    topic_status = awaited(Admin.topic_status)
    create_group = awaited(Admin.create_group)
    delete_group = awaited(Admin.delete_group)
    groups = awaited(Admin.groups)
    consume_stats = awaited(Admin.consume_stats)
    consumer_offset = awaited(Admin.consumer_offset)
    update_consumer_offset = awaited(Admin.update_consumer_offset)
    reset_offset_by_timestamp = awaited(Admin.reset_offset_by_timestamp)
    search_offset = awaited(Admin.search_offset)
    max_offset = awaited(Admin.max_offset)
    min_offset = awaited(Admin.min_offset)
    message_by_id = awaited(Admin.message_by_id)
    messages_by_key = awaited(Admin.messages_by_key)
    messages_by_unique_id = awaited(Admin.messages_by_unique_id)


def in_asyncio(listener: MessageListener) -> MessageListener:
    """A listener of asyncio's, for a consumer, whose tasks are Trio's."""
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
