"""The index of messages by key (IndexService): for queries by key, and by a client's unique message id.

Files of one size, each full before the next is made. Their bytes are RocketMQ's for the same records. Unlike there,
none is given up after a crash, a record's keys are taken once however often it is dispatched, and what the store's
checkpoint speaks of is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.index_file import IndexFile, IndexFileError, IndexKey, index_file_size_bytes
from rmq_actors.store.files.layout import INDEX_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_key_hash, index_keys
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch, Int32Array, Int64Array

_NAME_DIGITS = 17
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, by the wall clock's own offset
#: A query lets others run after so many entries.
_ENTRIES_BETWEEN_CHECKPOINTS = 1000
#: Of so many keys those of further records wait: one record may have thousands.
_KEYS_AT_ONCE = 4096
#: From so many rows on their keys are taken as columns.
_COLUMNS_ROWS_MIN = 64


class QueryOffsetResult(NamedTuple):
    """What the index knows of a key: log offsets, newest first, and how far the index itself has come."""

    physical_offsets: Sequence[int]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


@attrs.define(eq=False, repr=False)
class IndexService:
    """A `CommitLogDispatcher`. With `messageIndexEnable` off it takes nothing more, and still answers.

    `is_orderly`: the last life ended with everything written; nothing is searched for torn pages then. `is_trusted`:
    entries before `durable_to` are known to be durable. RocketMQ's are not: after a crash of it every file is read, and
    goes, with all after it, if anything in it is wrong.

    Longer than 300 lines because recovery after a stop, after a crash and from nothing, dispatch in three shapes,
    cleaning and reading all decide which file is the one that grows.
    """

    _disk: Disk
    _config: MessageStoreConfig
    _wall_clock: WallClock
    is_orderly: bool = attrs.field(default=False, kw_only=True)
    is_trusted: bool = attrs.field(default=True, kw_only=True)
    #: Oldest first.
    files: list[IndexFile] = attrs.field(factory=list, init=False)
    _directory_is_dirty: bool = attrs.field(default=False, init=False)
    #: The greatest name ever met.
    _last_name: str = attrs.field(default="", init=False)
    #: Names of files that recovery gave up: what is built again gets them, so that a second recovery changes nothing.
    _dropped_names: list[str] = attrs.field(factory=list, init=False)
    #: The record of the last entry, and how many entries it has.
    _last_offset: int = attrs.field(default=-1, init=False)
    _last_keys: int = attrs.field(default=0, init=False)
    #: Rows that wait for `drain`.
    _lagging: list[DispatchRequest] = attrs.field(factory=list, init=False)
    name: str = attrs.field(default="IndexService", init=False)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self.files)

    @property
    def newest_begin_timestamp_ms(self) -> int | None:
        """When the first record in the newest file was stored; None without a file."""
        return self.files[-1].begin_timestamp_ms if self.files else None

    # --- recovery ---------------------------------------------------------------------------------------------------

    def recover(self, durable_to: int) -> int:
        """See `CommitLogDispatcher`. Answers less than `durable_to` where the last record's keys may be incomplete.

        A missing newest file is noticed, as the one before it is full; whether others are missing the caller must know.
        """
        self.close()
        self._lagging = []
        names = self._names()
        self._last_name = max(names, default="")
        self._directory_is_dirty = bool(names)
        is_complete = self._load(names, durable_to)
        if self.files and (not self.is_orderly or self.files[-1].end_phy_offset >= durable_to):
            self._cut(durable_to)
            # The last record may lack keys even where nothing was cut: a recovery before this one has, and died then.
            is_complete = False
            if not self.is_trusted:
                self._drop_damaged()
        self._dropped_names = names[len(self.files) :]
        self._remove(self._dropped_names)
        self._count_last_keys()
        if not self._config.message_index_enable or (is_complete and self.is_trusted):
            return durable_to
        return min(durable_to, max(0, self._last_offset))

    def rebuild(self) -> None:
        """Drop every file: the caller dispatches from the log's beginning. Raises `OSError`."""
        self.close()
        self._lagging = []
        self._remove(self._names())
        self._last_offset, self._last_keys = -1, 0

    def _names(self) -> list[str]:
        names = sorted(self._disk.list(INDEX_DIRECTORY))
        for name in names:
            if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
                raise StoreLayoutError(f"{INDEX_DIRECTORY}/{name}: not the name of an index file (17 digits)")
        return names

    def _load(self, names: Sequence[str], durable_to: int) -> bool:
        """Open the files that hold something of before `durable_to`; whether nothing of it is known to be missing."""
        size_bytes = index_file_size_bytes(self._config.max_hash_slot_num, self._config.max_index_num)
        for name in names:
            disk_file = self._disk.open(f"{INDEX_DIRECTORY}/{name}")
            if disk_file.size_bytes not in {0, size_bytes}:
                disk_file.close()
                raise StoreLayoutError(
                    f"{disk_file.path} is {disk_file.size_bytes} bytes long; maxHashSlotNum "
                    f"{self._config.max_hash_slot_num} and maxIndexNum {self._config.max_index_num} make {size_bytes}"
                )
            if not disk_file.size_bytes:  # the crash came between making it and giving it its length
                disk_file.close()
                break
            file = IndexFile(disk_file, self._config.max_hash_slot_num, self._config.max_index_num)
            try:
                file.load(is_durable=self.is_trusted)
            except IndexFileError:
                disk_file.close()
                return False
            if file.index_count == 1 or file.begin_phy_offset >= durable_to:
                disk_file.close()
                break
            self.files.append(file)
        return not self.files or self.files[-1].room > 0

    def _cut(self, durable_to: int) -> None:
        """Take the newest file back to `durable_to`.

        Also where it ends before: a recovery that wrote its last entry again, across two sectors, may have died then.
        """
        file = self.files[-1]
        file.cut(file.last_before(durable_to))

    def _drop_damaged(self) -> None:
        for number, file in enumerate(self.files):
            if next(file.problems(), None) is not None:
                for dropped in self.files[number:]:
                    dropped.file.close()
                del self.files[number:]
                return

    def _remove(self, names: Sequence[str]) -> None:
        """Remove files, newest first: whatever a crash leaves of them is the beginning of the row."""
        for name in reversed(names):
            self._directory_is_dirty = True
            self._disk.remove(f"{INDEX_DIRECTORY}/{name}")

    def _count_last_keys(self) -> None:
        self._last_offset = self.files[-1].end_phy_offset if self.files else -1
        self._last_keys = 0
        for file in reversed(self.files):
            for number in range(file.index_count - 1, 0, -1):
                if file.entry(number)[1] != self._last_offset:
                    return
                self._last_keys += 1

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`."""
        self.drain()
        if self._config.message_index_enable:
            self._take(requests)

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        """See `CommitLogDispatcher`: rows wait, so that their keys are taken many at a time."""
        if self._config.message_index_enable:
            self._lagging += requests

    def drain(self) -> None:
        """See `CommitLogDispatcher`."""
        rows = self._lagging
        if len(rows) >= _COLUMNS_ROWS_MIN:
            # It imports numpy, which takes a while: a broker to which few messages come does without.
            from rmq_actors.store.dispatch.index_columns import keys_of_rows  # noqa: PLC0415

            self._put_columns(*keys_of_rows(rows))
        else:
            self._take(rows)
        self._lagging = []

    def _take(self, requests: Sequence[DispatchRequest]) -> None:
        keys: list[IndexKey] = []
        for request in requests:
            offset = request.commit_log_offset
            if offset < self._last_offset or request.sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE:
                continue
            names = index_keys(request)
            if offset == self._last_offset:
                del names[: self._last_keys]
                self.files[-1].correct_end_timestamp(request.store_timestamp_ms)
            topic, timestamp_ms = request.topic, request.store_timestamp_ms
            keys += [IndexKey(index_key_hash(topic, name), offset, timestamp_ms) for name in names]
            if len(keys) >= _KEYS_AT_ONCE:
                self._put(keys)
                keys = []
        self._put(keys)

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """See `CommitLogDispatcher`."""
        self.drain()
        if not self._config.message_index_enable:
            return
        last, offsets = self._last_offset, batch.commit_log_offsets
        if offsets[0] <= last:
            record = int(offsets.searchsorted(last))
            if record < len(batch) and offsets[record] == last:
                self.files[-1].correct_end_timestamp(int(batch.store_timestamps_ms[record]))
        records = batch.key_records
        self._put_columns(batch.key_hashes, offsets[records], batch.store_timestamps_ms[records])

    def _put_columns(self, key_hashes: Int32Array, physical_offsets: Int64Array, timestamps_ms: Int64Array) -> None:
        """Take keys, in the order of their records, but those that the index has."""
        taken = self._keys_taken(physical_offsets)
        while taken < len(physical_offsets):
            file = self._file_with_room()
            part = slice(taken, taken + file.room)
            offsets = physical_offsets[part]
            file.put_key_columns(key_hashes[part], offsets, timestamps_ms[part])
            taken += len(offsets)
            last = int(offsets[-1])
            self._note_last(last, len(offsets) - int(offsets.searchsorted(last)))

    def _keys_taken(self, physical_offsets: Int64Array) -> int:
        """How many of some keys the index has, given each key's record."""
        last = self._last_offset
        if not len(physical_offsets) or physical_offsets[0] > last:
            return 0
        begin, end = int(physical_offsets.searchsorted(last)), int(physical_offsets.searchsorted(last, "right"))
        return min(begin + self._last_keys, end)

    def _put(self, keys: Sequence[IndexKey]) -> None:
        taken = 0
        while taken < len(keys):
            file = self._file_with_room()
            part = keys[taken : taken + file.room]
            file.put_keys(part)
            taken += len(part)
            last, count = part[-1].physical_offset, 1
            while count < len(part) and part[-1 - count].physical_offset == last:
                count += 1
            self._note_last(last, count)

    def _note_last(self, physical_offset: int, keys: int) -> None:
        """So many keys of the last record were put."""
        self._last_keys = self._last_keys + keys if physical_offset == self._last_offset else keys
        self._last_offset = physical_offset

    def _file_with_room(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and last.room:
            return last
        slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
        self._last_name = self._next_name()
        disk_file = self._disk.open(
            f"{INDEX_DIRECTORY}/{self._last_name}", allocate_bytes=index_file_size_bytes(slots, entries), exclusive=True
        )
        self._directory_is_dirty = True
        file = IndexFile(disk_file, slots, entries)
        if last is not None:
            file.follow(last.end_phy_offset, last.end_timestamp_ms)
        self.files.append(file)
        return file

    def _next_name(self) -> str:
        """yyyyMMddHHmmssSSS of now in the node's zone; greater than every name before, whatever the clock does."""
        if self._dropped_names:
            return self._dropped_names.pop(0)
        now_ms = self._wall_clock.now_ms()
        local = _EPOCH + timedelta(milliseconds=now_ms + 1000 * self._wall_clock.utc_offset_s(now_ms))
        name = f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}"
        return max(name, f"{int(self._last_name or 0) + 1:0{_NAME_DIGITS}d}")

    # --- flush, cleaning --------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """See `CommitLogDispatcher`."""
        for file in tuple(self.files):
            if file.is_dirty:
                await file.sync()
        if self._directory_is_dirty:
            self._directory_is_dirty = False
            try:
                await self._disk.sync_directory(INDEX_DIRECTORY)
                await self._disk.sync_directory("")
            except BaseException:
                self._directory_is_dirty = True
                raise

    def delete_expired(self, log_min_offset: int) -> int:
        """See `CommitLogDispatcher`. The newest file always stays, and one that is being synced until the next call."""
        count = 0
        while len(self.files) > 1 and self.files[0].end_phy_offset < log_min_offset and not self.files[0].is_dirty:
            file = self.files[0].file
            self._disk.remove(file.path)
            self._directory_is_dirty = True
            file.close()
            del self.files[0]
            count += 1
        return count

    def close(self) -> None:
        """See `CommitLogDispatcher`."""
        for file in self.files:
            file.file.close()
        self.files.clear()

    # --- queries ----------------------------------------------------------------------------------------------------

    async def query_offset(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_match: Callable[[int], bool] | None = None,
    ) -> QueryOffsetResult:
        """Find at most `max_num` records by a key and when they were stored (both ends included), newest first.

        Times are those of the index: whole seconds since its file's first record. Other keys may have the same hash,
        and records may be gone: `is_match`, given a log offset, says whether to count it. RocketMQ counts them all.
        A checkpoint. Raises `IndexFileError`.
        """
        await trio.lowlevel.checkpoint()
        newest = self.files[-1] if self.files else None
        if newest is None:
            return QueryOffsetResult((), 0, 0)
        updated = newest.end_timestamp_ms, newest.end_phy_offset
        found: dict[int, None] = {}
        key_hash = index_key_hash(topic, key)
        steps = 0
        for file in reversed(tuple(self.files)):
            if len(found) >= max_num:
                break
            if file.matches_time(begin_ms, end_ms):
                for offset in file.walk(key_hash, begin_ms, end_ms):
                    if offset is not None and offset not in found and (is_match is None or is_match(offset)):
                        found[offset] = None
                        if len(found) >= max_num:
                            break
                    steps += 1
                    if steps % _ENTRIES_BETWEEN_CHECKPOINTS == 0:
                        await trio.lowlevel.checkpoint()
            if file.begin_timestamp_ms < begin_ms:
                break
        return QueryOffsetResult(tuple(found), *updated)
