"""Pulls the queues of a consumer, one task for each (PullMessageService): while they have room, again and again.

A pull is held by the broker while there is nothing to give. A queue without room waits for its messages to be consumed;
after a failure a pull waits 3 s, as in RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.client.client_error import BrokerRefused, ClientError
from rmq_actors.client.consumer_requests import PullResult
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.rebalancing import Rebalancer
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.consumer_stats import ConsumerStats
from rmq_actors.protocols.flow_control import BROKER_FLOW_CONTROL_DELAY_S, EXCEPTION_DELAY_S
from rmq_actors.protocols.pull_results import ImmediateRetries, PullStatus, corrected_offset
from rmq_actors.wire.bodies.heartbeat import MessageModel, SubscriptionData
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: How long a broker holds a pull, and how long this side waits for its answer (BROKER_SUSPEND_MAX_TIME_MILLIS,
#: CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND).
SUSPEND_MS, PULL_TIMEOUT_MS = 15_000, 30_000
#: A queue without room, or without its lock, looks again after this, if nothing wakes it.
_LOOK_AGAIN_S = 20.0
#: How long the messages of a queue may still be consumed before its illegal offset is corrected.
_OFFSET_ILLEGAL_PAUSE_S = 10.0


@attrs.define(eq=False, repr=False)
class Puller:
    """`run` is one queue's task."""

    rebalancer: Rebalancer
    _stats: ConsumerStats
    pull_interval_s: float
    #: Messages of a queue came: they are in its process queue already.
    on_found: Callable[[HeldQueue, list[MessageExt]], None]
    #: A queue was given up that should be taken again at once.
    on_lost: Callable[[], None]
    #: Whether a queue is not to be pulled now; its `changed` is called when that ends.
    is_paused: Callable[[MessageQueue], bool]
    #: Whether what is passed over counts as consumed.
    commits: bool = True
    #: Whether a pull tells how far the group is. A broker may handle an older pull after a commit, and believe it.
    commits_with_pulls: bool = True
    #: How many times pulls waited for room, by reason.
    flow_controlled: dict[str, int] = attrs.field(factory=dict, init=False)

    async def run(self, held: HeldQueue) -> None:
        """Pull until the queue is given up."""
        retries = ImmediateRetries()
        first = self.rebalancer.orderly
        with held.pulling:
            while not held.process_queue.dropped:
                held.process_queue.last_pull_s = trio.current_time()
                is_subscribed = held.queue.topic in self.rebalancer.subscriptions
                if not is_subscribed or self.is_paused(held.queue) or not self._has_room(held):
                    await held.wait_changed(_LOOK_AGAIN_S)
                    continue
                if self.rebalancer.locks and not held.process_queue.locked:
                    await held.wait_changed(EXCEPTION_DELAY_S)
                    continue
                try:
                    if first and not await self._begins_again(held):
                        await trio.sleep(EXCEPTION_DELAY_S)
                        continue
                    first = False
                    subscription = self.rebalancer.subscriptions.get(held.queue.topic)
                    if subscription is None:  # unsubscribed while the offset was asked
                        continue
                    began_at = held.next_offset
                    result = await self._pull(held, subscription)
                except ClientError as error:
                    await self._after_failure(held, error)
                    continue
                pause_s = await self._take(held, result)
                if result.status is PullStatus.NO_MATCHED_MSG or result.status is PullStatus.NO_NEW_MSG:
                    pause_s = retries.pause_s(held.next_offset != began_at, trio.current_time())
                if pause_s:
                    await trio.sleep(pause_s)
                else:
                    await trio.lowlevel.checkpoint()

    def _has_room(self, held: HeldQueue) -> bool:
        config, process_queue = self.rebalancer.config, held.process_queue
        reason = config.thresholds.shared_by(len(self.rebalancer.held)).held_back(
            process_queue.message_count,
            process_queue.size_bytes,
            process_queue.max_span,
            orderly=self.rebalancer.orderly,
        )
        if reason is not None:
            self.flow_controlled[reason] = self.flow_controlled.get(reason, 0) + 1
        return reason is None

    async def _begins_again(self, held: HeldQueue) -> bool:
        """With order, the group's offset is asked again once the lock is there: its last owner may have moved it."""
        if not self.rebalancer.locks:
            return True
        begin = await self.rebalancer.compute_pull_from_where(held.queue)
        if begin is None:
            return False
        held.next_offset = begin
        return True

    async def _pull(self, held: HeldQueue, subscription: SubscriptionData) -> PullResult:
        rebalancer, commit = self.rebalancer, None
        if self.commits_with_pulls and rebalancer.config.message_model is MessageModel.CLUSTERING:
            commit = rebalancer.offset_store.table.read_offset(held.queue) or None
        began_s = trio.current_time()
        result = await rebalancer.requests.pull(
            held.queue,
            held.next_offset,
            subscription,
            max_msg_nums=rebalancer.config.pull_batch_size,
            suspend_ms=SUSPEND_MS,
            deadline_s=deadline_after(PULL_TIMEOUT_MS),
            commit_offset=commit,
        )
        if result.messages:
            now_s = trio.current_time()
            self._stats.pulled(held.queue.topic, len(result.messages), now_s - began_s, now_s)
        return result

    async def _take(self, held: HeldQueue, result: PullResult) -> float:
        """What an answer means for the queue; the pause before the next pull."""
        process_queue = held.process_queue
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct_offset(held, result)
            return 0.0
        held.next_offset = result.next_begin_offset
        if result.messages:
            messages = list(result.messages)
            process_queue.behind = max(0, result.max_offset - 1 - messages[-1].queue_offset)
            process_queue.put_messages(messages)
            self.on_found(held, messages)
            return self.pull_interval_s
        if self.commits and process_queue.message_count == 0:
            # Nothing of what was passed over is subscribed: it counts as consumed (correctTagsOffset).
            self.rebalancer.offset_store.table.update_offset(held.queue, held.next_offset, increase_only=True)
        return 0.0

    async def _correct_offset(self, held: HeldQueue, result: PullResult) -> None:
        """The queue begins later: go on there. Or it ends sooner: take it again, where nothing is passed over."""
        rebalancer, process_queue = self.rebalancer, held.process_queue
        _log.warning(
            "%s: offset %d of %s is outside of the queue, which is from %d to %d: %d is next there",
            rebalancer.config.consumer_group,
            held.next_offset,
            held.queue,
            result.min_offset,
            result.max_offset,
            result.next_begin_offset,
        )
        table = rebalancer.offset_store.table
        if result.next_begin_offset > held.next_offset:
            # What is in memory was pulled while it was there, and is still consumed.
            held.next_offset = result.next_begin_offset
            if self.commits and process_queue.message_count == 0:
                table.update_offset(held.queue, held.next_offset, increase_only=True)
            return
        # What is in memory may not be there any more.
        rebalancer.drop_within_its_pull(held)
        await trio.sleep(_OFFSET_ILLEGAL_PAUSE_S)
        async with held.consuming:  # with order, no two listeners have messages of one queue
            offset = corrected_offset(result.next_begin_offset, process_queue.first_offset)
            committed = table.read_offset(held.queue)
            if self.commits or (committed is not None and committed > offset):
                table.update_offset(held.queue, offset, increase_only=False)
                await rebalancer.offset_store.persist([held.queue])
            if not await rebalancer.take_again(held, offset):
                self.on_lost()

    async def _after_failure(self, held: HeldQueue, error: ClientError) -> None:
        group = self.rebalancer.config.consumer_group
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL:
            await trio.sleep(BROKER_FLOW_CONTROL_DELAY_S)
            return
        _log.warning("%s: %s is not pulled for %g s: %s", group, held.queue, EXCEPTION_DELAY_S, error)
        await trio.sleep(EXCEPTION_DELAY_S)
