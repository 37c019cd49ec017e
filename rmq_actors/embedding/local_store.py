"""A message store alone, in this process, on a real directory or in memory: see `examples/message_store.py`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from rmq_actors.actors.block_errors import opener
from rmq_actors.actors.system import open_actor_system
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.real_io.environment import real_environment
from rmq_actors.real_io.memory_disk import MemoryDisk
from rmq_actors.settings.argument_checks import checked
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder


@checked
@opener
async def open_message_store(
    directory: str | os.PathLike[str] | None,
    config: MessageStoreConfig | None = None,
    *,
    recorder: Recorder | None = None,
) -> AsyncIterator[MessageStore]:
    """A running store for the length of a block, RocketMQ's or a new one; on a normal end it stops in order.

    With None for the directory it is in memory, and ends with the block.

    Raises `StoreLayoutError`, `DamagedLog`, `ConfigFileDamaged` or `OSError` before the block if it cannot start
    (`BlockingIOError`: it is open already), and `OSError` after it if not everything became durable.
    """
    recorder = recorder or real_recorder(RunInfo("embedding", "store", 0, source="broker"))
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(contextlib.closing(MemoryDisk())) if directory is None else directory
        environment, tracer = real_environment(where), recorder.tracer("store")
        store = await MessageStore.open(config or MessageStoreConfig(), environment, tracer)
        stack.callback(store.close)
        async with open_actor_system("store", tracer, entropy=environment.entropy) as system:
            await store.start(system)
            yield store
        await store.shut_down()
