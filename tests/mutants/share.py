"""`python -m tests.mutants.share` says which mutants the general campaign of chaos runs sees, without any other test.

A mutant counts if one of the campaign's runs, made without it, executes a line that it changes, or if that is outside
of functions. Mutants of `rmq_actors.testing` do not count: they break the judge. A mutant that counts has those of the
runs until one fails. The other runs need not be made: one that does not execute the line is the same with the mutant,
and one that fails without mutants says nothing.

CPU time is dear. So a dozen mutants are in the product at once: a run that passes with all of them speaks for each, but
for what they hide from each other, and one that fails is made again with fewer of them, until one alone makes it fail.
`--out` keeps what was measured: `executed.jsonl`, what each run executes, and `verdicts.jsonl`, which runs were made
and how they failed. The next call goes on from there, with other runs for the mutants that nobody has seen. After a
change of the product, the run that has seen a mutant before is the first to be tried, and the others count as not made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from rmq_actors.testing.scenarios import SCENARIOS
from tests.mutants.mutant import ROOT, Mutant, changed, dump, load_all
from tests.mutants.probes import places, with_probes
from tests.mutants.source import Source, product_files

_HUNT = Path(__file__).with_name("hunt.py")
#: The longest run of the campaign takes a fifth of it.
_ENDLESS_S = 20.0

Run = tuple[str, int]


@attrs.frozen
class Executed:
    """What a run without mutants executes: how often each mutant's place; and how it ends."""

    run: Run
    executed: Mapping[str, int]
    outcome: str


@attrs.frozen
class Verdict:
    """What runs say of mutants that were in the product together: how the last one failed; `how` is empty if none did.

    `product` is a checksum of the product and of the mutants.
    """

    mutants: Sequence[str]
    product: str
    made: Sequence[Run]
    how: str


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _checksum(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _copy_of_the_product(target: Path) -> None:
    """With the compiled files: they are valid where a source is as it was."""
    for package in ("rmq_actors", "sim_net"):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("golden"))


