"""One name server (NamesrvController): reads its files, starts its actors in order, stops them in reverse."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

import attrs

from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.namesrv.broker_housekeeping_service import BrokerHousekeepingService
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.default_request_processor import DefaultRequestProcessor
from rmq_actors.namesrv.kv_config import KVConfigManager
from rmq_actors.namesrv.namesrv_configuration import Configuration
from rmq_actors.namesrv.route_table import RouteInfoManager
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.remoting.tls import TlsServer
from rmq_actors.settings.properties_text import TEXT_MAX_CHARS
from rmq_actors.store.files.json_file import ConfigFile, JsonFile
from rmq_actors.tracing.recorder import Tracer


@attrs.define(eq=False, repr=False)
class NamesrvController:
    """A running name server."""

    route_info_manager: RouteInfoManager
    kv_config_manager: KVConfigManager
    configuration: Configuration
    remoting_server: RemotingServer
    system: ActorSystem

    @property
    def address(self) -> str:
        """Where it is served, as "host:port"."""
        return self.remoting_server.address


@contextlib.asynccontextmanager
async def open_name_server(
    config: NamesrvConfig,
    environment: Environment,
    tracer: Tracer,
    *,
    hooks: Sequence[RpcHook] = (),
    tls: TlsServer | None = None,
    other_properties: Mapping[str, str] | None = None,
) -> AsyncIterator[NamesrvController]:
    """A running name server for the length of a block; on a normal end it stops in order.

    `other_properties` stand in the file of settings too, and are kept. Raises `ConfigFileDamaged`, or
    `OSError` naming the address, before the block when it cannot start.
    """
    disk = environment.disk
    kv_config = KVConfigManager(JsonFile(disk, config.kv_config_path.lstrip("/"), config.kv_config_max_bytes))
    kv_config.load()
    config_file = ConfigFile(disk, config.config_store_path.lstrip("/"), TEXT_MAX_CHARS)
    config_file.load_text(bytes)  # what was read becomes the backup of what is written
    configuration = Configuration(config, config_file, dict(other_properties or {}))
    routes = RouteInfoManager(
        config.broker_channel_expired_time_ms / 1000, config.routes, config.delete_topic_with_broker_registration
    )
    processors = ProcessorTable(tracer)
    pool = RequestPool("NamesrvConfigPool", 1, config.config_queue_capacity, None, tracer)
    DefaultRequestProcessor(routes, kv_config, configuration, tracer).register(processors, pool)
    housekeeping = BrokerHousekeepingService(routes, tracer)
    server = RemotingServer(config.remoting, processors, tracer, hooks, listener=housekeeping, tls=tls)
    async with open_actor_system("namesrv", tracer, entropy=environment.entropy) as system:
        await system.start(pool)
        await system.start(housekeeping)
        try:
            await system.start(server)
        except OSError as error:
            cannot_listen = error
        else:
            yield NamesrvController(routes, kv_config, configuration, server, system)
            return
    # Raised here, as it would leave the system in a group of exceptions.
    raise cannot_listen
