"""A copy of the project's sources in a temporary directory, to be broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import attrs

PROJECT = Path(__file__).parents[2]
PACKAGES = ("rmq_actors", "sim_net")
SIM_NET_CONTRACTS = "importlinter-sim-net.toml"
SETTINGS = ("pyproject.toml", SIM_NET_CONTRACTS, "Makefile")
TOOL_TIMEOUT_S = 60


@attrs.frozen
class Outcome:
    """How a tool ended, and all it printed."""

    exit_code: int
    output: str


@attrs.frozen
class ProjectCopy:
    """The copied tree under `root`."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> ProjectCopy:
        """Copy the Python sources and the settings of the tools."""
        for package in PACKAGES:
            shutil.copytree(PROJECT / package, root / package, ignore=shutil.ignore_patterns("__pycache__", "golden"))
        for name in SETTINGS:
            shutil.copy(PROJECT / name, root / name)
        return cls(root)

    def append(self, path: str, text: str) -> None:
        """Add lines at the end of a file; a missing file, and its directories, are made."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a") as file:
            file.write(text)

    def lint_imports(self, contracts: str = "pyproject.toml") -> Outcome:
        """Run import-linter with the contracts of a file."""
        command = "from importlinter.cli import lint_imports_command as run; run()"
        return self.run(sys.executable, "-c", command, "--no-cache", "--no-logo", "--config", contracts)

    def ruff_check(self, path: str) -> Outcome:
        """Run ruff on one file with the project's rules."""
        return self.run(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", path)

    def run(self, *command: str) -> Outcome:
        """Run a command in the copy."""
        done = subprocess.run(
            command,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
        return Outcome(done.returncode, done.stdout)
