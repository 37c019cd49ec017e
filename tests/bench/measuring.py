"""What every benchmark shares: CPU time over several rounds, a bare Trio checkpoint to compare with, and the table.

A figure is a minimum, a median and a maximum, because machines are noisy; CPU seconds, because they are shared. The
bare checkpoint of the same run says how fast the machine was just then: multiples of it compare across machines.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import rich.console
import rich.table
import trio

_CHECKPOINTS = 20_000
_COLUMNS = 110


@attrs.frozen
class Figure:
    """One thing measured: its name, its unit, and one value a round. `checkpoint_us` are the rounds' bare checkpoints.

    `per_second`: values are a rate, and not microseconds; a multiple of checkpoints is then that of one unit's time.
    """

    name: str
    unit: str
    values: Sequence[float]
    checkpoint_us: Sequence[float]
    per_second: bool = False
    goal: str = ""

    @property
    def checkpoints(self) -> float:
        """The median cost in bare Trio checkpoints."""
        costs_us = [1e6 / value if self.per_second else value for value in self.values]
        return statistics.median(cost / bare for cost, bare in zip(costs_us, self.checkpoint_us, strict=True))


def bare_checkpoint_us() -> float:
    """CPU time of one checkpoint in a bare `trio.run`, in microseconds."""

    async def main() -> None:
        for _ in range(_CHECKPOINTS):
            await trio.lowlevel.checkpoint()

    began = time.process_time()
    trio.run(main)
    return (time.process_time() - began) / _CHECKPOINTS * 1e6


def measure(
    name: str, unit: str, once: Callable[[], float], *, rounds: int, per_second: bool = False, goal: str = ""
) -> Figure:
    """Call `once`, which returns its value, `rounds` times beside a bare checkpoint, and once before for nothing."""
    once()
    values, checkpoint_us = [], []
    for _ in range(rounds):
        checkpoint_us.append(bare_checkpoint_us())
        values.append(once())
    return Figure(name, unit, values, checkpoint_us, per_second, goal)


def process_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process: its CPU-time clock, as clock_getcpuclockid(3) names it on Linux."""
    return time.clock_gettime(~pid << 3 | 2)


def hardware() -> str:
    """What this ran on, in one line."""
    return f"{os.cpu_count()} x {_cpu_model()}, Python {platform.python_version()}, trio {trio.__version__}"


def report(figures: Sequence[Figure], *, notes: Sequence[str], as_json: bool) -> None:
    """Print the figures as a table, or as one JSON object."""
    if as_json:
        rows = [{**attrs.asdict(figure), "checkpoints": figure.checkpoints} for figure in figures]
        sys.stdout.write(json.dumps({"hardware": hardware(), "notes": list(notes), "figures": rows}, indent=1) + "\n")
        return
    table = rich.table.Table(title=hardware())
    for column in ("", "unit", "min", "median", "max", "x bare checkpoint", "goal"):
        table.add_column(column, justify="left" if column in {"", "unit", "goal"} else "right")
    for figure in figures:
        spread = (min(figure.values), statistics.median(figure.values), max(figure.values))
        table.add_row(
            figure.name, figure.unit, *(f"{value:,.4g}" for value in spread), f"{figure.checkpoints:,.3g}", figure.goal
        )
    console = rich.console.Console(width=_COLUMNS)
    console.print(table)
    for note in notes:
        console.print(note)


def arguments(description: str | None, *, rounds: int) -> argparse.Namespace:
    """The command line that all benchmarks have: `--rounds`, `--json`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds a figure (default {rounds})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
