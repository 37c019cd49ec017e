"""Each fault: what the program under test sees of it, and what the journal says."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings

from sim_net import (
    ClockDrift,
    Delay,
    Kill,
    Node,
    Partition,
    Reset,
    Schedule,
    ShortIO,
    Stall,
    World,
)
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.sampling import sample_fault
from sim_net.faults.strategies import schedules
from tests.worlds.socket_pair import PORT, STEADY, Program, run_pair


def entries(world: World, prefix: str) -> list[tuple[float, str, str, dict[str, object]]]:
    return [
        (entry.time_ns / 1e9, entry.node, entry.kind, dict(entry.attributes))
        for entry in world.journal.entries
        if entry.kind.startswith(prefix)
    ]


def collecting(received: list[tuple[float, bytes]]) -> Program:
    """A server that notes what its connections send, and when."""

    async def collect(stream: trio.SocketStream) -> None:
        async for data in stream:
            received.append((trio.current_time(), bytes(data)))  # noqa: PERF401 - not all at once

    async def main(node: Node) -> None:
        await trio.serve_tcp(collect, PORT, host=node.address)

    return main


async def echo_server(node: Node) -> None:
    async def echo(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in stream:
                await stream.send_all(data)

    await trio.serve_tcp(echo, PORT, host=node.address)


def test_delay() -> None:
    times = []

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        for start in (2, 3, 5):
            await trio.sleep_until(start)
            await stream.send_all(b"x")
            await stream.receive_some()
            times.append(trio.current_time() - start)

    one_way = Delay(at_s=2.5, duration_s=1.0, a="client", b="server", extra_s=0.25, two_way=False)
    two_way = Delay(at_s=2.9, duration_s=1.0, a="server", b="client", extra_s=0.5)
    world = run_pair(echo_server, client, one_way, two_way)
    assert times == pytest.approx([0.002, 1.252, 0.002])
    assert [(time, kind, what["fault_id"]) for time, _, kind, what in entries(world, "fault.")] == [
        (2.5, "fault.begin", 0), (2.9, "fault.begin", 1), (3.5, "fault.end", 0), (3.9, "fault.end", 1),
    ]  # fmt: skip


def test_what_was_delayed_is_not_overtaken_and_not_hurried() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        for start in (2, 3):
            await trio.sleep_until(start)
            await stream.send_all(b"x")
        await trio.sleep_until(9)

    slow = Delay(at_s=1.5, duration_s=1.0, a="client", b="server", extra_s=5.0)
    run_pair(collecting(received), client, slow)
    assert [time for time, _ in received] == pytest.approx([7.001, 7.001])


def test_a_partition_holds_segments_and_delivers_them_in_order() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        await trio.sleep_until(1.9995)
        await sock.send(b"on the way when the link is cut;")
        await trio.sleep_until(3)
        await sock.send(b"sent while it is cut;")
        await sock.send(b"and more")
        await trio.sleep_until(6)
        sock.close()
        await trio.sleep(1)

    world = run_pair(collecting(received), client, Partition(at_s=2.0, duration_s=2.0, a="server", b="client"))
    assert received == [
        (4.001, b"on the way when the link is cut;"),
        (4.001, b"sent while it is cut;"),
        (4.001, b"and more"),
    ]
    assert entries(world, "net.held") == [
        (pytest.approx(2.0005), "client", "net.held", {"peer": "server", "size": 32}),
        (3.0, "client", "net.held", {"peer": "server", "size": 21}),
        (3.0, "client", "net.held", {"peer": "server", "size": 8}),
    ]


def test_a_one_way_partition_lets_the_other_way_through() -> None:
    received: list[tuple[float, bytes]] = []

    async def server(node: Node) -> None:
        async def talk(stream: trio.SocketStream) -> None:
            await trio.sleep_until(3)
            await stream.send_all(b"to the client")
            async for data in stream:
                received.append((trio.current_time(), bytes(data)))  # noqa: PERF401 - not all at once

        await trio.serve_tcp(talk, PORT, host=node.address)

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await trio.sleep_until(2.5)
        await stream.send_all(b"to the server")
        assert await stream.receive_some() == b"to the client"
        assert trio.current_time() == pytest.approx(3.001)
        await trio.sleep_until(6)

    run_pair(server, client, Partition(at_s=2.0, duration_s=2.0, a="client", b="server", two_way=False))
    assert received == [(4.001, b"to the server")]


def test_connecting_across_a_partition_times_out_or_waits_for_healing() -> None:
    outcomes: list[str] = []

    async def client(node: Node) -> None:
        for start in (2, 20):
            await trio.sleep_until(start)
            try:
                await trio.socket.socket().connect(("server", PORT))
            except TimeoutError:
                outcomes.append(f"timed out at {trio.current_time():.3f}")
            else:
                outcomes.append(f"connected at {trio.current_time():.3f}")

    long = Partition(at_s=1.5, duration_s=10.0, a="server", b="client")
    short = Partition(at_s=19.0, duration_s=3.0, a="server", b="client")
    world = run_pair(echo_server, client, long, short)
    assert outcomes == ["timed out at 9.000", "connected at 22.002"]
    assert [what["status"] for _, _, _, what in entries(world, "net.connect")] == ["timed_out", "ok"]


def test_overlapping_partitions_heal_with_the_last() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await trio.sleep_until(2.5)
        await stream.send_all(b"x")
        await trio.sleep_until(9)

    first = Partition(at_s=2.0, duration_s=2.0, a="server", b="client")
    second = Partition(at_s=3.0, duration_s=4.0, a="client", b="server", two_way=False)
    run_pair(collecting(received), client, first, second)
    assert received == [(7.001, b"x")]


def test_a_stall_blocks_the_writer_and_lets_it_go_on() -> None:
    received: list[tuple[float, bytes]] = []
    sent: list[float] = []

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await trio.sleep_until(2.5)
        await stream.send_all(bytes(65_536))
        sent.append(trio.current_time())
        await stream.send_all(bytes(1000))
        sent.append(trio.current_time())
        await trio.sleep_until(6)

    world = run_pair(collecting(received), client, Stall(at_s=2.0, duration_s=2.0, a="client", b="server"))
    assert sent == [2.5, 4.0]
    assert received[0][0] == pytest.approx(4.001)
    assert sum(len(data) for _, data in received) == 66_536
    assert entries(world, "net.held") == [(2.5, "client", "net.held", {"peer": "server", "size": 65_536})]
    assert entries(world, "net.stall") == [(2.5, "client", "net.stall", {"peer": "server"})]


def test_reset_breaks_both_ends() -> None:
    broken: list[str] = []

    async def server(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        sock, _ = await listener.accept()
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)
        broken.append(f"server at {trio.current_time()}")
        with pytest.raises(BrokenPipeError):
            await sock.send(b"x")

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        broken.append(f"client at {trio.current_time()}")

    world = run_pair(server, client, Reset(at_s=2.0, a="server", b="client"))
    assert sorted(broken) == ["client at 2.0", "server at 2.0"]
    assert [(node, what["status"]) for _, node, _, what in entries(world, "net.reset")] == [
        ("server", "fault"), ("client", "fault"),
    ]  # fmt: skip
    assert [kind for _, _, kind, _ in entries(world, "fault.")] == ["fault.begin", "fault.end"]


def test_short_io_makes_reads_and_writes_partial() -> None:
    sizes: list[int] = []

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        payload = b"0123456789" * 10
        for _ in range(2):
            await trio.sleep_until(max(2.0, trio.current_time()))
            rest = memoryview(payload)
            while rest:
                sent = await sock.sendmsg([rest[:3], rest[3:]])
                sizes.append(sent)
                rest = rest[sent:]
            await trio.sleep(0.1)
            got = bytearray()
            while len(got) < len(payload):
                data = await sock.recv(100)
                sizes.append(len(data))
                got += data
            assert got == payload
            assert set(sizes) == ({1, 2, 3, 4} if trio.current_time() < 5 else {100})
            sizes.clear()
            await trio.sleep_until(5)

    world = run_pair(echo_server, client, ShortIO(at_s=1.5, duration_s=2.0, node="client", bytes_max=4))
    for kind in ("net.partial_read", "net.partial_write"):
        found = entries(world, kind)
        assert len(found) > 20
        assert all(node == "client" and what["peer"] == "server" for _, node, _, what in found)


def test_kill_restarts_and_leaves_a_dead_node_alone() -> None:
    async def client(node: Node) -> None:
        await trio.sleep_until(9)

    first = Kill(at_s=2.0, node="server", down_s=3.0)
    second = Kill(at_s=3.0, node="server", down_s=1.0)
    world = run_pair(echo_server, client, first, second)
    assert [(time, node, kind) for time, node, kind, _ in entries(world, "node.")] == [
        (0.0, "server", "node.boot"), (1.0, "client", "node.boot"), (2.0, "server", "node.kill"),
        (5.0, "server", "node.boot"), (9.0, "client", "node.stop"), (9.0, "server", "node.stop"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FAULT_TYPES)
def test_every_kind_begins_and_ends_in_its_time(kind: str) -> None:
    drawn = [sample_fault(random.Random(seed).choice, ["server", "client"], kinds=[kind]) for seed in range(5)]
    faults = [attrs.evolve(fault, at_s=100.0 * number) for number, fault in enumerate(drawn)]

    async def main(world: World) -> None:
        world.node("server").boot(echo_server)
        world.node("client").boot(echo_server)
        world.start_schedule(Schedule(faults))
        await trio.sleep_until(500)

    world = World(1)
    world.run(main)
    found = entries(world, "fault.")
    for fault_id, fault in enumerate(faults):
        attributes = {"fault_id": fault_id, "fault.kind": kind, "fault.nodes": ",".join(fault.nodes)}
        mine = [(time, entry) for time, _, entry, what in found if what == attributes]
        assert mine == [(fault.at_s, "fault.begin"), (fault.at_s + fault.lasts_s, "fault.end")]


async def _serve_whatever_happens(node: Node) -> None:
    """An echo server that also writes to its disk, and that no fault can break."""

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async for data in stream:
                await stream.send_all(data)

    async def write() -> None:
        number = 0
        while True:
            number += 1
            with suppress(OSError):
                file = node.disk.open(f"{node.incarnation}/{number % 3}", allocate_bytes=64)
                file.write_at(number % 60, b"data")
                await file.sync()
            await trio.sleep(0.1)

    async def talk(other: str) -> None:
        while True:
            with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(1):
                stream = await trio.open_tcp_stream(other, PORT)
                async with stream:
                    for _ in range(3):
                        await stream.send_all(bytes(100))
                        await trio.sleep(0.01)
            await trio.sleep(0.3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        for other in ("a", "b", "c"):
            if other != node.name:
                nursery.start_soon(talk, other)
        await trio.serve_tcp(serve, PORT, host=node.address)


async def _all_is_well(node: Node) -> None:
    """Fail if anything is not as it is without faults."""
    wall_ms = node.wall_clock.now_ms()
    await trio.sleep(1)
    assert node.wall_clock.now_ms() - wall_ms == 1000
    started_s = trio.current_time()
    file = node.disk.open("afterwards", allocate_bytes=64)
    file.write_at(0, b"all is well")
    await file.sync()
    assert bytes(file.map()[:11]) == b"all is well"
    assert trio.current_time() - started_s <= 0.01
    for other in ("a", "b", "c"):
        if other != node.name:
            started_s = trio.current_time()
            async with await trio.open_tcp_stream(other, PORT) as stream:
                await stream.send_all(bytes(3000))
                size = 0
                while size < 3000:
                    size += len(await stream.receive_some())
            assert trio.current_time() - started_s == pytest.approx(0.004)


@given(schedules(["a", "b", "c"], events=["node.boot", "fault.*", "net.connect", "disk.*"], faults_max=10))
@settings(max_examples=12)
def test_after_any_faults_in_any_order_everything_is_as_before(schedule: Schedule) -> None:
    async def main(world: World) -> None:
        for name in ("a", "b", "c"):
            world.node(name)
        world.start_schedule(schedule)
        for node in world.nodes.values():
            node.boot(_serve_whatever_happens)
        await trio.sleep(8)
        while trio.current_time() < world.faults_end_s:
            await trio.sleep_until(world.faults_end_s)
        world.stop_waiting()
        await trio.sleep(10)
        for node in world.nodes.values():
            assert node.is_up
            assert node.has_power
            assert not node.is_paused
            node.start_soon(_all_is_well, node)
        await trio.sleep(5)

    World(1, STEADY).run(main)


def test_a_fault_that_is_late_begins_at_once() -> None:
    async def main(world: World) -> None:
        world.node("a")
        await trio.sleep(5)
        world.apply(ShortIO(at_s=1.0, duration_s=2.0, node="a", bytes_max=1), 7)
        await trio.sleep(5)

    world = World(1)
    world.run(main)
    assert [(time, kind, what) for time, _, kind, what in entries(world, "fault.")] == [
        (5.0, "fault.begin", {"fault_id": 7, "fault.kind": "ShortIO", "fault.nodes": "a"}),
        (7.0, "fault.end", {"fault_id": 7, "fault.kind": "ShortIO", "fault.nodes": "a"}),
    ]


def test_a_fault_about_nobody_is_refused_before_anything_begins() -> None:
    async def main(world: World) -> None:
        world.node("a")
        schedule = Schedule((Kill(0.0, "a", 1.0), Reset(1.0, "a", "ghost")))
        with pytest.raises(ValueError, match=r"fault 1, Reset\(.*no node is called 'ghost'; there are a"):
            world.start_schedule(schedule)
        await trio.sleep(2)

    world = World(1)
    world.run(main)
    assert not entries(world, "fault.")


def test_a_schedule_holds_faults_alone() -> None:
    faults: list[Any] = [Kill(0.0, "a", 1.0), {"kind": "Kill"}]
    with pytest.raises(TypeError, match=r"faults\[1\] must be a Fault, not \{'kind': 'Kill'\}"):
        Schedule(faults)


def test_numbers_too_large_for_a_float_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Kill\.at_s must be a finite number"):
        Kill(10**400, "a", 1.0)
    with pytest.raises(ValueError, match=r"ClockDrift\.rate_ppm must be a finite number"):
        ClockDrift(0.0, 1.0, "a", -(10**400))


def test_a_restart_that_comes_after_the_end_is_left_out() -> None:
    async def stays(node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

    async def main(world: World) -> None:
        world.node("slow").boot(stays)
        world.node("dead").boot(stays)
        world.apply(Kill(at_s=1.0, node="dead", down_s=5.0), 0)
        await trio.sleep(2)

    world = World(1)
    world.run(main)
    assert world.now_s == 12.0
    assert [(node, kind) for _, node, kind, _ in entries(world, "node.")][3:] == [("slow", "node.stop")]
