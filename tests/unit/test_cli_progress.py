"""How commands show long work where there is no terminal."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from rmq_actors.cli.progress import ProgressLines


@pytest.mark.parametrize(("terminal", "told"), [(False, ["runs: 3 of 9", "runs: 6 of 9", "runs: 9 of 9"]), (True, [])])
def test_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, told: list[str]) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    written = io.StringIO()
    lines = ProgressLines(Console(file=written, force_terminal=terminal), "runs", 9)
    for _ in range(9):
        now_s += 20.0
        lines.advance()
    assert written.getvalue().splitlines() == told
