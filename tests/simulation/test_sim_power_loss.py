"""Power loss: peers hear nothing, what was not synced may be gone, and outages add up."""

from __future__ import annotations

import errno

import pytest
import trio

from sim_net import Fault, Kill, LinkConfig, Node, Pause, PowerLoss, Schedule, World, WorldConfig

PORT = 7000
STEADY = WorldConfig(link=LinkConfig(latency_min_s=0.001, latency_max_s=0.001, retransmit_max_s=0.0))


def node_entries(world: World, name: str) -> list[tuple[float, str]]:
    return [
        (entry.time_ns / 1e9, entry.kind)
        for entry in world.journal.entries
        if entry.node == name and entry.kind.startswith("node.")
    ]


async def silent_server(node: Node) -> None:
    async def hold(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    await trio.serve_tcp(hold, PORT, host=node.address)


async def sleep_for_ever(node: Node) -> None:
    await trio.sleep_forever()


def state(node: Node) -> tuple[bool, bool]:
    """Whether it has power, and whether its process runs."""
    return node.has_power, node.is_up


def run(*faults: Fault, until_s: float = 20.0, boot: bool = True) -> World:
    async def main(world: World) -> None:
        node = world.node("a")
        if boot:
            node.boot(sleep_for_ever)
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(until_s)

    world = World(1, STEADY)
    world.run(main)
    return world


def test_a_peer_hears_nothing_until_it_asks_the_restarted_node() -> None:
    seen: list[str] = []

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        with trio.move_on_at(6.0):
            await sock.recv(1)
            seen.append(f"heard something at {trio.current_time():.3f}")
        await sock.send(b"still there?")
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)
        seen.append(f"reset at {trio.current_time():.3f}")

    async def main(world: World) -> None:
        world.node("server").boot(silent_server)
        await trio.sleep(1)
        world.apply(PowerLoss(at_s=3.0, node="server", down_s=5.0), 0)
        node = world.node("client")
        node.boot(client)
        await node.wait_down()

    World(1, STEADY).run(main)
    assert seen == ["reset at 8.002"]


def test_connecting_to_a_dead_machine_times_out_and_to_a_dead_process_is_refused() -> None:
    errors: list[int | None] = []

    async def client(node: Node) -> None:
        for server in ("dark", "killed"):
            try:
                await trio.socket.socket().connect((server, PORT))
            except OSError as error:
                errors.append(error.errno)

    async def main(world: World) -> None:
        for name in ("dark", "killed"):
            world.node(name).boot(silent_server)
        await trio.sleep(1)
        world.nodes["dark"].power_loss()
        world.nodes["killed"].kill()
        node = world.node("client")
        node.boot(client)
        await node.wait_down()

    World(1, STEADY).run(main)
    assert errors == [errno.ETIMEDOUT, errno.ECONNREFUSED]


async def write_and_sync_half(node: Node) -> None:
    if node.incarnation == 1:
        file = node.disk.open("log", allocate_bytes=4096 * 8)
        await node.disk.sync_directory("")
        await file.sync()
        file.write_at(0, b"synced")
        await file.sync()
        file.write_at(4096 * 4, b"not synced")
    await trio.sleep_forever()


def log_after(seed: int, *faults: Fault) -> bytes:
    async def main(world: World) -> bytes:
        node = world.node("a")
        node.boot(write_and_sync_half)
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(10)
        assert node.is_up
        return bytes(node.disk.open("log").map())

    return World(seed).run(main)


def test_what_was_not_synced_may_be_lost_and_what_was_is_not() -> None:
    logs = [log_after(seed, PowerLoss(1.0, "a", 1.0)) for seed in range(20)]
    assert {log[:6] for log in logs} == {b"synced"}
    assert len({log[4096 * 4 :][:10] for log in logs}) > 1
    assert any(not any(log[6:]) for log in logs)


def test_a_node_that_is_down_loses_its_page_cache_too() -> None:
    killed = [log_after(seed, Kill(1.0, "a", 4.0)) for seed in range(20)]
    assert {log[4096 * 4 :][:10] for log in killed} == {b"not synced"}
    both = [log_after(seed, Kill(1.0, "a", 4.0), PowerLoss(2.0, "a", 1.0)) for seed in range(20)]
    assert any(not any(log[6:]) for log in both)


def test_the_longest_outage_decides_when_the_node_restarts() -> None:
    world = run(Kill(1.0, "a", 3.0), PowerLoss(2.0, "a", 5.0), PowerLoss(3.0, "a", 1.0), Kill(3.5, "a", 90.0))
    assert node_entries(world, "a") == [
        (0.0, "node.boot"), (1.0, "node.kill"), (2.0, "node.power_loss"), (7.0, "node.boot"), (20.0, "node.stop"),
    ]  # fmt: skip


def test_a_shorter_power_loss_does_not_start_a_killed_node_early() -> None:
    world = run(Kill(1.0, "a", 6.0), PowerLoss(2.0, "a", 1.0))
    assert node_entries(world, "a")[-2:] == [(7.0, "node.boot"), (20.0, "node.stop")]


def test_a_node_that_nobody_started_gets_its_power_back_and_stays_down() -> None:
    world = run(PowerLoss(2.0, "a", 5.0), boot=False)
    assert node_entries(world, "a") == [(2.0, "node.power_loss")]
    assert state(world.nodes["a"]) == (True, False)


def test_a_node_that_was_stopped_after_an_outage_is_not_restarted_by_the_next() -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(sleep_for_ever)
        world.start_schedule(Schedule((Kill(1.0, "a", 1.0), PowerLoss(5.0, "a", 1.0))))
        await trio.sleep_until(4)
        node.stop()
        await trio.sleep_until(9)
        assert state(node) == (True, False)

    World(1).run(main)


def test_a_boot_turns_the_power_on() -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(sleep_for_ever)
        await trio.sleep(1)
        node.power_loss()
        node.power_loss()
        assert state(node) == (False, False)
        assert repr(node) == "<Node a 10.0.0.1 without power, incarnation 1>"
        node.restart()
        assert state(node) == (True, True)

    world = World(1)
    world.run(main)
    assert [kind for _, kind in node_entries(world, "a")] == ["node.boot", "node.power_loss", "node.boot", "node.stop"]


def test_a_paused_node_can_lose_its_power() -> None:
    world = run(Pause(1.0, 9.0, "a"), PowerLoss(2.0, "a", 1.0), until_s=5.0)
    assert [kind for _, kind in node_entries(world, "a")] == [
        "node.boot", "node.pause", "node.power_loss", "node.boot", "node.stop",
    ]  # fmt: skip


def test_nothing_works_for_the_dead_process_and_its_wall_clock_runs_on() -> None:
    errors: list[int | None] = []

    async def program(node: Node) -> None:
        if node.incarnation > 1:
            await trio.sleep_forever()
        file = node.disk.open("log", allocate_bytes=10)
        try:
            await trio.sleep_forever()
        finally:
            for attempt in (lambda: file.write_at(0, b"x"), trio.socket.socket):
                try:
                    attempt()
                except OSError as error:
                    errors.append(error.errno)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        before_ms = node.wall_clock.now_ms()
        world.apply(PowerLoss(1.0, "a", 2.0), 0)
        await trio.sleep_until(5)
        assert node.wall_clock.now_ms() - before_ms == 5000

    World(1).run(main)
    assert errors == [errno.EBADF, errno.EBADF]
