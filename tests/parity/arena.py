"""Where a parity case runs: the same body on this machine's sockets, and on simulated ones, on one node or on two."""

from __future__ import annotations

import contextvars
import errno
import socket
import struct
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

import trio
from trio.socket import SOL_SOCKET, SocketType

from sim_net import Node, World

T = TypeVar("T")

#: What a case saw: plain values, with errors as the names of their errno or class.
Seen = list[object]
SocketBody = Callable[["Arena"], Awaitable[Seen]]

#: A value of SO_LINGER: closing sends a reset.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
LOOPBACK = "127.0.0.1"
#: Long enough for a loopback interface, in seconds; what has not happened by then "waits".
moment_s: ContextVar[float] = ContextVar("moment_s", default=0.02)


#: Nothing that this machine has, and nothing that a world has: TEST-NET-1 of RFC 5737.
FOREIGN = "192.0.2.1"


class NoSuchWorld(Exception):
    """This machine cannot offer what a case needs; the message says what."""


class Arena:
    """Two ends that can reach each other, and the means to note what their calls do."""

    def __init__(
        self,
        host: str,
        client_socket: Callable[..., SocketType],
        server_socket: Callable[..., SocketType],
        *,
        own: Callable[[], str],
        elsewhere: str = FOREIGN,
    ) -> None:
        #: The address of the serving end, as a number.
        self.host = host
        #: An address of another machine than the connecting end's.
        self.elsewhere = elsewhere
        self._own = own
        self._client_socket = client_socket
        self._server_socket = server_socket
        self._sockets: list[SocketType] = []

    @property
    def own(self) -> str:
        """The address of the connecting end on its network. NoSuchWorld if there is none but loopback."""
        return self._own()

    def socket(self, kind: int = trio.socket.SOCK_STREAM) -> SocketType:
        """A socket of the connecting end."""
        return self.keep(self._client_socket(trio.socket.AF_INET, kind))

    def server_socket(self, kind: int = trio.socket.SOCK_STREAM) -> SocketType:
        """A socket of the serving end."""
        return self.keep(self._server_socket(trio.socket.AF_INET, kind))

    def keep(self, sock: SocketType) -> SocketType:
        """Close `sock` at the end of the case."""
        self._sockets.append(sock)
        return sock

    async def listener(self, backlog: int = 10, *, receive_bytes: int | None = None) -> SocketType:
        """A listening socket of the serving end, on a port of its own."""
        sock = self.server_socket()
        if receive_bytes is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_bytes)
        await sock.bind((self.host, 0))
        sock.listen(backlog)
        return sock

    async def pair(self, *, buffers_bytes: int | None = None) -> tuple[SocketType, SocketType]:
        """Two connected sockets: who connected, and who accepted."""
        listener = await self.listener(receive_bytes=buffers_bytes)
        client = self.socket()
        if buffers_bytes is not None:
            client.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, buffers_bytes)
        await client.connect(listener.getsockname())
        server = await self.accept(listener)
        listener.close()
        return client, server

    async def accept(self, listener: SocketType) -> SocketType:
        """The next connection of a listener."""
        return self.keep((await listener.accept())[0])

    def close(self) -> None:
        """Close every socket of the case."""
        for sock in self._sockets:
            sock.close()


async def settle() -> None:
    """Let what is on its way arrive."""
    await trio.sleep(moment_s.get())


def _named(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode[error.errno]
    return type(error).__name__


async def outcome(call: Awaitable[object], *, within_s: float | None = None) -> object:
    """What an awaitable gives: its value, the name of its error, or "waits" if that takes longer than a moment."""
    with trio.move_on_after(moment_s.get() if within_s is None else within_s):
        try:
            return await call
        except (
            OSError,
            trio.BusyResourceError,
            trio.ClosedResourceError,
            ValueError,
            TypeError,
            OverflowError,
        ) as error:
            return _named(error)
    return "waits"


def outcome_of(call: Callable[..., object], *args: object) -> object:
    """What a plain call gives: its value, or the name of its error."""
    try:
        return call(*args)
    except (OSError, ValueError, TypeError) as error:
        return _named(error)


async def outcome_of_waiting(call: Awaitable[object], meanwhile: Callable[[], object]) -> object:
    """What an awaitable gives that waits until `meanwhile` is called."""
    seen: list[object] = []

    async def wait() -> None:
        seen.append(await outcome(call, within_s=5.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await settle()
        if seen:
            return ["did not wait", *seen]
        meanwhile()
    return seen[0]


async def fill(sock: SocketType) -> int:
    """Send until a send waits, although time was given for all to arrive; how many bytes were taken."""
    total = waits = 0
    while waits < 3:
        sent = await outcome(sock.send(bytes(65_536)))
        if sent == "waits":
            waits += 1
        else:
            assert isinstance(sent, int)
            total += sent
            waits = 0
    return total


async def drain(sock: SocketType, size: int) -> int:
    """Receive until `size` bytes were received, or no more come; how many."""
    total = 0
    while total < size:
        data = await outcome(sock.recv(min(65_536, size - total)))
        if not isinstance(data, bytes) or not data:
            break
        total += len(data)
    return total


def reset_by(sock: SocketType) -> None:
    sock.setsockopt(SOL_SOCKET, trio.socket.SO_LINGER, RESET_ON_CLOSE)
    sock.close()


async def _in(arena: Arena, body: SocketBody) -> Seen:
    try:
        return await body(arena)
    finally:
        arena.close()


def _own_address() -> str:
    """This machine's address on its network: what it would send from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((FOREIGN, 9))  # sends nothing
        except OSError as error:
            raise NoSuchWorld(f"this machine has no way to other machines: {error}") from error
        return str(sock.getsockname()[0])


def run_real(body: SocketBody) -> Seen:
    """Run a case on this machine's loopback interface."""
    return trio.run(_in, Arena(LOOPBACK, trio.socket.socket, trio.socket.socket, own=_own_address), body)


def run_on_one_node(body: SocketBody) -> Seen:
    """Run a case on one simulated node, over its loopback."""
    seen: list[Seen] = []

    async def program(node: Node) -> None:
        arena = Arena(LOOPBACK, trio.socket.socket, trio.socket.socket, own=lambda: node.address)
        seen.append(await _in(arena, body))

    async def main(world: World) -> None:
        node = world.node("alone")
        node.boot(program)
        await node.wait_down()

    World(seed=1).run(main)
    return seen[0]


def run_on_two_nodes(body: SocketBody) -> Seen:
    """Run a case on two simulated nodes: the body on one, the serving end's sockets on the other."""
    seen: list[Seen] = []

    async def serve(node: Node) -> None:
        context = contextvars.copy_context()

        def server_socket(family: int, kind: int) -> SocketType:
            return context.run(trio.socket.socket, family, kind)

        async def connect(client: Node) -> None:
            arena = Arena(
                node.address,
                trio.socket.socket,
                server_socket,
                own=lambda: client.address,
                elsewhere=node.address,
            )
            seen.append(await _in(arena, body))

        ready.append(connect)
        await trio.sleep_forever()

    ready: list[Callable[[Node], Awaitable[None]]] = []

    async def main(world: World) -> None:
        world.node("server").boot(serve)
        await trio.sleep(0.1)
        client = world.node("client")
        client.boot(ready[0])
        await client.wait_down()

    World(seed=1).run(main)
    return seen[0]


#: How to run a case, by world; the real one is first.
SOCKET_WORLDS: dict[str, Callable[[SocketBody], Seen]] = {
    "Linux": run_real,
    "one node": run_on_one_node,
    "two nodes": run_on_two_nodes,
}
