"""Starting a store in an empty directory, beside RocketMQ's own. `python -m tests.bench.store_startup --help`.

Wall time in ms: from the store's first line to its last service started, and of the whole process with its interpreter.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tests.bench.measuring import arguments, report
from tests.bench.store_runs import OURS, ROCKETMQ, StoreProgram, scratch_directory, store_programs, take_turns

MEASURES = {"store": "started_s", "whole process": "wall_s"}


def run(program: StoreProgram) -> Mapping[str, float]:
    """One start."""
    with scratch_directory() as directory:
        return program.run("open", directory)


def took_us(measure: str, run: Mapping[str, float]) -> float:
    """Microseconds."""
    return run[MEASURES[measure]] * 1e6


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=9)
    with store_programs() as (programs, notes):
        turns = take_turns(
            {name: functools.partial(run, program) for name, program in programs.items()}, options.rounds
        )
    figures = [
        turns.figure(f"{measure}, {name}", "us", name, functools.partial(took_us, measure))
        for measure in MEASURES
        for name in programs
    ]
    if ROCKETMQ in programs:
        notes += [
            f"{measure}: {turns.ratio(OURS, ROCKETMQ, functools.partial(took_us, measure)):.2f} of RocketMQ's time"
            for measure in MEASURES
        ]
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
