"""Ctrl-C while Java starts, and while Spark works: exit code 130, no Java process left, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_actors.analysis.session import JavaMissing, check_java
from rmq_actors.tracing.spool import TraceWriter
from tests.spark import interrupted_session
from tests.spark.interrupted_session import Told
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


@pytest.fixture(scope="module")
def told() -> Told:
    """By a process whose session an interrupt has left."""
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    command = [sys.executable, "-m", interrupted_session.__name__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return Told(**json.loads(done.stdout))


def test_what_fails_as_an_interrupt_leaves_java_is_not_told(told: Told) -> None:
    assert told.within == ["lost", "lost"]


def test_objects_that_are_let_go_after_an_interrupt_are_not_told_to_the_dead_java(told: Told) -> None:
    assert told.left_by == "KeyboardInterrupt"
    assert told.afterwards == []
    assert told.finalizers == 0


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
