"""Faults of the network beside delay, partition and stall, and what TCP does when nothing is acknowledged any more."""

from __future__ import annotations

import errno
import struct

import attrs
import pytest
import trio

from sim_net import (
    Bandwidth,
    Fault,
    Hold,
    LinkConfig,
    Loss,
    Node,
    Partition,
    PowerLoss,
    Stall,
    World,
    WorldConfig,
)
from tests.worlds.socket_pair import PORT, STEADY_LINK, Program, run_pair

IMPATIENT = WorldConfig(link=attrs.evolve(STEADY_LINK, retransmit_timeout_s=10.0))


def entries(world: World, kind: str) -> list[tuple[float, str, dict[str, object]]]:
    return [
        (round(entry.time_ns / 1e9, 6), entry.node, dict(entry.attributes))
        for entry in world.journal.entries
        if entry.kind == kind
    ]


def collecting(received: list[tuple[float, bytes]]) -> Program:
    """A server that notes what its connections send, and when; b"" for their end."""

    async def collect(stream: trio.SocketStream) -> None:
        data = b"-"
        while data:
            data = bytes(await stream.receive_some())
            received.append((now(), data))

    async def main(node: Node) -> None:
        await trio.serve_tcp(collect, PORT, host=node.address)

    return main


def now() -> float:
    return round(trio.current_time(), 6)


async def idle_server(node: Node) -> None:
    """A server that accepts and never reads."""
    await trio.serve_tcp(lambda stream: trio.sleep_forever(), PORT, host=node.address)


async def connected(node: Node) -> trio.socket.SocketType:
    sock = trio.socket.socket()
    await sock.connect(("server", PORT))
    return sock


# --- hold -------------------------------------------------------------------------------------------------------------


def test_a_hold_keeps_what_passes_and_lets_it_go_in_order() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(1.9995)
        await sock.send(b"on its way;")
        await trio.sleep_until(3)
        await sock.send(b"held;")
        await trio.sleep_until(3.5)
        await sock.send(b"held too")
        sock.close()
        await trio.sleep_until(6)

    world = run_pair(collecting(received), client, Hold(at_s=2.0, duration_s=2.0, a="client", b="server"))
    assert received == [(4.001, data) for data in (b"on its way;", b"held;", b"held too", b"")]
    assert [(time, what["size"]) for time, _, what in entries(world, "net.held")] == [
        (2.0005, 11),
        (3.0, 5),
        (3.5, 8),
    ]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Hold(at_s=2.0, duration_s=3.0, a="server", b="client"), "reset at 5.001"),
        (Partition(at_s=2.0, duration_s=3.0, a="server", b="client"), "waits"),
    ],
    ids=["hold", "partition"],
)
def test_a_hold_keeps_a_reset_and_a_partition_loses_it(fault: Fault, outcome: str) -> None:
    outcomes = ["waits"]

    async def server(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        sock, _ = await listener.accept()
        await trio.sleep_until(3)
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        await trio.sleep_forever()

    async def client(node: Node) -> None:
        sock = await connected(node)
        with trio.move_on_at(20):
            try:
                await sock.recv(1)
            except ConnectionResetError:
                outcomes[0] = f"reset at {trio.current_time()}"

    run_pair(server, client, fault)
    assert outcomes == [outcome]


def test_a_one_way_hold_lets_the_other_way_through() -> None:
    times: list[float] = []

    async def server(node: Node) -> None:
        async def talk(stream: trio.SocketStream) -> None:
            await trio.sleep_until(3)
            await stream.send_all(b"to the client")
            await stream.receive_some()
            times.append(now())

        await trio.serve_tcp(talk, PORT, host=node.address)

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2.5)
        await sock.send(b"to the server")
        await sock.recv(100)
        times.append(now())
        await trio.sleep_until(6)

    run_pair(server, client, Hold(at_s=2.0, duration_s=2.0, a="client", b="server", two_way=False))
    assert times == [3.001, 4.001]


