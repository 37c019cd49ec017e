"""What is done to a broker's files while it is down."""

from __future__ import annotations

import contextlib

from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.lifecycle.truncation import truncate_store
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer


async def truncate_stopped_broker(
    config: MessageStoreConfig, environment: Environment, tracer: Tracer, end_offset: int
) -> int:
    """`truncate_store`, and lower consumer offsets past the end of their queue: they would skip what comes there.

    Delay offsets are lowered before the cut, as `truncate_store` says.

    A running broker does both, too. Called again after a failure, it does the rest. Raises what `truncate_store`
    raises, and `ConfigFileDamaged` before anything is changed.
    """
    consumer_offsets = ConsumerOffsetManager.load(environment.disk)
    delay_offsets = DelayOffsets.load(environment.disk)
    kept_bytes = await truncate_store(config, environment, tracer, end_offset, delay_offsets)
    with contextlib.closing(await MessageStore.open(config, environment, tracer)) as store:
        consumer_offsets.correct(store.offsets.get_max_offset_in_queue)
        await consumer_offsets.persist()
    return kept_bytes
