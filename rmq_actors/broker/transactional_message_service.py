"""Ends transactions, asks about them, and gives them up: each step as records in the log (TransactionalMessageService).

Every step is made of puts that follow each other without an `await`, the one that counts first: after a crash the log
has the step, or it has not, or it lacks an op message that nobody needs any more.
"""

from __future__ import annotations

import logging
from typing import Literal, NamedTuple

import attrs
import trio

from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.protocols.transaction_check import EndedTransactions, HalfMessage
from rmq_actors.protocols.transactional_messages import (
    committed_message,
    given_up_message,
    half_message_again,
    is_half,
    is_half_again,
    is_of_3,
    op_message,
    real_queue,
    resumed_message,
    rolled_back_message,
    unique_key,
    why_not_ended,
)
from rmq_actors.store.dispatch.open_transaction import OpenTransaction, transaction_origin
from rmq_actors.store.log.commit_log import AppendMessageResult
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.tracing.events.transactions import TransactionEnd
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC
from rmq_actors.wire.headers.transactions import EndTransactionRequestHeader
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
)
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: How long the end of a transaction waits until its half message is dispatched (waitTimeMillsInTransactionQueue). That
#: is so once the transient store pool has committed it, and under SYNC_FLUSH once it is synced.
_DISPATCH_WAIT_S = 3.0
_ENDED = Refusal(ResponseCode.SYSTEM_ERROR, "The transaction has ended already")


class Asked(NamedTuple):
    """A half message that was stored again before its producers are asked."""

    record: StoredMessage
    placed: AppendMessageResult


