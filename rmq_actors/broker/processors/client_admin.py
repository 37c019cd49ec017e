"""Operators look at clients, and ask them through the broker (a part of AdminBrokerProcessor, Broker2Client)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import msgspec
import trio

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.processors.topic_admin import NOT_SET
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.consumer_groups import Client
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.remoting.connection import (
    RemotingConnection,
    RemotingError,
    RemotingRequest,
    RemotingTimeoutError,
)
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmq_actors.wire.headers import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rmq_actors.wire.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from rmq_actors.wire.message_id import MessageIdError, decode_message_id
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_CALL_TIMEOUT_MS = 10_000
_STATUS_TIMEOUT_MS = 5_000
#: Older clients know neither (MQVersion.V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT).
_VERSION_V3_0_7, _VERSION_V3_1_8 = 28, 62


@attrs.frozen(eq=False)
class ClientAdminProcessor:
    """What must ask a client waits for its answer in a pool."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService
    _pools: RequestPools
    _wall_clock: WallClock

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        processors.register([RequestCode.GET_CONSUMER_CONNECTION_LIST], self._get_consumer_connection_list)
        processors.register([RequestCode.GET_PRODUCER_CONNECTION_LIST], self._get_producer_connection_list)
        processors.register([RequestCode.GET_ALL_PRODUCER_INFO], self._get_all_producer_info)
        processors.register([RequestCode.INVOKE_BROKER_TO_RESET_OFFSET], self._reset_offset)
        for code, process in (
            (RequestCode.GET_CONSUMER_RUNNING_INFO, self._get_consumer_running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_message_directly),
            (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self._get_consumer_status),
        ):
            processors.register_pooled([code], process, self._pools.asking)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _get_consumer_connection_list(self, request: RemotingRequest) -> RemotingCommand:
        name = decode_header(GetConsumerConnectionListRequestHeader, request.command).consumer_group
        group = self._housekeeping.consumers.groups.get(name)
        if group is None:
            raise refused(Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"))
        body = ConsumerConnection(
            connection_set=_connections(group.members),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=group.subscriptions,
        )
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(body))

    def _get_producer_connection_list(self, request: RemotingRequest) -> RemotingCommand:
        name = decode_header(GetProducerConnectionListRequestHeader, request.command).producer_group
        members = self._housekeeping.producers.members(name)
        if members is None:
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist"))
        body = encode_body(ProducerConnection(connection_set=_connections(members)))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _get_all_producer_info(self, request: RemotingRequest) -> RemotingCommand:
        now_ms, now_s = self._wall_clock.now_ms(), trio.current_time()
        data = {
            name: [
                ProducerInfo(
                    client_id=client.client_id,
                    language=client.language,
                    last_update_timestamp=now_ms - int((now_s - client.heard_of_s) * 1000),
                    remote_ip=f"/{connection.remote_address}",
                    version=client.version,
                )
                for connection, client in members.items()
            ]
            for name, members in self._housekeeping.producers.groups.items()
        }
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(ProducerTableInfo(data=data)))

    def _members(self, group: str) -> dict[RemotingConnection, Client]:
        found = self._housekeeping.consumers.groups.get(group)
        return {} if found is None else dict(found.members)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _reset_offset(self, request: RemotingRequest) -> RemotingCommand:
        """Tell the group's members to go to the messages of a time, and answer where that is."""
        header = decode_header(ResetOffsetRequestHeader, request.command)
        offsets = self._offsets_at(header)
        members = self._members(header.group)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise refused(Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark))
        for client in members.values():
            _check_version(client, _VERSION_V3_0_7)
        told = ResetOffsetRequestHeader(header.topic, header.group, header.timestamp, is_force=False)
        body = encode_body(ResetOffsetBody(offset_table=offsets))
        sent = _for_c(offsets) if request.command.language == "CPP" else body
        for connection in members:
            command = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, encode_header(told), body=sent)
            try:
                connection.invoke_oneway(command)
            except RemotingError as error:
                remark = f"{connection.remote_address} was not told: {error}"
                raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark)) from error
        return request.command.response(ResponseCode.SUCCESS, NOT_SET, body=body)

    def _offsets_at(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """Where each queue is to go on: at the time, or at its end for -1. Not forward, unless that is forced."""
        topic, group = header.topic, header.group
        config = self._clients.metadata.topics.select_topic_config(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        offsets, broker_name = self._clients.store.offsets, self._clients.config().broker_name
        table = {}
        for queue_id in range(config.write_queue_nums):
            consumed = self._clients.metadata.consumer_offsets.query_offset(group, topic, queue_id)
            if consumed < 0:
                raise refused(Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"))
            if header.timestamp == -1:
                at = offsets.get_max_offset_in_queue(topic, queue_id)
            else:
                at = offsets.get_offset_in_queue_by_time(topic, queue_id, header.timestamp)
            queue = MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)
            table[queue] = max(0, at) if header.is_force else min(max(0, at), consumed)
        return table

    # --- questions to clients -----------------------------------------------------------------------------------------

    async def _get_consumer_status(self, request: RemotingRequest) -> RemotingCommand:
        """What members of the group, or the one that is named, say about their offsets. Silent ones are left out."""
        header = decode_header(GetConsumerStatusRequestHeader, request.command)
        members, wanted = self._members(header.group), (header.client_addr or "").strip()
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        for client in members.values():
            _check_version(client, _VERSION_V3_0_7)
        asked = GetConsumerStatusRequestHeader(header.topic, header.group)
        table: dict[str, dict[MessageQueue, int]] = {}

        async def ask(connection: RemotingConnection, client_id: str) -> None:
            command = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, encode_header(asked))
            try:
                answer = await connection.invoke(command, _STATUS_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    table[client_id] = decode_body(GetConsumerStatusBody, answer.body).message_queue_table
            except (RemotingError, RemotingCommandError):
                pass  # it is not in the table, which says so

        async with trio.open_nursery() as nursery:
            for connection, client in members.items():
                if wanted in ("", client.client_id):
                    nursery.start_soon(ask, connection, client.client_id)
        body = encode_body(GetConsumerStatusBody(consumer_table=table))
        return request.command.response(ResponseCode.SUCCESS, NOT_SET, body=body)

    async def _get_consumer_running_info(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.command)
        return await self._call_consumer(request, header, header.consumer_group, header.client_id, b"")

    async def _consume_message_directly(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, request.command)
        header = msgspec.structs.replace(header, broker_name=self._clients.config().broker_name)
        try:
            _, offset = decode_message_id(header.msg_id or "")
        except MessageIdError as error:
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, str(error))) from error
        record = self._clients.store.records.select_one_message_by_offset(offset)
        if record is None:
            remark = f"can not find message by the offset, {offset}"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        return await self._call_consumer(request, header, header.consumer_group, header.client_id or "", bytes(record))

    async def _call_consumer(
        self, request: RemotingRequest, header: CommandHeader, group: str, client_id: str, body: bytes
    ) -> RemotingCommand:
        """Ask the client what the operator asks, and answer what it answers."""
        found = next((each for each in self._members(group).items() if each[1].client_id == client_id), None)
        if found is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        connection, client = found
        if client.version < _VERSION_V3_1_8:
            remark = f"The Consumer <{client_id}> Version <{client.version}> too low to finish"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, f"{remark}, please upgrade it to V3_1_8_SNAPSHOT"))
        try:
            command = RemotingCommand(request.command.code, encode_header(header), body=body)
            answer = await connection.invoke(command, _CALL_TIMEOUT_MS)
        except RemotingTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise refused(Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark)) from error
        except RemotingError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark)) from error
        return request.command.response(answer.code, answer.remark, answer.ext_fields, answer.body)


def _connections(members: Mapping[RemotingConnection, Client]) -> list[Connection]:
    return [
        Connection(
            client_addr=connection.remote_address,
            client_id=client.client_id,
            language=client.language,
            version=client.version,
        )
        for connection, client in members.items()
    ]


def _check_version(client: Client, least: int) -> None:
    if client.version < least:
        remark = f"the client does not support this feature. version={client.version}"
        raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))


def _for_c(offsets: Mapping[MessageQueue, int]) -> bytes:
    table = [
        MessageQueueForC(broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic)
        for queue, offset in offsets.items()
    ]
    return encode_body(ResetOffsetBodyForC(offset_table=table))
