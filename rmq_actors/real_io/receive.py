"""Receiving on the real machine."""

from __future__ import annotations

import os

import trio


async def receive(socket: trio.socket.SocketType, buffer: memoryview) -> int:
    """See `ports.receive`. Trio's sockets try first, in vain where a peer waits for its answer, then wait."""
    number = socket.fileno()
    while True:
        await trio.lowlevel.wait_readable(number)
        try:
            return os.readv(number, (buffer,))
        except BlockingIOError:
            continue
