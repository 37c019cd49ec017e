"""Rules of size and naming that no linter has: no drawers, no giants, no paths of one machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.project_copy import PACKAGES, PROJECT

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
DRAWERS = {"common", "constants", "errors", "exceptions", "helper", "helpers", "misc", "types", "util", "utils"}
# How a file or function that is longer on purpose says why, in its docstring.
REASON = re.compile(rf"Longer than (?:{FILE_LINES_MAX}|{FUNCTION_LINES_MAX}) lines because \w+")
MACHINE_PATH = re.compile(r"(?:^|[^\w./])/(?:root|home|work|Users)/")
TEXT_SUFFIXES = frozenset({".py", ".md", ".toml", ".xml", ".txt", ".json", ".html", ".svg"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_file(source: str) -> bool:
    """Whether a file is too long and does not say why."""
    if source.count("\n") <= FILE_LINES_MAX:
        return False
    return not REASON.search(ast.get_docstring(ast.parse(source)) or "")


def long_functions(source: str) -> list[str]:
    """The names of functions that are too long and do not say why."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, Function)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
        and not REASON.search(ast.get_docstring(node) or "")
    ]


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (PROJECT / package).rglob("*.py")


def texts() -> Iterator[Path]:
    """Everything written by hand: golden captures are left out."""
    yield from (path for path in PROJECT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES | {""})
    yield PROJECT / ".ci" / "run"
    for directory in (*PACKAGES, "tests", "docs", "examples"):
        for path in (PROJECT / directory).rglob("*"):
            if path.suffix in TEXT_SUFFIXES and "golden" not in path.parts:
                yield path


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_no_file_is_too_long_without_a_reason() -> None:
    assert [name_of(path) for path in sources() if long_file(path.read_text())] == []


def test_no_function_is_too_long_without_a_reason() -> None:
    long = {name_of(path): long_functions(path.read_text()) for path in sources()}
    assert {name: functions for name, functions in long.items() if functions} == {}


def test_no_module_is_a_drawer() -> None:
    drawers = {path for path in sources() if DRAWERS & {*path.relative_to(PROJECT).with_suffix("").parts}}
    assert {name_of(path) for path in drawers} == set()


def test_no_text_names_a_path_of_one_machine() -> None:
    found = {
        f"{name_of(path)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("lines", "head", "too_long"),
    [
        (600, "", False),
        (601, "", True),
        (601, '"""A table. Longer than 600 lines because it is one table."""\n', False),
    ],
)
def test_the_rule_for_files(lines: int, head: str, too_long: bool) -> None:
    assert long_file(head + "x = 1\n" * (lines - head.count("\n"))) is too_long


@pytest.mark.parametrize(
    ("lines", "docstring", "too_long"),
    [
        (70, '"""Do it."""', False),
        (71, '"""Do it."""', True),
        (71, '"""Longer than 70 lines because it is a table."""', False),
    ],
)
def test_the_rule_for_functions(lines: int, docstring: str, too_long: bool) -> None:
    source = f"def work():\n    {docstring}\n" + "    step()\n" * (lines - 2)
    assert long_functions(source) == (["work"] if too_long else [])


def test_the_rule_for_paths() -> None:
    assert MACHINE_PATH.search("store in /" + "home/me/store")
    assert not MACHINE_PATH.search("docs/work/page.md and https://example.org/home/x")