@attrs.define(eq=False, repr=False)
class TransactionalMessageService:
    """Knows what has ended since the store's table last heard of it. One for a broker, in all its roles."""

    _clients: ClientRequests
    _wall_clock: WallClock
    _tracer: Tracer
    #: How many transactions this broker has committed, rolled back, asked about and given up since it started.
    counts: dict[str, int] = attrs.field(
        factory=lambda: dict.fromkeys(("committed", "rolled_back", "asked", "given_up"), 0), init=False
    )
    _ended: EndedTransactions = attrs.field(factory=EndedTransactions, init=False)
    #: The store that `_ended` is about.
    _store: MessageStore | None = attrs.field(default=None, init=False)

    def ended_in(self, store: MessageStore) -> EndedTransactions:
        """What has ended in this store that its table does not know of."""
        if self._store is not store:
            self._store, self._ended = store, EndedTransactions()
        self._ended.forget_to(store.dispatched_to)
        return self._ended

    def is_open(self, store: MessageStore, prepared_offset: int) -> bool:
        """Whether nothing in the log ends the transaction of the half message at this offset."""
        return prepared_offset not in self.ended_in(store) and store.transactions.is_open(prepared_offset)

    # --- the end ----------------------------------------------------------------------------------------------------

    def may_be_seen(self, store: MessageStore, offset: int) -> bool:
        """Whether a record at this offset has been dispatched, or there is none."""
        return offset < store.dispatched_to or offset >= store.commit_log.append_offset

    async def wait_until_seen(self, store: MessageStore, offset: int) -> None:
        """Return once a record at this offset has been dispatched, at the latest after `_DISPATCH_WAIT_S`."""
        with trio.move_on_after(_DISPATCH_WAIT_S), store.dispatched.subscribe() as told:
            while not self.may_be_seen(store, offset):
                await told.receive()

    def find(self, store: MessageStore, header: EndTransactionRequestHeader) -> StoredMessage | Refusal:
        """The half message that a request names, if it may be ended by this request."""
        half = store.records.look_message_by_offset(header.commit_log_offset)
        refusal = why_not_ended(half, header)
        if refusal is not None or half is None:
            assert refusal is not None
            return refusal
        return half

    def end(self, store: MessageStore, half: StoredMessage, state: int) -> PendingPut | Refusal | None:
        """Commit or roll back: the put that does it; None if it was done before in the same way.

        A half message that was stored again in the meantime is ended where it is now.
        """
        present = self._present(store, half)
        if present is None:
            return None if self._has_ended_so(store, half.physical_offset, state) else _ENDED
        if state == TRANSACTION_COMMIT_TYPE:
            pending = store.puts.async_put_message(committed_message(present))
        elif is_of_3(present):
            pending = store.puts.async_put_message(rolled_back_message(present))
        else:
            pending = self._put_op(store, present)
        if pending.append is None:
            return pending
        self.ended_in(store).note(present.physical_offset, pending.append.offset, state)
        if state == TRANSACTION_COMMIT_TYPE and not is_of_3(present):
            self._put_op(store, present)
        status: Literal["committed", "rolled_back"]
        status = "committed" if state == TRANSACTION_COMMIT_TYPE else "rolled_back"
        self.counts[status] += 1
        self._tracer.emit(TransactionEnd(status=status, offset=present.physical_offset))
        return pending

    def _present(self, store: MessageStore, half: StoredMessage) -> StoredMessage | None:
        """The open half message that stands for this one now; None if its transaction has ended."""
        offset = self.ended_in(store).successor(half.physical_offset)
        if self.is_open(store, offset):
            found = half if offset == half.physical_offset else store.records.look_message_by_offset(offset)
        elif offset != half.physical_offset and offset not in self._ended:
            found = store.records.look_message_by_offset(offset)  # just stored again, and not dispatched yet
        else:
            found = self._stored_again(store, half)
        return found if found is not None and is_half(found) and real_queue(found) is not None else None

    def _stored_again(self, store: MessageStore, half: StoredMessage) -> StoredMessage | None:
        """The open half message that was stored for this one; None if it ended in another way.

        By the origin that it names, else by its key.
        """
        key, real = unique_key(half), real_queue(half)
        has_ended = half.physical_offset in self._ended
        if has_ended or store.transactions.state_at(half.physical_offset) == TRANSACTION_COMMIT_TYPE:
            return None
        named = store.transactions.open_of_origin(transaction_origin(half.physical_offset, half.properties))
        if named is not None and named.physical_offset not in self._ended:
            return store.records.look_message_by_offset(named.physical_offset)
        if not key or real is None:
            return None
        for each in store.transactions.open_with_key(key, real[0]):
            if each.physical_offset not in self._ended:
                record = store.records.look_message_by_offset(each.physical_offset)
                # A copy that names a copy stands for what that one was stored for.
                first = record if each.origin == each.physical_offset else self._origin(store, each)
                if record is not None and first is not None and is_half_again(first, half):
                    return record
        return None

    def _origin(self, store: MessageStore, transaction: OpenTransaction) -> StoredMessage | None:
        return store.records.look_message_by_offset(transaction.origin)

    def _names_origin(self, store: MessageStore, half: StoredMessage) -> bool:
        """Whether the key of a half message does not tell which one it is: it has none, or others have it, too."""
        key, real = unique_key(half), real_queue(half)
        return not key or real is None or len(store.transactions.open_with_key(key, real[0])) > 1

    def _has_ended_so(self, store: MessageStore, prepared_offset: int, state: int) -> bool:
        """Whether it is certain that the transaction ended in this way.

        The table says "rolled back", too, of a half message that was stored again.
        """
        noted = self._ended.state(self._ended.successor(prepared_offset))
        if noted is not None:
            return noted == state
        return state == TRANSACTION_COMMIT_TYPE and store.transactions.state_at(prepared_offset) == state

    def _put_op(self, store: MessageStore, half: StoredMessage) -> PendingPut:
        pending = store.puts.async_put_message(op_message(half, self._clients.store_host(), self._wall_clock.now_ms()))
        if pending.append is None:
            assert pending.result is not None
            _log.warning("no op message for the half message at %d: %s", half.physical_offset, pending.result.reason)
        return pending

    # --- what the check does ----------------------------------------------------------------------------------------

    def store_again(self, store: MessageStore, half: StoredMessage) -> Asked | PendingPut:
        """Count one more check of a half message; the put that was refused, if the store takes none now.

        RocketMQ is told by its key that a half message was stored again; an op message says so of one without.
        """
        times, names_origin = HalfMessage.of(half).times_asked_next, self._names_origin(store, half)
        again = half_message_again(half, times, names_origin=names_origin)
        pending = store.puts.async_put_message(again)
        if pending.append is None:
            return pending
        self.ended_in(store).note(
            half.physical_offset, pending.append.offset, TRANSACTION_ROLLBACK_TYPE, pending.append.offset
        )
        if not unique_key(half):
            self._put_op(store, half)
        self.counts["asked"] += 1
        return Asked(attrs.evolve(half, properties=again.properties), pending.append)

    def give_up(self, store: MessageStore, half: StoredMessage) -> PendingPut:
        """Keep a half message for an operator, and end its transaction; if the store takes it."""
        given_up = given_up_message(half, names_origin=self._names_origin(store, half))
        pending = store.puts.async_put_message(given_up)
        if pending.append is not None:
            self.ended_in(store).note(half.physical_offset, pending.append.offset, TRANSACTION_ROLLBACK_TYPE)
            if is_of_3(half):
                store.puts.async_put_message(rolled_back_message(half))
            else:
                self._put_op(store, half)
            self.counts["given_up"] += 1
        return pending

    def resume(self, store: MessageStore, offset: int) -> PendingPut | None:
        """Make a half message again of one that was given up (RESUME_CHECK_HALF_MESSAGE); None if it is not one.

        Nor is it one while its transaction is open, as it was resumed before.
        """
        given_up = store.records.look_message_by_offset(offset)
        if given_up is None or given_up.topic != CHECK_MAX_TIME_TOPIC:
            return None
        key, real = unique_key(given_up), real_queue(given_up)
        if real is None or (key and store.transactions.open_with_key(key, real[0])):
            return None
        if store.transactions.open_of_origin(transaction_origin(-1, given_up.properties)) is not None:
            return None
        return store.puts.async_put_message(resumed_message(given_up))


def refusal_of(status: PutStatus, reason: str, max_message_size_bytes: int) -> Refusal:
    """RocketMQ's answer to the end of a transaction that the store did not take (sendFinalMessage)."""
    error = ResponseCode.SYSTEM_ERROR
    if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
        refusal = Refusal(error, "Create mapped file failed.")
    elif status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}:
        refusal = Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "The message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {max_message_size_bytes}B, msg properties length limit 32KB.",
        )
    elif status is PutStatus.SERVICE_NOT_AVAILABLE:
        refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    elif status is PutStatus.OS_PAGECACHE_BUSY:
        refusal = Refusal(error, "OS page cache busy, please try another machine")
    elif status is PutStatus.UNKNOWN_ERROR:
        refusal = Refusal(error, "UNKNOWN_ERROR")
    else:
        refusal = Refusal(error, "UNKNOWN_ERROR DEFAULT")
    return Refusal(refusal.code, f"{refusal.remark} {reason}".rstrip())
