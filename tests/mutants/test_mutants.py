"""Each TOML file beside this one breaks the product on purpose, in a copy of it; something must notice.

    wrong = "what is wrong"
    fails = ["tests/<file>.py::<test>"]     # tests that pass without it; "<test>[<parameter>]" if all take long
    expect = "..."                          # instead: the invariant, or "liveness", by which
    seeds = "A:B"                           # the chaos runs of these seeds fail

    [[edits]]
    where = "module:qualname"               # a function or class; "module" alone: what is in none
    file = "pyproject.toml"                 # instead, for a file that is not Python
    old = "lines that the object has once"  # whole lines, with whatever indentation they have among themselves
    new = "lines that take their place"

`make test` tries one in 48 of them, always the same ones; `make test-long` tries all. `make check` sees that each
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

from tests.mutants.mutant import ROOT, Mutant, load_all

EXIT_CODES = {"crash": 3, "liveness": 4}
#: A mutant takes some seconds, and there are many: `make test` tries this share of them.
_ONE_IN = 48

MUTANTS = load_all()
TESTED = [mutant for mutant in MUTANTS if mutant.fails]
RUN = [mutant for mutant in MUTANTS if not mutant.fails]


def _cases(mutants: list[Mutant]) -> list[ParameterSet]:
    """Those that the name's checksum does not choose are long: the choice stays when others come or go."""
    return [
        pytest.param(
            mutant, id=mutant.name, marks=[] if zlib.crc32(mutant.name.encode()) % _ONE_IN == 0 else pytest.mark.long
        )
        for mutant in mutants
    ]


def _copy_of_the_product(target: Path, *packages: str) -> None:
    # With the compiled files: they are valid where a source is as it was.
    for package in ("rmq_actors", "sim_net", *packages):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("golden"))


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
    return _python(product, "rmq_actors.cli.entry", "chaos", "run", "--seeds", seeds)


def test_there_are_mutants_of_both_kinds() -> None:
    assert "no_ack_check" in {mutant.name for mutant in RUN}
    assert "checkpoint_before_flush" in {mutant.name for mutant in TESTED}


def test_the_unbroken_copy_passes(tmp_path: Path) -> None:
    _copy_of_the_product(tmp_path)
    done = _chaos(tmp_path, "0:10")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mutant", _cases(RUN))
def test_the_chaos_runs_see_it(mutant: Mutant, tmp_path: Path) -> None:
    _copy_of_the_product(tmp_path)
    mutant.apply(tmp_path)
    done = _chaos(tmp_path, mutant.seeds)
    assert done.returncode == EXIT_CODES.get(mutant.expect, 1), done.stderr
    assert re.search(rf"seed \d+: .*{re.escape(mutant.expect)}", done.stderr), done.stderr


@pytest.mark.parametrize("mutant", _cases(TESTED))
def test_its_tests_see_it(mutant: Mutant, tmp_path: Path) -> None:
    _copy_of_the_product(tmp_path, "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    mutant.apply(tmp_path)
    # A directory of its own: at its end pytest removes those of earlier runs, which may be large.
    own = f"--basetemp={tmp_path / 'temporary'}"
    done = _python(tmp_path, "pytest", "-q", "-n0", "-p", "no:cacheprovider", own, *mutant.fails)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^FAILED ([^\s\[]+)(\[.*?\](?= - |$))?", done.stdout, re.MULTILINE)
    # A name without a parameter speaks of any.
    seen = {name + case if name + case in mutant.fails else name for name, case in failed}
    assert seen == set(mutant.fails), done.stdout
