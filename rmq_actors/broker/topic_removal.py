"""Deletes topics on a master: settings, consumers' offsets and queues, all of it or, before a point, nothing.

    hide the topics ─▶ TopicDeletion.delete: durable, no way back ─▶ offsets, settings, durably ─▶ finish
        │ fails: they are shown again          │ fails: they stay hidden, and nobody makes them again, until
        ▼                                      ▼ the deletion is asked for again, or the broker starts again

A broker that died in between goes on with it at its next start as a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

import attrs

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.protocols.slow_consumers import SlowConsumers
from rmq_actors.store.files.topic_names import is_lmq
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.broker import BrokerDeleteTopic
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC, TRANSACTION_TOPICS

_log = logging.getLogger(__name__)

#: Queues that stay although no topic of their name was made (DefaultMessageStore.cleanUnusedTopic). RocketMQ lacks
#: TRANS_CHECK_MAX_TIME_TOPIC, into which a transaction is put that was given up, also where that cannot be made.
_KEPT_TOPICS = TRANSACTION_TOPICS | {SCHEDULE_TOPIC}


@attrs.frozen(eq=False)
class TopicRemoval:
    """For one caller at a time, which is a pool of one worker."""

    _metadata: BrokerMetadata
    _hold_service: PullRequestHoldService
    lags: SlowConsumers
    _tracer: Tracer

    async def delete(self, store: MessageStore, topics: Collection[str]) -> None:
        """Delete topics, also those of which only a part is left. Raises `OSError`, `ValueError`."""
        await self._delete(store, lambda: frozenset(topics))

    async def clean_unused(self, store: MessageStore) -> list[str]:
        """Remove the queues of topics that are not there (CLEAN_UNUSED_TOPIC); which. As `delete`."""

        def unused() -> frozenset[str]:
            select = self._metadata.topics.select_topic_config
            found = {queue.topic for queue in store.files.consume_queues} - _KEPT_TOPICS
            return frozenset(topic for topic in found if select(topic) is None and not is_lmq(topic))

        return sorted(await self._delete(store, unused))

    async def _delete(self, store: MessageStore, choose: Callable[[], AbstractSet[str]]) -> AbstractSet[str]:
        deletion, offsets = store.topic_deletion, self._metadata.consumer_offsets

        def has_begun(names: AbstractSet[str]) -> bool:
            return bool(names & deletion.unfinished)

        async with self._metadata.topics.deleting(choose, has_begun, deletion.finish) as names:
            if names:
                await deletion.delete(names)
                self._tell(names)
                self.lags.forget_topics(names)
                offsets.remove_topics(names)
                await offsets.persist()
        for topic in sorted(names):
            _log.info("topic %s and its queues are deleted", topic)
        self._hold_service.release(names)
        return names

    async def go_on(self, store: MessageStore, *, is_slave: bool) -> None:
        """End the deletions that an earlier life has begun; a slave has its master's tables: it drops offsets alone."""
        unfinished = store.topic_deletion.unfinished
        if not unfinished:
            return
        try:
            if is_slave:  # its offsets never go back by its master's table
                self._tell(unfinished)
                self._metadata.consumer_offsets.remove_topics(unfinished)
                await self._metadata.consumer_offsets.persist()
                await store.topic_deletion.finish(unfinished)
            else:
                await self.delete(store, unfinished)
        except (OSError, ValueError) as error:
            _log.error("topics %s are not deleted yet, delete them again: %s", ", ".join(sorted(unfinished)), error)

    def _tell(self, names: AbstractSet[str]) -> None:
        for topic in sorted(names):
            self._tracer.emit(BrokerDeleteTopic(topic=topic))
