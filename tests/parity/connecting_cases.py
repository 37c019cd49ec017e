"""How TCP sockets come about: bind, listen, connect, accept."""

from __future__ import annotations

import trio
from trio.socket import SHUT_WR, SOL_SOCKET, SocketType

from tests.parity.arena import FOREIGN, RESET_ON_CLOSE, Arena, Seen, SocketBody, outcome, outcome_of, settle


async def knock(arena: Arena, listener: SocketType) -> object:
    """What a connection attempt comes to."""
    seen = await outcome(arena.socket().connect(listener.getsockname()))
    await settle()
    return seen


# --- connecting -------------------------------------------------------------------------------------------------------


async def connect_refused(arena: Arena) -> Seen:
    """Nobody listens: ECONNREFUSED, and the same socket may try again."""
    listener = await arena.listener()
    address = listener.getsockname()
    listener.close()
    sock = arena.socket()
    return [await outcome(sock.connect(address)), await outcome(sock.connect(address)), sock.fileno() >= 0]


async def connect_refused_by_a_bound_socket(arena: Arena) -> Seen:
    """Bound, but not listening, is refused too."""
    bound = arena.server_socket()
    await bound.bind((arena.host, 0))
    return [await outcome(arena.socket().connect(bound.getsockname()))]


async def connect_after_refusal(arena: Arena) -> Seen:
    """After a refusal the socket connects to who listens by then."""
    bound = arena.server_socket()
    await bound.bind((arena.host, 0))
    sock = arena.socket()
    refused = await outcome(sock.connect(bound.getsockname()))
    bound.listen()
    return [refused, *[await outcome(sock.connect(bound.getsockname())) for _ in range(4)]]


async def calls_after_refusal(arena: Arena) -> Seen:
    """What a refused socket does: it has no peer, reads end, sends are EPIPE."""
    bound = arena.server_socket()
    await bound.bind((arena.host, 0))
    sock = arena.socket()
    await outcome(sock.connect(bound.getsockname()))
    return [
        outcome_of(sock.getpeername),
        sock.getsockopt(SOL_SOCKET, trio.socket.SO_ERROR),
        await outcome(sock.recv(1)),
        await outcome(sock.send(b"x")),
        outcome_of(sock.shutdown, SHUT_WR),
        outcome_of(sock.listen),
        sock.is_readable(),
    ]


async def connect_after_reset(arena: Arena) -> Seen:
    """A connection that was reset: connect() tells so, once; the next one connects again."""
    client, server = await arena.pair()
    listener = await arena.listener()
    server.setsockopt(SOL_SOCKET, trio.socket.SO_LINGER, RESET_ON_CLOSE)
    server.close()
    await settle()
    return [await outcome(client.connect(listener.getsockname())) for _ in range(4)]


async def connect_after_both_ends(arena: Arena) -> Seen:
    """A connection that both have ended: the same, with ECONNABORTED."""
    client, server = await arena.pair()
    listener = await arena.listener()
    client.shutdown(SHUT_WR)
    server.shutdown(SHUT_WR)
    await settle()
    return [await outcome(client.connect(listener.getsockname())) for _ in range(4)]


async def connect_to_any_address(arena: Arena) -> Seen:
    """Connecting to the wildcard address reaches this very machine."""
    listener = arena.socket()
    await listener.bind(("", 0))
    listener.listen()
    client = arena.socket()
    seen = await outcome(client.connect(("", listener.getsockname()[1])))
    return [seen, client.getpeername()[0], client.getsockname()[0]]


async def connect_to_oneself(arena: Arena) -> Seen:
    """A socket that connects to its own address."""
    sock = arena.server_socket()
    await sock.bind((arena.host, 0))
    seen: Seen = [await outcome(sock.connect(sock.getsockname()))]
    return [*seen, await outcome(sock.send(b"me")), await outcome(sock.recv(10))]


