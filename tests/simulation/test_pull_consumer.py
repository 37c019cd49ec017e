"""Pull consumers of this project in simulated clusters: by queue and offset, and as members of a group."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.client.client_error import ClientClosed, ClientError
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.consumer_config import PullConsumerConfig
from rmq_actors.client.consumer_requests import ConsumerRequests, PullResult
from rmq_actors.client.group_member import make_requests
from rmq_actors.client.producer import run_producer
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.pull_results import PullStatus
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import Message
from sim_net import Partition
from tests.simulation.test_push_consumer import GROUP, QUEUES, TOPIC, bodies, config, send
from tests.worlds.client_world import ClientWorld


def consumer_of(
    client: MQClientInstance, topics: Mapping[str, str] | None, **settings: object
) -> contextlib.AbstractAsyncContextManager[PullConsumer]:
    config = PullConsumerConfig(
        **{
            "consumer_group": GROUP,
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **settings,
        }  # type: ignore[arg-type]
    )
    return run_pull_consumer(client, config, topics)


async def take(consumer: PullConsumer, count: int) -> list[bytes]:
    """The bodies of the next messages; the last one is consumed when more is asked for, or with `commit`."""
    found = list[bytes]()
    with trio.fail_after(60):
        async for message in consumer:
            found.append(message.body)
            if len(found) == count:
                break
    return found


async def committed(client: MQClientInstance) -> list[int | None]:
    """The group's offsets at the broker."""
    requests = make_requests(client, config())
    await client.routes.update(TOPIC, deadline_after(3_000))
    queues = client.routes.known_subscribe_queues(TOPIC)
    return [await requests.query_consumer_offset(queue, deadline_after(3_000)) for queue in queues]


async def queues_of(consumer: PullConsumer) -> Sequence[MessageQueue]:
    return await consumer.fetch_message_queues(TOPIC)


def test_messages_come_one_after_the_other_and_the_next_consumer_goes_on_after_them() -> None:
    async def use(world: ClientWorld) -> None:
        sent = bodies(12)
        async with world.instance() as client:
            await send(client, sent)
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                first = await take(consumer, 5)
                await consumer.commit()
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                rest = await take(consumer, 7)
                assert await consumer.poll(500) == []
            assert sorted(first + rest) == sent

    ClientWorld.run(use)


def test_a_topic_that_is_made_after_the_consumer_is_there_is_consumed_soon() -> None:
    """As of a program that sends its first message, and begins to consume: no name server knows the topic yet."""

    async def use(world: ClientWorld) -> None:
        async with world.instance() as client, consumer_of(client, {TOPIC: "*"}) as consumer:
            await trio.sleep(2.5)
            await send(client, bodies(1))
            with trio.fail_after(6):
                assert await take(consumer, 1) == bodies(1)

    ClientWorld.run(use)


def test_what_was_not_consumed_when_a_consumer_failed_comes_again() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(4))
            with contextlib.suppress(RuntimeError):
                async with consumer_of(client, {TOPIC: "*"}) as consumer:
                    assert len(await consumer.poll()) >= 1
                    raise RuntimeError("a defect of the application")
            await trio.sleep(6)
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                assert sorted(await take(consumer, 4)) == bodies(4)

    ClientWorld.run(use)


@pytest.mark.parametrize("ends_by", ["a time-out", "an exception that is caught", "break"])
def test_a_message_that_was_not_passed_comes_again_after_a_block_that_ends_normally(ends_by: str) -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(4))
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                with trio.move_on_after(5), contextlib.suppress(RuntimeError):
                    async for _ in consumer:
                        if ends_by == "a time-out":
                            await trio.sleep_forever()
                        elif ends_by == "an exception that is caught":
                            raise RuntimeError("it cannot be handled now")
                        break
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                assert sorted(await take(consumer, 4)) == bodies(4)

    ClientWorld.run(use)


