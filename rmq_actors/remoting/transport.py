"""The bytes below a remoting connection: a plain socket, or TLS over one."""

from __future__ import annotations

from typing import Protocol

import attrs
import trio

from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend


class Transport(Protocol):
    """A byte stream. Its errors are `OSError`s."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes and put them into `buffer`; how many, 0 at the stream's end."""
        ...

    async def send_some(self, data: bytes | memoryview) -> int:
        """Wait for room and hand over bytes from the beginning of `data`; how many."""
        ...

    def try_send(self, data: bytes) -> int:
        """Hand over bytes without waiting; how many, 0 where only `send_some` can do it. Raises `OSError`."""
        ...

    def close(self) -> None:
        """Close at once; what was handed over may still arrive."""
        ...


@attrs.define(eq=False, repr=False)
class SocketTransport:
    """A plain TCP connection. It uses the socket directly: Trio's stream would cost more than the system call."""

    _stream: trio.SocketStream
    _try_send: TrySend | None = None
    _receive: Receive = receive_into

    async def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        return await self._receive(self._stream.socket, buffer)

    async def send_some(self, data: bytes | memoryview) -> int:
        """See `Transport`."""
        return await self._stream.socket.send(data)

    def try_send(self, data: bytes) -> int:
        """See `Transport`."""
        return 0 if self._try_send is None else self._try_send(self._stream.socket, (data,))

    def close(self) -> None:
        """See `Transport`."""
        self._stream.socket.close()
