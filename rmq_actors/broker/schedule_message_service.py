"""Delivers delayed messages when their time has come (ScheduleMessageService). Drives `protocols.delayed_deliveries`.

RocketMQ's looks at each level every 100 ms. This one sleeps until a message is due, or until one comes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.delayed_deliveries import DelayedDeliveries, Verdict
from rmq_actors.protocols.due_clock import DueClock, StampedRecord
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.formats import BLANK_SIZE, QUEUE_ENTRY
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.broker import BrokerDeliver
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.delayed_message import Undeliverable, message_timeup
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC

_log = logging.getLogger(__name__)

#: How many messages of a level are delivered before everything else of the broker gets its turn.
_BATCH = 32


@attrs.define(eq=False, repr=False)
class ScheduleMessageService(ServiceThread):
    """Works while it has a store: that of a master. It moves `offsets` on; OffsetPersistService writes them."""

    name = "ScheduleMessageService"
    _offsets: DelayOffsets
    _wall_clock: WallClock
    _tracer: Tracer
    _store: MessageStore | None = attrs.field(default=None, init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)

    def use_store(self, store: MessageStore | None) -> None:
        """Deliver from this store from now on; None: this broker is not a master now. Correct the offsets before."""
        self._store = store
        self._wake.wakeup()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Sleep until something may be due."""
        task_status.started()
        while True:
            store = self._store
            if store is None:
                await self._wake.wait_for_running(math.inf)
                continue
            levels = _Levels(store, self._offsets, self._wall_clock, self._tracer, self._wake.wakeup)
            with store.puts.delayed.subscribe(levels.delayed), store.dispatched.subscribe(levels.dispatched):
                while self._store is store:
                    if levels.deliver_due(trio.current_time()):
                        await trio.lowlevel.checkpoint()
                    else:
                        await self._wake.wait_for_running(levels.machine.looks_at_s)


