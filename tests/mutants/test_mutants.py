"""Each diff beside this file breaks the product on purpose, in a copy of it; something must notice.

The head of a diff says what is broken and what must notice. Either the chaos runs of these seeds fail by an invariant:

    # <what is wrong>
    # expect: <the invariant, or "liveness">
    # seeds: A:B

or these tests fail, which pass without it:

    # <what is wrong>
    # fails: tests/<file>.py::<test> tests/<file>.py::<test>

`make test` tries one in four of them, always the same ones; `make test-long` tries all. `make check` sees that each
still applies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = sorted(Path(__file__).parent.glob("*.diff"))
EXIT_CODES = {"crash": 3, "liveness": 4}
#: A mutant takes some seconds, and there are many: `make test` tries this share of them.
_ONE_IN = 4


def _find(diff: Path, name: str) -> str | None:
    match = re.search(rf"^# {name}: (.+)$", diff.read_text().partition("\ndiff --git ")[0], re.MULTILINE)
    return match[1] if match else None


def _header(diff: Path, name: str) -> str:
    value = _find(diff, name)
    assert value, f"{diff.name} does not say '# {name}: ...'"
    return value


TESTED = [diff for diff in MUTANTS if _find(diff, "fails")]
RUN = [diff for diff in MUTANTS if diff not in TESTED]


def _cases(diffs: list[Path]) -> list[ParameterSet]:
    """Those that the name's checksum does not choose are long: the choice stays when others come or go."""
    return [
        pytest.param(
            diff, id=diff.stem, marks=[] if zlib.crc32(diff.stem.encode()) % _ONE_IN == 0 else pytest.mark.long
        )
        for diff in diffs
    ]


def _copy_of_the_product(target: Path, *packages: str) -> None:
    for package in ("rmq_actors", "sim_net", *packages):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__", "golden"))


def _apply(diff: Path, product: Path) -> None:
    subprocess.run(["git", "apply", str(diff)], cwd=product, check=True, env={**os.environ, "GIT_DIR": os.devnull})


def _python(product: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *args],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def _chaos(product: Path, seeds: str) -> subprocess.CompletedProcess[str]:
    return _python(product, "rmq_actors.cli.main", "chaos", "run", "--seeds", seeds)


def test_there_are_mutants_of_both_kinds() -> None:
    assert "no_ack_check" in {diff.stem for diff in RUN}
    assert "checkpoint_before_flush" in {diff.stem for diff in TESTED}


def test_the_unbroken_copy_passes(tmp_path: Path) -> None:
    _copy_of_the_product(tmp_path)
    done = _chaos(tmp_path, "0:10")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("diff", _cases(RUN))
def test_the_chaos_runs_see_it(diff: Path, tmp_path: Path) -> None:
    expected = _header(diff, "expect")
    _copy_of_the_product(tmp_path)
    _apply(diff, tmp_path)
    done = _chaos(tmp_path, _header(diff, "seeds"))
    assert done.returncode == EXIT_CODES.get(expected, 1), done.stderr
    assert re.search(rf"seed \d+: .*{re.escape(expected)}", done.stderr), done.stderr


@pytest.mark.parametrize("diff", _cases(TESTED))
def test_its_tests_see_it(diff: Path, tmp_path: Path) -> None:
    tests = _header(diff, "fails").split()
    _copy_of_the_product(tmp_path, "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    _apply(diff, tmp_path)
    done = _python(tmp_path, "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED ([^\s\[]+)", done.stdout, re.MULTILINE))
    assert failed == set(tests), done.stdout
