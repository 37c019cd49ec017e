"""`rmq-actors cluster` as a process: what it starts, what it keeps, how it ends."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from tests.worlds.java_client import JavaClient

pytestmark = pytest.mark.processes

COMMAND = (sys.executable, "-m", "rmq_actors.cli.entry", "cluster")


@contextlib.contextmanager
def running(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process once it is up, and what it printed until then."""
    command = [*COMMAND, "--dir", str(directory), "--name-server-port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and "The cluster boot success" in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        yield process, "".join(lines)
    finally:
        process.kill()
        process.communicate()


def port_of(broker: str, printed: str) -> int:
    found = re.search(rf" {broker} is an? \w+ .* listens on 127\.0\.0\.1:(\d+),", printed)
    assert found is not None, printed
    return int(found.group(1))


def end_of(broker: str, printed: str) -> int:
    found = re.search(rf" {broker} is an? .* has offsets 0 to (\d+) in ", printed)
    assert found is not None, printed
    return int(found.group(1))


def test_masters_and_slaves_keep_what_was_sent(tmp_path: Path) -> None:
    with running(tmp_path, "--masters", "2", "--sync") as (process, printed):
        assert re.search(r" broker-b is a SYNC_MASTER of broker name broker-b,", printed)
        assert re.search(r" broker-b-slave-1 is a SLAVE of broker name broker-b,", printed)
        assert end_of("broker-a", printed) == 0
        with JavaClient.connect(port_of("broker-a", printed)) as client:
            client.put("TopicOfACluster", b"kept")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "SIGTERM: the cluster stops" in rest
        assert "the cluster has stopped" in rest
    with running(tmp_path, "--masters", "2") as (_, printed):
        assert " broker-b is an ASYNC_MASTER of broker name broker-b," in printed
        assert end_of("broker-a", printed) == end_of("broker-a-slave-1", printed) > 0
        with JavaClient.connect(port_of("broker-a", printed)) as client:
            assert [message.body for message in client.pull_queue("TopicOfACluster", 0)] == [b"kept"]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*COMMAND, "--dir", str(tmp_path), "--name-server-port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    told = rf"ERROR .* cannot start: .*127\.0\.0\.1:{port}: Address already in use \(bindAddress, listenPort\)\n$"
    assert re.search(told, done.stdout)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [*COMMAND, "--dir", str(tmp_path / "file"), "--name-server-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["--sync", "--slaves", "0"], ["--masters", "0"], ["--name-server-port", "-1"]])
def test_bad_arguments(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["cluster", *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.output
