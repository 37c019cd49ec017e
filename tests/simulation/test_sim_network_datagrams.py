"""UDP over the simulated network, and what faults do to it. What its sockets do without faults: tests/parity."""

from __future__ import annotations

import pytest
import trio
from trio.socket import SOCK_DGRAM

from sim_net import (
    Bandwidth,
    Delay,
    Duplicate,
    Hold,
    Kill,
    LinkConfig,
    Loss,
    Node,
    Partition,
    PowerLoss,
    Reorder,
    World,
    WorldConfig,
)
from tests.worlds.socket_pair import PORT, Program, run_pair

Received = list[tuple[float, bytes]]


def entries(world: World, kind: str) -> list[tuple[float, str, dict[str, object]]]:
    return [
        (entry.time_ns / 1e9, entry.node, dict(entry.attributes))
        for entry in world.journal.entries
        if entry.kind == kind
    ]


def collecting(received: Received) -> Program:
    async def main(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.bind((node.address, PORT))
        while True:
            data = await sock.recv(65_536)
            received.append((trio.current_time(), data))

    return main


def sending(*times: float, until: float = 20.0) -> Program:
    """A client that sends the numbers 0, 1, ... at these times."""

    async def main(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        for number, time in enumerate(times):
            await trio.sleep_until(time)
            await sock.sendto(b"%d" % number, ("server", PORT))
        await trio.sleep_until(until)

    return main


def test_names_resolve_for_datagrams_too() -> None:
    async def client(node: Node) -> None:
        found = await trio.socket.getaddrinfo("server", PORT, type=SOCK_DGRAM)
        assert found == [(trio.socket.AF_INET, SOCK_DGRAM, trio.socket.IPPROTO_UDP, "", ("10.0.0.1", PORT))]
        assert [each[1] for each in await trio.socket.getaddrinfo("server", PORT)] == [
            trio.socket.SOCK_STREAM,
            SOCK_DGRAM,
        ]

    run_pair(collecting([]), client)


def test_order_is_kept_although_latencies_differ() -> None:
    received: Received = []
    world = World(1, WorldConfig(link=LinkConfig(latency_min_s=0.0, latency_max_s=1.0)))

    async def main(world: World) -> None:
        world.node("server").boot(collecting(received))
        node = world.node("client")
        node.boot(sending(*(1 + number / 100 for number in range(50))))
        await node.wait_down()

    world.run(main)
    assert [data for _, data in received] == [b"%d" % number for number in range(50)]


def test_loss_drops_datagrams() -> None:
    received: Received = []
    times = [2 + number / 100 for number in range(200)]
    world = run_pair(
        collecting(received), sending(*times), Loss(at_s=1.5, duration_s=9.0, a="client", b="server", probability=0.3)
    )
    lost = entries(world, "net.lost")
    assert 30 < len(lost) < 100
    assert len(received) + len(lost) == 200
    assert [data for _, data in received] == sorted((data for _, data in received), key=int)
    assert all(what["count"] == 1 for _, _, what in lost)


def test_duplicates_arrive_twice() -> None:
    received: Received = []
    times = [2 + number / 10 for number in range(20)]
    world = run_pair(
        collecting(received),
        sending(*times),
        Duplicate(at_s=1.5, duration_s=1.55, a="server", b="client", probability=0.5),
    )
    twice = {data for _, data in received if [each for _, each in received].count(data) == 2}
    assert len(entries(world, "net.duplicated")) == len(twice) == len(received) - 20
    assert 0 < len(twice) < 11
    assert all(int(data) <= 10 for data in twice)


def test_reordered_datagrams_are_overtaken() -> None:
    received: Received = []
    times = [2 + number / 100 for number in range(20)]
    world = run_pair(
        collecting(received),
        sending(*times),
        Reorder(at_s=1.5, duration_s=9.0, a="client", b="server", probability=0.3, extra_s=0.025),
    )
    numbers = [int(data) for _, data in received]
    assert sorted(numbers) == list(range(20))
    late = [time for time, _, _ in entries(world, "net.reordered")]
    assert numbers != sorted(numbers)
    arrivals = {int(data): time for time, data in received}
    assert [number for number in range(20) if arrivals[number] - times[number] > 0.01] == [
        times.index(time) for time in late
    ]


def test_a_partition_loses_datagrams_and_a_hold_keeps_them() -> None:
    received: Received = []
    world = run_pair(
        collecting(received),
        sending(2.0, 2.4995, 3.0, 5.0, 6.0, 9.0),
        Partition(at_s=2.5, duration_s=1.0, a="client", b="server"),
        Hold(at_s=4.5, duration_s=3.0, a="client", b="server"),
    )
    assert [(round(time, 4), data) for time, data in received] == [
        (2.001, b"0"),
        (7.501, b"3"),
        (7.501, b"4"),
        (9.001, b"5"),
    ]
    assert [round(time, 4) for time, _, _ in entries(world, "net.lost")] == [2.5005, 3.001]
    assert [round(time, 4) for time, _, _ in entries(world, "net.held")] == [5.001, 6.001]


def test_bandwidth_and_delay_slow_datagrams_down() -> None:
    received: Received = []

    async def client(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await trio.sleep_until(2)
        for size in (1000, 500):
            await sock.sendto(bytes(size), ("server", PORT))
        await trio.sleep_until(9)

    narrow = Bandwidth(at_s=1.5, duration_s=5.0, a="client", b="server", bytes_per_s=1000.0)
    slow = Delay(at_s=1.5, duration_s=5.0, a="client", b="server", extra_s=0.25)
    run_pair(collecting(received), client, narrow, slow)
    assert [time for time, _ in received] == pytest.approx([3.251, 3.751])


def test_a_full_receive_buffer_drops() -> None:
    async def server(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.bind((node.address, PORT))
        await trio.sleep_until(3)
        sizes = []
        with trio.move_on_at(10):
            while True:
                sizes.append(len(await sock.recv(65_536)))
        assert sizes == [30_000, 30_000, 5536]

    async def client(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        for size in (30_000, 30_000, 30_000, 5537, 5536):
            await sock.sendto(bytes(size), ("server", PORT))
        await trio.sleep_until(12)

    world = run_pair(server, client)
    assert [(node, what) for _, node, what in entries(world, "net.dropped")] == [
        ("server", {"peer": "client", "size": 30_000}),
        ("server", {"peer": "client", "size": 5537}),
    ]


def test_a_dead_process_is_told_and_a_dead_machine_is_not() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.connect(("server", PORT))
        await trio.sleep_until(3)
        await sock.send(b"x")
        with pytest.raises(ConnectionRefusedError):
            await sock.recv(1)
        assert trio.current_time() == pytest.approx(3.002)
        await trio.sleep_until(6)
        await sock.send(b"x")
        with trio.move_on_at(8) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught

    run_pair(
        collecting([]),
        client,
        Kill(at_s=2.0, node="server", down_s=2.0),
        PowerLoss(at_s=5.0, node="server", down_s=20.0),
    )


def test_an_answer_that_nobody_listens_may_be_lost_like_any_packet() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.connect(("server", PORT + 1))
        for at_s, refused in ((3.0, False), (6.0, False), (9.0, True)):
            await trio.sleep_until(at_s)
            await sock.send(b"x")
            await trio.sleep(0.1)
            assert sock.is_readable() == refused

    run_pair(
        collecting([]),
        client,
        Partition(at_s=2.0, duration_s=2.0, a="server", b="client", two_way=False),
        Loss(at_s=5.0, duration_s=2.0, a="server", b="client", probability=1.0, two_way=False),
    )


def test_nobody_answers_for_an_address_that_nobody_has() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.connect(("10.9.9.9", PORT))
        await sock.send(b"x")
        with trio.move_on_after(5) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught

    run_pair(collecting([]), client)


def test_a_killed_node_s_socket_is_dead() -> None:
    errors: list[str] = []

    async def server(node: Node) -> None:
        sock = trio.socket.socket(type=SOCK_DGRAM)
        await sock.bind((node.address, PORT))
        try:
            await sock.recv(1)
        finally:
            for call in (sock.recv(1), sock.sendto(b"x", ("10.0.0.2", PORT))):
                with trio.CancelScope(shield=True):
                    try:
                        await call
                    except OSError as error:
                        errors.append(type(error).__name__ + str(error.errno))

    async def client(node: Node) -> None:
        await trio.sleep_until(4)

    run_pair(server, client, Kill(at_s=2.0, node="server", down_s=5.0))
    assert errors == ["OSError9", "OSError9"]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    def run() -> tuple[str, Received]:
        received: Received = []
        times = [2 + number / 100 for number in range(100)]
        world = run_pair(
            collecting(received),
            sending(*times),
            Loss(at_s=1.5, duration_s=9.0, a="client", b="server", probability=0.2),
            Duplicate(at_s=1.5, duration_s=9.0, a="client", b="server", probability=0.2),
            Reorder(at_s=1.5, duration_s=9.0, a="client", b="server", probability=0.2, extra_s=0.05),
            seed=seed,
        )
        return world.digest, received

    assert run() == run()
