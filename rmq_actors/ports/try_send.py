"""Sending without waiting, for a task that has something to send and must not yield."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

#: Sends from several buffers as if they were one, and returns how many bytes the socket took: 0 when it is full.
#: Raises `OSError`. Not for a socket on which a task is sending.
TrySend = Callable[[trio.socket.SocketType, Sequence[bytes | memoryview]], int]


def try_sendmsg(socket: trio.socket.SocketType, buffers: Sequence[bytes | memoryview]) -> int:
    """See `TrySend`. For a socket that can do it itself, as simulated ones can; any other is as if it were full."""
    # Not a Protocol: to ask whether an object is an instance of one takes longer than to send.
    send: Callable[[Sequence[bytes | memoryview]], int] | None = getattr(socket, "try_sendmsg", None)
    return 0 if send is None else send(buffers)
