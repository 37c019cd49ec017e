"""Deletes topics on a master: settings, consumers' offsets and queues, all of it or, before a point, nothing.

    hide the topics ─▶ TopicDeletion.delete: durable, no way back ─▶ offsets, settings, durably ─▶ finish
        │ fails: they are shown again          │ fails: they stay hidden, and nobody makes them again, until
        ▼                                      ▼ the deletion is asked for again, or the broker starts again

A broker that died in between goes on with it at its next start as a master.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import attrs

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.store.files.topic_names import is_lmq
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC

_log = logging.getLogger(__name__)

#: Queues that stay although no topic of their name was made (DefaultMessageStore.cleanUnusedTopic).
_KEPT_TOPICS = frozenset({SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"})


@attrs.frozen(eq=False)
class TopicRemoval:
    """For one caller at a time, which is a pool of one worker."""

    _metadata: BrokerMetadata
    _hold_service: PullRequestHoldService

    async def delete(self, store: MessageStore, topics: Collection[str]) -> None:
        """Delete topics, also those of which only a part is left. Raises `OSError`, `ValueError`."""
        deletion, names = store.topic_deletion, frozenset(topics)
        offsets = self._metadata.consumer_offsets

        def has_begun() -> bool:
            return bool(names & deletion.unfinished)

        async def finish() -> None:
            await deletion.finish(names)

        async with self._metadata.topics.deleting(names, has_begun, finish):
            await deletion.delete(names)
            offsets.remove_topics(names)
            await offsets.persist()
        for topic in sorted(names):
            _log.info("topic %s and its queues are deleted", topic)
        self._hold_service.release(names)

    async def clean_unused(self, store: MessageStore) -> list[str]:
        """Remove the queues of topics that are not there (CLEAN_UNUSED_TOPIC); which. As `delete`."""
        select = self._metadata.topics.select_topic_config
        found = dict.fromkeys(queue.topic for queue in store.files.consume_queues)
        unused = [topic for topic in found if select(topic) is None and topic not in _KEPT_TOPICS and not is_lmq(topic)]
        if unused:
            await self.delete(store, unused)
        return unused

    async def go_on(self, store: MessageStore, *, is_slave: bool) -> None:
        """End the deletions that an earlier life has begun; a slave has its master's tables, and does not need to."""
        unfinished = store.topic_deletion.unfinished
        if not unfinished:
            return
        try:
            if is_slave:
                await store.topic_deletion.finish(unfinished)
            else:
                await self.delete(store, unfinished)
        except (OSError, ValueError) as error:
            _log.error("topics %s are not deleted yet, delete them again: %s", ", ".join(sorted(unfinished)), error)
