"""Answers operators (a part of AdminBrokerProcessor): settings, runtime info, replication, and what ends a halt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from rmq_actors.actors.system import ActorSystem
from rmq_actors.broker.broker_configuration import ForbiddenKey
from rmq_actors.broker.metrics import BrokerMetrics
from rmq_actors.broker.processors.census import CensusProcessor
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.runtime_info import RuntimeInfo
from rmq_actors.ha.followed_master import NotHalted
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.admin import GetBrokerConfigResponseHeader, UpdateBrokerConfigRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode5
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController

_log = logging.getLogger(__name__)

#: adminBrokerThreadPoolNums is 16; here changes come one after the other in any case.
_WORKERS = 1
_QUEUE_CAPACITY = 1_000


@attrs.define(eq=False, repr=False)
class AdminBrokerProcessor:
    """Requests that change the broker go through a pool of one worker; others are answered at once.

    While the store is opened again, the answer is SERVICE_NOT_AVAILABLE.
    """

    _broker: BrokerController
    _tracer: Tracer
    _runtime_info: RuntimeInfo = attrs.field(init=False)
    #: Serves requests that change the broker, one after the other.
    pool: RequestPool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.pool = RequestPool("AdminBrokerPool", _WORKERS, _QUEUE_CAPACITY, None, self._tracer)
        self._runtime_info = RuntimeInfo(self._broker)

    async def start(self, processors: ProcessorTable, system: ActorSystem) -> None:
        """Start the pool, and take the request codes."""
        pool = self.pool
        await system.start(pool)
        processors.register([RequestCode.GET_BROKER_CONFIG], self._get_broker_config)
        processors.register([RequestCode.GET_BROKER_RUNTIME_INFO], self._get_broker_runtime_info)
        processors.register([RequestCode5.GET_BROKER_HA_STATUS], self._get_broker_ha_status)
        processors.register_pooled([RequestCode.UPDATE_BROKER_CONFIG], self._update_broker_config, pool)
        processors.register_pooled([OwnRequestCode.TRUNCATE_LOG], self._truncate_log, pool)
        processors.register([OwnRequestCode.FOLLOW_AGAIN], self._follow_again)
        if self._broker.remoting is not None:
            CensusProcessor(self._broker.system, self._broker.remoting).register(processors)
        await self._start_metrics(system)

    async def _start_metrics(self, system: ActorSystem) -> None:
        """Raises `OSError` if the port cannot be bound."""
        config = self._broker.config
        if config.metrics_prom_exporter_port is not None:
            from rmq_actors.broker.metrics_server import MetricsServer  # noqa: PLC0415  # it needs an extra

            host, port = config.metrics_prom_exporter_host, config.metrics_prom_exporter_port
            await system.start(MetricsServer(host, port, BrokerMetrics(self._broker)))

    def _get_broker_config(self, request: RemotingRequest) -> RemotingCommand:
        configuration = self._broker.configuration
        header = GetBrokerConfigResponseHeader(encode_body(configuration.version).decode())
        body = configuration.text(self._broker.config).encode()
        return request.command.response(ResponseCode.SUCCESS, None, encode_header(header), body)

    def _get_broker_runtime_info(self, request: RemotingRequest) -> RemotingCommand:
        self._check_store()
        body = encode_body(KVTable(table=self._runtime_info.table()))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _get_broker_ha_status(self, request: RemotingRequest) -> RemotingCommand:
        self._check_store()
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(self._runtime_info.ha_runtime_info()))

    def _check_store(self) -> None:
        remoting = self._broker.remoting
        if remoting is None or remoting.open_store is None:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again")

    async def _update_broker_config(self, request: RemotingRequest) -> RemotingCommand:
        command, who = request.command, request.connection.remote_address
        term = decode_header(UpdateBrokerConfigRequestHeader, command).term
        if not command.body and term is None:
            return command.response(ResponseCode.SUCCESS)
        try:
            text = command.body.decode()
        except UnicodeDecodeError as error:
            raise RemotingCommandError(f"UPDATE_BROKER_CONFIG: {error}") from error
        try:
            changed = await self._broker.update_config(parse_properties(text, "the request"), term=term)
        except ForbiddenKey as error:
            _log.warning("%s: nothing was changed: %s", who, error)
            return command.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        except (OSError, ValueError, RoleChangeFailed) as error:
            return _refused(request, error)
        _log.info("%s changed the settings %s", who, ", ".join(changed) or "(none)")
        return command.response(ResponseCode.SUCCESS)

    async def _truncate_log(self, request: RemotingRequest) -> RemotingCommand:
        followed = self._broker.followed_master
        halted = None if followed is None else followed.halted
        before = self._broker.store.commit_log.max_offset
        try:
            await self._broker.truncate_log()
        except (OSError, ValueError, RoleChangeFailed) as error:
            return _refused(request, error)
        end = before if halted is None or halted.common_end is None else halted.common_end
        done = f"the log was cut from {before} to {end}, and the master is followed again"
        _log.info("%s: %s", request.connection.remote_address, done)
        return request.command.response(ResponseCode.SUCCESS, done)

    def _follow_again(self, request: RemotingRequest) -> RemotingCommand:
        try:
            halt = self._broker.follow_again()
        except NotHalted as error:
            return _refused(request, error)
        done = f"master {halt.master} is asked again; the slave had halted: {halt.reason}"
        _log.info("%s: %s", request.connection.remote_address, done)
        return request.command.response(ResponseCode.SUCCESS, done)


def _refused(request: RemotingRequest, error: Exception) -> RemotingCommand:
    who, code = request.connection.remote_address, request.command.code
    _log.warning("%s: request %d is refused: %s", who, code, error)
    return request.command.response(ResponseCode.SYSTEM_ERROR, str(error))