def _hunt(product: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(_HUNT), what],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _asked(process: subprocess.Popen[str], told: object) -> dict[str, Any]:
    """The answer to one line; its exit code, if there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass
    answer = process.stdout.readline()
    return json.loads(answer) if answer else {"made": [], "how": f"no run begins: exit code {process.wait()}"}


def _instrument(product: Path, mutants: Sequence[Mutant]) -> None:
    wanted: dict[Path, list[tuple[str, frozenset[int]]]] = {}
    for mutant in mutants:
        for place in places(mutant, product):
            if place.lines:
                wanted.setdefault(place.path, []).append((mutant.name, place.lines))
    for path, each in wanted.items():
        path.write_text(with_probes(path.read_text(), each))


@attrs.define
class Campaign:
    """What is known of the mutants, in the files of a directory. `product` is a checksum."""

    out: Path
    product: str
    mutants: Mapping[str, Mutant]
    _verdicts: list[Verdict] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._verdicts = [
            Verdict(line["mutants"], line["product"], [(name, seed) for name, seed in line["made"]], line["how"])
            for line in _lines(self.out / "verdicts.jsonl")
        ]

    def _checksum(self, names: Sequence[str]) -> str:
        return _checksum(self.product, *(dump(self.mutants[each]) for each in names if each in self.mutants))

    def _tell(self, mutants: Sequence[Mutant], made: Sequence[Run], how: str) -> None:
        names = [each.name for each in mutants]
        verdict = Verdict(names, self._checksum(names), made, how)
        if made or how:
            with (self.out / "verdicts.jsonl").open("a") as file:
                file.write(json.dumps(attrs.asdict(verdict)) + "\n")
            self._verdicts.append(verdict)
        if how:
            run = f"{made[-1][0]} {made[-1][1]}" if made else "every run"
            print(f"{names[0]}: {run}: {how}", flush=True)

    def counting(self, mutants: Sequence[Mutant], runs: Sequence[Run], jobs: int) -> list[Mutant]:
        """Those whose place a run executes."""
        each_run = self.executed(runs, jobs)
        everywhere = {each.name for each in mutants if any(place.everywhere for place in places(each, ROOT))}
        found = everywhere.union(*(run.executed for run in each_run))
        return [each for each in mutants if each.name in found]

    def executed(self, runs: Sequence[Run], jobs: int = 1) -> list[Executed]:
        """What each run executes, from the file as far as it is there; where not, it is measured and added to it."""
        path, mutants = self.out / "executed.jsonl", list(self.mutants.values())
        key = self._checksum(list(self.mutants))
        known = {
            (name, seed): Executed((name, seed), line["executed"], line["outcome"])
            for line in _lines(path)
            if line["key"] == key
            for name, seed in [line["run"]]
        }
        missing = [run for run in runs if run not in known]
        if missing:
            with tempfile.TemporaryDirectory() as directory, path.open("a") as file:
                _copy_of_the_product(Path(directory))
                _instrument(Path(directory), mutants)

                def measure(part: Sequence[Run]) -> None:
                    process = _hunt(Path(directory), "executed")
                    for run in part:
                        line = _asked(process, {"runs": [run]})
                        if "run" not in line:
                            raise RuntimeError(f"the product does not run with probes in it: {line['how']}")
                        file.write(json.dumps({"key": key, **line}) + "\n")
                        file.flush()
                        known[run] = Executed(run, line["executed"], line["outcome"])
                    process.communicate()

                with ThreadPoolExecutor(jobs) as executor:
                    list(executor.map(measure, [missing[number::jobs] for number in range(jobs)]))
        return [known[run] for run in runs]

    def _verdicts_on(self, mutant: Mutant) -> Iterator[tuple[Verdict, bool]]:
        """With whether it is of the product as it is."""
        for verdict in self._verdicts:
            if mutant.name in verdict.mutants:
                yield verdict, verdict.product == self._checksum(verdict.mutants)

    def has_seen(self, mutant: Mutant) -> bool:
        """Whether a run has failed by it alone."""
        return any(each.how and is_now for each, is_now in self._verdicts_on(mutant))

    def look_again(self, mutants: Sequence[Mutant]) -> set[str]:
        """Of those that were seen before the product changed: which are seen by the same run."""
        hunter, seen = Hunter(self._tell), set[str]()
        for mutant in mutants:
            before = [each.made[-1] for each, _ in self._verdicts_on(mutant) if each.how and each.made]
            if before:
                seen |= hunter.hunt([mutant], list(dict.fromkeys(before)), _ENDLESS_S)
        hunter.stop()
        return seen

    def hunts(
        self, groups: Sequence[Sequence[Mutant]], runs: Sequence[Run], jobs: int, cpu_s: float
    ) -> Iterator[set[str]]:
        """Which of each group are seen, by runs that were not yet made with all of it, as soon as that is known."""
        each_run = {each.run: each for each in self.executed(runs)}

        def hunt(group: Sequence[Mutant]) -> set[str]:
            made = [
                {run for verdict, is_now in self._verdicts_on(each) if is_now for run in verdict.made} for each in group
            ]
            everywhere = any(place.everywhere for each in group for place in places(each, ROOT))
            to_make = [
                each.run
                for each in runs_that_can_tell([each_run[run] for run in runs], group, everywhere=everywhere)
                if not all(each.run in some for some in made)
            ]
            hunter = Hunter(self._tell)
            try:
                return hunter.hunt(group, to_make, cpu_s)
            finally:
                hunter.stop()

        with ThreadPoolExecutor(jobs) as executor:
            yield from executor.map(hunt, groups)


def runs_that_can_tell(each_run: Sequence[Executed], group: Sequence[Mutant], *, everywhere: bool) -> list[Executed]:
    """Those that pass without mutants and execute one of the group's places; all that pass, if these are everywhere."""
    names = {each.name for each in group}
    return [
        each for each in each_run if each.outcome == "passed" and (everywhere or not names.isdisjoint(each.executed))
    ]


def _texts(mutants: Sequence[Mutant]) -> dict[str, str]:
    """The files that they change together. Raises `DoesNotApply` if two of them change one line."""
    edits = [edit for each in mutants for edit in each.edits]
    paths = dict.fromkeys(edit.path(ROOT) for edit in edits)
    return {
        str(path): changed(Source.of_python(path.read_text()), [each for each in edits if each.path(ROOT) == path])
        for path in paths
    }


def _is_code_alone(mutant: Mutant) -> bool:
    """Whether it changes nothing but bodies of functions, so that a process which has them can take the other code."""
    return not any(edit.file for edit in mutant.edits) and all(place.in_bodies for place in places(mutant, ROOT))


