"""How far groups are in the queues of topics, and what operators change about that (a part of AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import attrs
import trio

from rmq_actors.broker.client_housekeeping_service import ClientHousekeepingService
from rmq_actors.broker.client_requests import ClientRequests, refused
from rmq_actors.broker.quotas import QuotaReached
from rmq_actors.broker.request_pools import RequestPools
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.send_rules import Refusal, check_group_length
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from rmq_actors.wire.bodies.clients import GroupList
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
)
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.admin import ViewBrokerStatsDataRequestHeader
from rmq_actors.wire.headers.clients import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rmq_actors.wire.headers.offsets import CloneGroupOffsetRequestHeader, QueryCorrectionOffsetHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_LONG_MAX = 2**63 - 1


@attrs.frozen(eq=False)
class ConsumeStatsProcessor:
    """What goes over all queues of some topics waits its turn in a pool, and lets others run after each topic."""

    _clients: ClientRequests
    _housekeeping: ClientHousekeepingService
    _pools: RequestPools
    _wall_clock: WallClock

    def register(self, processors: ProcessorTable) -> None:
        """Take the request codes."""
        for code, process in (
            (RequestCode.GET_CONSUME_STATS, self._get_consume_stats),
            (RequestCode.GET_BROKER_CONSUME_STATS, self._get_broker_consume_stats),
            (RequestCode.QUERY_CONSUME_TIME_SPAN, self._query_consume_time_span),
        ):
            processors.register_pooled([code], process, self._pools.query)
        processors.register([RequestCode.VIEW_BROKER_STATS_DATA], self._view_broker_stats_data)
        processors.register([RequestCode.QUERY_TOPIC_CONSUME_BY_WHO], self._query_topic_consume_by_who)
        processors.register([RequestCode.QUERY_CORRECTION_OFFSET], self._query_correction_offset)
        processors.register([RequestCode.CLONE_GROUP_OFFSET], self._clone_group_offset)

    def _view_broker_stats_data(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(ViewBrokerStatsDataRequestHeader, request.command)
        item = self._clients.stats.stats.find(header.stats_name, header.stats_key)
        if item is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        minute, hour, day = (
            BrokerStatsItem(avgpt=each.avgpt, sum=each.sum, tps=each.tps) for each in (item.minute, item.hour, item.day)
        )
        body = encode_body(BrokerStatsData(stats_day=day, stats_hour=hour, stats_minute=minute))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    # --- progress -----------------------------------------------------------------------------------------------------

    async def _get_consume_stats(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetConsumeStatsRequestHeader, request.command)
        group, topic = header.consumer_group, (header.topic or "").strip()
        topics = [topic] if topic else self._clients.metadata.consumer_offsets.topics_of(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for config in self._consumed(group, topics):
            table |= self._progress(group, config.topic_name, config.read_queue_nums)
            tps += self._clients.stats.tps_group_get_nums(group, config.topic_name)
            await trio.lowlevel.checkpoint()
        body = encode_body(ConsumeStats(consume_tps=tps, offset_table=table))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    async def _get_broker_consume_stats(self, request: RemotingRequest) -> RemotingCommand:
        is_order = decode_header(GetConsumeStatsInBrokerHeader, request.command).is_order
        metadata, stats, total = self._clients.metadata, [], 0
        for group in list(metadata.subscription_groups.wrapper().subscription_group_table):
            of_group = []
            for config in self._consumed(group, metadata.consumer_offsets.topics_of(group)):
                if is_order and not config.order:
                    continue
                table = self._progress(group, config.topic_name, config.write_queue_nums)
                total += sum(each.broker_offset - each.consumer_offset for each in table.values())
                tps = self._clients.stats.tps_group_get_nums(group, config.topic_name)
                of_group.append(ConsumeStats(consume_tps=tps, offset_table=table))
                await trio.lowlevel.checkpoint()
            stats.append({group: of_group})
        address = self._clients.store_host()
        body = ConsumeStatsList(broker_addr=address, consume_stats_list=stats, total_diff=total)
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(body))

    def _consumed(self, group: str, topics: Collection[str]) -> Iterator[TopicConfig]:
        """Those that there are, and that the group's members, if there are any, still subscribe."""
        found = self._housekeeping.consumers.groups.get(group)
        for topic in topics:
            config = self._clients.metadata.topics.select_topic_config(topic)
            if config is not None and (found is None or not found.subscriptions or topic in found.subscriptions):
                yield config

    def _progress(self, group: str, topic: str, queue_nums: int) -> dict[MessageQueue, OffsetWrapper]:
        broker_name, offsets = self._clients.config().broker_name, self._clients.store.offsets
        committed = self._clients.metadata.consumer_offsets
        table = {}
        for queue_id in range(queue_nums):
            consumed = max(0, committed.query_offset(group, topic, queue_id))
            last_ms = offsets.get_message_store_timestamp(topic, queue_id, consumed - 1) if consumed else 0
            table[MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)] = OffsetWrapper(
                broker_offset=offsets.get_max_offset_in_queue(topic, queue_id),
                consumer_offset=consumed,
                last_timestamp=max(0, last_ms),
            )
        return table

    async def _query_consume_time_span(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(QueryConsumeTimeSpanRequestHeader, request.command)
        topic, group = header.topic, header.group
        config = self._clients.metadata.topics.select_topic_config(topic)
        if config is None:
            raise refused(Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist"))
        spans = [self._time_span(group, topic, queue_id) for queue_id in range(config.write_queue_nums)]
        body = encode_body(QueryConsumeTimeSpanBody(consume_time_span_set=spans))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        offsets = self._clients.store.offsets
        consumed = self._clients.metadata.consumer_offsets.query_offset(group, topic, queue_id)
        end = offsets.get_max_offset_in_queue(topic, queue_id)
        first_ms = offsets.get_earliest_message_time(topic, queue_id)
        consumed_ms, delay_ms = first_ms, 0
        if consumed > 0:
            consumed_ms = offsets.get_message_store_timestamp(topic, queue_id, consumed - 1)
        if max(0, consumed) < end:
            # A group that has consumed nothing waits since the first message that is there.
            next_ms = offsets.get_message_store_timestamp(topic, queue_id, consumed) if consumed >= 0 else first_ms
            delay_ms = self._wall_clock.now_ms() - next_ms
        return QueueTimeSpan(
            message_queue=MessageQueue(broker_name=self._clients.config().broker_name, queue_id=queue_id, topic=topic),
            min_time_stamp=first_ms,
            max_time_stamp=offsets.get_message_store_timestamp(topic, queue_id, end - 1),
            consume_time_stamp=consumed_ms,
            delay_time=delay_ms,
        )

    def _query_topic_consume_by_who(self, request: RemotingRequest) -> RemotingCommand:
        topic = decode_header(QueryTopicConsumeByWhoRequestHeader, request.command).topic
        online = (name for name, group in self._housekeeping.consumers.groups.items() if topic in group.subscriptions)
        groups = dict.fromkeys([*online, *self._clients.metadata.consumer_offsets.groups_of(topic)])
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(GroupList(group_list=list(groups))))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _query_correction_offset(self, request: RemotingRequest) -> RemotingCommand:
        """The least offset of all groups but `filterGroups`, by queue; the greatest number where another group is less.

        RocketMQ deletes the offsets of `filterGroups` for good (#10987), and compares with nobody.
        """
        header = decode_header(QueryCorrectionOffsetHeader, request.command)
        committed, offsets = self._clients.metadata.consumer_offsets, self._clients.store.offsets
        passed_over = {*(header.filter_groups or "").split(",")}
        least: dict[int, int] = {}
        for group in committed.groups_of(header.topic):
            if group not in passed_over:
                for queue_id, offset in committed.offsets_of(group, header.topic).items():
                    if offset >= offsets.get_min_offset_in_queue(header.topic, queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in committed.offsets_of(header.compare_group, header.topic).items():
            if least.get(queue_id, 0) > offset:
                least[queue_id] = _LONG_MAX
        body = encode_body(QueryCorrectionOffsetBody(correction_offsets=least))
        return request.command.response(ResponseCode.SUCCESS, body=body)

    def _clone_group_offset(self, request: RemotingRequest) -> RemotingCommand:
        """RocketMQ clones nothing if no topic is named."""
        header = decode_header(CloneGroupOffsetRequestHeader, request.command)
        if (too_long := check_group_length(header.dest_group)) is not None:
            raise refused(too_long)
        source, topic = header.src_group, (header.topic or "").strip()
        committed = self._clients.metadata.consumer_offsets
        topics = [topic] if topic else committed.topics_of(source)
        if header.offline:
            select = self._clients.metadata.topics.select_topic_config
            cloned = [each for each in topics if select(each) is not None]
        else:
            cloned = [config.topic_name for config in self._consumed(source, topics)]
        room, target = self._clients.config().quotas.offsets, header.dest_group
        for each in cloned:
            try:
                committed.check_room(room, target, each, committed.offsets_of(source, each))
            except QuotaReached as error:
                raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"offsets in {each} are not cloned: {error}") from error
            committed.clone_offset(source, header.dest_group, each)
        return request.command.response(ResponseCode.SUCCESS)
