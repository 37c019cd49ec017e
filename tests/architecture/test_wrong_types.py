"""The wrong lines of tests/typing without their ignores: mypy and pyright see each, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project_copy import PROJECT

SOURCES = sorted((PROJECT / "tests" / "typing").glob("*_types.py"))
IGNORES = re.compile(r"  # type: ignore\[.*$")


def lines_with_errors(source: Path, tmp_path: Path, *command: str) -> set[int]:
    bare = tmp_path / "bare.py"
    bare.write_text("\n".join(IGNORES.sub("", line) for line in source.read_text().splitlines()) + "\n")
    outcome = subprocess.run([*command, str(bare)], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    return {int(line) for line in re.findall(r"bare\.py:(\d+):(?:\d+ -)? error", outcome.stdout)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_both_checkers_see_each_wrong_line(source: Path, tmp_path: Path) -> None:
    wrong = {number for number, line in enumerate(source.read_text().splitlines(), 1) if IGNORES.search(line)}
    assert len(wrong) > 10
    programs = Path(sys.executable).parent
    pyright = [str(programs / "basedpyright"), "--pythonpath", sys.executable, "--level", "error"]
    assert lines_with_errors(source, tmp_path, sys.executable, "-m", "mypy", "--strict") == wrong
    assert lines_with_errors(source, tmp_path, *pyright) == wrong
