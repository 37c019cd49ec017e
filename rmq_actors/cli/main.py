"""The command `rmq-actors`: which commands there are. `entry` imports it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import rmq_actors
from rmq_actors.cli import full_disks, interrupts
from rmq_actors.cli.entry import a_command_runs
from rmq_actors.cli.help_text import flow_help

#: Where each command is: a function, or a `Typer` with the commands below it.
_COMMANDS = {
    "demo": "rmq_actors.cli.demo:demo",
    "namesrv": "rmq_actors.cli.namesrv:namesrv",
    "broker": "rmq_actors.cli.broker:broker",
    "cluster": "rmq_actors.cli.cluster:cluster",
    "top": "rmq_actors.cli.top:top",
    "admin": "rmq_actors.cli.admin:admin_app",
    "broker-admin": "rmq_actors.cli.broker_admin:broker_admin_app",
    "chaos": "rmq_actors.cli.chaos:chaos_app",
    "store": "rmq_actors.cli.store:store_app",
    "trace": "rmq_actors.cli.trace:trace_app",
}


class _Loaded(MutableMapping[str, Any]):
    """Click's commands by name. Each is imported when it is asked for: what the others need would delay its start."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  # Click's, of which Typer has its own copy in some versions
        if name not in self._loaded:
            self._loaded[name] = _load(name, _COMMANDS[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:  # noqa: ANN401
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_COMMANDS, **self._loaded})

    def __len__(self) -> int:
        return len({**_COMMANDS, **self._loaded})


def _load(name: str, place: str) -> Any:  # noqa: ANN401
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    flow_help(command)
    return command


class _Commands(typer.core.TyperGroup):
    """All commands: Ctrl-C ends each of them in the same way, and their help flows."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  # Typer's own
        super().__init__(**settings)
        self.commands = _Loaded()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The name, the command and its arguments; an interrupt is KeyboardInterrupt once its module is imported."""
        found = super().resolve_command(ctx, args)
        a_command_runs()
        return found

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        """Read the arguments and run what they name, or print help."""
        with full_disks.exits_with_2():
            return super().main(*args, **settings)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run a command."""
        with interrupts.exits_with_130(lambda: "rmq-actors: interrupted"):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help="A RocketMQ-compatible broker with replication, and a deterministic world to break it in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rmq-actors {rmq_actors.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A RocketMQ-compatible broker with replication, and a deterministic world to break it in."""