def test_a_second_task_that_polls_at_the_same_time_is_refused_and_loses_nothing() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(1))
            async with consumer_of(client, {TOPIC: "*"}) as consumer, trio.open_nursery() as nursery:
                found = list[bytes]()

                async def first() -> None:
                    found.extend(message.body for message in await consumer.poll(20_000))

                nursery.start_soon(first)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError, match="another task polls"):
                    await consumer.poll(0)
                with pytest.raises(trio.BusyResourceError, match="another task polls"):
                    await consumer.__anext__()
                while not found:
                    await trio.sleep(0.1)
                assert found == bodies(1)
                assert await consumer.poll(0) == []  # one after the other they may

    ClientWorld.run(use)


@pytest.mark.parametrize("client_goes_on", [True, False])
def test_a_consumer_whose_block_is_over_says_so(client_goes_on: bool) -> None:
    async def use(world: ClientWorld) -> None:
        waiting = list[str]()

        async def wait(consumer: PullConsumer, *, iterates: bool) -> None:
            with pytest.raises(ClientClosed):
                await (anext(consumer) if iterates else consumer.poll(100_000))
            waiting.append("ended")

        async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(world.instance())
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                await send(client, [b"x"])
                assert await take(consumer, 1) == [b"x"]
                nursery.start_soon(functools.partial(wait, consumer, iterates=client_goes_on))
                await trio.testing.wait_all_tasks_blocked()
            if not client_goes_on:
                await stack.aclose()
            queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
            calls: Sequence[Callable[[], Awaitable[object]]] = (
                lambda: anext(consumer),
                lambda: consumer.poll(100_000),
                consumer.commit,
                lambda: consumer.fetch_message_queues(TOPIC),
                lambda: consumer.pull(queue, 0),
                lambda: consumer.committed(queue),
                lambda: consumer.update_consume_offset(queue, 0),
                lambda: consumer.max_offset(queue),
                lambda: consumer.min_offset(queue),
                lambda: consumer.offset_for_timestamp(queue, 0),
            )
            for call in calls:
                with pytest.raises(ClientClosed, match=r"is over|has stopped"), trio.fail_after(1):
                    await call()
            at_once: Sequence[Callable[[], None]] = (
                lambda: consumer.subscribe("Other"),
                lambda: consumer.unsubscribe(TOPIC),
                lambda: consumer.assign([queue]),
                lambda: consumer.pause([queue]),
                lambda: consumer.resume([queue]),
                lambda: consumer.seek(queue, 0),
            )
            for change in at_once:
                with pytest.raises(ClientClosed, match=r"is over|has stopped"):
                    change()
        assert waiting == ["ended"]

    ClientWorld.run(use)


def test_without_auto_commit_only_what_is_committed_is_consumed() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(8))
            async with consumer_of(client, {TOPIC: "*"}, auto_commit=False) as consumer:
                first = await take(consumer, 3)
                await consumer.commit()
                lost = await take(consumer, 5)
                await trio.sleep(20)
            async with consumer_of(client, {TOPIC: "*"}, auto_commit=False) as consumer:
                again = await take(consumer, 5)
            assert sorted(again) == sorted(lost)
            assert sorted(first + lost) == bodies(8)

    ClientWorld.run(use)


def test_a_commit_tells_nothing_of_a_queue_that_was_another_members_since() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client, world.instance() as other:
            await send(client, bodies(80))
            async with consumer_of(client, {TOPIC: "*"}, auto_commit=False) as one:
                await take(one, 70)
                assert await one.poll() != []  # the 70 are passed
                async with consumer_of(other, {TOPIC: "*"}) as two:
                    with trio.move_on_after(20):
                        async for _ in two:
                            pass
                    by_two = await committed(client)
                    assert by_two.count(20) == 2
                await trio.sleep(8)
                assert len(one.queues) == QUEUES
                await one.commit()
                after = await committed(client)
                assert [offset for offset, before in zip(after, by_two, strict=True) if before == 20] == [20, 20]

    ClientWorld.run(use)


