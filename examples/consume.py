"""Consumers of a cluster: one that calls a listener, one that is asked for messages, and one that keeps order.

They speak to RocketMQ's name servers and brokers as well, and share groups with RocketMQ's own consumers.

Run it: pip install rmq-actors, then python examples/consume.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio

from rmq_actors import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    Message,
    MessageExt,
    Orderly,
    PullConsumerConfig,
    PushConsumerConfig,
    open_cluster,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
    select_message_queue_by_hash,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def push(name_servers: str) -> None:
    """Messages are handed to a function, several at a time; one that raises gets its message again later."""
    seen, all_seen = list[bytes](), trio.Event()

    async def bill(messages: Sequence[MessageExt], _: ConsumeConcurrentlyContext) -> None:
        seen.extend(message.body for message in messages)
        if len(seen) == 10:
            all_seen.set()

    config = PushConsumerConfig("billing", consume_from_where=FIRST)
    async with open_push_consumer(name_servers, config, {"Orders": "new"}, Concurrently(bill)):
        await all_seen.wait()
    print(f"billing: {len(seen)} messages")


async def in_order(name_servers: str) -> None:
    """The messages of one queue come one after the other, to one consumer of the group."""
    steps, shipped = list[str](), trio.Event()

    async def ship(messages: Sequence[MessageExt], _: ConsumeOrderlyContext) -> None:
        steps.extend(message.body.decode() for message in messages)
        if len(steps) == 3:
            shipped.set()

    config = PushConsumerConfig("shipping", consume_from_where=FIRST)
    async with open_push_consumer(name_servers, config, {"Steps": "*"}, Orderly(ship)):
        await shipped.wait()
    print(f"shipping: {', '.join(steps)}")


async def pull(name_servers: str) -> None:
    """A message counts as consumed when the next one is asked for; for the last one `commit` says so."""
    config, count = PullConsumerConfig("audit", consume_from_where=FIRST), 0
    async with open_pull_consumer(name_servers, config, {"Orders": "*"}) as consumer:
        async for message in consumer:
            assert message.topic == "Orders"
            count += 1
            if count == 10:
                await consumer.commit()
                break
    print(f"audit: {count} messages")


async def main(directory: Path) -> None:
    """A master and a slave with a name server, and something to consume."""
    async with open_cluster(directory, slaves=1, name_server=True) as cluster:
        assert cluster.name_server_address is not None
        name_servers = cluster.name_server_address
        async with open_producer(name_servers, "order-service") as producer:
            for number in range(10):
                await producer.send(Message("Orders", b"%d" % number, properties={"TAGS": "new"}))
            for step in (b"paid", b"packed", b"sent"):
                await producer.send_by_selector(Message("Steps", step), select_message_queue_by_hash, "order-1")
        await push(name_servers)
        await in_order(name_servers)
        await pull(name_servers)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, Path(name))
