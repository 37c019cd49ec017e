"""Asks producers how their transactions ended (TransactionalMessageCheckService), and gives up what nobody ends.

A round goes over the open transactions of the store's table, in the log's order; RocketMQ's reads its half and op
queues. What each needs, and how far the two queues are done with, `protocols/transaction_check.py` decides.
"""

from __future__ import annotations

import itertools
import logging
import math

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.broker.transactional_message_service import Asked, TransactionalMessageService
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.consumer_groups import ProducerGroups
from rmq_actors.protocols.send_rules import MissingTopic
from rmq_actors.protocols.transaction_check import (
    CheckRules,
    Fate,
    HalfMessage,
    first_undone,
    half_offset,
    is_op_done,
)
from rmq_actors.protocols.transactional_messages import (
    PROPERTY_PRODUCER_GROUP,
    TRANS_GROUP,
    asked_message,
    is_of_3,
    real_queue,
    unique_key,
)
from rmq_actors.remoting.connection import RemotingConnection, RemotingError
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.store.dispatch.open_transaction import OpenTransaction, halves_named
from rmq_actors.store.log.commit_log import AppendMessageResult
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.tracing.events.transactions import TransactionCheck
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.transactions import CheckTransactionStateRequestHeader
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.record import BODY_MAX_BYTES, StoredMessage, decode_message, encode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode

_log = logging.getLogger(__name__)

#: Between so many transactions, or reads of the op queue, everything else has its turn.
_AT_ONCE = 32
#: A producer to which more bytes wait to be sent is not asked now.
_OUTGOING_MAX_BYTES = 64 * 1024
#: How long a round waits for a group's producers to take what is under way to them, and how often it looks.
_TAKES_QUESTIONS_S, _LOOK_EVERY_S = 1.0, 0.01
#: How long a round waits for producers of all groups together: others wait for the round.
_WAITS_A_ROUND_S = 10.0
_MS_AN_HOUR = 3_600_000


