"""Socket options: remembered, answered, and what some of them do."""

from __future__ import annotations

import struct

import trio
from trio.socket import IPPROTO_TCP, SOL_SOCKET

from tests.parity.arena import RESET_ON_CLOSE, Arena, Seen, SocketBody, outcome, outcome_of, settle


async def options_of_a_fresh_socket(arena: Arena) -> Seen:
    """What a fresh TCP socket answers."""
    sock = arena.socket()
    asked = (
        "SO_ACCEPTCONN",
        "SO_BROADCAST",
        "SO_ERROR",
        "SO_KEEPALIVE",
        "SO_OOBINLINE",
        "SO_REUSEADDR",
        "SO_REUSEPORT",
    )
    seen: Seen = [(name, sock.getsockopt(SOL_SOCKET, getattr(trio.socket, name))) for name in asked]
    seen.append(sock.getsockopt(SOL_SOCKET, trio.socket.SO_TYPE))
    seen.append(sock.getsockopt(SOL_SOCKET, trio.socket.SO_DOMAIN))
    seen.append(sock.getsockopt(SOL_SOCKET, trio.socket.SO_PROTOCOL))
    seen.append(sock.getsockopt(SOL_SOCKET, trio.socket.SO_LINGER, 8))
    return [*seen, sock.getsockopt(IPPROTO_TCP, trio.socket.TCP_NODELAY)]


async def options_are_remembered(arena: Arena) -> Seen:
    """TCP_NODELAY, SO_KEEPALIVE, SO_REUSEADDR and their like: what was set is answered, any non-zero flag as 1."""
    sock = arena.socket()
    flags = (
        (SOL_SOCKET, "SO_KEEPALIVE"),
        (SOL_SOCKET, "SO_REUSEADDR"),
        (SOL_SOCKET, "SO_REUSEPORT"),
        (IPPROTO_TCP, "TCP_NODELAY"),
    )
    seen: Seen = []
    for level, name in flags:
        for value in (1, 0, 5):
            sock.setsockopt(level, getattr(trio.socket, name), value)
            seen.append((name, value, sock.getsockopt(level, getattr(trio.socket, name))))
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        sock.setsockopt(IPPROTO_TCP, getattr(trio.socket, name), value)
        seen.append((name, sock.getsockopt(IPPROTO_TCP, getattr(trio.socket, name))))
    return seen


async def options_as_bytes(arena: Arena) -> Seen:
    """Options are set and asked as bytes too."""
    sock = arena.socket()
    sock.setsockopt(SOL_SOCKET, trio.socket.SO_KEEPALIVE, struct.pack("i", 1))
    sock.setsockopt(SOL_SOCKET, trio.socket.SO_LINGER, RESET_ON_CLOSE)
    return [
        sock.getsockopt(SOL_SOCKET, trio.socket.SO_KEEPALIVE),
        sock.getsockopt(SOL_SOCKET, trio.socket.SO_KEEPALIVE, 4),
        sock.getsockopt(SOL_SOCKET, trio.socket.SO_LINGER, 8),
    ]


async def buffer_sizes_are_doubled(arena: Arena) -> Seen:
    """SO_SNDBUF and SO_RCVBUF answer twice what was set."""
    sock = arena.socket()
    sock.setsockopt(SOL_SOCKET, trio.socket.SO_SNDBUF, 20_000)
    sock.setsockopt(SOL_SOCKET, trio.socket.SO_RCVBUF, 30_000)
    return [sock.getsockopt(SOL_SOCKET, trio.socket.SO_SNDBUF), sock.getsockopt(SOL_SOCKET, trio.socket.SO_RCVBUF)]


async def options_of_an_accepted_socket(arena: Arena) -> Seen:
    """An accepted socket has its listener's options."""
    listener = await arena.listener(receive_bytes=30_000)
    listener.setsockopt(SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
    listener.setsockopt(IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    await arena.socket().connect(listener.getsockname())
    server = await arena.accept(listener)
    return [
        listener.getsockopt(SOL_SOCKET, trio.socket.SO_ACCEPTCONN),
        server.getsockopt(SOL_SOCKET, trio.socket.SO_ACCEPTCONN),
        server.getsockopt(SOL_SOCKET, trio.socket.SO_KEEPALIVE),
        server.getsockopt(IPPROTO_TCP, trio.socket.TCP_NODELAY),
        server.getsockopt(SOL_SOCKET, trio.socket.SO_RCVBUF),
    ]


async def linger_of_zero_resets(arena: Arena) -> Seen:
    """SO_LINGER with no time: close() sends a reset and drops what was not sent."""
    client, server = await arena.pair()
    client.setsockopt(SOL_SOCKET, trio.socket.SO_LINGER, RESET_ON_CLOSE)
    client.close()
    await settle()
    return [await outcome(server.recv(1)), await outcome(server.recv(1))]


async def options_that_are_none(arena: Arena) -> Seen:
    """Values of the wrong kind."""
    sock = arena.socket()
    return [
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_KEEPALIVE, None),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_KEEPALIVE, "1"),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_KEEPALIVE, b"1"),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_LINGER, 1),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_ERROR, 1),
        outcome_of(sock.setsockopt, SOL_SOCKET, trio.socket.SO_ACCEPTCONN, 1),
    ]


CASES: tuple[SocketBody, ...] = (
    options_of_a_fresh_socket,
    options_are_remembered,
    options_as_bytes,
    buffer_sizes_are_doubled,
    options_of_an_accepted_socket,
    linger_of_zero_resets,
    options_that_are_none,
)
