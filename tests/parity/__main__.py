"""`python -m tests.parity [NAME...]` runs the cases and prints the table; with names, what those saw in each world."""

from __future__ import annotations

import sys

from tests.parity.arena import NoSuchWorld
from tests.parity.table import CASES, same, table


def main(names: list[str]) -> int:
    """Exit code 1 if two worlds differ."""
    results = {}
    for case in CASES:
        if names and case.name not in names:
            continue
        try:
            seen = case.seen()
        except NoSuchWorld as missing:
            print(f"{case.family} {case.name}: {missing}")
            continue
        results[case.family, case.name] = "same" if same(seen) else "DIFFERS"
        if names or not same(seen):
            print(f"{case.family} {case.name}")
            for world, what in seen.items():
                print(f"  {world:16}{what}")
    if not names:
        print(table(results))
        print(f"{len(results)} cases, {sum(each == 'same' for each in results.values())} the same in every world")
    return int("DIFFERS" in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
