"""Gives messages to consumers (PullMessageProcessor): PULL_MESSAGE, held while there is nothing to give."""

from __future__ import annotations

import logging

import attrs
import trio

from rmq_actors.broker.broker_protection_service import BrokerProtectionService
from rmq_actors.broker.client_requests import ClientRequests, QuotaRefused, refused
from rmq_actors.broker.pull_answer import MASTER_ID, Puller, pull_answer
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.broker.subscription import message_filter
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.protocols.consumer_groups import ConsumerGroups
from rmq_actors.protocols.filter_api import build_subscription, is_tag_type
from rmq_actors.protocols.offset_moved_event import OffsetMovedEvents, offset_moved_message
from rmq_actors.protocols.send_rules import FAQ, PERM_READ, Refusal, check_lengths
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool, answer_failure
from rmq_actors.store.read.get_message import GetMessageResult, GetMessageStatus, MessageFilter
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.heartbeat import MessageModel, SubscriptionData
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: As plain numbers: `in` of an enum's flags takes 1 us.
_COMMIT_OFFSET, _SUSPEND = PullSysFlag.COMMIT_OFFSET.value, PullSysFlag.SUSPEND.value
_SUBSCRIPTION = PullSysFlag.SUBSCRIPTION.value


@attrs.define(eq=False, repr=False)
class PullMessageProcessor:
    """Reads and answers in one step, or hands the pull to the `PullRequestHoldService` in the same step.

    Do not yield between the read and the hold: a message that came in between would not be noticed (RocketMQ's #7358).
    """

    _clients: ClientRequests
    _consumers: ConsumerGroups[RemotingConnection]
    _hold_service: PullRequestHoldService
    _protection: BrokerProtectionService
    _pool: RequestPool
    _wall_clock: WallClock
    _tracer: Tracer
    _moved_events: OffsetMovedEvents = attrs.field(factory=OffsetMovedEvents, init=False)

    def register(self, processors: ProcessorTable) -> None:
        """Take the request code."""
        processors.register([RequestCode.PULL_MESSAGE], self._pull)

    def pull_again(self, request: RemotingRequest) -> None:
        """A pull is not held any more: answer it with what there is (executeRequestWhenWakeup)."""
        try:
            response = self._process_late(request, may_hold=False)
            assert response is not None
            request.respond(response)
        except Exception as error:  # noqa: BLE001 - answered, logged, traced
            answer_failure(request, error, self._tracer)

    def _pull(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(PullMessageRequestHeader, request.command)
        if (too_long := check_lengths(header.consumer_group, header.topic)) is not None:
            raise refused(too_long)
        if self._group(header) is None and self._clients.makes_group(header.consumer_group):
            self._pool.submit(request, self._make_then_pull)
            return None
        return self._process(request, header, may_hold=True)

    def _group(self, header: PullMessageRequestHeader) -> SubscriptionGroupConfig | None:
        """The group's settings. A slave makes no groups, but serves groups that it has not copied yet."""
        group = header.consumer_group
        found = self._clients.metadata.subscription_groups.find_subscription_group_config(group)
        if found is None and self._clients.config().is_slave and self._clients.makes_group(group):
            return SubscriptionGroupConfig(group_name=group)
        return found

    async def _make_then_pull(self, request: RemotingRequest) -> RemotingCommand | None:
        header = decode_header(PullMessageRequestHeader, request.command)
        await self._clients.make_group(header.consumer_group)
        return self._process_late(request, may_hold=True)

    def _process_late(self, request: RemotingRequest, *, may_hold: bool) -> RemotingCommand | None:
        """Process a pull whose connection has gone on reading since.

        A peer may have a thousand of them, each good for 256 KiB of answer. If it does not take what is there for it
        already, it is told to pull again: it is not read from until then, so that it holds no more than its share.
        """
        header = decode_header(PullMessageRequestHeader, request.command)
        if not request.connection.is_congested:
            return self._process(request, header, may_hold=may_hold)
        offsets, queue = self._clients.store.offsets, (header.topic, header.queue_id)
        bounds = offsets.get_min_offset_in_queue(*queue), offsets.get_max_offset_in_queue(*queue)
        again = PullMessageResponseHeader(MASTER_ID, header.queue_offset, *bounds)
        remark = "the connection has too many answers to take"
        return request.command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, encode_header(again))

    def _process(
        self, request: RemotingRequest, header: PullMessageRequestHeader, *, may_hold: bool
    ) -> RemotingCommand | None:
        clients, flags, began_s = self._clients, header.sys_flag, trio.current_time()
        group = self._check(request, header)
        store = clients.store
        result = store.reads.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            self._filter(header, flags, group),
        )
        if result.ended_by is not None:
            behind_bytes = result.fall_behind_bytes
            self._protection.pulled(header.consumer_group, header.topic, header.queue_id, behind_bytes)
        config = clients.config()
        corrects = not config.is_slave or config.store.offset_check_in_slave
        puller = Puller(config.is_slave, config.slave_read_enable, corrects)
        answer = pull_answer(result, header.queue_offset, group, puller)
        if may_hold and flags & _COMMIT_OFFSET and not config.is_slave:
            self._commit(request, header)
        if answer.code is ResponseCode.PULL_NOT_FOUND and may_hold and flags & _SUSPEND and self._hold(request, header):
            return None
        if answer.code is ResponseCode.SUCCESS:
            latency_ms = int(1000 * (trio.current_time() - began_s))
            size_bytes = result.buffer_total_size
            clients.stats.got(header.consumer_group, header.topic, result.message_count, size_bytes, latency_ms)
        elif answer.code is ResponseCode.PULL_OFFSET_MOVED and not config.is_slave:
            self._note_offset_moved(header, result.next_begin_offset)
        return _response(request, result, answer.code, answer.suggest_which_broker_id)

    def _commit(self, request: RemotingRequest, header: PullMessageRequestHeader) -> None:
        """Take the offset that comes with a pull. The pull goes on where there is no room for it."""
        peer = request.connection.remote_address
        try:
            self._clients.commit_offset(
                peer, header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        except QuotaRefused as error:
            _log.warning("%s: %s", peer, error)

    def _note_offset_moved(self, header: PullMessageRequestHeader, new_offset: int) -> None:
        """Put an OFFSET_MOVED_EVENT. The pull does not wait for it, and is answered though it is refused (traced)."""
        clients, now_s = self._clients, trio.current_time()
        if not self._moved_events.is_to_be_told(header.consumer_group, header.topic, header.queue_id, now_s):
            return
        queue = MessageQueue(broker_name=clients.config().broker_name, queue_id=header.queue_id, topic=header.topic)
        message = offset_moved_message(
            header.consumer_group,
            queue,
            header.queue_offset,
            new_offset,
            clients.store_host(),
            self._wall_clock.now_ms(),
        )
        clients.store.puts.async_put_message(message, waits=False)

    def _hold(self, request: RemotingRequest, header: PullMessageRequestHeader) -> bool:
        config = self._clients.config()
        hold_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_ms
        deadline_s = trio.current_time() + hold_ms / 1000
        return self._hold_service.hold((header.topic, header.queue_id), header.queue_offset, deadline_s, request)

    def _check(self, request: RemotingRequest, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
        """RocketMQ's checks, in its order. Raises `RpcRefused`."""
        config, metadata = self._clients.config(), self._clients.metadata
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_ip1}] pulling message is forbidden"
            raise refused(Refusal(ResponseCode.NO_PERMISSION, remark))
        group = self._group(header)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            raise refused(Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark))
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise refused(Refusal(ResponseCode.NO_PERMISSION, remark))
        topic = metadata.topics.select_topic_config(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise refused(Refusal(ResponseCode.TOPIC_NOT_EXIST, remark))
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise refused(Refusal(ResponseCode.NO_PERMISSION, remark))
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{request.connection.remote_address}]"
            )
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, remark))
        return group

    def _filter(
        self, header: PullMessageRequestHeader, flags: int, group_config: SubscriptionGroupConfig
    ) -> MessageFilter | None:
        """What the subscription in the pull wants, or that of the group's heartbeats. Raises `RpcRefused`.

        None: every message. Reading is cheaper then.
        """
        if flags & _SUBSCRIPTION:
            code, remark = ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            try:
                found = build_subscription(header.topic, header.subscription, header.expression_type)
            except ValueError as error:
                raise refused(Refusal(code, remark)) from error
        else:
            code = ResponseCode.FILTER_DATA_NOT_EXIST
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            found = self._subscription_of_group(header, group_config)
        if not is_tag_type(found.expression_type) and not self._clients.config().enable_property_filter:
            unsupported = f"The broker does not support consumer to filter message by {found.expression_type}"
            raise refused(Refusal(ResponseCode.SYSTEM_ERROR, unsupported))
        try:
            return message_filter(found)
        except ValueError as error:
            raise refused(Refusal(code, f"{remark} {error}")) from error

    def _subscription_of_group(
        self, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        group = self._consumers.groups.get(header.consumer_group)
        not_exist = ResponseCode.SUBSCRIPTION_NOT_EXIST
        if group is None:
            raise refused(Refusal(not_exist, f"the consumer's group info not exist{FAQ}"))
        if not group_config.consume_broadcast_enable and group.message_model is MessageModel.BROADCASTING:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise refused(Refusal(ResponseCode.NO_PERMISSION, remark))
        found = group.subscriptions.get(header.topic)
        if found is None:
            raise refused(Refusal(not_exist, f"the consumer's subscription not exist{FAQ}"))
        if found.sub_version < header.sub_version:
            raise refused(Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"))
        return found


def _response(
    request: RemotingRequest, result: GetMessageResult, code: ResponseCode, suggested: int
) -> RemotingCommand:
    header = PullMessageResponseHeader(suggested, result.next_begin_offset, result.min_offset, result.max_offset)
    body = b"".join(result.messages) if code is ResponseCode.SUCCESS else b""
    status = result.status
    if status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
        status = GetMessageStatus.NO_MESSAGE_IN_QUEUE  # RocketMQ makes a queue that is asked for, and finds it empty
    return request.command.response(code, status.value, encode_header(header), body)
