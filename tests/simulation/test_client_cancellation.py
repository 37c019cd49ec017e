"""Calls of clients that are cancelled at each point at which they can be: nothing stays, and the client goes on."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping

import attrs
import pytest
import trio

from rmq_actors.client.admin import Admin
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.producer import Producer, run_producer
from rmq_actors.client.send_result import LocalTransactionState
from rmq_actors.protocols.queue_selection import select_message_queue_by_hash
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing import SimCluster
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import Message, StoredMessage
from sim_net import CancelInjection, cancel_at_every_checkpoint

STORE = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)
TOPIC = "Orders"
MESSAGE = Message(TOPIC, b"x")


class Commits:
    """Commits whatever it is asked about."""

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        await trio.sleep(0.01)
        return LocalTransactionState.COMMIT_MESSAGE

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


Call = Callable[[Producer, Admin], Awaitable[object]]

CALLS: Mapping[str, Call] = {
    "send": lambda producer, _: producer.send(MESSAGE),
    "send_by_selector": lambda producer, _: producer.send_by_selector(MESSAGE, select_message_queue_by_hash, "key"),
    "send_batch": lambda producer, _: producer.send_batch([MESSAGE, MESSAGE]),
    "send_oneway": lambda producer, _: producer.send_oneway(MESSAGE),
    "send_in_transaction": lambda producer, _: producer.send_in_transaction(MESSAGE),
    "create_topic": lambda _, admin: admin.create_topic(TopicConfig(topic_name=TOPIC)),
    "reset_offset": lambda _, admin: admin.reset_offset_by_timestamp("CG", "BenchmarkTest", 0),
}


def remoting_of(instance: MQClientInstance) -> RemotingClient:
    (remoting,) = (child.service for child in instance.system.children if isinstance(child.service, RemotingClient))
    return remoting


def at_rest(instance: MQClientInstance) -> tuple[int, int, bool]:
    """How many requests wait, how many tasks ask for routes, whether a lock is held."""
    waiting = sum(len(each._pending) for each in remoting_of(instance).connections.values())
    asking = instance.routes._asking.values()
    return waiting, len(asking), any(each.lock.locked() for each in asking)


@pytest.mark.parametrize("name", ["send", "send_oneway", "send_in_transaction", "create_topic"])
def test_a_call_that_is_cancelled_leaves_nothing_behind(name: str) -> None:
    def run(injection: CancelInjection) -> None:
        async def body(cluster: SimCluster) -> None:
            async with cluster.client() as instance:
                async with run_producer(instance, ProducerConfig("PG"), Commits()) as producer:
                    admin = Admin(instance)
                    with injection:
                        await CALLS[name](producer, admin)
                    await trio.sleep(0.5)  # heartbeats are answered
                    assert at_rest(instance) == (0, 0, False)
                    # The client is as good as before.
                    assert (await producer.send(Message(TOPIC, b"after"))).queue.topic == TOPIC
                await trio.sleep(1)
            assert b"after" in [message.body for message in cluster.messages("a")]

        SimCluster({"a": None}, STORE, name_server=True).run(body)

    assert cancel_at_every_checkpoint(run) >= 10


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_cancelled_in_the_midst_of_others_harms_none_of_them(name: str) -> None:
    """The first call of a new client: it asks for routes and connects, and others wait for the same."""

    async def body(cluster: SimCluster) -> None:
        for cancelled_after_s in (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1):
            async with (
                cluster.client() as instance,
                run_producer(instance, ProducerConfig("PG"), Commits()) as producer,
            ):
                sent: list[str] = []

                async def send(producer: Producer = producer, sent: list[str] = sent) -> None:
                    sent.append((await producer.send(MESSAGE)).msg_id)

                async def cancelled(call: Callable[[], Awaitable[object]], after_s: float) -> None:
                    with trio.move_on_after(after_s):
                        await call()

                async with trio.open_nursery() as nursery:
                    call = functools.partial(CALLS[name], producer, Admin(instance))
                    nursery.start_soon(cancelled, call, cancelled_after_s)
                    for _ in range(5):
                        nursery.start_soon(send)
                await trio.sleep(0.5)
                assert len(sent) == 5
                assert at_rest(instance) == (0, 0, False)

    SimCluster({"a": None}, STORE, name_server=True).run(body)


def test_opening_a_producer_can_be_cancelled_anywhere() -> None:
    def run(injection: CancelInjection) -> None:
        async def body(cluster: SimCluster) -> None:
            with injection:
                async with cluster.producer(transaction_listener=Commits()) as producer:
                    await producer.send(MESSAGE)
            for node in cluster.world.nodes.values():
                if node.name.startswith("client-"):
                    assert not node.is_up
                    assert node.left_open == []

        SimCluster({"a": None}, STORE, name_server=True).run(body)

    assert cancel_at_every_checkpoint(run) >= 20
