"""`python -m tests.mutants.make NAME --wrong ... --fails TEST ...` writes a mutant from what `git diff` shows.

What the index has is what the mutant changes: `git add` what does not belong to it. The mutant of a name that exists
gets new edits; what the command does not say stays as it was.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tests.mutants.mutant import HERE, ROOT, Edit, Mutant, changed, dump, load
from tests.mutants.source import PACKAGES, Object, Source, module_of

#: Changes with no more lines than that between them are one edit, if they are in one object.
_APART_LINES = 3
#: A line around a change by which it is found: no blank, comment or docstring, which change more often.
_TELLING = re.compile(r"\s*[^\s#](?!.*\"\"\")")


@attrs.frozen
class _Change:
    """Lines from `first` to `end` (not included), and what is there instead; all between several changes too."""

    first: int
    end: int
    new_first: int
    new_end: int


def edits_between(where: str, before: str, after: str, *, file: str = "") -> list[Edit]:
    """The fewest lines of each object that tell what is changed, and that it has once."""
    source = Source.of_text(before) if file else Source.of_python(before)
    new = after.split("\n")
    groups: list[list[_Change]] = []
    for change in _changes(source.lines, new):
        last = groups[-1] if groups else [change]
        near = change.first - last[-1].end <= _APART_LINES
        if groups and near and _home(source, new, last) == _home(source, new, [*last, change]) != source.objects[0]:
            last.append(change)
        else:
            groups.append([change])
    edits = [_edit(source, new, group) for group in groups]
    while overlap := next((at for at in range(1, len(edits)) if edits[at - 1][0].end > edits[at][0].first), 0):
        groups[overlap - 1 : overlap + 1] = [[*groups[overlap - 1], *groups[overlap]]]
        edits = [_edit(source, new, group) for group in groups]
    made = [
        Edit.make(
            f"{where}:{home.qualname}" if home.qualname else where,
            source.lines[span.first : span.end],
            new[span.new_first : span.new_end],
            file=file,
        )
        for span, home in edits
    ]
    if changed(source, made) != after:
        raise ValueError(f"the edits of {where or file} do not make what is there: please change less at a time")
    return made


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    for tag, first, end, new_first, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _Change(first, end, new_first, new_end)


def _is_in(change: _Change, home: Object, new: Sequence[str]) -> bool:
    if change.first < change.end:
        return home.first <= change.first and change.end <= home.end
    inserted = [line for line in new[change.new_first : change.new_end] if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in inserted), default=0)
    return home.first < change.first <= home.end and indent >= home.indent


def _home(source: Source, new: Sequence[str], group: Sequence[_Change]) -> Object:
    """The innermost object that the changes are in; the file as the last resort."""
    inside = (each for each in reversed(source.objects) if all(_is_in(change, each, new) for change in group))
    return next(inside, source.objects[0])


def _edit(source: Source, new: Sequence[str], group: Sequence[_Change]) -> tuple[_Change, Object]:
    """Take so many lines around the changes that the object has the text once."""
    home = _home(source, new, group)
    span = _Change(group[0].first, group[-1].end, group[0].new_first, group[-1].new_end)
    for around in _spans(span, home):
        old = source.lines[around.first : around.end]
        edges = (*old[: span.first - around.first][:1], *old[span.end - around.first :][-1:])
        if any(line.strip() for line in old) and all(_TELLING.match(line) for line in edges):
            edit = Edit.make("", old, new[around.new_first : around.new_end])
            if len(source.find(edit.old, home.qualname)) == 1:
                return around, home
    raise ValueError(f"nothing around line {span.first + 1} is there once in {home.qualname or 'the file'}")


def _spans(span: _Change, home: Object) -> Iterator[_Change]:
    """With more and more lines before and after it, both alike if possible."""
    before_max, after_max = span.first - home.first, home.end - span.end
    for lines in range(before_max + after_max + 1):
        choices = [(before, lines - before) for before in range(lines, -1, -1)]
        for before, after in sorted(choices, key=lambda each: abs(each[0] - each[1])):
            if before <= before_max and after <= after_max:
                yield _Change(span.first - before, span.end + after, span.new_first - before, span.new_end + after)


def edits_of_the_working_tree() -> tuple[Edit, ...]:
    """What `git diff` shows of the product."""
    git = ("git", "-C", str(ROOT))
    names = _run(*git, "diff", "--name-status", "--no-renames", "--", *PACKAGES, "pyproject.toml").splitlines()
    edits: list[Edit] = []
    for status, path in (line.split("\t") for line in names):
        if status != "M":
            raise ValueError(f"{path} is new or gone: a mutant changes files that there are")
        before, after = _run(*git, "show", f":{path}"), (ROOT / path).read_text()
        python = path.endswith(".py")
        edits += edits_between(module_of(path) if python else "", before, after, file="" if python else path)
    if not edits:
        raise ValueError("git diff shows no change of the product")
    return tuple(edits)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.make", description=__doc__)
    parser.add_argument("name", help="of the file, in words that say what is wrong")
    parser.add_argument("--wrong", default="", help="what is wrong, in a sentence")
    parser.add_argument("--fails", nargs="+", default=(), help="the tests that fail: tests/<file>.py::<test>")
    parser.add_argument("--expect", default="", help="or the invariant by which chaos runs fail, or liveness")
    parser.add_argument("--seeds", default="", help="and the seeds of these runs, A:B")
    return parser.parse_args(arguments)


def _made(options: argparse.Namespace, path: Path) -> Mutant:
    """Raises `ValueError` if neither the command nor the file of that name says who must see it."""
    seen_by = bool(options.fails) + bool(options.expect)
    if seen_by > 1 or bool(options.expect) != bool(options.seeds) or not (path.exists() or (seen_by and options.wrong)):
        raise ValueError("say --wrong, and who must see it: --fails, or --expect and --seeds")
    mutant = Mutant(
        options.name, options.wrong, edits_of_the_working_tree(), tuple(options.fails), options.expect, options.seeds
    )
    if not path.exists():
        return mutant
    was = load(path)
    if not seen_by:
        mutant = attrs.evolve(mutant, fails=was.fails, expect=was.expect, seeds=was.seeds)
    return attrs.evolve(mutant, wrong=options.wrong or was.wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, and say how to try it."""
    options = _options(arguments)
    path = HERE / f"{options.name}.toml"
    try:
        path.write_text(dump(_made(options, path)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{path.relative_to(ROOT)} is written. Restore the product, and try it:")
    print(f"  .venv/bin/python -m pytest tests/mutants -k {options.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
