"""Transactions at a broker: how they end, and what becomes of those that nobody ends."""

from __future__ import annotations

from typing import Literal

from rmq_actors.tracing.event import Event


class TransactionEnd(
    Event, kind="transaction.end", emitter="broker.transactional_message_service", actor="EndTransactionProcessor"
):
    """The transaction of the half message at offset was ended by its producer."""

    status: Literal["committed", "rolled_back"]
    offset: int


class TransactionCheck(
    Event,
    kind="transaction.check",
    emitter="broker.transactional_message_check_service",
    actor="TransactionalMessageCheckService",
):
    """An open transaction, whose half message was at offset, was looked at when its time was up.

    status: asked, checked_too_often or too_old: it is given up, or why nothing could be done. check_times: how often
    its producers have been asked.
    """

    status: str
    offset: int
    check_times: int
    producer_group: str
