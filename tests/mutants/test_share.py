"""Where probes go, which mutants are tried together, and how the one that makes a run fail is found."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from rmq_actors.testing.scenarios import SCENARIOS
from tests.mutants.mutant import ROOT, Edit, Mutant, load_all
from tests.mutants.probes import COUNTER, places, with_probes
from tests.mutants.seen import PAGE, made_again, seen_by
from tests.mutants.share import Executed, Hunter, Run, in_groups, runs_that_can_tell

TEXT = '''"""A log."""


def flush(log, again=False):
    """Sync it."""
    if log.dirty:
        log.sync()
    elif again:
        log.sync()
    else:
        log.end = (
            log.begin
        )
    try:
        return log.end
    except KeyError:
        return 0


LIMIT = 1
'''


@attrs.define
class Log:
    """What `flush` works on."""

    dirty: bool = False
    begin: int = 7
    end: int = 0

    def sync(self) -> None:
        self.dirty = False


def executions(line: int, log: Log, *, again: bool = False) -> int:
    """How often the line counts as executed in one call."""
    counter = Counter[str]()
    space: dict[str, object] = {COUNTER: counter}
    exec(compile(with_probes(TEXT, [("m", {line})]), "log.py", "exec"), space)
    flush = space["flush"]
    assert callable(flush)
    assert flush(log, again) in (0, 7)
    return counter["m"]


@pytest.mark.parametrize(
    ("line", "dirty", "again", "otherwise"),
    [
        (4, 1, 1, 1),  # the head of the function: each call
        (6, 1, 1, 1),
        (7, 1, 0, 0),
        (8, 0, 1, 1),  # elif
        (9, 0, 1, 0),
        (10, 0, 1, 1),  # else: the statement around it, here the elif
        (12, 0, 0, 1),  # within a statement of several lines
        (15, 1, 1, 1),
        (17, 0, 0, 0),
    ],
)
def test_a_line_counts_where_its_statement_is_executed(line: int, dirty: int, again: int, otherwise: int) -> None:
    assert executions(line, Log(dirty=True)) == dirty
    assert executions(line, Log(), again=True) == again
    assert executions(line, Log()) == otherwise


def test_the_text_does_the_same_with_probes() -> None:
    assert ast.dump(ast.parse(with_probes(TEXT, []))) == ast.dump(ast.parse(TEXT))


def test_every_mutant_of_the_product_has_a_place() -> None:
    wanted: dict[Path, list[tuple[str, frozenset[int]]]] = {}
    for each in load_all():
        for place in places(each, ROOT):
            assert place.everywhere is not bool(place.lines)
            if place.lines:
                wanted.setdefault(place.path, []).append((each.name, place.lines))
    for path, those in wanted.items():
        text = with_probes(path.read_text(), those)
        assert [name for name, _ in those if f"{COUNTER}[{name!r}] += 1" not in text] == []


def mutant(name: str, where: str) -> Mutant:
    return Mutant(name, "wrong", (Edit(where, "", ("a",), ("b",)),))


def test_mutants_of_one_function_are_not_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutants.share._is_code_alone", lambda each: each.name != "of-a-class")
    names = ["a", "b", "a", "of-a-class", "c"]
    groups = in_groups([mutant(name, f"rmq_actors.log:{name}") for name in names], size=10)
    assert [sorted(each.name for each in group) for group in groups] == [["a", "b", "c"], ["a"], ["of-a-class"]]


@attrs.define
class Culprits(Hunter):
    """Runs fail where one of `culprits` is in the product, or both of `together` are."""

    culprits: frozenset[str] = frozenset()
    together: frozenset[str] = frozenset()
    count: int = 0
    _process: None = None  # type: ignore[assignment]

    def made(self, mutants: Sequence[Mutant], runs: Sequence[Run], cpu_s: float) -> tuple[list[Run], str, float]:
        self.count += 1
        names = {each.name for each in mutants}
        if names & self.culprits or (self.together and self.together <= names):
            return list(runs[:1]), "invariant", 0.1
        return list(runs), "", 0.1


def test_each_mutant_that_fails_a_run_alone_is_found() -> None:
    told: list[tuple[list[str], int, str]] = []
    hunter = Culprits(
        lambda mutants, made, how: told.append(([each.name for each in mutants], len(made), how)),
        culprits=frozenset("ce"),
    )
    group = [mutant(name, f"rmq_actors.log:{name}") for name in "abcdefgh"]
    assert hunter.hunt(group, [("replication", seed) for seed in range(5)], 60) == {"c", "e"}
    assert [each for each in told if each[2]] == [(["c"], 1, "invariant"), (["e"], 1, "invariant")]
    assert told[-1] == (list("abdfgh"), 4, "")


def test_a_run_that_fails_by_several_together_speaks_for_none() -> None:
    hunter = Culprits(lambda *_: None, together=frozenset("ah"))
    group = [mutant(name, f"rmq_actors.log:{name}") for name in "abcdefgh"]
    assert hunter.hunt(group, [("replication", seed) for seed in range(3)], 60) == set()
    assert hunter.count == 3 * 3  # the group and its halves, in each run


def test_a_run_that_fails_without_mutants_or_executes_none_of_them_says_nothing() -> None:
    group = [mutant(name, f"rmq_actors.log:{name}") for name in "ab"]
    tells = Executed(("replication", 0), {"b": 2, "c": 1}, "passed")
    fails = Executed(("replication", 1), {"a": 1}, "invariant")
    others = Executed(("replication", 2), {"c": 1}, "passed")
    assert runs_that_can_tell([tells, fails, others], group, everywhere=False) == [tells]
    assert runs_that_can_tell([tells, fails, others], group, everywhere=True) == [tells, others]


def test_the_page_of_unseen_mutants_names_mutants_that_there_are() -> None:
    """Each once, and as many as each heading says."""
    head, *sections = PAGE.read_text().split("\n## ")
    assert "python -m tests.mutants.share" in head
    every = list[str]()
    for section in sections:
        title, *lines = section.splitlines()
        names = [name for line in lines if line.startswith("`") for name in re.findall(r"`(\w+)`", line)]
        assert int(title.rpartition(": ")[2]) == len(names), title
        every += names
    assert sorted(set(every)) == sorted(every)
    assert set(every) <= {each.name for each in load_all()}


def test_each_mutant_that_the_page_calls_seen_has_a_run() -> None:
    text = PAGE.read_text()
    (seen,) = (section for section in text.split("\n## ") if section.startswith("Seen: "))
    runs = dict(seen_by(seen))
    assert len(runs) == int(seen.splitlines()[0].removeprefix("Seen: "))
    assert {scenario for scenario, _ in runs.values()} <= SCENARIOS.keys()


def test_runs_that_are_made_again_fail_by_the_mutant_alone() -> None:
    """One that the page calls seen, and one that changes nothing that a run could show."""
    mutants = {each.name: each for each in load_all()}
    run = dict(seen_by(PAGE.read_text()))["no_ack_check"]
    wanted = [(mutants["no_ack_check"], run), (mutants["large_buffer_kept"], run)]
    assert list(made_again(wanted)) == [f"large_buffer_kept: {run[0]} {run[1]} passes with it"]
