"""A mutant as data: read from its file, written, and applied to a tree."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tests.mutants.source import PACKAGES, Match, Source, path_of

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
_KEYS = ({"wrong", "fails", "edits"}, {"wrong", "expect", "seeds", "edits"})
_EDIT_KEYS = ({"where", "old", "new"}, {"file", "old", "new"})


class NotAMutant(ValueError):
    """A file that does not say what a mutant must say."""


class DoesNotApply(ValueError):
    """An edit whose old text is not where it should be, or not just once."""


def lines_of(text: str) -> list[str]:
    """The lines of a text, whose last newline may be missing; an empty text has none."""
    return text.removesuffix("\n").split("\n") if text else []


@attrs.frozen
class Edit:
    """Some lines of an object, and the lines that take their place. Both are indented as far as the other needs it."""

    #: `module:qualname`, or `module` for what is in no function or class.
    where: str
    #: Instead: a file that is not Python.
    file: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    @classmethod
    def make(cls, where: str, old: Sequence[str], new: Sequence[str], *, file: str = "") -> Edit:
        """Take away the indentation that all lines share."""
        margin = min((len(line) - len(line.lstrip(" ")) for line in (*old, *new) if line.strip()), default=0)
        return cls(where, file, tuple(line[margin:] for line in old), tuple(line[margin:] for line in new))

    @property
    def module(self) -> str:
        return self.where.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.where.partition(":")[2]

    def path(self, root: Path) -> Path:
        """The file that it changes."""
        return root / self.file if self.file else path_of(self.module, root)

    def read(self, root: Path) -> Source:
        """The file as it is. Raises `DoesNotApply` if it is missing."""
        path = self.path(root)
        if not path.is_file():
            raise DoesNotApply(f"there is no {self.file or self.module}")
        text = path.read_text()
        return Source.of_text(text) if self.file else Source.of_python(text)

    def match(self, source: Source) -> Match:
        """Where the old text is. Raises `DoesNotApply`."""
        name = self.where or self.file
        if not source.named(self.qualname):
            raise DoesNotApply(f"there is no {name}")
        found = source.find(self.old, self.qualname)
        if not found:
            raise DoesNotApply(f"{name} does not have the old text")
        if len(found) > 1:
            lines = ", ".join(str(each.first + 1) for each in found)
            raise DoesNotApply(f"{name} has the old text {len(found)} times, at lines {lines}: take more lines into it")
        return found[0]


@attrs.frozen
class Mutant:
    """What is wrong, how, and who must see it: tests that fail, or chaos runs of `seeds`, by the invariant `expect`."""

    name: str
    wrong: str
    edits: tuple[Edit, ...]
    fails: tuple[str, ...] = ()
    expect: str = ""
    seeds: str = ""

    def apply(self, root: Path) -> None:
        """Change the tree. Raises `DoesNotApply`."""
        for path in dict.fromkeys(edit.path(root) for edit in self.edits):
            edits = [edit for edit in self.edits if edit.path(root) == path]
            text = changed(edits[0].read(root), edits)
            if path.suffix == ".py":
                ast.parse(text)
            path.write_text(text)


def changed(source: Source, edits: Sequence[Edit]) -> str:
    """The text of a file after edits of it: each is of the file as it was, so their order does not matter."""
    found = sorted(((edit.match(source), edit) for edit in edits), key=lambda each: each[0].first, reverse=True)
    lines, beyond = list(source.lines), len(source.lines)
    for match, edit in found:
        if match.end > beyond:
            raise DoesNotApply(f"two edits of {edit.where or edit.file} change line {beyond + 1}: make them one")
        lines[match.first : match.end] = [match.indent + line if line.strip() else line for line in edit.new]
        beyond = match.first
    return "\n".join(lines)


def load(path: Path) -> Mutant:
    """Read a mutant. Raises `NotAMutant`."""
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise NotAMutant(str(error)) from error
    _check_keys(data, _KEYS)
    edits = tuple(_edit(each) for each in data["edits"])
    if not edits or not data["wrong"].strip():
        raise NotAMutant("it says nothing in `wrong`, or has no edits")
    return Mutant(
        path.stem, data["wrong"], edits, tuple(data.get("fails", ())), data.get("expect", ""), data.get("seeds", "")
    )


def _edit(data: Mapping[str, str]) -> Edit:
    _check_keys(data, _EDIT_KEYS)
    edit = Edit.make(data.get("where", ""), lines_of(data["old"]), lines_of(data["new"]), file=data.get("file", ""))
    if not any(line.strip() for line in edit.old):
        raise NotAMutant("an edit has no old text: take the line before or after it into both texts")
    if edit.old == edit.new:
        raise NotAMutant("an edit changes nothing")
    if edit.where and edit.module.partition(".")[0] not in PACKAGES:
        raise NotAMutant(f"{edit.module} is no module of {' or '.join(PACKAGES)}")
    return edit


def _check_keys(data: Mapping[str, object], choices: Sequence[set[str]]) -> None:
    if set(data) not in choices:
        wanted = " or ".join(", ".join(sorted(keys)) for keys in choices)
        raise NotAMutant(f"it has {', '.join(sorted(data))}; wanted: {wanted}")


def load_all() -> list[Mutant]:
    """Each mutant beside this file, by name. Raises `NotAMutant`."""
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        try:
            mutants.append(load(path))
        except NotAMutant as error:
            raise NotAMutant(f"{path.name} is no mutant: {error}") from error
    return mutants


def dump(mutant: Mutant) -> str:
    """The text of the file of a mutant."""
    parts = [f"wrong = {_string(mutant.wrong)}"]
    if mutant.fails:
        parts += ["fails = [", *(f"    {_string(test)}," for test in mutant.fails), "]"]
    else:
        parts += [f"expect = {_string(mutant.expect)}", f"seeds = {_string(mutant.seeds)}"]
    for edit in mutant.edits:
        place = f"file = {_string(edit.file)}" if edit.file else f"where = {_string(edit.where)}"
        parts += ["", "[[edits]]", place, f"old = {_block(edit.old)}", f"new = {_block(edit.new)}"]
    return "\n".join(parts) + "\n"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _block(lines: Sequence[str]) -> str:
    """Lines as they are; a text that TOML's literal strings cannot hold is escaped."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return "''"
    if "'''" in text or not text.replace("\n", "").isprintable():
        return _string(text)
    return f"'''\n{text}'''"