def test_a_commit_that_fails_says_so_in_its_time_and_can_be_made_again() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(8))
            async with consumer_of(client, {TOPIC: "*"}, auto_commit=False) as consumer:
                await take(consumer, 8)
                heal = Partition(0.0, 1e9, "a", world.node.name).begin(world.cluster.world)
                for timeout_ms in (None, 1_000):
                    began_s = trio.current_time()
                    with pytest.raises(ClientError):
                        await consumer.commit(timeout_ms)
                    assert trio.current_time() - began_s <= (timeout_ms or 3_000) / 1000 + 0.001
                heal()
                await trio.sleep(1)
                await consumer.commit()
                assert await committed(client) == [2] * QUEUES

    ClientWorld.run(use)


def test_a_commit_does_not_undo_an_operators_reset() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(40))
            async with consumer_of(client, {TOPIC: "*"}, auto_commit=False) as consumer:
                await take(consumer, 40)
                consumer.reset_offset(TOPIC, dict.fromkeys(consumer.queues, 2))
                await trio.sleep(3)
                assert await committed(client) == [2] * QUEUES
                await consumer.commit()
                assert await committed(client) == [2] * QUEUES

    ClientWorld.run(use)


def test_pulls_tell_no_offsets_as_one_that_was_overtaken_by_a_commit_would_undo_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pull, told = ConsumerRequests.pull, list[int | None]()

    async def noted(*args: Any, commit_offset: int | None = None, **settings: Any) -> PullResult:
        told.append(commit_offset)
        return await pull(*args, commit_offset=commit_offset, **settings)

    monkeypatch.setattr(ConsumerRequests, "pull", noted)

    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(8))
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                assert sorted(await take(consumer, 8)) == bodies(8)
                await consumer.commit()
                await send(client, bodies(8))
                await take(consumer, 8)
            assert sum(offset or 0 for offset in await committed(client)) == 15

    ClientWorld.run(use)
    assert len(told) >= 8
    assert set(told) == {None}


def test_assigned_queues_are_read_whoever_else_is_there_and_from_where_the_caller_seeks() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(16))
            async with consumer_of(client, None) as consumer:
                queues = await queues_of(consumer)
                assert len(queues) == QUEUES
                consumer.assign(queues[:1])
                consumer.seek(queues[0], 2)
                assert await take(consumer, 2) == [b"m0008", b"m0012"]
                consumer.seek(queues[0], 1)
                assert await take(consumer, 3) == [b"m0004", b"m0008", b"m0012"]
                with pytest.raises(ValueError, match="queues are assigned"):
                    consumer.subscribe(TOPIC)
                with pytest.raises(ValueError, match="offset must be at least 0, not -1"):
                    consumer.seek(queues[0], -1)

    ClientWorld.run(use)


@pytest.mark.parametrize("pause_ms", [0, 2, 6, 10, 20])
def test_a_seek_counts_at_whatever_moment_the_queue_is_taken(pause_ms: int) -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(4 * QUEUES))
            last = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET}
            async with consumer_of(client, None, **last) as consumer:
                (queue, *_) = await queues_of(consumer)
                consumer.assign([queue])
                await trio.sleep(pause_ms / 1000)
                consumer.seek(queue, 2)
                assert await take(consumer, 2) == [b"m0008", b"m0012"]

    ClientWorld.run(use)


def test_what_was_pulled_before_many_seeks_does_not_stay_in_memory() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(20 * QUEUES))
            async with consumer_of(client, None) as consumer:
                (queue, *_) = await queues_of(consumer)
                consumer.assign([queue])
                for _ in range(10):
                    consumer.seek(queue, 0)
                    await trio.sleep(1)
                assert len(consumer._found.waiting) == 20

    ClientWorld.run(use)


