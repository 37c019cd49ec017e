"""A Spark session for one machine: quiet, small, and on loopback only.

Java is looked for before Spark is: without it PySpark fails late and says little.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[2]"
JAVA_NEEDED = 17

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
DRIVER_MEMORY = "1500m"
_NOTE_CHARACTERS_MAX = 4000
_SHUFFLE_PARTITIONS = 4
_JAVA_TIMEOUT_S = 30
#: Where Py4J tells of an interrupt: a filter sees only what its own logger is told.
_PY4J_LOGGERS = (logging.getLogger(), logging.getLogger("py4j.clientserver"))
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(RuntimeError):
    """There is no Java, or it is too old. The message says what was found where."""


class SparkNotStarted(RuntimeError):
    """Spark did not start: a master URL that it does not know, a port, memory."""


def check_java() -> str:
    """The `java` that Spark will use: that of JAVA_HOME if it is set, else that on PATH. Raises `JavaMissing`."""
    needed = f"Java {JAVA_NEEDED} or later is needed for the analysis"
    home = os.environ.get("JAVA_HOME")
    if home:
        command, found = str(Path(home) / "bin" / "java"), Path(home, "bin", "java").is_file()
        where = f"JAVA_HOME={home}"
    else:
        command, found = "java", shutil.which("java") is not None
        where = "PATH"
    if not found:
        raise JavaMissing(f"{needed}: {where} has no java")
    try:
        printed = subprocess.run(
            [command, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{needed}: {where}: {error}") from error
    version = _JAVA_VERSION.search(printed)
    if version is None:
        raise JavaMissing(f"{needed}: {where}: `java -version` said {printed.strip()!r}")
    if int(version[1]) < JAVA_NEEDED:
        raise JavaMissing(f"{needed}: {where} has Java {version[1]}")
    return command


@contextlib.contextmanager
def open_session(
    master: str = DEFAULT_MASTER, *, driver_memory: str = DRIVER_MEMORY, short: bool = True
) -> Iterator[SparkSession]:
    """A session, stopped at the end. Its scratch files live in a directory of their own and go with it.

    `short`: the work takes seconds, so Java compiles quickly instead of well; measured, it halves the CPU time of 100
    runs. What Spark prints is kept from the terminal, and added as a note to an exception that leaves the session.
    Raises `JavaMissing`, `SparkNotStarted`.
    """
    check_java()
    with tempfile.TemporaryDirectory(prefix="rmq-actors-spark-") as scratch:
        printed = Path(scratch, "stderr.txt")
        session = None
        quiet = _QuietAfterInterrupt()
        for logger in _PY4J_LOGGERS:
            logger.addFilter(quiet)
        try:
            with _interrupt_afterwards():
                session = _start(_settings(master, driver_memory, scratch, short=short), printed)
            yield session
        except BaseException as error:
            if _comes_of_an_interrupt(error):
                # An answer of Java's may have been read in part: nothing can be asked of it any more, not even to stop.
                session = None
                quiet.java_is_killed = True
                _kill_java()
                if not isinstance(error, KeyboardInterrupt):
                    # Something did ask Java on the way out, and had no answer: the interrupt had reached it, too.
                    raise KeyboardInterrupt from error
            elif session is not None and isinstance(error, Exception):
                _add_note(error, printed)
            raise
        finally:
            for logger in _PY4J_LOGGERS:
                logger.removeFilter(quiet)
            if session is not None:
                session.stop()


class _QuietAfterInterrupt(logging.Filter):
    """Py4J logs where an interrupt has met it, and what fails as it then leaves Java; the interrupt it raises again."""

    def __init__(self) -> None:
        super().__init__()
        self.java_is_killed = False

    def filter(self, record: logging.LogRecord) -> bool:
        """No record of an error that an interrupt led to, in this thread or in the one that lets Java's objects go."""
        error = record.exc_info[1] if record.exc_info else None
        if self.java_is_killed and isinstance(error, Py4JNetworkError):
            return False
        return not _comes_of_an_interrupt(error)


def _comes_of_an_interrupt(error: BaseException | None) -> bool:
    """Whether it is KeyboardInterrupt, or was raised while that was on its way out."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextlib.contextmanager
def _interrupt_afterwards() -> Iterator[None]:
    """Hold SIGINT back until the block has ended: a Java process whose start is interrupted would outlive this one.

    Spark puts a handler of its own in its place, which talks to Java in the midst of an answer: that one is taken away.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    came = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN if before is signal.SIG_IGN else note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


def _kill_java() -> None:
    gateway = SparkContext._gateway  # noqa: SLF001  # there is no public way to ask
    if gateway is not None:
        client = gateway._gateway_client  # noqa: SLF001
        # A thread of Py4J's tells Java of each object that is let go: it would tell a dead process, and log that.
        client.is_connected = False
        client.finalizer_deque.append(SHUTDOWN_FINALIZER_WORKER)
        process: subprocess.Popen[bytes] = gateway.proc
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        for thread in threading.enumerate():
            if isinstance(thread, FinalizerWorker) and thread.deque is client.finalizer_deque:
                thread.join(_JAVA_TIMEOUT_S)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _settings(master: str, driver_memory: str, scratch: str, *, short: bool) -> SparkConf:
    java_options = [
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        *(("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if short else ()),
    ]
    settings = {
        "spark.master": master,
        "spark.app.name": "rmq-actors trace",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        # A damaged file must fail the job: ignoring it loses runs without a word.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _start(settings: SparkConf, printed: Path) -> SparkSession:
    # Spark resolves the host's name before it reads its settings; a container's name often has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        # A Java process that an earlier session of this process started is used again.
        if SparkContext._gateway is None:  # noqa: SLF001  # there is no public way to ask
            with printed.open("wb") as stderr:
                gateway = launch_gateway(settings, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
            context = SparkContext(gateway=gateway, conf=settings)
        else:
            context = SparkContext(conf=settings)
        return SparkSession(context)
    except Exception as error:
        failed = SparkNotStarted(f"Spark did not start with master {settings.get('spark.master')!r}: {_reason(error)}")
        _add_note(failed, printed)
        raise failed from error


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage())
    return (str(error).strip().splitlines() or [repr(error)])[0]


def _add_note(error: Exception, printed: Path) -> None:
    text = printed.read_text(errors="replace").strip() if printed.exists() else ""
    if text:
        error.add_note(f"Spark printed:\n{text[-_NOTE_CHARACTERS_MAX:]}")
