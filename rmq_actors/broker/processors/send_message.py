"""Takes messages from producers (SendMessageProcessor): SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE."""

from __future__ import annotations

import attrs
import msgspec

from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.processors.end_transaction import Authorize
from rmq_actors.broker.waiting_sends import WaitingSends
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.further_queues import check_further_queues, has_further_queues
from rmq_actors.protocols.plain_access import permission_to_send
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.send_rules import Destination, MissingGroup, MissingTopic, Refusal, SendRules
from rmq_actors.protocols.transactional_messages import (
    PROPERTY_TRANSACTION_PREPARED,
    begins_transaction,
    check_transaction,
    half_message,
    without_transaction,
)
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool, answer_failure
from rmq_actors.store.files.topic_names import is_lmq
from rmq_actors.store.puts.message_puts import PendingPut, PutResult
from rmq_actors.tracing.events.remoting import RemotingBusy
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.batch import MessageBatch
from rmq_actors.wire.dispatch_request import PROPERTY_INNER_MULTI_DISPATCH, split_multi_dispatch
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.messages import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    create_send_message_request_header_v1,
)
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE, Message, MessageIllegal
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

PROPERTY_CLUSTER = "CLUSTER"
_MSG_REGION, _TRACE_SWITCH = "MSG_REGION", "TRACE_ON"
#: How often missing tables are made for one message: a topic, its group, the topic of its dead letters.
_MAKES_MAX = 4

_OVERLOAD = Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
#: With these the message is stored, even if not as safely as was promised, and the answer has its place.
_STORED = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_NOT_STORED = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: Refusal(
        ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now."),
    PutStatus.OS_PAGECACHE_BUSY: Refusal(
        ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    ),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: Refusal(
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
        "maxLmqConsumeQueueNum config num, default limit 2w.",
    ),
}


