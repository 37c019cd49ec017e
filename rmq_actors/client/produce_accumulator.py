"""Sends messages of concurrent tasks together (ProduceAccumulator of RocketMQ 5): see `ProducerConfig.auto_batch`.

    tasks ── send ──▶ lane of their topic and queue ── one batch at a time ──▶ Producer
      ◀───────────────── each its own result, or error ──────────────────────────┘

A lane has a task while anything waits or is under way; a sender that is cancelled, or whose time is over, takes its
message back if it waits still, and lets the others' batch go on if not.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

import attrs
import outcome
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.client.client_error import BadAnswer, ClientClosed, ClientError, ClientTimeout
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.send_result import SendResult, results_of_batch
from rmq_actors.protocols.message_accumulation import AggregateKey, MessageAccumulation
from rmq_actors.protocols.send_requests import Outgoing, batch_item_bytes, outgoing_batch_of
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.response_code import ResponseCode

#: Sends one message or batch, with its retries, until a deadline in Trio's time.
Send = Callable[[Outgoing, MessageQueue | None, float], Awaitable[SendResult]]


@attrs.define(eq=False)
class _Sender:
    """A task that waits for what becomes of its message."""

    outgoing: Outgoing
    deadline_s: float
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    result: outcome.Outcome[SendResult] | None = attrs.field(default=None, init=False)
    has_left: bool = attrs.field(default=False, init=False)

    def end(self, result: outcome.Outcome[SendResult]) -> None:
        """It has this result, unless it has one already."""
        if self.result is None:
            self.result = result
            self.ended.set()


@attrs.define(eq=False, repr=False)
class ProduceAccumulator(ServiceThread):
    """A Service: has one task for each lane that is busy."""

    name = "ProduceAccumulator"
    _config: ProducerConfig
    _send: Send
    _lanes: dict[AggregateKey, MessageAccumulation[_Sender]] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Let lanes work."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._lanes.clear()

    async def send(self, key: AggregateKey, outgoing: Outgoing, deadline_s: float) -> SendResult:
        """Send a message with others of its key. Raises a `ClientError`, an object of its own for each caller."""
        nursery = self._nursery
        if nursery is None:
            raise ClientClosed(f"topic {key.topic}: the producer has stopped")
        lane = self._lanes.get(key)
        if lane is None:
            max_bytes = min(self._config.batch_max_bytes, self._config.max_message_size_bytes)
            lane = self._lanes[key] = MessageAccumulation(max_bytes, self._config.batch_max_messages)
        sender = _Sender(outgoing, deadline_s)
        if lane.add(sender, batch_item_bytes(outgoing)):
            nursery.start_soon(self._work_off, key, lane)
        was_sent = True
        try:
            with trio.move_on_at(deadline_s):
                await sender.ended.wait()
        finally:
            was_sent = not lane.withdraw(sender)
            sender.has_left = True
        if sender.result is not None:
            return sender.result.unwrap()
        what = "not stored in time" if was_sent else "not sent, as messages before it took all its time"
        raise ClientTimeout(f"topic {key.topic}: {what}")

    async def _work_off(self, key: AggregateKey, lane: MessageAccumulation[_Sender]) -> None:
        senders = list[_Sender]()
        try:
            while senders := lane.take():
                await self._send_together(key, senders)
        finally:
            # Nobody's message is under way or waits after a normal end.
            self._lanes.pop(key, None)
            while senders:
                for sender in senders:
                    sender.end(outcome.Error(ClientClosed(f"topic {key.topic}: the producer has stopped")))
                senders = lane.take()

    async def _send_together(self, key: AggregateKey, senders: list[_Sender]) -> None:
        try:
            if len(senders) == 1:
                results = [await self._send(senders[0].outgoing, key.queue, senders[0].deadline_s)]
            else:
                # Whose time is over before the batch's leaves by itself.
                deadline_s = max(sender.deadline_s for sender in senders)
                batch = outgoing_batch_of([sender.outgoing for sender in senders])
                results = results_of_batch(await self._send(batch, key.queue, deadline_s))
                if len(results) != len(senders):
                    raise BadAnswer(
                        f"topic {key.topic}: {len(senders)} messages are stored, and the broker tells "
                        f"{len(results)} ids of them"
                    )
        except ClientError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL and len(senders) > 1:
                # Nothing of it is stored. One message may be to blame, or that the broker's maxMessageSize is lower.
                for sender in senders:
                    if not sender.has_left:
                        await self._send_together(key, [sender])
                return
            for sender in senders:
                own = copy.copy(error)
                own.__cause__ = error
                sender.end(outcome.Error(own))
            return
        for sender, result in zip(senders, results, strict=True):
            sender.end(outcome.Value(result))
