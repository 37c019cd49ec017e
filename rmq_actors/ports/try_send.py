"""Sending without waiting: for whoever has something to send and may not yield."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import trio

#: Sends from several buffers as if they were one, and returns how many bytes the socket took: 0 when it is full.
#: Raises `OSError`. Not for a socket on which a task is sending.
TrySend = Callable[[trio.socket.SocketType, Sequence[bytes | memoryview]], int]


@runtime_checkable
class TrySendSocket(Protocol):
    """A socket that can do it itself, as simulated ones can, and Trio's cannot."""

    def try_sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        """See `TrySend`."""
        ...


def try_sendmsg(socket: trio.socket.SocketType, buffers: Sequence[bytes | memoryview]) -> int:
    """Send on a `TrySendSocket`; every other one is as if it were full."""
    return socket.try_sendmsg(buffers) if isinstance(socket, TrySendSocket) else 0
