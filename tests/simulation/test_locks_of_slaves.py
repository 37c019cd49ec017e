"""Locks on queues after the roles of brokers have changed: the master gives them, and nobody else."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.requests import deadline_after
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rmq_actors.wire.request_code import RequestCode
from tests.simulation.test_push_consumer import TOPIC, Consumed, bodies, consumer_of, send
from tests.worlds.client_world import ClientWorld

QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)


async def lock(client: MQClientInstance, address: str, client_id: str) -> list[MessageQueue]:
    asked = LockBatchRequestBody(client_id=client_id, consumer_group="Locks", mq_set=[QUEUE])
    answer = await client.requests.request(
        address, RequestCode.LOCK_BATCH_MQ, body=encode_body(asked), deadline_s=deadline_after(3_000)
    )
    return list(decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set)


async def unlock(client: MQClientInstance, address: str, client_id: str) -> None:
    asked = UnlockBatchRequestBody(client_id=client_id, consumer_group="Locks", mq_set=[QUEUE])
    await client.requests.request(
        address, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(asked), deadline_s=deadline_after(3_000)
    )


async def addresses(world: ClientWorld, client: MQClientInstance) -> dict[str, str]:
    """Of master and slave, as the name server knows them, once it knows both."""
    found = client.routes.broker_addresses("broker-a")
    while len(found) < 2:
        await trio.sleep(1)
        await client.routes.update(TOPIC, deadline_after(3_000))
        found = client.routes.broker_addresses("broker-a")
    return {"master": found[0], "slave": next(address for number, address in found.items() if number)}


def test_a_slave_gives_no_lock_whether_or_not_it_was_the_master() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as client:
            await send(client, bodies(1))
            before = await addresses(world, client)
            assert await lock(client, before["slave"], "one") == []
            assert await lock(client, before["master"], "one") == [QUEUE]
            await world.cluster.exchange("b")
            await client.routes.update(TOPIC, deadline_after(3_000))
            after = await addresses(world, client)
            assert after == {"master": before["slave"], "slave": before["master"]}
            # The new master has not heard of that lock, and the old one does not renew it.
            assert await lock(client, after["master"], "two") == [QUEUE]
            assert await lock(client, after["slave"], "one") == []
            await unlock(client, after["slave"], "one")

    ClientWorld.run(use)


@pytest.mark.parametrize("seed", range(3))
def test_an_orderly_consumer_asks_the_new_master_for_its_locks_soon_after_an_exchange(seed: int) -> None:
    async def use(world: ClientWorld) -> None:
        consumed = Consumed()
        async with world.instance() as client:
            await send(client, bodies(8))
            async with consumer_of(client, consumed.orderly()):
                await consumed.wait_for(bodies(8))
                await world.cluster.exchange("b")
                await trio.sleep(21)  # locks were renewed, or lost
                began_s = trio.current_time()
                async with world.instance() as other:
                    await send(other, bodies(8, "later"))
                await consumed.wait_for(bodies(8, "later"))
                assert trio.current_time() - began_s < 10
        assert consumed.bodies[:8] != consumed.bodies[8:]
        for queue_id in range(4):
            of_one = [message.queue_offset for message in consumed.messages if message.queue_id == queue_id]
            assert of_one == sorted(set(of_one))

    ClientWorld.run(use, seed=seed)
