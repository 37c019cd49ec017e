"""A server in a child process, started and stopped any number of times over one directory.

The calls block; a Trio test makes them in a worker thread. Nothing waits a fixed time: conditions are polled, with a
generous deadline, because the machine may be slow.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from tests.worlds.java_client import JavaClient, Response

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05
#: Whoever has waited for long asks less often: what is asked may cost as much as what is waited for.
POLLS_PER_WAIT = 50

#: What every server of RocketMQ prints when it is up, and what ours prints for those who wait for it.
UP_MESSAGE = b"boot success"


class ServerFailed(Exception):
    """The process did not do what was waited for; carries the end of its log."""


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until `condition` holds. Raises `TimeoutError` naming `what`."""
    begin_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begin_s
        if waited_s > timeout_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(max(POLL_INTERVAL_S, waited_s / POLLS_PER_WAIT))


@functools.cache
def _port_locks() -> int:
    """A file with a byte for each port: who gives one out keeps its byte locked. It stays open as long as we live."""
    path = Path(tempfile.gettempdir(), f"rmq-actors-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _reserve(ports: range) -> bool:
    """Take ports that neither this process nor another one has taken before. They are never given back."""
    # A lock of a file keeps other processes out, not this one.
    if not _reserved.isdisjoint(ports):
        return False
    try:
        fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports.start)
    except OSError:
        return False
    _reserved.update(ports)
    return True


_reserved: set[int] = set()
_reserving = threading.Lock()


def free_port(*neighbours: int) -> int:
    """A free port; the ports at these distances from it are free, too. No process of these tests is given them again.

    Below the range from which Linux gives ports to outgoing connections, so that none of those takes it meanwhile.
    """
    distances = (0, *neighbours)
    for _ in range(2000):
        port = random.randrange(20_002, 32_000)
        with _reserving:
            if not _reserve(range(port + min(distances), port + max(distances) + 1)):
                continue
        with contextlib.ExitStack() as probes:
            try:
                for distance in distances:
                    probe = probes.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port + distance))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port with free neighbours {neighbours} between 20000 and 32000")


def free_broker_port() -> int:
    """A port for a broker, which listens on p, p + 1 (HA) and p - 2 (fast)."""
    return free_port(-2, 1)


def write_properties(path: Path, properties: Mapping[str, str | int]) -> None:
    """Write a configuration file as RocketMQ reads it."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


@attrs.define(eq=False)
class ServerProcess:
    """One server. `directory` holds what it writes: its files, its log, and what it prints (`console.log`)."""

    directory: Path
    listen_port: int = attrs.field(factory=free_port, kw_only=True)
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    def command(self) -> Sequence[str]:
        """Write the configuration, and return the command line that serves with it."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What the process needs in its environment besides this process's own."""
        return {}

    @property
    def address(self) -> str:
        """Where others connect to."""
        return f"127.0.0.1:{self.listen_port}"

    def call(self, code: int, fields: Mapping[str, object]) -> Response:
        """Send one request on a connection of its own."""
        with JavaClient.connect(self.listen_port) as client:
            return client.call(code, fields)

    @property
    def console(self) -> Path:
        """What the process printed, over all its starts."""
        return self.directory / "console.log"

    def log_files(self) -> Sequence[Path]:
        """Where it writes what it does, there or not."""
        return (self.console,)

    @property
    def log_text(self) -> str:
        """What it printed and logged, over all its starts."""
        return "\n".join(path.read_text(errors="replace") for path in self.log_files() if path.exists())

    @property
    def runs(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The number of the process, which runs."""
        return self._running().pid

    def start(self) -> None:
        """Start the process; return when it says that it is up. Raises `ServerFailed`."""
        if self._process is not None:
            raise RuntimeError(f"the server in {self.directory} runs already")
        command = self.command()
        # A name server that this machine's user has set must not be found.
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        said_before = self._times_up()
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment | dict(self.environment()),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self.wait_until(lambda: self._times_up() > said_before, START_TIMEOUT_S, "it is up")

    def stop(self) -> None:
        """Stop it in order (SIGTERM); return when the process has ended. Does nothing when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (SIGKILL): what it wrote to mapped files stays. Does nothing when it does not run."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Take the processor away from it (SIGSTOP): its connections stay, and it answers nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Poll until `condition` has held once. Raises `ServerFailed` if the process ends before or the time is up."""
        process, holds = self._running(), False

        def holds_or_ended() -> bool:
            nonlocal holds
            has_ended = process.poll() is not None  # asked first: what it did last counts
            holds = condition()
            return holds or has_ended

        try:
            wait_until(holds_or_ended, timeout_s, what)
        except TimeoutError as error:
            raise ServerFailed(f"{error}\n{self.log_end()}") from error
        if not holds:
            self._process = None
            raise ServerFailed(f"exit code {process.returncode} before: {what}\n{self.log_end()}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"the server in {self.directory} does not run")
        return self._process

    def _times_up(self) -> int:
        return self.console.read_bytes().count(UP_MESSAGE) if self.console.exists() else 0

    def log_end(self) -> str:
        """The end of what it printed and logged, for who has waited in vain."""
        return f"the end of the log in {self.directory}:\n{self.log_text[-6000:]}"

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise ServerFailed(f"{how.name} did not end it within {STOP_TIMEOUT_S:g} s\n{self.log_end()}") from error
        finally:
            self._process = None