@attrs.define
class Hunter:
    """A process that makes runs with mutants, for one task. `tell` keeps what they say."""

    tell: Callable[[Sequence[Mutant], Sequence[Run], str], None]
    _process: subprocess.Popen[str] = attrs.field(factory=lambda: _hunt(ROOT, "until-one-fails"), init=False)

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()

    def hunt(self, group: Sequence[Mutant], runs: Sequence[Run], cpu_s: float) -> set[str]:
        """Which of a group are seen. All are in the product; a run that fails is made again with fewer of them."""
        left, seen, runs = list(group), set[str](), list(runs)
        while left and runs and cpu_s > 0:
            made, how, used_s = self.made(left, runs, cpu_s)
            cpu_s -= used_s
            if not how:
                self.tell(left, made, "")
                break
            self.tell(left, made[:-1], "")
            culprits = self._culprits(left, made[-1:], how)
            seen |= culprits
            left = [each for each in left if each.name not in culprits]
            # Where none fails alone it is all of them together that do.
            runs = runs[max(1, len(made)) :]
        return seen

    def _culprits(self, group: Sequence[Mutant], run: Sequence[Run], how: str) -> set[str]:
        if len(group) == 1:
            self.tell(group, run, how)
            return {group[0].name}
        found = set[str]()
        for half in (group[: len(group) // 2], group[len(group) // 2 :]):
            _, how_half, _ = self.made(half, run, _ENDLESS_S)
            if how_half:
                found |= self._culprits(half, run, how_half)
        return found

    def made(self, mutants: Sequence[Mutant], runs: Sequence[Run], cpu_s: float) -> tuple[list[Run], str, float]:
        """Which runs were made with all of the mutants, how the last of them has failed, if it has, and CPU time."""
        told = {"texts": {}, "runs": runs, "cpu_s": cpu_s, "endless_s": _ENDLESS_S}
        said: dict[str, Any] = {"refused": ""}
        if all(map(_is_code_alone, mutants)):
            said = _asked(self._process, {**told, "texts": _texts(mutants)})
        if "refused" in said:
            said = _in_a_copy(mutants, told)
        return [(name, seed) for name, seed in said["made"]], said["how"], said.get("cpu_s", cpu_s)


def _in_a_copy(mutants: Sequence[Mutant], told: object) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        product = Path(directory)
        _copy_of_the_product(product)
        for mutant in mutants:
            mutant.apply(product)
        process = _hunt(product, "until-one-fails")
        said = _asked(process, told)
        process.communicate()
        return said


def in_groups(mutants: Sequence[Mutant], size: int) -> list[list[Mutant]]:
    """Those that can be in the product together, up to `size` of them; one that changes more than code is alone."""
    groups = [list[Mutant]() for _ in range(-(-len(mutants) // size))]
    alone = list[list[Mutant]]()
    for number, mutant in enumerate(mutants):
        if not _is_code_alone(mutant):
            alone.append([mutant])
            continue
        # In turn: mutants of one name's beginning are of one place, and hide each other.
        for turn in range(len(groups)):
            group = groups[(number + turn) % len(groups)]
            files = {edit.where for each in group for edit in each.edits}
            if len(group) < size and files.isdisjoint(edit.where for edit in mutant.edits):
                group.append(mutant)
                break
        else:
            groups.append([mutant])
    return [*filter(None, groups), *alone]


def main() -> int:
    """Print a line for each mutant that is seen, and the share."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.share", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="their names; all, if none is given")
    parser.add_argument("--runs", type=int, default=2000, help="how many runs the campaign has (2000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--group", type=int, default=12, help="how many mutants are in the product at once (12)")
    parser.add_argument(
        "--cpu-s", type=float, default=600.0, help="CPU time for the runs of a group in this call (600)"
    )
    parser.add_argument("--only", default="", help="a regular expression for the names of mutants")
    parser.add_argument(
        "--out", type=Path, default=Path("out/share"), help="where what was measured is kept (out/share)"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.scenarios or list(SCENARIOS)
    runs = [(names[number % len(names)], number // len(names)) for number in range(arguments.runs)]
    product = _checksum(*chain.from_iterable(product_files(ROOT)))
    campaign = Campaign(arguments.out, product, {each.name: each for each in load_all() if places(each, ROOT)})
    mutants = [each for each in campaign.mutants.values() if re.search(arguments.only, each.name)]
    counting = campaign.counting(mutants, runs, arguments.jobs)
    seen = {each.name for each in counting if campaign.has_seen(each)}
    print(f"{len(counting)} of {len(mutants)} mutants of the product are in code that these runs execute", flush=True)
    print(f"{len(seen)} have been seen", flush=True)
    seen |= campaign.look_again([each for each in counting if each.name not in seen])
    left = [each for each in counting if each.name not in seen]
    for names_seen in campaign.hunts(in_groups(left, arguments.group), runs, arguments.jobs, arguments.cpu_s):
        seen |= names_seen
    print(f"seen: {len(seen)} of {len(counting)}, {100 * len(seen) / max(1, len(counting)):.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
