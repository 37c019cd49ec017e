"""What commands cannot use, or cannot write: a line that says so, and the exit code of bad input."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli import full_disks
from rmq_actors.cli.main import app
from tests.worlds.golden_capture import STORE_MASTER_KILLED


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["admin", "route", ""], "'topic': it is empty"),
        (["admin", "query", "Topic", ""], "'key': it is empty"),
        (["admin", "reset-offsets", "", "Topic", "0"], "'group': it is empty"),
        (["admin", "send", "Topic", "\udcff"], "is not UTF-8"),
        (["admin", "consume", "Topic", "group", "--tags", "\udcff"], "is not UTF-8"),
        (["admin", "tail", "Topic", "--wait", "nan"], "nan is not a number"),
        (["broker-admin", "status", "127.0.0.1:1", "--watch", "--interval", "nan"], "nan is not a number"),
        (["chaos", "run", "--out", "o\udcff"], "'o\\udcff' is not UTF-8"),
        (["chaos", "run", "--scenario", "\udcff"], "no scenario is called '\\udcff'"),
        (["chaos", "run", "--seeds", "\udcff"], "'\\udcff' is neither a number nor A:B"),
        (["chaos", "replay", "\udcff.json"], "No such file or directory: '\\udcff.json'"),
        (["trace", "recover", "o\udcff"], "'o\\udcff' is not UTF-8"),
        (["trace", "show", "--traces", "o\udcff"], "'o\\udcff' is not UTF-8"),
        (["trace", "report", "--traces", "o\udcff", "--out", "x"], "'o\\udcff' is not UTF-8"),
        (["trace", "export", "--traces", ".", "--run", "1", "--format", "shiviz", "--out", "\udcff"], "is not UTF-8"),
        (["chaos", "run", "--seeds", f"{2**63}:{2**63 + 2}"], "past the last seed"),
        (["trace", "show", "--traces", ".", "--run", f"{2**63}"], "is not in the range"),
    ],
)
def test_what_no_command_can_use(arguments: list[str], told: str) -> None:
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 2
    assert told in " ".join(ended.stderr.replace("│", " ").split())


def test_a_case_that_is_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text("[" * 100_000)
    ended = CliRunner().invoke(app, ["chaos", "replay", str(tmp_path / "case.json")])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "recursion" in ended.stderr


@pytest.mark.parametrize("arguments", [["chaos", "list"], ["--help"], ["chaos", "run", "--seeds", "0", "--digest"]])
def test_what_is_printed_where_no_room_is_left(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "rmq_actors.cli.entry", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (2, "rmq-actors: No space left on device\n")


@pytest.mark.parametrize(
    ("streams", "exit_code"),
    [(">&-", 0), ("<&- >&-", 0), (">/dev/full 2>&1", 2), (">&- 2>&-", 0), (">/dev/full 2>&-", 2)],
)
@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["store", "check", str(STORE_MASTER_KILLED)], ["store", "dump", str(STORE_MASTER_KILLED)]],
)
def test_what_is_printed_where_nobody_listens(arguments: list[str], streams: str, exit_code: int) -> None:
    """`store check` has something to say on standard error alone."""
    command = [sys.executable, "-m", "rmq_actors.cli.entry", *arguments]
    ended = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", *command], capture_output=True, check=False)
    if arguments[:2] == ["store", "check"]:
        exit_code = 2 if streams == ">/dev/full 2>&1" else 0
    assert (ended.returncode, ended.stdout) == (exit_code, b"")
    assert b"Traceback" not in ended.stderr


def test_a_full_disk_that_several_tasks_meet_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    full = [OSError(errno.ENOSPC, "no room", "a"), OSError(errno.EDQUOT, "no room", "b")]
    with pytest.raises(SystemExit) as ended, full_disks.exits_with_2():
        raise BaseExceptionGroup("tasks", [ExceptionGroup("one", full[:1]), *full[1:]])
    assert (ended.value.code, capsys.readouterr().err) == (2, "rmq-actors: No space left on device: a\n")
    with pytest.raises(ExceptionGroup), full_disks.exits_with_2():
        raise ExceptionGroup("tasks", [*full, ValueError("another one")])
