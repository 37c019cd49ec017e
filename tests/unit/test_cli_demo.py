"""The demo refuses early, and says why, when it cannot end well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli import demo_steps
from rmq_actors.cli.main import app


def test_without_java_it_does_not_begin(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "rmq_actors.cli.entry", "demo", "--out", str(tmp_path / "out")],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Java 17 or later is needed" in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


def test_a_bug_that_is_not_found_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_steps, "replicate", lambda *_: None)
    monkeypatch.setattr(demo_steps, "break_it", lambda *_: [])
    monkeypatch.setattr(demo_steps, "hunt_bug", lambda *_: None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "the planted bug stale_frame was not found in 60 s" in result.output.replace("\n", " ")


@pytest.mark.parametrize("arguments", [["demo", "--runs", "3"], ["demo", "--no-such-option"], ["no-such-command"]])
def test_bad_usage_is_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert arguments[-1] in result.output or "--runs" in result.output
