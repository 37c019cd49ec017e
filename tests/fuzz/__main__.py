"""`python -m tests.fuzz` runs seed after seed of each case, until one fails or the time is over; `--help`.

A seed is a whole run: `--case server --seed 123` is that one again, with its log.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping

from tests.fuzz import CASES

_PROGRESS_S = 10.0


def main() -> int:
    """Exit code 1 if a seed fails."""
    options = _arguments()
    names = [options.case] if options.case else list(CASES)
    if options.seed is not None:
        return _replay(names, options.seed)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    first_seed = secrets.randbelow(10**9)
    _say(f"seeds from {first_seed}, {options.seconds} s: {', '.join(names)}")
    end_s = time.monotonic() + options.seconds
    spent_s = dict.fromkeys(names, 0.0)
    runs, outcomes = collections.Counter[str](), collections.Counter[str]()
    next_progress_s = time.monotonic() + _PROGRESS_S
    seeds = {name: itertools.count(first_seed) for name in names}
    while time.monotonic() < end_s:
        name = min(names, key=lambda each: spent_s[each])
        seed, began_s = next(seeds[name]), time.monotonic()
        try:
            outcomes.update(CASES[name](seed) or {})
        except BaseException:
            _say(f"{name}: seed {seed} fails. Again: python -m tests.fuzz --case {name} --seed {seed}")
            raise
        runs[name] += 1
        spent_s[name] += time.monotonic() - began_s
        if time.monotonic() >= next_progress_s:
            _say(_counts(runs))
            next_progress_s += _PROGRESS_S
    _say(f"{_counts(runs)}: none fails. {_counts(outcomes)}")
    return 0


def _replay(names: list[str], seed: int) -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message).500s", stream=sys.stderr)
    for name in names:
        run: Callable[[int], Mapping[str, int] | None] = CASES[name]
        try:
            outcomes = run(seed)
        except Exception:  # noqa: BLE001 - shown
            traceback.print_exc()
            return 1
        _say(f"{name}: seed {seed} does not fail. {_counts(outcomes or {})}")
    return 0


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile peers, seed after seed.")
    parser.add_argument("--case", choices=list(CASES), help="one case (default: all, each for the same time)")
    parser.add_argument("--seed", type=int, help="run this seed once")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default 60)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
