"""What goes over a TCP connection: send, receive, full buffers, and who waits."""

from __future__ import annotations

import trio
from trio.socket import SHUT_WR

from tests.parity.arena import (
    Arena,
    Seen,
    SocketBody,
    drain,
    fill,
    outcome,
    outcome_of,
    reset_by,
    settle,
)


async def order_is_kept(arena: Arena) -> Seen:
    """Bytes arrive whole and in order, however they are cut."""
    client, server = await arena.pair()
    payload = bytes(index * 7 % 251 for index in range(300_000))
    received = bytearray()

    async def send() -> None:
        rest = memoryview(payload)
        size = 1
        while rest:
            sent = await client.send(rest[:size])
            rest = rest[sent:]
            size = size * 3 % 65_521
        client.shutdown(SHUT_WR)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while data := await server.recv(10_000):
            received += data
    return [received == payload]


async def partial_receive(arena: Arena) -> Seen:
    """recv takes what there is, up to what was asked; the rest stays."""
    client, server = await arena.pair()
    await client.send(b"0123456789")
    await settle()
    into = bytearray(b"........")
    return [
        await outcome(server.recv(3)),
        await outcome(server.recv_into(into, 2)),
        bytes(into),
        await outcome(server.recv_into(memoryview(into)[4:6])),
        bytes(into),
        await outcome(server.recv(100)),
        await outcome(server.recv(100)),
    ]


async def receive_nothing(arena: Arena) -> Seen:
    """recv(0) gives b"" at once, with data and without; recv_into an empty buffer too; a negative size is refused."""
    client, server = await arena.pair()
    seen: Seen = [await outcome(server.recv(0)), await outcome(server.recv_into(bytearray()))]
    await client.send(b"x")
    await settle()
    seen += [await outcome(server.recv(0)), await outcome(server.recv(-1)), await outcome(server.recv(1))]
    return seen


async def receive_no_whole_number(arena: Arena) -> Seen:
    """A size or flags that are no whole number: TypeError at once, on a closed socket too; so with listen()."""
    client, server = await arena.pair()
    closed = arena.socket()
    closed.close()
    seen: Seen = []
    for sock in (server, closed):
        seen += [
            await outcome(sock.recv(1.5)),  # type: ignore[arg-type]
            await outcome(sock.recv(1, 1.5)),  # type: ignore[arg-type]
            await outcome(sock.recvfrom(1.5)),  # type: ignore[arg-type]
            await outcome(sock.recv_into(bytearray(3), 1.5)),  # type: ignore[arg-type]
            await outcome(sock.recv_into(bytearray(3), 0.0)),  # type: ignore[arg-type]
            outcome_of(sock.listen, 1.5),
        ]
    await client.send(b"abc")
    await settle()
    return [*seen, await outcome(server.recv(True)), await outcome(server.recv(10))]


async def receive_into_what_cannot_be_written(arena: Arena) -> Seen:
    """Wrong buffers and sizes for recv_into; nothing is lost by them."""
    client, server = await arena.pair()
    await client.send(b"abc")
    await settle()
    return [
        await outcome(server.recv_into(b"12345")),
        await outcome(server.recv_into(bytearray(2), 3)),
        await outcome(server.recv_into(bytearray(2), -1)),
        await outcome(server.recv(10)),
    ]


async def receive_with_peek(arena: Arena) -> Seen:
    """MSG_PEEK leaves the bytes where they are."""
    client, server = await arena.pair()
    await client.send(b"abc")
    await settle()
    into = bytearray(2)
    return [
        await outcome(server.recv(2, trio.socket.MSG_PEEK)),
        await outcome(server.recv_into(into, 2, trio.socket.MSG_PEEK)),
        bytes(into),
        await outcome(server.recv(10)),
    ]


async def receive_all_or_wait(arena: Arena) -> Seen:
    """recvfrom on a stream gives the bytes and no address."""
    client, server = await arena.pair()
    await client.send(b"abc")
    await settle()
    into = bytearray(1)
    return [await outcome(server.recvfrom(2)), await outcome(server.recvfrom_into(into)), bytes(into)]


async def send_nothing(arena: Arena) -> Seen:
    """send(b"") is 0, and nothing arrives."""
    client, server = await arena.pair()
    return [
        await outcome(client.send(b"")),
        await outcome(client.sendmsg([])),
        await outcome(client.sendmsg([b"", b""])),
        await outcome(server.recv(1)),
    ]


