"""`python -m tests.mutants.share` says which mutants the general campaign of chaos runs sees, without any other test.

A mutant counts if a run without it executes a line that it changes; one outside of functions counts if its module has a
function that is executed. Mutants of `rmq_actors.testing` do not count: they break the judge. For each that counts,
runs of the scenarios in turn, seed by seed, until one fails, or `--runs` have passed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from tests.mutants.mutant import ROOT, Edit, Mutant, load_all

_HUNT = Path(__file__).with_name("hunt.py")
_JUDGE = "rmq_actors.testing"
_NOBODY = "nobody"


@attrs.frozen
class Verdict:
    """What the campaign says of a mutant: the runs that it took, and how the last one ended; `nobody` has seen it."""

    mutant: Mutant
    runs: int
    seen_by: str
    how: str


def _hunt(product: Path, *arguments: str, timeout_s: float | None) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(_HUNT), *arguments],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        return {"runs": 1, "seen_by": "all", "how": done.stderr.strip().rpartition("\n")[2]}
    return dict(json.loads(done.stdout))


def _is_executed(edit: Edit, lines: dict[str, list[int]]) -> bool:
    if edit.file or edit.module.startswith(_JUDGE):
        return False
    path = edit.path(ROOT)
    executed = set(lines.get(str(path.relative_to(ROOT)), ()))
    match = edit.match(edit.read(ROOT))
    changed = range(match.first + 1, match.end + 1)
    if executed.intersection(changed):
        return True
    bodies = _lines_of_functions(ast.parse(path.read_text()))
    return bool(executed) and not bodies.intersection(changed)


def _lines_of_functions(tree: ast.AST) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _judge(mutant: Mutant, scenarios: Sequence[str], runs: int, timeout_s: float) -> Verdict:
    with tempfile.TemporaryDirectory() as directory:
        product = Path(directory)
        for package in ("rmq_actors", "sim_net"):
            shutil.copytree(ROOT / package, product / package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(product)
        try:
            said = _hunt(product, "until-one-fails", str(runs), *scenarios, timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, 0, "all", f"no end in {timeout_s:g} s")
    return Verdict(mutant, int(str(said["runs"])), str(said["seen_by"]), str(said["how"]))


def judged(
    mutants: Sequence[Mutant], scenarios: Sequence[str], runs: int, jobs: int, timeout_s: float
) -> Iterator[Verdict]:
    """What the campaign says of each, as soon as it does, in their order."""
    with ThreadPoolExecutor(jobs) as executor:
        yield from executor.map(lambda mutant: _judge(mutant, scenarios, runs, timeout_s), mutants)


def main() -> int:
    """Print a line for each mutant that counts, and the share that is seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.share", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="their names; all, if none is given")
    parser.add_argument("--runs", type=int, default=2000, help="how many runs may see a mutant (2000)")
    parser.add_argument("--runs-executed", type=int, default=60, help="runs of each scenario that say what counts (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--timeout-s", type=float, default=900.0, help="for the runs of a mutant (900)")
    arguments = parser.parse_args()
    lines = _hunt(ROOT, "lines", str(arguments.runs_executed), *arguments.scenarios, timeout_s=None)
    mutants = load_all()
    counting = [each for each in mutants if any(_is_executed(edit, lines) for edit in each.edits)]  # type: ignore[arg-type]
    print(f"{len(counting)} of {len(mutants)} mutants are in code that these scenarios execute", flush=True)
    seen = 0
    for verdict in judged(counting, arguments.scenarios, arguments.runs, arguments.jobs, arguments.timeout_s):
        seen += verdict.seen_by != _NOBODY
        print(f"{verdict.mutant.name}: {verdict.seen_by}, {verdict.runs} runs. {verdict.how}", flush=True)
    print(f"seen: {seen} of {len(counting)}, {100 * seen / max(1, len(counting)):.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
