"""Opening a store of 2 GiB after kill -9, beside RocketMQ's own. `python -m tests.bench.store_recovery --help`.

Each opens what its own process left, and this project's opens RocketMQ's as well. Wall time from the store's first
line to its last service started, interpreters excluded, on a fresh copy in the page cache. Needs 8 GiB under TMPDIR.
"""

from __future__ import annotations

import argparse
import functools
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.bench.measuring import arguments, report
from tests.bench.store_runs import (
    OURS,
    ROCKETMQ,
    StoreProgram,
    copy_store,
    scratch_directory,
    store_programs,
    take_turns,
)

STORE_BYTES = 2 * 1024**3
#: A record of 1 KiB: 91 bytes, 10 of the topic, 41 of the UNIQ_KEY, and the body.
BODY_BYTES = 1024 - 91 - 10 - 41
#: Of RocketMQ's time, by whose directory it is.
GOALS = {OURS: 0.2, ROCKETMQ: 0.8}


def open_copy(program: StoreProgram, source: Path) -> Mapping[str, float]:
    """Open a copy of a store."""
    copy = source.with_name("copy")
    copy_store(source, copy)
    try:
        return program.run("open", copy)
    finally:
        shutil.rmtree(copy)


def took_us(run: Mapping[str, float]) -> float:
    """Wall time in microseconds."""
    return run["started_s"] * 1e6


def cpu_us(run: Mapping[str, float]) -> float:
    """CPU time in microseconds."""
    return run["cpu_s"] * 1e6


def main() -> None:
    """Measure and print."""
    options: argparse.Namespace = arguments(__doc__, rounds=5)
    with store_programs() as (programs, notes), scratch_directory() as directory:
        cases = {}
        for name, program in programs.items():
            store = directory / name.replace(" ", "-")
            filled = program.fill_and_kill(store, BODY_BYTES, STORE_BYTES)
            notes.append(f"{name} left {filled['messages']:,.0f} messages, {filled['end_offset']:,.0f} bytes of log")
            cases[f"{name} opens its own"] = functools.partial(open_copy, program, store)
            if name == ROCKETMQ:
                cases[f"{OURS} opens RocketMQ's"] = functools.partial(open_copy, programs[OURS], store)
        turns = take_turns(cases, options.rounds)
    figures = [
        turns.figure(f"{case}{suffix}", unit, case, value)
        for case in cases
        for suffix, unit, value in (("", "us", took_us), (", CPU", "CPU us", cpu_us))
    ]
    if ROCKETMQ in programs:
        for case, goal in ((f"{OURS} opens its own", GOALS[OURS]), (f"{OURS} opens RocketMQ's", GOALS[ROCKETMQ])):
            ratio = turns.ratio(case, f"{ROCKETMQ} opens its own", took_us)
            notes.append(f"{case}: {ratio:.3f} of RocketMQ's time, median of pairs (goal: {goal})")
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
