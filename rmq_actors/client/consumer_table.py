"""What brokers ask of the consumers of one client: each request is for one group (ClientRemotingProcessor)."""

from __future__ import annotations

import logging
from typing import Protocol

import attrs

from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.consumer_running_info import ConsumerRunningInfo
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rmq_actors.wire.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)


class RegisteredConsumer(Protocol):
    """One group's consumer. Nothing here blocks."""

    def consumer_ids_changed(self) -> None:
        """The group has other members now: rebalance."""
        ...

    def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Go to these offsets: an operator wants it."""
        ...

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it is in the queues of a topic."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Its configuration and queues."""
        ...

    def consume_directly(self, request: RemotingRequest, broker_name: str) -> bool:
        """Consume the message of a request, and answer it later; False: it has no listener."""
        ...


@attrs.define(eq=False, repr=False)
class ConsumerTable:
    """Consumers by group."""

    consumers: dict[str, RegisteredConsumer] = attrs.field(factory=dict, init=False)

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        for code, process in (
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notify_consumer_ids_changed),
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offset),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._get_consumer_status),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, self._get_consumer_running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_message_directly),
        ):
            processors.register([code], process)

    def _notify_consumer_ids_changed(self, request: RemotingRequest) -> RemotingCommand | None:
        group = decode_header(NotifyConsumerIdsChangedRequestHeader, request.command).consumer_group
        _log.info("%s says that group %s has other members now", request.connection.remote_address, group)
        # As in RocketMQ, all of this client's consumers look.
        for consumer in self.consumers.values():
            consumer.consumer_ids_changed()
        return request.command.response(ResponseCode.SUCCESS)

    def _reset_offset(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(ResetOffsetRequestHeader, request.command)
        consumer = self.consumers.get(header.group)
        if consumer is not None:
            consumer.reset_offset(header.topic, decode_body(ResetOffsetBody, request.command.body).offset_table)
        return request.command.response(ResponseCode.SUCCESS)

    def _get_consumer_status(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetConsumerStatusRequestHeader, request.command)
        consumer = self.consumers.get(header.group)
        table = {} if consumer is None else consumer.offsets(header.topic)
        body = encode_body(GetConsumerStatusBody(message_queue_table=table))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _get_consumer_running_info(self, request: RemotingRequest) -> RemotingCommand:
        group = decode_header(GetConsumerRunningInfoRequestHeader, request.command).consumer_group
        consumer = self.consumers.get(group)
        if consumer is None:
            return _unknown(request, group)
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(consumer.running_info()))

    def _consume_message_directly(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, request.command)
        consumer = self.consumers.get(header.consumer_group)
        if consumer is None or not consumer.consume_directly(request, header.broker_name or ""):
            return _unknown(request, header.consumer_group)
        return None


def _unknown(request: RemotingRequest, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return request.command.response(ResponseCode.SYSTEM_ERROR, remark)
