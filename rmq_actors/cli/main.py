"""The command `rmq-actors`: which commands there are. `entry` imports it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

import rmq_actors
from rmq_actors.cli import interrupts
from rmq_actors.cli.admin import admin_app
from rmq_actors.cli.broker import broker
from rmq_actors.cli.broker_admin import broker_admin_app
from rmq_actors.cli.chaos import chaos_app
from rmq_actors.cli.cluster import cluster
from rmq_actors.cli.demo import demo
from rmq_actors.cli.entry import a_command_runs
from rmq_actors.cli.help_text import flow_help
from rmq_actors.cli.namesrv import namesrv
from rmq_actors.cli.store import store_app
from rmq_actors.cli.top import top
from rmq_actors.cli.trace import trace_app


class _Commands(typer.core.TyperGroup):
    """All commands: Ctrl-C ends each of them in the same way, and their help flows."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  # Typer's own
        super().__init__(**settings)
        flow_help(self)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # Click's, of which Typer has its own copy in some versions
        """Run a command."""
        a_command_runs()
        with interrupts.exits_with_130(lambda: "rmq-actors: interrupted"):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help="A RocketMQ-compatible broker with replication, and a deterministic world to break it in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(namesrv)
app.command()(broker)
app.command()(cluster)
app.command()(top)
app.add_typer(admin_app, name="admin")
app.add_typer(broker_admin_app, name="broker-admin")
app.add_typer(chaos_app, name="chaos")
app.add_typer(store_app, name="store")
app.add_typer(trace_app, name="trace")


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