async def backlog_full(arena: Arena) -> Seen:
    """A backlog of n lets n + 1 connect; the next one waits until one is accepted."""
    listener = await arena.listener(backlog=2)
    return [await knock(arena, listener) for _ in range(5)]


async def backlog_of_zero(arena: Arena) -> Seen:
    """listen(0) lets one connect."""
    listener = await arena.listener(backlog=0)
    return [await knock(arena, listener) for _ in range(3)]


async def backlog_full_and_given_way(arena: Arena) -> Seen:
    """Who waits for a full backlog gets in after an accept, by sending its request again."""
    listener = await arena.listener(backlog=0)
    address = listener.getsockname()
    await knock(arena, listener)
    late = arena.socket()
    seen: Seen = []

    async def connect() -> None:
        seen.append(await outcome(late.connect(address), within_s=5.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await settle()
        seen.append(len(seen))
        await arena.accept(listener)
    return [*seen, late.getpeername() == address]


async def connect_is_cancelled(arena: Arena) -> Seen:
    """A cancelled connect closes the socket."""
    listener = await arena.listener(backlog=0)
    await knock(arena, listener)
    sock = arena.socket()
    return [await outcome(sock.connect(listener.getsockname())), sock.fileno(), await outcome(sock.recv(1))]


async def connect_twice(arena: Arena) -> Seen:
    """A connected socket cannot connect again: EISCONN."""
    client, _ = await arena.pair()
    other = await arena.listener()
    return [
        await outcome(client.connect(client.getpeername())),
        await outcome(client.connect(other.getsockname())),
        client.fileno() >= 0,
    ]


async def connect_an_accepted_socket(arena: Arena) -> Seen:
    """An accepted socket is connected: EISCONN."""
    client, server = await arena.pair()
    return [await outcome(server.connect(client.getsockname()))]


async def connect_a_listening_socket(arena: Arena) -> Seen:
    """A listening socket cannot connect: EISCONN."""
    first, second = await arena.listener(), await arena.listener()
    return [await outcome(first.connect(second.getsockname()))]


async def connect_a_closed_socket(arena: Arena) -> Seen:
    """A closed socket: EBADF from every call."""
    listener = await arena.listener()
    sock = arena.socket()
    sock.close()
    return [
        await outcome(sock.connect(listener.getsockname())),
        await outcome(sock.bind((arena.host, 0))),
        await outcome(sock.accept()),
        await outcome(sock.recv(1)),
        await outcome(sock.recv(0)),
        await outcome(sock.recv_into(bytearray(1))),
        await outcome(sock.send(b"x")),
        await outcome(sock.wait_writable()),
        await outcome(sock.sendmsg([b"x"])),
        outcome_of(sock.listen),
        outcome_of(sock.getsockname),
        outcome_of(sock.getpeername),
        outcome_of(sock.getsockopt, SOL_SOCKET, trio.socket.SO_ERROR),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1),
        outcome_of(sock.shutdown, SHUT_WR),
        sock.fileno(),
    ]


async def connect_from_a_bound_socket(arena: Arena) -> Seen:
    """A socket bound to any address and port 0 gets its address by connecting, and keeps its port."""
    listener = await arena.listener()
    sock = arena.socket()
    await sock.bind(("", 0))
    host, port = sock.getsockname()
    await sock.connect(listener.getsockname())
    accepted, address = await listener.accept()
    arena.keep(accepted)
    return [host, sock.getsockname()[1] == port, sock.getsockname()[0] == host, address == sock.getsockname()]


# --- binding and listening --------------------------------------------------------------------------------------------


async def bind_in_use(arena: Arena) -> Seen:
    """An address that another socket has: EADDRINUSE; free again once that is closed."""
    first, second = arena.server_socket(), arena.server_socket()
    await first.bind((arena.host, 0))
    address = first.getsockname()
    taken = await outcome(second.bind(address))
    any_host = await outcome(second.bind(("", address[1])))
    first.close()
    return [taken, any_host, await outcome(second.bind(address))]


async def bind_with_reuseaddr(arena: Arena) -> Seen:
    """SO_REUSEADDR on both lets two bind, unless one listens."""
    first, second, third = (arena.server_socket() for _ in range(3))
    for sock in (first, second, third):
        sock.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
    await first.bind((arena.host, 0))
    address = first.getsockname()
    shared = await outcome(second.bind(address))
    first.listen()
    return [shared, await outcome(third.bind(address)), outcome_of(second.listen)]


async def bind_after_connections(arena: Arena) -> Seen:
    """The port of a closed listener: taken while a connection of it lives, unless SO_REUSEADDR is set on both."""
    seen: Seen = []
    for reuse in (0, 1):
        listener = arena.server_socket()
        listener.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, reuse)
        await listener.bind((arena.host, 0))
        listener.listen()
        address = listener.getsockname()
        await arena.socket().connect(address)
        await arena.accept(listener)
        listener.close()
        again = arena.server_socket()
        again.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, reuse)
        seen.append(await outcome(again.bind(address)))
    return seen


