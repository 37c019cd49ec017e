"""`rmq-actors store truncate`: cuts the end of a log that nobody has open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import trio
import typer

from rmq_actors.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmq_actors.embedding.broker import LoadedBroker


def truncate(
    end_offset: Annotated[int, typer.Argument(min=0, help="Where the log ends afterwards: the end of a record.")],
    config_file: Annotated[
        Path, typer.Option("-c", "--config-file", help="The broker's properties file: its store, and file sizes.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to cut.")] = False,
) -> None:
    """Cut a stopped broker's log where it diverges from its master's; the bytes are kept in cut/.

    A slave that has halted says where: "the master is known to have the log
    up to N". While the broker runs, use rmq-actors broker-admin truncate.
    rmq-actors store dump prints what was cut, from a file of cut/.

    Exit codes: 0 done, 1 a disk error, 2 the store is open, or cannot be cut there.
    """
    from rmq_actors.embedding.broker import load_broker_config

    try:
        loaded = load_broker_config(config_file)
    except ValueError as error:
        _refuse(str(error), error)
    if not loaded.store.is_dir():
        _refuse(f"{loaded.store}: no such directory")
    if not yes:
        typer.confirm(f"Cut the log of {loaded.store} at {end_offset}?", abort=True)
    try:
        kept_bytes = trio.run(_truncate, loaded, end_offset)
    except BlockingIOError as error:
        _refuse(f"{loaded.store}: a broker has the store open: {error.strerror}", error)
    except OSError as error:
        typer.echo(f"rmq-actors store truncate: {loaded.store}: {error}", err=True)
        raise typer.Exit(ExitCode.CHECK_FAILED) from error
    except ValueError as error:
        _refuse(f"{loaded.store}: {error}", error)
    typer.echo(f"{loaded.store}: the log ends at {end_offset}, {kept_bytes} bytes are kept in cut/")


async def _truncate(loaded: LoadedBroker, end_offset: int) -> int:
    from rmq_actors.broker.stopped_broker import truncate_stopped_broker
    from rmq_actors.embedding.real_recorder import real_recorder
    from rmq_actors.real_io.environment import real_environment
    from rmq_actors.tracing.event import RunInfo

    tracer = real_recorder(RunInfo("store", "truncate", 0, source="broker")).tracer("store")
    return await truncate_stopped_broker(loaded.config.store, real_environment(loaded.store), tracer, end_offset)


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    typer.echo(f"rmq-actors store truncate: {why}", err=True)
    raise typer.Exit(ExitCode.BAD_INPUT) from cause
