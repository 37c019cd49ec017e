"""Sends messages of concurrent tasks together (ProduceAccumulator of RocketMQ 5): see `ProducerConfig.auto_batch`.

    tasks ── send ──▶ lane of their topic and queue ── one batch at a time ──▶ Producer
      ◀───────────────── each its own result, or error ──────────────────────────┘

A lane has a task while anything waits or is under way; a sender that is cancelled, or whose time is over, takes its
message back if it waits still, and lets the others' batch go on if not.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from collections.abc import Awaitable, Callable, Iterator

import attrs
import outcome
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.client.client_error import BadAnswer, ClientClosed, ClientError, ClientTimeout
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.send_result import SendResult, results_of_batch
from rmq_actors.protocols.message_accumulation import AggregateKey, MessageAccumulation
from rmq_actors.protocols.send_requests import Outgoing, batch_item_bytes, outgoing_batch_of
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.response_code import ResponseCode

#: Sends one message or batch, with its retries, until a deadline in Trio's time.
Send = Callable[[Outgoing, MessageQueue | None, float], Awaitable[SendResult]]


@attrs.define(eq=False, repr=False)
class _Sender:
    """A task that waits for what becomes of its message."""

    outgoing: Outgoing
    deadline_s: float
    lane: MessageAccumulation[_Sender]
    task: trio.lowlevel.Task
    #: It has its result or error, or was cancelled.
    has_left: bool = attrs.field(default=False, init=False)

    def end(self, result: outcome.Outcome[SendResult]) -> None:
        """It has this result, unless it has left."""
        if not self.has_left:
            self.has_left = True
            trio.lowlevel.reschedule(self.task, result)

    def give_up(self, _: object) -> trio.lowlevel.Abort:
        """It is cancelled."""
        self.lane.withdraw(self)
        self.has_left = True
        return trio.lowlevel.Abort.SUCCEEDED


@attrs.define(eq=False, repr=False)
class ProduceAccumulator(ServiceThread):
    """A Service: has one task for each lane that is busy, and one that watches all senders' deadlines.

    A cancel scope for each sender would cost a quarter of the CPU time that a message takes here.
    """

    name = "ProduceAccumulator"
    _config: ProducerConfig
    _send: Send
    _lanes: dict[AggregateKey, MessageAccumulation[_Sender]] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    #: Senders by their deadlines, with a number for those that have the same one. Some have left.
    _deadlines: list[tuple[float, int, _Sender]] = attrs.field(factory=list, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _looks_at_s: float = attrs.field(default=math.inf, init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Let lanes work, and end senders whose time is over."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                while True:
                    self._looks_at_s = self._deadlines[0][0] if self._deadlines else math.inf
                    await self._wake.wait_for_running(self._looks_at_s)
                    self._end_late()
        finally:
            self._nursery = None
            self._lanes.clear()
            self._deadlines.clear()

    async def send(self, key: AggregateKey, outgoing: Outgoing, deadline_s: float) -> SendResult:
        """Send a message with others of its key. Raises a `ClientError`, an object of its own for each caller."""
        nursery = self._nursery
        if nursery is None:
            raise ClientClosed(f"topic {key.topic}: the producer has stopped")
        lane = self._lanes.get(key)
        if lane is None:
            max_bytes = min(self._config.batch_max_bytes, self._config.max_message_size_bytes)
            lane = self._lanes[key] = MessageAccumulation(max_bytes, self._config.batch_max_messages)
        sender = _Sender(outgoing, deadline_s, lane, trio.lowlevel.current_task())
        if lane.add(sender, batch_item_bytes(outgoing)):
            nursery.start_soon(self._work_off, key, lane)
        self._watch(sender)
        result: SendResult = await trio.lowlevel.wait_task_rescheduled(sender.give_up)
        return result

    def _watch(self, sender: _Sender) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].has_left:
            heapq.heappop(deadlines)
        heapq.heappush(deadlines, (sender.deadline_s, next(self._numbers), sender))
        if sender.deadline_s < self._looks_at_s:
            self._wake.wakeup("deadline")

    def _end_late(self) -> None:
        deadlines, now_s = self._deadlines, trio.current_time()
        while deadlines and (deadlines[0][2].has_left or deadlines[0][0] <= now_s):
            sender = heapq.heappop(deadlines)[2]
            if not sender.has_left:
                was_waiting = sender.lane.withdraw(sender)
                what = "not sent, as messages before it took all its time" if was_waiting else "not stored in time"
                sender.end(outcome.Error(ClientTimeout(f"topic {sender.outgoing.topic}: {what}")))

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
        """Send one batch. Whatever it fails by is for these senders: the lane, and the producer, go on."""
        try:
            results = await self._results(key, senders)
        except Exception as error:  # noqa: BLE001 - each of them raises it
            if len(senders) > 1 and _is_nothing_stored(error):
                # One message may be to blame, or that the broker's maxMessageSize is lower.
                for sender in senders:
                    if not sender.has_left:
                        await self._send_together(key, [sender])
                return
            for sender in senders:
                sender.end(outcome.Error(_of_ones_own(error)))
            return
        for sender, result in zip(senders, results, strict=True):
            sender.end(outcome.Value(result))

    async def _results(self, key: AggregateKey, senders: list[_Sender]) -> list[SendResult]:
        if len(senders) == 1:
            return [await self._send(senders[0].outgoing, key.queue, senders[0].deadline_s)]
        # Whose time is over before the batch's leaves by itself.
        deadline_s = max(sender.deadline_s for sender in senders)
        try:
            batch = outgoing_batch_of([sender.outgoing for sender in senders])
        except Exception as error:
            raise _NoBatch from error
        results = results_of_batch(await self._send(batch, key.queue, deadline_s))
        if len(results) != len(senders):
            raise BadAnswer(
                f"topic {key.topic}: {len(senders)} messages are stored, and the broker tells {len(results)} ids"
            )
        return results


class _NoBatch(Exception):
    """Messages that cannot be one request: nothing was sent."""


def _is_nothing_stored(error: Exception) -> bool:
    """Whether a batch that failed by this may be sent again, message by message."""
    return isinstance(error, _NoBatch) or (
        isinstance(error, ClientError) and error.code == ResponseCode.MESSAGE_ILLEGAL
    )


def _of_ones_own(error: Exception) -> Exception:
    """The error for one of several tasks that raise it. What cannot be copied is the cause of one that says it."""
    try:
        own = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error of somebody else's class, such as a hook's
        own = ClientError(repr(error))
    own.__cause__ = error
    return own