async def bind_a_foreign_address(arena: Arena) -> Seen:
    """An address that is not this machine's: EADDRNOTAVAIL."""
    sock = arena.server_socket()
    return [await outcome(sock.bind((FOREIGN, 0))), sock.getsockname()]


async def bind_port_0(arena: Arena) -> Seen:
    """Port 0 is any free port, and no two sockets get the same."""
    socks = [arena.server_socket() for _ in range(5)]
    for sock in socks:
        await sock.bind((arena.host, 0))
    names = [sock.getsockname() for sock in socks]
    return [len(set(names)), all(host == arena.host and port > 1023 for host, port in names)]


async def bind_twice(arena: Arena) -> Seen:
    """A bound socket cannot be bound again: EINVAL; neither can a connected one."""
    sock = arena.server_socket()
    await sock.bind((arena.host, 0))
    client, _ = await arena.pair()
    return [await outcome(sock.bind((arena.host, 0))), await outcome(client.bind(("", 0)))]


async def bind_addresses_that_are_none(arena: Arena) -> Seen:
    """Addresses of the wrong shape."""
    sock = arena.server_socket()
    return [await outcome(sock.bind(arena.host)), await outcome(sock.bind((arena.host,)))]


async def ports_that_are_none(arena: Arena) -> Seen:
    """Ports below 0 and above 65535: OverflowError."""
    sock = arena.server_socket()
    bound = [await outcome(sock.bind((arena.host, port))) for port in (-1, 65_536)]
    return [*bound, *[await outcome(arena.socket().connect((arena.host, port))) for port in (-1, 65_536)]]


async def listen_without_bind(arena: Arena) -> Seen:
    """listen() on an unbound socket takes any free port of every address."""
    sock = arena.server_socket()
    sock.listen(1)
    host, port = sock.getsockname()
    return [host, port > 1023, await outcome(arena.socket().connect((arena.host, port)))]


async def listen_twice(arena: Arena) -> Seen:
    """A second listen() changes the backlog and keeps the connections."""
    listener = await arena.listener(backlog=0)
    seen: Seen = [await knock(arena, listener), await knock(arena, listener)]
    seen.append(outcome_of(listener.listen, 1))
    seen += [await knock(arena, listener) for _ in range(2)]
    return [*seen, (await arena.accept(listener)).type, (await arena.accept(listener)).type]


