"""`rmq-actors broker`: a broker as a process."""

from __future__ import annotations

import errno
import gc
import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from rmq_actors.cli.entry import GC_THRESHOLD
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.interrupts import a_server_runs
from rmq_actors.cli.log_lines import log_to_stdout
from rmq_actors.cli.open_files_limit import allow_open_files
from rmq_actors.cli.stop_signals import stop_signals

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController
    from rmq_actors.embedding.broker import LoadedBroker

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config-file",
        help="Settings: a RocketMQ properties file (broker.conf). Without it: RocketMQ's defaults, and ~/store.",
        show_default=False,
    ),
]
NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--name-server",
        help='Where name servers are, "host:port;host:port". Overrides namesrvAddr, which overrides $NAMESRV_ADDR.',
        show_default=False,
    ),
]
PrintConfig = Annotated[bool, typer.Option("-p", "--print-config-item", help="Print all settings and exit.")]

_log = logging.getLogger(__name__)


@a_server_runs()
def broker(
    config_file: ConfigFile = None, name_server: NameServers = None, print_config_item: PrintConfig = False
) -> None:
    """Run a broker, a master or a slave, until SIGTERM, SIGINT or SIGHUP.

    The brokerRole in the file is ASYNC_MASTER, SYNC_MASTER or SLAVE.
    A slave follows haMasterAddress, or the master that name servers name;
    it may be RocketMQ's own. Messages are kept below storePathRootDir.

    It listens on listenPort (10911), on listenPort - 2 (the fast port), and
    for slaves on listenPort + 1: on 127.0.0.1 unless bindAddress=... names
    another address. If that is 0.0.0.0, brokerIP1=... says how others reach
    it.

    Log lines go to standard output. Watch and change it with mqadmin, or
    with rmq-actors broker-admin. Settings that mqadmin updateBrokerConfig changes are written to the file.

    Exit codes: 0 stopped by a signal, 1 it cannot start (an address or the
    store is taken, a disk error), 2 a setting or a file is bad, 3 it crashed.
    """
    from rmq_actors.broker.config import BROKER_KEYS
    from rmq_actors.embedding.broker import load_broker_config
    from rmq_actors.settings.configure import ConfigurationError, to_properties
    from rmq_actors.settings.properties_text import format_properties

    try:
        loaded = load_broker_config(config_file, name_server)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    if print_config_item:
        print(format_properties({**to_properties(loaded.config, BROKER_KEYS), **loaded.others}), end="")
        return
    log_to_stdout()
    for warning in loaded.file.warnings:
        _log.warning("%s", warning)
    raise typer.Exit(_run(loaded))


def prepare_process() -> None:
    """Give a process that is a broker, and nothing else, what it needs of Python and the system."""
    allow_open_files()
    # numpy's threads would only take memory, and to start it while the broker serves would hold everybody for a moment.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("numpy")
    # The objects of messages end with their step: looking for cycles among them finds none, and costs a tenth of it.
    gc.set_threshold(*GC_THRESHOLD)
    # What was imported stays: it need not be looked through when older objects are.
    gc.freeze()


def _run(loaded: LoadedBroker) -> ExitCode:
    prepare_process()
    from rmq_actors.actors.restart import first_leaf
    from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
    from rmq_actors.store.log.log_walk import DamagedLog

    running: list[BrokerController] = []
    try:
        trio.run(_serve, loaded, running)
    except (StoreLayoutError, DamagedLog) as error:
        _log.error("the broker cannot start with the store %s: %s", loaded.store, error)
        return ExitCode.BAD_INPUT
    except ValueError as error:  # settings, accounts, and files that cannot be read
        _log.error("the broker cannot start: %s", error)
        return ExitCode.BAD_INPUT
    except OSError as error:
        if running:
            _log.error("the broker did not stop in order: %s", error)
            return ExitCode.CRASH
        _log.error("the broker cannot start: %s", _why_not(error, loaded))
        return ExitCode.CHECK_FAILED
    except ExceptionGroup as group:
        cause = first_leaf(group)
        if running or not isinstance(cause, OSError):
            _log.exception("the broker crashed")
            return ExitCode.CRASH
        _log.error("the broker cannot start: %s", _why_not(cause, loaded))
        return ExitCode.CHECK_FAILED
    return ExitCode.OK


def _why_not(error: OSError, loaded: LoadedBroker) -> str:
    """The error with what the broker would have opened, as the system's errors do not name the whole path."""
    config = loaded.config
    servers = [server for server in (config.remoting, config.fast_server) if server is not None]
    addresses = [(server.listen_host, server.listen_port) for server in servers]
    addresses.append((config.ha.ha_listen_host, config.ha_config.listen_port))
    if error.errno == errno.EADDRINUSE:
        return f"{error.strerror}"  # which one, too
    wanted = ", ".join(f"{host}:{port}" for host, port in addresses)
    return f"{error}; it would listen on {wanted}, and its store is {loaded.store}"


async def _serve(loaded: LoadedBroker, running: list[BrokerController]) -> None:
    from rmq_actors.embedding.broker import open_configured_broker

    _log.info("the store %s is opened", loaded.store)
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with open_configured_broker(loaded) as controller:
            running.append(controller)
            _introduce(controller, loaded)
            async for number in signals:
                _log.info("%s: the broker stops", signal.Signals(number).name)
                break
        # An orderly stop makes everything durable, then closes the log.
        _log.info("the broker has stopped, its log ends at offset %d", controller.store.commit_log.flushed_where)


def _introduce(controller: BrokerController, loaded: LoadedBroker) -> None:
    config, remoting, log = controller.config, controller.remoting, controller.store.commit_log
    assert remoting is not None
    fast = remoting.fast_remoting_server
    # RocketMQ's own line: scripts wait for it.
    name_servers = "" if config.namesrv_addr is None else f" and name server is {config.namesrv_addr}"
    _log.info(
        "The broker[%s, %s] boot success. serializeType=JSON%s", config.broker_name, remoting.broker_addr, name_servers
    )
    _log.info(
        "the broker is up: brokerRole %s, brokerId %d, brokerClusterName %s, flushDiskType %s",
        config.store.broker_role.value,
        config.broker_id,
        config.broker_cluster_name,
        config.store.flush_disk_type.value,
    )
    _log.info(
        "the broker listens on %s, the fast port is %s, slaves connect to %s",
        remoting.remoting_server.address,
        "none" if fast is None else fast.address,
        controller.ha_address,
    )
    _log.info("the store is %s, its log has offsets %d to %d", loaded.store, log.min_offset, log.max_offset)
    if config.is_slave:
        _log.info("the broker follows %s", config.ha.ha_master_address or "the master that name servers name")
