"""How the tests wait for the real servers that they start (`tests/worlds/server_process.py`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.server_process import ServerFailed, ServerProcess

TIMEOUT_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A process that runs until its standard input ends."""
    server = ServerProcess(tmp_path, listen_port=1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        server._process = process
        yield server
        process.kill()


def test_what_has_held_once_has_been_waited_for(server: ServerProcess) -> None:
    """Two brokers are the same for a moment: the next message must not make a failure of it."""
    looks = iter([False, True, False])
    server.wait_until(lambda: next(looks), TIMEOUT_S, "both are the same")
    assert server.runs


def test_a_process_that_ends_before_fails_the_wait(server: ServerProcess) -> None:
    process = server._process
    assert process is not None
    process.communicate(b"\n")
    with pytest.raises(ServerFailed, match="exit code 0 before: it is up"):
        server.wait_until(lambda: False, TIMEOUT_S, "it is up")
    assert not server.runs


def test_what_holds_when_the_process_has_ended_counts(server: ServerProcess) -> None:
    process = server._process
    assert process is not None
    process.communicate(b"\n")
    server.wait_until(lambda: True, TIMEOUT_S, "it has written its file")
