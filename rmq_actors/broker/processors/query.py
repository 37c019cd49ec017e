"""Answers from the store: messages by key and by place (QueryMessageProcessor), the bounds of a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from rmq_actors.protocols.plain_access import Permission
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.dispatch_request import (
    PROPERTY_REAL_TOPIC,
    WAITING_TOPICS,
    DispatchRequest,
    read_dispatch_request,
)
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.messages import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmq_actors.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES, HEADER_MAX_LENGTH_BYTES, RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: The field of a QUERY_MESSAGE whose key is the unique key of a message (MixAll.UNIQUE_MSG_QUERY_FLAG).
UNIQUE_MSG_QUERY_FLAG = "_UNIQUE_KEY_QUERY"
_ANSWER_MAX_BYTES = FRAME_MAX_LENGTH_BYTES - HEADER_MAX_LENGTH_BYTES


@attrs.frozen(eq=False)
class QueryMessageProcessor:
    """Messages by a key, a record by its offset in the log, the bounds and times of queues.

    Looking for a key may take long, and waits its turn in `pool`; everything else is answered at once. `open_store` is
    None while there is no store: during a change of role. Then the answer is SERVICE_NOT_AVAILABLE.
    """

    _open_store: Callable[[], MessageStore | None]
    _pool: RequestPool
    #: Raises `RpcRefused` unless the sender of a request has these permissions.
    _authorize: Callable[[RemotingRequest, Mapping[str, Permission]], None]

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        processors.register_pooled([RequestCode.QUERY_MESSAGE], self._query_message, self._pool)
        for code, process in (
            (RequestCode.VIEW_MESSAGE_BY_ID, self._view_message_by_id),
            (RequestCode.GET_MAX_OFFSET, self._get_max_offset),
            (RequestCode.GET_MIN_OFFSET, self._get_min_offset),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self._search_offset_by_timestamp),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, self._get_earliest_msg_storetime),
        ):
            processors.register([code], process)

    def _store(self) -> MessageStore:
        store = self._open_store()
        if store is None:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again")
        return store

    async def _query_message(self, request: RemotingRequest) -> RemotingCommand:
        """The newest messages with the key, oldest first, and no more than one frame holds."""
        header, store = decode_header(QueryMessageRequestHeader, request.command), self._store()
        max_num = header.max_num
        if (request.command.ext_fields or {}).get(UNIQUE_MSG_QUERY_FLAG) == "true":
            max_num = store.config.default_query_max_num
        begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
        try:
            found = await store.query_message(header.topic, header.key, max_num, begin_ms, end_ms)
        except (OSError, ValueError):
            if self._store() is not store:
                raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker has changed its role") from None
            raise
        ext_fields = encode_header(
            QueryMessageResponseHeader(found.index_last_update_timestamp_ms, found.index_last_update_physical_offset)
        )
        body = b"".join(_newest(found.messages, _ANSWER_MAX_BYTES))
        if not body:
            remark = "can not find message, maybe time range not correct"
            return request.command.response(ResponseCode.QUERY_NOT_FOUND, remark, ext_fields)
        return request.command.response(ResponseCode.SUCCESS, None, ext_fields, body)

    def _view_message_by_id(self, request: RemotingRequest) -> RemotingCommand:
        offset = decode_header(ViewMessageRequestHeader, request.command).offset
        records = self._store().records
        record = records.select_one_message_by_offset(offset)
        if record is not None:
            self._authorize_look(request, record, offset)
        else:
            # Slaves ask whether their file ends like their master's. RocketMQ sends the whole blank, which may be long.
            record = records.select_blank_by_offset(offset)
        if record is None:
            return request.command.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.command.response(ResponseCode.SUCCESS, body=bytes(record))

    def _authorize_look(self, request: RemotingRequest, record: memoryview, offset: int) -> None:
        """Whoever may send to the message's topic, or receive from it, may look at the message."""
        found = read_dispatch_request(record, 0, offset, check_crc=False)
        if isinstance(found, DispatchRequest):
            topic = found.topic
            if topic in WAITING_TOPICS:
                topic = found.properties.get(PROPERTY_REAL_TOPIC, topic)
            self._authorize(request, {topic: Permission.PUB | Permission.SUB})

    def _get_max_offset(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetMaxOffsetRequestHeader, request.command)
        offset = self._store().offsets.get_max_offset_in_queue(header.topic, header.queue_id)
        answer = GetMaxOffsetResponseHeader(offset=offset)
        return request.command.response(ResponseCode.SUCCESS, ext_fields=encode_header(answer))

    def _get_min_offset(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetMinOffsetRequestHeader, request.command)
        offset = self._store().offsets.get_min_offset_in_queue(header.topic, header.queue_id)
        answer = GetMinOffsetResponseHeader(offset=offset)
        return request.command.response(ResponseCode.SUCCESS, ext_fields=encode_header(answer))

    def _search_offset_by_timestamp(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(SearchOffsetRequestHeader, request.command)
        offset = self._store().offsets.get_offset_in_queue_by_time(header.topic, header.queue_id, header.timestamp)
        answer = SearchOffsetResponseHeader(offset=offset)
        return request.command.response(ResponseCode.SUCCESS, ext_fields=encode_header(answer))

    def _get_earliest_msg_storetime(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, request.command)
        timestamp_ms = self._store().offsets.get_earliest_message_time(header.topic, header.queue_id)
        answer = GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms)
        return request.command.response(ResponseCode.SUCCESS, ext_fields=encode_header(answer))


def _newest(messages: Sequence[memoryview], max_bytes: int) -> Sequence[memoryview]:
    """The last ones, of at most so many bytes."""
    size_bytes, first = 0, len(messages)
    while first and size_bytes + len(messages[first - 1]) <= max_bytes:
        first -= 1
        size_bytes += len(messages[first])
    return messages[first:]