def test_a_paused_queue_gives_nothing_until_it_is_resumed() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(4))
            async with consumer_of(client, None) as consumer:
                queues = await queues_of(consumer)
                consumer.pause(queues[:1])
                consumer.assign(queues[:1])
                assert await consumer.poll(3_000) == []
                consumer.resume(queues[:1])
                assert [message.body for message in await consumer.poll()] == [b"m0000"]

    ClientWorld.run(use)


def test_pull_by_queue_and_offset() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(12))
            async with consumer_of(client, None) as consumer:
                queue = (await queues_of(consumer))[1]
                result = await consumer.pull(queue, 1, max_msg_nums=1)
                assert (result.status, result.next_begin_offset, result.min_offset, result.max_offset) == (
                    PullStatus.FOUND,
                    2,
                    0,
                    3,
                )
                (message,) = result.messages
                assert (message.body, message.queue_offset, message.broker_name) == (b"m0005", 1, queue.broker_name)
                assert (await consumer.pull(queue, 3)).status is PullStatus.NO_NEW_MSG
                illegal = await consumer.pull(queue, 99)
                assert (illegal.status, illegal.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
                assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 3)
                await consumer.update_consume_offset(queue, 2)
                assert await consumer.committed(queue) == 2
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send, client, bodies(4, "late"))
                    found = await consumer.pull(queue, 3, block_if_not_found=True)
                assert [message.body for message in found.messages] == [b"late0001"]

    ClientWorld.run(use)


def test_what_an_answer_decompresses_to_beyond_16_mib_is_pulled_again_and_none_is_lost() -> None:
    async def use(world: ClientWorld) -> None:
        body = bytes(4 * 2**20)
        async with world.instance() as client:
            async with run_producer(client, ProducerConfig("PG")) as producer:
                queue = (await producer.queues_of(TOPIC))[0]
                for _ in range(6):
                    await producer.send(Message(TOPIC, body), queue=queue)
            async with consumer_of(client, None) as consumer:
                first = await consumer.pull(queue, 0)
                assert ([each.queue_offset for each in first.messages], first.next_begin_offset) == ([0, 1, 2, 3], 4)
                assert first.last_offset == 3
                rest = await consumer.pull(queue, first.next_begin_offset)
                assert ([each.queue_offset for each in rest.messages], rest.next_begin_offset) == ([4, 5], 6)
            async with consumer_of(client, {TOPIC: "*"}) as consumer:
                offsets = list[int]()
                with trio.fail_after(60):
                    async for message in consumer:
                        assert message.body == body
                        offsets.append(message.queue_offset)
                        if len(offsets) == 6:
                            break
                assert offsets == list(range(6))
                assert await consumer.poll(500) == []

    ClientWorld.run(use)


def test_the_rest_of_an_answer_of_a_light_queue_is_not_asked_for_by_the_offsets_of_another_queue() -> None:
    light = "%LMQ%light"
    store = attrs.evolve(SIM_STORE, enable_lmq=True, enable_multi_dispatch=True)

    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            async with run_producer(client, ProducerConfig("PG")) as producer:
                queue = (await producer.queues_of(TOPIC))[0]
                await producer.send(Message(TOPIC, b"in one queue"), queue=queue)
                for _ in range(6):
                    both = Message(TOPIC, bytes(4 * 2**20), properties={"INNER_MULTI_DISPATCH": light})
                    await producer.send(both, queue=queue)
            async with world.cluster.admin() as admin, consumer_of(client, None) as consumer:
                await admin.create_topic(TopicConfig(topic_name=light, read_queue_nums=1, write_queue_nums=1))
                await client.routes.update(TOPIC, deadline_after(3_000))
                result = await consumer.pull(MessageQueue(topic=light, broker_name=queue.broker_name, queue_id=0), 0)
                assert [each.queue_offset for each in result.messages] == [1, 2, 3, 4, 5, 6]
                assert result.next_begin_offset == 6

    ClientWorld.run(use, store=store)