@attrs.define(eq=False, repr=False)
class _Levels:
    """The levels of one store, from when its broker begins to deliver."""

    _store: MessageStore
    _offsets: DelayOffsets
    _wall_clock: WallClock
    _tracer: Tracer
    _wake: Callable[[], None]
    machine: DelayedDeliveries = attrs.field(init=False)
    _clock: DueClock = attrs.field(init=False)
    #: How often queues of the store had been made or removed when `_queues` was filled.
    _changes: int = attrs.field(default=-1, init=False)
    _queues: dict[int, ConsumeQueue] = attrs.field(factory=dict, init=False)
    #: Where the queue of each level ended when it was seen last.
    _ends: dict[int, int] = attrs.field(factory=dict, init=False)
    #: What the log was told last of each level that stands still: once is enough.
    _told: dict[int, str] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        store = self._store
        self.machine = DelayedDeliveries(store.config.delay_levels_ms)
        log_end, wall_ms = store.commit_log.append_offset, self._wall_clock.now_ms()
        longest_delay_s = max(self.machine.delays_ms) / 1000
        self._clock = DueClock(log_end, trio.current_time(), wall_ms, longest_delay_s)
        self._look_for_new()

    def delayed(self, record: StampedRecord) -> bool:
        """A delayed record was appended: note by which clock it was stamped."""
        self._clock.saw(record)
        return True

    def dispatched(self, _: int) -> bool:
        """More records are in their queues."""
        if grown := self._look_for_new():
            for level in grown:
                self.machine.came(level)
            if self.machine.looks_at_s <= trio.current_time():
                self._wake()
        return True

    def _look_for_new(self) -> list[int]:
        """The levels that have more messages than before."""
        queues = self._store.files.consume_queues
        if queues.changes != self._changes:
            self._changes = queues.changes
            found = {
                level: queues.find(SCHEDULE_TOPIC, level - 1) for level in range(1, len(self.machine.delays_ms) + 1)
            }
            self._queues = {level: queue for level, queue in found.items() if queue is not None}
        grown: list[int] = []
        for level, queue in self._queues.items():
            end = queue.max_offset_in_queue
            if end != self._ends.get(level):
                self._ends[level] = end
                grown.append(level)
        return grown

    def deliver_due(self, now_s: float) -> bool:
        """Deliver some of what is due of each level; whether more may be due now."""
        for level in self.machine.due(now_s):
            self._deliver(level, now_s)
        return self.machine.looks_at_s <= now_s

    def _deliver(self, level: int, now_s: float) -> None:
        """Deliver messages of one level, as far as they are due."""
        queue, machine = self._queues.get(level), self.machine
        if queue is None:
            machine.empty(level)
            return
        first = offset = self._first(level, queue)
        log_offset = 0
        for physical_offset, size, tags_code in QUEUE_ENTRY.iter_unpack(queue.entries(offset, _BATCH)):
            if size == BLANK_SIZE:  # there never was a message
                offset += 1
                self._offsets.delivered(level, offset, log_offset)
                continue
            due_at_s = self._due_at_s(level, queue, (physical_offset, size, tags_code), now_s)
            if due_at_s > now_s:
                machine.not_due(level, due_at_s)
                break
            verdict, detail, end_offset = self._deliver_one(level, physical_offset, size, now_s)
            if verdict is Verdict.DELIVERED:
                log_offset = end_offset
            else:
                self._note_delivered(level, first, offset, log_offset)
                self._note(verdict, level, offset, physical_offset, detail)
                first = offset + 1
                if verdict is Verdict.RETRIED:
                    return
            offset += 1
            self._offsets.delivered(level, offset, log_offset)
        else:
            if offset >= queue.max_offset_in_queue:
                machine.empty(level)
        self._note_delivered(level, first, offset, log_offset)

    def _first(self, level: int, queue: ConsumeQueue) -> int:
        """The level's next message: the queue's first one, where older ones have gone with the log's oldest files."""
        offset, least = self._offsets.offset_table.get(level, 0), queue.min_offset_in_queue
        if offset < least:
            detail = f"the log has removed them: {least - offset} messages"
            self._note(Verdict.PASSED_OVER, level, offset, -1, detail, next_offset=least)
            self._offsets.delivered(level, least, 0)
        return max(offset, least)

    def _due_at_s(self, level: int, queue: ConsumeQueue, entry: tuple[int, int, int], now_s: float) -> float:
        physical_offset, size, due_ms = entry
        delay_ms = self.machine.delays_ms[level - 1]
        if queue.ext is not None and queue.ext.is_ext_addr(due_ms):
            unit = queue.ext.get(due_ms)
            if unit is not None:
                due_ms = unit.tags_code
            else:
                due_ms = self._store.offsets.pickup_store_timestamp(physical_offset, size) + delay_ms
        return self._clock.due_at_s(physical_offset, due_ms, delay_ms, now_s)

    def _deliver_one(self, level: int, offset: int, size: int, now_s: float) -> tuple[Verdict, str, int]:
        """Put the message at `offset` of the log once more; what came of it, and where it ends."""
        store, machine = self._store, self.machine
        if offset + size > store.visible_end.offset():
            return machine.put(level, PutStatus.SERVICE_NOT_AVAILABLE, now_s), "its record is not on the disk yet", 0
        stored = store.records.look_message_by_offset(offset, size)
        if stored is None:
            return machine.unreadable(level, now_s), "its record cannot be read", 0
        try:
            message = message_timeup(stored)
        except Undeliverable as error:
            return machine.undeliverable(level), str(error), 0
        result = store.puts.async_put_message(message, waits=False).result
        assert result is not None
        end_offset = 0 if result.append is None else result.append.end_offset
        return machine.put(level, result.status, now_s), f"{result.status.value} {result.reason}", end_offset

    def _note_delivered(self, level: int, first: int, after: int, log_offset: int) -> None:
        if after > first:
            self._told.pop(level, None)
            self._emit("delivered", level, first, after, log_offset, "")

    def _note(
        self,
        verdict: Verdict,
        level: int,
        offset: int,
        physical_offset: int,
        detail: str,
        next_offset: int | None = None,
    ) -> None:
        """Tell of messages that are not delivered."""
        is_retried = verdict is Verdict.RETRIED
        after = offset if is_retried else offset + 1 if next_offset is None else next_offset
        if not is_retried:
            _log.error(
                "%s: delay level %d: message %d of its queue, at %d of the log, is not delivered: %s",
                *(ScheduleMessageService.name, level, offset, physical_offset, detail),
            )
        elif self._told.get(level) != detail:
            self._told[level] = detail
            _log.warning(
                "%s: delay level %d stands still at message %d of its queue, at %d of the log, and tries again: %s",
                *(ScheduleMessageService.name, level, offset, physical_offset, detail),
            )
        self._emit("retried" if is_retried else "passed_over", level, offset, after, 0, detail)

    def _emit(
        self,
        status: Literal["delivered", "retried", "passed_over"],
        level: int,
        first: int,
        after: int,
        log_offset: int,
        detail: str,
    ) -> None:
        self._tracer.emit(
            BrokerDeliver(
                status=status,
                queue_id=level - 1,
                queue_offset=first,
                queue_offset_next=after,
                offset=log_offset,
                detail=detail[:200],
            )
        )
