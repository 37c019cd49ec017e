"""Calls a listener with the messages of its topics (DefaultMQPushConsumer).

GroupMember ─▶ pull tasks ─▶ ProcessQueue ─▶ ConsumeMessage(Concurrently|Orderly)Service ─▶ the listener
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

import attrs
import trio

from rmq_actors.client.client_error import BadAnswer
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.consume_message_service import (
    ConsumeMessageConcurrentlyService,
    ConsumeMessageOrderlyService,
    ConsumeMessageService,
)
from rmq_actors.client.consumer_config import DEFAULT_STRATEGY, PushConsumerConfig
from rmq_actors.client.consumer_requests import decode_messages
from rmq_actors.client.group_member import GroupMember, Membership, run_member
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import MessageListener, Orderly
from rmq_actors.client.running_info import running_info
from rmq_actors.client.send_back import SendBack
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.protocols.consume_results import max_reconsume_times, retry_topic
from rmq_actors.protocols.filter_api import SUB_ALL, TAG, build_subscription
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.settings.argument_checks import checked
from rmq_actors.wire.bodies.consumer_running_info import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import ConsumeType, MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.response_code import ResponseCode


@attrs.define(eq=False, repr=False)
class PushConsumer:
    """A running consumer of one group: see `open_push_consumer`.

    Each method raises `ClientClosed` once the block is over.
    """

    config: PushConsumerConfig
    _member: GroupMember
    _service: ConsumeMessageService
    #: How many messages the listener has for operators now.
    _direct_calls: int = attrs.field(default=0, init=False)

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._member.client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now, those of retries among them."""
        return [queue for queue, held in self._member.rebalancer.held.items() if not held.process_queue.dropped]

    @checked
    def subscribe(self, topic: str, sub_expression: str = SUB_ALL, expression_type: str = TAG) -> None:
        """Consume a topic, too, or with another expression. Raises `ValueError` for a bad expression.

        All members of a group must subscribe the same.
        """
        member = self._member
        member.check_open()
        version = member.client.environment.wall_clock.now_ms()
        member.subscriptions[topic] = build_subscription(topic, sub_expression, expression_type, sub_version=version)
        member.client.heartbeats.groups_changed()
        member.rebalance_soon()

    @checked
    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer."""
        self._member.check_open()
        self._member.subscriptions.pop(topic, None)
        self._member.client.heartbeats.groups_changed()
        self._member.rebalance_soon()

    def suspend(self) -> None:
        """Pull nothing more; what is in memory is still consumed."""
        self._member.check_open()
        self._member.suspend(is_suspended=True)

    def resume(self) -> None:
        """Pull again."""
        self._member.check_open()
        self._member.suspend(is_suspended=False)

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
        return running_info(self._member, self.config.consume_thread_max)

    def consume_directly(self, request: RemotingRequest, broker_name: str) -> bool:
        """See `RegisteredConsumer`."""
        try:
            messages = decode_messages(request.command.body, broker_name)
        except BadAnswer as error:
            request.refuse(ResponseCode.SYSTEM_ERROR, str(error))
            return True
        if len(messages) != 1:
            request.refuse(ResponseCode.SYSTEM_ERROR, f"{len(messages)} messages are to be consumed directly, not one")
        elif self._direct_calls >= self.config.consume_thread_max:
            request.refuse(
                ResponseCode.SYSTEM_BUSY, f"{self._direct_calls} messages are being consumed directly already"
            )
        else:
            self._direct_calls += 1
            self._member.start_beside(lambda: self._consume_directly(request, messages[0]))
        return True

    async def _consume_directly(self, request: RemotingRequest, message: MessageExt) -> None:
        clock = self._member.client.environment.wall_clock
        began_ms, minutes = clock.now_ms(), self.config.consume_timeout_min
        result = CMResult.CR_THROW_EXCEPTION
        remark: str | None = f"the listener took more than {minutes} min"
        try:
            with trio.move_on_after(minutes * 60):
                result, remark = await self._service.consume_directly(message)
        except Exception as error:  # noqa: BLE001 - of a listener whose time was up; told to the operator
            remark = repr(error)
        finally:
            self._direct_calls -= 1
        body = ConsumeMessageDirectlyResult(
            consume_result=result,
            remark=remark,
            order=self._member.membership.orderly,
            spent_time_mills=max(0, clock.now_ms() - began_ms),
        )
        request.respond(request.command.response(ResponseCode.SUCCESS, body=encode_body(body)))


@contextlib.asynccontextmanager
async def run_push_consumer(
    client: MQClientInstance,
    config: PushConsumerConfig,
    subscriptions: Mapping[str, str],
    listener: MessageListener,
    *,
    strategy: AllocateMessageQueueStrategy = DEFAULT_STRATEGY,
) -> AsyncIterator[PushConsumer]:
    """A running consumer for the length of a block; at its normal end its offsets are committed.

    `subscriptions`: by topic an expression of tags, such as "*" or "TagA || TagB". Raises `ValueError` for a bad one.
    """
    service: ConsumeMessageService
    orderly = isinstance(listener, Orderly)

    def found(held: HeldQueue, messages: list[MessageExt]) -> None:
        service.found(held, messages)

    async def serve() -> None:
        await service.run()

    membership = Membership.of(
        client,
        config,
        strategy,
        ConsumeType.CONSUME_PASSIVELY,
        orderly=orderly,
        pull_interval_s=config.pull_interval_ms / 1000,
    )
    member = GroupMember(client, membership, found, serve)
    back = SendBack(membership.requests, max_reconsume_times(config.max_reconsume_times, orderly=orderly))
    if isinstance(listener, Orderly):
        service = ConsumeMessageOrderlyService(config, listener.listener, member.rebalancer, back, member.stats)
    else:
        service = ConsumeMessageConcurrentlyService(config, listener.listener, member.rebalancer, back, member.stats)
    consumer = PushConsumer(config, member, service)
    for topic, expression in subscriptions.items():
        consumer.subscribe(topic, expression)
    if config.message_model is MessageModel.CLUSTERING:
        consumer.subscribe(retry_topic(config.consumer_group))
    async with run_member(member, consumer):
        yield consumer
        if config.await_termination_ms_when_shutdown:
            consumer.suspend()
            await member.wait_consumed(config.await_termination_ms_when_shutdown / 1000)