def test_what_is_held_and_cut_passes_when_both_are_over() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2.5)
        await sock.send(b"x")
        await trio.sleep_until(9)

    hold = Hold(at_s=2.0, duration_s=2.0, a="client", b="server")
    cut = Partition(at_s=3.0, duration_s=4.0, a="client", b="server")
    run_pair(collecting(received), client, hold, cut)
    assert received[0] == (7.001, b"x")


# --- loss -------------------------------------------------------------------------------------------------------------


def test_each_loss_costs_a_retransmission_time_out_that_doubles() -> None:
    received: list[tuple[float, bytes]] = []
    starts = range(1000, 31_000, 1000)

    async def client(node: Node) -> None:
        sock = await connected(node)
        for start in starts:
            await trio.sleep_until(start)
            await sock.send(b"x")
        await trio.sleep_until(40_000)

    lossy = Loss(at_s=1.5, duration_s=39_000.0, a="client", b="server", probability=0.6)
    world = run_pair(collecting(received), client, lossy)
    losses = [(time, what["count"]) for time, node, what in entries(world, "net.lost") if node == "client"]
    expected = []
    for start in starts:
        counts = [count for time, count in losses if start < time < start + 1000]
        assert counts == list(range(1, len(counts) + 1))
        expected.append(start + 0.001 + sum(min(0.2 * 2**n, 120) for n in range(len(counts))))
    assert {count for _, count in losses} >= set(range(1, 5))
    assert [time for time, data in received if data] == pytest.approx(expected)


def test_retransmissions_after_the_fault_get_through() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2)
        await sock.send(b"x")
        await trio.sleep_until(9)

    lossy = Loss(at_s=1.5, duration_s=1.0, a="client", b="server", probability=1.0)
    run_pair(collecting(received), client, lossy)
    assert received[0] == (2.601, b"x")  # lost at 2.001 and 2.201


def test_a_lost_segment_is_sent_again_at_once_if_others_follow() -> None:
    """As fast retransmission has it: a loss within a stream costs no time-out."""
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        for number in range(50):
            await trio.sleep_until(2 + number / 100)
            await sock.send(b"%02d" % number)
        await trio.sleep_until(9)

    lossy = Loss(at_s=1.5, duration_s=0.7, a="client", b="server", probability=0.2)
    world = run_pair(collecting(received), client, lossy)
    lost = entries(world, "net.lost")
    assert lost
    assert b"".join(data for _, data in received) == b"".join(b"%02d" % number for number in range(50))


def test_what_is_sent_after_the_losses_waits_for_no_time_out_of_theirs() -> None:
    """A later segment shows that earlier ones were lost: all go on at once, however long the time-out had grown."""
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        socket = await connected(node)
        for number in range(5):
            await trio.sleep_until(2.0 + number / 100)
            await socket.send(b"%d" % number)
        await trio.sleep_until(20.0)
        await socket.send(b"5")
        await trio.sleep_until(21.0)

    run_pair(collecting(received), client, Loss(at_s=1.5, duration_s=13.0, a="client", b="server", probability=1.0))
    assert b"".join(data for _, data in received) == b"012345"
    assert received[-1][0] < 20.1


def test_a_lost_handshake_is_tried_again_after_a_second() -> None:
    times: list[float] = []

    async def client(node: Node) -> None:
        for _ in range(20):
            before = trio.current_time()
            try:
                sock = await connected(node)
            except TimeoutError:
                continue
            times.append(round(trio.current_time() - before, 3))
            sock.close()

    run_pair(collecting([]), client, Loss(at_s=0.5, duration_s=60.0, a="client", b="server", probability=0.4))
    assert {0.002, 1.002} <= set(times) <= {0.002, 1.002, 2.002, 3.002, 4.002, 6.002}


def test_loss_for_ever_is_a_time_out() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2)
        await sock.send(b"x")
        with pytest.raises(TimeoutError):
            await sock.recv(1)
        assert now() == 12.001

    lossy = Loss(at_s=1.5, duration_s=60.0, a="client", b="server", probability=1.0)
    world = run_pair(idle_server, client, lossy, config=IMPATIENT)
    assert entries(world, "net.reset") == [(12.001, "client", {"peer": "server", "status": "timed_out"})]


