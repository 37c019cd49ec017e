"""Answers from the store: a record of the log (a part of QueryMessageProcessor), the bounds of a queue."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.messages import ViewMessageRequestHeader
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
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen(eq=False)
class QueryMessageProcessor:
    """VIEW_MESSAGE_BY_ID: a record by its offset, as it stands in the log. the bounds and times of queues.

    `open_store` is None while there is no store: during a change of role. Then the answer is SERVICE_NOT_AVAILABLE.
    """

    _open_store: Callable[[], MessageStore | None]

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
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

    def _view_message_by_id(self, request: RemotingRequest) -> RemotingCommand:
        offset = decode_header(ViewMessageRequestHeader, request.command).offset
        records = self._store().records
        record = records.select_one_message_by_offset(offset)
        if record is None:
            # Slaves ask whether their file ends like their master's. RocketMQ sends the whole blank, which may be long.
            record = records.select_blank_by_offset(offset)
        if record is None:
            return request.command.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.command.response(ResponseCode.SUCCESS, body=bytes(record))

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
