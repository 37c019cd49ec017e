"""`python -m tests.simulation.last_campaign` makes the runs that docs/last-campaign.md tells of, and its tables.

`--out` keeps one line of JSON per run, by scenario. The next call goes on from there. Once all runs are made, `--write`
puts the tables into the page: what people have written there stays.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmq_actors.testing.scenarios import SCENARIOS
from tests.mutants.mutant import ROOT

PAGE = ROOT / "docs" / "last-campaign.md"
#: How many runs of each scenario: those whose runs are long have fewer.
RUNS: Mapping[str, int] = {
    "replication": 1200,
    "fail-over": 600,
    "production": 700,
    "production-of-four": 600,
    "transactions": 600,
    **dict.fromkeys(("operated", "crash-points", "delays", "retries", "failing-disks"), 500),
    **dict.fromkeys(("strangers", "store-work", "lost-files"), 500),
    "produce-consume": 400,
    "topics": 300,
    "races": 300,
    "exchanges": 250,
    "restarts": 300,
    "fences": 200,
    "topics-on-failing-disks": 150,
    "routes": 100,
}
_OF_OTHERS = 200
_COLUMNS = 8
#: The sections that people write.
_FOUND, _CLIENTS = "What campaigns found", "Ten thousand runs of own clients"
_PAGE = """# The last campaign

What {total:,} chaos runs of all {scenarios} scenarios met, all on one commit (`{commit}`), on {date}. **{how}** \
The seeds of each scenario begin at {first_seed}. Scenarios whose runs are long have fewer of them.

```sh
rmq-actors chaos run --scenario replication --seeds {first_seed}:{last_seed} --jobs 2    # and so for each scenario
```

