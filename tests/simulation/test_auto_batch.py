"""A producer with autoBatch, in simulated worlds: what leaves together, and what each of the tasks gets."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.client.client_error import BrokerRefused, ClientClosed, ClientTimeout, SendFailed
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.producer import Producer
from rmq_actors.client.send_result import SendResult
from rmq_actors.protocols.queue_selection import select_message_queue_by_hash
from rmq_actors.protocols.send_requests import Outgoing
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing import SimCluster
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import Message, StoredMessage

TOPIC = "Orders"
ASYNC_STORE = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)
TOGETHER = ProducerConfig("PG", auto_batch=True)


def run(body: Callable[[SimCluster], Awaitable[None]], **settings: Any) -> None:
    SimCluster({"a": None}, name_server=True, **{"store": ASYNC_STORE, **settings}).run(body)


def stored(cluster: SimCluster) -> list[StoredMessage]:
    return [message for message in cluster.messages("a") if message.topic == TOPIC]


async def send_at_once(producer: Producer, messages: list[Message], **how: Any) -> dict[bytes, SendResult]:
    """Each message by a task of its own; the results by body."""
    results = dict[bytes, SendResult]()

    async def send(message: Message) -> None:
        results[message.body] = await producer.send(message, **how)

    async with trio.open_nursery() as nursery:
        for message in messages:
            nursery.start_soon(send, message)
    return results


def orders(count: int) -> list[Message]:
    return [
        Message(TOPIC, b"order %02d" % number, flag=number, properties={"n": str(number)}) for number in range(count)
    ]


def check_each_result(cluster: SimCluster, results: dict[bytes, SendResult]) -> None:
    """Every result is of the record that its message became."""
    found = {message.body: message for message in stored(cluster)}
    assert found.keys() == results.keys()
    for body, result in results.items():
        message = found[body]
        assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)
        assert message.properties["UNIQ_KEY"] == result.msg_id
        assert int(result.offset_msg_id[-16:], 16) == message.physical_offset


def test_messages_of_concurrent_tasks_leave_together_and_each_gets_its_own_result() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            first = await producer.send(Message(TOPIC, b"first"))
            results = await send_at_once(producer, orders(40))
            check_each_result(cluster, {b"first": first, **results})
            assert all(b"order %02d" % int(each.properties["n"]) == each.body for each in stored(cluster)[1:])
            # The task of the lane runs after those that were there: all of them leave in one request.
            assert len({result.queue for result in results.values()}) == 1
            assert sorted(result.queue_offset for result in results.values()) == list(range(40))

    run(body)


def test_a_lane_sends_what_has_gathered_when_the_last_batch_is_answered_in_order() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            queue = (await producer.queues_of(TOPIC))[2]
            results = dict[bytes, SendResult]()

            async def send(message: Message) -> None:
                results[message.body] = await producer.send(message, queue=queue)

            async with trio.open_nursery() as nursery:
                for message in orders(30):
                    nursery.start_soon(send, message)
                    await trio.sleep(0.0001)  # the answer takes longer
            assert [message.body for message in stored(cluster)] == [message.body for message in orders(30)]
            check_each_result(cluster, results)
            chosen = await producer.send_by_selector(Message(TOPIC, b"x"), select_message_queue_by_hash, "order-1")
            assert chosen.queue_offset in {0, 30}

    run(body)


def test_what_cannot_be_batched_goes_alone_beside_the_others() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            alone = [Message(TOPIC, b"later", properties={"DELAY": "1"}), Message(TOPIC, b"long" * 2_000)]
            waits = [Message(TOPIC, b"unsafe %d" % number, properties={"WAIT": "false"}) for number in range(2)]
            results = await send_at_once(producer, [*orders(5), *alone, *waits])
            assert len(results) == 9
            await trio.sleep(2)
            found = {message.properties["UNIQ_KEY"]: message for message in stored(cluster)}
            assert found[results[b"later"].msg_id].body == b"later"
            assert len(found[results[b"long" * 2_000].msg_id].body) < 1_000, "it is compressed"
            assert found[results[b"unsafe 1"].msg_id].properties["WAIT"] == "false"

    run(body)


def test_a_sender_that_is_cancelled_takes_its_message_back_or_lets_the_others_go_on() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            await producer.send(Message(TOPIC, b"first"))
            scopes, sent = list[trio.CancelScope](), list[bytes]()

            async def send(message: Message) -> None:
                with trio.CancelScope() as scope:
                    scopes.append(scope)
                    await producer.send(message)
                    sent.append(message.body)

            async with trio.open_nursery() as nursery:
                for message in orders(3):
                    nursery.start_soon(send, message)
                await trio.sleep(0.0001)  # those are under way
                for message in orders(6)[3:]:
                    nursery.start_soon(send, message)
                await trio.testing.wait_all_tasks_blocked()
                scopes[0].cancel()
                scopes[-1].cancel()
            bodies = [message.body for message in orders(6)]
            assert len(sent) == 4
            # One of the first three was under way, and is stored; one of the last three is not.
            got = [message.body for message in stored(cluster)][1:]
            assert sorted(got) == sorted(set(got))
            assert set(bodies[:3]) <= set(got)
            assert len(got) == 5
            assert set(sent) <= set(got)

    run(body)


def test_an_error_reaches_each_sender_as_an_object_of_its_own() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            queue = (await producer.queues_of(TOPIC))[0]
            await producer.send(Message(TOPIC, b"first"), queue=queue)
            outside = MessageQueue(topic=TOPIC, broker_name=queue.broker_name, queue_id=99)
            errors = list[BrokerRefused]()

            async def send(message: Message) -> None:
                with pytest.raises(BrokerRefused, match="queueId") as caught:
                    await producer.send(message, queue=outside)
                errors.append(caught.value)

            async with trio.open_nursery() as nursery:
                for message in orders(5):
                    nursery.start_soon(send, message)
            assert len({id(error) for error in errors}) == 5
            assert all(error.address and error.remark and error.code == errors[0].code for error in errors)

    run(body)


def test_a_message_that_the_broker_refuses_spoils_no_batch() -> None:
    """The broker takes shorter messages than the producer knows: a batch is too long for it, most messages are not."""

    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            await producer.send(Message(TOPIC, b"first"))
            good, bad = [Message(TOPIC, b"%d" % number * 400) for number in range(3)], Message(TOPIC, b"b" * 2_000)
            results = dict[bytes, SendResult]()

            async def send_good(message: Message) -> None:
                results[message.body] = await producer.send(message)

            async def send_bad() -> None:
                with pytest.raises((BrokerRefused, SendFailed), match="2000"):
                    await producer.send(bad)

            async with trio.open_nursery() as nursery:
                for message in good:
                    nursery.start_soon(send_good, message)
                nursery.start_soon(send_bad)
            assert sorted(message.body for message in stored(cluster)[1:]) == sorted(results)
            assert len(results) == 3

    run(body, store=attrs.evolve(ASYNC_STORE, max_message_size_bytes=1_000))


def test_each_sender_waits_as_long_as_it_says_and_a_message_that_waited_is_not_sent_later() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            await producer.send(Message(TOPIC, b"first"))
            cluster.pause("a")
            ended = dict[int, float]()
            began_s = trio.current_time()

            async def send(number: int, timeout_ms: int) -> None:
                with pytest.raises(ClientTimeout, match=r"not stored in time|not sent"):
                    await producer.send(Message(TOPIC, b"late %d" % number), timeout_ms=timeout_ms)
                ended[number] = trio.current_time() - began_s

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, 0, 2_000)
                await trio.sleep(0.1)
                nursery.start_soon(send, 1, 300)
                nursery.start_soon(send, 2, 1_000)
            assert {number: round(at_s, 1) for number, at_s in ended.items()} == {0: 2.0, 1: 0.4, 2: 1.1}
            cluster.resume("a")
            await trio.sleep(5)
            assert {message.body for message in stored(cluster)} <= {b"first", b"late 0"}

    run(body)


def test_senders_that_wait_as_the_producer_ends_are_told_so() -> None:
    async def body(cluster: SimCluster) -> None:
        closed = list[ClientClosed]()

        async def send(producer: Producer, message: Message) -> None:
            with pytest.raises(ClientClosed) as caught:
                await producer.send(message, timeout_ms=60_000)
            closed.append(caught.value)

        async with trio.open_nursery() as nursery:
            async with cluster.producer(TOGETHER) as producer:
                await producer.send(Message(TOPIC, b"first"))
                cluster.pause("a")
                for message in orders(4):
                    nursery.start_soon(functools.partial(send, producer, message))
                await trio.sleep(0.1)
            cluster.resume("a")
        assert len(closed) == 4

    run(body)


async def outcomes_at_once(producer: Producer, messages: list[Message]) -> dict[bytes, object]:
    """What each of the tasks got, by body: a result or an error."""
    found = dict[bytes, object]()

    async def send(message: Message) -> None:
        try:
            found[message.body] = await producer.send(message)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            found[message.body] = error

    async with trio.open_nursery() as nursery:
        for message in messages:
            nursery.start_soon(send, message)
    return found


def test_a_message_that_cannot_be_encoded_fails_alone_and_the_producer_goes_on() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(TOGETHER) as producer:
            await producer.send(Message(TOPIC, b"first"))
            bad = Message(TOPIC, b"bad", flag=2**40)
            found = await outcomes_at_once(producer, [*orders(5), bad, *orders(10)[5:]])
            assert isinstance(found.pop(b"bad"), Exception)
            assert all(isinstance(each, SendResult) for each in found.values())
            assert (await producer.send(Message(TOPIC, b"last"))).queue.topic == TOPIC
            expected = [b"first", *(message.body for message in orders(10)), b"last"]
            assert sorted(message.body for message in stored(cluster)) == sorted(expected)

    run(body)


class _NotCopied(Exception):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


@pytest.mark.parametrize("error", [RuntimeError("a hook's"), _NotCopied("a hook", "its own error")])
def test_what_a_hook_raises_reaches_the_senders_of_that_batch_and_nobody_else(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, batches = Producer._send, list[list[bytes]]()

    async def failing(self: Producer, outgoing: Outgoing, *rest: Any) -> SendResult:
        batches.append(re.findall(rb"order \d\d", outgoing.body))
        if b"order 05" in outgoing.body:
            raise error
        return await send(self, outgoing, *rest)

    monkeypatch.setattr(Producer, "_send", failing)

    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(attrs.evolve(TOGETHER, batch_max_messages=4)) as producer:
            await producer.send(Message(TOPIC, b"first"))
            found = await outcomes_at_once(producer, orders(12))
            failed = {body for body, each in found.items() if isinstance(each, Exception)}
            assert failed == {body for batch in batches if b"order 05" in batch for body in batch}
            assert len({id(found[body]) for body in failed}) == 4
            assert len(stored(cluster)) == 9

    run(body)
    assert [len(batch) for batch in batches] == [0, 4, 4, 4]
