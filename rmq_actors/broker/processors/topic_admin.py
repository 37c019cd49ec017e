"""Operators make and change topics and groups, and look at topics (a part of AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.registration_service import BrokerRegistrationService
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.broker.topic_removal import TopicRemoval
from rmq_actors.broker.topics import system_topics
from rmq_actors.protocols.admin_rules import (
    SYSTEM_TOPICS,
    check_group_to_change,
    check_topic_numbers,
    check_topic_to_change,
)
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import TopicOffset, TopicStatsTable
from rmq_actors.wire.bodies.routes import TopicList
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicFilterType
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.clients import DeleteSubscriptionGroupRequestHeader
from rmq_actors.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: What RocketMQ leaves in the remark of some answers that succeed.
NOT_SET = "not set any response code"


@attrs.frozen(eq=False)
class TopicAdminProcessor:
    """A change is answered once it is durable. A slave refuses changes: its tables are its master's."""

    _clients: ClientRequests
    _pools: RequestPools
    _removal: TopicRemoval
    #: None: there is no name server.
    _registration: Callable[[], BrokerRegistrationService | None]

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        table = self._pools.table
        processors.register_pooled([RequestCode.UPDATE_AND_CREATE_TOPIC], self._update_and_create_topic, table)
        processors.register_pooled([RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP], self._update_group, table)
        processors.register_pooled([RequestCode.DELETE_SUBSCRIPTIONGROUP], self._delete_group, table)
        processors.register_pooled([RequestCode.DELETE_TOPIC_IN_BROKER], self._delete_topic, table)
        processors.register_pooled([RequestCode.CLEAN_UNUSED_TOPIC], self._clean_unused_topic, table)
        clean_queues = self._clean_expired_consume_queue
        processors.register_pooled([RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE], clean_queues, table)
        processors.register([RequestCode.DELETE_EXPIRED_COMMITLOG], self._delete_expired_commitlog)
        processors.register([RequestCode.GET_TOPIC_STATS_INFO], self._get_topic_stats_info)
        processors.register([RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER], self._get_system_topic_list)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _update_and_create_topic(self, request: RemotingRequest) -> None:
        header = decode_header(CreateTopicRequestHeader, request.command)
        self._check_is_master()
        refusal = check_topic_to_change(header.topic, self._system_topics()) or check_topic_numbers(header)
        if refusal is not None:
            raise refused(refusal)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            topic_filter_type=TopicFilterType(header.topic_filter_type),
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag or 0,
        )
        try:
            room = self._clients.config().quotas.topics(asked_by_operator=True)
            await self._clients.metadata.topics.update_topic_config(config, room)
        except (OSError, ValueError) as error:
            raise _not_changed(f"topic {header.topic}", error) from error
        # Elsewhere, so that a name server that does not answer holds up no other change.
        self._pools.asking.submit(request, self._answer_registered)

    async def _answer_registered(self, request: RemotingRequest) -> RemotingCommand:
        """Answer when name servers route the topic: whoever has made it asks for its route next."""
        registration = self._registration()
        if registration is not None:
            await registration.register_topics()
        return request.command.response(ResponseCode.SUCCESS, NOT_SET)

    async def _update_group(self, request: RemotingRequest) -> RemotingCommand:
        config = decode_body(SubscriptionGroupConfig, request.command.body)
        self._check_is_master()
        refusal = check_group_to_change(config.group_name)
        if refusal is not None:
            raise refused(refusal)
        try:
            room = self._clients.config().quotas.groups(asked_by_operator=True)
            await self._clients.metadata.subscription_groups.update_subscription_group_config(config, room)
        except (OSError, ValueError) as error:
            raise _not_changed(f"group {config.group_name}", error) from error
        return request.command.response(ResponseCode.SUCCESS)

    async def _delete_group(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.command)
        self._check_is_master()
        metadata = self._clients.metadata
        try:
            await metadata.subscription_groups.delete_subscription_group_config(header.group_name)
        except (OSError, ValueError) as error:
            raise _not_changed(f"group {header.group_name}", error) from error
        self._clients.stats.stats.forget_group(header.group_name)
        self._removal.lags.forget(header.group_name)
        if header.remove_offset:
            metadata.consumer_offsets.remove_offset(header.group_name)
        return request.command.response(ResponseCode.SUCCESS)

    async def _delete_topic(self, request: RemotingRequest) -> RemotingCommand:
        topic = decode_header(DeleteTopicRequestHeader, request.command).topic
        self._check_is_master()
        refusal = check_topic_to_change(topic, self._system_topics())
        if refusal is not None:
            raise refused(refusal)
        try:
            await self._removal.delete(self._clients.store, [topic])
            self._clients.stats.forget_topic(topic)
        except (OSError, ValueError) as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"topic {topic} cannot be deleted: {error}") from error
        return request.command.response(ResponseCode.SUCCESS)

    async def _clean_expired_consume_queue(self, request: RemotingRequest) -> RemotingCommand:
        """Files alone: a queue that has lost all of its messages goes on counting, where RocketMQ's begins at 0."""
        try:
            await self._clients.store.clean_expired_consume_queue()
        except OSError as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"files of queues cannot be removed: {error}") from error
        return request.command.response(ResponseCode.SUCCESS)

    def _delete_expired_commitlog(self, request: RemotingRequest) -> RemotingCommand:
        self._clients.store.clean_commit_log_service.execute_delete_files_manually()
        return request.command.response(ResponseCode.SUCCESS)

    async def _clean_unused_topic(self, request: RemotingRequest) -> RemotingCommand:
        self._check_is_master()
        try:
            await self._removal.clean_unused(self._clients.store)
        except (OSError, ValueError) as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"unused topics cannot be removed: {error}") from error
        return request.command.response(ResponseCode.SUCCESS)

    def _check_is_master(self) -> None:
        if self._clients.config().is_slave:
            remark = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, remark)

    def _system_topics(self) -> frozenset[str]:
        return SYSTEM_TOPICS | system_topics(self._clients.config()).keys()

    # --- looks --------------------------------------------------------------------------------------------------------

    def _get_topic_stats_info(self, request: RemotingRequest) -> RemotingCommand:
        topic = decode_header(GetTopicStatsInfoRequestHeader, request.command).topic
        config = self._clients.metadata.topics.select_topic_config(topic)
        if config is None:
            raise refused(Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist"))
        offsets, broker_name = self._clients.store.offsets, self._clients.config().broker_name
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(config.write_queue_nums):
            end = offsets.get_max_offset_in_queue(topic, queue_id)
            table[MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)] = TopicOffset(
                min_offset=offsets.get_min_offset_in_queue(topic, queue_id),
                max_offset=end,
                last_update_timestamp=offsets.get_message_store_timestamp(topic, queue_id, end - 1) if end else 0,
            )
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(TopicStatsTable(offset_table=table)))

    def _get_system_topic_list(self, request: RemotingRequest) -> RemotingCommand:
        body = encode_body(TopicList(topic_list=sorted(self._system_topics())))
        return request.command.response(ResponseCode.SUCCESS, body=body)


def _not_changed(what: str, error: Exception) -> RpcRefused:
    return RpcRefused(ResponseCode.SYSTEM_ERROR, f"{what} cannot be changed: {error}")
