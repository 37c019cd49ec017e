"""Receiving, for a task that receives most of the time when nothing is there yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

#: Waits for bytes and puts them into a buffer; how many, 0 at the stream's end. A checkpoint. Raises `OSError`.
Receive = Callable[[trio.socket.SocketType, memoryview], Awaitable[int]]


async def receive_into(socket: trio.socket.SocketType, buffer: memoryview) -> int:
    """See `Receive`: any socket of Trio's can do it so."""
    return await socket.recv_into(buffer)
