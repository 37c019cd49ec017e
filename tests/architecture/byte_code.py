"""Compiles tests as pytest does, where that is not done yet: `python -m tests.architecture.byte_code DIRECTORY`.

Each process of pytest-xdist collects all tests, at the same time as the others: each would compile all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def uncompiled(directory: Path) -> list[Path]:
    """The files of tests without byte code of this Python and this pytest, or with older one."""
    end = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"

    def is_compiled(path: Path) -> bool:
        compiled = path.parent / "__pycache__" / (path.stem + end)
        return compiled.is_file() and compiled.stat().st_mtime >= path.stat().st_mtime

    return [path for path in sorted(directory.rglob("test_*.py")) if not is_compiled(path)]


def compile_all(paths: Sequence[Path]) -> None:
    """Collect them, in as many processes as there are cores. What is wrong with one, the tests themselves will tell."""
    count = min(len(paths), os.cpu_count() or 1)
    collect = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    processes = [
        subprocess.Popen([*collect, *map(str, paths[number::count])], stdout=subprocess.DEVNULL)
        for number in range(count)
    ]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    compile_all(uncompiled(Path(sys.argv[1])))