# --- bandwidth --------------------------------------------------------------------------------------------------------


def test_bandwidth_is_shared_first_come_first_served() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        first, second = await connected(node), await connected(node)
        await trio.sleep_until(2)
        await first.send(b"a" * 1000)
        await second.send(b"b" * 500)
        await first.send(b"a" * 500)
        await trio.sleep_until(6)
        await second.send(b"c" * 500)
        await trio.sleep_until(7)

    narrow = Bandwidth(at_s=1.5, duration_s=4.0, a="client", b="server", bytes_per_s=1000.0)
    world = run_pair(collecting(received), client, narrow)
    assert [(time, data[:1], len(data)) for time, data in received] == [
        (3.001, b"a", 1000),
        (3.501, b"b", 500),
        (4.001, b"a", 500),
        (6.001, b"c", 500),
    ]
    assert [what["wait_s"] for _, _, what in entries(world, "net.queued")] == pytest.approx([1.0, 1.5, 2.0])


def test_of_several_limits_the_least_counts_and_the_rest_remain() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        first, second = await connected(node), await connected(node)
        await trio.sleep_until(2)
        await first.send(bytes(10_000))
        await trio.sleep_until(6)
        await second.send(b"b" * 1000)
        await trio.sleep_until(30)

    narrow = Bandwidth(at_s=1.5, duration_s=4.0, a="client", b="server", bytes_per_s=1000.0)
    wider = Bandwidth(at_s=1.6, duration_s=20.0, a="client", b="server", bytes_per_s=10_000.0)
    run_pair(collecting(received), client, narrow, wider)
    assert [(time, len(data)) for time, data in received] == [(6.101, 1000), (12.001, 10_000)]


def test_bandwidth_of_a_config_holds_without_faults_and_not_on_loopback() -> None:
    times: list[float] = []

    async def server(node: Node) -> None:
        async def read(stream: trio.SocketStream) -> None:
            async for _ in stream:
                pass
            times.append(round(trio.current_time(), 3))

        await trio.serve_tcp(read, PORT, host="0.0.0.0")

    async def client(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server, node)
            for host in ("server", "localhost"):
                await trio.sleep_until(2)
                stream = await trio.open_tcp_stream(host, PORT)
                await stream.send_all(bytes(100_000))
                await stream.aclose()
            await trio.sleep_until(20)
            nursery.cancel_scope.cancel()

    link = LinkConfig(latency_min_s=0.001, latency_max_s=0.001, bandwidth_bytes_per_s=10_000.0)
    world = run_pair(server, client, config=WorldConfig(link=link))
    assert len(times) == 2
    assert min(times) < 8
    assert max(times) == pytest.approx(12.0, abs=0.1)
    assert entries(world, "net.queued") == []


# --- nothing is acknowledged ------------------------------------------------------------------------------------------


def test_a_sender_gives_up_after_the_retransmission_time_out() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        await sock.send(b"x")
        with pytest.raises(TimeoutError) as info:
            await sock.recv(1)
        assert info.value.errno == errno.ETIMEDOUT
        assert trio.current_time() == 13.0
        assert await sock.recv(1) == b""
        with pytest.raises(BrokenPipeError):
            await sock.send(b"y")
        with pytest.raises(OSError, match="not connected"):
            sock.getpeername()
        await trio.sleep_until(40)

    cut = Partition(at_s=2.0, duration_s=20.0, a="client", b="server")
    world = run_pair(collecting(received), client, cut, config=IMPATIENT)
    assert entries(world, "net.reset") == [(13.0, "client", {"peer": "server", "status": "timed_out"})]
    assert received == []


