"""The text of a file, and where its functions and classes are in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

#: The packages that a mutant may change.
PACKAGES = ("rmq_actors", "sim_net")


@attrs.frozen
class Object:
    """A function or a class, from its first decorator to its last line; with no name, the whole file.

    Lines are counted from 0, and `end` is the first one after it.
    """

    qualname: str
    first: int
    end: int
    #: How far its body is indented at least.
    indent: int


@attrs.frozen
class Match:
    """Where a text was found, and by what each of its lines is indented there."""

    first: int
    end: int
    indent: str


@attrs.frozen
class Source:
    """The lines of a file. `objects` are in the order in which they begin, an outer one before those in it."""

    lines: list[str]
    objects: list[Object]

    @classmethod
    def of_python(cls, text: str) -> Source:
        """Take functions and classes with their `__qualname__`."""
        lines = text.split("\n")
        return cls(lines, [Object("", 0, len(lines), 0), *_objects(ast.parse(text).body, "")])

    @classmethod
    def of_text(cls, text: str) -> Source:
        """Take a file of any kind: it has no names."""
        lines = text.split("\n")
        return cls(lines, [Object("", 0, len(lines), 0)])

    def named(self, qualname: str) -> list[Object]:
        """All of that name: a property and its setter have one."""
        return [each for each in self.objects if each.qualname == qualname]

    def around(self, first: int, end: int) -> Object:
        """The innermost object that these lines are in."""
        return [each for each in self.objects if each.first <= first and end <= each.end][-1]

    def find(self, text: Sequence[str], qualname: str = "") -> list[Match]:
        """Each place in the named object at which these lines are, all indented further by the same, if at all."""
        begins = {
            begin
            for each in self.named(qualname)
            for begin in range(each.first, each.end - len(text) + 1)
            if self.lines[begin].endswith(text[0])
        }
        return [match for begin in sorted(begins) if (match := self._match(begin, text)) is not None]

    def _match(self, begin: int, text: Sequence[str]) -> Match | None:
        indent: str | None = None
        end = begin + len(text)
        for line, wanted in zip(self.lines[begin:end], text, strict=True):
            if not wanted.strip():
                if line.strip():
                    return None
                continue
            before = line.removesuffix(wanted)
            if before.strip() or not line.endswith(wanted) or (indent is not None and before != indent):
                return None
            indent = before
        return None if indent is None else Match(begin, end, indent)


def _objects(body: Sequence[ast.AST], prefix: str) -> Iterator[Object]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = prefix + node.name
            first = min(each.lineno for each in (node, *node.decorator_list)) - 1
            yield Object(name, first, node.end_lineno or node.lineno, node.col_offset + 1)
            yield from _objects(node.body, name + ("." if isinstance(node, ast.ClassDef) else ".<locals>."))
        else:
            for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _objects(getattr(node, part, ()), prefix)


def path_of(module: str, root: Path) -> Path:
    """The file of a module; a file that is missing has the name that it would have."""
    path = root.joinpath(*module.split("."))
    package = path / "__init__.py"
    return package if package.is_file() else path.with_name(path.name + ".py")


def module_of(path: str) -> str:
    """The module of a file, whose path begins at the root."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def product_files(root: Path) -> Iterator[tuple[str, str]]:
    """Module and text of each Python file that a mutant may change."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield module_of(path.relative_to(root).as_posix()), path.read_text()
