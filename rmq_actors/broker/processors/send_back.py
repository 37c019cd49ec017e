"""Takes back what consumers could not consume: CONSUMER_SEND_MSG_BACK (a part of SendMessageProcessor)."""

from __future__ import annotations

import attrs

from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.processors.end_transaction import Authorize
from rmq_actors.broker.processors.send_message import SendMessageProcessor
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.plain_access import Permission
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.send_back_rules import NOT_CONSUMED_TOPICS, NoRetries, SendBackRules, look_failed
from rmq_actors.protocols.send_rules import MissingGroup, MissingTopic, Refusal
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool, answer_failure
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.messages import ConsumerSendMsgBackRequestHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: A group, its topic of retries, that of its dead letters; and the put.
_STEPS_MAX = 4


@attrs.frozen(eq=False)
class SendBackProcessor:
    """Answers once the message is in the log. Only a request whose topic or group must be made goes through `pool`."""

    _clients: ClientRequests
    _entropy: Entropy
    _pool: RequestPool
    #: What is sent back waits together with what is sent.
    _sends: SendMessageProcessor
    _authorize: Authorize
    _tracer: Tracer

    def register(self, processors: ProcessorTable) -> None:
        """Take the request code."""
        processors.register([RequestCode.CONSUMER_SEND_MSG_BACK], self._send_back)

    def _send_back(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(ConsumerSendMsgBackRequestHeader, request.command)
        self._clients.check_is_master()
        self._sends.check_room(request)
        found = self._message(request, header)
        if isinstance(found, MissingTopic | MissingGroup):
            self._pool.submit(request, self._make_then_send_back)
            return None
        return self._put(request, found)

    async def _make_then_send_back(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(ConsumerSendMsgBackRequestHeader, request.command)
        for _ in range(_STEPS_MAX):
            found = self._message(request, header)
            if isinstance(found, MissingTopic):
                await self._clients.make_topic(found, "")
            elif isinstance(found, MissingGroup):
                await self._clients.make_group(found.group)
            else:
                return self._put(request, found)
        raise AssertionError(f"{header.group}: what was made is missing again")

    def _message(
        self, request: RemotingRequest, header: ConsumerSendMsgBackRequestHeader
    ) -> Message | MissingTopic | MissingGroup | None:
        """The message to put; None if the group wants none. Raises `RpcRefused`."""
        config, metadata = self._clients.config(), self._clients.metadata
        rules = SendBackRules(
            config.broker_permission,
            config.broker_ip1,
            metadata.topics.select_topic_config,
            metadata.subscription_groups.find_subscription_group_config,
            self._clients.makes_group,
            lambda count: int(self._entropy.random() * count),
        )
        retries = rules.retries(header)
        if isinstance(retries, Refusal):
            raise refused(retries)
        if isinstance(retries, NoRetries):
            return None
        if isinstance(retries, MissingTopic | MissingGroup):
            return retries
        stored = self._clients.store.records.look_message_by_offset(header.offset)
        if stored is None or stored.topic in NOT_CONSUMED_TOPICS:
            raise refused(look_failed(header.offset))
        if stored.topic != retries.topic:
            # The request names an offset and no topic: without this a group would get messages of any topic.
            self._authorize(request, {stored.topic: Permission.SUB})
        return rules.message(header, request.command.version, retries, stored)

    def _put(self, request: RemotingRequest, message: Message | None) -> RemotingCommand | None:
        if message is None:
            return request.command.response(ResponseCode.SUCCESS)
        pending = self._clients.store.puts.async_put_message(message, waits=True)
        if pending.result is not None:
            return _response(request, pending.result)
        waiting = self._sends.waiting
        waiting.begin(request.connection)

        def answer(result: PutResult) -> None:
            waiting.end(request.connection)
            try:
                request.respond(_response(request, result))
            except Exception as error:  # noqa: BLE001 - a hook's: answered, logged, traced
                answer_failure(request, error, self._tracer)

        pending.tell(answer)
        return None


def _response(request: RemotingRequest, result: PutResult) -> RemotingCommand:
    if result.status is PutStatus.PUT_OK:
        return request.command.response(ResponseCode.SUCCESS)
    remark = f"{result.status.value} {result.reason}".rstrip()
    return request.command.response(ResponseCode.SYSTEM_ERROR, remark)
