"""Push consumers of this project in simulated clusters: they come and go, brokers crash, links are cut."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest
import trio

from rmq_actors.client.client_error import ClientError
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.consumer_config import PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.consumer_requests import PullResult
from rmq_actors.client.group_member import make_requests
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListener,
    Orderly,
)
from rmq_actors.client.pull_consumer import run_pull_consumer
from rmq_actors.client.pulling import Puller
from rmq_actors.client.push_consumer import PushConsumer, run_push_consumer
from rmq_actors.client.requests import deadline_after
from rmq_actors.client.send_back import SendBack
from rmq_actors.protocols.consume_results import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_actors.protocols.pull_results import PullStatus
from rmq_actors.testing.thin_client import send_request
from rmq_actors.wire.bodies.consumer_running_info import CMResult, ConsumeMessageDirectlyResult
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.body_compression import COMPRESSED_FLAG, COMPRESSION_TYPE_BITS
from rmq_actors.wire.record import Message, encode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Partition
from tests.worlds.client_world import ClientWorld

TOPIC, GROUP = "Story", "CG"
QUEUES = 4


async def send(client: MQClientInstance, bodies: Sequence[bytes], tags: str | None = None) -> None:
    """Send to the queues of the topic in turn; a message that is not taken is sent again."""
    for number, body in enumerate(bodies):
        properties = {} if tags is None else {"TAGS": tags}
        while True:
            try:
                info = await client.routes.publish_info(TOPIC, deadline_after(3_000))
                queue = info.queues[number % len(info.queues)]
                address = client.routes.master_address(queue.broker_name)
                assert address is not None
                command = send_request(TOPIC, body, queue.queue_id, properties)
                await client.requests.invoke(address, command, deadline_after(3_000), accepted=(0, 10, 11, 12))
                break
            except ClientError:
                await trio.sleep(0.2)
                with contextlib.suppress(ClientError):
                    await client.routes.update(TOPIC, deadline_after(3_000))


def bodies(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number:04}".encode() for number in range(count)]


@attrs.define
class Consumed:
    """What listeners were given, in order."""

    messages: list[MessageExt] = attrs.field(factory=list)
    by: dict[str, list[bytes]] = attrs.field(factory=lambda: collections.defaultdict(list))
    fails: set[bytes] = attrs.field(factory=set)
    takes_s: float = 0.0

    def concurrently(self, name: str = "") -> Concurrently:
        async def listener(
            messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext
        ) -> ConsumeConcurrentlyStatus | None:
            await trio.sleep(self.takes_s)
            self._note(messages, name)
            if any(message.body in self.fails and not message.reconsume_times for message in messages):
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            return None

        return Concurrently(listener)

    def orderly(self, name: str = "") -> Orderly:
        async def listener(
            messages: Sequence[MessageExt], context: ConsumeOrderlyContext
        ) -> ConsumeOrderlyStatus | None:
            await trio.sleep(self.takes_s)
            if any(message.body in self.fails and not message.reconsume_times for message in messages):
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            self._note(messages, name)
            return None

        return Orderly(listener)

    def _note(self, messages: Sequence[MessageExt], name: str) -> None:
        self.messages += messages
        self.by[name] += [message.body for message in messages]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait_for(self, expected: Sequence[bytes], timeout_s: float = 120.0) -> None:
        with trio.move_on_after(timeout_s):
            while not set(expected) <= set(self.bodies):
                await trio.sleep(0.2)
            return
        missing = sorted(set(expected) - set(self.bodies))
        raise AssertionError(f"{len(missing)} of {len(expected)} are missing: {missing[:5]}")


def config(**settings: object) -> PushConsumerConfig:
    return PushConsumerConfig(
        **{
            "consumer_group": GROUP,
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **settings,
        }  # type: ignore[arg-type]
    )


def consumer_of(
    client: MQClientInstance, listener: MessageListener, tags: str = "*", **settings: object
) -> contextlib.AbstractAsyncContextManager[PushConsumer]:
    return run_push_consumer(client, config(**settings), {TOPIC: tags}, listener)


def test_every_message_is_consumed_once_and_the_next_consumer_begins_after_them() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(40)
        async with world.instance() as client:
            await send(client, sent)
            async with consumer_of(client, consumed.concurrently()) as consumer:
                await consumed.wait_for(sent)
                assert len([queue for queue in consumer.queues if queue.topic == TOPIC]) == QUEUES
            assert sorted(consumed.bodies) == sent
            later = Consumed()
            async with consumer_of(client, later.concurrently()):
                await send(client, [b"one more"])
                await later.wait_for([b"one more"])
            assert later.bodies == [b"one more"]

    ClientWorld.run(use)


def test_a_topic_that_is_not_there_yet_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def use(world: ClientWorld) -> None:
        async with (
            world.instance() as client,
            run_push_consumer(client, config(), {"Nowhere": "*"}, Consumed().concurrently()),
        ):
            await trio.sleep(120)

    ClientWorld.run(use)
    told = [record for record in caplog.records if "topic Nowhere stay as they are" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]


def test_two_consumers_share_the_queues_and_one_that_leaves_gives_its_share_back() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, first, second = Consumed(), bodies(40, "a"), bodies(40, "b")
        async with world.instance() as one, world.instance() as two:
            await send(one, first[:1])
            async with consumer_of(one, consumed.concurrently("one")) as stays:
                async with consumer_of(two, consumed.concurrently("two")) as leaves:
                    await trio.sleep(5)
                    shares = [{queue for queue in each.queues if queue.topic == TOPIC} for each in (stays, leaves)]
                    assert [len(share) for share in shares] == [2, 2]
                    assert not shares[0] & shares[1]
                    await send(one, first[1:])
                    await consumed.wait_for(first)
                    assert consumed.by["one"]
                    assert consumed.by["two"]
                await send(one, second)
                await consumed.wait_for(second, 15)  # the broker tells the one that stays at once
        counts = collections.Counter(consumed.bodies)
        assert set(counts) == {*first, *second}

    ClientWorld.run(use)


def test_with_order_each_queue_is_consumed_in_order_while_consumers_come_and_go() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(fails={b"m0005", b"m0017"}, takes_s=0.05), bodies(80)
        async with world.instance() as one, world.instance() as two:
            await send(one, sent[:1])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, one, sent[1:])
                async with consumer_of(one, consumed.orderly("one")):
                    for _ in range(2):
                        async with consumer_of(two, consumed.orderly("two")):
                            await trio.sleep(3)
                        await trio.sleep(1)
                    await consumed.wait_for(sent)
        assert consumed.by["two"]
        seen: dict[int, list[int]] = collections.defaultdict(list)
        for message in consumed.messages:
            if message.queue_offset not in seen[message.queue_id]:  # a message may come twice, after others or before
                assert message.queue_offset == len(seen[message.queue_id]), consumed.bodies
                seen[message.queue_id].append(message.queue_offset)

    ClientWorld.run(use)


def test_a_message_that_is_not_consumed_comes_again_with_its_own_topic() -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed(fails={b"m0002"})
        async with world.instance() as client:
            await send(client, bodies(4))
            async with consumer_of(client, consumed.concurrently()):
                with trio.fail_after(120):
                    while consumed.bodies.count(b"m0002") < 2:
                        await trio.sleep(0.5)
        again = [message for message in consumed.messages if message.body == b"m0002"]
        assert [(message.topic, message.reconsume_times) for message in again] == [(TOPIC, 0), (TOPIC, 1)]
        assert len(consumed.bodies) == 5

    ClientWorld.run(use)


def test_a_listener_that_fails_gets_its_message_again() -> None:
    async def use(world: ClientWorld) -> None:
        seen = list[int]()

        async def listener(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
            seen.extend(message.reconsume_times for message in messages)
            if not messages[0].reconsume_times:
                raise RuntimeError("not this time")

        async with world.instance() as client:
            await send(client, [b"x"])
            async with consumer_of(client, Concurrently(listener)):
                with trio.fail_after(120):
                    while len(seen) < 2:
                        await trio.sleep(0.5)
        assert seen == [0, 1]

    ClientWorld.run(use)


@pytest.mark.parametrize("returned", [False, 0, "RECONSUME_LATER", ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT])
def test_a_listener_that_returns_what_is_no_status_is_logged_and_gets_its_message_again(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(world: ClientWorld) -> None:
        seen = list[int]()

        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> Any:
            seen.extend(message.reconsume_times for message in messages)
            return returned if len(seen) == 1 else None

        async with world.instance() as client:
            await send(client, [b"x"])
            async with consumer_of(client, Concurrently(listener)):
                await trio.sleep(60)
        assert seen == [0, 1]

    ClientWorld.run(use)
    assert f"a listener returned {returned!r}" in caplog.text


def test_with_order_what_is_no_status_is_logged_and_the_queue_stands_still(caplog: pytest.LogCaptureFixture) -> None:
    async def use(world: ClientWorld) -> None:
        seen = list[tuple[bytes, int]]()

        async def listener(messages: Sequence[MessageExt], _: ConsumeOrderlyContext) -> Any:
            seen.extend((message.body, message.reconsume_times) for message in messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if len(seen) == 1 else None

        async with world.instance() as client:
            await send(client, [b"x"])
            async with consumer_of(client, Orderly(listener)):
                await trio.sleep(10)
        assert seen == [(b"x", 0), (b"x", 1)]

    ClientWorld.run(use)
    assert f"a listener returned {ConsumeConcurrentlyStatus.CONSUME_SUCCESS!r}" in caplog.text


def test_a_listener_that_is_no_async_function_is_refused_at_once() -> None:
    def listener(messages: Sequence[MessageExt], context: object) -> None: ...

    class Called:
        async def __call__(self, messages: Sequence[MessageExt], context: object) -> None: ...

    for kind in (Concurrently, Orderly):
        with pytest.raises(TypeError, match=r"listener .*listener.* is no async function"):
            kind(listener)  # type: ignore[arg-type]
        kind(Called())
        kind(Called().__call__)
        kind(functools.partial(Called.__call__, Called()))


def test_only_the_tags_that_are_subscribed_are_consumed_and_the_others_count_as_consumed() -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.instance() as client:
            await send(client, bodies(8, "no"), tags="BB")  # the hash code of Aa
            await send(client, bodies(8, "yes"), tags="Aa")
            async with consumer_of(client, consumed.concurrently(), tags="Aa || C"):
                await consumed.wait_for(bodies(8, "yes"))
                await trio.sleep(20)
            assert sorted(consumed.bodies) == bodies(8, "yes")

    ClientWorld.run(use)


def test_a_broadcast_goes_to_each_consumer_which_goes_on_where_its_file_says() -> None:
    async def use(world: ClientWorld) -> None:
        settings: dict[str, Any] = {"message_model": MessageModel.BROADCASTING}
        one, two, sent = Consumed(), Consumed(), bodies(8)
        async with world.instance(instance_name="one") as first, world.instance(instance_name="two") as second:
            await send(first, sent)
            async with (
                consumer_of(first, one.concurrently(), **settings),
                consumer_of(second, two.concurrently(), **settings),
            ):
                await one.wait_for(sent)
                await two.wait_for(sent)
            await send(first, [b"later"])
        later = Consumed()
        async with world.instance(instance_name="one") as first, consumer_of(first, later.concurrently(), **settings):
            await later.wait_for([b"later"])
        assert later.bodies == [b"later"]

    ClientWorld.run(use)


def test_a_slow_listener_holds_pulls_back() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(takes_s=0.2), bodies(60)
        async with world.instance() as client:
            await send(client, sent)
            async with consumer_of(
                client,
                consumed.concurrently(),
                pull_threshold_for_queue=3,
                pull_batch_size=2,
                consume_thread_max=1,
            ) as consumer:
                await trio.sleep(2)
                info = consumer.running_info()
                assert max(each.cached_msg_count for each in info.mq_table.values()) <= 3 + 2
                await consumed.wait_for(sent)

    ClientWorld.run(use)


def test_consumers_go_on_after_their_broker_crashed() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(takes_s=0.02), bodies(60)
        async with world.instance() as client:
            await send(client, sent[:20])
            async with consumer_of(client, consumed.concurrently()):
                await trio.sleep(0.5)
                await world.cluster.kill("a")
                await trio.sleep(5)
                await world.cluster.start("a")
                await world.cluster.wait_until_connected()
                await send(client, sent[20:])
                await consumed.wait_for(sent)

    ClientWorld.run(use)


def test_a_slave_serves_reads_while_the_master_is_down() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(40)
        async with world.instance(poll_name_server_interval_ms=2_000) as client:
            await send(client, sent)
            await world.cluster.wait_until_replicated()
            async with consumer_of(client, consumed.concurrently(), pull_batch_size=1, pull_interval_ms=1_000):
                await consumed.wait_for(sent[:4])
                await trio.sleep(6)
                await world.cluster.kill("a")
                before = len(set(consumed.bodies))
                assert before < len(sent)
                await consumed.wait_for(sent)
            await world.cluster.start("a")

    ClientWorld.run(use)


def test_a_partition_ends_and_nothing_is_lost() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(40)
        async with world.instance() as client:
            await send(client, sent[:20])
            async with consumer_of(client, consumed.concurrently()):
                await trio.sleep(0.5)
                heal = Partition(0.0, 1e9, "a", world.node.name).begin(world.cluster.world)
                await trio.sleep(20)
                heal()
                await send(client, sent[20:])
                await consumed.wait_for(sent)

    ClientWorld.run(use)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_that_is_cancelled_at_any_moment_leaves_nothing(orderly: bool) -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(40))
            for pause_ms in (0, 1, 3, 7, 15, 30, 60, 120, 400, 3_000):
                consumed = Consumed(takes_s=0.02)
                with trio.move_on_after(pause_ms / 1000):
                    async with consumer_of(client, consumed.orderly() if orderly else consumed.concurrently()):
                        await trio.sleep_forever()
                await trio.sleep(6)
                assert [child.name for child in client.system.children if child.name.startswith("Consumer")] == []
                assert not client.heartbeats.consumers
                assert not client.consumers.consumers
                pending = [len(each._pending) for each in client.requests._client.connections.values()]
                assert not any(pending)
            consumed = Consumed()
            async with consumer_of(client, consumed.concurrently()):
                await send(client, [b"last"])
                await consumed.wait_for([b"last"])

    ClientWorld.run(use)


def test_an_offset_beyond_the_queue_is_corrected_and_the_queue_taken_again() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(QUEUES)
        async with world.instance() as client:
            await send(client, sent)
            requests = make_requests(client, config())
            await client.routes.update(TOPIC, deadline_after(3_000))
            for queue in client.routes.known_subscribe_queues(TOPIC):
                await requests.update_consumer_offset(queue, 99, deadline_after(3_000))
            async with consumer_of(client, consumed.concurrently()):
                await trio.sleep(15)  # 10 s pass before an offset is corrected
                await send(client, [b"after the correction"])
                await consumed.wait_for([b"after the correction"], 30)
            assert consumed.bodies == [b"after the correction"]

    ClientWorld.run(use)


def test_an_operator_sees_a_consumer_and_resets_its_offsets() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(12)
        async with world.instance() as client:
            await send(client, sent)
            async with consumer_of(client, consumed.concurrently()) as consumer:
                await consumed.wait_for(sent)
                await trio.sleep(1)
                info = consumer.running_info()
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                assert info.properties["PROP_CONSUMEORDERLY"] == "false"
                of_topic = [each for queue, each in info.mq_table.items() if queue.topic == TOPIC]
                assert [each.commit_offset for each in of_topic] == [3] * QUEUES
                assert not any(each.cached_msg_count for each in of_topic)
                assert info.status_table[TOPIC].consume_ok_tps > 0
                assert consumer.offsets(TOPIC) == {queue: 3 for queue in info.mq_table if queue.topic == TOPIC}
                consumer.reset_offset(TOPIC, {queue: 1 for queue in info.mq_table if queue.topic == TOPIC})
                await trio.sleep(10)
        assert len(consumed.bodies) == 12 + 2 * QUEUES

    ClientWorld.run(use)


def test_a_consumer_that_is_suspended_pulls_nothing() -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.instance() as client:
            await send(client, bodies(4))
            async with consumer_of(client, consumed.concurrently()) as consumer:
                await consumed.wait_for(bodies(4))
                consumer.suspend()
                await trio.sleep(16)  # the pulls that the broker holds end
                await send(client, bodies(4, "later"))
                await trio.sleep(20)
                assert len(consumed.bodies) == 4
                consumer.resume()
                await consumed.wait_for(bodies(4, "later"))
                consumer.unsubscribe(TOPIC)
                await trio.sleep(2)
                assert not [queue for queue in consumer.queues if queue.topic == TOPIC]

    ClientWorld.run(use)


def test_a_message_that_is_never_consumed_becomes_a_dead_letter() -> None:
    async def use(world: ClientWorld) -> None:
        seen = list[int]()

        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            seen.extend(message.reconsume_times for message in messages)
            return ConsumeConcurrentlyStatus.RECONSUME_LATER

        async with world.instance() as client:
            await send(client, [b"x"])
            async with consumer_of(client, Concurrently(listener), max_reconsume_times=2):
                await trio.sleep(120)
        assert seen == [0, 1, 2]
        messages = world.cluster.messages("a")
        assert [message.body for message in messages if message.topic == f"%DLQ%{GROUP}"] == [b"x"]

    ClientWorld.run(use)


def test_where_the_broker_takes_nothing_back_the_consumer_tries_again_itself() -> None:
    async def use(world: ClientWorld) -> None:
        seen = list[tuple[int, float]]()

        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
            seen.extend((message.reconsume_times, trio.current_time()) for message in messages)
            if len(seen) == 1:
                await world.cluster.kill("a")
                raise RuntimeError("and nobody takes it back")

        async with world.instance() as client:
            await send(client, [b"x"])
            await world.cluster.wait_until_replicated()
            async with consumer_of(client, Concurrently(listener)):
                with trio.fail_after(120):
                    while len(seen) < 2:
                        await trio.sleep(0.5)
            await world.cluster.start("a")
        assert [times for times, _ in seen] == [0, 1]

    ClientWorld.run(use)


def test_with_order_no_queue_is_consumed_by_two_at_once() -> None:
    async def use(world: ClientWorld) -> None:
        active, most = collections.Counter[int](), collections.Counter[int]()
        names = set[str]()

        def listener(name: str) -> Orderly:
            async def consume(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
                queue_id = context.message_queue.queue_id
                names.add(name)
                active[queue_id] += 1
                most[queue_id] = max(most[queue_id], active[queue_id])
                await trio.sleep(3)  # longer than a rebalance waits for a listener
                active[queue_id] -= 1

            return Orderly(consume)

        async with world.instance() as one, world.instance() as two:
            await send(one, bodies(40))
            async with consumer_of(one, listener("one")):
                await trio.sleep(4)
                async with consumer_of(two, listener("two")):
                    await trio.sleep(50)
        assert names == {"one", "two"}
        assert set(most.values()) == {1}

    ClientWorld.run(use)


def test_with_order_a_queue_that_changes_hands_goes_on_after_what_is_consumed() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, sent = Consumed(), bodies(40)
        seldom: dict[str, Any] = {"persist_consumer_offset_interval_ms": 600_000}
        async with world.instance(**seldom) as one, world.instance(**seldom) as two:
            await send(one, sent)
            async with consumer_of(one, consumed.orderly("one")):
                await consumed.wait_for(sent)
                async with consumer_of(two, consumed.orderly("two")) as second:
                    await trio.sleep(30)
                    assert len([queue for queue in second.queues if queue.topic == TOPIC]) == 2
        assert sorted(consumed.bodies) == sent

    ClientWorld.run(use)


def test_what_is_passed_over_does_not_count_while_a_message_before_it_is_not_consumed() -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed(takes_s=40)
        async with world.instance() as client:
            await send(client, bodies(QUEUES, "yes"), tags="Yes")
            await send(client, bodies(4 * QUEUES, "no"), tags="No")
            async with consumer_of(client, consumed.concurrently(), tags="Yes") as consumer:
                await trio.sleep(35)  # pulls that found nothing have ended
                assert set(consumer.offsets(TOPIC).values()) <= {0}
                await consumed.wait_for(bodies(QUEUES, "yes"))
                await trio.sleep(20)
                assert set(consumer.offsets(TOPIC).values()) == {5}

    ClientWorld.run(use)


def test_with_order_a_queue_whose_offset_is_corrected_is_not_taken_again_before_its_listener_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pull, pulls = Puller._pull, collections.Counter[MessageQueue]()

    async def second_is_illegal(puller: Puller, held: HeldQueue, *rest: Any) -> PullResult:
        pulls[held.queue] += 1
        if held.queue.topic != TOPIC or pulls[held.queue] != 2:
            return await pull(puller, held, *rest)
        await trio.sleep(1)
        return PullResult(PullStatus.OFFSET_ILLEGAL, 0, 0, 5)

    monkeypatch.setattr(Puller, "_pull", second_is_illegal)

    async def use(world: ClientWorld) -> None:
        active, most, calls = collections.Counter[int](), collections.Counter[int](), 0

        async def listener(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
            nonlocal calls
            queue_id = context.message_queue.queue_id
            calls += 1
            active[queue_id] += 1
            most[queue_id] = max(most[queue_id], active[queue_id])
            await trio.sleep(25)  # longer than the pause before a correction
            active[queue_id] -= 1

        async with world.instance() as client:
            await send(client, bodies(QUEUES))
            async with consumer_of(client, Orderly(listener)):
                await trio.sleep(60)
        assert calls == 2 * QUEUES
        assert set(most.values()) == {1}

    ClientWorld.run(use)


def test_with_order_a_topic_may_be_unsubscribed_while_its_queues_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    begins, consumers = Puller._begins_again, list[PushConsumer]()

    async def unsubscribed(puller: Puller, held: HeldQueue) -> bool:
        is_known = await begins(puller, held)
        while consumers and held.queue.topic == TOPIC:
            consumers.pop().unsubscribe(TOPIC)
        return is_known

    monkeypatch.setattr(Puller, "_begins_again", unsubscribed)

    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.instance() as client:
            await send(client, bodies(QUEUES))
            async with consumer_of(client, consumed.orderly()) as consumer:
                consumers.append(consumer)
                await trio.sleep(5)
                assert not consumers
                consumer.subscribe(TOPIC)
                await consumed.wait_for(bodies(QUEUES), 60)

    ClientWorld.run(use)


def test_with_order_a_queue_that_comes_back_while_its_listener_is_busy_goes_on_after_that() -> None:
    async def use(world: ClientWorld) -> None:
        consumed, began = Consumed(), trio.Event()

        async def slow(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
            consumed._note(messages, "one")
            if messages[0].body.startswith(b"slow"):
                began.set()
                await trio.sleep(15)

        async with world.instance() as one, world.instance() as two:
            await send(one, bodies(QUEUES))
            async with consumer_of(one, Orderly(slow)):
                await consumed.wait_for(bodies(QUEUES))
                await send(one, bodies(QUEUES, "slow"))
                await began.wait()
                async with consumer_of(two, Consumed().orderly()):
                    await trio.sleep(4)  # two queues are to be given up, and are busy
                await trio.sleep(2)
                await send(one, bodies(QUEUES, "later"))
                await consumed.wait_for(bodies(QUEUES, "later"), 60)

    ClientWorld.run(use)


def test_a_body_that_could_not_be_decompressed_goes_to_the_topic_of_retries_as_compressed_as_it_was() -> None:
    lz4 = COMPRESSED_FLAG | 0x100

    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(1))
            requests = make_requests(client, config())
            async with run_pull_consumer(client, PullConsumerConfig(GROUP), {TOPIC: "*"}) as consumer:
                (message,) = await consumer.poll(10_000)
            back = SendBack(requests, 16)
            assert await back.send_to_retry_topic(attrs.evolve(message, sys_flag=lz4, is_compressed=True), 1)
            plain = attrs.evolve(message, sys_flag=COMPRESSED_FLAG | 0x300, is_compressed=False)
            assert await back.send_to_retry_topic(plain, 1)
            # They are delayed messages until their time has come.
            first, second = world.cluster.messages("a")[-2:]
            mask = COMPRESSED_FLAG | COMPRESSION_TYPE_BITS
            assert [each.sys_flag & mask for each in (first, second)] == [lz4, 0]


@pytest.mark.parametrize("has_own_client", [False, True])
@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_that_is_cancelled_or_fails_commits_unlocks_and_leaves_its_group(
    orderly: bool, is_cancelled: bool, has_own_client: bool
) -> None:
    async def use(world: ClientWorld) -> None:
        seldom: dict[str, Any] = {"persist_consumer_offset_interval_ms": 600_000}
        consumed, later = Consumed(), Consumed()
        async with world.instance() as other, world.instance(**seldom) as shared:
            await send(other, bodies(20))
            with trio.CancelScope() as scope, contextlib.suppress(RuntimeError, ExceptionGroup):
                async with contextlib.AsyncExitStack() as stack:
                    client = await stack.enter_async_context(world.instance(**seldom)) if has_own_client else shared
                    listener = consumed.orderly() if orderly else consumed.concurrently()
                    await stack.enter_async_context(consumer_of(client, listener))
                    await consumed.wait_for(bodies(20))
                    began_s = trio.current_time()
                    if not is_cancelled:
                        raise RuntimeError("a defect of the application")
                    scope.cancel()
                    await trio.sleep_forever()
            assert trio.current_time() - began_s < 1.5
            await send(other, bodies(QUEUES, "later"))
            async with consumer_of(other, later.orderly() if orderly else later.concurrently()):
                await later.wait_for(bodies(QUEUES, "later"), 10)
        assert sorted(later.bodies) == bodies(QUEUES, "later")

    ClientWorld.run(use)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_that_is_cancelled_does_not_wait_for_a_broker_that_is_silent(orderly: bool) -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.instance() as other:
            await send(other, bodies(20))
            with trio.CancelScope() as scope:
                listener = consumed.orderly() if orderly else consumed.concurrently()
                async with world.instance() as client, consumer_of(client, listener):
                    await consumed.wait_for(bodies(20))
                    heal = Partition(0.0, 1e9, "a", world.node.name).begin(world.cluster.world)
                    began_s = trio.current_time()
                    scope.cancel()
                    await trio.sleep_forever()
            assert trio.current_time() - began_s <= 1.6
            heal()

    ClientWorld.run(use)


def test_a_broadcast_consumer_without_a_name_goes_on_where_its_file_says() -> None:
    async def use(world: ClientWorld) -> None:
        settings: dict[str, Any] = {"message_model": MessageModel.BROADCASTING}
        for sent in (bodies(8), bodies(8, "later")):
            consumed = Consumed()
            async with world.instance() as client:
                await send(client, sent)
                async with consumer_of(client, consumed.concurrently(), **settings):
                    await consumed.wait_for(sent)
            assert sorted(consumed.bodies) == sent

    ClientWorld.run(use)


def test_a_listener_that_fails_as_its_time_is_up_gets_its_message_again() -> None:
    """What came out of the nursery of such a listener ended its consumer."""

    async def use(world: ClientWorld) -> None:
        tries = list[int]()

        async def hung() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("of the clean-up")

        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
            tries.append(messages[0].reconsume_times)
            if len(tries) == 1:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(hung)
                    nursery.start_soon(trio.sleep_forever)

        async with world.instance() as client:
            await send(client, bodies(1))
            async with consumer_of(client, Concurrently(listener), consume_timeout_min=1):
                await trio.sleep(120)
        assert tries == [0, 1]

    ClientWorld.run(use)


@attrs.define(eq=False)
class _Asked:
    """A request of a broker, and what it is told."""

    command: RemotingCommand
    answers: list[RemotingCommand] = attrs.field(factory=list)
    refused: list[ResponseCode] = attrs.field(factory=list)

    def respond(self, answer: RemotingCommand) -> None:
        self.answers.append(answer)

    def refuse(self, code: ResponseCode, _: str) -> None:
        self.refused.append(code)


def test_what_a_broker_has_consumed_directly_is_one_message_in_its_time_and_bounded() -> None:
    async def use(world: ClientWorld) -> None:
        async def listener(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
            if messages[0].body == b"slow":
                await trio.sleep_forever()

        async with world.instance() as client:
            slow, fast = (bytes(encode_message(Message(TOPIC, body)).data) for body in (b"slow", b"fast"))
            settings = {"consume_timeout_min": 1, "consume_thread_max": 3}
            async with consumer_of(client, Concurrently(listener), "nothing", **settings) as consumer:

                def ask(body: bytes) -> _Asked:
                    asked = _Asked(RemotingCommand(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=body))
                    assert consumer.consume_directly(cast("Any", asked), "a")
                    return asked

                assert ask(b"").refused == ask(slow + fast).refused == [ResponseCode.SYSTEM_ERROR]
                hung = [ask(slow) for _ in range(3)]
                assert ask(fast).refused == [ResponseCode.SYSTEM_BUSY]
                await trio.sleep(61)
                for each in hung:
                    told = decode_body(ConsumeMessageDirectlyResult, each.answers[0].body)
                    assert told.consume_result is CMResult.CR_THROW_EXCEPTION
                again = ask(fast)
                await trio.sleep(1)
                told = decode_body(ConsumeMessageDirectlyResult, again.answers[0].body)
                assert told.consume_result is CMResult.CR_SUCCESS

    ClientWorld.run(use)
