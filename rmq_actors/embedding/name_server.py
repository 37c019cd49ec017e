"""A name server in this process, on a real socket and real files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import attrs

from rmq_actors.actors.block_errors import opener
from rmq_actors.embedding.properties_file import LoadedFile, load_config_file
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.embedding.tls_settings import TLS_KEYS, load_tls_config
from rmq_actors.namesrv.config import NAMESRV_KEYS, NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import NamesrvController, open_name_server
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.tls import TlsServer, tls_server
from rmq_actors.settings.argument_checks import checked
from rmq_actors.settings.configure import Properties
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.recorder import Recorder


@checked
def load_namesrv_config(path: str | os.PathLike[str] | None = None) -> LoadedFile[NamesrvConfig]:
    """The settings of a namesrv.conf, or of a name server without one: its files are then below ~/namesrv.

    Settings that a request changes are written to the file. Raises `ConfigurationError` naming file, line and key.
    """
    home = Path.home() / "namesrv"
    base = NamesrvConfig(str(home / "kvConfig.json"), str(home / "namesrv.properties"))
    if path is None:
        return LoadedFile(base, Properties("no file", {}), ())
    loaded = load_config_file(Path(path), base, NAMESRV_KEYS, also_known=TLS_KEYS)
    config = attrs.evolve(
        loaded.config,
        kv_config_path=_absolute(loaded.config.kv_config_path),
        config_store_path=_absolute(str(path)),
    )
    return attrs.evolve(loaded, config=config)


@checked
@opener
async def open_local_name_server(
    directory: str | os.PathLike[str], config: NamesrvConfig | None = None, *, recorder: Recorder | None = None
) -> AsyncIterator[NamesrvController]:
    """A running name server for the length of a block, on a free port of loopback unless `config` names another.

    Its files are below `directory`. Raises `ConfigFileDamaged` or `OSError` before the block when it cannot start.
    """
    config = config or NamesrvConfig(remoting=RemotingServerConfig(listen_port=0))
    async with _open(config, directory, {}, recorder) as controller:
        yield controller


@checked
@opener
async def open_configured_name_server(
    loaded: LoadedFile[NamesrvConfig], *, recorder: Recorder | None = None
) -> AsyncIterator[NamesrvController]:
    """The same from a file's settings, whose paths begin at the root of the file system.

    Raises `ConfigurationError` too, for settings of TLS.
    """
    kept = {*loaded.unknown, *TLS_KEYS}
    others = {key: value for key, value in loaded.properties.values.items() if key in kept}
    tls = tls_server(load_tls_config(loaded.properties))
    async with _open(loaded.config, Path("/"), others, recorder, tls) as controller:
        yield controller


@contextlib.asynccontextmanager
async def _open(
    config: NamesrvConfig,
    root: str | os.PathLike[str],
    other_properties: dict[str, str],
    recorder: Recorder | None,
    tls: TlsServer | None = None,
) -> AsyncIterator[NamesrvController]:
    recorder = recorder or real_recorder(RunInfo("embedding", "namesrv", 0, source="broker"))
    tracer = recorder.tracer("namesrv")
    tracer.emit(NodeBoot(), "NamesrvController")
    async with open_name_server(
        config, real_environment(root), tracer, tls=tls, other_properties=other_properties
    ) as controller:
        yield controller


def _absolute(path: str) -> str:
    # The disk port takes no path with "..".
    return str(Path(path).expanduser().resolve())