@attrs.define(eq=False, repr=False)
class SendMessageProcessor:
    """Checks, appends, and answers once the store does: at once, or later without a task that waits.

    Only a message whose topic or group must be made first goes through `pool`.
    """

    _clients: ClientRequests
    _entropy: Entropy
    _pool: RequestPool
    _authorize: Authorize
    _tracer: Tracer
    #: Also of those that went through the send lane.
    waiting: WaitingSends = attrs.field(factory=WaitingSends, init=False)
    #: The rules, and the configuration that they are of.
    _rules_of: tuple[BrokerConfig, SendRules] | None = attrs.field(default=None, init=False)

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        codes = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
        processors.register(codes, self._send)

    def _send(self, request: RemotingRequest) -> RemotingCommand | None:
        header = _header_of(request.command)
        self._clients.check_is_master()
        self.check_room(request)
        destination = self._destination(request, header)
        if isinstance(destination, MissingTopic | MissingGroup):
            self._pool.submit(request, self._make_then_send)
            return None
        return self._put(request, header, destination)

    async def _make_then_send(self, request: RemotingRequest) -> RemotingCommand | None:
        header = _header_of(request.command)
        return self._put(request, header, await self._made_destination(request, header))

    async def checked(self, request: RemotingRequest) -> tuple[SendMessageRequestHeader, Destination]:
        """What is to be stored where; missing tables are made. Raises `RpcRefused`, as for a message that is sent."""
        header = _header_of(request.command)
        self._clients.check_is_master()
        self.check_room(request)
        return header, await self._made_destination(request, header)

    async def _made_destination(self, request: RemotingRequest, header: SendMessageRequestHeader) -> Destination:
        for _ in range(_MAKES_MAX):
            destination = self._destination(request, header)
            if isinstance(destination, MissingTopic):
                await self._clients.make_topic(destination, header.default_topic)
            elif isinstance(destination, MissingGroup):
                await self._clients.make_group(destination.group)
            else:
                return destination
        raise AssertionError(f"{header.topic}: what was made is missing again")

    def check_room(self, request: RemotingRequest) -> None:
        """Raise `RpcRefused` while too many wait for their answers, of this connection or in all."""
        most = self._clients.config().send_thread_pool_queue_capacity
        if not self.waiting.room(request.connection, most) or not self._clients.store.puts.may_more_wait:
            self._tracer.emit(
                RemotingBusy(conn_id=request.connection.conn_id, status="overload", code=request.command.code)
            )
            raise refused(_OVERLOAD)

    def plain_destination(self, header: SendMessageRequestHeader, version: int, client: str) -> Destination | None:
        """Where a message goes now; None where there is more to be said of that."""
        found = self._rules().destination(header, version, client)
        return found if isinstance(found, Destination) else None

    def _destination(
        self, request: RemotingRequest, header: SendMessageRequestHeader
    ) -> Destination | MissingTopic | MissingGroup:
        found = self._rules().destination(header, request.command.version, request.connection.remote_address)
        if isinstance(found, Refusal):
            raise refused(found)
        return found

    def _rules(self) -> SendRules:
        config, metadata = self._clients.config(), self._clients.metadata
        if self._rules_of is not None and self._rules_of[0] is config:
            return self._rules_of[1]
        rules = SendRules(
            config.broker_permission,
            config.broker_ip1,
            metadata.topics.select_topic_config,
            metadata.subscription_groups.find_subscription_group_config,
            config.auto_create_subscription_group,
            lambda count: int(self._entropy.random() * count),
        )
        self._rules_of = config, rules
        return rules

    def _put(
        self, request: RemotingRequest, header: SendMessageRequestHeader, destination: Destination
    ) -> RemotingCommand | None:
        store, properties = self._clients.store, self._properties(header)
        try:
            if header.batch:
                pending = store.puts.async_put_messages(self._batch(request, header, destination, properties))
            else:
                message = self._message(request, header, destination, properties)
                pending = store.puts.async_put_message(self._prepared(message))
        except MessageIllegal as error:
            raise refused(Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))) from error
        if pending.result is not None:
            return self._response(request, destination.queue_id, pending.result)
        self.tell(pending, _without_content(request), destination.queue_id)
        return None

    def tell(self, pending: PendingPut, request: RemotingRequest, queue_id: int) -> None:
        """Answer once there is something to say. Keeps `request` until then."""
        self.waiting.begin(request.connection)

        def answer(result: PutResult) -> None:
            self.waiting.end(request.connection)
            self.answer(request, queue_id, result)

        pending.tell(answer)

    def _properties(self, header: SendMessageRequestHeader) -> dict[str, str]:
        """The message's properties, with the cluster's name."""
        properties = decode_properties((header.properties or "").encode("utf-8", "surrogatepass"))
        properties[PROPERTY_CLUSTER] = self._clients.config().broker_cluster_name
        return properties

    def message(self, request: RemotingRequest, header: SendMessageRequestHeader, to: Destination) -> Message:
        """The message of a request. Raises `RpcRefused` for what this broker does not take."""
        message = self._message(request, header, to, self._properties(header))
        refusal = check_transaction(message, self._clients.config().broker_ip1, is_rejected=True)
        if refusal is not None:
            raise refused(refusal)
        return message

    def _prepared(self, message: Message) -> Message:
        """The message as it is put: one of a transaction as a half message. Raises `RpcRefused`."""
        if PROPERTY_TRANSACTION_PREPARED not in message.properties and not message.sys_flag & TRANSACTION_ROLLBACK_TYPE:
            return message
        config = self._clients.config()
        refusal = check_transaction(message, config.broker_ip1, is_rejected=config.reject_transaction_message)
        if refusal is not None:
            raise refused(refusal)
        if not begins_transaction(message):
            return without_transaction(message)
        return half_message(message)

    def _message(
        self, request: RemotingRequest, header: SendMessageRequestHeader, to: Destination, properties: dict[str, str]
    ) -> Message:
        if PROPERTY_INNER_MULTI_DISPATCH in properties and has_further_queues(to.topic):
            self._check_further_queues(request, properties[PROPERTY_INNER_MULTI_DISPATCH], to.queue_id)
        return Message(
            topic=to.topic,
            body=request.command.body,
            queue_id=to.queue_id,
            properties=properties,
            flag=header.flag,
            sys_flag=to.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=request.connection.remote_address,
            store_host=self._clients.store_host(),
            reconsume_times=header.reconsume_times or 0,
            delay_time_level=0 if to.is_dead else None,
        )

    def _check_further_queues(self, request: RemotingRequest, names: str, queue_id: int) -> None:
        """Raise `RpcRefused` unless the message could be sent to each further queue that its producer names."""
        config = self._clients.config().store
        if not config.enable_multi_dispatch:
            return  # the property means nothing
        topics = [name for name in split_multi_dispatch(names) if not (config.enable_lmq and is_lmq(name))]
        refusal = check_further_queues(topics, queue_id, self._clients.metadata.topics.select_topic_config)
        if refusal is not None:
            raise refused(refusal)
        self._authorize(request, {topic: permission_to_send(topic) for topic in topics})

    def _batch(
        self, request: RemotingRequest, header: SendMessageRequestHeader, to: Destination, properties: dict[str, str]
    ) -> MessageBatch:
        if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
            raise refused(Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction"))
        return MessageBatch(
            topic=to.topic,
            body=request.command.body,
            queue_id=to.queue_id,
            properties=properties,
            sys_flag=to.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=request.connection.remote_address,
            store_host=self._clients.store_host(),
            reconsume_times=header.reconsume_times or 0,
        )

    def answer(self, request: RemotingRequest, queue_id: int, result: PutResult) -> None:
        """Tell a producer how its put ended."""
        try:
            request.respond(self._response(request, queue_id, result))
        except Exception as error:  # noqa: BLE001 - a hook's: answered, logged, traced
            answer_failure(request, error, self._tracer)

    def _response(self, request: RemotingRequest, queue_id: int, result: PutResult) -> RemotingCommand:
        ext_fields = self.region()
        code = _STORED.get(result.status)
        if code is None or result.append is None:
            refusal = self._refusal(result)
            return request.command.response(refusal.code, refusal.remark, ext_fields)
        placed = SendMessageResponseHeader(result.append.msg_id, queue_id, result.append.queue_offset)
        return request.command.response(code, None, encode_header(placed) | ext_fields)

    def region(self) -> dict[str, str]:
        """What every answer tells of this broker beside the message's place."""
        config = self._clients.config()
        return {_MSG_REGION: config.region_id, _TRACE_SWITCH: "true" if config.trace_on else "false"}

    def _refusal(self, result: PutResult) -> Refusal:
        """RocketMQ's text for a put that the store did not take, and the store's own reason after it."""
        if result.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}:
            limit = self._clients.store.config.max_message_size_bytes
            refusal = Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {limit}B, msg properties length limit 32KB.",
            )
        else:
            refusal = _NOT_STORED.get(result.status, Refusal(ResponseCode.SYSTEM_ERROR, result.status.value))
        return Refusal(refusal.code, f"{refusal.remark} {result.reason}".rstrip())


def _without_content(request: RemotingRequest) -> RemotingRequest:
    """What an answer needs of a request: its body is in the log, and is not kept in memory beside it.

    Hooks see the fields of what they are told the answer of.
    """
    command = msgspec.structs.replace(request.command, body=b"")
    if not request.connection.hooks:
        command.ext_fields = None
    return RemotingRequest(request.connection, command, request.arrived_s)


def _header_of(command: RemotingCommand) -> SendMessageRequestHeader:
    if command.code in {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}:
        return decode_header(SendMessageRequestHeader, command)
    return create_send_message_request_header_v1(decode_header(SendMessageRequestHeaderV2, command))