async def send_from_many_buffers(arena: Arena) -> Seen:
    """sendmsg sends its buffers as one, of any kind of bytes."""
    client, server = await arena.pair()
    sent = await outcome(client.sendmsg([b"a", b"", bytearray(b"bc"), memoryview(b"-def-")[1:4], b""]))
    many = await outcome(client.sendmsg([b"x"] * 1024))
    too_many = await outcome(client.sendmsg([b"x"] * 1025))
    await settle()
    return [sent, await outcome(server.recv(6)), many, too_many, await drain(server, 5000)]


async def send_what_is_no_bytes(arena: Arena) -> Seen:
    """Text and wide items: an error, or the bytes of the items."""
    client, server = await arena.pair()
    wide = memoryview(b"12345678").cast("I")
    seen: Seen = [await outcome(client.send("text")), await outcome(client.send(wide))]  # type: ignore[arg-type]
    await settle()
    return [*seen, await outcome(server.recv(100))]


async def full_buffers(arena: Arena) -> Seen:
    """A sender whose peer does not read waits in the end; cancelled, it has sent nothing; then all arrives."""
    client, server = await arena.pair(buffers_bytes=20_000)
    taken = await fill(client)
    seen: Seen = [taken > 20_000, await outcome(client.send(b"x")), await outcome(client.sendmsg([b"x", b"y"]))]
    return [*seen, await drain(server, taken + 1) == taken, await outcome(client.send(b"x"))]


async def partial_send(arena: Arena) -> Seen:
    """A send of more than there is room for takes a part."""
    client, server = await arena.pair(buffers_bytes=20_000)
    offered = 50_000_000
    sent = await outcome(client.send(bytes(offered)))
    assert isinstance(sent, int)
    return [0 < sent < offered, await drain(server, sent + 1) == sent]


async def zero_window_opens(arena: Arena) -> Seen:
    """Who waits to send goes on when the peer has read."""
    client, server = await arena.pair(buffers_bytes=20_000)
    taken = await fill(client)
    seen: Seen = []

    async def read() -> None:
        await settle()
        seen.append(await drain(server, taken) > 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        seen.append(await outcome(client.send(b"x"), within_s=5.0))
    return seen


async def wait_writable_waits_for_room(arena: Arena) -> Seen:
    """wait_writable: at once with room, otherwise when there is."""
    client, server = await arena.pair(buffers_bytes=20_000)
    seen: Seen = [await outcome(client.wait_writable())]
    taken = await fill(client)
    seen.append(await outcome(client.wait_writable()))
    await drain(server, taken)
    return [*seen, await outcome(client.wait_writable())]


async def whether_readable(arena: Arena) -> Seen:
    """is_readable: data, the end, a reset, a connection to accept."""
    listener = await arena.listener()
    client, other = arena.socket(), arena.socket()
    seen: Seen = [listener.is_readable()]
    await client.connect(listener.getsockname())
    await other.connect(listener.getsockname())
    await settle()
    seen.append(listener.is_readable())
    server = await arena.accept(listener)
    server_of_other = await arena.accept(listener)
    seen += [listener.is_readable(), server.is_readable()]
    await client.send(b"x")
    await settle()
    seen.append(server.is_readable())
    await server.recv(1)
    seen.append(server.is_readable())
    client.shutdown(SHUT_WR)
    await settle()
    seen += [server.is_readable(), client.is_readable()]
    reset_by(server_of_other)
    await settle()
    return [*seen, other.is_readable()]


async def streams_on_sockets(arena: Arena) -> Seen:
    """trio.SocketStream over the socket: send_all, receive_some, send_eof, aclose."""
    one, two = await arena.pair()
    client, server = trio.SocketStream(one), trio.SocketStream(two)
    await client.send_all(b"x" * 1000)
    await client.send_eof()
    received = 0
    async for data in server:
        received += len(data)
    await server.send_all(b"answer")
    await server.aclose()
    seen: Seen = [received, await outcome(client.receive_some()), await outcome(client.receive_some())]
    await client.aclose()
    return [*seen, await outcome(client.receive_some()), await outcome(client.send_all(b"x"))]


CASES: tuple[SocketBody, ...] = (
    order_is_kept,
    partial_receive,
    receive_nothing,
    receive_no_whole_number,
    receive_into_what_cannot_be_written,
    receive_with_peek,
    receive_all_or_wait,
    send_nothing,
    send_from_many_buffers,
    send_what_is_no_bytes,
    full_buffers,
    partial_send,
    zero_window_opens,
    wait_writable_waits_for_room,
    whether_readable,
    streams_on_sockets,
)
