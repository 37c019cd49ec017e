"""The store's own index of open transactions (TransactionStateService of RocketMQ 3.1.9).

Two rows of files beside the log, made with the first transactional message. tranStateTable has an entry of 24 bytes
for each prepared message, whose state changes in place when the transaction ends. tranRedoLog, a consume queue, has an
entry for each message that begins or ends one, in the log's order. After a crash the table is made again from it.

Both kinds of transaction are followed: those of 3.x, by the system flag alone, and those of 4.3 and later, by half
messages and op messages, which 3.1.9 did not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue, QueueEntry
from rmq_actors.store.dispatch.open_transaction import (
    PROPERTY_PRODUCER_GROUP,
    OpenTransaction,
    group_hash,
    half_of,
    halves_named,
    open_transaction,
    real_topic_of,
    stands_for,
    transaction_origin,
)
from rmq_actors.store.files.formats import (
    QUEUE_ENTRY,
    TRAN_STATE,
    TRAN_STATE_ENTRY,
    TRAN_STATE_POSITION,
    TS_STORE_UNIT_SIZE,
)
from rmq_actors.store.files.layout import CONSUME_QUEUE_DIRECTORY, TRAN_REDO_LOG_DIRECTORY, TRAN_STATE_TABLE_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import (
    DirtyDirectories,
    MappedFileQueue,
    StoreLayoutError,
    mark_directory,
    sync_directories,
)
from rmq_actors.wire.dispatch_request import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PROPERTY_TRANSACTION_ORIGIN,
    PROPERTY_UNIQ_KEY,
    TRANSACTION_TOPICS,
    DispatchRequest,
)
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
    check_record,
    decode_record,
)

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)

PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"

_STATES = {TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE}

TRANSACTION_REDOLOG_TOPIC = "TRANSACTION_REDOLOG_TOPIC_XXXX"
#: Tags codes of tranRedoLog. From 0 on: the message ends the transaction whose prepared message is at that offset.
PREPARED_MESSAGE_TAGS_CODE = -1
#: The message ends those that its body names.
ENDS_SEVERAL_TAGS_CODE = -(1 << 63)
#: Below, down to the one above: the message is prepared, and stands for the one at this number minus the code.
_REPLACES = -2

_UNITS_A_READ = 4096


class _Change(NamedTuple):
    """What one message does: transactions that end, with their state, and one that begins."""

    tags_code: int
    ended: Sequence[OpenTransaction] = ()
    state: int = TRANSACTION_ROLLBACK_TYPE
    begun: OpenTransaction | None = None


def record_reader(commit_log: MappedFileQueue) -> Callable[[int], StoredMessage | None]:
    """A function that reads the record at an offset of the log; None where the log has none."""

    def read_record(physical_offset: int) -> StoredMessage | None:
        mapped_file = commit_log.find(physical_offset)
        if mapped_file is None:
            return None
        view, position = mapped_file.whole(), physical_offset - mapped_file.from_offset
        check = check_record(view, position, physical_offset, check_crc=False)
        return decode_record(view, position, physical_offset, check=check) if check.what == "message" else None

    return read_record


@attrs.define(eq=False, repr=False)
class TransactionStateService:
    """A `CommitLogDispatcher`. What does not take part in a transaction costs it two comparisons.

    `read_record` gives the record at an offset of the log, None where that has none (any more). `is_orderly`: the last
    life ended with everything written; the table is read as it is then. `is_trusted`: what the files hold of records
    before `durable_to` is complete; else (RocketMQ ran on this store) all is made again, from the log's first half
    message on.

    Longer than 300 lines because the table is kept in three ways (from records, from columns, from its own files
    after a stop or a crash), and all three must leave the same rows.
    """

    _disk: Disk
    _read_record: Callable[[int], StoredMessage | None]
    is_orderly: bool = attrs.field(default=False, kw_only=True)
    is_trusted: bool = attrs.field(default=True, kw_only=True)
    #: Whole entries.
    table_file_size_bytes: int = attrs.field(default=2_000_000 * TS_STORE_UNIT_SIZE, kw_only=True)
    redo_log_file_size_bytes: int = attrs.field(default=2_000_000 * QUEUE_ENTRY.size, kw_only=True)
    name: str = attrs.field(default="TransactionStateService", init=False)
    tran_state_table: MappedFileQueue = attrs.field(init=False)
    tran_redo_log: ConsumeQueue = attrs.field(init=False)
    _dirty_directories: DirtyDirectories = attrs.field(factory=dict, init=False)
    #: By the offset of the prepared message, in the log's order.
    _open: dict[int, OpenTransaction] = attrs.field(factory=dict, init=False)
    _by_half: dict[tuple[int, int], OpenTransaction] = attrs.field(factory=dict, init=False)
    #: By key and topic. A producer that sends again repeats its key: several may have the same one, oldest first.
    _by_unique_key: dict[tuple[str, str], list[OpenTransaction]] = attrs.field(factory=dict, init=False)
    _by_origin: dict[int, OpenTransaction] = attrs.field(factory=dict, init=False)
    #: Records before it have been dealt with.
    _taken_to: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._new_files()

    def _new_files(self) -> None:
        self.tran_state_table = MappedFileQueue(
            self._disk,
            TRAN_STATE_TABLE_DIRECTORY,
            self.table_file_size_bytes,
            "tranStateTableMapedFileSize",
            dirty_directories=self._dirty_directories,
        )
        redo_log = MappedFileQueue(
            self._disk,
            f"{TRAN_REDO_LOG_DIRECTORY}/{TRANSACTION_REDOLOG_TOPIC}/0",
            self.redo_log_file_size_bytes,
            "tranRedoLogMapedFileSize",
            dirty_directories=self._dirty_directories,
        )
        self.tran_redo_log = ConsumeQueue(TRANSACTION_REDOLOG_TOPIC, 0, redo_log)

    # --- what is open -----------------------------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._open)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self.tran_state_table.files) + len(self.tran_redo_log.queue.files)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Those without an end, oldest first. Not while records are dispatched."""
        return iter(self._open.values())

    def is_open(self, physical_offset: int) -> bool:
        """Whether the transaction of the prepared message at this offset has no end."""
        return physical_offset in self._open

    def open_with_key(self, unique_key: str, real_topic: str) -> Sequence[OpenTransaction]:
        """The open ones whose messages have this UNIQ_KEY and are for this topic, oldest first."""
        return self._by_unique_key.get((unique_key, real_topic), ())

    def open_of_origin(self, origin: int) -> OpenTransaction | None:
        """The open one that says that it stands for the half message at this offset, or is at this offset."""
        return self._by_origin.get(origin)

    def state_at(self, physical_offset: int) -> int | None:
        """How the transaction of the prepared message at this offset stands; None if the table does not know.

        After a crash it is made again of the open ones alone.
        """
        low, high = self.tran_state_table.min_offset // TS_STORE_UNIT_SIZE, self._next_number
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if entry is None or entry[0] >= physical_offset:
                high = middle
            else:
                low = middle + 1
        entry = self._entry(low)
        return entry[4] if entry is not None and entry[0] == physical_offset else None

    def _entry(self, number: int) -> tuple[int, int, int, int, int] | None:
        position = number * TS_STORE_UNIT_SIZE
        mapped_file = self.tran_state_table.find(position)
        if mapped_file is None or position >= mapped_file.end_offset:
            return None
        entry: tuple[int, int, int, int, int] = TRAN_STATE_ENTRY.unpack_from(
            mapped_file.whole(), position - mapped_file.from_offset
        )
        return entry

    def state(self, number: int) -> int | None:
        """The state of an entry of tranStateTable: 4 prepared, 8 committed, 12 rolled back; None if there is none."""
        entry = self._entry(number)
        return None if entry is None else entry[4]

    # --- recovery ---------------------------------------------------------------------------------------------------

    def recover(self, durable_to: int) -> int:
        """See `CommitLogDispatcher`. Takes time with the number of transactional messages in the log after a crash."""
        self.close()
        self._new_files()
        if not self.is_trusted:
            first = 0 if self._names() else self._first_half_offset()
            self.rebuild()
            return durable_to if first is None else min(first, durable_to)
        self.tran_redo_log.recover(durable_to)
        self._taken_to = max(0, self.tran_redo_log.max_physic_offset)
        if not (self.is_orderly and self._load_table(durable_to)):
            self._recreate_table()
        return durable_to

    def rebuild(self) -> None:
        """Drop every file: the caller dispatches from the log's beginning. Raises `OSError`."""
        self.close()
        self._new_files()
        self._remove_files(TRAN_STATE_TABLE_DIRECTORY)
        self._remove_files(self.tran_redo_log.queue.directory)

    def _names(self) -> list[str]:
        return [*self._disk.list(TRAN_STATE_TABLE_DIRECTORY), *self._disk.list(self.tran_redo_log.queue.directory)]

    def _first_half_offset(self) -> int | None:
        """Where the half queues of RocketMQ begin in the log; None without one: then it has no open transactions."""
        half_topic = f"{CONSUME_QUEUE_DIRECTORY}/{HALF_TOPIC}"
        offsets = []
        for queue_id in self._disk.list(half_topic):
            for name in self._disk.list(f"{half_topic}/{queue_id}")[:1]:
                file = self._disk.open(f"{half_topic}/{queue_id}/{name}", read_only=True)
                first = file.map()[: QUEUE_ENTRY.size]
                offsets.append(QUEUE_ENTRY.unpack(first)[0] if len(first) == QUEUE_ENTRY.size else 0)
                file.close()
        return max(0, min(offsets)) if offsets else None

    def _remove_files(self, directory: str) -> None:
        for name in reversed(self._disk.list(directory)):
            self._disk.remove(f"{directory}/{name}")
            mark_directory(self._dirty_directories, directory)

    def _load_table(self, durable_to: int) -> bool:
        """Take the table as it is; False if it cannot be what an orderly stop leaves."""
        table = self.tran_state_table
        try:
            table.load()
        except StoreLayoutError as error:
            _log.warning("tranStateTable is made again: %s", error)
            return False
        in_redo_log = self._open_in_redo_log()
        prepared = dict[int, int]()
        end = table.min_offset // TS_STORE_UNIT_SIZE
        for number, (offset, size, _, _, state) in self._entries():
            if size <= 0 or not 0 <= offset < durable_to or state not in _STATES:
                break
            if state == TRANSACTION_PREPARED_TYPE:
                prepared[offset] = number
            end = number + 1
        for offset in prepared.keys() ^ in_redo_log.keys():
            if self._read_record(offset) is not None:
                _log.warning("tranStateTable is made again: the message at %d has another state in tranRedoLog", offset)
                return False
        table.truncate(end * TS_STORE_UNIT_SIZE)
        for offset, number in prepared.items():
            self._remember(offset, number)
        return True

    def _entries(self) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
        """The entries of tranStateTable with their numbers, also those after its end."""
        for mapped_file in self.tran_state_table.files:
            first = mapped_file.from_offset // TS_STORE_UNIT_SIZE
            yield from enumerate(TRAN_STATE_ENTRY.iter_unpack(mapped_file.whole()), first)

    def _recreate_table(self) -> None:
        self.tran_state_table.close()
        self._remove_files(TRAN_STATE_TABLE_DIRECTORY)
        for offset in self._open_in_redo_log():
            transaction = self._remember(offset, self._next_number)
            if transaction is not None:
                self._append(transaction)

    def _remember(self, offset: int, number: int) -> OpenTransaction | None:
        """Take up an open transaction by its record; None if the log does not have it any more."""
        record = self._read_record(offset)
        if record is None:
            return None
        transaction = open_transaction(
            offset,
            record.total_size,
            record.store_timestamp_ms,
            record.properties,
            number,
            half_of(record.topic, record.queue_id, record.queue_offset),
            record.topic,
        )
        self._add(transaction)
        return transaction

    def _open_in_redo_log(self) -> dict[int, None]:
        """The offsets of prepared messages that nothing in tranRedoLog ends, in the log's order."""
        found: dict[int, None] = {}
        for offset, _, code in self._redo_entries():
            if code == ENDS_SEVERAL_TAGS_CODE:
                ended = self._halves_named_at(offset)
                for each in list(found):
                    record = self._read_record(each)
                    if record is None:
                        continue
                    half = half_of(record.topic, record.queue_id, record.queue_offset)
                    if half in ended or stands_for(half, record.properties) in ended:
                        del found[each]
            elif code >= 0:
                found.pop(code, None)
            else:
                if code != PREPARED_MESSAGE_TAGS_CODE:
                    found.pop(_REPLACES - code, None)
                found[offset] = None
        return found

    def _redo_entries(self) -> Iterator[tuple[int, int, int]]:
        index = self.tran_redo_log.min_offset_in_queue
        while units := self.tran_redo_log.entries(index, _UNITS_A_READ):
            yield from QUEUE_ENTRY.iter_unpack(units)
            index += len(units) // QUEUE_ENTRY.size

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`."""
        for request in requests:
            if request.sys_flag & TRANSACTION_ROLLBACK_TYPE or request.topic in TRANSACTION_TOPICS:
                self._take(request)

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """See `CommitLogDispatcher`: no record of a batch has a part in a transaction."""

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`: nor has a plain message."""

    def drain(self) -> None:
        """See `CommitLogDispatcher`: nothing lags."""

    def _take(self, request: DispatchRequest) -> None:
        """Write what one message changes: tranRedoLog first. After an error the message may come again."""
        if request.end_offset <= self._taken_to:
            return
        change = self._change(request)
        if change is not None:
            redo_log = self.tran_redo_log
            redo_log.put_message_position_info(
                [
                    QueueEntry(
                        redo_log.max_offset_in_queue, request.commit_log_offset, request.msg_size, change.tags_code
                    )
                ]
            )
            for transaction in change.ended:
                self._write_state(transaction.number, change.state)
            if change.begun is not None:
                self._append(change.begun)
                self._add(change.begun)
            for transaction in change.ended:
                self._forget(transaction)
        self._taken_to = request.end_offset

    def _change(self, request: DispatchRequest) -> _Change | None:
        kind = request.sys_flag & TRANSACTION_ROLLBACK_TYPE
        if request.topic == OP_HALF_TOPIC:
            return self._end_by_op(request)
        if request.topic == HALF_TOPIC or kind == TRANSACTION_PREPARED_TYPE:
            return self._prepare(request)
        if request.topic == CHECK_MAX_TIME_TOPIC:
            return self._end(self._named(request), request, TRANSACTION_ROLLBACK_TYPE)
        return self._end(self._open.get(request.prepared_transaction_offset), request, kind)

    def _prepare(self, request: DispatchRequest) -> _Change:
        begun = open_transaction(
            request.commit_log_offset,
            request.msg_size,
            request.store_timestamp_ms,
            request.properties,
            self._next_number,
            half_of(request.topic, request.queue_id, request.consume_queue_offset),
            request.topic,
        )
        if begun.half is not None and PROPERTY_TRANSACTION_CHECK_TIMES in request.properties:
            before = self._named(request)
            if before is not None:
                return _Change(_REPLACES - before.physical_offset, (before,), begun=begun)
        return _Change(PREPARED_MESSAGE_TAGS_CODE, begun=begun)

    def _end(self, transaction: OpenTransaction | None, request: DispatchRequest, state: int) -> _Change | None:
        group = request.properties.get(PROPERTY_PRODUCER_GROUP)
        if transaction is None or transaction.producer_group_hash != group_hash(group):
            return None
        return _Change(transaction.physical_offset, (transaction,), state)

    def _end_by_op(self, request: DispatchRequest) -> _Change | None:
        named = (self._by_half.get(half) for half in self._halves_named_at(request.commit_log_offset))
        ended = [transaction for transaction in named if transaction is not None]
        if not ended:
            return None
        return _Change(ended[0].physical_offset if len(ended) == 1 else ENDS_SEVERAL_TAGS_CODE, ended)

    def _halves_named_at(self, op_offset: int) -> dict[tuple[int, int], None]:
        """The half messages that an op message names, each once."""
        record = self._read_record(op_offset)
        return {} if record is None else {(record.queue_id, number): None for number in halves_named(record)}

    def _named(self, request: DispatchRequest) -> OpenTransaction | None:
        """The open one that a check's record is about: by the origin that it names, else the oldest one of its key."""
        if PROPERTY_TRANSACTION_ORIGIN in request.properties:
            return self._by_origin.get(transaction_origin(-1, request.properties))
        key = request.properties.get(PROPERTY_UNIQ_KEY, "")
        same_key = self.open_with_key(key, real_topic_of(request.topic, request.properties))
        return same_key[0] if same_key else None

    def _add(self, transaction: OpenTransaction) -> None:
        self._open[transaction.physical_offset] = transaction
        for half in (transaction.half, transaction.stands_for):
            if half is not None:
                self._by_half[half] = transaction
        self._by_origin[transaction.origin] = transaction
        if transaction.unique_key:
            same_key = (transaction.unique_key, transaction.real_topic)
            self._by_unique_key.setdefault(same_key, []).append(transaction)

    def _forget(self, transaction: OpenTransaction) -> None:
        del self._open[transaction.physical_offset]
        # Two may say that they are the same half message: op messages speak of the newer one then.
        for half in (transaction.half, transaction.stands_for):
            if half is not None and self._by_half.get(half) is transaction:
                del self._by_half[half]
        if self._by_origin.get(transaction.origin) is transaction:
            del self._by_origin[transaction.origin]
        if transaction.unique_key:
            same_key = (transaction.unique_key, transaction.real_topic)
            self._by_unique_key[same_key].remove(transaction)
            if not self._by_unique_key[same_key]:
                del self._by_unique_key[same_key]

    # --- the table --------------------------------------------------------------------------------------------------

    @property
    def _next_number(self) -> int:
        return self.tran_state_table.max_offset // TS_STORE_UNIT_SIZE

    def _append(self, transaction: OpenTransaction) -> None:
        table = self.tran_state_table
        if not table.files or not table.files[-1].room_bytes:
            table.add_file(table.max_offset)
        table.files[-1].append(
            TRAN_STATE_ENTRY.pack(
                transaction.physical_offset,
                transaction.size,
                transaction.store_timestamp_s,
                transaction.producer_group_hash,
                TRANSACTION_PREPARED_TYPE,
            )
        )

    def _write_state(self, number: int, state: int) -> None:
        position = number * TS_STORE_UNIT_SIZE
        mapped_file = self.tran_state_table.find(position)
        if mapped_file is not None:
            self.tran_state_table.mark_rewritten(mapped_file)
            mapped_file.file.write_at(position - mapped_file.from_offset + TRAN_STATE_POSITION, TRAN_STATE.pack(state))

    async def flush(self) -> None:
        """See `CommitLogDispatcher`."""
        await self.tran_redo_log.queue.flush_files()
        await self.tran_state_table.flush_files()
        await sync_directories(self._disk, self._dirty_directories)

    def delete_expired(self, log_min_offset: int) -> int:
        """See `CommitLogDispatcher`. A transaction whose prepared message is gone is not open any more."""
        for transaction in list(self._open.values()):
            if transaction.physical_offset >= log_min_offset:
                break
            self._forget(transaction)
        removed = self.tran_redo_log.delete_expired_file(log_min_offset)
        table = self.tran_state_table
        if len(table.files) > 1:
            last = table.files[1].from_offset - TS_STORE_UNIT_SIZE - table.files[0].from_offset
            if TRAN_STATE_ENTRY.unpack_from(table.files[0].whole(), last)[0] < log_min_offset:
                removed += table.remove_first_file()
        return removed

    def close(self) -> None:
        """See `CommitLogDispatcher`."""
        self.tran_state_table.close()
        self.tran_redo_log.close()
        self._open.clear()
        self._by_half.clear()
        self._by_unique_key.clear()
        self._by_origin.clear()
        self._taken_to = 0

    # --- checking ---------------------------------------------------------------------------------------------------

    def verify(self) -> Iterator[str]:
        """What does not fit together: table, redo log and log. Nothing, in a store that is whole."""
        in_redo_log = self._open_in_redo_log()
        for offset in in_redo_log:
            if offset not in self._open and self._read_record(offset) is not None:
                yield f"tranRedoLog: the message at {offset} has no end, but is not open"
        for offset, transaction in self._open.items():
            if offset not in in_redo_log:
                yield f"tranRedoLog: the message at {offset} is open, but has an end or no entry"
            if self.state(transaction.number) != TRANSACTION_PREPARED_TYPE:
                yield f"tranStateTable: entry {transaction.number} of the open message at {offset} is not prepared"
            record = self._read_record(offset)
            if record is None or record.total_size != transaction.size:
                yield f"tranStateTable: entry {transaction.number} names no message of its size at {offset}"
        for number, (offset, _, _, _, state) in self._entries():
            if (
                state == TRANSACTION_PREPARED_TYPE
                and offset not in self._open
                and self._read_record(offset) is not None
            ):
                yield f"tranStateTable: entry {number} is prepared, but the message at {offset} is not open"