def test_the_peer_of_one_who_gave_up_is_reset_when_it_speaks() -> None:
    seen: list[tuple[float, str]] = []

    async def server(node: Node) -> None:
        async def talk(stream: trio.SocketStream) -> None:
            await trio.sleep_until(30)
            await stream.send_all(b"hello?")
            try:
                await stream.receive_some()
            except trio.BrokenResourceError as error:
                seen.append((now(), type(error.__cause__).__name__))

        await trio.serve_tcp(talk, PORT, host=node.address)

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        await sock.send(b"x")
        with pytest.raises(TimeoutError):
            await sock.recv(1)
        await trio.sleep_until(40)

    run_pair(server, client, Partition(at_s=2.0, duration_s=20.0, a="client", b="server"), config=IMPATIENT)
    assert seen == [(30.002, "ConnectionResetError")]


@pytest.mark.parametrize("two_way", [True, False])
def test_a_short_partition_ends_no_connection(two_way: bool) -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        for start in (3, 13, 23):
            await trio.sleep_until(start)
            await sock.send(b"x")
        await trio.sleep_until(60)

    cuts = [Partition(at_s=at_s, duration_s=9.5, a="client", b="server", two_way=two_way) for at_s in (2.0, 12.0, 22.0)]
    run_pair(collecting(received), client, *cuts, config=IMPATIENT)
    assert [time for time, _ in received] == pytest.approx([11.501, 21.501, 31.501])


def test_lost_acknowledgements_end_a_connection_too() -> None:
    """Data gets through, but nothing comes back."""
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        await sock.send(b"x")
        with pytest.raises(TimeoutError):
            await sock.recv(1)
        assert trio.current_time() == pytest.approx(13.001)

    run_pair(
        collecting(received),
        client,
        Partition(at_s=2.0, duration_s=20.0, a="server", b="client", two_way=False),
        config=IMPATIENT,
    )
    assert received[0] == (3.001, b"x")


def test_acknowledgements_that_get_through_again_save_the_connection() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        await sock.send(b"x")
        with trio.move_on_at(60) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught

    short = Partition(at_s=2.0, duration_s=8.0, a="server", b="client", two_way=False)
    run_pair(idle_server, client, short, config=IMPATIENT)


def test_a_reset_that_is_lost_is_found_out_by_who_waits_for_a_window() -> None:
    """The way back is cut when the peer resets: the answer to a probe of the window arrives once that is whole."""

    async def server(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        sock, _ = await listener.accept()
        await trio.sleep_until(3)
        sock.close()  # with unread data
        await trio.sleep_forever()

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        with pytest.raises(trio.BrokenResourceError) as info:
            await stream.send_all(bytes(1_000_000))
        assert isinstance(info.value.__cause__, ConnectionResetError)
        assert now() == 5.001

    run_pair(server, client, Partition(at_s=2.0, duration_s=3.0, a="server", b="client", two_way=False))


@pytest.mark.parametrize("begin_s", [1.5, 6.0], ids=["before the cut", "after the cut"])
def test_what_waits_for_a_window_behind_a_cut_gives_up_too(begin_s: float) -> None:
    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(bytes(65_536))  # the window is full
        await trio.sleep_until(begin_s)
        with pytest.raises(trio.BrokenResourceError) as info:
            await stream.send_all(bytes(100_000))
        assert isinstance(info.value.__cause__, TimeoutError)
        assert trio.current_time() == max(5.0, begin_s) + 10.0

    run_pair(idle_server, client, Partition(at_s=5.0, duration_s=90.0, a="client", b="server"), config=IMPATIENT)


def test_a_lost_refusal_is_repeated_when_the_request_is() -> None:
    async def client(node: Node) -> None:
        with pytest.raises(ConnectionRefusedError):
            await trio.socket.socket().connect(("server", PORT + 1))
        assert now() == 4.002  # asked at 1, 2 and 4 s

    run_pair(idle_server, client, Partition(at_s=0.5, duration_s=2.0, a="server", b="client", two_way=False))


# --- power ------------------------------------------------------------------------------------------------------------


def test_a_peer_without_power_is_silent_and_resets_after_its_reboot() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        with trio.move_on_at(4.0) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught  # no word of the loss
        await sock.send(b"anybody there?")
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)
        assert trio.current_time() == pytest.approx(7.002)

    world = run_pair(idle_server, client, PowerLoss(at_s=2.0, node="server", down_s=5.0))
    assert entries(world, "net.reset") == [(7.002, "client", {"peer": "server", "status": "no_connection"})]


