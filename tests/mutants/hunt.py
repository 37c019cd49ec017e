"""What `share.py` runs in a process of its own, in a copy of the product: it imports nothing of the tests.

hunt.py lines RUNS [SCENARIO ...]             which lines runs of each scenario execute, by file
hunt.py until-one-fails RUNS [SCENARIO ...]   runs of the scenarios in turn, until one fails
"""

from __future__ import annotations

import json
import logging
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

from rmq_actors.testing.scenarios import SCENARIOS, run_case
from sim_net import many_runs


def until_one_fails(runs: int, names: list[str]) -> dict[str, object]:
    """How many runs there were, which scenario's saw it (nobody: none of them), and how."""
    for number in range(runs):
        name, seed = names[number % len(names)], number // len(names)
        scenario = SCENARIOS[name]
        try:
            result = run_case(scenario.case(seed), scenario)
        except Exception as error:  # noqa: BLE001 - whatever it is: a run must not raise
            return {"runs": number + 1, "seen_by": name, "how": f"seed {seed} raises {type(error).__name__}: {error}"}
        if result.outcome != "passed":
            return {
                "runs": number + 1,
                "seen_by": name,
                "how": f"seed {seed}: {result.outcome}: {result.failure}"[:200],
            }
    return {"runs": runs, "seen_by": "nobody", "how": ""}


def lines(runs: int, names: list[str]) -> dict[str, list[int]]:
    """The lines of each file of the product that are executed, counted from 1."""
    found: dict[str, set[int]] = defaultdict(set)
    root = str(Path.cwd()) + "/"

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(root):
            return None
        seen = found[file.removeprefix(root)]
        seen.add(frame.f_code.co_firstlineno)

        def trace_line(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_lineno:  # code that the compiler has made itself may have none
                seen.add(frame.f_lineno)
            return trace_line

        return trace_line(frame, event, _)

    sys.settrace(trace)
    try:
        for name in names:
            for seed in range(runs):
                run_case(SCENARIOS[name].case(seed), SCENARIOS[name])
    finally:
        sys.settrace(None)
    return {file: sorted(seen) for file, seen in found.items() if file.startswith(("rmq_actors/", "sim_net/"))}


def main() -> None:
    """Print one object of JSON."""
    what, runs, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:] or list(SCENARIOS)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    with many_runs():
        said = {"lines": lines, "until-one-fails": until_one_fails}[what](runs, names)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
