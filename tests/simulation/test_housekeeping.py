"""A peer that says nothing for haHousekeepingInterval (20 s) is dropped: by the master, and by the slave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientConnect,
    HaConnectionClose,
    HaConnectionOpen,
    HaHeartbeat,
)
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.ha_frames import encode_report
from sim_net import Node, World
from tests.worlds.recording import E

HA_PORT = 10912
HOUSEKEEPING_S = 20.0


def _broker(recorder: Recorder, role: BrokerRole, master: str | None = None) -> Callable[[Node], Awaitable[None]]:
    async def serve(node: Node) -> None:
        config = BrokerConfig(
            node.name,
            MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=4096),
            HaConfig(ha_listen_host=node.address, ha_listen_port=HA_PORT, ha_master_address=master),
        )
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(config, environment, recorder.tracer(node.name)):
            await trio.sleep_forever()

    return serve


def _events(recorder: Recorder, kind: type[E]) -> list[tuple[float, str | None]]:
    return [((event.sim_time_ns or 0) / 1e9, event.status) for event in of_kind(recorder.events, kind)]


def test_the_master_drops_a_slave_that_is_silent() -> None:
    world = World(1, guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "housekeeping", 1))
    master, peer = world.node("master"), world.node("peer")
    heard: list[bytes] = []

    async def silent_slave(node: Node) -> None:
        stream = await trio.open_tcp_stream(master.address, HA_PORT)
        await stream.send_all(encode_report(0))
        heard.extend([bytes(data) async for data in stream])
        heard.append(b"end")
        await trio.sleep_forever()

    async def main(world: World) -> None:
        master.boot(_broker(recorder, BrokerRole.ASYNC_MASTER))
        await trio.sleep(1)
        peer.boot(silent_slave)
        await trio.sleep(HOUSEKEEPING_S - 0.5)
        assert not _events(recorder, HaConnectionClose)
        await trio.sleep(1)

    world.run(main)
    ((opened_s, _),) = _events(recorder, HaConnectionOpen)
    ((closed_s, reason),) = _events(recorder, HaConnectionClose)
    assert reason == "housekeeping"
    assert HOUSEKEEPING_S <= closed_s - opened_s < HOUSEKEEPING_S + 0.1
    # It was not for want of being spoken to: the master sent its heartbeats.
    assert len(_events(recorder, HaHeartbeat)) >= 3
    assert heard[-1] == b"end"


def test_the_slave_drops_a_master_that_is_silent_and_connects_again() -> None:
    world = World(2, guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "housekeeping", 2))
    slave, peer = world.node("slave"), world.node("peer")
    reports: list[tuple[float, int]] = []

    async def silent_master(node: Node) -> None:
        async def take_and_say_nothing(stream: trio.SocketStream) -> None:
            while data := await stream.receive_some():
                reports.append((trio.current_time(), len(data)))

        await trio.serve_tcp(take_and_say_nothing, HA_PORT, host=peer.address)

    async def main(world: World) -> None:
        peer.boot(silent_master)
        await trio.sleep(0.1)
        slave.boot(_broker(recorder, BrokerRole.SLAVE, f"{peer.address}:{HA_PORT}"))
        await trio.sleep(HOUSEKEEPING_S - 0.5)
        assert not _events(recorder, HaClientClose)
        await trio.sleep(2)

    world.run(main)
    first, second = _events(recorder, HaClientConnect)
    ((closed_s, reason),) = _events(recorder, HaClientClose)
    assert reason == "housekeeping"
    assert HOUSEKEEPING_S <= closed_s - first[0] < HOUSEKEEPING_S + 0.1
    assert closed_s < second[0] < closed_s + 0.2
    # It reported at once, and went on reporting while nothing came back.
    assert reports[0][0] < 0.2
    assert len(reports) >= 4
