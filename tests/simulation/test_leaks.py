"""What a stopped broker leaves behind: nothing, whatever was going on; and `World.leaks` sees what somebody leaves."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from sim_net import Node, World

HA_PORT = 10912


def leaks_of(program: Callable[[Node], Awaitable[None]]) -> list[str]:
    async def main(world: World) -> list[str]:
        node = world.node("a")
        node.boot(program)
        await node.wait_down()
        return world.leaks()

    return World(1).run(main)


def test_who_closes_everything_leaves_nothing() -> None:
    async def program(node: Node) -> None:
        node.disk.open("file", allocate_bytes=1).close()
        node.disk.lock("lock").close()
        for listener in await trio.open_tcp_listeners(1000, host=node.address):
            await listener.aclose()

    assert leaks_of(program) == []


def test_what_is_left_open_is_named() -> None:
    kept: list[object] = []

    async def program(node: Node) -> None:
        kept.append(node.disk.open("file", allocate_bytes=1))
        kept.append(node.disk.lock("lock"))
        kept.extend(await trio.open_tcp_listeners(1000, host=node.address))

    socket, *others = leaks_of(program)
    assert "StreamSocket" in socket
    assert others == ["a: open file file", "a: lock on lock"]


def test_a_process_that_runs_is_a_leak() -> None:
    async def main(world: World) -> list[str]:
        async def wait(_: Node) -> None:
            await trio.sleep_forever()

        world.node("a").boot(wait)
        await trio.sleep(1)
        return world.leaks()

    assert World(1).run(main) == ["a: process 1 has not ended"]


def test_a_process_that_is_killed_leaves_nothing() -> None:
    async def main(world: World) -> list[str]:
        opened: list[object] = []

        async def serve(node: Node) -> None:
            opened.append(node.disk.open("file", allocate_bytes=1))
            opened.extend(await trio.open_tcp_listeners(1000, host=node.address))
            await trio.sleep_forever()

        node = world.node("a")
        node.boot(serve)
        await trio.sleep(1)
        node.kill()
        await trio.sleep(1)
        return world.leaks()

    assert World(1).run(main) == []


@pytest.mark.parametrize("connections_max", [1, 64])
def test_a_connection_that_is_accepted_while_its_broker_stops_is_closed(connections_max: int) -> None:
    """A paused broker's system accepts connections; it finds them and its stop at the same time."""
    for seed in range(12):
        world = World(seed, guard_packages=("rmq_actors",))
        assert world.run(functools.partial(stop_at_connections, connections_max=connections_max)) == [], seed


async def stop_at_connections(world: World, *, connections_max: int) -> list[str]:
    recorder = open_sim_recorder(world, RunInfo("test", "leaks", world.seed))
    master, slave = world.node("master"), world.node("slave")
    stop, opened = trio.Event(), trio.Event()

    async def serve(node: Node) -> None:
        ha = HaConfig(ha_listen_host=node.address, ha_listen_port=HA_PORT, connections_max=connections_max)
        store = MessageStoreConfig(
            mapped_file_size_commit_log_bytes=4096,
            mapped_file_size_consume_queue_bytes=200,
            max_hash_slot_num=16,
            max_index_num=32,
        )
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(BrokerConfig(node.name, store, ha), environment, recorder.tracer(node.name)):
            opened.set()
            await stop.wait()

    async def connect(_: Node) -> None:
        streams = [await trio.open_tcp_stream(master.address, HA_PORT) for _ in range(40)]
        stop.set()
        await trio.sleep(1)
        for stream in streams:
            await stream.aclose()

    master.boot(serve)
    await opened.wait()
    master.pause()
    slave.boot(connect)
    await stop.wait()
    master.resume()
    await master.wait_down()
    await slave.wait_down()
    await trio.sleep(1)
    return world.leaks()
