"""`rmq-actors namesrv`: a name server as a process."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.interrupts import a_server_runs
from rmq_actors.cli.log_lines import log_to_stdout
from rmq_actors.cli.stop_signals import stop_signals

if TYPE_CHECKING:
    from rmq_actors.embedding.properties_file import LoadedFile
    from rmq_actors.namesrv.config import NamesrvConfig

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config-file",
        help="Settings: a RocketMQ properties file (namesrv.conf). Without it: RocketMQ's defaults, ~/namesrv.",
        show_default=False,
    ),
]
PrintConfig = Annotated[bool, typer.Option("-p", "--print-config-item", help="Print all settings and exit.")]

_log = logging.getLogger(__name__)


@a_server_runs()
def namesrv(config_file: ConfigFile = None, print_config_item: PrintConfig = False) -> None:
    """Run a name server until SIGTERM, SIGINT or SIGHUP: brokers register, clients ask for routes.

    It listens on 127.0.0.1:9876 unless the file has another listenPort=... or
    bindAddress=... (0.0.0.0 for all). Log lines go to standard output. The KV
    table is kept at kvConfigPath. Settings that mqadmin updateNamesrvConfig
    changes are written to the file of settings.

    Exit codes: 0 stopped by a signal, 1 the address is taken, 2 a setting
    or a file is bad, 3 it crashed.
    """
    from rmq_actors.embedding.name_server import load_namesrv_config
    from rmq_actors.namesrv.config import NAMESRV_KEYS
    from rmq_actors.settings.configure import ConfigurationError, to_properties
    from rmq_actors.settings.properties_text import format_properties

    try:
        loaded = load_namesrv_config(config_file)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    if print_config_item:
        print(format_properties(to_properties(loaded.config, NAMESRV_KEYS)), end="")
        return
    log_to_stdout()
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    raise typer.Exit(_run(loaded))


def _run(loaded: LoadedFile[NamesrvConfig]) -> ExitCode:
    from rmq_actors.settings.configure import ConfigurationError
    from rmq_actors.store.files.json_file import ConfigFileDamaged

    try:
        trio.run(_serve, loaded)
    except (ConfigFileDamaged, ConfigurationError) as error:
        _log.error("%s", error)
        return ExitCode.BAD_INPUT
    except OSError as error:
        _log.error("the name server cannot start: %s", error)
        return ExitCode.CHECK_FAILED
    except ExceptionGroup:
        _log.exception("the name server crashed")
        return ExitCode.CRASH
    return ExitCode.OK


async def _serve(loaded: LoadedFile[NamesrvConfig]) -> None:
    from rmq_actors.embedding.name_server import open_configured_name_server

    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with open_configured_name_server(loaded) as controller:
            # RocketMQ's own line: scripts wait for it.
            _log.info("The Name Server boot success. serializeType=JSON")
            _log.info("the name server listens on %s", controller.address)
            async for number in signals:
                _log.info("%s: the name server stops", signal.Signals(number).name)
                break
        _log.info("the name server has stopped")
