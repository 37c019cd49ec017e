"""A consumer goes on while the master is down: it reads from the slave, by itself.

The broker that answers says where the next pull is to go; if that one does not answer, another of its name is asked.
Nothing can be sent meanwhile: only masters take messages.

Run it: pip install rmq-actors, then python examples/read_from_slave.py
"""

from __future__ import annotations

import logging

import trio

from rmq_actors import ClientError, Cluster, ConsumeFromWhere, Message, PullConsumerConfig
from rmq_actors.testing import SimCluster

MESSAGES = 10
#: A slave copies its master's topics every 10 s, and reads from those that it knows.
METADATA_S = 15.0


async def lose_the_master(cluster: Cluster) -> None:
    """Send, kill the master, consume, start it again. `open_cluster` gives such a cluster on real sockets."""
    config = PullConsumerConfig("billing", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with cluster.producer("order-service") as producer:
        for number in range(MESSAGES):
            await producer.send(Message("Orders", b"order %d" % number))
        await trio.sleep(METADATA_S)
        await cluster.kill("master")
        async with cluster.consumer(config, {"Orders": "*"}) as consumer:
            consumed = set[bytes]()
            while len(consumed) < MESSAGES:
                consumed |= {message.body for message in await consumer.poll()}
            print(f"the master is down, and all {len(consumed)} have come, from the slave")
            try:
                await producer.send(Message("Orders", b"one more"), timeout_ms=500)
            except ClientError as error:
                print(f"nothing is sent: {type(error).__name__}; again: {error.retriable}")

            await cluster.start("master")
            await cluster.wait_until_connected()
            await producer.send(Message("Orders", b"one more"))
            while b"one more" not in consumed:
                consumed |= {message.body for message in await consumer.poll()}
            print("the master is back: one more has come")


if __name__ == "__main__":
    logging.getLogger("rmq_actors").setLevel(logging.ERROR)  # each of the brokers and clients says what it misses
    # In a simulated world half a minute takes no time.
    SimCluster({"master": None, "slave": "master"}, name_server=True).run(lose_the_master)
