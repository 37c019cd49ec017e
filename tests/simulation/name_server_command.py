"""The random runs of `name_server_chaos` as a command.

python -m tests.simulation.name_server_command run A:B      the seeds from A to B - 1
python -m tests.simulation.name_server_command digest A:B   one line a run: seed, digest, number of events
python -m tests.simulation.name_server_command replay CASE  a case that was kept, by its file; prints its events
python -m tests.simulation.name_server_command shrink CASE  a smaller one that fails too, as JSON
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim_net.search.search import Case, shrink
from tests.simulation.name_server_chaos import SCENARIO, Result, is_runnable, random_case, run_case

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "out" / "failures"
_SHRINK_RUNS_MAX = 300


def keep(result: Result, directory: Path = FAILURES) -> str:
    """Write a failing run's case to a file; what failed, and the command that replays it."""
    path = directory / f"{SCENARIO}-{result.case.seed}.json"
    directory.mkdir(parents=True, exist_ok=True)
    content = {"outcome": result.outcome, "failure": result.failure, "case": json.loads(result.case.to_json())}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return (
        f"seed {result.case.seed}: {result.outcome}: {result.failure}\n"
        f"  replay: .venv/bin/python -m {__name__.replace('__main__', __spec__.name)} replay {path}"
    )


def load(path: Path) -> Case:
    """The case of such a file."""
    return Case.from_json(json.dumps(json.loads(path.read_text())["case"]))


def main(arguments: Sequence[str]) -> int:
    """See the module's docstring; 1 if a run failed."""
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    command, argument = arguments
    if command in {"replay", "shrink"}:
        return _one(load(Path(argument)), smaller=command == "shrink")
    failed = 0
    for result in _runs(argument):
        if command == "digest":
            print(result.case.seed, result.digest, len(result.events))
        if result.outcome != "passed":
            failed += 1
            print(keep(result), file=sys.stderr)
    return int(failed > 0)


def _runs(seeds: str) -> Iterator[Result]:
    first, _, end = seeds.partition(":")
    for seed in range(int(first), int(end)):
        yield run_case(random_case(seed))


def _fails(case: Case) -> bool:
    return is_runnable(case) and run_case(case).outcome != "passed"


def _one(case: Case, *, smaller: bool) -> int:
    if smaller:
        case = shrink(case, _fails, runs_max=_SHRINK_RUNS_MAX)
        print(case.to_json())
    result = run_case(case)
    for event in () if smaller else result.events:
        at_s, attributes = (event.sim_time_ns or 0) / 1e9, event.attrs or ""
        print(f"{at_s:9.3f} {event.node:6} {event.kind} {event.status or ''} {attributes}")
    print(f"{result.outcome}: {result.failure}", file=sys.stderr)
    return int(result.outcome != "passed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
