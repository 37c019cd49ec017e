"""Gives messages when it is asked (DefaultLitePullConsumer, and DefaultMQPullConsumer for one queue and offset).

async for message in consumer:      what came before counts as consumed when the next one is asked for
    ...
await consumer.commit()             and the last one now

GroupMember ─▶ pull tasks ─▶ ProcessQueue ─▶ [found] ─▶ poll
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

import attrs
import trio

from rmq_actors.client.client_error import ClientError
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.consumer_config import DEFAULT_STRATEGY, PullConsumerConfig
from rmq_actors.client.consumer_requests import ConsumerRequests, PullResult
from rmq_actors.client.found_messages import FoundMessages
from rmq_actors.client.group_member import GroupMember, Membership, run_member
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.pulling import PULL_TIMEOUT_MS, SUSPEND_MS
from rmq_actors.client.requests import deadline_after
from rmq_actors.client.running_info import running_info
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.protocols.filter_api import SUB_ALL, TAG, build_subscription
from rmq_actors.protocols.rebalance import by_broker_name
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.settings.argument_checks import checked
from rmq_actors.wire.bodies.consumer_running_info import ConsumerRunningInfo
from rmq_actors.wire.bodies.heartbeat import ConsumeType, MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue

#: How long a pull that is not held may take (consumerPullTimeoutMillis).
_PULL_TIMEOUT_MS = 10_000


@attrs.define(eq=False, repr=False)
class PullConsumer:
    """A running consumer of one group: see `open_pull_consumer`. One task at a time polls, or iterates.

    A second one gets `trio.BusyResourceError`: by its poll, what the first was given would count as consumed.

    Either `subscribe` topics, whose queues the members of the group share, or `assign` queues. Each method raises
    `ClientClosed` once the block is over, and so does a poll that waits then.
    """

    config: PullConsumerConfig
    _member: GroupMember
    _found: FoundMessages
    #: How far the consumer is in queues, where that is not to be committed yet. A queue that was another's since, or
    #: was reset, is another `HeldQueue`.
    _uncommitted: dict[HeldQueue, int] = attrs.field(factory=dict, init=False)
    _is_polled: bool = attrs.field(default=False, init=False)

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._member.client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now."""
        return [queue for queue, held in self._member.rebalancer.held.items() if not held.process_queue.dropped]

    # --- which messages -----------------------------------------------------------------------------------------------

    @checked
    def subscribe(self, topic: str, sub_expression: str = SUB_ALL, expression_type: str = TAG) -> None:
        """Take a share of a topic's queues. Raises `ValueError` for a bad expression, or where queues are assigned."""
        member = self._member
        member.check_open()
        if member.assigned is not None:
            raise ValueError(f"queues are assigned to this consumer, it cannot subscribe topic {topic}, too")
        version = member.client.environment.wall_clock.now_ms()
        member.subscriptions[topic] = build_subscription(topic, sub_expression, expression_type, sub_version=version)
        member.client.heartbeats.groups_changed()
        member.rebalance_soon()

    @checked
    def unsubscribe(self, topic: str) -> None:
        """Take no messages of a topic any more."""
        self._member.check_open()
        self._member.subscriptions.pop(topic, None)
        self._member.client.heartbeats.groups_changed()
        self._member.rebalance_soon()

    @checked
    def assign(self, queues: Iterable[MessageQueue], sub_expression: str = SUB_ALL) -> None:
        """Take exactly these queues, whoever else does. Raises `ValueError` where topics are subscribed."""
        member = self._member
        member.check_open()
        if member.assigned is None and member.subscriptions:
            raise ValueError(
                f"topics are subscribed ({', '.join(member.subscriptions)}): no queues can be assigned, too"
            )
        member.assigned = list(dict.fromkeys(queues))
        member.subscriptions.clear()
        for topic in dict.fromkeys(queue.topic for queue in member.assigned):
            member.subscriptions[topic] = build_subscription(topic, sub_expression, TAG)
        member.rebalance_soon()

    @checked
    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull nothing more of these queues; what is in memory is still given."""
        self._member.check_open()
        self._member.paused.update(queues)

    @checked
    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._member.check_open()
        self._member.paused.difference_update(queues)
        self._member.wake_all()

    @checked
    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset: now, or once the queue is this consumer's. Raises `ValueError` for one below 0."""
        self._member.check_open()
        self._member.rebalancer.seek(queue, offset)

    # --- messages -----------------------------------------------------------------------------------------------------

    @checked
    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The next messages, at most `poll_batch_size`; none if none came in time.

        What the last poll gave is consumed by that: with `auto_commit` it is committed within
        persistConsumerOffsetInterval. What a poll has taken that is cancelled comes at the next one. Raises
        `trio.BusyResourceError` while another task polls.
        """
        self._member.check_open()
        with self.polling():
            return await self.take(timeout_ms)

    def __aiter__(self) -> PullConsumer:
        return self

    async def __anext__(self) -> MessageExt:
        """The next message, however long that takes: the last one is consumed by that. Else as `poll`."""
        self._member.check_open()
        with self.polling():
            return await self.take_one()

    async def take(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """What `poll` gives; within `polling`."""
        await self._begin_call()
        timeout_ms = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        with trio.move_on_after(timeout_ms / 1000):
            return await self._next(self.config.poll_batch_size)
        return []

    async def take_one(self) -> MessageExt:
        """What `__anext__` gives; within `polling`."""
        await self._begin_call()
        return (await self._next(1))[0]

    async def _begin_call(self) -> None:
        self._member.check_open()
        if not self._is_polled:
            raise RuntimeError("messages are taken within `polling`: nobody else knows whether they were given")
        self._note_consumed()
        await trio.lowlevel.checkpoint()

    async def _next(self, count: int) -> list[MessageExt]:
        while not (messages := self._found.take(count)):
            await self._found.came.wait()
            self._member.check_open()
        return messages

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Around a call that takes messages: what it has taken is given when it returns.

        If it does not, as it is cancelled or fails, the next call gets that. Whoever gives messages to tasks of another
        loop has this around the whole way to them.
        """
        if self._is_polled:
            raise trio.BusyResourceError("another task polls this consumer: give each task a consumer of its own")
        self._is_polled = True
        try:
            yield
            self._found.end_call()
        finally:
            self._is_polled = False
            self._found.give_back()

    @checked
    async def commit(self, timeout_ms: int | None = None) -> None:
        """Have brokers know what was polled before as consumed, what the last poll gave among it.

        Raises the first queue's `ClientError` if a broker has not said in time that it knows: within `timeout_ms`,
        mqClientApiTimeout by default. Call it again, then; until the queue is another's, the offset also goes to the
        broker every persistConsumerOffsetInterval. A broadcasting consumer's file that cannot be written is logged.
        """
        self._member.check_open()
        self._note_consumed()
        table = self._member.offset_store.table
        self._forget_dropped()
        for held, offset in self._uncommitted.items():
            table.update_offset(held.queue, offset, increase_only=False)
        self._uncommitted.clear()
        if self.config.message_model is MessageModel.BROADCASTING:
            await self._member.offset_store.persist(self.queues)
            return
        offsets, errors = table.of_queues(self.queues), list[ClientError]()
        deadline_s = self._deadline(timeout_ms)

        async def tell(queues: Iterable[MessageQueue]) -> None:
            for queue in queues:
                # As it is when its turn comes: it may be further, reset, or another member's since.
                offset = table.read_offset(queue)
                if offset is None:
                    continue
                try:
                    await self._requests.update_consumer_offset(queue, offset, deadline_s)
                except ClientError as error:
                    errors.append(error)

        async with trio.open_nursery() as nursery:
            # A broker that is silent takes no other's time.
            for queues in by_broker_name(offsets).values():
                nursery.start_soon(tell, queues)
        if errors:
            errors[0].add_note(f"{len(errors)} of {len(offsets)} queues are not committed")
            raise errors[0]

    def _note_consumed(self) -> None:
        for held, offset in self._found.consumed().items():
            if self.config.auto_commit:
                self._member.offset_store.table.update_offset(held.queue, offset, increase_only=False)
            else:
                if held not in self._uncommitted:
                    self._forget_dropped()
                self._uncommitted[held] = offset

    def _forget_dropped(self) -> None:
        """Another commits those queues now, or they were reset."""
        self._uncommitted = {
            held: offset for held, offset in self._uncommitted.items() if not held.process_queue.dropped
        }

    # --- by queue and offset ------------------------------------------------------------------------------------------

    @checked
    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be read. Raises `ClientError`."""
        deadline_s, routes = self._deadline(), self._member.client.routes
        await routes.route(topic, deadline_s)
        return list(routes.known_subscribe_queues(topic))

    @checked
    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        sub_expression: str = SUB_ALL,
        *,
        max_msg_nums: int = 32,
        block_if_not_found: bool = False,
    ) -> PullResult:
        """Pull once, beside what is subscribed. Nothing is committed. Raises `ClientError`.

        `block_if_not_found`: the broker waits up to 15 s for a message.
        """
        self._member.check_open()
        return await self._requests.pull(
            queue,
            offset,
            build_subscription(queue.topic, sub_expression, TAG),
            max_msg_nums=max_msg_nums,
            suspend_ms=SUSPEND_MS if block_if_not_found else 0,
            deadline_s=deadline_after(PULL_TIMEOUT_MS if block_if_not_found else _PULL_TIMEOUT_MS),
        )

    @checked
    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue, as the store has it; None if there is none. Raises `ClientError`."""
        return await self._requests.query_consumer_offset(queue, self._deadline())

    @checked
    async def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Have the broker know the group's offset in a queue. Raises `ClientError`."""
        await self._requests.update_consumer_offset(queue, offset, self._deadline())

    @checked
    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that the queue gets. Raises `ClientError`."""
        return await self._requests.max_offset(queue, self._deadline())

    @checked
    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still there. Raises `ClientError`."""
        return await self._requests.min_offset(queue, self._deadline())

    @checked
    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at a time (ms since the epoch) or later. Raises `ClientError`."""
        return await self._requests.search_offset(queue, timestamp_ms, self._deadline())

    @property
    def _requests(self) -> ConsumerRequests:
        return self._member.membership.requests

    def _deadline(self, timeout_ms: int | None = None) -> float:
        self._member.check_open()
        return deadline_after(self._member.client.config.mq_client_api_timeout_ms if timeout_ms is None else timeout_ms)

    # --- a `RegisteredConsumer` ---------------------------------------------------------------------------------------

    def consumer_ids_changed(self) -> None:
        """See `RegisteredConsumer`."""
        self._member.rebalance_soon()

    def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """See `RegisteredConsumer`."""
        self._member.reset_offset(topic, offsets)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """See `RegisteredConsumer`."""
        return self._member.offset_store.table.offsets(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """See `RegisteredConsumer`."""
        return running_info(self._member, 1)

    def consume_directly(self, request: RemotingRequest, broker_name: str) -> bool:
        """See `RegisteredConsumer`: there is no listener."""
        return False


@contextlib.asynccontextmanager
async def run_pull_consumer(
    client: MQClientInstance,
    config: PullConsumerConfig,
    subscriptions: Mapping[str, str] | None = None,
    *,
    strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
) -> AsyncIterator[PullConsumer]:
    """A running consumer for the length of a block. At its normal end what counts as consumed is committed.

    What was given last does not count by that, as the block may end before it was handled: `commit` says so.

    `subscriptions`: by topic an expression of tags, such as "*" or "TagA || TagB". Raises `ValueError` for a bad one.
    """
    found = FoundMessages()
    membership = Membership.of(client, config, strategy, ConsumeType.CONSUME_ACTIVELY, commits=config.auto_commit)
    member = GroupMember(client, membership, found.add)
    consumer = PullConsumer(config, member, found)
    for topic, expression in (subscriptions or {}).items():
        consumer.subscribe(topic, expression)
    try:
        async with run_member(member, consumer):
            yield consumer
    finally:
        found.wake()
