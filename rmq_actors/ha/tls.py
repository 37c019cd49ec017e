"""TLS between brokers, as replication needs it; whoever assembles a broker has it."""

from __future__ import annotations

from typing import Protocol

import trio


class HaTls(Protocol):
    """Makes sockets that speak TLS. Both ends of a connection do, or none."""

    @property
    def record_bytes(self) -> int:
        """The most that one receive brings: after that many bytes more of what was sent waits."""
        ...

    async def accept(self, stream: trio.SocketStream) -> trio.socket.SocketType:
        """Shake hands with a slave, within a time. Raises `OSError`; the stream is the caller's to close then."""
        ...

    async def connect(self, stream: trio.SocketStream, host: str) -> trio.socket.SocketType:
        """Shake hands with the master at `host`, within a time. Raises `OSError`; the stream is closed then."""
        ...
