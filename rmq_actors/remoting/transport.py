"""The bytes below a remoting connection: a plain socket, or TLS over one."""

from __future__ import annotations

from typing import Protocol

import attrs
import trio


class Transport(Protocol):
    """A byte stream. Its errors are `OSError`s."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes and put them into `buffer`; how many, 0 at the stream's end."""
        ...

    async def send_some(self, data: bytes | memoryview) -> int:
        """Wait for room and hand over bytes from the beginning of `data`; how many."""
        ...

    def close(self) -> None:
        """Close at once; what was handed over may still arrive."""
        ...


@attrs.define(eq=False)
class SocketTransport:
    """A plain TCP connection. It uses the socket directly: Trio's stream would cost more than the system call."""

    _stream: trio.SocketStream

    async def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        return await self._stream.socket.recv_into(buffer)

    async def send_some(self, data: bytes | memoryview) -> int:
        """See `Transport`."""
        return await self._stream.socket.send(data)

    def close(self) -> None:
        """See `Transport`."""
        self._stream.socket.close()
