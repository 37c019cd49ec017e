"""The producer's side of transactions: what it tells brokers, and how it answers their questions.

A broker that was not told how a transaction ended asks a producer of the group (CHECK_TRANSACTION_STATE), again and
again; the answer is another END_TRANSACTION.
"""

from __future__ import annotations

import collections
import logging
import math
from typing import Protocol

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.send_result import LocalTransactionState
from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP
from rmq_actors.remoting.connection import RemotingConnection, RemotingError, RemotingRequest
from rmq_actors.wire.body_compression import CompressedBodyError, decompress_body
from rmq_actors.wire.dispatch_request import PROPERTY_UNIQ_KEY
from rmq_actors.wire.headers.codec import decode_header, encode_header
from rmq_actors.wire.headers.transactions import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.record import BODY_MAX_BYTES, Message, RecordError, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode

_log = logging.getLogger(__name__)


class TransactionListener(Protocol):
    """What a program does in a transaction."""

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        """The program's own part, once the half message is stored; `argument` is that of `send_in_transaction`.

        `transaction_id` is the message's unique id: note it with what is done, to answer the question below. What is
        returned and is no `LocalTransactionState` counts as UNKNOW here and below, and is logged.
        """

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        """How that part ended: a broker asks. It may be asked of another program of the group, and more than once."""


def returned_state(method: str, returned: object) -> tuple[LocalTransactionState, str | None]:
    """What a listener's method has returned; UNKNOW, and a remark for the broker, if that is no state."""
    if isinstance(returned, LocalTransactionState):
        return returned, None
    remark = f"{method} returned a {type(returned).__name__}, and no LocalTransactionState: it counts as UNKNOW"
    _log.error("the transaction listener's %s", remark)
    return LocalTransactionState.UNKNOW, remark


def end_transaction_command(
    group: str,
    state: LocalTransactionState,
    queue_offset: int,
    offset: int,
    msg_id: str,
    transaction_id: str | None,
    remark: str | None = None,
    *,
    from_check: bool = False,
) -> RemotingCommand:
    """END_TRANSACTION of a half message: `queue_offset` is its number in its queue, `offset` its place in the log."""
    header = EndTransactionRequestHeader(
        group,
        queue_offset,
        offset,
        int(state),
        msg_id,
        from_transaction_check=from_check,
        transaction_id=transaction_id,
    )
    return RemotingCommand(RequestCode.END_TRANSACTION, encode_header(header), remark=remark)


@attrs.frozen
class _Question:
    connection: RemotingConnection
    header: CheckTransactionStateRequestHeader
    message: StoredMessage
    msg_id: str


@attrs.define(eq=False, repr=False)
class TransactionCheckService(ServiceThread):
    """A Service: has the listener answer brokers' questions, one after the other. Too many that wait are dropped."""

    name = "TransactionCheckService"
    _instance: MQClientInstance
    _config: ProducerConfig
    _listener: TransactionListener
    _waiting: collections.deque[_Question] = attrs.field(factory=collections.deque, init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)

    def register(self) -> None:
        """Take the request code."""
        self._instance.processors.register([RequestCode.CHECK_TRANSACTION_STATE], self._check)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Answer questions."""
        task_status.started()
        while True:
            while self._waiting:
                await self._answer(self._waiting.popleft())
            await self._wake.wait_for_running(math.inf)

    def _check(self, request: RemotingRequest) -> None:
        """A processor; what it raises is answered, logged and traced as a bad request."""
        command = request.command
        header = decode_header(CheckTransactionStateRequestHeader, command)
        try:
            message = decode_message(memoryview(command.body))
            body = decompress_body(message.body, message.sys_flag, BODY_MAX_BYTES)
        except (RecordError, CompressedBodyError) as error:
            raise RemotingCommandError(f"the half message of a question cannot be read: {error}") from error
        group = message.properties.get(PROPERTY_PRODUCER_GROUP)
        if group != self._config.producer_group:
            raise RemotingCommandError(f"the half message of a question is of group {str(group)[:80]!r}")
        msg_id = message.properties.get(PROPERTY_UNIQ_KEY) or create_message_id(
            message.store_host, message.physical_offset
        )
        question = _Question(request.connection, header, attrs.evolve(message, body=body), msg_id)
        if len(self._waiting) < self._config.check_request_hold_max:
            self._waiting.append(question)
            self._wake.wakeup("question")
        else:
            _log.warning(
                "%s: %s asks about transaction %s: dropped, as %d questions wait already",
                self.name,
                request.connection.remote_address,
                msg_id,
                self._config.check_request_hold_max,
            )

    async def _answer(self, question: _Question) -> None:
        state, remark = LocalTransactionState.UNKNOW, None
        try:
            returned = await self._listener.check_local_transaction(question.message, question.msg_id)
            state, remark = returned_state("check_local_transaction", returned)
        except Exception as error:  # noqa: BLE001 - logged and told; the broker asks again
            _log.error("%s: the listener failed at transaction %s", self.name, question.msg_id, exc_info=error)
            remark = f"checkLocalTransactionState Exception: {type(error).__name__}: {error}"[:1000]
        header = question.header
        try:
            command = end_transaction_command(
                self._config.producer_group,
                state,
                header.tran_state_table_offset,
                header.commit_log_offset,
                question.msg_id,
                header.transaction_id,
                remark,
                from_check=True,
            )
            question.connection.invoke_oneway(command)
        except (RemotingError, ValueError) as error:
            _log.info("%s: the answer about transaction %s was not sent: %s", self.name, question.msg_id, error)
