"""Headers of transactions: their end, and the broker's question how they ended."""

from __future__ import annotations

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE


class EndTransactionRequestHeader(CommandHeader, frozen=True):
    """How a transaction ended. `commit_or_rollback` is MessageSysFlag's type: 8 commit, 12 rollback, 0 not known yet.

    `tran_state_table_offset` is the half message's queue offset, `commit_log_offset` its physical one.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None

    def __post_init__(self) -> None:
        if self.commit_or_rollback not in {0, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE}:
            raise ValueError(f"commitOrRollback is neither 0, 8 nor 12: {self.commit_or_rollback}")


class CheckTransactionStateRequestHeader(CommandHeader, frozen=True):
    """The broker's question how a transaction ended; the half message is the request's body."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class CheckTransactionStateResponseHeader(CommandHeader, frozen=True):
    """An answer that no client of 4.9 sends: they answer with END_TRANSACTION."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32

    def __post_init__(self) -> None:
        if self.commit_or_rollback not in {TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE}:
            raise ValueError(f"commitOrRollback is neither 8 nor 12: {self.commit_or_rollback}")


class ResumeCheckHalfMessageRequestHeader(CommandHeader, frozen=True):
    """Has the broker ask again for a half message that it gave up, by its offset id."""

    msg_id: str | None = None
