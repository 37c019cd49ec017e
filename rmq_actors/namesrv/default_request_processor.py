"""What a name server answers to which request (DefaultRequestProcessor), with RocketMQ's codes and texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from rmq_actors.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from rmq_actors.namesrv.namesrv_configuration import Configuration, ForbiddenKey
from rmq_actors.namesrv.route_table import Broker, Outcome, RegisterBrokerResult, RouteInfoManager, RouteTableFull
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, ProcessRequest, ProcessRequestAsync, RequestPool
from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.tracing.events.namesrv import NamesrvRegister, NamesrvRemove
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody, body_crc32
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfigSerializeWrapper
from rmq_actors.wire.headers import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rmq_actors.wire.headers.topics import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: MQVersion.V3_0_11: older brokers register their topics as the whole body.
_V3_0_11 = 37
#: MQVersion.V4_9_4: clients from this version on read standard JSON.
_V4_9_4 = 401
#: FAQUrl.suggestTodo: how RocketMQ ends the text for a topic without a route.
_SEE_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


@attrs.define(eq=False, repr=False)
class DefaultRequestProcessor:
    """The requests of brokers, clients and operators. Those that write to the disk go through a pool."""

    name = "DefaultRequestProcessor"
    _routes: RouteInfoManager
    _kv_config: KVConfigManager
    _configuration: Configuration
    _tracer: Tracer

    def register(self, processors: ProcessorTable, pool: RequestPool) -> None:
        """Have these requests processed; any other code is answered REQUEST_CODE_NOT_SUPPORTED."""
        for code, process in self._at_once().items():
            processors.register([code], process)
        for code, process_async in self._pooled().items():
            processors.register_pooled([code], process_async, pool)

    def _at_once(self) -> Mapping[RequestCode, ProcessRequest]:
        routes = self._routes
        return {
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info_by_topic,
            RequestCode.GET_BROKER_CLUSTER_INFO: _with_body(routes.all_cluster_info),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm_of_broker,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm_of_broker,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _with_body(routes.all_topics),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic_in_namesrv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list_by_namespace,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _with_body(routes.system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: _with_body(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _with_body(routes.has_unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _with_body(routes.has_unit_sub_un_unit_topics),
            RequestCode.GET_NAMESRV_CONFIG: self._get_namesrv_config,
        }

    def _pooled(self) -> Mapping[RequestCode, ProcessRequestAsync]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_namesrv_config,
        }

    # --- brokers ------------------------------------------------------------------------------------------------------

    def _register_broker(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(RegisterBrokerRequestHeader, command)
        if header.body_crc32 != 0 and body_crc32(command.body) != header.body_crc32:
            _log.warning("%s: a registration whose bodyCrc32 is wrong", request.connection.remote_address)
            return command.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        broker = Broker(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        topics, filter_servers = _registered(command, header)
        try:
            result = self._routes.register_broker(
                broker,
                header.ha_server_addr,
                topics,
                filter_servers,
                conn_id=request.connection.conn_id,
                now=trio.current_time(),
            )
        except RouteTableFull as error:
            _log.warning("%s: %s cannot register: %s", request.connection.remote_address, broker, error)
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        self._note_registration(request, broker, result)
        return _success(
            command,
            RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr),
            self._kv_config.kv_list(NAMESPACE_ORDER_TOPIC_CONFIG),
        )

    def _note_registration(self, request: RemotingRequest, broker: Broker, result: RegisterBrokerResult) -> None:
        if result.outcome is Outcome.LATE:
            _log.warning("%s registers over a connection that is older than its last one: ignored", broker)
        elif result.superseded_by is not None:
            _log.warning("%s registers, but %s has its name and id", broker, result.superseded_by)
        elif result.outcome is not Outcome.RENEWED:
            _log.info("%s registered: %s", broker, result.outcome.value)
        status = result.outcome.value if result.superseded_by is None else "superseded"
        self._tracer.emit(NamesrvRegister(conn_id=request.connection.conn_id, status=status, **broker.identity))

    def _unregister_broker(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(UnRegisterBrokerRequestHeader, command)
        broker = Broker(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        conn_id = request.connection.conn_id
        was_live = self._routes.unregister_broker(broker, conn_id=conn_id)
        _log.info("%s unregistered%s", broker, "" if was_live else ": it was not there, or another one is now")
        status = "unregistered" if was_live else "not_live"
        self._tracer.emit(NamesrvRemove(conn_id=conn_id, status=status, **broker.identity), self.name)
        return _success(command)

    def _query_data_version(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(QueryDataVersionRequestHeader, command)
        changed, known = self._routes.query_data_version(
            Broker(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr),
            decode_body(DataVersion, command.body) if command.body else None,
            conn_id=request.connection.conn_id,
            now=trio.current_time(),
        )
        body = None if known is None else encode_body(known)
        return _success(command, QueryDataVersionResponseHeader(changed), body)

    # --- clients ------------------------------------------------------------------------------------------------------

    def _get_route_info_by_topic(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(GetRouteInfoRequestHeader, command)
        conf = None
        if self._configuration.config.order_message_enable:
            conf = self._kv_config.get(NAMESPACE_ORDER_TOPIC_CONFIG, header.topic)
        route = self._routes.pick_topic_route_data(header.topic, conf)
        if route is None:
            return command.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}{_SEE_FAQ}",
            )
        standard_json = command.version >= _V4_9_4 or header.accept_standard_json_only is True
        return _success(command, body=encode_body(route, standard_json=standard_json))

    # --- operators ----------------------------------------------------------------------------------------------------

    def _wipe_write_perm_of_broker(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, request.command)
        count = self._routes.wipe_write_perm(header.broker_name)
        self._note_operation(request, f"wiped the write permission of {header.broker_name}: {count} topics")
        return _success(request.command, WipeWritePermOfBrokerResponseHeader(count))

    def _add_write_perm_of_broker(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(AddWritePermOfBrokerRequestHeader, request.command)
        count = self._routes.add_write_perm(header.broker_name)
        self._note_operation(request, f"added the write permission of {header.broker_name}: {count} topics")
        return _success(request.command, AddWritePermOfBrokerResponseHeader(count))

    def _delete_topic_in_namesrv(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, request.command)
        count = self._routes.delete_topic(header.topic, header.cluster_name or None)
        self._note_operation(request, f"deleted the topic {header.topic} of {count} broker names")
        return _success(request.command)

    def _get_topics_by_cluster(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetTopicsByClusterRequestHeader, request.command)
        return _success(request.command, body=encode_body(self._routes.topics_of_cluster(header.cluster)))

    def _get_kv_config(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetKVConfigRequestHeader, request.command)
        value = self._kv_config.get(header.namespace, header.key)
        if value is not None:
            return _success(request.command, GetKVConfigResponseHeader(value))
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return request.command.response(ResponseCode.QUERY_NOT_FOUND, remark, {})

    def _get_kv_list_by_namespace(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetKVListByNamespaceRequestHeader, request.command)
        body = self._kv_config.kv_list(header.namespace)
        if body is not None:
            return _success(request.command, body=body)
        remark = f"No config item, Namespace: {header.namespace}"
        return request.command.response(ResponseCode.QUERY_NOT_FOUND, remark)

    async def _put_kv_config(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(PutKVConfigRequestHeader, request.command)
        try:
            await self._kv_config.put(header.namespace, header.key, header.value)
        except (OSError, ValueError) as error:
            return _not_kept(request, error)
        self._note_operation(request, f"put the KV config {header.namespace} {header.key}")
        return _success(request.command)

    async def _delete_kv_config(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(DeleteKVConfigRequestHeader, request.command)
        try:
            await self._kv_config.delete(header.namespace, header.key)
        except (OSError, ValueError) as error:
            return _not_kept(request, error)
        self._note_operation(request, f"deleted the KV config {header.namespace} {header.key}")
        return _success(request.command)

    def _get_namesrv_config(self, request: RemotingRequest) -> RemotingCommand:
        return _success(request.command, body=self._configuration.text().encode())

    async def _update_namesrv_config(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        if not command.body:
            return _success(command)
        try:
            text = command.body.decode()
        except UnicodeDecodeError as error:
            raise RemotingCommandError(f"UPDATE_NAMESRV_CONFIG: {error}") from error
        try:
            changed = await self._configuration.update(parse_properties(text, "the request"))
        except ForbiddenKey:
            return command.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        except (OSError, ValueError) as error:
            return _not_kept(request, error)
        self._note_operation(request, f"changed the settings {', '.join(changed) or '(none)'}")
        return _success(command)

    def _note_operation(self, request: RemotingRequest, what: str) -> None:
        _log.info("%s %s", request.connection.remote_address, what)


def _registered(
    command: RemotingCommand, header: RegisterBrokerRequestHeader
) -> tuple[TopicConfigSerializeWrapper, Sequence[str] | None]:
    """The topics and the filter servers of a registration. Raises `RemotingCommandError`."""
    if command.version < _V3_0_11:
        if not command.body:
            return TopicConfigSerializeWrapper(), None
        return decode_body(TopicConfigSerializeWrapper, command.body), None
    if not command.body:
        return TopicConfigSerializeWrapper(), []
    body = RegisterBrokerBody.decode(command.body, compressed=header.compressed)
    return body.topic_config_serialize_wrapper, body.filter_server_list


def _with_body(give: Callable[[], RemotingSerializable]) -> ProcessRequest:
    def process(request: RemotingRequest) -> RemotingCommand:
        return _success(request.command, body=encode_body(give()))

    return process


def _success(
    command: RemotingCommand, header: CommandHeader | None = None, body: bytes | None = None
) -> RemotingCommand:
    ext_fields = None if header is None else encode_header(header)
    return command.response(ResponseCode.SUCCESS, None, ext_fields, body or b"")


def _not_kept(request: RemotingRequest, error: Exception) -> RemotingCommand:
    _log.warning("%s: nothing was changed: %s", request.connection.remote_address, error)
    return request.command.response(ResponseCode.SYSTEM_ERROR, str(error))
