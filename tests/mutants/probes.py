"""Statements that count how often a mutant's place is executed, put into a copy of the product.

They cost next to nothing, where a trace of every line takes several times the run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from pathlib import Path

import attrs

from tests.mutants.mutant import Edit, Mutant

#: What the probes count in: `hunt.py` makes it a built-in name.
COUNTER = "executions_of_mutants"
_JUDGE = "rmq_actors.testing"


@attrs.frozen
class Place:
    """What a mutant changes of a file: these lines, counted from 1, or something outside of functions, too."""

    path: Path
    lines: frozenset[int]
    everywhere: bool
    #: Nothing is changed but within bodies of functions.
    in_bodies: bool


def places(mutant: Mutant, root: Path) -> list[Place]:
    """Where it changes the product: nothing for a mutant of the judge, or of a file that is not a module."""
    return [_place(edit, root) for edit in mutant.edits if not edit.file and not edit.module.startswith(_JUDGE)]


def _place(edit: Edit, root: Path) -> Place:
    text = edit.path(root).read_text()
    first = edit.match(edit.read(root)).first + 1
    lines = {first + number for number in _changed(edit.old, edit.new)}
    tree = ast.parse(text)
    within, heads = lines & _lines_of_functions(tree), _lines_of_heads(tree)
    in_bodies = within == lines and not lines & heads
    return Place(edit.path(root), frozenset(within), everywhere=not within, in_bodies=in_bodies)


def _changed(old: Sequence[str], new: Sequence[str]) -> set[int]:
    """Which of the old lines go; where lines are only inserted, the one that they come before or, at the end, after."""
    found = set[int]()
    for tag, begin, end, _, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "insert":
            found.add(min(begin, len(old) - 1))
        elif tag != "equal":
            found.update(range(begin, end))
    return {number for number in found if old[number].strip()} or set(range(len(old)))


def _lines_of_functions(tree: ast.AST) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _lines_of_heads(tree: ast.AST) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for line in range(min(each.lineno for each in (node, *node.decorator_list)), node.body[0].lineno)
    }


def with_probes(text: str, wanted: Sequence[tuple[str, AbstractSet[int]]]) -> str:
    """The text with a probe for each of `wanted`, a name and lines of functions: before each statement on them.

    Where a line is no statement's, as `else:`, it is the statement around it that is counted; for the head of a
    function, each call.
    """
    tree = ast.parse(text)
    for name, lines in wanted:
        _insert(tree, _probe(name), lines)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _probe(name: str) -> ast.stmt:
    return ast.parse(f"{COUNTER}[{name!r}] += 1").body[0]


def _insert(tree: ast.Module, probe: ast.stmt, lines: AbstractSet[int]) -> None:
    left = set(lines)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = [body for function in functions for node in ast.walk(function) for body in _bodies(node)]
    places = dict[int, tuple[list[ast.stmt], ast.stmt]]()
    for body in bodies:
        for statement in body:
            head = set(_head(statement))
            if head & lines:
                places[id(statement)] = body, statement
                left -= head
    for line in sorted(left):
        around = [
            (body, each) for body in bodies for each in body if each.lineno <= line <= (each.end_lineno or each.lineno)
        ]
        if around:
            body, statement = max(around, key=lambda found: found[1].lineno)
            places[id(statement)] = body, statement
        else:
            for function in functions:
                if function.lineno <= line <= (function.end_lineno or function.lineno):
                    places[id(function.body[-1])] = function.body, function.body[0]
    for body, statement in places.values():
        body.insert(body.index(statement), probe)


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [each for each in found if isinstance(each, list)]


def _head(statement: ast.stmt) -> range:
    """The lines of a simple statement, or those before the body of another one."""
    bodies = [body for body in _bodies(statement) if body]
    if isinstance(statement, ast.Match):
        bodies = [case.body for case in statement.cases]
    if bodies and isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return range(0)
    end = min((body[0].lineno for body in bodies), default=(statement.end_lineno or statement.lineno) + 1)
    return range(statement.lineno, max(end, statement.lineno + 1))
