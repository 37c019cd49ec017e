"""`--second-runs`: who is run again, what is told, and when the run fails all the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project_copy import PROJECT

PLUGIN = """
from tests.worlds.second_runs import SecondRuns

def pytest_configure(config):
    for mark in ("interop", "processes", "spark"):
        config.addinivalue_line("markers", mark)
    config.pluginmanager.register(SecondRuns())
"""
HEAD = """
import pytest
from pathlib import Path

HERE = Path(__file__).parent

def fail_once(name):
    if not (mark := HERE / f"{name}.failed").exists():
        mark.touch()
        raise LookupError(f"{name}, the first time")
"""


def run(directory: Path, tests: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what pytest says."""
    (directory / "conftest.py").write_text(PLUGIN)
    (directory / "test_planted.py").write_text(HEAD + tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", directory, directory, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def told(said: str) -> list[str]:
    return re.findall(r"^needed a second run: \S*::(\S+)$", said, re.MULTILINE)


ONCE = """
@pytest.fixture(scope="module")
def shared():
    fail_once("shared")
    yield []

@pytest.mark.processes
def test_once():
    fail_once("once")

@pytest.mark.interop
def test_whose_shared_fixture_fails_once(shared):
    assert shared == []

def test_well():
    ...
"""
ALWAYS = """
@pytest.mark.processes
def test_always():
    print("tried")
    raise LookupError("each time")
"""
NEVER_REPEATED = """
def test_no_process():
    fail_once("no_process")
"""
HANGS = """
@pytest.mark.processes
@pytest.mark.timeout(1)
def test_hangs():
    with (HERE / "hangs").open("a") as file:
        file.write("tried ")
    while True:
        ...
"""


@pytest.mark.parametrize("processes", [("-n0",), ("-n2", "--dist", "loadscope")], ids=["alone", "xdist"])
def test_what_fails_once_passes_and_is_named_with_its_failure(tmp_path: Path, processes: tuple[str, ...]) -> None:
    code, said = run(tmp_path, ONCE, *processes)
    assert code == 0, said
    assert told(said) == ["test_once", "test_whose_shared_fixture_fails_once"]
    assert "LookupError: once, the first time" in said
    assert re.search(r"3 passed, 2 rerun in ", said), said


def test_what_fails_always_has_failed(tmp_path: Path) -> None:
    code, said = run(tmp_path, ONCE + ALWAYS, "-n0")
    assert code == 1, said
    assert told(said) == ["test_once", "test_whose_shared_fixture_fails_once"]
    assert re.search(r"^FAILED \S+::test_always\b", said, re.MULTILINE), said


def test_a_test_without_processes_is_not_repeated(tmp_path: Path) -> None:
    code, said = run(tmp_path, NEVER_REPEATED, "-n0")
    assert (code, told(said)) == (1, []), said


def test_what_hangs_is_not_repeated(tmp_path: Path) -> None:
    code, said = run(tmp_path, HANGS, "-n0")
    assert (code, told(said)) == (1, []), said
    assert (tmp_path / "hangs").read_text() == "tried "


@pytest.mark.parametrize(("count", "expected"), [(3, 0), (4, 1)])
def test_more_than_three_fail_the_run(tmp_path: Path, count: int, expected: int) -> None:
    test = "@pytest.mark.processes\ndef test_{0}(): fail_once('{0}')\n"
    code, said = run(tmp_path, "\n".join(test.format(number) for number in range(count)), "-n0")
    assert code == expected, said
    assert len(told(said)) == count
    assert ("error: 4 tests needed a second run; 3 may" in said) == bool(expected)
