"""The clients that a cluster of either kind gives to a test: see `cluster_protocol.Cluster`."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

import attrs

from rmq_actors.client.admin import Admin
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.consumer_config import PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_listener import MessageListener
from rmq_actors.client.producer import Producer, run_producer
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.client.push_consumer import PushConsumer, run_push_consumer
from rmq_actors.client.transactions import TransactionListener
from rmq_actors.settings.argument_checks import checked


@attrs.define(eq=False, repr=False)
class ClusterClients(ABC):
    """Producers, consumers and administrators, on what a kind of cluster says a client stands on."""

    @abstractmethod
    def client(self, config: ClientConfig | None = None) -> AbstractAsyncContextManager[MQClientInstance]:
        """What a producer, consumer or administrator stands on; of `config` all counts but for addresses.

        Raises `ValueError` if the cluster has no name server.
        """

    @checked
    @contextlib.asynccontextmanager
    async def producer(
        self,
        producer_group: str | ProducerConfig = "cluster-producers",
        *,
        transaction_listener: TransactionListener | None = None,
        config: ClientConfig | None = None,
    ) -> AsyncIterator[Producer]:
        """See `Cluster.producer`."""
        own = producer_group if isinstance(producer_group, ProducerConfig) else ProducerConfig(producer_group)
        async with self.client(config) as instance, run_producer(instance, own, transaction_listener) as producer:
            yield producer

    @checked
    @contextlib.asynccontextmanager
    async def push_consumer(
        self,
        consumer_group: str | PushConsumerConfig,
        subscriptions: Mapping[str, str],
        listener: MessageListener,
        *,
        config: ClientConfig | None = None,
    ) -> AsyncIterator[PushConsumer]:
        """See `Cluster.push_consumer`."""
        own = consumer_group if isinstance(consumer_group, PushConsumerConfig) else PushConsumerConfig(consumer_group)
        async with (
            self.client(config) as instance,
            run_push_consumer(instance, own, subscriptions, listener) as consumer,
        ):
            yield consumer

    @checked
    @contextlib.asynccontextmanager
    async def consumer(
        self,
        consumer_group: str | PullConsumerConfig,
        subscriptions: Mapping[str, str] | None = None,
        *,
        config: ClientConfig | None = None,
    ) -> AsyncIterator[PullConsumer]:
        """See `Cluster.consumer`."""
        own = consumer_group if isinstance(consumer_group, PullConsumerConfig) else PullConsumerConfig(consumer_group)
        async with self.client(config) as instance, run_pull_consumer(instance, own, subscriptions) as consumer:
            yield consumer

    @checked
    @contextlib.asynccontextmanager
    async def admin(self, *, config: ClientConfig | None = None) -> AsyncIterator[Admin]:
        """See `Cluster.admin`."""
        async with self.client(config) as instance:
            yield Admin(instance)
