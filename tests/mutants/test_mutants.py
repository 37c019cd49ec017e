"""Each diff beside this file breaks the product on purpose; the chaos runs of a copy that has it must fail.

The head of a diff says what is broken and how it must show:

    # <what is wrong>
    # expect: <the invariant, or "liveness">
    # seeds: A:B
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = sorted(Path(__file__).parent.glob("*.diff"))
EXIT_CODES = {"crash": 3, "liveness": 4}


def _header(diff: Path, name: str) -> str:
    match = re.search(rf"^# {name}: (.+)$", diff.read_text(), re.MULTILINE)
    assert match, f"{diff.name} does not say '# {name}: ...'"
    return match[1]


def _copy_of_the_product(target: Path) -> None:
    for package in ("rmq_actors", "sim_net"):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__", "golden"))


def _chaos(product: Path, seeds: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmq_actors.cli.main", "chaos", "run", "--seeds", seeds],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_there_are_mutants() -> None:
    assert "no_ack_check" in {diff.stem for diff in MUTANTS}


def test_the_unbroken_copy_passes(tmp_path: Path) -> None:
    _copy_of_the_product(tmp_path)
    done = _chaos(tmp_path, "0:10")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("diff", MUTANTS, ids=lambda diff: diff.stem)
def test_the_chaos_runs_see_it(diff: Path, tmp_path: Path) -> None:
    expected = _header(diff, "expect")
    _copy_of_the_product(tmp_path)
    subprocess.run(["git", "apply", str(diff)], cwd=tmp_path, check=True, env={**os.environ, "GIT_DIR": os.devnull})
    done = _chaos(tmp_path, _header(diff, "seeds"))
    assert done.returncode == EXIT_CODES.get(expected, 1), done.stderr
    assert re.search(rf"seed \d+: .*{re.escape(expected)}", done.stderr), done.stderr