The scenarios and invariants are those of [invariants.md](invariants.md#the-scenarios). Seeds give other runs once the \
product's timing has changed: the counts are this commit's.
`python -m tests.simulation.last_campaign` makes the runs and these tables.

{totals}

## What campaigns found

{found}

## Faults

In how many runs each was made, and in brackets in how many of them while a put waited for the node that it is of, or \
bytes of the log were on their way to it.

{faults}

## What the brokers met

In how many runs. An empty cell: the scenario has no way to it. 0: it could have happened, and did not.

{met}

## Ten thousand runs of own clients

{clients}
"""

Result = Mapping[str, Any]


def count_of(scenario: str) -> int:
    """How many runs the campaign has of a scenario."""
    return RUNS.get(scenario, _OF_OTHERS)


def make_runs(out: Path, first_seed: int, jobs: int) -> None:
    """Make what is missing, one scenario after the other, and say how each ended."""
    for name in SCENARIOS:
        path, count = out / f"{name}.jsonl", count_of(name)
        if len(results(path)) == count:
            continue
        part = out / f"{name}.part"
        seeds = f"{first_seed}:{first_seed + count}"
        command = [sys.executable, "-m", "rmq_actors.cli.entry", "chaos", "run", "--scenario", name, "--seeds", seeds]
        with part.open("w") as file, (out / "log").open("a") as log:
            subprocess.run([*command, "--jobs", str(jobs), "--json"], stdout=file, stderr=log, cwd=ROOT, check=False)
        if part.read_text().count("\n") != count:
            print(f"{name}: the command has ended before its runs were made; see {out / 'log'}", flush=True)
            continue
        part.rename(path)
        made = results(path)
        print(f"{name}: {len(made)} of {count} runs", flush=True)
        for each in made:
            if each["outcome"] != "passed":
                print(f"  {name} {each['seed']}: {each['outcome']}: {each['failure']}", flush=True)


def commit_now() -> str:
    """The commit of the working tree, with a + if there are changes."""
    told = [["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"]]
    commit, changes = (
        subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=True).stdout for each in told
    )
    return commit.strip() + ("+" if changes else "")


def results(path: Path) -> list[Result]:
    """One per run, in the order of the seeds; none where there is no file."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return sorted((json.loads(line) for line in lines), key=lambda each: int(each["seed"]))


def page(runs: Mapping[str, Sequence[Result]], commit: str, date: str, written: Mapping[str, str]) -> str:
    """The whole page."""
    first_seed = min(each["seed"] for made in runs.values() for each in made)
    failed = [f"{name} {each['seed']}" for name, made in runs.items() for each in made if each["outcome"] != "passed"]
    return _PAGE.format(
        total=sum(map(len, runs.values())),
        scenarios=len(runs),
        commit=commit,
        date=date,
        how=f"{len(failed)} failed: {', '.join(failed)}." if failed else "All passed.",
        first_seed=first_seed,
        last_seed=first_seed + count_of("replication"),
        totals="\n".join(_totals(runs)),
        faults="\n\n".join(_tables(runs, _faults(runs))),
        met="\n\n".join(_tables(runs, _met(runs))),
        found=written[_FOUND],
        clients=written[_CLIENTS],
    )


def _totals(runs: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    yield "| scenario | runs | passed | puts acknowledged | checks of invariants | virtual s |"
    yield "|--|--|--|--|--|--|"
    for name, made in (*runs.items(), ("all", [each for some in runs.values() for each in some])):
        passed = sum(each["outcome"] == "passed" for each in made)
        acked, checks = sum(each["acked"] for each in made), sum(each["checks"] for each in made)
        virtual_s = sum(each["virtual_s"] for each in made)
        yield f"| {name} | {len(made):,} | {passed:,} | {acked:,} | {checks:,} | {virtual_s:,.0f} |"


def _faults(runs: Mapping[str, Sequence[Result]]) -> Mapping[str, Mapping[str, str]]:
    """By fault, by scenario."""
    cells: dict[str, dict[str, str]] = {}
    for name, made in runs.items():
        fired = Counter(fault for each in made for fault in each["fired"])
        under_load = Counter(fault for each in made for fault in each["under_load"])
        for fault, count in fired.items():
            also = f" ({under_load[fault]})" if under_load[fault] else ""
            cells.setdefault(fault, {})[name] = f"{count}{also}"
    return dict(sorted(cells.items()))


def _met(runs: Mapping[str, Sequence[Result]]) -> Mapping[str, Mapping[str, str]]:
    """By what was observed, by scenario."""
    cells: dict[str, dict[str, str]] = {}
    for name, made in runs.items():
        observed = Counter(what for each in made for what in each["observed"])
        for what in SCENARIOS[name].observable:
            cells.setdefault(what, {})[name] = str(observed[what])
    return cells


def _tables(runs: Mapping[str, object], cells: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Several, as no screen is wide enough for all scenarios."""
    names = list(runs)
    for begin in range(0, len(names), _COLUMNS):
        some = names[begin : begin + _COLUMNS]
        lines = ["| | " + " | ".join(some) + " |", "|--" * (len(some) + 1) + "|"]
        lines += [
            f"| {what} | " + " | ".join(by_name.get(each, "") for each in some) + " |"
            for what, by_name in cells.items()
        ]
        yield "\n".join(lines)


def what_people_wrote(text: str) -> Mapping[str, str]:
    """The sections of a page that no run tells of, by their headings."""
    sections = dict(section.split("\n", 1) for section in text.split("\n## ")[1:])
    return {heading: sections[heading].strip() for heading in (_FOUND, _CLIENTS)}


def main() -> int:
    """Exit code 1 if a run failed, or is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.last_campaign", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/campaign"), help="where results are kept (out/campaign)")
    parser.add_argument("--first-seed", type=int, default=30_000, help="of each scenario (30000)")
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at a time (2)")
    parser.add_argument("--write", action="store_true", help="make no runs: write the page, of those that were made")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    of, now = arguments.out / "of", f"{commit_now()} {arguments.first_seed}"
    if not arguments.write:
        if of.exists() and of.read_text() != now:
            print(
                f"{arguments.out} has runs of {of.read_text()} (commit, first seed), and this is {now}", file=sys.stderr
            )
            return 2
        of.write_text(now)
        make_runs(arguments.out, arguments.first_seed, arguments.jobs)
    runs = {name: results(arguments.out / f"{name}.jsonl") for name in SCENARIOS}
    lacking = [name for name, made in runs.items() if len(made) != count_of(name)]
    if lacking:
        print(f"runs are missing of: {', '.join(lacking)}", file=sys.stderr)
        return 1
    if arguments.write:
        date = dt.datetime.now(dt.UTC).date().isoformat()
        PAGE.write_text(page(runs, of.read_text().split()[0], date, what_people_wrote(PAGE.read_text())))
    return int(any(each["outcome"] != "passed" for made in runs.values() for each in made))


if __name__ == "__main__":
    sys.exit(main())
