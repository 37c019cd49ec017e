"""One body of a test that produces and consumes, on real sockets and in a simulated world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from rmq_actors import (
    Cluster,
    Concurrently,
    ConsumeFromWhere,
    Message,
    MessageExt,
    PullConsumerConfig,
    PushConsumerConfig,
    open_cluster,
)
from rmq_actors.testing import SimCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def produce_and_consume(cluster: Cluster) -> None:
    """What is sent is pulled, and handed to a listener of another group."""
    sent = {b"%d" % number for number in range(8)}
    async with cluster.producer() as producer:
        for body in sorted(sent):
            await producer.send(Message("Orders", body))
    pulled = set[bytes]()
    async with cluster.consumer(PullConsumerConfig("pull", consume_from_where=FIRST), {"Orders": "*"}) as consumer:
        with trio.fail_after(30):
            while pulled != sent:
                pulled |= {message.body for message in await consumer.poll()}
    pushed, done = set[bytes](), trio.Event()

    async def listener(messages: Sequence[MessageExt], _: object) -> None:
        pushed.update(message.body for message in messages)
        if pushed == sent:
            done.set()

    config = PushConsumerConfig("push", consume_from_where=FIRST)
    with trio.fail_after(30):
        async with cluster.push_consumer(config, {"Orders": "*"}, Concurrently(listener)):
            await done.wait()


def test_in_a_simulated_world() -> None:
    SimCluster(name_server=True).run(produce_and_consume)


@pytest.mark.trio
async def test_on_real_sockets(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=1, name_server=True) as cluster:
        await produce_and_consume(cluster)
