"""docs/runtime-semantics.md: numbered guarantees, each with tests that exist, and an example that runs."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.project_copy import PROJECT

PAGE = (PROJECT / "docs" / "runtime-semantics.md").read_text()
GUARANTEE = re.compile(r"^- \*\*G(\d+)\.\*\* (.*?)(?=^- |^## |\Z)", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

GUARANTEES = {int(number): text for number, text in GUARANTEE.findall(PAGE)}


def functions_of(path: str) -> set[str]:
    """The test functions at the top of a file."""
    tree = ast.parse((PROJECT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_they_are_numbered_without_gaps() -> None:
    assert [int(number) for number, _ in GUARANTEE.findall(PAGE)] == list(range(1, len(GUARANTEES) + 1))
    assert len(GUARANTEES) > 40


@pytest.mark.parametrize("number", GUARANTEES)
def test_each_is_one_sentence_with_tests_that_exist(number: int) -> None:
    sentence, _, _ = GUARANTEES[number].partition("`tests/")
    assert re.search(r"\.\s", sentence.strip()[:-1]) is None
    assert sentence.strip().endswith(".")
    found = TEST.findall(GUARANTEES[number])
    assert found
    missing = [
        f"{path}::{name}" for path, name in found if name not in functions_of(path) or not name.startswith("test_")
    ]
    assert missing == []


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/runtime-semantics.md", "exec"), {"__name__": "example"})
