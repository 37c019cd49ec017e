"""What is told of a connection that could not be made."""

from __future__ import annotations

import errno
import socket

import pytest
import trio

from rmq_actors.sockets.network_failure import network_failure

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Error connecting to ('::1', 1, 0, 0): Connection refused")


def failed(*causes: OSError) -> OSError:
    """As Trio raises it."""
    error = OSError("all attempts to connect to host:1 failed")
    error.__cause__ = ExceptionGroup("all attempts to connect to host:1 failed", causes)
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (failed(REFUSED), "Connection refused"),
        (failed(REFUSED, REFUSED), "Connection refused"),
        (
            failed(REFUSED, OSError(errno.EHOSTUNREACH, "No route to host")),
            "Connection refused, No route to host",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionError("no answer within 5 ms"), "no answer within 5 ms"),
        (OSError(), "OSError"),
    ],
)
def test_the_systems_own_words(error: OSError, text: str) -> None:
    assert network_failure(error) == text


@pytest.mark.trio
async def test_trio_is_understood() -> None:
    with pytest.raises(OSError, match="all attempts to connect") as caught:
        await trio.open_tcp_stream("127.0.0.1", 1)
    assert network_failure(caught.value) == "Connection refused"
