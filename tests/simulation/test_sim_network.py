"""The simulated TCP: what an unmodified Trio program sees of it."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio

from sim_net import Delay, LinkConfig, Node, NodeFailed, Pause, Schedule, World, WorldConfig, run
from sim_net.net.stream_socket import StreamSocket
from tests.worlds.socket_pair import PORT, run_pair

Handler = Callable[[trio.SocketStream], Awaitable[None]]
STEADY = LinkConfig(latency_min_s=0.001, latency_max_s=0.001)


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


def serving(handler: Handler) -> Callable[[Node], Awaitable[None]]:
    async def main(node: Node) -> None:
        await trio.serve_tcp(handler, PORT, host=node.address)

    return main


def entries(world: World, kind: str) -> list[tuple[str, dict[str, object]]]:
    return [(entry.node, dict(entry.attributes)) for entry in world.journal.entries if entry.kind == kind]


async def listening_socket(node: Node, backlog: int = 10) -> trio.socket.SocketType:
    listener = trio.socket.socket()
    await listener.bind((node.address, PORT))
    listener.listen(backlog)
    return listener


def test_echo_over_trios_own_streams() -> None:
    payload = bytes(range(256)) * 2000
    received = bytearray()

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        async with stream, trio.open_nursery() as nursery:

            async def send() -> None:
                await stream.send_all(payload)
                await stream.send_eof()

            nursery.start_soon(send)
            async for data in stream:
                received.extend(data)

    world = run_pair(serving(echo), client, config=WorldConfig())
    assert bytes(received) == payload
    assert entries(world, "net.connect") == [("client", {"peer": "server", "status": "ok"})]
    assert world.now_s < 2


def test_raw_sockets_with_recv_into_and_sendmsg() -> None:
    got = bytearray(64)

    async def server(node: Node) -> None:
        listener = await listening_socket(node)
        sock, address = await listener.accept()
        assert address[0] == "10.0.0.2"
        assert sock.getpeername() == address
        assert sock.getsockname() == (node.address, PORT)
        size = 0
        while count := await sock.recv_into(memoryview(got)[size:]):
            size += count
        del got[size:]
        sock.close()

    async def client(node: Node) -> None:
        sock = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_STREAM)
        sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        assert sock.getsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY) == 1
        await sock.connect(("10.0.0.1", PORT))
        assert await sock.sendmsg([b"head", bytearray(b"-"), memoryview(b"body")]) == 9
        sock.shutdown(trio.socket.SHUT_WR)
        assert await sock.recv(10) == b""
        sock.close()

    run_pair(server, client, config=WorldConfig())
    assert got == b"head-body"


def test_sendmsg_takes_only_what_there_is_room_for() -> None:
    sent = []

    async def server(node: Node) -> None:
        listener = await listening_socket(node)
        sock, _ = await listener.accept()
        await trio.sleep(1)
        received = bytearray()
        while data := await sock.recv(1000):
            received += data
        assert received == b"a" * 6 + b"b" * 4 + b"b" * 2

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 10)
        await sock.connect(("server", PORT))
        sent.append(await sock.sendmsg([b"a" * 6, b"b" * 6]))
        sent.append(await sock.sendmsg([b"b" * 2]))

    world = run_pair(server, client, config=WorldConfig(receive_buffer_bytes=5))
    assert sent == [10, 2]
    assert entries(world, "net.partial_write") == [("client", {"peer": "server", "size": 10})]


def test_try_sendmsg_takes_what_there_is_room_for_without_a_checkpoint() -> None:
    received = bytearray()

    async def handler(stream: trio.SocketStream) -> None:
        async for data in stream:
            received.extend(data)

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        assert isinstance(stream.socket, StreamSocket)
        taken = 0
        while some := stream.socket.try_sendmsg([b"ab", memoryview(b"c" * 10_000)]):
            taken += some
        await trio.sleep(1)
        assert len(received) == taken > 10_002
        assert received.startswith(b"abccc")
        stream.socket.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            stream.socket.try_sendmsg([b"ab"])

    run_pair(serving(handler), client, config=WorldConfig())


def test_refused_without_a_listener() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        with pytest.raises(ConnectionRefusedError):
            await sock.connect(("10.0.0.1", PORT))
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("server", PORT + 1)

    world = run_pair(lambda node: trio.sleep_forever(), client, config=WorldConfig(link=STEADY))
    assert entries(world, "net.connect") == [("client", {"peer": "server", "status": "refused"})] * 2
    assert world.now_s == pytest.approx(1.004)


def test_a_black_hole_times_out() -> None:
    async def client(node: Node) -> None:
        with pytest.raises(TimeoutError):
            await trio.socket.socket().connect(("10.9.9.9", PORT))

    world = run_pair(lambda node: trio.sleep_forever(), client, config=WorldConfig())
    assert entries(world, "net.connect") == [("client", {"peer": "10.9.9.9", "status": "timed_out"})]
    assert world.now_s == pytest.approx(8.0)


def test_an_unknown_name_is_an_address_error() -> None:
    async def client(node: Node) -> None:
        with pytest.raises(OSError, match="no simulated node is called 'nowhere'") as info:
            await trio.open_tcp_stream("nowhere", PORT)
        assert info.value.errno == trio.socket.EAI_NONAME

    run_pair(serving(echo), client, config=WorldConfig())


def test_half_close_lets_the_answer_through() -> None:
    async def sum_up(stream: trio.SocketStream) -> None:
        total = 0
        async for data in stream:
            total += len(data)
        await stream.send_all(str(total).encode())

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(b"12345")
        await stream.send_eof()
        assert await stream.receive_some() == b"5"
        assert await stream.receive_some() == b""

    run_pair(serving(sum_up), client, config=WorldConfig())


def test_closing_with_unread_data_resets_the_peer() -> None:
    async def rude(stream: trio.SocketStream) -> None:
        await trio.sleep(1)

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        await sock.send(b"never read")
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)
        assert await sock.recv(1) == b""
        with pytest.raises(BrokenPipeError):
            await sock.send(b"x")

    world = run_pair(serving(rude), client, config=WorldConfig())
    assert entries(world, "net.reset") == [("client", {"peer": "server", "status": "unread_data"})]


def test_sending_to_a_closed_peer_breaks_after_a_round_trip() -> None:
    async def leave(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        assert await sock.recv(1) == b""
        assert await sock.send(b"too late") == 8
        await trio.sleep(0.01)
        assert await sock.recv(1) == b""
        for _ in range(2):
            with pytest.raises(BrokenPipeError):
                await sock.send(b"x")
        with pytest.raises(OSError, match="not connected"):
            sock.getpeername()

    world = run_pair(serving(leave), client, config=WorldConfig())
    assert entries(world, "net.reset") == [("client", {"peer": "server", "status": "no_connection"})]


def test_what_arrived_before_a_reset_is_still_read() -> None:
    async def answer_and_slam(stream: trio.SocketStream) -> None:
        await stream.send_all(b"answer")
        await trio.sleep(1)

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        await sock.send(b"unread")
        await trio.sleep(2)
        assert await sock.recv(100) == b"answer"
        with pytest.raises(ConnectionResetError):
            await sock.recv(100)

    run_pair(serving(answer_and_slam), client, config=WorldConfig())


def test_bind_errors() -> None:
    async def client(node: Node) -> None:
        first = trio.socket.socket()
        await first.bind(("", PORT))
        second = trio.socket.socket()
        with pytest.raises(OSError, match=r".") as info:
            await second.bind((node.address, PORT))
        assert info.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match=r".") as info:
            await second.bind(("10.0.0.1", PORT))
        assert info.value.errno == errno.EADDRNOTAVAIL
        first.close()
        await second.bind((node.address, PORT))
        third = trio.socket.socket()
        await third.bind((node.address, 0))
        assert third.getsockname()[1] >= 49152

    run_pair(serving(echo), client, config=WorldConfig())


def test_errors_of_sockets_in_the_wrong_state() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        with pytest.raises(OSError, match="not connected"):
            await sock.recv(1)
        with pytest.raises(BrokenPipeError):
            await sock.send(b"x")
        with pytest.raises(OSError, match="not connected"):
            sock.getpeername()
        with pytest.raises(OSError, match="not connected"):
            sock.shutdown(trio.socket.SHUT_WR)
        with pytest.raises(OSError, match=r".") as info:
            await sock.accept()
        assert info.value.errno == errno.EINVAL
        sock.close()
        sock.close()
        assert sock.fileno() == -1
        with pytest.raises(OSError, match=r".") as info:
            await sock.recv(1)
        assert info.value.errno == errno.EBADF

    run_pair(serving(echo), client, config=WorldConfig())


def test_closing_wakes_the_reader_and_two_readers_are_refused() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        assert sock.fileno() >= 1_000_000_000
        assert hash(sock) == sock.fileno() - 1_000_000_000  # not its address: Trio keeps sets of sockets

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await sock.recv(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(0.1)
            with pytest.raises(trio.BusyResourceError):
                await sock.recv(1)
            sock.close()

    run_pair(serving(echo), client, config=WorldConfig())


def test_a_cancelled_connect_closes_its_socket() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        with trio.move_on_after(0.5) as scope:
            await sock.connect(("10.9.9.9", PORT))
        assert scope.cancelled_caught
        assert sock.fileno() == -1

    run_pair(serving(echo), client, config=WorldConfig())


def test_a_full_backlog_delays_a_connection() -> None:
    async def server(node: Node) -> None:
        listener = await listening_socket(node, backlog=0)
        await trio.sleep(3.5)
        for _ in range(2):
            sock, _ = await listener.accept()
            sock.close()

    times = []

    async def client(node: Node) -> None:
        for _ in range(2):
            await trio.socket.socket().connect(("server", PORT))
            times.append(trio.current_time())

    run_pair(server, client, config=WorldConfig(link=STEADY))
    assert times[0] == pytest.approx(1.002)
    assert times[1] == pytest.approx(4.004)


def test_handshakes_at_once_do_not_overfill_a_backlog() -> None:
    """Who comes too late thinks it is connected: the listener ignores it until there is room, and loses no data."""
    accepted: list[tuple[float, list[int]]] = []

    async def server(node: Node) -> None:
        listener = await listening_socket(node, backlog=0)
        await trio.sleep_until(2)
        for _ in range(3):
            sock, _ = await listener.accept()
            assert not listener.is_readable()
            time = round(trio.current_time(), 3)
            sizes = []
            for _ in range(3):
                await trio.sleep(0.1)
                sizes.append(len(await sock.recv(100)))
            accepted.append((time, sizes))

    async def client(node: Node) -> None:
        async def connect() -> None:
            sock = trio.socket.socket()
            await sock.connect(("server", PORT))
            assert trio.current_time() == pytest.approx(1.002)
            await trio.SocketStream(sock).send_all(bytes(25))
            await trio.sleep(9)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(connect)

    config = WorldConfig(link=STEADY, send_buffer_bytes=30, receive_buffer_bytes=10)
    run_pair(server, client, config=config)
    assert accepted == [(2.0, [10, 10, 5]), (2.3, [10, 10, 5]), (4.007, [10, 10, 5])]


def test_a_slow_reader_holds_the_writer_back() -> None:
    async def server(node: Node) -> None:
        listener = await listening_socket(node)
        sock, _ = await listener.accept()
        await trio.sleep(10)
        while await sock.recv(1 << 20):
            pass

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(bytes(2 * 65_536))
        assert trio.current_time() < 2
        await stream.send_all(b"one more")
        assert trio.current_time() > 10

    world = run_pair(server, client, config=WorldConfig())
    assert ("client", {"peer": "server"}) in entries(world, "net.stall")


def test_small_sends_fill_both_buffers_and_no_more() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        sent = 0
        with trio.move_on_after(1):
            while True:
                sent += await sock.send(bytes(7))
        assert sent == 200 + 300

    run_pair(serving(silent), client, config=WorldConfig(send_buffer_bytes=200, receive_buffer_bytes=300))


def test_small_reads_do_not_make_small_windows() -> None:
    """Silly windows: a reader of single bytes must not turn a bulk transfer into single-byte segments."""

    async def server(node: Node) -> None:
        listener = await listening_socket(node)
        sock, _ = await listener.accept()
        while await sock.recv(7):
            pass

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(bytes(200_000))

    config = WorldConfig(send_buffer_bytes=8192, receive_buffer_bytes=8192)
    world = run_pair(server, client, config=config)
    assert world.events < 400


def test_a_waiting_writer_is_woken_for_a_third_of_its_buffer() -> None:
    """The other end of silly windows: a writer must not be woken for every few bytes that leave its buffer."""

    async def server(node: Node) -> None:
        listener = await listening_socket(node)
        sock, _ = await listener.accept()
        while await sock.recv(100_000):
            pass

    async def client(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(bytes(400_000))

    world = run_pair(server, client, config=WorldConfig(send_buffer_bytes=60_000, receive_buffer_bytes=1000))
    assert 10 < len(entries(world, "net.stall")) < 20


def test_loopback_reaches_the_node_itself() -> None:
    async def client(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(PORT, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, echo, listeners)
            for host in ("127.0.0.1", "localhost"):
                stream = await trio.open_tcp_stream(host, PORT)
                await stream.send_all(b"self")
                assert await stream.receive_some() == b"self"
            nursery.cancel_scope.cancel()

    run_pair(serving(echo), client, config=WorldConfig())


@pytest.mark.parametrize("kind", [trio.socket.SOCK_STREAM, trio.socket.SOCK_DGRAM])
def test_a_socket_bound_to_loopback_reaches_no_other_node(kind: int) -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket(trio.socket.AF_INET, kind)
        await sock.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="Invalid argument") as raised:
            await sock.connect(("server", PORT))
        assert raised.value.errno == errno.EINVAL
        own = trio.socket.socket()
        await own.bind((node.address, PORT))
        own.listen()
        await sock.connect((node.address, PORT))
        assert sock.getsockname()[0] == "127.0.0.1"

    run_pair(serving(echo), client, config=WorldConfig())


def test_options_size_the_buffers_and_are_answered() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
        assert sock.getsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF) == 8192
        assert sock.getsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_ACCEPTCONN) == 0
        assert sock.getsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_ERROR) == 0

    run_pair(serving(echo), client, config=WorldConfig())


def test_only_ipv4_and_only_tcp_and_udp() -> None:
    async def client(node: Node) -> None:
        with pytest.raises(OSError, match="IPv4 only"):
            trio.socket.socket(trio.socket.AF_INET6)
        with pytest.raises(OSError, match="TCP and UDP only"):
            trio.socket.socket(type=trio.socket.SOCK_RAW)
        with pytest.raises(OSError, match="TCP and UDP only"):
            trio.socket.socket(type=trio.socket.SOCK_DGRAM, proto=trio.socket.IPPROTO_TCP)

    run_pair(serving(echo), client, config=WorldConfig())


def test_a_socket_needs_a_node() -> None:
    async def main(world: World) -> None:
        world.node("a")
        with pytest.raises(RuntimeError, match="no simulated node"):
            trio.socket.socket()

    World(1).run(main)


def test_many_clients_get_their_own_answers() -> None:
    async def client(node: Node) -> None:
        async def ask(number: int) -> None:
            stream = await trio.open_tcp_stream("server", PORT)
            async with stream:
                for turn in range(5):
                    text = f"{number}/{turn}".encode()
                    await stream.send_all(text)
                    assert await stream.receive_some() == text

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
        await trio.sleep(1)  # the last ends are under way

    world = run_pair(serving(echo), client, config=WorldConfig())
    assert not world.network.link("client", "server").endpoints
    assert not world.network.link("server", "client").endpoints


def test_a_failing_program_is_named() -> None:
    async def client(node: Node) -> None:
        raise LookupError("broken on purpose")

    with pytest.raises(NodeFailed, match=r"node client \(incarnation 1\).*LookupError: broken on purpose") as info:
        run_pair(serving(echo), client, config=WorldConfig())
    assert isinstance(info.value.__cause__, LookupError)


def test_a_connection_that_is_made_after_its_attempt_was_given_up_carries_nothing() -> None:
    """The answer comes while the process is paused: after the time-out, and before the process learns of that."""
    outcomes: list[object] = []
    heard: list[object] = []

    async def server(node: Node) -> None:
        accepted, _ = await (await listening_socket(node)).accept()
        try:
            heard.append(await accepted.recv(10))
        except OSError as error:
            heard.append(error.errno)

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: sock.connect(("server", PORT)),
            lambda: sock.send(b"too late"),
            lambda: sock.recv(10),
        ]
        for call in calls:
            try:
                outcomes.append(await call())
            except OSError as error:
                outcomes.append(error.errno)

    async def main(world: World) -> None:
        world.nodes["server"].boot(server)
        await trio.sleep(0.1)
        world.nodes["client"].boot(client)
        await world.nodes["client"].wait_down()
        await trio.sleep(1)

    schedule = Schedule((Delay(0.0, 10.0, "server", "client", 1.5, two_way=False), Pause(0.5, 3.0, "client")))
    config = WorldConfig(link=STEADY, connect_timeout_s=1.0)
    run(main, seed=1, config=config, nodes=("server", "client"), schedule=schedule)
    assert outcomes == [errno.ETIMEDOUT, errno.ENOTCONN, errno.ENOTCONN]
    assert heard == [errno.ECONNRESET]


def test_an_end_that_arrives_before_a_full_backlog_has_room_counts() -> None:
    """The client has sent and ended all before the server's backlog has room: the server reads it, then the end."""
    heard: list[bytes | str] = []

    async def server(node: Node) -> None:
        listener = await listening_socket(node, backlog=0)
        await trio.sleep(0.5)
        for _ in range(2):
            accepted, _ = await listener.accept()
            heard.append(await accepted.recv(10))
            heard.append(await accepted.recv(10))
            accepted.shutdown(trio.socket.SHUT_WR)
            try:
                accepted.getpeername()
            except OSError as error:
                heard.append(errno.errorcode[error.errno or 0])
            await trio.sleep(0.1)
            try:
                accepted.getpeername()
            except OSError as error:
                heard.append(errno.errorcode[error.errno or 0])

    async def client(node: Node) -> None:
        async def one(name: bytes) -> None:
            with trio.socket.socket() as sock:
                await sock.connect(("server", PORT))
                await sock.send(name)
                sock.shutdown(trio.socket.SHUT_WR)
                assert await sock.recv(10) == b""

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, b"one")
            nursery.start_soon(one, b"two")

    async def main(world: World) -> None:
        world.nodes["server"].boot(server)
        await trio.sleep(0.1)
        world.nodes["client"].boot(client)
        await world.nodes["client"].wait_down()
        await world.nodes["server"].wait_down()

    run(main, seed=1, config=WorldConfig(link=STEADY), nodes=("server", "client"))
    assert heard == [b"one", b"", "ENOTCONN", b"two", b"", "ENOTCONN"]
