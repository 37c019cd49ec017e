"""What the Makefile refuses: a Python that is too old, a mutant that no longer applies. And what it compiles."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.architecture.byte_code import compile_all, uncompiled
from tests.architecture.project_copy import PROJECT, ProjectCopy

MUTANT = """wrong = "Much."
fails = ["tests/test_one.py::test_one"]

[[edits]]
where = "rmq_actors.target"
old = "value = {was}"
new = "value = 0"
"""


def test_an_old_python_is_named(project_copy: ProjectCopy) -> None:
    outcome = project_copy.run("make", "PYTHON=", "test")
    assert "error: Python 3.11 or later is needed" in outcome.output
    assert outcome.exit_code != 0


@pytest.mark.parametrize(("was", "applies"), [("1", True), ("2", False)])
def test_a_mutant_that_does_not_apply_fails_the_check(project_copy: ProjectCopy, was: str, applies: bool) -> None:
    mutants = project_copy.root / "tests" / "mutants"
    mutants.mkdir(parents=True)
    for file in (PROJECT / "tests" / "mutants").glob("*.py"):
        shutil.copy(file, mutants)
    project_copy.append("tests/__init__.py", "")
    project_copy.append("tests/test_one.py", "def test_one(): ...\n")
    project_copy.append("rmq_actors/target.py", "value = 1\n")
    project_copy.append("tests/mutants/one.toml", MUTANT.format(was=was))
    project_copy.append("filled", "")  # newer than pyproject.toml: nothing is installed
    outcome = project_copy.run("make", "FILLED=filled", f"BIN={Path(sys.executable).parent}", "mutants-apply")
    assert (outcome.exit_code == 0) is applies
    assert ("error: tests/mutants/one.toml no longer applies" in outcome.output) is not applies


def test_tests_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    paths = [tmp_path / f"test_{name}.py" for name in ("one", "two")]
    for path in paths:
        path.write_text("def test() -> None: ...\n")
    assert uncompiled(tmp_path) == paths
    compile_all(paths)
    assert uncompiled(tmp_path) == []
    later_s = paths[1].stat().st_mtime + 10
    os.utime(paths[1], (later_s, later_s))
    assert uncompiled(tmp_path) == [paths[1]]
