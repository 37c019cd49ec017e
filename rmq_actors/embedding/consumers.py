"""Consumers in this process, on real sockets: see `examples/consume.py`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping

from rmq_actors.actors.block_errors import opener
from rmq_actors.client.config import ClientConfig
from rmq_actors.client.consumer_config import DEFAULT_STRATEGY, PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_listener import MessageListener
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.client.push_consumer import PushConsumer, run_push_consumer
from rmq_actors.embedding.clients import open_real_client
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.settings.argument_checks import checked
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.acl_signature import SessionCredentials


@checked
@opener
async def open_push_consumer(
    namesrv_addr: str | ClientConfig,
    consumer_group: str | PushConsumerConfig,
    subscriptions: Mapping[str, str],
    listener: MessageListener,
    *,
    strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
    directory: str | os.PathLike[str] | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[PushConsumer]:
    """A member of a group whose `listener` is called with messages, for the length of a block.

    `subscriptions`: by topic an expression of tags, "*" for all. `listener` is `Concurrently(function)` or
    `Orderly(function)`. `namesrv_addr` is "host:port;host:port", or all settings of the client; `consumer_group` is a
    name, or all settings of the consumer. The file of a broadcasting consumer's offsets is below `directory`, the
    working directory by default. At the normal end of the block offsets are committed and locks given back.

    Raises `ValueError` for settings and expressions that cannot be, `TypeError` for subscriptions that are no mapping
    and for a listener that is a function alone. What the block raises leaves it as it is; an
    exception group says that tasks of the consumer failed.
    """
    config = consumer_group if isinstance(consumer_group, PushConsumerConfig) else PushConsumerConfig(consumer_group)
    async with (
        open_real_client(
            namesrv_addr, credentials=credentials, tls=tls, recorder=recorder, directory=directory
        ) as client,
        run_push_consumer(client, config, subscriptions, listener, strategy=strategy) as consumer,
    ):
        yield consumer


@checked
@opener
async def open_pull_consumer(
    namesrv_addr: str | ClientConfig,
    consumer_group: str | PullConsumerConfig,
    subscriptions: Mapping[str, str] | None = None,
    *,
    strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
    directory: str | os.PathLike[str] | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[PullConsumer]:
    """A member of a group that is asked for messages, for the length of a block: `async for message in consumer`.

    The arguments are those of `open_push_consumer`. Without `subscriptions` the consumer has no queues until it
    subscribes topics or assigns queues. At the normal end of the block offsets are committed; what
    was given last counts by `PullConsumer.commit` alone.
    """
    config = consumer_group if isinstance(consumer_group, PullConsumerConfig) else PullConsumerConfig(consumer_group)
    async with (
        open_real_client(
            namesrv_addr, credentials=credentials, tls=tls, recorder=recorder, directory=directory
        ) as client,
        run_pull_consumer(client, config, subscriptions, strategy=strategy) as consumer,
    ):
        yield consumer
