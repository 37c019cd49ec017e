"""A broker in this process, on real sockets and real files, from RocketMQ's property file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import attrs

from rmq_actors.actors.block_errors import opener
from rmq_actors.broker.broker_configuration import BrokerFiles, config_file
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.embedding.properties_file import LoadedFile, load_config_file, read_properties_file
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.embedding.tls_settings import TLS_KEYS, load_tls_config
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.tls import Tls, TlsConfig
from rmq_actors.settings.argument_checks import checked
from rmq_actors.settings.configure import ConfigurationError, Properties
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import IllegalAddress, check_host

LISTEN_PORT = 10911
_ROOT = "storePathRootDir"
_COMMIT_LOG = "storePathCommitLog"
#: accessMessageInMemoryMaxRatio of a slave, if nobody sets it: a consumer that a slave serves stays there until it is
#: nearer to the log's end than where its master would send it away.
_RATIO_OF_A_SLAVE = 30
#: Keys that are not fields of `BrokerConfig`: where the files are.
STORE_KEYS = (_ROOT, _COMMIT_LOG)
#: Without effect here, but `mqadmin exportConfigs` fails where a broker does not have it.
_SHOWN = {"filterServerNums": "0"}


@attrs.frozen
class LoadedBroker:
    """The content of a broker.conf: the settings, and where the store is."""

    file: LoadedFile[BrokerConfig]
    #: None: nothing is written when a request changes settings.
    path: Path | None
    store: Path
    tls: TlsConfig

    @property
    def config(self) -> BrokerConfig:
        """The settings."""
        return self.file.config

    @property
    def others(self) -> dict[str, str]:
        """The properties that operators see besides the settings."""
        kept = {*self.file.unknown, *TLS_KEYS}
        values = {key: value for key, value in self.file.properties.values.items() if key in kept}
        shown = {**_SHOWN, "useTLS": str(self.tls.enable).lower()}
        return {**shown, **values, _ROOT: str(self.store), _COMMIT_LOG: str(self.store / COMMIT_LOG_DIRECTORY)}


@checked
def load_broker_config(path: str | os.PathLike[str] | None = None, name_servers: str | None = None) -> LoadedBroker:
    """The settings of a broker.conf, or of a broker without one. `name_servers` goes before its namesrvAddr.

    If the file does not have them, the environment's NAMESRV_ADDR and ROCKETMQ_HOME count, and the store is ~/store, as
    in RocketMQ. Raises `ConfigurationError` naming file, line and key.
    """
    if name_servers is not None and not name_servers.strip():
        raise ConfigurationError('the name servers that are given are empty: "host:port;host:port", or leave them out')
    path = None if path is None else Path(path)
    properties = Properties("no file", {}) if path is None else read_properties_file(path)
    try:
        base = _base(properties.values, name_servers)
    except ValueError as error:
        told = "" if name_servers is None else f", name servers {name_servers}"
        raise ConfigurationError(f"{properties.source}{told}: {error}") from error
    if path is None:
        loaded = LoadedFile(base, properties, ())
    else:
        # A slave whose file names no name servers may have been told some by request.
        loaded = load_config_file(path, base, BROKER_KEYS, also_known=(*STORE_KEYS, *TLS_KEYS))
        if name_servers is not None:
            loaded = attrs.evolve(loaded, config=attrs.evolve(loaded.config, namesrv_addr=name_servers))
    root = properties.values.get(_ROOT, "").strip()
    store = _absolute(root) if root else Path.home() / "store"
    _check_layout(properties, store)
    tls = load_tls_config(properties, is_needed=loaded.config.ha.ha_tls_enable)
    return LoadedBroker(loaded, None if path is None else _absolute(str(path)), store, tls)


def _base(values: Mapping[str, str], name_servers: str | None) -> BrokerConfig:
    """The settings that count if the file does not have them: addresses follow from where the broker listens."""
    host = values.get("bindAddress", "").strip() or RemotingServerConfig().listen_host
    try:
        check_host(host)
    except IllegalAddress as error:
        raise IllegalAddress(f"bindAddress: {error}") from error
    is_slave = values.get("brokerRole", "").strip() == BrokerRole.SLAVE.value
    store = MessageStoreConfig()
    if is_slave:
        store = attrs.evolve(store, access_message_in_memory_max_ratio=_RATIO_OF_A_SLAVE)
    return BrokerConfig(
        store=store,
        ha=HaConfig(ha_listen_host=host),
        remoting=RemotingServerConfig(host, LISTEN_PORT),
        broker_ip1=values.get("brokerIP1", "").strip() or host,
        namesrv_addr=name_servers or os.environ.get("NAMESRV_ADDR") or None,
        rocketmq_home=os.environ.get("ROCKETMQ_HOME", ""),
    )


def _check_layout(properties: Properties, store: Path) -> None:
    log = properties.values.get(_COMMIT_LOG, "").strip()
    if log and _absolute(log) != store / COMMIT_LOG_DIRECTORY:
        raise ConfigurationError(
            f"{properties.where(_COMMIT_LOG)}: {_COMMIT_LOG}={log}: the log is kept in {store / COMMIT_LOG_DIRECTORY}, "
            f"below {_ROOT}, and nowhere else"
        )


@checked
@opener
async def open_configured_broker(
    loaded: LoadedBroker, *, recorder: Recorder | None = None
) -> AsyncIterator[BrokerController]:
    """A running broker for the length of a block; it stops in order at the end.

    Raises `ConfigurationError`, for TLS and accounts too, `StoreLayoutError`, `DamagedLog`, `ConfigFileDamaged` or
    `OSError` before the block when it cannot start.
    """
    properties, config = loaded.file.properties, loaded.config
    tls = Tls.from_config(loaded.tls, ha=config.ha.ha_tls_enable)
    environment = real_environment(loaded.store)
    root = OsDisk(Path("/"))
    home = environment.disk
    if config.rocketmq_home:
        config, home = attrs.evolve(config, rocketmq_home=str(_absolute(config.rocketmq_home))), root
    file = None if loaded.path is None else config_file(root, str(loaded.path))
    files = BrokerFiles(home, file, properties.values, loaded.others)
    recorder = recorder or real_recorder(RunInfo("embedding", config.broker_name, 0, source="broker"))
    tracer = recorder.tracer(config.broker_name)
    tracer.emit(NodeBoot())
    async with open_broker(config, environment, tracer, tls=tls, files=files) as broker:
        yield broker


def _absolute(path: str) -> Path:
    # The disk port takes no path with "..".
    return Path(path).expanduser().resolve()
