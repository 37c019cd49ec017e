"""What a producer tells of a message that was stored (SendResult)."""

from __future__ import annotations

import enum

import attrs

from rmq_actors.protocols.send_retries import SendStatus
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE


@attrs.frozen
class SendResult:
    """A message, or a batch, is stored.

    `msg_id` is the producer's own id of it, `offset_msg_id` the broker's; those of a batch stand with commas between.
    `queue_offset` is the (first) message's number in its queue.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None


def results_of_batch(result: SendResult) -> list[SendResult]:
    """The result of each message of a batch, as if it had been sent alone: one for each of the broker's ids."""
    msg_ids, offset_msg_ids = result.msg_id.split(","), result.offset_msg_id.split(",")
    if len(msg_ids) != len(offset_msg_ids):
        offset_msg_ids = offset_msg_ids[:1]
    return [
        SendResult(result.status, msg_id, offset_msg_id, result.queue, result.queue_offset + number)
        for number, (msg_id, offset_msg_id) in enumerate(zip(msg_ids, offset_msg_ids, strict=False))
    ]


class LocalTransactionState(enum.IntEnum):
    """How the producer's own part of a transaction ended, as END_TRANSACTION says it."""

    #: Not known yet: the broker asks later.
    UNKNOW = 0
    COMMIT_MESSAGE = TRANSACTION_COMMIT_TYPE
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK_TYPE


@attrs.frozen
class TransactionSendResult:
    """A half message is stored, and how its transaction ended as far as is known."""

    send_result: SendResult
    local_transaction_state: LocalTransactionState
