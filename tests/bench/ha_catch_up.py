"""A slave that catches up on loopback, beside RocketMQ's own. `python -m tests.bench.ha_catch_up --help`.

Master and slave are a process each, with default settings but for one commit-log file, as RocketMQ's master sends a new
slave its last file only. The log is in the page cache. Needs 8 GiB under TMPDIR, and 4 GiB of free memory.

In the same rounds two bare sockets send the same bytes into a fresh file, without frames, records or queues: the floor.
Before each turn as much memory as it takes is used and given back: the first use of a page costs a virtual machine
whose host takes free memory back more than all else here.
"""

from __future__ import annotations

import argparse
import functools
import mmap
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.measuring import arguments, report
from tests.bench.store_runs import OURS, ROCKETMQ, StoreProgram, scratch_directory, store_programs, take_turns
from tests.worlds.server_process import free_broker_port

#: Java maps a file with 32-bit sizes.
FILE_BYTES = 2**31 - 4096
LOG_BYTES = FILE_BYTES - 64 * 1024
BODY_BYTES = 1024 - 91 - 10 - 41
GOAL = 8.0
FLOOR = "bare sockets"
_FLOOR_PROGRAM = StoreProgram(FLOOR, (sys.executable, "-m", "tests.bench.bare_transfer"))
#: A log, its queues and index, and what the processes take.
_TURN_BYTES = 3 * 1024**3


def catch_up(program: StoreProgram, source: Path) -> Mapping[str, float]:
    """One slave that starts empty."""
    use_memory(_TURN_BYTES)
    target = source.with_name("slave")
    port = free_broker_port()
    try:
        with program.running("serve", source, FILE_BYTES, port) as master:
            end_offset = int(master.numbers()["end_offset"])
            cpu_began = master.cpu_s()
            with program.running("follow", target, FILE_BYTES, f"127.0.0.1:{port}", end_offset) as slave:
                followed = slave.numbers()
                return {**followed, "bytes": end_offset, "master_cpu_s": master.cpu_s() - cpu_began}
    finally:
        shutil.rmtree(target, ignore_errors=True)


def use_memory(size: int) -> None:
    """Write to every page of so much memory, and give it back."""
    chunk = bytes(1024 * 1024)
    with mmap.mmap(-1, size) as memory:
        for begin in range(0, size, len(chunk)):
            memory[begin : begin + len(chunk)] = chunk


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
        cases[FLOOR] = functools.partial(catch_up, _FLOOR_PROGRAM, directory / OURS)
        turns = take_turns(cases, options.rounds)
    figures = []
    for case in cases:
        figures += [
            turns.figure(f"{case}: log", "MB/s", case, log_mb_per_s, per_second=True),
            turns.figure(f"{case}: log whole after", "s", case, lambda run: run["log_s"]),
        ]
        if case != FLOOR:
            figures.append(
                turns.figure(f"{case}: queues and index ready after", "s", case, lambda run: run["derived_s"])
            )
        figures += [
            turns.figure(f"{case}: slave", "CPU s/GB", case, lambda run: run["cpu_s"] / run["bytes"] * 1e9),
            turns.figure(f"{case}: master", "CPU s/GB", case, lambda run: run["master_cpu_s"] / run["bytes"] * 1e9),
        ]
    ratio = turns.ratio(OURS, FLOOR, log_mb_per_s)
    notes.append(f"log: {ratio:.2f} times the MB/s of {FLOOR}, median of pairs: 1 is all that this machine gives")
    if ROCKETMQ in programs:
        ratio = turns.ratio(OURS, ROCKETMQ, log_mb_per_s)
        notes.append(f"log: {ratio:.2f} times RocketMQ's MB/s, median of pairs (goal: {GOAL})")
        ratio = turns.ratio(OURS, ROCKETMQ, lambda run: run["derived_s"])
        notes.append(f"queues and index: ready after {ratio:.2f} of RocketMQ's time, median of pairs (goal: 1)")
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
