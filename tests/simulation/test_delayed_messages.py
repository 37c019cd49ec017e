"""Delayed messages from their producer to their consumer, in a simulated world."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.record import StoredMessage
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

TOPIC = "TopicOfDelays"
TIMEOUT_MS = 40_000
#: Levels 1 to 3.
LEVELS = "1s 3s 10s"


@contextlib.asynccontextmanager
async def client_of(servers: RoleWorld, node: str = "a-0") -> AsyncIterator[ThinClient]:
    own, address = servers.nodes[CLIENT], servers.brokers[node].address
    tracer = servers.recorder.tracer(CLIENT)
    async with open_actor_system("delays", tracer, entropy=own.entropy) as system:
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, ProcessorTable(tracer))
        await system.start(remoting)
        yield ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), "c-1", "CG")


def world(slaves: int = 0, seed: int = 1, **store: Any) -> RoleWorld:
    role = BrokerRole.SYNC_MASTER if slaves else BrokerRole.ASYNC_MASTER
    return RoleWorld.of(slaves, seed=seed, **{"broker_role": role, "message_delay_level": LEVELS, **store})


def run(use: Callable[[RoleWorld], Awaitable[None]], slaves: int = 0, seed: int = 1, **store: Any) -> RoleWorld:
    servers = world(slaves, seed, **store)
    servers.run_well(lambda: servers.on_node(CLIENT, lambda: use(servers)))
    return servers


async def send(client: ThinClient, body: bytes, level: int, queue_id: int = 0) -> None:
    code, placed = await client.send(TOPIC, body, queue_id, {"DELAY": str(level), "UNIQ_KEY": body.decode()})
    assert code == ResponseCode.SUCCESS, placed


async def pull_all(client: ThinClient, queue_id: int = 0) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while pulled := (await client.pull(TOPIC, len(found), queue_id)).messages:
        found += pulled
    return found


def test_a_delayed_message_comes_when_its_delay_is_over_and_no_earlier() -> None:
    async def use(servers: RoleWorld) -> None:
        async with client_of(servers) as client:
            sent_s = trio.current_time()
            await send(client, b"later", 2, queue_id=3)
            pulled = await client.pull(TOPIC, 0, 3, hold_ms=20_000)
            assert pulled.bodies == [b"later"]
            assert 3 <= trio.current_time() - sent_s < 3.2
            (message,) = pulled.messages
            assert message.properties == {
                "DELAY": "2",
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "3",
                "UNIQ_KEY": "later",
                "CLUSTER": "DefaultCluster",
            }
            assert (message.topic, message.queue_id, message.queue_offset) == (TOPIC, 3, 0)

    assert run(use).crashes == []
