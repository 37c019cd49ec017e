"""A real RocketMQ 4.9.7 broker in a child process: an unmodified jar, a configuration file, a directory of its own.

The calls block; a Trio test makes them in a worker thread. Nothing waits a fixed time: conditions are polled, with a
generous deadline, because the machine may be slow.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

from tests.interop.java_client import JavaClient, Response

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
REPLICATION_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05

#: Bytes of a commit-log file, unless a broker is told otherwise.
MAPPED_FILE_SIZE = 262144

# Without the first two the shutdown hook dies on Java 17, and `abort` stays. With the disk ratio a nearly full disk
# does not stop the broker: that is not what is tested. For TLS, which nobody here speaks, it would make keys for
# seconds.
JAVA_FLAGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Xms256m",
    "-Xmx512m",
    "-Xmn128m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:TieredStopAtLevel=1",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.client.logUseSlf4j=true",
    "-Dtls.server.mode=disabled",
)

# Without this file the broker exits at once.
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} [%thread] %msg%n</pattern></encoder>
  </appender>
  <logger name="RocketmqWaterMark" level="WARN"/>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class BrokerFailed(Exception):
    """The process did not do what was waited for; carries the end of its log."""


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until `condition` holds. Raises `TimeoutError` naming `what`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_INTERVAL_S)


def free_broker_port() -> int:
    """A port whose neighbours are free too: a broker listens on p, p + 1 (HA) and p - 2 (fast).

    Below the range from which Linux gives ports to outgoing connections, so that none of those takes it meanwhile.
    """
    for _ in range(200):
        port = random.randrange(20_002, 32_000)
        with contextlib.ExitStack() as probes:
            try:
                for candidate in (port - 2, port, port + 1):
                    probe = probes.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", candidate))
            except OSError:
                continue
            return port
    raise RuntimeError("no three free ports for a broker between 20000 and 32000")


@attrs.define(eq=False)
class JavaBroker:
    """One broker: `directory` holds its store, its configuration and its log, over any number of starts.

    `properties` go into broker.conf, over the defaults of `default_properties`.
    """

    directory: Path
    java: str
    classpath: str
    properties: Mapping[str, str | int] = attrs.field(factory=dict)
    listen_port: int = attrs.field(factory=free_broker_port)
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    @property
    def store(self) -> Path:
        """The store directory (storePathRootDir)."""
        return self.directory / "store"

    @property
    def ha_address(self) -> str:
        """Where slaves connect to."""
        return f"127.0.0.1:{self.listen_port + 1}"

    @property
    def console(self) -> Path:
        """What the process printed, over all its starts."""
        return self.directory / "console.log"

    @property
    def log_text(self) -> str:
        """What it printed and logged, over all its starts."""
        return "\n".join(
            path.read_text(errors="replace") for path in (self.console, self.directory / "broker.log") if path.exists()
        )

    def stopped_in_order(self) -> bool:
        """Whether the store is clean: no process, and the `abort` file is gone."""
        return self._process is None and self.store.is_dir() and not (self.store / "abort").exists()

    def default_properties(self) -> dict[str, str | int]:
        """The configuration before `properties`. There is no namesrvAddr key: the broker knows no name server."""
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.listen_port,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "mappedFileSizeCommitLog": MAPPED_FILE_SIZE,
            "mappedFileSizeConsumeQueue": 2000,
            "maxHashSlotNum": 500,
            "maxIndexNum": 2000,
            "diskMaxUsedSpaceRatio": 95,
        }

    def start(self) -> None:
        """Start the process; return when it says that it is up. Raises `BrokerFailed`."""
        if self._process is not None:
            raise RuntimeError(f"the broker in {self.directory} runs already")
        configuration = self._write_configuration()
        own = [f"-Duser.home={self.directory}", f"-Djava.io.tmpdir={self.directory}"]
        command = [self.java, *JAVA_FLAGS, *own, "-cp", self.classpath]
        command += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(configuration)]
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        environment["ROCKETMQ_HOME"] = str(self.directory)
        said_before = self._times_up()
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self.wait_until(lambda: self._times_up() > said_before, START_TIMEOUT_S, "it is up")

    def stop(self) -> None:
        """Stop it in order (SIGTERM); return when the process has ended. Does nothing when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (SIGKILL): what it wrote to mapped files stays, `abort` too. Does nothing when it does not run."""
        self._end(signal.SIGKILL)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Poll until `condition` holds. Raises `BrokerFailed` if the process ends meanwhile or the time is up."""
        process = self._process
        if process is None:
            raise RuntimeError(f"the broker in {self.directory} does not run")

        def holds_or_ended() -> bool:
            return condition() or process.poll() is not None

        try:
            wait_until(holds_or_ended, timeout_s, what)
        except TimeoutError as error:
            raise BrokerFailed(f"{error}\n{self._log_end()}") from error
        if not condition():
            self._process = None
            raise BrokerFailed(f"exit code {process.returncode} before: {what}\n{self._log_end()}")

    def send(self, topic: str, body: bytes, *, queue_id: int = 0, properties: str = "") -> Response:
        """Put one message by RocketMQ's own request (SEND_MESSAGE_V2) and return the response."""
        with JavaClient.connect(self.listen_port) as client:
            return client.send_message(topic, body, queue_id=queue_id, properties=properties)

    def declare_topics(self, queues: Mapping[str, int]) -> None:
        """Write topics.json: a broker lets consumers pull from no topic that is not there. Before the first start."""
        table = {
            topic: {
                "topicName": topic,
                "readQueueNums": count,
                "writeQueueNums": count,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            for topic, count in queues.items()
        }
        path = self.store / "config" / "topics.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table}))

    def _write_configuration(self) -> Path:
        (self.directory / "conf").mkdir(parents=True, exist_ok=True)
        (self.directory / "conf" / "logback_broker.xml").write_text(LOGBACK.format(log=self.directory / "broker.log"))
        path = self.directory / "broker.conf"
        lines = itertools.starmap("{}={}\n".format, (self.default_properties() | dict(self.properties)).items())
        path.write_text("".join(lines))
        return path

    def _times_up(self) -> int:
        return self.console.read_bytes().count(b"boot success") if self.console.exists() else 0

    def _log_end(self) -> str:
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
            raise BrokerFailed(f"{how.name} did not end it within {STOP_TIMEOUT_S:g} s\n{self._log_end()}") from error
        finally:
            self._process = None


def commit_log_files(store: Path) -> dict[int, bytes]:
    """Each commit-log file that holds anything, by its start offset.

    A running broker allocates the next files ahead of time: those are all zeros, and left out.
    """
    return dict(_written_files(store / "commitlog"))


def _written_files(directory: Path) -> Iterator[tuple[int, bytes]]:
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        data = path.read_bytes()
        if data.strip(b"\0"):
            yield int(path.name), data
