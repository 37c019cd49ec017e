"""A server of the real RocketMQ: an unmodified jar in a Java process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from tests.worlds.server_process import ServerProcess, write_properties

# Without the first two the shutdown hook dies on Java 17, and `abort` stays. With the disk ratio a nearly full disk
# does not stop the broker: that is not what is tested. A slow machine may take longer than 3 s to connect. For TLS it
# would make keys for seconds.
JAVA_FLAGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Xms256m",
    "-Xmx512m",
    "-Xmn128m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:TieredStopAtLevel=1",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Dcom.rocketmq.remoting.client.connect.timeout=60000",
    "-Drocketmq.client.logUseSlf4j=true",
    "-Dtls.server.mode=disabled",
)

# Without this file a 4.9 server exits at once.
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} [%thread] %msg%n</pattern></encoder>
  </appender>
  <logger name="RocketmqWaterMark" level="WARN"/>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


@attrs.frozen
class JavaRuntime:
    """What it takes to start a process: a `java`, and the class path of one RocketMQ."""

    java: str
    classpath: str


@attrs.define(eq=False)
class JavaProcess(ServerProcess):
    """A RocketMQ server; `directory` is its home and its user's home. `java_options` go after `java_flags`."""

    runtime: JavaRuntime
    properties: Mapping[str, str | int] = attrs.field(factory=dict)
    java_options: Sequence[str] = attrs.field(default=(), kw_only=True)
    java_flags: Sequence[str] = attrs.field(default=JAVA_FLAGS, kw_only=True)

    main_class: ClassVar[str]
    #: `broker` or `namesrv`: what names its configuration and log files.
    kind: ClassVar[str]

    def default_properties(self) -> Mapping[str, str | int]:
        """The configuration before `properties`."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {"ROCKETMQ_HOME": str(self.directory)}

    def log_files(self) -> Sequence[Path]:
        # RocketMQ 5 brings its logging configuration along, and logs under its user's home.
        log = f"{self.kind}.log"
        return (self.console, self.directory / log, self.directory / "logs" / "rocketmqlogs" / log)

    def command(self) -> Sequence[str]:
        write_logback(self.directory, self.kind)
        configuration = self.directory / f"{self.kind}.conf"
        write_properties(configuration, {**self.default_properties(), **self.properties})
        own = (f"-Duser.home={self.directory}", f"-Djava.io.tmpdir={self.directory}", *self.java_options)
        java = (self.runtime.java, *self.java_flags, *own, "-cp", self.runtime.classpath)
        return (*java, self.main_class, "-c", str(configuration))


def write_logback(directory: Path, kind: str) -> None:
    """Write the logging configuration that a 4.9 program wants under its home; it then logs to `kind`.log."""
    (directory / "conf").mkdir(parents=True, exist_ok=True)
    (directory / "conf" / f"logback_{kind}.xml").write_text(LOGBACK.format(log=directory / f"{kind}.log"))
