"""The examples run as they are and print what their readers are told."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_actors.analysis.session import JavaMissing, check_java
from tests.worlds.example_outputs import EXAMPLES, EXPECTED, PROJECT, SPARK_EXPECTED, TWO_MASTERS

#: With tests of their own.
OTHERS = {"chat_server", "simulated_chat"}


def run_example(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*EXPECTED, *SPARK_EXPECTED} | OTHERS
    assert {path.parent.name for path in EXAMPLES.glob("*/*.py")} == {"order_service"}


def test_every_example_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")))
    names = [str(path.relative_to(PROJECT)) for path in EXAMPLES.rglob("*.py") if "__pycache__" not in path.parts]
    assert [name for name in names if name not in pages] == []


def test_the_order_service_passes_its_own_tests(tmp_path: Path) -> None:
    """As its users run them: in its directory, without this project's settings of pytest."""
    own = ("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", f"--basetemp={tmp_path / 'temporary'}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", *own],
        cwd=EXAMPLES / "order_service",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.long  # `make test` runs them with the wheel and what each names at its head: tests/packaging
@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    done = run_example(f"examples/{name}.py")
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[name], done.stdout), done.stdout


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK_EXPECTED)
def test_an_example_of_spark(name: str) -> None:
    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    done = run_example(f"examples/{name}.py", timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert re.search(SPARK_EXPECTED[name], done.stdout), done.stdout


def test_the_asynchronous_masters_run_too() -> None:
    done = run_example("examples/two_masters_two_slaves.py", "2m-2s-async")
    assert done.returncode == 0, done.stderr
    assert re.search(TWO_MASTERS.format(kind="async", role="ASYNC_MASTER"), done.stdout), done.stdout


def test_the_bug_of_the_chat_server_is_found_and_replayed() -> None:
    found = run_example("examples/simulated_chat.py")
    assert found.returncode == 1, found.stdout + found.stderr
    assert re.match(r"run \d+ fails, with \d faults: \w+ was cut off by the server, for no reason\n", found.stdout), (
        found.stdout
    )
    small = re.search(r"^with [1-3] faults \(digest ([0-9a-f]{32})\): \w+ was cut off", found.stdout, re.MULTILINE)
    assert small is not None, found.stdout

    command = re.search(r"^replay it: python (.*)$", found.stdout, re.MULTILINE)
    assert command is not None, found.stdout
    replayed = run_example(*shlex.split(command[1]))
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert f"digest {small[1]}" in replayed.stdout

    fixed = run_example(*shlex.split(command[1]), "--fixed")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr


def test_the_fixed_chat_server_passes() -> None:
    done = run_example("examples/simulated_chat.py", "--fixed", "--runs", "200")
    assert done.stdout == "200 runs: all is well\n", done.stderr
    assert done.returncode == 0
