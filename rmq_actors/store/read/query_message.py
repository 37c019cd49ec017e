"""Finding messages by where they are, by id, and by key (DefaultMessageStore.lookMessageByOffset, queryMessage)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter

import attrs

from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.read.get_message import ReadableLog
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from rmq_actors.wire.index_key import index_keys
from rmq_actors.wire.message_id import MessageIdError, decode_message_id
from rmq_actors.wire.record import BLANK, RecordCheck, StoredMessage, check_record, decode_record

_TOTAL_SIZE = struct.Struct(">i")


@attrs.frozen
class QueryMessageResult:
    """Records by a key, oldest first, as views of the log; and how far the index has come."""

    messages: Sequence[memoryview]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int

    @property
    def buffer_total_size(self) -> int:
        """How many bytes they are."""
        return sum(map(len, self.messages))


@attrs.define(eq=False, repr=False)
class RecordLookup:
    """Records by their offset in the log. `readable_to`: the offset after the last one that may be seen."""

    _commit_log: ReadableLog
    _readable_to: Callable[[], int]

    def select_one_message_by_offset(self, offset: int, size: int | None = None) -> memoryview | None:
        """The record at `offset`, of `size` bytes if that is given; None if no valid one stands there."""
        found = self._find(offset, size)
        if found is None:
            return None
        view, position, check = found
        return view[position : position + check.size]

    def select_blank_by_offset(self, offset: int) -> memoryview | None:
        """The 8 bytes at `offset` that say that its file is blank from there on; None if there are none.

        They have no checksum: in the middle of a message anybody can have put them there.
        """
        found = self._find(offset, None, what="blank")
        return None if found is None else found[0][found[1] : found[1] + BLANK.size]

    def look_message_by_offset(self, offset: int, size: int | None = None) -> StoredMessage | None:
        """The same, decoded."""
        found = self._find(offset, size)
        if found is None:
            return None
        view, position, check = found
        return decode_record(view, position, offset, check=check)

    def look_message_by_id(self, message_id: str) -> StoredMessage | None:
        """The message with an id that this broker gave (viewMessage); None if it has no such message."""
        try:
            store_host, offset = decode_message_id(message_id)
        except MessageIdError:
            return None
        message = self.look_message_by_offset(offset)
        return message if message is not None and message.store_host == store_host else None

    def dispatch_request(self, offset: int) -> DispatchRequest | None:
        """The record at `offset` as dispatchers see it; its body is not checked."""
        found = self._find(offset, None, check_crc=False)
        if found is None:
            return None
        request = read_dispatch_request(found[0], found[1], offset, check_crc=False)
        return request if isinstance(request, DispatchRequest) else None

    def _find(
        self, offset: int, size: int | None, *, check_crc: bool = True, what: str = "message"
    ) -> tuple[memoryview, int, RecordCheck] | None:
        """The file's bytes, where in them the record begins, and its check."""
        readable_to = self._readable_to()
        if offset + _TOTAL_SIZE.size > readable_to:
            return None
        try:
            view, begin = self._commit_log.file_at(offset)
        except ValueError:
            return None
        position = offset - begin
        check = check_record(view, position, offset, check_crc=check_crc)
        if check.what != what or offset + check.size > readable_to or size not in {None, check.size}:
            return None
        return view, position, check


async def query_message(
    config: MessageStoreConfig,
    index_service: IndexService,
    lookup: RecordLookup,
    topic: str,
    key: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    deleted: DeletedTopics | None = None,
) -> QueryMessageResult:
    """Find at most `max_num` records, the newest, by a key and when they were stored. A checkpoint.

    Each is read, and must have the topic and the key: 4.9 gives out whatever has the same hash, and counts what is
    gone against `max_num`, so that it asks the index up to three times. maxMsgsNumBatch bounds `max_num`. Records of a
    life of the topic that is over, by `deleted`, are not found.
    """

    def has_key(offset: int) -> bool:
        request = lookup.dispatch_request(offset)
        if request is None or request.topic != topic or key not in index_keys(request):
            return False
        return deleted is None or not deleted.hides(topic, request.queue_id, offset)

    max_num = min(max_num, config.max_msgs_num_batch)
    found = await index_service.query_offset(topic, key, max_num, begin_ms, end_ms, is_match=has_key)
    records = [(offset, lookup.select_one_message_by_offset(offset)) for offset in found.physical_offsets]
    return QueryMessageResult(
        [record for _, record in sorted(records, key=itemgetter(0)) if record is not None],
        found.index_last_update_timestamp_ms,
        found.index_last_update_physical_offset,
    )
