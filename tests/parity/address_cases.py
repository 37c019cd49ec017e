"""Which local address reaches which: loopback, the machine's own address on its network, other machines."""

from __future__ import annotations

import trio
from trio.socket import SOCK_DGRAM, SocketType

from tests.parity.arena import LOOPBACK, Arena, Seen, SocketBody, outcome, outcome_of, settle

_SECOND_LOOPBACK = "127.0.0.2"
_ANY = "0.0.0.0"


async def from_address(arena: Arena, host: str, kind: int = trio.socket.SOCK_STREAM) -> SocketType:
    """A socket of the connecting end, bound to `host`."""
    sock = arena.socket(kind)
    await sock.bind((host, 0))
    return sock


async def at_every_address(arena: Arena, kind: int = trio.socket.SOCK_STREAM) -> SocketType:
    """A socket of the connecting end that others of it reach by any of its addresses; it listens, if it can."""
    sock = await from_address(arena, "", kind)
    if kind == trio.socket.SOCK_STREAM:
        sock.listen()
    return sock


async def loopback_connects_to_no_other_machine(arena: Arena) -> Seen:
    """A socket bound to 127.0.0.1: connect() to another machine is EINVAL; it may then connect to its own."""
    listener = await at_every_address(arena)
    sock = await from_address(arena, LOOPBACK)
    address = sock.getsockname()
    return [
        await outcome(sock.connect((arena.elsewhere, 9))),
        await outcome(sock.connect((arena.elsewhere, 9))),
        sock.getsockname() == address,
        outcome_of(sock.getpeername),
        await outcome(sock.connect((LOOPBACK, listener.getsockname()[1]))),
    ]


async def loopback_connects_to_the_machines_own_address(arena: Arena) -> Seen:
    """From 127.0.0.1 to the machine's address on its network, and the other way: both connect, each as it is bound."""
    listener = await at_every_address(arena)
    seen: Seen = []
    for source, target in ((LOOPBACK, arena.own), (arena.own, LOOPBACK), (_SECOND_LOOPBACK, LOOPBACK)):
        sock = await from_address(arena, source)
        seen.append(await outcome(sock.connect((target, listener.getsockname()[1]))))
        accepted = await arena.accept(listener)
        hosts = [each[0] for each in (sock.getsockname(), sock.getpeername(), accepted.getpeername())]
        seen.append([host.replace(arena.own, "own") for host in hosts])
    return seen


async def the_wildcard_is_the_address_one_is_bound_to(arena: Arena) -> Seen:
    """connect() to 0.0.0.0 goes to the address that the socket is bound to; Trio puts 127.0.0.1 for ""."""
    listener = await at_every_address(arena)
    seen: Seen = []
    for source in (_SECOND_LOOPBACK, arena.own):
        for target in (_ANY, ""):
            sock = await from_address(arena, source)
            seen.append(await outcome(sock.connect((target, listener.getsockname()[1]))))
            seen.append(sock.getpeername()[0] == source)
        sock = await from_address(arena, source, SOCK_DGRAM)
        seen.append(await outcome(sock.connect((_ANY, 9))))
        seen.append(sock.getpeername()[0] == source)
    return seen


async def loopback_sends_no_datagram_to_other_machines(arena: Arena) -> Seen:
    """A UDP socket bound to 127.0.0.1: sendto, sendmsg and connect to another machine are EINVAL, and leave no peer."""
    receiver = await at_every_address(arena, SOCK_DGRAM)
    sock = await from_address(arena, LOOPBACK, SOCK_DGRAM)
    port = receiver.getsockname()[1]
    seen: Seen = [
        await outcome(sock.sendto(b"x", (arena.elsewhere, 9))),
        await outcome(sock.sendmsg([b"x"], [], 0, (arena.elsewhere, 9))),
        await outcome(sock.connect((arena.elsewhere, 9))),
        outcome_of(sock.getpeername),
        await outcome(sock.sendto(b"to its own", (arena.own, port))),
    ]
    await settle()
    data, address = await receiver.recvfrom(100)
    return [*seen, data, address == sock.getsockname()]


async def datagrams_from_the_machines_own_address(arena: Arena) -> Seen:
    """A UDP socket bound to the machine's address reaches loopback and others, and keeps its address."""
    receiver = await at_every_address(arena, SOCK_DGRAM)
    sock = await from_address(arena, arena.own, SOCK_DGRAM)
    seen: Seen = [await outcome(sock.sendto(b"x", (LOOPBACK, receiver.getsockname()[1])))]
    await settle()
    _, address = await receiver.recvfrom(100)
    seen += [address == sock.getsockname(), await outcome(sock.connect((arena.elsewhere, 9)))]
    return [*seen, sock.getsockname()[0] == arena.own]


async def a_connected_datagram_socket_keeps_its_address(arena: Arena) -> Seen:
    """connect() gives an unbound UDP socket its address for good: from loopback it cannot go on to another machine."""
    sock, other = arena.socket(SOCK_DGRAM), arena.socket(SOCK_DGRAM)
    seen: Seen = [await outcome(sock.connect((LOOPBACK, 9))), sock.getsockname()[0]]
    seen += [await outcome(sock.connect((arena.elsewhere, 9))), sock.getsockname()[0], sock.getpeername()[0]]
    seen += [await outcome(other.connect((arena.elsewhere, 9))), other.getsockname()[0] == arena.own]
    return [*seen, await outcome(other.connect((LOOPBACK, 9))), other.getsockname()[0] == arena.own]


CASES: tuple[SocketBody, ...] = (
    loopback_connects_to_no_other_machine,
    loopback_connects_to_the_machines_own_address,
    the_wildcard_is_the_address_one_is_bound_to,
    loopback_sends_no_datagram_to_other_machines,
    datagrams_from_the_machines_own_address,
    a_connected_datagram_socket_keeps_its_address,
)
