"""Gives messages to listeners: without order many at once, with order one call per queue.

ConsumeMessageConcurrentlyService   found ─▶ [batches] ─▶ workers ─▶ listener ─▶ consumed: remove, note the offset
└─▶ not: send back, or try again in 5 s
ConsumeMessageOrderlyService        a task per queue: lock? ─▶ take ─▶ listener ─▶ commit, or stand still
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from rmq_actors.client.consumer_config import PushConsumerConfig
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import (
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListenerConcurrently,
    MessageListenerOrderly,
)
from rmq_actors.client.rebalancing import Rebalancer
from rmq_actors.client.send_back import SendBack
from rmq_actors.protocols.consume_results import (
    LOCAL_RETRY_S,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    consumed_count,
    max_reconsume_times,
    said,
    suspend_s,
    topic_for_listener,
)
from rmq_actors.protocols.consumer_stats import ConsumerStats
from rmq_actors.wire.bodies.consumer_running_info import CMResult
from rmq_actors.wire.bodies.heartbeat import MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue

_log = logging.getLogger(__name__)

#: A queue without its lock asks for it again after this, if nobody grants it sooner.
_LOCK_AGAIN_S = 3.0
#: A queue that has a limiter's place lets others have it after this (MAX_TIME_CONSUME_CONTINUOUSLY).
_IDLE_S = 60.0


class ConsumeMessageService(Protocol):
    """What the consumer needs of either service. `run` lasts until it is cancelled."""

    async def run(self) -> None:
        """Serve what is found."""
        ...

    def found(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """Messages of a queue came; they are in its process queue."""
        ...

    async def consume_directly(self, message: MessageExt) -> tuple[CMResult, str | None]:
        """Give one message to the listener for an operator; nothing is committed. What came of it, and why."""
        ...


@attrs.define(eq=False, repr=False)
class ConsumeMessageConcurrentlyService:
    """See the module."""

    _config: PushConsumerConfig
    _listener: MessageListenerConcurrently
    _rebalancer: Rebalancer
    _send_back: SendBack
    _stats: ConsumerStats
    _waiting: collections.deque[tuple[HeldQueue, list[MessageExt]]] = attrs.field(factory=collections.deque, init=False)
    _idle: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        """See `ConsumeMessageService`."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for _ in range(self._config.consume_thread_max):
                nursery.start_soon(self._work)

    def found(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """See `ConsumeMessageService`."""
        size = self._config.consume_message_batch_max_size
        for begin in range(0, len(messages), size):
            self._waiting.append((held, list(messages[begin : begin + size])))
            self._idle.unpark()

    async def consume_directly(self, message: MessageExt) -> tuple[CMResult, str | None]:
        """See `ConsumeMessageService`."""
        context = ConsumeConcurrentlyContext(_queue_of(message))
        try:
            status = await self._call([message], context)
        except Exception as error:  # noqa: BLE001 - told to the operator
            return CMResult.CR_THROW_EXCEPTION, repr(error)
        return (CMResult.CR_LATER if status is ConsumeConcurrentlyStatus.RECONSUME_LATER else CMResult.CR_SUCCESS), None

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                await self._idle.park()
                continue
            held, messages = self._waiting.popleft()
            if not held.process_queue.dropped:
                await self._consume(held, messages)
            else:
                await trio.lowlevel.checkpoint()

    async def _consume(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        config, context = self._config, ConsumeConcurrentlyContext(held.queue)
        began_s = trio.current_time()
        status = ConsumeConcurrentlyStatus.RECONSUME_LATER
        scope = trio.CancelScope(deadline=began_s + config.consume_timeout_min * 60)
        try:
            with scope:
                status = await self._call(messages, context)
        except Exception:  # noqa: BLE001 - logged; the messages come again. Also what fails as its time is up.
            _log.exception("%s: a listener failed with messages of %s", config.consumer_group, held.queue)
        if scope.cancelled_caught:
            _log.error(
                "%s: a listener took more than %d min with messages of %s: they come again",
                config.consumer_group,
                config.consume_timeout_min,
                held.queue,
            )
        count = consumed_count(status, context.ack_index, len(messages))
        self._stats.consumed(
            held.queue.topic, count, len(messages) - count, trio.current_time() - began_s, trio.current_time()
        )
        if not held.process_queue.dropped:
            await self._end(held, messages, count, context.delay_level_when_next_consume)
        elif count == len(messages):
            # Nothing is committed any more. But the queue may be taken again here, after what is consumed.
            held.process_queue.remove_messages(messages, trio.current_time())

    async def _call(
        self, messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        returned = await self._listener(
            [_for_listener(each, self._config.consumer_group) for each in messages], context
        )
        return said(returned, ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    async def _end(self, held: HeldQueue, messages: list[MessageExt], count: int, delay_level: int) -> None:
        """Send back what is not consumed, and note how far the queue is."""
        done, again = messages, list[MessageExt]()
        if count < len(messages) and self._config.message_model is MessageModel.BROADCASTING:
            _log.warning(
                "%s: %d messages of %s are dropped", self._config.consumer_group, len(messages) - count, held.queue
            )
        elif count < len(messages):
            done = messages[:count]
            for message in messages[count:]:
                if await self._send_back.send_message_back(message, held.queue, delay_level):
                    done.append(message)
                else:
                    again.append(attrs.evolve(message, reconsume_times=message.reconsume_times + 1))
        offset = held.process_queue.remove_messages(done, trio.current_time())
        held.changed()
        if offset >= 0 and not held.process_queue.dropped:
            self._rebalancer.offset_store.table.update_offset(held.queue, offset, increase_only=True)
        if again and self._nursery is not None:
            self._nursery.start_soon(self._try_later, held, again)

    async def _try_later(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        await trio.sleep(LOCAL_RETRY_S)
        if not held.process_queue.dropped:
            self.found(held, messages)


@attrs.define(eq=False, repr=False)
class ConsumeMessageOrderlyService:
    """See the module."""

    _config: PushConsumerConfig
    _listener: MessageListenerOrderly
    _rebalancer: Rebalancer
    _send_back: SendBack
    _stats: ConsumerStats
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    #: Queues that have a task.
    _served: set[HeldQueue] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._limiter = trio.CapacityLimiter(self._config.consume_thread_max)

    async def run(self) -> None:
        """See `ConsumeMessageService`."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await trio.sleep_forever()

    def found(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """See `ConsumeMessageService`."""
        if held in self._served:
            held.changed()
        elif self._nursery is not None:
            self._served.add(held)
            self._nursery.start_soon(self._serve, held)

    async def consume_directly(self, message: MessageExt) -> tuple[CMResult, str | None]:
        """See `ConsumeMessageService`."""
        context = ConsumeOrderlyContext(_queue_of(message))
        try:
            status = await self._call([message], context)
        except Exception as error:  # noqa: BLE001 - told to the operator
            return CMResult.CR_THROW_EXCEPTION, repr(error)
        is_later = status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return (CMResult.CR_LATER if is_later else CMResult.CR_SUCCESS), None

    async def _serve(self, held: HeldQueue) -> None:
        """One queue's task: consume while there is anything, then wait for more, until the queue is given up."""
        try:
            while not held.process_queue.dropped:
                if not held.process_queue.has_waiting:
                    await held.wait_changed(_IDLE_S)
                elif not self._may_consume(held):
                    if not await self._rebalancer.lock_again(held):
                        await held.wait_changed(_LOCK_AGAIN_S)
                else:
                    pause_s = 0.0
                    async with self._limiter, held.consuming:
                        if not held.process_queue.dropped and self._may_consume(held):
                            pause_s = await self._consume(held)
                    if pause_s:
                        await trio.sleep(pause_s)
        finally:
            self._served.discard(held)

    def _may_consume(self, held: HeldQueue) -> bool:
        process_queue = held.process_queue
        if not self._rebalancer.locks:
            return True
        return process_queue.locked and not process_queue.is_lock_expired(trio.current_time())

    async def _consume(self, held: HeldQueue) -> float:
        """Give the next messages to the listener; the pause before the queue goes on."""
        config, process_queue = self._config, held.process_queue
        began_s = trio.current_time()
        messages = process_queue.take_messages(config.consume_message_batch_max_size, began_s)
        context = ConsumeOrderlyContext(held.queue)
        status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        try:
            status = await self._call(messages, context)
        except Exception:  # noqa: BLE001 - logged; the messages come again
            _log.exception("%s: a listener failed with messages of %s", config.consumer_group, held.queue)
        finally:
            held.changed()
        now_s = trio.current_time()
        is_consumed = status is ConsumeOrderlyStatus.SUCCESS
        self._stats.consumed(
            held.queue.topic, len(messages) * is_consumed, len(messages) * (not is_consumed), now_s - began_s, now_s
        )
        if not is_consumed:
            again = await self._to_consume_again(messages)
            if again:
                process_queue.make_to_consume_again(again)
                asked_ms = context.suspend_current_queue_time_ms
                return suspend_s(config.suspend_current_queue_time_ms if asked_ms == -1 else asked_ms)
        offset = process_queue.commit()
        if offset >= 0 and not process_queue.dropped:
            self._rebalancer.offset_store.table.update_offset(held.queue, offset, increase_only=False)
        return 0.0

    async def _call(self, messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        returned = await self._listener(
            [_for_listener(each, self._config.consumer_group) for each in messages], context
        )
        return said(returned, ConsumeOrderlyStatus.SUCCESS)

    async def _to_consume_again(self, messages: Sequence[MessageExt]) -> list[MessageExt]:
        """Those that come again, all or none; what was tried often enough goes to the topic of retries first."""
        limit = max_reconsume_times(self._config.max_reconsume_times, orderly=True)
        again = list[MessageExt]()
        stays = False
        for message in messages:
            if message.reconsume_times >= limit and await self._send_back.send_to_retry_topic(
                message, message.reconsume_times
            ):
                again.append(message)
                continue
            stays = True
            again.append(attrs.evolve(message, reconsume_times=message.reconsume_times + 1))
        return again if stays else []


def _for_listener(message: MessageExt, group: str) -> MessageExt:
    topic = topic_for_listener(message.topic, message.properties, group)
    return message if topic == message.topic else attrs.evolve(message, topic=topic)


def _queue_of(message: MessageExt) -> MessageQueue:
    return MessageQueue(topic=message.topic, broker_name=message.broker_name, queue_id=message.queue_id)
