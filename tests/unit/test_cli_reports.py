"""`--watch` and `--json` of what operators look at: what is shown, each time, and how it ends."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
from rich.console import Console

from rmq_actors.cli import reports
from rmq_actors.cli.broker_request import RequestFailed
from rmq_actors.cli.reports import Report, show_reports
from rmq_actors.remoting.client import RemotingClient
from tests.worlds.interrupted_command import started

Ask = Callable[[RemotingClient], Awaitable[Report]]


@pytest.fixture(autouse=True)
def no_broker_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "run_request", lambda _, ask: trio.run(ask, None))


def asking(*answers: str | Exception) -> Ask:
    """One answer after the other, and then Ctrl-C."""
    rest: Iterator[str | Exception] = iter(answers)

    async def ask(_: RemotingClient) -> Report:
        await trio.lowlevel.checkpoint()
        answer = next(rest, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return Report([answer, "second line"], {"told": answer})

    return ask


def test_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_reports("a:1", asking("one"), as_json=False, interval_s=None)
    assert capsys.readouterr().out == "one\nsecond line\n"
    show_reports("a:1", asking("one"), as_json=True, interval_s=None)
    assert json.loads(capsys.readouterr().out) == {"told": "one"}


def test_a_watch_goes_on_when_the_broker_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    ask = asking("one", RequestFailed("a:1 does not answer"), "two")
    with pytest.raises(KeyboardInterrupt):
        show_reports("a:1", ask, as_json=True, interval_s=0.001)
    lines = capsys.readouterr().out.splitlines()
    failed = {"address": "a:1", "error": "a:1 does not answer"}
    assert [json.loads(line) for line in lines] == [{"told": "one"}, failed, {"told": "two"}]


def test_where_there_is_no_terminal_each_answer_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        show_reports("a:1", asking("one", RequestFailed("gone")), as_json=False, interval_s=0.001)
    assert capsys.readouterr().out == "one\nsecond line\n\nerror: gone\n\n"


def test_on_a_terminal_it_is_drawn_in_its_place_and_no_markup_is_read() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40)
    with pytest.raises(KeyboardInterrupt):
        show_reports("a:1", asking("[red]1[/]", "[red]2[/]"), as_json=False, interval_s=0.001, console=console)
    drawn = file.getvalue()
    assert "[red]2[/]" in drawn
    assert "\x1b[1A" in drawn  # one line up: over the first view
    assert drawn.endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.processes
def test_ctrl_c_ends_a_watch_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with started("broker-admin", "status", address, "--watch", "--json", "--interval", "0.1") as command:
        command.wait_for(lambda: command.stdout.count("\n") >= 2)
        ended = command.interrupt()
    assert (ended.code, ended.stderr) == (130, "rmq-actors: interrupted\n")
    assert {json.loads(line)["error"] for line in ended.stdout.splitlines()} == {
        f"{address} does not answer: Connection refused"
    }
