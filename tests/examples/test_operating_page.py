"""docs/operating.md: its files and commands, in their order, print what the page shows, but for numbers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio
from typer.testing import CliRunner

import rmq_actors.testing
from rmq_actors.cli.main import app
from rmq_actors.embedding.local_store import open_message_store
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.wire.record import Message
from tests.worlds.server_process import free_broker_port

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
#: What the master has at first: a store that a real one left, with its sizes.
GOLDEN = Path(rmq_actors.testing.__file__).parent / "golden" / "store_master_clean"
SIZES = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=262144,
    mapped_file_size_consume_queue_bytes=2000,
    max_hash_slot_num=500,
    max_index_num=2000,
)
MORE_LINES = "mappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=500\nmaxIndexNum=2000\n"
TIMEOUT_S = 60.0


def masked(line: str) -> str:
    """Without what differs from run to run: numbers, how often a connection was tried, widths."""
    line = re.sub(r"ended: .*", "ended: ...", line)
    return re.sub(r"\d+", "N", re.sub(r" +", " ", re.sub(r"\d+\.\d+ s\b", "N s", line)))


@attrs.define
class Shell:
    """Runs the page's commands in a directory; brokers are processes, numbered as jobs."""

    directory: Path
    ports: dict[str, str]
    jobs: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    def here(self, text: str) -> str:
        """The page's text with the ports and directories of this run."""
        text = text.replace("/var/rmq", str(self.directory))
        return re.sub(r"\b[12]09\d\d\b", lambda found: self.ports[found[0]], text)

    def write(self, text: str) -> None:
        """Write the file that a block shows, by the name in its first line."""
        name, _, body = text.partition("\n")
        (self.directory / name.removeprefix("# ")).write_text(self.here(body) + MORE_LINES)

    def run(self, command: str, shown: list[str]) -> None:
        """Run a command, and check that it prints what is shown."""
        expected = [masked(self.here(line)) for line in shown]
        words = self.here(command).split()
        if words[0] == "kill":
            self.end(int(words[-1].removeprefix("%")), signal.SIGKILL)
        elif words[1] == "broker":
            self.wait_printed(self.start(words[3]), expected)
        else:
            self.wait_until(
                lambda: self.printed(words[1:]) == expected, lambda: str((self.printed(words[1:]), expected))
            )

    def printed(self, arguments: list[str]) -> list[str]:
        done = CliRunner().invoke(app, arguments)
        return [masked(line) for line in done.output.splitlines()]

    def start(self, conf: str) -> Path:
        """Start a broker; where it prints."""
        path = self.directory / f"{conf}.{len(self.jobs)}.log"
        with path.open("wb") as output:
            self.jobs.append(
                subprocess.Popen(
                    [sys.executable, "-m", "rmq_actors.cli.entry", "broker", "-c", conf],
                    cwd=self.directory,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
                )
            )
        return path

    def wait_printed(self, path: Path, expected: list[str]) -> None:
        def missing() -> list[str]:
            lines = {masked(line.partition(",")[2].partition(" ")[2]) for line in path.read_text().splitlines()}
            return [line for line in expected if line not in lines]

        self.wait_until(lambda: not missing(), lambda: f"{missing()} in {path.read_text()}")

    def end(self, job: int, how: signal.Signals) -> None:
        self.jobs[job - 1].send_signal(how)
        self.jobs[job - 1].wait(TIMEOUT_S)

    @staticmethod
    def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, what()
            time.sleep(0.05)

    def part_the_logs(self) -> None:
        """What the page tells of: each has messages that the other lacks."""
        self.end(2, signal.SIGTERM)
        trio.run(put, self.directory / "a", b"old", 3)
        trio.run(put, self.directory / "b", b"newer", 5)
        self.wait_printed(self.start("b.conf"), [])


async def put(store: Path, body: bytes, count: int) -> None:
    async with open_message_store(store, SIZES) as opened:
        for _ in range(count):
            await opened.puts.put_message(Message("TopicTest", body))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    ports: dict[str, str] = {}
    for shown in (10911, 20911):
        port = free_broker_port()
        ports |= {str(shown + distance): str(port + distance) for distance in (-2, 0, 1)}
    shutil.copytree(GOLDEN, tmp_path / "a")
    shell = Shell(tmp_path, ports)
    try:
        yield shell
    finally:
        for job in shell.jobs:
            job.kill()
            job.wait()


def test_the_page_shows_what_happens(shell: Shell) -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = 0
    for found in re.finditer(
        r"^## (?P<title>[^\n]*)$|^```(?P<kind>\w+)\n(?P<block>.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        if found["title"] == "The old master comes back":
            shell.part_the_logs()
        elif found["kind"] == "properties":
            shell.write(found["block"])
        elif found["kind"] == "console":
            for command in found["block"].removeprefix("$ ").split("\n$ "):
                first, *shown = command.rstrip("\n").split("\n")
                shell.run(first, shown)
                commands += 1
    assert commands == 15
    assert [path.name for path in (shell.directory / "a/cut").iterdir()] == ["00000000000000380417"]
