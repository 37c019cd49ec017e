"""Consumers and administrators in asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rmq_actors import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    Message,
    MessageExt,
    NoRoute,
    Orderly,
    PullConsumerConfig,
    PushConsumerConfig,
    TopicConfig,
    open_asyncio_client,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SENT = [b"%d" % number for number in range(12)]


def test_an_asyncio_program_consumes_in_each_way_and_administers(served_name_server: str) -> None:
    seen: dict[str, list[bytes]] = {"push": [], "order": [], "again": []}

    async def push(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
        await asyncio.sleep(0)
        seen["push"] += [message.body for message in messages]

    async def order(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> None:
        await asyncio.sleep(0)
        seen["order"] += [message.body for message in messages]
        if messages[0].body == SENT[5] and len(seen["again"]) < 2:
            seen["again"] += [message.body for message in messages]
            context.suspend_current_queue_time_ms = 10
            raise RuntimeError("once more")

    async def main() -> None:
        async with (
            asyncio.timeout(50),
            open_asyncio_client(served_name_server) as client,
            client.admin() as admin,
            client.producer("PG") as producer,
        ):
            await admin.create_topic(TopicConfig(topic_name="Consumed", read_queue_nums=1, write_queue_nums=1))
            assert "Consumed" in await admin.topics()
            with pytest.raises(NoRoute):
                await admin.route("Nowhere")
            results = [await producer.send(Message("Consumed", body)) for body in SENT]
            assert (await admin.message_by_id(results[3].offset_msg_id)).body == SENT[3]
            everything = {"Consumed": "*"}
            by_push = PushConsumerConfig("CG_push", consume_from_where=FIRST)
            by_order = PushConsumerConfig("CG_order", consume_from_where=FIRST)
            by_pull = PullConsumerConfig("CG_pull", consume_from_where=FIRST)
            async with (
                client.push_consumer(by_push, everything, Concurrently(push)) as pushed,
                client.push_consumer(by_order, everything, Orderly(order)),
                client.pull_consumer(by_pull, everything) as pulled,
            ):
                bodies = list[bytes]()
                async for message in pulled:
                    bodies.append(message.body)
                    if len(bodies) == len(SENT):
                        break
                await pulled.commit()
                assert bodies == SENT
                (queue,) = pulled.queues
                assert (await pulled.committed(queue), await pulled.max_offset(queue)) == (12, 12)
                await pulled.seek(queue, 10)
                with pytest.raises(ValueError, match="offset must be at least 0, not -1"):
                    await pulled.seek(queue, -1)
                assert [message.body for message in await pulled.poll()] == SENT[10:]
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await pulled.poll(timeout_ms=60_000)
                while len(seen["push"]) < len(SENT) or seen["order"][-1:] != SENT[-1:]:
                    await asyncio.sleep(0.01)
                assert queue in pushed.queues
                await pushed.suspend()
                await pushed.resume()
        assert sorted(seen["push"]) == sorted(SENT)
        assert list(dict.fromkeys(seen["order"])) == SENT
        assert seen["order"].count(SENT[5]) == 3

    asyncio.run(main())
