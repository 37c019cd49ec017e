"""Clients in an asyncio program, whose code sees nothing of Trio.

A Trio run lives inside of the asyncio loop for the length of the client's block (`actors.asyncio_host`): so a loop has
one `open_asyncio_client` at a time, and it gives as many producers, consumers and administrators as the program needs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import attrs

from rmq_actors.actors.asyncio_host import TrioGuest, open_trio_guest, run_in_asyncio
from rmq_actors.client.client_error import ClientClosed
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.consumer_config import DEFAULT_STRATEGY, PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_listener import MessageListener
from rmq_actors.client.producer import Producer
from rmq_actors.client.send_result import LocalTransactionState
from rmq_actors.client.transactions import TransactionListener
from rmq_actors.embedding.asyncio_consumers import (
    AsyncioAdmin,
    AsyncioPullConsumer,
    AsyncioPushConsumer,
    InTrio,
    awaited,
    in_asyncio,
)
from rmq_actors.embedding.clients import open_admin, open_producer
from rmq_actors.embedding.consumers import open_pull_consumer, open_push_consumer
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.settings.argument_checks import checked
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.record import Message, StoredMessage

C = TypeVar("C")


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
class AsyncioProducer(InTrio[Producer]):
    """`client.producer.Producer` for asyncio tasks: the same calls, with the same results and errors.

    `asyncio.timeout` and the cancellation of a task cancel a call as they cancel any other. A transaction listener's
    methods are asyncio's.
    """

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._client.client_id

    send = awaited(Producer.send)
    send_by_selector = awaited(Producer.send_by_selector)
    send_batch = awaited(Producer.send_batch)
    send_oneway = awaited(Producer.send_oneway)
    send_in_transaction = awaited(Producer.send_in_transaction)
    queues_of = awaited(Producer.queues_of)


@attrs.frozen
class AsyncioClient:
    """Gives producers, consumers and administrators: see `open_asyncio_client`."""

    _guest: TrioGuest
    _namesrv_addr: str | ClientConfig
    _credentials: SessionCredentials | None
    _tls: TlsClient | None

    @checked
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
        async with self._entered(opened) as producer:
            yield AsyncioProducer(self._guest, producer)

    @checked
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
        async with self._entered(opened) as consumer:
            yield AsyncioPullConsumer(self._guest, consumer)

    @checked
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
        async with self._entered(opened) as consumer:
            yield AsyncioPushConsumer(self._guest, consumer)

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncioAdmin]:
        """An administrator's client for the length of a block: see `open_admin`."""
        opened = open_admin(self._namesrv_addr, credentials=self._credentials, tls=self._tls)
        async with self._entered(opened) as admin:
            yield AsyncioAdmin(self._guest, admin)

    @contextlib.asynccontextmanager
    async def _entered(self, opened: AbstractAsyncContextManager[C]) -> AsyncIterator[C]:
        if self._guest.ended.done():
            raise ClientClosed("the block of open_asyncio_client is over: it gives no more clients")
        async with self._guest.enter(opened) as client:
            yield client


@checked
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
