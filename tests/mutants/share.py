"""`python -m tests.mutants.share` says which mutants the general campaign of chaos runs sees, without any other test.

A mutant counts if one of `--runs` runs without it executes a line that it changes, or if that is outside of functions.
Mutants of `rmq_actors.testing` do not count: they break the judge. A mutant that counts has those of the runs until one
fails. The other runs need not be made: a run that does not execute the line is the same with the mutant.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from tests.mutants.mutant import ROOT, Mutant, load_all

_HUNT = Path(__file__).with_name("hunt.py")
_JUDGE = "rmq_actors.testing"
_NOBODY = "nobody"
#: Its runs took longer than they may: most of them wait for something in vain.
_LATE = "nobody in time"


@attrs.frozen
class Verdict:
    """What the campaign says of a mutant: by which run one has failed, and how; `nobody` has seen it."""

    mutant: Mutant
    #: How many runs of the campaign there were until then, with those that need not be made.
    campaign: int
    #: How many execute what it changes, and how many of these were made.
    executing: int
    runs: int
    seen_by: str
    how: str


def _hunt(product: Path, *arguments: str, told: object, timeout_s: float | None) -> Any:
    done = subprocess.run(
        [sys.executable, str(_HUNT), *arguments],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"},
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        return {"number": 0, "runs": 1, "seen_by": "all", "how": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout)


@attrs.frozen
class Changed:
    """The lines of functions that a mutant changes, as FILE:LINE. `everywhere`: it changes what is outside of them."""

    lines: frozenset[str]
    everywhere: bool


def _changed_by(mutant: Mutant) -> Changed | None:
    """None for a mutant of the judge, or of a file that is no module."""
    lines, everywhere, is_of_product = set[str](), False, False
    for edit in mutant.edits:
        if edit.file or edit.module.startswith(_JUDGE):
            continue
        is_of_product = True
        path = edit.path(ROOT)
        match = edit.match(edit.read(ROOT))
        changed = range(match.first + 1, match.end + 1)
        within = _lines_of_functions(ast.parse(path.read_text())).intersection(changed)
        lines |= {f"{path.relative_to(ROOT)}:{line}" for line in within}
        everywhere |= not within
    return Changed(frozenset(lines), everywhere) if is_of_product else None


def _lines_of_functions(tree: ast.AST) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _runs_that_execute(changed: Sequence[Changed], scenarios: Sequence[str], runs: int) -> list[list[int]]:
    """For each mutant the numbers of the runs that can see it."""
    wanted: dict[str, list[int]] = {}
    for each in sorted({line for one in changed for line in one.lines}):
        file, _, line = each.rpartition(":")
        wanted.setdefault(file, []).append(int(line))
    found = _hunt(ROOT, "executed", str(runs), *scenarios, told=wanted, timeout_s=None)
    executed = [frozenset(lines) for lines in found]
    return [
        [number for number, lines in enumerate(executed) if one.everywhere or not one.lines.isdisjoint(lines)]
        for one in changed
    ]


def _judge(mutant: Mutant, numbers: Sequence[int], scenarios: Sequence[str], runs: int, timeout_s: float) -> Verdict:
    with tempfile.TemporaryDirectory() as directory:
        product = Path(directory)
        for package in ("rmq_actors", "sim_net"):
            shutil.copytree(ROOT / package, product / package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(product)
        try:
            said = _hunt(product, "until-one-fails", str(runs), *scenarios, told=numbers, timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, runs, len(numbers), 0, _LATE, f"no end in {timeout_s:g} s")
    campaign = runs if said["seen_by"] == _NOBODY else int(said["number"]) + 1
    return Verdict(mutant, campaign, len(numbers), int(said["runs"]), str(said["seen_by"]), str(said["how"]))


def judged(
    mutants: Sequence[tuple[Mutant, Sequence[int]]], scenarios: Sequence[str], runs: int, jobs: int, timeout_s: float
) -> Iterator[Verdict]:
    """What the campaign says of each, as soon as it does, in their order."""
    with ThreadPoolExecutor(jobs) as executor:
        yield from executor.map(lambda each: _judge(each[0], each[1], scenarios, runs, timeout_s), mutants)


def main() -> int:
    """Print a line for each mutant that counts, and the share that is seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.share", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="their names; all, if none is given")
    parser.add_argument("--runs", type=int, default=2000, help="how many runs may see a mutant (2000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--timeout-s", type=float, default=900.0, help="for the runs of a mutant (900)")
    parser.add_argument("--only", default="", help="a regular expression for the names of mutants")
    arguments = parser.parse_args()
    mutants = [
        (each, changed)
        for each in load_all()
        if re.search(arguments.only, each.name) and (changed := _changed_by(each)) is not None
    ]
    numbers = _runs_that_execute([changed for _, changed in mutants], arguments.scenarios, arguments.runs)
    counting = [(each, found) for (each, _), found in zip(mutants, numbers, strict=True) if found]
    print(f"{len(counting)} of {len(mutants)} mutants of the product are in code that these runs execute", flush=True)
    # The ones that few runs execute first: they cost least.
    counting.sort(key=lambda each: len(each[1]))
    seen = 0
    for verdict in judged(counting, arguments.scenarios, arguments.runs, arguments.jobs, arguments.timeout_s):
        is_seen = verdict.seen_by not in {_NOBODY, _LATE}
        seen += is_seen
        where = f"{verdict.seen_by} within {verdict.campaign} runs" if is_seen else verdict.seen_by
        made = f"{verdict.runs} made of {verdict.executing} that execute it"
        print(f"{verdict.mutant.name}: {where} ({made}). {verdict.how}", flush=True)
    print(f"seen: {seen} of {len(counting)}, {100 * seen / max(1, len(counting)):.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
