"""What UDP sockets do."""

from __future__ import annotations

import trio
from trio.socket import SHUT_RD, SHUT_WR, SOCK_DGRAM, SOL_SOCKET, SocketType

from tests.parity.arena import Arena, Seen, SocketBody, outcome, outcome_of, outcome_of_waiting, settle


async def bound(arena: Arena) -> SocketType:
    """A UDP socket of the serving end, on a port of its own."""
    sock = arena.server_socket(SOCK_DGRAM)
    await sock.bind((arena.host, 0))
    return sock


async def datagrams_are_received(arena: Arena) -> Seen:
    """sendto and recvfrom: whole, in order, with the sender's address; an empty datagram is one too."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    seen: Seen = [await outcome(client.sendto(data, server.getsockname())) for data in (b"one", b"", b"two")]
    for _ in range(3):
        data, address = await server.recvfrom(100)
        seen.append((data, address[1] == client.getsockname()[1]))
    return [*seen, client.getsockname()[0], await outcome(server.recv(1))]


async def datagrams_are_answered(arena: Arena) -> Seen:
    """An answer to the sender's address finds it."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    await client.sendto(b"question", server.getsockname())
    data, address = await server.recvfrom(100)
    seen: Seen = [data, await outcome(server.sendto(b"answer", address))]
    answer, source = await client.recvfrom(100)
    return [*seen, answer, source == server.getsockname()]


async def datagrams_are_cut_short(arena: Arena) -> Seen:
    """A datagram that is longer than asked for loses its rest; MSG_PEEK leaves it there; recv(0) asks nothing."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    await client.sendto(b"123456789", server.getsockname())
    await client.sendto(b"next", server.getsockname())
    await settle()
    into = bytearray(2)
    return [
        await outcome(server.recv(4, trio.socket.MSG_PEEK)),
        await outcome(server.recv(0)),
        await outcome(server.recv(-1)),
        await outcome(server.recv(4)),
        await outcome(server.recv_into(into)),
        bytes(into),
        await outcome(server.recv(4)),
    ]


async def datagrams_of_no_whole_number(arena: Arena) -> Seen:
    """A size or flags that are no whole number: TypeError at once, and the datagram stays."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    await client.sendto(b"123456789", server.getsockname())
    await settle()
    return [
        await outcome(server.recv(1.5)),  # type: ignore[arg-type]
        await outcome(server.recvfrom(1, 1.5)),  # type: ignore[arg-type]
        await outcome(server.recvfrom_into(bytearray(3), 1.5)),  # type: ignore[arg-type]
        await outcome(server.recv(100)),
    ]


async def datagrams_over_a_connected_socket(arena: Arena) -> Seen:
    """connect() sets where send goes, and drops what others send."""
    server, other, client = await bound(arena), await bound(arena), arena.socket(SOCK_DGRAM)
    seen: Seen = [await outcome(client.send(b"x")), outcome_of(client.getpeername)]
    seen.append(await outcome(client.connect(server.getsockname())))
    seen += [
        client.getpeername() == server.getsockname(),
        await outcome(client.send(b"x")),
        await outcome(server.recv(9)),
    ]
    await server.sendto(b"from the peer", client.getsockname())
    await other.sendto(b"from another", client.getsockname())
    await settle()
    seen += [await outcome(client.recv(100)), await outcome(client.recv(100))]
    seen.append(await outcome(client.sendto(b"elsewhere", other.getsockname())))
    seen.append(await outcome(other.recv(100)))
    return [*seen, await outcome(client.connect(other.getsockname())), client.getpeername() == other.getsockname()]


async def datagrams_that_nobody_takes(arena: Arena) -> Seen:
    """A connected sender learns by ECONNREFUSED, once each time; another one does not."""
    server, client, loose = await bound(arena), arena.socket(SOCK_DGRAM), arena.socket(SOCK_DGRAM)
    address = server.getsockname()
    server.close()
    await client.connect(address)
    seen: Seen = [await outcome(client.send(b"x"))]
    await settle()
    seen += [client.is_readable(), await outcome(client.send(b"x")), await outcome(client.recv(1))]
    await client.send(b"x")
    await settle()
    seen += [await outcome(client.recv(1)), client.getsockopt(SOL_SOCKET, trio.socket.SO_ERROR)]
    await client.send(b"x")
    await settle()
    seen += [client.getsockopt(SOL_SOCKET, trio.socket.SO_ERROR) for _ in range(2)]
    return [*seen, await outcome(loose.sendto(b"x", address)), await outcome(loose.recv(1))]


