"""Writes changed offsets to the disk from time to time (the timer of ConsumerOffsetManager.persist)."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.broker import BrokerPersistOffsets
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)

#: When RocketMQ writes first.
FIRST_AFTER_S = 10.0
#: How long a sync of the log is waited for, and the interval of its flushes.
_SYNC_MAX_S = 3.0
_COMMIT_S = 0.1


@attrs.define(eq=False, repr=False)
class OffsetPersistService:
    """A Service: writes consumer and delay offsets, at an orderly stop too. What cannot be written is tried again."""

    name = "OffsetPersistService"
    _metadata: BrokerMetadata
    #: None while there is no store.
    _open_store: Callable[[], MessageStore | None]
    #: flushConsumerOffsetInterval.
    _interval_s: float
    _tracer: Tracer
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until asked to stop, then once more."""
        task_status.started()
        pause_s = FIRST_AFTER_S
        while not self._stopping.is_set():
            with trio.move_on_after(pause_s):
                await self._stopping.wait()
            pause_s = self._interval_s
            await self._persist()

    def request_stop(self) -> None:
        """Finish what is under way, write what is left, and end."""
        self._stopping.set()

    async def _persist(self) -> None:
        metadata = self._metadata
        for part, persist in (
            ("consumer_offsets", metadata.consumer_offsets.persist),
            ("delay_offsets", self._persist_delay_offsets),
        ):
            try:
                status = "written" if await persist() else ""
            except (OSError, ValueError) as error:
                status = type(error).__name__
                _log.error("%s: the %s are not written: %s", self.name, part, error)
            if status:
                self._tracer.emit(BrokerPersistOffsets(status=status, part=part))

    async def _persist_delay_offsets(self) -> bool:
        store = self._open_store()
        return store is not None and await self._metadata.delay_offsets.persist(functools.partial(synced_to, store))


async def synced_to(store: MessageStore, offset: int) -> bool:
    """Make a log durable up to an offset; False if it does not get there soon. Raises `AppendRefused`."""
    if store.commit_log.flushed_where >= offset:
        return True
    with trio.move_on_after(_SYNC_MAX_S + store.config.flush_interval_commit_log_ms / 1000):
        # What is in the transient store pool is not in the log's files yet, and nobody is told when it is.
        while await store.sync_log() < offset:  # noqa: ASYNC110
            await trio.sleep(_COMMIT_S)
        return True
    return False