async def listen_on_a_port_that_is_listened_on(arena: Arena) -> Seen:
    """Two sockets with SO_REUSEADDR may bind before either listens; only one may listen."""
    first, second = arena.server_socket(), arena.server_socket()
    for sock in (first, second):
        sock.setsockopt(SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
    await first.bind((arena.host, 0))
    await second.bind(first.getsockname())
    return [outcome_of(first.listen), outcome_of(second.listen), outcome_of(first.listen)]


async def listen_on_a_connected_socket(arena: Arena) -> Seen:
    """A connected socket cannot listen: EINVAL."""
    client, server = await arena.pair()
    return [outcome_of(client.listen), outcome_of(server.listen)]


async def accept_without_listen(arena: Arena) -> Seen:
    """accept() on a socket that does not listen: EINVAL."""
    bound = arena.server_socket()
    await bound.bind((arena.host, 0))
    client, server = await arena.pair()
    return [
        await outcome(arena.server_socket().accept()),
        await outcome(bound.accept()),
        await outcome(client.accept()),
        await outcome(server.accept()),
    ]


async def accept_waits_and_is_cancelled(arena: Arena) -> Seen:
    """accept() waits; cancelled, the listener goes on."""
    listener = await arena.listener()
    waits = await outcome(listener.accept())
    await arena.socket().connect(listener.getsockname())
    return [waits, (await arena.accept(listener)).type]


async def accepted_addresses(arena: Arena) -> Seen:
    """The addresses of the two ends are each other's."""
    listener = await arena.listener()
    client = arena.socket()
    await client.connect(listener.getsockname())
    server, address = await listener.accept()
    arena.keep(server)
    return [
        address == client.getsockname(),
        server.getpeername() == address,
        server.getsockname() == listener.getsockname() == client.getpeername(),
        server.family, server.type, client.type, client.proto,
    ]  # fmt: skip


async def closed_listener_drops_who_was_not_accepted(arena: Arena) -> Seen:
    """A listener that closes resets the connections that wait for accept()."""
    listener = await arena.listener()
    client = arena.socket()
    await client.connect(listener.getsockname())
    listener.close()
    await settle()
    return [await outcome(client.recv(1)), await outcome(client.recv(1)), await outcome(client.send(b"x"))]


async def data_and_end_before_accept(arena: Arena) -> Seen:
    """Who connects may send, end and close before anybody accepts."""
    listener = await arena.listener()
    client = arena.socket()
    await client.connect(listener.getsockname())
    sent = await outcome(client.send(b"early"))
    client.close()
    await settle()
    server = await arena.accept(listener)
    return [
        sent,
        await outcome(server.recv(100)),
        await outcome(server.recv(100)),
        outcome_of(server.getpeername) != "",
    ]


async def reset_before_accept(arena: Arena) -> Seen:
    """A connection that is reset before accept() is accepted all the same, and then fails."""
    listener = await arena.listener()
    client = arena.socket()
    await client.connect(listener.getsockname())
    client.setsockopt(SOL_SOCKET, trio.socket.SO_LINGER, RESET_ON_CLOSE)
    client.close()
    await settle()
    accepted = await outcome(listener.accept())
    if not isinstance(accepted, tuple):
        return [accepted]
    server = arena.keep(accepted[0])
    return [await outcome(server.recv(1)), await outcome(server.recv(1)), outcome_of(server.getpeername)]


CASES: tuple[SocketBody, ...] = (
    connect_refused,
    connect_refused_by_a_bound_socket,
    connect_after_refusal,
    calls_after_refusal,
    connect_after_reset,
    connect_after_both_ends,
    connect_to_any_address,
    connect_to_oneself,
    backlog_full,
    backlog_of_zero,
    backlog_full_and_given_way,
    connect_is_cancelled,
    connect_twice,
    connect_an_accepted_socket,
    connect_a_listening_socket,
    connect_a_closed_socket,
    connect_from_a_bound_socket,
    bind_in_use,
    bind_with_reuseaddr,
    bind_after_connections,
    bind_a_foreign_address,
    bind_port_0,
    bind_twice,
    bind_addresses_that_are_none,
    ports_that_are_none,
    listen_without_bind,
    listen_twice,
    listen_on_a_port_that_is_listened_on,
    listen_on_a_connected_socket,
    accept_without_listen,
    accept_waits_and_is_cancelled,
    accepted_addresses,
    closed_listener_drops_who_was_not_accepted,
    data_and_end_before_accept,
    reset_before_accept,
)