async def datagrams_too_long(arena: Arena) -> Seen:
    """65,507 bytes go; one more is EMSGSIZE."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    longest = await outcome(client.sendto(bytes(65_507), server.getsockname()))
    return [longest, await outcome(client.sendto(bytes(65_508), server.getsockname())), len(await server.recv(70_000))]


async def datagrams_find_a_full_buffer(arena: Arena) -> Seen:
    """What finds the receive buffer full is dropped, and nobody is told."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    server.setsockopt(SOL_SOCKET, trio.socket.SO_RCVBUF, 20_000)
    sent = [await outcome(client.sendto(bytes(1000), server.getsockname())) for _ in range(200)]
    await settle()
    received = 0
    while await outcome(server.recv(2000)) != "waits":
        received += 1
    again = await outcome(client.sendto(b"room again", server.getsockname()))
    return [set(sent), 0 < received < 200, again, await outcome(server.recv(100))]


async def datagram_sockets_do_not_listen(arena: Arena) -> Seen:
    """listen and accept: EOPNOTSUPP; shutdown without connect: ENOTCONN."""
    server = await bound(arena)
    return [
        outcome_of(server.listen),
        await outcome(server.accept()),
        outcome_of(server.shutdown, SHUT_WR),
        server.type,
        server.proto,
        server.getsockopt(SOL_SOCKET, trio.socket.SO_TYPE),
        server.getsockopt(SOL_SOCKET, trio.socket.SO_PROTOCOL),
        server.getsockopt(SOL_SOCKET, trio.socket.SO_ACCEPTCONN),
    ]


async def datagram_sockets_shut_down(arena: Arena) -> Seen:
    """A connected socket: SHUT_WR makes sends EPIPE, SHUT_RD changes nothing."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    await client.connect(server.getsockname())
    seen: Seen = [outcome_of(client.shutdown, SHUT_WR), await outcome(client.send(b"x"))]
    seen += [outcome_of(client.shutdown, SHUT_RD), await outcome(client.recv(1))]
    seen.append(await outcome(server.sendto(b"x", client.getsockname())))
    return [*seen, await outcome(client.recv(1)), outcome_of(client.shutdown, 7)]


async def datagram_ports(arena: Arena) -> Seen:
    """Bind in use, bind twice; UDP's ports are not TCP's."""
    first, second, stream = await bound(arena), arena.server_socket(SOCK_DGRAM), arena.server_socket()
    address = first.getsockname()
    seen: Seen = [await outcome(second.bind(address)), await outcome(first.bind(address))]
    return [*seen, await outcome(stream.bind(address)), await outcome(second.sendto(b"x", (arena.host, 0)))]


async def datagram_sockets_share_a_port(arena: Arena) -> Seen:
    """SO_REUSEADDR on both: the last one bound receives."""
    first, second, client = (arena.server_socket(SOCK_DGRAM) for _ in range(3))
    for sock in (first, second):
        sock.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
    await first.bind((arena.host, 0))
    await second.bind(first.getsockname())
    await client.sendto(b"x", first.getsockname())
    await settle()
    return [await outcome(first.recv(1)), await outcome(second.recv(1))]


async def datagrams_go_to_the_closest_socket(arena: Arena) -> Seen:
    """Of sockets that share a port: the one connected to the sender, then one of that very address, then any."""
    known, stranger = arena.socket(SOCK_DGRAM), arena.socket(SOCK_DGRAM)
    connected, particular, anywhere = (arena.server_socket(SOCK_DGRAM) for _ in range(3))
    for sock in (connected, particular, anywhere):
        sock.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
    await connected.bind((arena.host, 0))
    await particular.bind(connected.getsockname())
    await anywhere.bind(("", connected.getsockname()[1]))
    await known.connect(connected.getsockname())
    await connected.connect(known.getsockname())
    await known.send(b"from the peer")
    await stranger.sendto(b"from a stranger", connected.getsockname())
    await settle()
    return [await outcome(sock.recv(100)) for sock in (connected, particular, anywhere)]


async def datagram_socket_is_closed_and_cancelled(arena: Arena) -> Seen:
    """Cancelled, recv has taken nothing; closing wakes it; two receivers are refused; calls on a closed one: EBADF."""
    server, client = await bound(arena), arena.socket(SOCK_DGRAM)
    address = server.getsockname()
    seen: Seen = [await outcome(server.recv(10))]
    await client.sendto(b"kept", address)
    seen.append(await outcome(server.recv(10)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.recv, 1)
        await settle()
        seen.append(await outcome(server.recv(1)))
        nursery.cancel_scope.cancel()
    seen.append(await outcome_of_waiting(server.recv(1), server.close))
    return [*seen, await outcome(server.recv(1)), await outcome(server.sendto(b"x", address)), server.fileno()]


CASES: tuple[SocketBody, ...] = (
    datagrams_are_received,
    datagrams_are_answered,
    datagrams_are_cut_short,
    datagrams_of_no_whole_number,
    datagrams_over_a_connected_socket,
    datagrams_that_nobody_takes,
    datagrams_too_long,
    datagrams_find_a_full_buffer,
    datagram_sockets_do_not_listen,
    datagram_sockets_shut_down,
    datagram_ports,
    datagram_sockets_share_a_port,
    datagrams_go_to_the_closest_socket,
    datagram_socket_is_closed_and_cancelled,
)
