"""A producer and an administrator of a cluster: what is sent, what is answered, and how errors say what to do.

They speak to RocketMQ's name servers and brokers as well.

Run it: pip install rmq-actors, then python examples/produce.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from rmq_actors import (
    BrokerRefused,
    ClientError,
    Message,
    TopicConfig,
    open_admin,
    open_cluster,
    open_producer,
    select_message_queue_by_hash,
)


async def produce(name_servers: str) -> None:
    """Make a topic, and send to it in several ways."""
    async with open_admin(name_servers) as admin, open_producer(name_servers, "order-service") as producer:
        await admin.create_topic(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4))

        result = await producer.send(Message("Orders", b"one", properties={"TAGS": "new", "KEYS": "order-1"}))
        print(f"one: {result.status.value}, number {result.queue_offset} of its queue")

        # Messages of one order keep their order: they go to one queue.
        for step in (b"paid", b"sent"):
            await producer.send_by_selector(Message("Orders", step), select_message_queue_by_hash, "order-1")

        result = await producer.send_batch([Message("Orders", b"%d" % number) for number in range(3)])
        print(f"a batch: {len(result.msg_id.split(','))} messages")

        # Any number of tasks may send at the same time.
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(producer.send, Message("Orders", b"%d" % number))

        try:
            await producer.send(Message("Orders", b""))
        except BrokerRefused as error:
            print(f"refused with code {error.code}: {error.remark}")
        except ClientError as error:
            print(f"{type(error).__name__}: {error}; again: {error.retriable}")

        status = await admin.topic_status("Orders")
        print(f"Orders: {sum(queue.max_offset for queue in status.values())} messages")


async def main(directory: Path) -> None:
    """A master and a slave with a name server, to speak to."""
    async with open_cluster(directory, slaves=1, name_server=True) as cluster:
        assert cluster.name_server_address is not None
        await produce(cluster.name_server_address)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, Path(name))
