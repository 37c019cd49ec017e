"""`rmq-actors namesrv` as a process: what it prints, what it answers, how it ends."""

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
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode as Code
from tests.worlds.fed_frames import feed

pytestmark = pytest.mark.processes

COMMAND = (sys.executable, "-m", "rmq_actors.cli.entry", "namesrv")


def conf(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "namesrv.conf"
    path.write_text("".join(f"{line}\n" for line in ("listenPort=0", f"kvConfigPath={tmp_path}/kv/kv.json", *lines)))
    return path


@contextlib.contextmanager
def running(path: Path) -> Iterator[tuple[subprocess.Popen[str], list[str], int]]:
    """The process once it listens, the lines that it printed until then, and its port."""
    process = subprocess.Popen([*COMMAND, "-c", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and "listens on" in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        yield process, lines, int(lines[-1].rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def ask(port: int, command: RemotingCommand) -> RemotingCommand:
    reader = FrameReader()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(encode_command(command))
        while not (commands := reader.commands()):
            feed(reader, connection.recv(65536))
    return commands[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    path = conf(tmp_path, "serverWorkerThreads=8", "ownKey=1")
    with running(path) as (process, lines, port):
        output = "".join(lines)
        assert f"{path}, line 3: serverWorkerThreads has no effect here" in output
        assert f"{path}, line 4: ownKey is unknown" in output
        assert "The Name Server boot success. serializeType=JSON" in output
        put = RemotingCommand(Code.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
        assert ask(port, put).code == 0
        assert ask(port, RemotingCommand(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")).code == 0
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert f"{number.name}: the name server stops" in rest
        assert "the name server has stopped" in rest
    assert (tmp_path / "kv/kv.json").exists()
    # What the file said is still there, and the file before is kept.
    assert {"orderMessageEnable=true", "ownKey=1", f"kvConfigPath={tmp_path}/kv/kv.json"} <= {
        *path.read_text().splitlines()
    }
    assert path.with_name("namesrv.conf.bak").read_text().startswith("listenPort=0\n")
    with running(path) as (_, _, port):
        assert ask(port, RemotingCommand(Code.GET_KV_CONFIG, {"namespace": "N", "key": "k"})).ext_fields == {
            "value": "v"
        }
        assert b"orderMessageEnable=true\n" in ask(port, RemotingCommand(Code.GET_NAMESRV_CONFIG)).body


def test_paths_may_lead_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = conf(tmp_path, "kvConfigPath=kv/../kv.json")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with running(Path("..", path.name)) as (_, _, port):
        assert ask(port, RemotingCommand(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")).code == 0
        put = RemotingCommand(Code.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
        assert ask(port, put).code == 0
    assert "orderMessageEnable=true" in path.read_text()
    assert (tmp_path / "below/kv.json").exists()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("-c", conf(tmp_path, f"listenPort={port}"))
    assert done.returncode == 1
    assert re.search(
        rf"ERROR .* cannot start: .*127\.0\.0\.1:{port}: Address already in use \(bindAddress, listenPort\)\n$",
        done.stdout,
    )
    assert "Traceback" not in done.stdout + done.stderr


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    done = run("-c", conf(tmp_path, "bindAddress=10.0..1"))
    assert done.returncode == 2
    assert re.search(r"line 3: bindAddress=10\.0\.\.1: '10\.0\.\.1' is no host's name or address\n$", done.stderr)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_kv_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = conf(tmp_path)
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv/kv.json").write_text("{")
    done = run("-c", path)
    assert done.returncode == 2
    assert "kv/kv.json cannot be read (line 1, column 2" in done.stdout


def test_a_bad_setting_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["namesrv", "-c", str(conf(tmp_path, "orderMessageEnable=maybe"))])
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path}/namesrv.conf, line 3: orderMessageEnable=maybe: it is true or false\n"


def test_settings_are_printed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["namesrv", "-p", "-c", str(conf(tmp_path, "orderMessageEnable=true"))])
    assert done.exit_code == 0
    assert {"orderMessageEnable=true", "listenPort=0", "bindAddress=127.0.0.1"} <= {*done.stdout.splitlines()}
