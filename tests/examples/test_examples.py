"""The examples run as they are and print what their readers are told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "embedded_cluster": r"(order \d is at offset \d+, and the slave has it\n){10}both logs: \d+ bytes, SHA-256 \w{16}",
    "simulated_echo": r"line 2 came back after 4\.\d+ s[\s\S]*both runs: digest [0-9a-f]{32}",
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(EXPECTED[name], done.stdout), done.stdout
    assert f"examples/{name}.py" in (EXAMPLES.parent / "README.md").read_text()
