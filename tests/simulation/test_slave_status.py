"""What a master says of its slaves: which are behind, which are silent, which left and why."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message
from sim_net import Node, World

PORT = 10912
MESSAGE = Message("TopicTest", bytes(1000))


def test_a_master_knows_how_far_each_slave_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rmq_actors.ha.ha_service")
    world = World(1, guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "slave_status", 1))
    master, near, far, stray = (world.node(name) for name in ("master", "near", "far", "stray"))

    def serve(
        role: BrokerRole, use: Callable[[BrokerController], Awaitable[None]]
    ) -> Callable[[Node], Awaitable[None]]:
        async def run(node: Node) -> None:
            slave_of = f"{master.address}:{PORT}" if role is BrokerRole.SLAVE else None
            ha = HaConfig(ha_listen_host=node.address, ha_listen_port=PORT, ha_master_address=slave_of)
            store = MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=1 << 20)
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            config = BrokerConfig(node.name, store, ha)
            async with open_broker(config, environment, recorder.tracer(node.name)) as broker:
                await use(broker)

        return run

    async def follow(broker: BrokerController) -> None:
        await trio.sleep_forever()

    async def ahead(node: Node) -> None:
        async with await trio.open_tcp_stream(master.address, PORT) as stream:
            await stream.send_all(encode_report(1 << 40))
            await stream.receive_some()

    async def main(world: World) -> None:
        done = trio.Event()

        async def lead(broker: BrokerController) -> None:
            near.boot(serve(BrokerRole.SLAVE, follow))
            far.boot(serve(BrokerRole.SLAVE, follow))
            await trio.sleep(1)
            for _ in range(5):
                await broker.put_message(MESSAGE)
            await trio.sleep(1)
            end = broker.store.commit_log.max_offset
            service = broker.ha_service
            assert {(status.ack_offset, status.lag_bytes) for status in service.slave_statuses()} == {(end, 0)}
            assert {status.sent_bytes for status in service.slave_statuses()} == {end}

            far.pause()
            await trio.sleep(1)
            await broker.put_message(MESSAGE)
            await trio.sleep(8)
            statuses = {status.peer.rpartition(":")[0]: status for status in service.slave_statuses()}
            grown = broker.store.commit_log.max_offset - end
            assert statuses[near.address].lag_bytes == 0
            assert statuses[far.address].lag_bytes == grown
            near_age, far_age = statuses[near.address].last_ack_age_s, statuses[far.address].last_ack_age_s
            assert near_age is not None
            assert far_age is not None
            assert near_age < 5.1
            assert far_age >= 9

            stray.boot(ahead)
            await trio.sleep(15)
            counters = service.counters()
            assert counters.ends == {"slave_ahead": 1, "housekeeping": 1}
            assert counters.connections == 3
            assert counters.sent_bytes >= 2 * end + grown
            await trio.sleep(60)
            done.set()

        master.boot(serve(BrokerRole.ASYNC_MASTER, lead))
        await done.wait()

    world.run(main)
    printed = [record.getMessage() for record in caplog.records if "behind the master" in record.getMessage()]
    assert len(printed) == 1  # after a minute: the far one was dropped before
    assert printed[0].startswith(f"slave {near.address}:")
    assert ": 0 bytes behind the master" in printed[0]
