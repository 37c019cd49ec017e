"""`rmq-actors cluster`: a name server, masters and their slaves in one process, for trying things out."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from rmq_actors.cli.broker import prepare_process
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.interrupts import a_server_runs
from rmq_actors.cli.log_lines import log_to_stdout
from rmq_actors.cli.stop_signals import stop_signals

if TYPE_CHECKING:
    from rmq_actors.embedding.cluster import RealCluster

Directory = Annotated[Path, typer.Option("--dir", help="Where the brokers' stores are; made if it is not there.")]
Masters = Annotated[int, typer.Option(min=1, max=16, help="How many masters; each is a broker name of its own.")]
Slaves = Annotated[int, typer.Option(min=0, max=16, help="How many slaves each master has.")]
Sync = Annotated[bool, typer.Option("--sync", help="A message is confirmed when a slave has it, too (SYNC_MASTER).")]
NameServerPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Where clients find the name server, on 127.0.0.1. 0: a free port.")
]

_log = logging.getLogger(__name__)


@a_server_runs()
def cluster(
    directory: Directory = Path("out/cluster"),
    masters: Masters = 1,
    slaves: Slaves = 1,
    sync: Sync = False,
    name_server_port: NameServerPort = 9876,
) -> None:
    """Run a name server, masters and slaves in this process until SIGTERM, SIGINT or SIGHUP.

    Point RocketMQ's clients and mqadmin to 127.0.0.1:9876. The masters are
    broker-a, broker-b and so on. All ports are on 127.0.0.1, and those of
    the brokers are free ones: clients learn them from the name server.
    Messages are kept below --dir, and are there again at the next start.

    Log lines go to standard output. The store's files are smaller than
    RocketMQ's, as this is for trying things out: for production run
    rmq-actors namesrv and rmq-actors broker, each in a process of its own.

    Exit codes: 0 stopped by a signal, 1 it cannot start (an address or a
    store is taken, a disk error), 2 bad arguments or a bad store, 3 it crashed.
    """
    if sync and not slaves:
        print("error: --sync waits for a slave, and --slaves is 0", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT)
    log_to_stdout()
    raise typer.Exit(_run(directory, _topology(masters, slaves), sync=sync, name_server_port=name_server_port))


def _topology(masters: int, slaves: int) -> dict[str, str | None]:
    """Each broker's name, which is its directory's name, too, and the master that it follows."""
    topology: dict[str, str | None] = {}
    for number in range(masters):
        master = f"broker-{chr(ord('a') + number)}"
        topology[master] = None
        topology.update({f"{master}-slave-{slave}": master for slave in range(1, slaves + 1)})
    return topology


def _run(directory: Path, follows: dict[str, str | None], *, sync: bool, name_server_port: int) -> ExitCode:
    prepare_process()
    from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
    from rmq_actors.store.log.log_walk import DamagedLog

    is_up = trio.Event()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        trio.run(_serve, directory, follows, sync, name_server_port, is_up)
    except (StoreLayoutError, DamagedLog, ValueError) as error:
        _log.error("the cluster cannot start with the stores in %s: %s", directory, error)
        return ExitCode.BAD_INPUT
    except OSError as error:
        if is_up.is_set():
            _log.error("the cluster did not stop in order: %s", error)
            return ExitCode.CRASH
        _log.error("the cluster cannot start: %s", error)
        return ExitCode.CHECK_FAILED
    except trio.TooSlowError:
        _log.error("the cluster cannot start: a slave was not connected to its master within 30 s")
        return ExitCode.CHECK_FAILED
    except ExceptionGroup:
        _log.exception("the cluster crashed")
        return ExitCode.CRASH
    return ExitCode.OK


async def _serve(
    directory: Path, follows: dict[str, str | None], sync: bool, name_server_port: int, is_up: trio.Event
) -> None:
    import attrs

    from rmq_actors.embedding.cluster import CLUSTER_STORE, open_cluster
    from rmq_actors.store.config import BrokerRole

    role = BrokerRole.SYNC_MASTER if sync else BrokerRole.ASYNC_MASTER
    store = attrs.evolve(CLUSTER_STORE, broker_role=role)
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with open_cluster(
            directory, follows=follows, store=store, name_server=True, name_server_port=name_server_port
        ) as brokers:
            is_up.set()
            _introduce(brokers, directory)
            async for number in signals:
                _log.info("%s: the cluster stops", signal.Signals(number).name)
                break
        _log.info("the cluster has stopped")


def _introduce(brokers: RealCluster, directory: Path) -> None:
    for name in brokers.running:
        broker, status = brokers.broker(name), brokers.status(name)
        assert broker.remoting is not None
        _log.info(
            "%s is %s %s of broker name %s, listens on %s, and has offsets %d to %d in %s",
            name,
            "an" if status.role.value.startswith("A") else "a",
            status.role.value,
            broker.config.broker_name,
            broker.remoting.broker_addr,
            status.min_offset,
            status.max_offset,
            directory / name,
        )
    # Scripts wait for these two words of each server of RocketMQ.
    _log.info("The cluster boot success. Its name server is %s", brokers.name_server_address)
