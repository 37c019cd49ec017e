"""Sending without waiting, on the real machine: what the socket takes, and an error when there is none."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.ports.try_send import try_sendmsg
from rmq_actors.real_io.try_send import try_send


@pytest.mark.trio
async def test_it_sends_in_order_until_the_socket_is_full() -> None:
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        sent = try_send(ours, [b"head", memoryview(b"body"), b""])
        assert await theirs.recv(100) == b"headbody"[:sent] == b"headbody"
        large = [b"x" * 2**20] * 8
        taken = 0
        while some := try_send(ours, large):
            taken += some
        assert taken
        received = 0
        while received < taken:
            received += len(await theirs.recv(2**20))
        assert try_send(ours, [b"more"]) == 4


@pytest.mark.trio
async def test_a_lost_connection_is_an_error() -> None:
    ours, theirs = trio.socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(OSError, match="Broken pipe"):
            try_send(ours, [b"data"])
    with pytest.raises(OSError, match="Bad file descriptor"):
        try_send(ours, [b"data"])


@pytest.mark.trio
async def test_a_socket_of_trio_takes_nothing_by_itself() -> None:
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        assert try_sendmsg(ours, [b"data"]) == 0
