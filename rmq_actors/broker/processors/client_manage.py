"""Serves clients' heartbeats and farewells, and checks their subscriptions (ClientManageProcessor)."""

from __future__ import annotations

import logging

import attrs
import trio

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests, QuotaRefused, refused
from rmq_actors.broker.quotas import QuotaReached, Room, check_heartbeat
from rmq_actors.broker.subscription import message_filter
from rmq_actors.protocols.consumer_groups import Client
from rmq_actors.protocols.filter_api import is_tag_type
from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX, Refusal
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.heartbeat import CheckClientRequestBody, ConsumerData, HeartbeatData
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.clients import UnregisterClientRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

_SYS_FLAG_UNIT_SUB = 2


@attrs.define(eq=False, repr=False)
class ClientManageProcessor:
    """A heartbeat that names a group for the first time waits until that, and its topic of retries, are durable."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService
    _pool: RequestPool

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        processors.register([RequestCode.HEART_BEAT], self._heart_beat)
        processors.register([RequestCode.UNREGISTER_CLIENT], self._unregister_client)
        processors.register([RequestCode.CHECK_CLIENT_CONFIG], self._check_client_config)

    def _heart_beat(self, request: RemotingRequest) -> RemotingCommand | None:
        data = decode_body(HeartbeatData, request.command.body)
        self._check_room(request, data)
        if any(map(self._lacks, data.consumer_data_set)):
            self._pool.submit(request, self._make_then_heart_beat)
            return None
        return self._register(request, data)

    def _check_room(self, request: RemotingRequest, data: HeartbeatData) -> None:
        """Raise `RpcRefused` for a heartbeat that would add more than is kept of all clients."""
        quotas, connection = self._clients.config().quotas, request.connection
        consumers, producers = self._housekeeping.consumers, self._housekeeping.producers
        try:
            check_heartbeat(data)
            added, added_bytes = consumers.added_by(connection, data.consumer_data_set)
            added += producers.added_by(connection, {producer.group_name for producer in data.producer_data_set})
            memberships = consumers.memberships + producers.memberships
            Room("clientGroupsMax", quotas.client_groups_max).check(memberships, added, "memberships in groups")
            text_room = Room("subscriptionsMax", quotas.subscriptions_max_bytes)
            text_room.check(consumers.subscriptions_bytes, added_bytes, "bytes of subscriptions")
        except QuotaReached as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def _lacks(self, consumer: ConsumerData) -> bool:
        metadata, group = self._clients.metadata, consumer.group_name
        if self._clients.config().is_slave:
            return False  # its master hears the same heartbeat, and its tables come from there
        if metadata.subscription_groups.find_subscription_group_config(group) is None:
            return self._clients.makes_group(group)
        return metadata.topics.select_topic_config(RETRY_GROUP_TOPIC_PREFIX + group) is None

    async def _make_then_heart_beat(self, request: RemotingRequest) -> RemotingCommand:
        data = decode_body(HeartbeatData, request.command.body)
        for consumer in filter(self._lacks, data.consumer_data_set):
            try:
                await self._make(consumer)
            except QuotaRefused as error:  # the client's other groups go on; this one is told when it pulls
                _log.warning("%s: %s", request.connection.remote_address, error)
        self._check_room(request, data)
        return self._register(request, data)

    async def _make(self, consumer: ConsumerData) -> None:
        await self._clients.make_group(consumer.group_name)
        found = self._clients.metadata.subscription_groups.find_subscription_group_config(consumer.group_name)
        assert found is not None
        sys_flag = _SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0
        await self._clients.make_retry_topic(consumer.group_name, found.retry_queue_nums, sys_flag)

    def _register(self, request: RemotingRequest, data: HeartbeatData) -> RemotingCommand:
        connection, command, housekeeping = request.connection, request.command, self._housekeeping
        if connection.close_reason is None:  # it may have ended while a table was written
            client = Client(data.client_id, command.language, command.version, trio.current_time())
            for consumer in data.consumer_data_set:
                if housekeeping.consumers.register(connection, client, consumer):
                    self._notify(consumer.group_name)
            for producer in data.producer_data_set:
                housekeeping.producers.register(connection, client, producer.group_name)
            housekeeping.heard_of_clients()
        return command.response(ResponseCode.SUCCESS)

    def _unregister_client(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(UnregisterClientRequestHeader, request.command)
        if header.producer_group is not None:
            self._housekeeping.producers.unregister(request.connection, header.producer_group)
        group = header.consumer_group
        if group is not None and self._housekeeping.consumers.unregister(request.connection, group):
            self._notify(group)
        return request.command.response(ResponseCode.SUCCESS)

    def _notify(self, group: str) -> None:
        config = self._clients.metadata.subscription_groups.find_subscription_group_config(group)
        if config is None or config.notify_consumer_ids_changed_enable:
            self._housekeeping.notify_consumer_ids_changed(group)

    def _check_client_config(self, request: RemotingRequest) -> RemotingCommand:
        subscription = decode_body(CheckClientRequestBody, request.command.body).subscription_data
        if is_tag_type(subscription.expression_type):
            return request.command.response(ResponseCode.SUCCESS)
        if not self._clients.config().enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        try:
            message_filter(subscription)
        except ValueError as error:
            raise refused(Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))) from error
        return request.command.response(ResponseCode.SUCCESS)
