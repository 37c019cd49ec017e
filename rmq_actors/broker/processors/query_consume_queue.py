"""Shows operators the entries of a consume queue as they are stored (a part of AdminBrokerProcessor)."""

from __future__ import annotations

import attrs

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.files.formats import QUEUE_ENTRY
from rmq_actors.wire.bodies.broker_stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.fastjson import write_fastjson
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.admin import QueryConsumeQueueRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: More entries than this are not shown at once; RocketMQ shows up to a file of them.
ENTRIES_MAX = 10_000
#: What 4.9 makes of a group that filters by tags: it keeps filter data of SQL92 alone.
_NO_FILTER_DATA = "null"


@attrs.frozen(eq=False)
class QueryConsumeQueueProcessor:
    """Answers at once."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService

    def register(self, processors: ProcessorTable) -> None:
        """Take the request code."""
        processors.register([RequestCode.QUERY_CONSUME_QUEUE], self._query_consume_queue)

    def _query_consume_queue(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(QueryConsumeQueueRequestHeader, request.command)
        topic, queue_id, index = header.topic or "", header.queue_id, header.index
        queue = self._clients.store.files.consume_queues.find(topic, queue_id)
        if queue is None:
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!"))
        subscription, filter_data = self._filter(header.consumer_group, topic)
        entries = queue.entries(index, max(0, min(header.count, ENTRIES_MAX)))
        if not queue.min_offset_in_queue <= index < queue.max_offset_in_queue:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return request.command.response(ResponseCode.SUCCESS, remark)
        body = QueryConsumeQueueResponseBody(
            filter_data=filter_data,
            max_queue_index=queue.max_offset_in_queue,
            min_queue_index=queue.min_offset_in_queue,
            queue_data=[_data(queue, *unit) for unit in QUEUE_ENTRY.iter_unpack(entries)],
            subscription_data=subscription,
        )
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(body))

    def _filter(self, group: str | None, topic: str) -> tuple[SubscriptionData | None, str | None]:
        """What a group subscribes, and what is said of its filter."""
        if group is None:
            return None, None
        found = self._housekeeping.consumers.groups.get(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        return subscription, f"{group}@{topic} is not online!" if subscription is None else _NO_FILTER_DATA


def _data(queue: ConsumeQueue, offset: int, size: int, tags_code: int) -> ConsumeQueueData:
    """An entry; where its tags code is the address of an extension unit, with that unit."""
    extend_data = message = None
    if queue.ext is not None and queue.ext.is_ext_addr(tags_code):
        unit = queue.ext.get(tags_code)
        if unit is None:
            message = f"Cq extend not exist!addr: {tags_code}"
        else:
            extend_data = write_fastjson(
                {"msgStoreTime": unit.msg_store_time_ms, "size": unit.size, "tagsCode": unit.tags_code}
            ).decode()
    return ConsumeQueueData(
        extend_data_json=extend_data, msg=message, physic_offset=offset, physic_size=size, tags_code=tags_code
    )
