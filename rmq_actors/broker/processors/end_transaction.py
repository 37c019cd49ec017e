"""Ends transactions for producers (EndTransactionProcessor), and takes up given-up ones again for operators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import attrs

from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.broker.transactional_message_service import TransactionalMessageService, refusal_of
from rmq_actors.broker.waiting_sends import WaitingSends
from rmq_actors.protocols.plain_access import Permission
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.protocols.transactional_messages import real_queue
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, answer_failure
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.transactions import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from rmq_actors.wire.message_id import MessageIdError, decode_message_id
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: With these the end is in the log, even if not as safely as was promised.
_DONE = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)
_NOT_RESUMED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
#: Raises `RpcRefused` unless the sender of a request has these permissions.
Authorize = Callable[[RemotingRequest, Mapping[str, Permission]], None]


@attrs.define(eq=False, repr=False)
class EndTransactionProcessor:
    """Answers once the end is as safe as the configuration promises; a commit waits like any message."""

    _clients: ClientRequests
    _transactions: TransactionalMessageService
    _waiting: WaitingSends
    _pools: RequestPools
    _authorize: Authorize
    _tracer: Tracer

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        processors.register([RequestCode.END_TRANSACTION], self._end_transaction)
        processors.register([RequestCode.RESUME_CHECK_HALF_MESSAGE], self._resume_check_half_message)

    def _end_transaction(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(EndTransactionRequestHeader, request.command)
        if self._clients.config().is_slave:
            raise RpcRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions")
        if not header.commit_or_rollback:
            _log.info(
                "%s does not know yet how the transaction of the half message at %d ends",
                request.connection.remote_address,
                header.commit_log_offset,
            )
            return None  # as in RocketMQ, whose clients do not wait for an answer
        store = self._clients.store
        if not self._transactions.may_be_seen(store, header.commit_log_offset):
            self._pools.transactions.submit(request, self._wait_then_end)
            return None
        return self._end(request, header)

    async def _wait_then_end(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(EndTransactionRequestHeader, request.command)
        await self._transactions.wait_until_seen(self._clients.store, header.commit_log_offset)
        return self._end(request, header)

    def _end(self, request: RemotingRequest, header: EndTransactionRequestHeader) -> RemotingCommand | None:
        store = self._clients.store
        half = self._transactions.find(store, header)
        if isinstance(half, Refusal):
            raise refused(half)
        real = real_queue(half)
        assert real is not None
        self._authorize(request, {real[0]: Permission.PUB})
        if not self._waiting.room(request.connection, self._clients.config().send_thread_pool_queue_capacity):
            raise RpcRefused(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
        pending = self._transactions.end(store, half, header.commit_or_rollback)
        if isinstance(pending, Refusal):
            raise refused(pending)
        if pending is None:
            return request.command.response(ResponseCode.SUCCESS)
        if pending.result is not None:
            return self._response(request, pending.result)
        self._waiting.begin(request.connection)

        def answer(result: PutResult) -> None:
            self._waiting.end(request.connection)
            try:
                request.respond(self._response(request, result))
            except Exception as error:  # noqa: BLE001 - a hook's: answered, logged, traced
                answer_failure(request, error, self._tracer)

        pending.tell(answer)
        return None

    def _response(self, request: RemotingRequest, result: PutResult) -> RemotingCommand:
        if result.status in _DONE:
            return request.command.response(ResponseCode.SUCCESS)
        refusal = refusal_of(result.status, result.reason, self._clients.store.config.max_message_size_bytes)
        return request.command.response(refusal.code, refusal.remark)

    def _resume_check_half_message(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(ResumeCheckHalfMessageRequestHeader, request.command)
        if self._clients.config().is_slave:
            raise RpcRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave checks no transactions")
        try:
            _, offset = decode_message_id(header.msg_id or "")
        except MessageIdError as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"{_NOT_RESUMED} {error}") from error
        pending = self._transactions.resume(self._clients.store, offset)
        if pending is None:
            what = f"{header.msg_id} is not a message of TRANS_CHECK_MAX_TIME_TOPIC, or is checked again already"
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"{_NOT_RESUMED} {what}")
        if pending.append is None:
            assert pending.result is not None
            remark = f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {pending.result.reason}"
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, remark)
        _log.info("%s: %s is checked again", request.connection.remote_address, header.msg_id)
        return request.command.response(ResponseCode.SUCCESS)
