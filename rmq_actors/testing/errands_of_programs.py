"""Errands of programs that use this project's own clients: what their calls tell them."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping

import trio

from rmq_actors.client.client_error import ClientClosed, ClientError
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.consumer_config import PullConsumerConfig
from rmq_actors.client.producer import run_producer
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.testing.consumer_groups import open_application_client
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand

#: How long a call may go on after the block of its client is over, and for how long a message is waited for.
_ENDS_S, _COMES_S = 5.0, 40.0
_BAD_MS, _BAD_OFFSET = -1, -5
_BAD = b"not to be sent"


async def consumer_ends(errand: Errand) -> str:
    """A task that waits for a consumer's messages is told when the consumer's block is over."""
    calls: list[Callable[[PullConsumer], Awaitable[object]]] = [_iterate, _poll]
    call, given, ended = calls[errand.below(2)], trio.Event(), trio.Event()

    async def consume(consumer: PullConsumer) -> None:
        try:
            while True:
                await call(consumer)
                given.set()
        except ClientClosed:
            ended.set()

    async with errand.visitor() as sender:
        await errand.send(sender.client, b"one")
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    own = PullConsumerConfig(errand.group, consume_from_where=first, auto_commit=False)
    async with (
        open_application_client(errand.brokers, errand.node, errand.group) as client,
        trio.open_nursery() as nursery,
    ):
        async with run_pull_consumer(client, own, {errand.topic: "*"}) as consumer:
            nursery.start_soon(consume, consumer)
            with trio.move_on_after(_COMES_S):
                await given.wait()
            await trio.sleep(errand.below(20) / 10)
        with trio.move_on_after(_ENDS_S):
            await ended.wait()
        nursery.cancel_scope.cancel()
    return "" if ended.is_set() else f"{_ENDS_S:g} s after a consumer's block a task still waits for its messages"


async def _iterate(consumer: PullConsumer) -> object:
    return await anext(consumer)


async def _poll(consumer: PullConsumer) -> object:
    return await consumer.poll(100_000)


async def wrong_arguments(errand: Errand) -> str:
    """A program that passes what cannot be is told of it before anything is done; the next call is as usual."""
    producers, consumers = ProducerConfig(f"{errand.group}-P"), PullConsumerConfig(errand.group)
    queue = MessageQueue(topic=errand.topic, broker_name="none", queue_id=0)
    async with errand.visitor() as sender:
        await errand.send(sender.client, b"first")
    async with (
        open_application_client(errand.brokers, errand.node, errand.group) as client,
        run_producer(client, producers) as producer,
        run_pull_consumer(client, consumers) as consumer,
    ):
        calls: Mapping[str, Callable[[], Awaitable[object]]] = {
            "a send": lambda: producer.send(Message(errand.topic, b"x"), timeout_ms=_BAD_MS),
            "a poll": lambda: consumer.poll(_BAD_MS),
            "a commit": lambda: consumer.commit(_BAD_MS),
            "a pull": lambda: consumer.pull(queue, _BAD_OFFSET),
        }
        for name, call in calls.items():
            try:
                await call()
            except ValueError:
                continue
            except ClientError as error:
                return f"{name} with a number that cannot be raises {error!r}"
            return f"{name} with a number that cannot be is taken"
        try:
            await producer.send(Message(errand.topic, b"good"))
        except ClientError as error:
            raise GivenUp from error
        async with errand.visitor() as reader:
            counts = [len((await reader.client.pull(errand.topic, 0, number)).messages) for number in range(4)]
        return "" if sum(counts) <= 2 else f"of two messages that were sent a topic has {sum(counts)}"


class _Strange(Exception):
    """An error of a program's own."""


class _Hook:
    """A program's look at what its client sends: some it does not let pass."""

    def before_request(self, _: str, command: RemotingCommand) -> None:
        """See `RpcHook`."""
        if _BAD in bytes(command.body):
            raise _Strange

    def after_response(self, _: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """See `RpcHook`."""


async def failing_hook(errand: Errand) -> str:
    """What a program's hook raises reaches the calls that it was raised for; the producer goes on."""
    async with errand.visitor() as sender:
        await errand.send(sender.client, b"first")
    own = ProducerConfig(errand.group, auto_batch=True, batch_max_messages=2)
    raised = list[str]()
    async with (
        open_application_client(errand.brokers, errand.node, errand.group, [_Hook()]) as client,
        run_producer(client, own) as producer,
    ):

        async def send(body: bytes) -> None:
            try:
                with contextlib.suppress(_Strange):  # the hook's own, which its caller is to get
                    await producer.send(Message(errand.topic, body))
            except ClientError as error:
                raised.append(f"{error!r}")

        async with trio.open_nursery() as nursery:
            for number in range(2 + errand.below(6)):
                nursery.start_soon(send, b"%d" % number)
            nursery.start_soon(send, _BAD)
        await send(b"last")
    return f"where a program's hook fails for one message, sends raise {raised}" if raised else ""
