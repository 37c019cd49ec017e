"""A paused process takes no step; its kernel and the rest of the world go on; afterwards everything due happens."""

from __future__ import annotations

import pytest
import trio

from sim_net import Deadlock, Fault, Kill, LinkConfig, Node, Partition, Pause, Schedule, World, WorldConfig

PORT = 7000
STEADY = WorldConfig(link=LinkConfig(latency_min_s=0.001, latency_max_s=0.001, retransmit_max_s=0.0))


def node_entries(world: World) -> list[tuple[float, str, str]]:
    return [
        (entry.time_ns / 1e9, entry.node, entry.kind)
        for entry in world.journal.entries
        if entry.kind.startswith("node.")
    ]


async def tick(times: list[float]) -> None:
    while True:
        times.append(trio.current_time())
        await trio.sleep(1)


def test_nothing_of_the_node_runs_and_others_do() -> None:
    mine: list[float] = []
    other: list[float] = []

    async def main(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        world.start_schedule(Schedule((Pause(at_s=2.5, duration_s=4.0, node="a"),)))
        a.boot(lambda _: tick(mine))
        b.boot(lambda _: tick(other))
        await trio.sleep_until(9.25)

    world = World(1)
    world.run(main)
    assert mine == [0, 1, 2, 6.5, 7.5, 8.5]
    assert other == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [each for each in node_entries(world) if each[1] == "a"] == [
        (0.0, "a", "node.boot"), (2.5, "a", "node.pause"), (6.5, "a", "node.resume"), (9.25, "a", "node.stop"),
    ]  # fmt: skip


def test_the_kernel_accepts_and_buffers_and_fills_up() -> None:
    received: list[tuple[float, int]] = []
    sent: list[float] = []

    async def server(node: Node) -> None:
        async def collect(stream: trio.SocketStream) -> None:
            async for data in stream:
                received.append((trio.current_time(), len(data)))  # noqa: PERF401 - not all at once

        await trio.serve_tcp(collect, PORT, host=node.address)

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        sent.append(trio.current_time())
        await stream.send_all(bytes(1000))
        sent.append(trio.current_time())
        await stream.send_all(bytes(200_000))
        sent.append(trio.current_time())
        await trio.sleep_forever()

    async def main(world: World) -> None:
        node = world.node("server")
        node.boot(server)
        world.apply(Pause(at_s=1.0, duration_s=4.0, node="server"), 0)
        await trio.sleep_until(2)
        world.node("client").boot(client)
        await trio.sleep_until(9)

    World(1, STEADY).run(main)
    assert sent[0] == pytest.approx(2.002)  # the handshake is the kernel's
    assert sent[1] == sent[0]
    assert sent[2] > 5  # two buffers are full until the process reads
    assert min(time for time, _ in received) == 5.0
    assert sum(size for _, size in received) == 201_000


def test_timers_that_expired_fire_at_the_resume() -> None:
    seen: list[tuple[str, float]] = []

    async def program(node: Node) -> None:
        async def late(name: str, seconds: float) -> None:
            with trio.move_on_after(seconds):
                await trio.sleep_forever()
            seen.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            for name, seconds in (("before", 1), ("within", 3), ("within too", 4), ("after", 7)):
                nursery.start_soon(late, name, seconds)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        world.apply(Pause(at_s=2.0, duration_s=3.0, node="a"), 0)
        await node.wait_down()

    World(1).run(main)
    assert sorted(seen) == [("after", 7.0), ("before", 1.0), ("within", 5.0), ("within too", 5.0)]


def test_pauses_nest() -> None:
    times: list[float] = []

    async def main(world: World) -> None:
        world.node("a").boot(lambda _: tick(times))
        faults = (Pause(at_s=1.5, duration_s=4.0, node="a"), Pause(at_s=2.5, duration_s=1.0, node="a"))
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(5)
        assert world.nodes["a"].is_paused
        await trio.sleep_until(6)
        assert not world.nodes["a"].is_paused

    world = World(1)
    world.run(main)
    assert times == [0, 1, 5.5]
    assert [kind for _, _, kind in node_entries(world)] == ["node.boot", "node.pause", "node.resume", "node.stop"]


def test_a_kill_ends_a_pause() -> None:
    log: list[tuple[float, str]] = []

    async def program(node: Node) -> None:
        number = node.incarnation
        try:
            while True:
                log.append((trio.current_time(), f"#{number}"))
                await trio.sleep(1)
        finally:
            log.append((trio.current_time(), f"#{number} cancelled"))

    async def main(world: World) -> None:
        world.node("a").boot(program)
        world.node("b")
        faults: list[Fault] = [
            Partition(at_s=0.1, duration_s=9.0, a="a", b="b"),
            Pause(at_s=0.5, duration_s=6.0, node="a"),
            Kill(at_s=2.25, node="a", down_s=1.0),
        ]
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(5)

    world = World(1)
    world.run(main)
    assert log == [(0, "#1"), (2.25, "#1 cancelled"), (3.25, "#2"), (4.25, "#2"), (5, "#2 cancelled")]
    kinds = ["node.boot", "node.pause", "node.kill", "node.boot", "node.stop"]
    assert [kind for _, _, kind in node_entries(world)] == kinds


def test_the_end_of_a_pause_leaves_a_later_pause_of_the_next_incarnation_alone() -> None:
    times: list[float] = []

    async def main(world: World) -> None:
        world.node("a").boot(lambda _: tick(times))
        faults = [
            Pause(at_s=0.5, duration_s=3.0, node="a"),
            Kill(at_s=1.0, node="a", down_s=1.0),
            Pause(at_s=2.5, duration_s=4.0, node="a"),
        ]
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(8)

    World(1).run(main)
    assert times == [0, 2, 6.5, 7.5]


def test_a_stop_takes_effect_after_the_pause() -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(lambda _: tick([]))
        world.apply(Pause(at_s=1.0, duration_s=3.0, node="a"), 0)
        await trio.sleep_until(2)
        node.stop()
        await node.wait_down()
        assert trio.current_time() == 4.0

    World(1).run(main)


def test_what_is_started_in_a_paused_node_waits() -> None:
    times: list[float] = []

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(lambda _: trio.sleep_forever())
        await trio.sleep(1)
        node.pause()
        node.start_soon(tick, times)
        await trio.sleep(2)
        node.resume()
        await trio.sleep(0.5)

    World(1).run(main)
    assert times == [3.0]


def test_a_node_that_is_paused_as_it_boots_does_not_begin() -> None:
    times: list[float] = []

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(lambda _: tick(times))
        node.pause()
        await trio.sleep(2)
        node.resume()
        await trio.sleep(0.5)

    World(1).run(main)
    assert times == [2.0]


def test_the_end_of_the_run_ends_every_pause() -> None:
    cleaned: list[float] = []

    async def program(node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append(trio.current_time())

    async def main(world: World) -> None:
        world.node("a").boot(program)
        world.apply(Pause(at_s=1.0, duration_s=50.0, node="a"), 0)
        await trio.sleep_until(3)

    world = World(1)
    world.run(main)
    assert cleaned == [3.0]
    assert world.now_s == 3.0


def test_a_failed_run_unwinds_although_a_node_is_paused() -> None:
    async def main(world: World) -> None:
        world.node("a").boot(lambda _: trio.sleep_forever())
        world.apply(Pause(at_s=1.0, duration_s=50.0, node="a"), 0)
        await trio.sleep_until(3)
        raise ValueError("the harness fails")

    with pytest.raises(ValueError, match="the harness fails"):
        World(1).run(main)


def test_waiting_for_a_paused_node_is_no_deadlock_but_one_paused_for_ever_is() -> None:
    async def program(node: Node) -> None:
        await trio.sleep(1)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        world.apply(Pause(at_s=0.5, duration_s=3.0, node="a"), 0)
        await node.wait_down()
        assert trio.current_time() == 3.5
        node.restart()
        node.pause()
        await node.wait_down()

    with pytest.raises(Deadlock, match=r"on node a \(incarnation 2, paused\)"):
        World(1).run(main)


def test_a_node_that_is_down_cannot_be_paused() -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.pause()
        assert not node.is_paused
        with pytest.raises(RuntimeError, match="node a is not paused"):
            node.resume()
        world.apply(Pause(at_s=0.0, duration_s=1.0, node="a"), 0)
        await trio.sleep(2)

    world = World(1)
    world.run(main)
    assert node_entries(world) == []
    assert len(world.journal) == 2  # the fault's begin and end


def test_pauses_do_not_break_determinism() -> None:
    def run() -> str:
        async def chatter(node: Node) -> None:
            async def echo(stream: trio.SocketStream) -> None:
                async for data in stream:
                    await stream.send_all(data)

            await trio.serve_tcp(echo, PORT, host=node.address)

        async def client(node: Node) -> None:
            stream = await trio.open_tcp_stream("server", PORT)
            while True:
                with trio.move_on_after(0.3):
                    await stream.send_all(b"x")
                    await stream.receive_some()
                await trio.sleep(node.entropy.random() / 20)

        async def main(world: World) -> None:
            world.node("server").boot(chatter)
            await trio.sleep(0.1)
            for number in range(3):
                world.node(f"client-{number}").boot(client)
            faults = [Pause(0.5 + 0.7 * number, 0.5, "server") for number in range(5)]
            faults += [Pause(0.6 + 0.4 * number, 0.45, "client-1") for number in range(5)]
            world.start_schedule(Schedule(faults))
            await trio.sleep_until(5)

        world = World(3)
        world.run(main)
        return world.digest

    assert run() == run()
