"""Runs of a store in a process of its own: this project's (`store_process.py`) and RocketMQ's (`java/StoreBench.java`).

Both programs take the same commands and print the same numbers, as one JSON object:

    append DIR BODY_BYTES BATCH MESSAGES WARM_UP   put_cpu_s, dispatch_cpu_s, cpu_s
    fill DIR BODY_BYTES END_OFFSET [FILE_BYTES]    messages, end_offset; then it waits to be killed
    open DIR                                       interpreter_s, started_s, cpu_s, end_offset
    serve DIR FILE_BYTES HA_PORT                   end_offset; then it is a master until it is killed
    follow DIR FILE_BYTES MASTER END_OFFSET        log_s, derived_s, cpu_s; then it is a slave until it is killed
    puts DIR HA_PORT BODY_BYTES IN_FLIGHT MESSAGES WARM_UP   end_offset once warm; then p50_us, p99_us, wall_s, cpu_s

`append` puts WARM_UP messages first and measures MESSAGES: `put_cpu_s` is the CPU time of the thread that puts,
`dispatch_cpu_s` that of filling queues and index, `cpu_s` the process' with its syncs, and with Java's compiler.
`follow` counts from the first byte that arrives, to when the log is whole, and to when queues and index are.
`puts` waits for each answer with IN_FLIGHT under way; as SYNC_MASTER with one slave, or without one if HA_PORT is 0.
`open` counts from before the store's first line to its last service started; `interpreter_s` is what went before.
Every message has a UNIQ_KEY of 32 characters and goes to one of four queues; settings are the defaults.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from tests.bench.java_programs import compile_program, java_version
from tests.bench.measuring import Figure, bare_checkpoint_us, process_cpu_s
from tests.worlds.java_tools import ToolMissing

_RUN_TIMEOUT_S = 900

# What a broker on Java 17 needs, and no log. The compiler and collector are Java's defaults.
_JAVA_FLAGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Xms1g",
    "-Xmx1g",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
)

OURS = "rmq-actors"
OURS_COMMAND = (sys.executable, "-m", "tests.bench.store_process")
ROCKETMQ = "RocketMQ"


@attrs.frozen
class RunningProgram:
    """A process of one of the two."""

    name: str
    _process: subprocess.Popen[str]

    def numbers(self) -> dict[str, float]:
        """What it prints next."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: {self._process.stderr.read()[-4000:]}")
        printed: dict[str, float] = json.loads(line)
        return printed

    def cpu_s(self) -> float:
        """CPU time of all its threads."""
        return process_cpu_s(self._process.pid)


@attrs.frozen
class StoreProgram:
    """One of the two."""

    name: str
    command: Sequence[str]

    def run(self, *arguments: object) -> dict[str, float]:
        """Run a command to its end. To what it printed comes `wall_s`, the whole process' time."""
        began = time.perf_counter()
        done = subprocess.run(
            [*self.command, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUN_TIMEOUT_S,
        )
        wall_s = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{self.name} {arguments}: exit code {done.returncode}\n{done.stderr[-4000:]}")
        printed: dict[str, float] = json.loads(done.stdout)
        return {**printed, "wall_s": wall_s}

    @contextlib.contextmanager
    def running(self, *arguments: object) -> Iterator[RunningProgram]:
        """A command that prints numbers while it runs; killed at the end."""
        with subprocess.Popen(
            [*self.command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield RunningProgram(self.name, process)
            finally:
                process.kill()

    def fill_and_kill(self, directory: Path, body_bytes: int, end_offset: int, *file_bytes: int) -> dict[str, float]:
        """Fill a store until its log ends at `end_offset`, and kill the process (SIGKILL)."""
        command = [*self.command, "fill", str(directory), *map(str, (body_bytes, end_offset, *file_bytes))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                printed = process.stdout.readline()
            finally:
                process.kill()
        if not printed:
            raise RuntimeError(f"{self.name} ended before the store in {directory} was full")
        filled: dict[str, float] = json.loads(printed)
        return filled


@contextlib.contextmanager
def store_programs() -> Iterator[tuple[dict[str, StoreProgram], list[str]]]:
    """The programs by name, RocketMQ's where it can be had; and notes for the report."""
    programs = {OURS: StoreProgram(OURS, OURS_COMMAND)}
    with tempfile.TemporaryDirectory(prefix="store-bench-") as directory:
        try:
            programs[ROCKETMQ] = StoreProgram(ROCKETMQ, compile_program("StoreBench", _JAVA_FLAGS, Path(directory)))
        except ToolMissing as missing:
            yield programs, [f"without RocketMQ: {missing}"]
        else:
            yield programs, [f"RocketMQ: 4.9.7, DefaultMessageStore without a broker, {java_version()}"]


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for stores, removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="store-bench-") as directory:
        yield Path(directory)


def copy_store(source: Path, target: Path) -> None:
    """A copy whose files are sparse where they are empty, in the page cache and on the disk."""
    subprocess.run(["cp", "--archive", "--sparse=always", str(source), str(target)], check=True)
    os.sync()


@attrs.frozen
class Turns:
    """What each case gave, round by round, and the bare checkpoints beside it."""

    values: Mapping[str, Sequence[Mapping[str, float]]]
    checkpoint_us: Mapping[str, Sequence[float]]

    def figure(
        self,
        name: str,
        unit: str,
        case: str,
        value: Callable[[Mapping[str, float]], float],
        *,
        per_second: bool = False,
        goal: str = "",
    ) -> Figure:
        """The figure of one case."""
        values = [value(one) for one in self.values[case]]
        return Figure(name, unit, values, self.checkpoint_us[case], per_second, goal)

    def ratio(self, case: str, other: str, value: Callable[[Mapping[str, float]], float]) -> float:
        """The median of the rounds' ratios: pairs of one round ran on the same busy machine."""
        pairs = zip(self.values[case], self.values[other], strict=True)
        return statistics.median(value(one) / value(two) for one, two in pairs)


def take_turns(cases: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int) -> Turns:
    """Run every case once a round, one after another."""
    values: dict[str, list[Mapping[str, float]]] = {case: [] for case in cases}
    checkpoint_us: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, once in cases.items():
            checkpoint_us[case].append(bare_checkpoint_us())
            values[case].append(once())
    return Turns(values, checkpoint_us)
