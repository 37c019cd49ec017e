"""`python -m tests.mutants.seen` makes the runs of docs/unseen-mutants.md again that are said to see a mutant.

Each must fail with that mutant alone in the product, and pass without it. What does not is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant, load_all
from tests.mutants.share import Hunter, Run

PAGE = ROOT / "docs" / "unseen-mutants.md"
_CPU_S = 60.0


def seen_by(text: str) -> Iterator[tuple[str, Run]]:
    """What the page says: a mutant, and the run that sees it."""
    for name, scenario, seed in re.findall(r"`(\w+)` \(([a-z-]+) (\d+)\)", text):
        yield name, (scenario, int(seed))


def made_again(mutants: Sequence[tuple[Mutant, Run]]) -> Iterator[str]:
    """Say what does not fail with its mutant, or fails without it."""
    hunter = Hunter(lambda *_: None)
    try:
        for mutant, run in mutants:
            _, how, _ = hunter.made([mutant], [run], _CPU_S)
            if not how:
                yield f"{mutant.name}: {run[0]} {run[1]} passes with it"
                continue
            print(f"{mutant.name}: {run[0]} {run[1]}: {how}", flush=True)
            _, how, _ = hunter.made([], [run], _CPU_S)
            if how:
                yield f"{mutant.name}: {run[0]} {run[1]} fails without it: {how}"
    finally:
        hunter.stop()


def main() -> int:
    """Exit code 1 if the page is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.seen", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--page", type=Path, default=PAGE, help="another page than docs/unseen-mutants.md")
    arguments = parser.parse_args()
    by_name = {each.name: each for each in load_all()}
    wanted = [(by_name[name], run) for name, run in seen_by(arguments.page.read_text())]
    parts = [wanted[number :: arguments.jobs] for number in range(arguments.jobs)]
    with ThreadPoolExecutor(arguments.jobs) as executor:
        wrong = [line for lines in executor.map(lambda part: list(made_again(part)), parts) for line in lines]
    print(f"{len(wanted) - len(wrong)} of {len(wanted)} are seen as the page says")
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
