"""Ctrl-C while Java starts, and while Spark works: exit code 130, no Java process left, no traceback."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import FinalizerWorker
from py4j.protocol import Py4JNetworkError

from rmq_actors.analysis.session import JavaMissing, check_java, open_session
from rmq_actors.tracing.spool import TraceWriter
from tests.worlds.interrupted_command import DEADLINE_S, Command, Ended, started
from tests.worlds.trace_story import Story, run_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * DEADLINE_S)]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    with TraceWriter(tmp_path / "traces", "tests", "handmade") as writer:
        writer.write_run(run_of(0), Story().at(0, "", "run.start").events, outcome="passed")
    return tmp_path / "traces"


def interrupted(command: Command) -> Ended:
    ended = command.interrupt()
    assert ended.code == 130, ended.stderr
    assert command.left_over() == []
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended


def test_what_fails_as_an_interrupt_leaves_java_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    by_an_interrupt, by_itself = BrokenPipeError(), BrokenPipeError()
    by_an_interrupt.__context__ = KeyboardInterrupt()
    with open_session():
        for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
            logger.error("interrupted", exc_info=by_an_interrupt)
            logger.error("lost", exc_info=by_itself)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["lost", "lost"]


def test_objects_that_are_let_go_after_an_interrupt_are_not_told_to_the_dead_java(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    held = []
    with pytest.raises(KeyboardInterrupt), open_session() as session:  # noqa: PT012  # an interrupt amid the work
        java: Any = session._jvm
        held = [java.java.lang.Object() for _ in range(50)]  # as every data frame holds some
        held.pop()
        try:
            raise KeyboardInterrupt
        finally:
            # As when Java is asked for something on the way out: the interrupt has reached it, too.
            raise Py4JNetworkError("Answer from Java side is empty")
    held.clear()
    assert [thread for thread in threading.enumerate() if isinstance(thread, FinalizerWorker)] == []
    assert caplog.messages == []


def test_while_java_starts(traces: Path, tmp_path: Path) -> None:
    with started("trace", "report", "--traces", traces, "--out", tmp_path / "out") as command:
        # It is no more than begun: Spark's program has not told yet where it listens.
        command.wait_for(lambda: any("org.apache.spark" in child for child in command.children))
        ended = interrupted(command)
    assert ended.stderr.startswith("rmq-actors trace report: interrupted at: starting Spark (0 of 8); ")


def test_while_spark_works(traces: Path, tmp_path: Path) -> None:
    with started("trace", "analyze", "--traces", traces, "--out", tmp_path / "out") as command:
        command.wait_for((tmp_path / "out" / "tables").exists)
        ended = interrupted(command)
    assert ended.stderr.startswith("rmq-actors trace analyze: interrupted at: run_summary (2 of 8); ")
