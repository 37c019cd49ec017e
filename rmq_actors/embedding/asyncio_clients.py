"""Clients in an asyncio program, whose code sees nothing of Trio.

A Trio run lives inside of the asyncio loop for the length of the client's block (`actors.asyncio_host`): so a loop has
one `open_asyncio_client` at a time, and it gives as many producers, consumers and administrators as the program needs.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeVar

import attrs

from rmq_actors.actors.asyncio_host import TrioGuest, open_trio_guest, run_in_asyncio
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.consumer_config import DEFAULT_STRATEGY, PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_listener import MessageListener
from rmq_actors.client.producer import MessageQueueSelector, Producer
from rmq_actors.client.send_result import LocalTransactionState, SendResult, TransactionSendResult
from rmq_actors.client.transactions import TransactionListener
from rmq_actors.embedding.asyncio_consumers import (
    AsyncioAdmin,
    AsyncioPullConsumer,
    AsyncioPushConsumer,
    in_asyncio,
)
from rmq_actors.embedding.clients import open_admin, open_producer
from rmq_actors.embedding.consumers import open_pull_consumer, open_push_consumer
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import Message, StoredMessage

A = TypeVar("A")


@attrs.frozen
class _AsyncioListener:
    """A listener whose methods are asyncio's, for a producer, whose tasks are Trio's."""

    _listener: TransactionListener

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return await run_in_asyncio(self._listener.execute_local_transaction, message, transaction_id, argument)

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        return await run_in_asyncio(self._listener.check_local_transaction, message, transaction_id)


@attrs.frozen
class AsyncioProducer:
    """`client.producer.Producer` for asyncio tasks: the same calls, with the same results and errors.

    `asyncio.timeout` and the cancellation of a task cancel a call as they cancel any other.
    """

    _guest: TrioGuest
    _producer: Producer

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._producer.client_id

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """See `Producer.send`."""
        return await self._guest.run(
            functools.partial(self._producer.send, queue=queue, timeout_ms=timeout_ms), message
        )

    async def send_by_selector(
        self, message: Message, selector: MessageQueueSelector[A], argument: A, *, timeout_ms: int | None = None
    ) -> SendResult:
        """See `Producer.send_by_selector`."""
        call = functools.partial(self._producer.send_by_selector, message, selector, argument, timeout_ms=timeout_ms)
        return await self._guest.run(call)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """See `Producer.send_batch`."""
        call = functools.partial(self._producer.send_batch, messages, queue=queue, timeout_ms=timeout_ms)
        return await self._guest.run(call)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> None:
        """See `Producer.send_oneway`."""
        call = functools.partial(self._producer.send_oneway, message, queue=queue, timeout_ms=timeout_ms)
        await self._guest.run(call)

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """See `Producer.send_in_transaction`; the listener's methods are asyncio's."""
        call = functools.partial(self._producer.send_in_transaction, message, argument, timeout_ms=timeout_ms)
        return await self._guest.run(call)

    async def queues_of(self, topic: str, *, timeout_ms: int | None = None) -> Sequence[MessageQueue]:
        """See `Producer.queues_of`."""
        return await self._guest.run(functools.partial(self._producer.queues_of, topic, timeout_ms=timeout_ms))


@attrs.frozen
class AsyncioClient:
    """Gives producers, consumers and administrators: see `open_asyncio_client`."""

    _guest: TrioGuest
    _namesrv_addr: str | ClientConfig
    _credentials: SessionCredentials | None
    _tls: TlsClient | None

    @contextlib.asynccontextmanager
    async def producer(
        self, producer_group: str | ProducerConfig, *, transaction_listener: TransactionListener | None = None
    ) -> AsyncIterator[AsyncioProducer]:
        """A running producer for the length of a block: see `open_producer`."""
        listener = None if transaction_listener is None else _AsyncioListener(transaction_listener)
        opened = open_producer(
            self._namesrv_addr,
            producer_group,
            transaction_listener=listener,
            credentials=self._credentials,
            tls=self._tls,
        )
        async with self._guest.enter(opened) as producer:
            yield AsyncioProducer(self._guest, producer)

    @contextlib.asynccontextmanager
    async def pull_consumer(
        self,
        consumer_group: str | PullConsumerConfig,
        subscriptions: Mapping[str, str] | None = None,
        *,
        strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
        directory: str | os.PathLike[str] | None = None,
    ) -> AsyncIterator[AsyncioPullConsumer]:
        """A consumer that is asked for messages, for the length of a block: see `open_pull_consumer`."""
        opened = open_pull_consumer(
            self._namesrv_addr,
            consumer_group,
            subscriptions,
            strategy=strategy,
            credentials=self._credentials,
            tls=self._tls,
            directory=directory,
        )
        async with self._guest.enter(opened) as consumer:
            yield AsyncioPullConsumer(self._guest, consumer)

    @contextlib.asynccontextmanager
    async def push_consumer(
        self,
        consumer_group: str | PushConsumerConfig,
        subscriptions: Mapping[str, str],
        listener: MessageListener,
        *,
        strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
        directory: str | os.PathLike[str] | None = None,
    ) -> AsyncIterator[AsyncioPushConsumer]:
        """A consumer whose `listener`, an asyncio function, is called with messages: see `open_push_consumer`."""
        opened = open_push_consumer(
            self._namesrv_addr,
            consumer_group,
            subscriptions,
            in_asyncio(listener),
            strategy=strategy,
            credentials=self._credentials,
            tls=self._tls,
            directory=directory,
        )
        async with self._guest.enter(opened) as consumer:
            yield AsyncioPushConsumer(self._guest, consumer)

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncioAdmin]:
        """An administrator's client for the length of a block: see `open_admin`."""
        opened = open_admin(self._namesrv_addr, credentials=self._credentials, tls=self._tls)
        async with self._guest.enter(opened) as admin:
            yield AsyncioAdmin(self._guest, admin)


@contextlib.asynccontextmanager
async def open_asyncio_client(
    namesrv_addr: str | ClientConfig,
    *,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
) -> AsyncIterator[AsyncioClient]:
    """What gives an asyncio program its clients, for the length of a block; arguments are `open_producer`'s.

    Raises `RuntimeError` if the loop has one already, or a guest of `open_trio_guest`.
    """
    async with open_trio_guest() as guest:
        yield AsyncioClient(guest, namesrv_addr, credentials, tls)
