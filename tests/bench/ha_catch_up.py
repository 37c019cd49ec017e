"""A slave that catches up on loopback, beside RocketMQ's own. `python -m tests.bench.ha_catch_up --help`.

Master and slave are a process each, with default settings but for one commit-log file, as RocketMQ's master sends a new
slave its last file only. The log is in the page cache. Needs 8 GiB under TMPDIR.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.measuring import arguments, report
from tests.bench.store_runs import OURS, ROCKETMQ, StoreProgram, scratch_directory, store_programs, take_turns
from tests.interop.server_process import free_broker_port

#: Java maps a file with 32-bit sizes.
FILE_BYTES = 2**31 - 4096
LOG_BYTES = FILE_BYTES - 64 * 1024
BODY_BYTES = 1024 - 91 - 10 - 41
GOAL = 8.0


@contextlib.contextmanager
def _running(program: StoreProgram, *command: object) -> Iterator[tuple[subprocess.Popen[str], Mapping[str, float]]]:
    """The process once it has printed its numbers; killed at the end."""
    with subprocess.Popen(
        [*program.command, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                assert process.stderr is not None
                raise RuntimeError(f"{program.name} {command}: {process.stderr.read()[-4000:]}")
            yield process, json.loads(line)
        finally:
            process.kill()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def catch_up(program: StoreProgram, source: Path) -> Mapping[str, float]:
    """One slave that starts empty."""
    target = source.with_name("slave")
    port = free_broker_port()
    try:
        with _running(program, "serve", source, FILE_BYTES, port) as (master, served):
            cpu_began = _cpu_s(master.pid)
            end_offset = int(served["end_offset"])
            with _running(program, "follow", target, FILE_BYTES, f"127.0.0.1:{port}", end_offset) as (_, followed):
                return {**followed, "bytes": end_offset, "master_cpu_s": _cpu_s(master.pid) - cpu_began}
    finally:
        shutil.rmtree(target, ignore_errors=True)


def log_mb_per_s(run: Mapping[str, float]) -> float:
    """Megabytes of log a second."""
    return run["bytes"] / run["log_s"] / 1e6


def main() -> None:
    """Measure and print."""
    options: argparse.Namespace = arguments(__doc__, rounds=5)
    with store_programs() as (programs, notes), scratch_directory() as directory:
        cases = {}
        for name, program in programs.items():
            store = directory / name.replace(" ", "-")
            program.fill_and_kill(store, BODY_BYTES, LOG_BYTES, FILE_BYTES)
            cases[name] = functools.partial(catch_up, program, store)
        turns = take_turns(cases, options.rounds)
    figures = []
    for case in cases:
        figures += [
            turns.figure(f"{case}: log", "MB/s", case, log_mb_per_s, per_second=True),
            turns.figure(f"{case}: queues and index ready after", "s", case, lambda run: run["derived_s"]),
            turns.figure(f"{case}: slave", "CPU s/GB", case, lambda run: run["cpu_s"] / run["bytes"] * 1e9),
            turns.figure(f"{case}: master", "CPU s/GB", case, lambda run: run["master_cpu_s"] / run["bytes"] * 1e9),
        ]
    if ROCKETMQ in programs:
        ratio = turns.ratio(OURS, ROCKETMQ, log_mb_per_s)
        notes.append(f"log: {ratio:.2f} times RocketMQ's MB/s, median of pairs (goal: {GOAL})")
        ratio = turns.ratio(OURS, ROCKETMQ, lambda run: run["derived_s"])
        notes.append(f"queues and index: ready after {ratio:.2f} of RocketMQ's time, median of pairs (goal: 1)")
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