def test_a_sender_to_a_machine_without_power_times_out() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        await sock.send(b"x")
        with pytest.raises(TimeoutError):
            await sock.recv(1)
        assert trio.current_time() == 13.0
        with pytest.raises(TimeoutError):
            await trio.socket.socket().connect(("server", PORT))
        assert trio.current_time() == 20.0

    run_pair(idle_server, client, PowerLoss(at_s=2.0, node="server", down_s=50.0), config=IMPATIENT)


def test_what_was_on_the_wire_when_the_power_went_still_arrives() -> None:
    got: list[tuple[float, bytes]] = []

    async def server(node: Node) -> None:
        async def talk(stream: trio.SocketStream) -> None:
            await trio.sleep_until(1.9995)
            await stream.send_all(b"last words")
            await trio.sleep_forever()

        await trio.serve_tcp(talk, PORT, host=node.address)

    async def client(node: Node) -> None:
        sock = await connected(node)
        with trio.move_on_at(20):
            while True:
                data = await sock.recv(100)
                got.append((now(), data))

    run_pair(server, client, PowerLoss(at_s=2.0, node="server", down_s=50.0))
    assert got == [(2.0005, b"last words")]


def test_what_a_closed_socket_had_left_to_send_dies_with_the_machine() -> None:
    sizes: list[int] = []

    async def server(node: Node) -> None:
        async def talk(stream: trio.SocketStream) -> None:
            await stream.send_all(bytes(120_000))

        await trio.serve_tcp(talk, PORT, host=node.address)

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(3)
        with trio.move_on_at(20):
            while True:
                sizes.append(len(await sock.recv(1_000_000)))

    run_pair(server, client, PowerLoss(at_s=2.0, node="server", down_s=5.0))
    assert sizes == [65_536]


def test_a_sender_that_waits_for_a_window_learns_of_the_reboot() -> None:
    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        with pytest.raises(trio.BrokenResourceError) as info:
            await stream.send_all(bytes(1_000_000))
        assert isinstance(info.value.__cause__, ConnectionResetError)
        assert trio.current_time() == pytest.approx(7.002)

    run_pair(idle_server, client, PowerLoss(at_s=2.0, node="server", down_s=5.0))


def test_a_reader_whose_peer_lost_its_power_waits_for_ever() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        with trio.move_on_at(5000) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught

    run_pair(idle_server, client, PowerLoss(at_s=2.0, node="server", down_s=5.0))


def test_a_stalled_link_does_not_count_as_unacknowledged() -> None:
    """A shut window is acknowledged all the time: TCP waits for it as long as it takes."""

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await trio.sleep_until(2)
        await stream.send_all(bytes(100_000))
        assert trio.current_time() == 51.5

    run_pair(idle_server, client, Stall(at_s=1.5, duration_s=50.0, a="client", b="server"), config=IMPATIENT)


def test_a_stall_holds_a_small_send_too() -> None:
    received: list[tuple[float, bytes]] = []

    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2)
        await sock.send(b"x")
        await trio.sleep_until(6)

    world = run_pair(collecting(received), client, Stall(at_s=1.5, duration_s=2.0, a="client", b="server"))
    assert received[0] == (3.501, b"x")
    assert entries(world, "net.held") == [(2.0, "client", {"peer": "server", "size": 1})]


def test_no_segment_is_longer_than_the_links_have_it() -> None:
    async def client(node: Node) -> None:
        sock = await connected(node)
        await trio.sleep_until(2)
        assert await sock.send(bytes(250)) == 250
        assert await sock.send(bytes(100)) == 100
        await trio.sleep_until(6)

    link = LinkConfig(segment_bytes=100)
    world = run_pair(
        collecting([]), client, Hold(at_s=1.5, duration_s=2.0, a="client", b="server"), config=WorldConfig(link=link)
    )
    assert [what["size"] for _, _, what in entries(world, "net.held")] == [100, 100, 50, 100]
