"""Takes a consumer's answer to a request message, and hands it to the client that asked (ReplyMessageProcessor).

A client that asks with a message (`producer.request` of Java) stays connected, and its message names it: property
REPLY_TO_CLIENT. The consumer sends its answer with that property to the broker which has the message, and the broker
pushes it to that client (PUSH_REPLY_MESSAGE_TO_CLIENT). The consumer hears whether the client took it. The answer is
stored in the cluster's reply topic, too, unless `storeReplyMessageEnable` is false.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import attrs

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.processors.send_message import SendMessageProcessor
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.send_rules import Destination
from rmq_actors.remoting.connection import RemotingConnection, RemotingError, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from rmq_actors.wire.properties import decode_properties, encode_properties
from rmq_actors.wire.record import MessageIllegal
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
#: How long the client that asked may take (Broker2Client.callClient).
_PUSH_TIMEOUT_MS = 10_000
#: The place of an answer that is not stored. Clients need one.
_NOWHERE = "0"


@attrs.frozen(eq=False)
class ReplyMessageProcessor:
    """An answer waits in a pool until the client that asked has taken it."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService
    _sends: SendMessageProcessor
    _pools: RequestPools
    _wall_clock: WallClock

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        codes = [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2]
        processors.register_pooled(codes, self._reply, self._pools.reply)

    async def _reply(self, request: RemotingRequest) -> RemotingCommand:
        header, destination = await self._sends.checked(request)
        properties = decode_properties((header.properties or "").encode("utf-8", "surrogatepass"))
        refusal = await self._push(request, header, properties)
        placed = SendMessageResponseHeader(_NOWHERE, destination.queue_id, 0)
        if self._clients.config().store_reply_message_enable:
            placed = await self._store(request, header, destination) or placed
        code = ResponseCode.SUCCESS if refusal is None else ResponseCode.SYSTEM_ERROR
        return request.command.response(code, refusal, encode_header(placed) | self._sends.region())

    async def _push(
        self, request: RemotingRequest, header: SendMessageRequestHeader, properties: Mapping[str, str]
    ) -> str | None:
        """Hand the answer to the client that asked. What the consumer is told if that has not worked."""
        asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
        connection = self._housekeeping.producers.find_channel(asker)
        if connection is None:
            return f"push reply message fail, channel of <{asker}> not found."
        try:
            answer = await connection.invoke(self._pushed(request, header, properties), _PUSH_TIMEOUT_MS)
        except (RemotingError, ValueError) as error:  # ValueError: with the longer header it fits no frame
            return self._not_taken(asker, connection, str(error))
        if answer.code != ResponseCode.SUCCESS:
            return self._not_taken(asker, connection, f"code {answer.code}, {answer.remark}")
        return None

    def _pushed(
        self, request: RemotingRequest, header: SendMessageRequestHeader, properties: Mapping[str, str]
    ) -> RemotingCommand:
        now_ms = self._wall_clock.now_ms()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=request.connection.remote_address,
            store_host=self._clients.store_host(),
            store_timestamp=now_ms,
            properties=encode_properties({**properties, PROPERTY_PUSH_REPLY_TIME: str(now_ms)}).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        return RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, encode_header(pushed), body=request.command.body
        )

    def _not_taken(self, asker: str, connection: RemotingConnection, reason: str) -> str:
        _log.warning("client %s at %s has not taken a reply: %s", asker, connection.remote_address, reason)
        return f"push reply message to {asker}fail."

    async def _store(
        self, request: RemotingRequest, header: SendMessageRequestHeader, destination: Destination
    ) -> SendMessageResponseHeader | None:
        """Where the answer is stored; None if the store has not taken it, though the client that asked may have it."""
        try:
            result = await self._clients.store.puts.put_message(self._sends.message(request, header, destination))
        except MessageIllegal as error:
            _log.warning("a reply of %s to topic %s is not stored: %s", header.producer_group, header.topic, error)
            return None
        if result.append is None:
            _log.warning(
                "a reply of %s to topic %s is not stored: %s %s",
                header.producer_group,
                header.topic,
                result.status.value,
                result.reason,
            )
            return None
        return SendMessageResponseHeader(result.append.msg_id, destination.queue_id, result.append.queue_offset)