@attrs.define(eq=False, repr=False)
class TransactionalMessageCheckService(ServiceThread):
    """Works while the broker is a master with an open store; `use_store` tells it."""

    name = "TransactionalMessageCheckService"
    _clients: ClientRequests
    transactions: TransactionalMessageService
    _producers: ProducerGroups[RemotingConnection]
    _wall_clock: WallClock
    _tracer: Tracer
    _store: MessageStore | None = attrs.field(default=None, init=False)
    _is_due: bool = attrs.field(default=False, init=False)
    _changed: WakeUp = attrs.field(factory=WakeUp, init=False)
    #: When to look at an open transaction again, by its offset: most need no look in most rounds. By Trio's clock, as a
    #: wall clock that is set back would put all looks off.
    _look_at_s: dict[int, float] = attrs.field(factory=dict, init=False)
    #: Connections that took no questions while this round waited for them; one may be in many groups.
    _stuck: set[RemotingConnection] = attrs.field(factory=set, init=False)
    #: How long this round may still wait for producers.
    _wait_left_s: float = attrs.field(default=0.0, init=False)
    #: Which connection of a group is asked next.
    _turns: itertools.count[int] = attrs.field(factory=itertools.count, init=False)

    def use_store(self, store: MessageStore | None) -> None:
        """Check the transactions of this master's store from now on; None: of none."""
        self._store = store
        self._changed.wakeup()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Check once an interval."""
        task_status.started()
        while True:
            store = self._store
            if store is None:
                await self._changed.wait_for_running(float("inf"))
                continue
            self._look_at_s.clear()
            interval_s = self._clients.config().transaction_check_interval_ms / 1000
            with store.timer.every(interval_s, self._due, self):
                while self._store is store:
                    await self._changed.wait_for_running(float("inf"))
                    if self._is_due and self._store is store:
                        self._is_due = False
                        await self._check(store)

    def _due(self) -> None:
        self._is_due = True
        self._changed.wakeup()

    # --- a round ----------------------------------------------------------------------------------------------------

    async def _check(self, store: MessageStore) -> None:
        """One round. It ends early if the store takes no messages, or is not this broker's to write any more."""
        open_now = list(store.transactions.open_transactions())
        if open_now:
            await self._make_topic(HALF_TOPIC)
        begins = {queue_id: self._begin(store, HALF_TOPIC, queue_id) for queue_id in self._half_queues(store)}
        look_at_s: dict[int, float] = {}
        self._stuck.clear()
        self._wait_left_s = _WAITS_A_ROUND_S
        for number, transaction in enumerate(open_now):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            if self._store is not store:
                return
            offset, half = transaction.physical_offset, transaction.half
            if (half is not None and half[1] < begins.get(half[0], 0)) or not self.transactions.is_open(store, offset):
                continue
            look_at_s[offset] = self._look_at_s.get(offset, -math.inf)
            if trio.current_time() < look_at_s[offset]:
                continue
            try:
                goes_on = await self._look(store, transaction, look_at_s)
            except Exception as error:  # noqa: BLE001 - logged, traced, and looked at again in the next round
                # One that cannot be looked at must not keep the others from being asked about (RocketMQ: #9500).
                _log.exception("the half message at %d cannot be checked", offset)
                self._tracer.emit(
                    TransactionCheck(status=type(error).__name__, offset=offset, check_times=-1, producer_group="")
                )
                goes_on = True
            if not goes_on:
                break
        self._look_at_s = look_at_s
        if self._store is store:
            await self._advance(store)

    async def _look(self, store: MessageStore, transaction: OpenTransaction, look_at_s: dict[int, float]) -> bool:
        """Do what one transaction needs; False if the round cannot go on."""
        record = store.records.look_message_by_offset(transaction.physical_offset)
        if record is None or real_queue(record) is None:
            return True
        half, rules = HalfMessage.of(record), self._rules(store)
        group = record.properties.get(PROPERTY_PRODUCER_GROUP, "")
        connection = await self._connection_soon(group)
        if self._store is not store or not self.transactions.is_open(store, transaction.physical_offset):
            return self._store is store
        now_ms = self._wall_clock.now_ms()
        fate = half.fate(now_ms, rules, somebody_can_be_asked=connection is not None)
        times = 0 if half.check_times is None else half.check_times
        if fate is Fate.WAIT:
            if half.check_times is None and now_ms < half.due_ms(rules) and now_ms >= half.stored_ms:
                look_at_s[transaction.physical_offset] = trio.current_time() + (half.due_ms(rules) - now_ms) / 1000
            return True
        if fate.is_given_up:
            await self._make_topic(CHECK_MAX_TIME_TOPIC)
            if self._store is not store:
                return False
            if not self.transactions.is_open(store, transaction.physical_offset):
                return True
            return self._give_up(store, record, fate, times, group)
        assert connection is not None
        return self._ask(store, record, connection, times, group)

    def _rules(self, store: MessageStore) -> CheckRules:
        config = self._clients.config()
        return CheckRules(
            config.transaction_time_out_ms,
            config.transaction_check_max,
            store.config.file_reserved_time_hours * _MS_AN_HOUR,
        )

    def _give_up(self, store: MessageStore, record: StoredMessage, fate: Fate, times: int, group: str) -> bool:
        pending = self.transactions.give_up(store, record)
        if pending.append is None:
            return self._refused(pending, record, times, group)
        _log.error(
            "the transaction of %s, group %s, topic %s, is given up (%s after %d checks): the message is now %s in %s",
            unique_key(record) or create_message_id(record.store_host, record.physical_offset),
            group,
            record.properties.get("REAL_TOPIC", record.topic),
            fate.value,
            times,
            pending.append.msg_id,
            CHECK_MAX_TIME_TOPIC,
        )
        self._tell(fate.value, record, times, group)
        return True

    def _ask(
        self, store: MessageStore, record: StoredMessage, connection: RemotingConnection, times: int, group: str
    ) -> bool:
        if is_of_3(record):
            placed = AppendMessageResult(
                record.physical_offset,
                record.total_size,
                record.queue_offset,
                record.store_timestamp_ms,
                record.store_host,
            )
            asked: Asked | PendingPut = Asked(record, placed)
        else:
            asked = self.transactions.store_again(store, record)
        if isinstance(asked, PendingPut):
            return self._refused(asked, record, times, group)
        try:
            connection.invoke_oneway(_question(asked))
        except (RemotingError, ValueError) as error:
            _log.warning("group %s: %s was not asked: %s", group, connection.remote_address, error)
        self._tell("asked", record, times + 1, group)
        return True

    def _refused(self, pending: PendingPut, record: StoredMessage, times: int, group: str) -> bool:
        """The store has not taken a message; whether it may take another one."""
        assert pending.result is not None
        status, reason = pending.result.status, pending.result.reason
        _log.warning("the half message at %d stays as it is: %s %s", record.physical_offset, status.value, reason)
        self._tell(status.value.lower(), record, times, group)
        return "ILLEGAL" in status.value or "EXCEEDED" in status.value

    def _tell(self, status: str, record: StoredMessage, times: int, group: str) -> None:
        self._tracer.emit(
            TransactionCheck(
                status=status, offset=record.physical_offset, check_times=times, producer_group=group[:200]
            )
        )

    def _connection(self, group: str) -> RemotingConnection | None:
        """One connection of a producer group, in turn, that takes a question now (getAvailableChannel)."""
        members = [
            each
            for each in self._producers.groups.get(group, ())
            if each.close_reason is None and each.outgoing_bytes <= _OUTGOING_MAX_BYTES
        ]
        return members[next(self._turns) % len(members)] if members else None

    async def _connection_soon(self, group: str) -> RemotingConnection | None:
        """The same, once one takes a question: many may be due at once, and each is asked in the same round.

        Producers that take none for a while are not waited for again in this round, in whichever groups they are.
        """
        connection = self._connection(group)
        if connection is not None or self._wait_left_s <= 0:
            return connection
        if not self._stuck.issuperset(self._producers.groups.get(group, ())):
            began = trio.current_time()
            with trio.move_on_after(min(_TAKES_QUESTIONS_S, self._wait_left_s)):
                while connection is None:
                    await trio.sleep(_LOOK_EVERY_S)
                    connection = self._connection(group)
            self._wait_left_s -= trio.current_time() - began
            if connection is None:
                self._stuck.update(self._producers.groups.get(group, ()))
        return connection

    async def _make_topic(self, topic: str) -> None:
        """Let operators find a topic. Messages go there even if it cannot be made now."""
        try:
            await self._clients.make_topic(MissingTopic(topic, False, 1, 0), "")
        except RpcRefused as error:
            _log.warning("topic %s: %s", topic, error.remark)

    # --- how far the queues are done with ---------------------------------------------------------------------------

    def _half_queues(self, store: MessageStore) -> list[int]:
        queues = (queue for queue in store.files.consume_queues if queue.topic == HALF_TOPIC)
        return sorted(queue.queue_id for queue in queues)

    def _begin(self, store: MessageStore, topic: str, queue_id: int) -> int:
        offsets = store.offsets
        return first_undone(
            self._clients.metadata.consumer_offsets.query_offset(TRANS_GROUP, topic, queue_id),
            offsets.get_min_offset_in_queue(topic, queue_id),
            offsets.get_max_offset_in_queue(topic, queue_id),
        )

    async def _advance(self, store: MessageStore) -> None:
        """Commit the offsets of half and op queues, by which RocketMQ would go on in this store."""
        for queue_id in self._half_queues(store):
            if store.files.reput.is_within_batch:
                return  # the queues know of more messages than the table does
            committed = self._clients.metadata.consumer_offsets.query_offset(TRANS_GROUP, HALF_TOPIC, queue_id)
            halves = [each.half for each in store.transactions.open_transactions() if each.half is not None]
            done_to = half_offset(
                committed,
                store.offsets.get_min_offset_in_queue(HALF_TOPIC, queue_id),
                store.offsets.get_max_offset_in_queue(HALF_TOPIC, queue_id),
                [offset for queue, offset in halves if queue == queue_id],
            )
            self._commit(HALF_TOPIC, queue_id, done_to)
            op_offset = await self._op_offset(store, queue_id, done_to)
            if self._store is not store:
                return
            self._commit(OP_HALF_TOPIC, queue_id, op_offset)

    def _commit(self, topic: str, queue_id: int, offset: int) -> None:
        offsets = self._clients.metadata.consumer_offsets
        if offsets.query_offset(TRANS_GROUP, topic, queue_id) != offset:
            offsets.commit_offset(self.name, TRANS_GROUP, topic, queue_id, offset)

    async def _op_offset(self, store: MessageStore, queue_id: int, half_done_to: int) -> int:
        """The first op message that somebody may still need: one that names a half message which is not done with."""
        offset = self._begin(store, OP_HALF_TOPIC, queue_id)
        if half_done_to == store.offsets.get_max_offset_in_queue(HALF_TOPIC, queue_id):
            return store.offsets.get_max_offset_in_queue(OP_HALF_TOPIC, queue_id)
        while self._store is store:
            found = store.reads.get_message(OP_HALF_TOPIC, queue_id, offset, _AT_ONCE)
            for view in found.messages:
                op = decode_message(view)
                if not is_op_done(halves_named(op), half_done_to):
                    return op.queue_offset
            if found.next_begin_offset <= offset:
                break
            offset = found.next_begin_offset
            await trio.lowlevel.checkpoint()
        return offset


def _question(asked: Asked) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE about a half message, which is its body, under the real topic."""
    record, placed = asked
    key = unique_key(record)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=placed.queue_offset,
        commit_log_offset=placed.offset,
        msg_id=key,
        transaction_id=key,
        offset_msg_id=placed.msg_id,
    )
    encoded = encode_message(asked_message(record), max_message_size_bytes=BODY_MAX_BYTES)
    encoded.place(
        queue_offset=placed.queue_offset,
        physical_offset=placed.offset,
        store_timestamp_ms=placed.store_timestamp_ms,
    )
    return RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, encode_header(header), body=bytes(encoded.data))
