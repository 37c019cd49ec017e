"""Answers the members of a consumer group: who else is in it, how far they are, and which queues they have locked.

RocketMQ's ConsumerManageProcessor, and LOCK_BATCH_MQ and UNLOCK_BATCH_MQ of AdminBrokerProcessor.
"""

from __future__ import annotations

import attrs
import trio

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.protocols.send_rules import Refusal, check_lengths
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.clients import GetConsumerListByGroupResponseBody
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.clients import GetConsumerListByGroupRequestHeader
from rmq_actors.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen(eq=False)
class ConsumerManageProcessor:
    """Answers all requests at once."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        for code, process in (
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._get_consumer_list_by_group),
            (RequestCode.UPDATE_CONSUMER_OFFSET, self._update_consumer_offset),
            (RequestCode.QUERY_CONSUMER_OFFSET, self._query_consumer_offset),
            (RequestCode.LOCK_BATCH_MQ, self._lock_batch_mq),
            (RequestCode.UNLOCK_BATCH_MQ, self._unlock_batch_mq),
        ):
            processors.register([code], process)

    def _get_consumer_list_by_group(self, request: RemotingRequest) -> RemotingCommand:
        name = decode_header(GetConsumerListByGroupRequestHeader, request.command).consumer_group
        group = self._housekeeping.consumers.groups.get(name)
        if group is None:
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}"))
        body = encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _update_consumer_offset(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.command)
        if self._is_deleted(header.topic):  # consumers commit a while longer: the next life begins at 0
            return request.command.response(ResponseCode.SUCCESS)
        self._clients.commit_offset(
            request.connection.remote_address,
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
        )
        return request.command.response(ResponseCode.SUCCESS)

    def _is_deleted(self, topic: str) -> bool:
        if self._clients.metadata.topics.select_topic_config(topic) is not None:
            return False
        store = self._clients.open_store()
        return store is not None and topic in store.topic_deletion.points

    def _query_consumer_offset(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(QueryConsumerOffsetRequestHeader, request.command)
        topic, queue_id = header.topic, header.queue_id
        offset = self._clients.metadata.consumer_offsets.query_offset(header.consumer_group, topic, queue_id)
        if offset < 0:
            offsets = self._clients.store.offsets
            # A young queue is consumed from its first message, whatever the consumer's own rule is.
            if offsets.get_min_offset_in_queue(topic, queue_id) > 0 or offsets.check_in_disk_by_consume_offset(
                topic, queue_id, 0
            ):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                raise refused(Refusal(ResponseCode.QUERY_NOT_FOUND, remark))
            offset = 0
        answer = encode_header(QueryConsumerOffsetResponseHeader(offset))
        return request.command.response(ResponseCode.SUCCESS, ext_fields=answer)

    def _lock_batch_mq(self, request: RemotingRequest) -> RemotingCommand:
        asked = decode_body(LockBatchRequestBody, request.command.body)
        for queue in asked.mq_set:
            if (too_long := check_lengths(asked.consumer_group, queue.topic)) is not None:
                raise refused(too_long)
        locks, now_s = self._housekeeping.locks, trio.current_time()
        # A slave has been the master, perhaps: its clients do not know that yet, and the new master gives locks, too.
        queues = asked.mq_set if self._clients.leads else ()
        locked = locks.try_lock(asked.consumer_group, queues, asked.client_id, now_s)
        self._housekeeping.heard_of_clients()
        body = encode_body(LockBatchResponseBody(lock_ok_mq_set=locked))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _unlock_batch_mq(self, request: RemotingRequest) -> RemotingCommand:
        asked = decode_body(UnlockBatchRequestBody, request.command.body)
        self._housekeeping.locks.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        return request.command.response(ResponseCode.SUCCESS)
