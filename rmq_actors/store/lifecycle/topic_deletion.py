"""Ends the lives of topics: what their queues had is gone for good, and they begin at 0 if they are made again.

On a master the order is: sync the log so far, write down where that is (`DeletedTopics`, the point from which there is
no way back); then, in one step, remove the queues and let the next message of each be number 0. On a slave the points
are its master's.

    log   T0 T1 T2 | T3 | T0 T1        T3: the broker itself put it (a delay was over, a transaction committed) while
                   A    B              A was written down. It counts on in the old life, so that B is written down too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable

import attrs
import trio

from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.files.deleted_topics import Points, begin_of
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.wire.record import check_record


class NotDeleted(OSError):
    """What should be deleted is still there, or may be: the store cannot make anything durable."""


@attrs.define(eq=False, repr=False)
class TopicDeletion:
    """Of one open store. One deletion at a time."""

    _files: StoreFiles
    #: Returns when the log is durable to its end.
    _sync_log: Callable[[], Awaitable[int]]
    #: Makes durable what the dispatchers have changed, removals too.
    _sync_derived: Callable[[], Awaitable[bool]]
    #: Lets ReputMessageService look at the log.
    _wake: Callable[[], None]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    #: The points that queues may still be by, as a change of points has failed after it was durable.
    _queues_are_by: Points | None = attrs.field(default=None, init=False)

    @property
    def unfinished(self) -> frozenset[str]:
        """Topics whose queues are gone, as is promised, and of which something else may still be there."""
        return self._files.deleted_topics.deleting

    @property
    def points(self) -> Points:
        """Where the present lives of topics begin."""
        return self._files.deleted_topics.points

    async def delete(self, topics: Collection[str]) -> None:
        """On a master: remove the queues of topics to which no client sends; `finish` when all else of them is gone.

        On return a crash brings nothing back. Raises `OSError`, `ValueError` (too many): call it again then. Nothing
        has changed then, unless they are `unfinished`.
        """
        async with self._lock:
            log, checkpointing = self._files.commit_log, self._files.checkpointing
            log.commit()
            begin, offsets = log.max_offset, log.queue_offsets(topics)
            await self._write_down(topics, begin)
            async with checkpointing.removing():
                log.commit()
                are_later, begin = log.queue_offsets(topics) != offsets, log.max_offset
                self._forget_before(topics, begin)
                log.forget_queue_offsets(topics)
            if are_later:
                await self._write_down(topics, begin)
                async with checkpointing.removing():
                    self._forget_before(topics, begin)
            await self._sync()

    async def _write_down(self, topics: Collection[str], begin: int) -> None:
        """Let these topics begin at `begin`, which is in the log after any power loss."""
        await self._sync_log()
        await self._files.deleted_topics.begin(topics, begin, self._files.commit_log.min_offset)

    def _forget_before(self, topics: Collection[str], begin: int) -> None:
        self._forget(queue for queue in self._queues_of(topics) if queue.first_physic_offset < begin)

    async def finish(self, topics: Collection[str]) -> None:
        """Nothing is left of these topics. Raises `OSError`."""
        await self._files.deleted_topics.finish(topics)

    async def follow(self, points: Points, log_min_offset: int) -> bool:
        """On a slave: take over the points of a master whose log begins there; whether that changed anything.

        A point that the master does not have is dropped, unless its log has lost all records before it. A queue that
        began again by what the log says keeps that. Raises `OSError`, `ValueError`.
        """

        def followed(ours: Points) -> Points:
            merged: dict[str, dict[int | None, int]] = {}
            for topic in {**ours, **points}:
                theirs = points.get(topic, {})
                mine = ours.get(topic, {})
                merged[topic] = {
                    **{queue: at for queue, at in mine.items() if queue is not None or at <= log_min_offset},
                    **theirs,
                }
            return merged

        return await self._change(followed)

    async def begin_at(self, topics: Collection[str], log_end: int) -> bool:
        """On a slave: no record of these topics before `log_end` counts; whether that changed anything.

        Raises `OSError`, `ValueError`.
        """
        known = {queue.topic for queue in self._queues_of(topics) if 0 <= queue.first_physic_offset < log_end}
        if not known:
            return False

        def raised(ours: Points) -> Points:
            return {**ours, **{topic: {**ours.get(topic, {}), None: log_end} for topic in known}}

        return await self._change(raised)

    async def _change(self, change: Callable[[Points], Points]) -> bool:
        async with self._lock:
            files, deleted = self._files, self._files.deleted_topics
            before = deleted.points
            if change(before) == before and self._queues_are_by is None:
                return False
            if self._queues_are_by is None:
                self._queues_are_by = before
            files.reput.drain()
            async with files.checkpointing.removing(rebuilds=True):
                await deleted.change(change, files.commit_log.min_offset)
                # No record is dispatched from here to the end of the block.
                files.reput.drain()
                self._remove_what_differs(self._queues_are_by, deleted.points)
            self._queues_are_by = None
            self._wake()
            await self._sync()
            return before != deleted.points

    def _remove_what_differs(self, before: Points, after: Points) -> None:
        """Remove the queues that begin at another place now, and let the log be dispatched for them again.

        Raises `OSError`; then it may be called again: those that are gone already are dispatched.
        """
        again_from: list[int] = []
        topics = {topic for topic in {**before, **after} if before.get(topic) != after.get(topic)}
        for topic in topics:
            old, new = before.get(topic, {}), after.get(topic, {})
            again_from += [
                new.get(queue, new.get(None, 0)) for queue in old if new.get(queue, new.get(None, 0)) < old[queue]
            ]
        remove: list[ConsumeQueue] = []
        for queue in self._queues_of(topics):
            begin = begin_of(after.get(queue.topic, {}), queue.queue_id)
            was = begin_of(before.get(queue.topic, {}), queue.queue_id)
            if begin < was or queue.first_physic_offset < begin:
                remove.append(queue)
                # What named it as a further queue since may have no entry in it: its indexes seemed to be taken
                # (`ConsumeQueue._takes`), perhaps before this process began.
                if queue.max_physic_offset > begin or self._files.consume_queues.config.enable_multi_dispatch:
                    again_from.append(begin)
        try:
            self._forget(remove)
        finally:
            if again_from:
                self._files.reput.rewind(self._record_at(min(again_from)))

    def _record_at(self, offset: int) -> int:
        """Where to dispatch from, so that everything from `offset` on is: a record begins there.

        If this log diverges from the master's, and nobody has noticed yet, a point of that one may be within a record:
        then it is where the log's file begins.
        """
        log = self._files.commit_log
        offset = max(offset, log.min_offset)
        if offset >= log.max_offset:
            return offset
        view, begin = log.file_at(offset)
        is_record = check_record(view, offset - begin, offset, check_crc=False).what != "invalid"
        return offset if is_record else begin

    def _queues_of(self, topics: Collection[str]) -> list[ConsumeQueue]:
        return [queue for queue in self._files.consume_queues if queue.topic in topics]

    def _forget(self, queues: Iterable[ConsumeQueue]) -> None:
        for queue in list(queues):
            self._files.consume_queues.forget(queue.topic, queue.queue_id)

    async def _sync(self) -> None:
        if not await self._sync_derived():
            raise NotDeleted("a sync has failed before: the next start goes on with the deletion")
