"""What `share.py` runs in a process of its own, in a copy of the product: it imports nothing of the tests.

hunt.py executed RUNS [SCENARIO ...]          which of the lines on standard input each run executes
hunt.py until-one-fails RUNS [SCENARIO ...]   of the runs on standard input, one after the other, until one fails

The runs are numbered: one of each scenario in turn, seed by seed.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import SCENARIOS, run_case
from sim_net import many_runs


def _case(number: int, names: list[str]) -> tuple[Scenario, int]:
    return SCENARIOS[names[number % len(names)]], number // len(names)


def until_one_fails(_: int, names: list[str]) -> dict[str, object]:
    """How many runs there were, which scenario's saw it (nobody: none of them), and how."""
    numbers: list[int] = json.load(sys.stdin)
    for count, number in enumerate(numbers, 1):
        scenario, seed = _case(number, names)
        try:
            result = run_case(scenario.case(seed), scenario)
        except Exception as error:  # noqa: BLE001 - whatever it is: a run must not raise
            how = f"seed {seed} raises {type(error).__name__}: {error}"
            return {"number": number, "runs": count, "seen_by": scenario.name, "how": how}
        if result.outcome != "passed":
            how = f"seed {seed}: {result.outcome}: {result.failure}"
            return {"number": number, "runs": count, "seen_by": scenario.name, "how": how[:200]}
    return {"number": -1, "runs": len(numbers), "seen_by": "nobody", "how": ""}


def executed(runs: int, names: list[str]) -> list[list[str]]:
    """For each run, by number, which of the lines are executed, as FILE:LINE."""
    wanted: dict[str, list[int]] = json.load(sys.stdin)
    root = str(Path.cwd()) + "/"
    lines = {root + file: frozenset(numbers) for file, numbers in wanted.items()}
    of_code: dict[CodeType, frozenset[int]] = {}
    found: set[str] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        interesting = of_code.get(code)
        if interesting is None:
            own = {line for _, _, line in code.co_lines() if line}
            interesting = of_code[code] = lines.get(code.co_filename, frozenset()) & own
        if not interesting:
            return None

        def trace_line(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_lineno in interesting:
                found.add(f"{code.co_filename.removeprefix(root)}:{frame.f_lineno}")
            return trace_line

        return trace_line(frame, event, _)

    each_run = []
    for number in range(runs):
        scenario, seed = _case(number, names)
        found.clear()
        sys.settrace(trace)
        try:
            run_case(scenario.case(seed), scenario)
        finally:
            sys.settrace(None)
        each_run.append(sorted(found))
    return each_run


def main() -> None:
    """Print one value of JSON."""
    what, runs, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:] or list(SCENARIOS)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    commands: dict[str, Callable[[int, list[str]], object]] = {"executed": executed, "until-one-fails": until_one_fails}
    with many_runs():
        said = commands[what](runs, names)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
