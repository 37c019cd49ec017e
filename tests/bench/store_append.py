"""Appending to the log, and filling queues and index from it: messages a CPU second, beside RocketMQ's own store.

`python -m tests.bench.store_append --help`. What each number is: `store_runs.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import attrs

from tests.bench.measuring import arguments, report
from tests.bench.store_runs import OURS, ROCKETMQ, StoreProgram, scratch_directory, store_programs, take_turns

MESSAGES = 200_064
WARM_UP = 100_032


@attrs.frozen
class Shape:
    """What is put."""

    name: str
    body_bytes: int
    batch: int


SHAPES = (Shape("128 B", 128, 1), Shape("1 KiB", 1024, 1), Shape("32 x 1 KiB", 1024, 32))
PHASES = {"append": "put_cpu_s", "dispatch": "dispatch_cpu_s", "whole process": "cpu_s"}


def run(program: StoreProgram, shape: Shape) -> Mapping[str, float]:
    """One process with a store of its own."""
    with scratch_directory() as directory:
        return program.run("append", directory, shape.body_bytes, shape.batch, MESSAGES, WARM_UP)


def rate(phase: str, run: Mapping[str, float]) -> float:
    """Messages a CPU second."""
    return MESSAGES / run[PHASES[phase]]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    with store_programs() as (programs, notes):
        cases = {
            f"{shape.name}, {name}": functools.partial(run, program, shape)
            for shape in SHAPES
            for name, program in programs.items()
        }
        turns = take_turns(cases, options.rounds)
    figures = [
        turns.figure(f"{phase}, {case}", "messages / CPU s", case, functools.partial(rate, phase), per_second=True)
        for case in cases
        for phase in PHASES
    ]
    if ROCKETMQ in programs:
        for shape in SHAPES:
            ours, theirs = f"{shape.name}, {OURS}", f"{shape.name}, {ROCKETMQ}"
            ratios = {phase: turns.ratio(ours, theirs, functools.partial(rate, phase)) for phase in PHASES}
            text = ", ".join(f"{phase} {ratio:.2f}" for phase, ratio in ratios.items())
            notes.append(f"{shape.name}, times RocketMQ's rate (median of pairs): {text}")
    notes.append(f"{MESSAGES:,} messages a run, {WARM_UP:,} before them unmeasured")
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
