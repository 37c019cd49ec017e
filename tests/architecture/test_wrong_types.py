"""The wrong lines of tests/typing without their ignores: mypy and pyright see each, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.architecture.project_copy import PROJECT

SOURCES = sorted((PROJECT / "tests" / "typing").glob("*_types.py"))
IGNORES = re.compile(r"  # type: ignore\[.*$")


def places_with_errors(directory: Path, *command: str) -> set[tuple[str, int]]:
    outcome = subprocess.run([*command, str(directory)], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    found = re.findall(r"(\w+)\.py:(\d+):(?:\d+ -)? error", outcome.stdout)
    return {(name, int(line)) for name, line in found}


def test_both_checkers_see_each_wrong_line(tmp_path: Path) -> None:
    wrong: set[tuple[str, int]] = set()
    for source in SOURCES:
        lines = source.read_text().splitlines()
        numbers = {number for number, line in enumerate(lines, 1) if IGNORES.search(line)}
        assert len(numbers) > 10
        wrong |= {(source.stem, number) for number in numbers}
        (tmp_path / source.name).write_text("\n".join(IGNORES.sub("", line) for line in lines) + "\n")
    programs = Path(sys.executable).parent
    pyright = [str(programs / "basedpyright"), "--pythonpath", sys.executable, "--level", "error"]
    assert places_with_errors(tmp_path, sys.executable, "-m", "mypy", "--strict") == wrong
    assert places_with_errors(tmp_path, *pyright) == wrong
