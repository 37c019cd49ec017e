"""Reports of a running broker: printed once, or again and again, for people and for scripts.

terminal      one view, drawn again in its place
elsewhere     the lines of each question, and an empty line after them
--json        one object per question, each in a line of its own if there are several
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import attrs
import trio
import typer

from rmq_actors.cli.argument_values import number
from rmq_actors.cli.broker_request import RequestFailed, run_request

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rmq_actors.remoting.client import RemotingClient

Interval = Annotated[
    float,
    typer.Option("--interval", min=0.1, max=3600, callback=number, help="How many seconds lie between two questions."),
]


@attrs.frozen
class Report:
    """What one question gave: lines for people, an object for scripts."""

    lines: Sequence[str]
    as_json: Mapping[str, Any]


def show_reports(
    address: str,
    ask: Callable[[RemotingClient], Awaitable[Report]],
    *,
    as_json: bool,
    interval_s: float | None,
    console: Console | None = None,
) -> None:
    """Show what `ask` gives: once, or every `interval_s` until an interrupt ends it.

    A question that fails ends the command if it is the only one (exit code 1). Else the failure is what is shown, as
    `{"address": ..., "error": ...}` in JSON, and the next question may go well.
    """
    if interval_s is None:
        report = run_request(address, ask)
        typer.echo(json.dumps(report.as_json, indent=2) if as_json else "\n".join(report.lines))
        return
    from rich.console import Console
    from rich.live import Live

    console = console or Console()
    live = console.is_terminal and not as_json

    async def watch(client: RemotingClient) -> None:
        with Live(console=console, auto_refresh=False, transient=False) if live else _Lines(as_json) as view:
            while True:
                view.update(_shown(await _asked(client, address, ask), as_json=as_json), refresh=True)
                await trio.sleep(interval_s)

    run_request(address, watch)


@attrs.frozen
class _Lines:
    """A view that is not drawn again: one is printed after the other."""

    _each_in_a_line: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to give back."""

    def update(self, shown: Text, *, refresh: bool) -> None:
        """Print it now, whoever reads the other end of a pipe."""
        print(shown.plain if self._each_in_a_line else f"{shown.plain}\n", flush=refresh)


async def _asked(client: RemotingClient, address: str, ask: Callable[[RemotingClient], Awaitable[Report]]) -> Report:
    try:
        return await ask(client)
    except RequestFailed as error:
        return Report([f"error: {error}"], {"address": address, "error": str(error)})


def _shown(report: Report, *, as_json: bool) -> Text:
    from rich.text import Text

    # A `Text` is shown as it is: what a broker tells is not taken for rich's markup.
    return Text(json.dumps(report.as_json) if as_json else "\n".join(report.lines), no_wrap=True)
