"""How many copies a put of a SYNC_MASTER waits for: inSyncReplicas, and what happens when there are fewer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message
from sim_net import Node, World
from tests.worlds.ha_world import RECORD_BYTES, HaCluster

PORT = 10912
MESSAGE = Message("TopicTest", b"body")


def _statuses(ha: HaConfig, slaves_by_step: list[int]) -> list[PutStatus]:
    """What one put each is answered while so many of two slaves run."""
    world = World(1, guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "in_sync_replicas", 1))
    master, slaves = world.node("master"), [world.node("slave-1"), world.node("slave-2")]
    statuses: list[PutStatus] = []

    def serve(
        role: BrokerRole, settings: HaConfig, use: Callable[[BrokerController], Awaitable[None]]
    ) -> Callable[[Node], Awaitable[None]]:
        async def run(node: Node) -> None:
            store = MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=4096)
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            async with open_broker(
                BrokerConfig(node.name, store, settings), environment, recorder.tracer(node.name)
            ) as broker:
                await use(broker)

        return run

    async def sleep(broker: BrokerController) -> None:
        await trio.sleep_forever()

    async def main(world: World) -> None:
        done = trio.Event()

        async def put_at_each_step(broker: BrokerController) -> None:
            for count in slaves_by_step:
                for number, slave in enumerate(slaves):
                    if number < count and not slave.is_up:
                        slave.boot(follow)
                    if number >= count and slave.is_up:
                        slave.kill()
                await trio.sleep(1)
                statuses.append((await broker.put_message(MESSAGE)).status)
            done.set()

        follow = serve(
            BrokerRole.SLAVE,
            HaConfig(ha_listen_port=PORT, ha_master_address=f"{master.address}:{PORT}"),
            sleep,
        )
        master.boot(
            serve(
                BrokerRole.SYNC_MASTER,
                attrs.evolve(ha, ha_listen_host=master.address, ha_listen_port=PORT),
                put_at_each_step,
            )
        )
        await done.wait()

    world.run(main)
    return statuses


OK, UNAVAILABLE = PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("ha", "expected"),
    [
        (HaConfig(), [UNAVAILABLE, OK, OK, OK, UNAVAILABLE]),
        (HaConfig(total_replicas=3, in_sync_replicas=3), [UNAVAILABLE, UNAVAILABLE, OK, UNAVAILABLE, UNAVAILABLE]),
        (HaConfig(total_replicas=3, in_sync_replicas=1), [OK] * 5),
        (
            HaConfig(total_replicas=3, in_sync_replicas=3, min_in_sync_replicas=2, enable_auto_in_sync_replicas=True),
            [UNAVAILABLE, OK, OK, OK, UNAVAILABLE],
        ),
        (HaConfig(enable_auto_in_sync_replicas=True), [OK] * 5),
    ],
    ids=["one slave", "two slaves", "the master alone", "one is enough while there are no two", "alone if it must be"],
)
def test_a_put_waits_for_so_many_slaves(ha: HaConfig, expected: list[PutStatus]) -> None:
    assert _statuses(ha, [0, 1, 2, 1, 0]) == expected


@pytest.mark.parametrize(
    ("puts_before", "said"), [(1, []), (5, [encode_report(0)])], ids=["says nothing", "is far behind"]
)
def test_a_master_that_may_go_on_alone_does_not_wait_for_one_who(puts_before: int, said: list[bytes]) -> None:
    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        assert await cluster.put_many(puts_before) == [OK] * puts_before
        cluster.visit("visitor", *said)
        await trio.sleep(1)
        assert cluster.connections == 1
        with trio.fail_after(1):
            assert await cluster.put_many(2) == [OK] * 2

    near = {"ha_slave_fallbehind_max_bytes": 4 * RECORD_BYTES}
    HaCluster(ha={"enable_auto_in_sync_replicas": True}, store=near).run(main)
