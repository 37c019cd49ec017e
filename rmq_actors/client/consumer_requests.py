"""What consumers ask of brokers, by queue: pulls, offsets, members, locks, and messages that go back.

Each request finds its broker as RocketMQ's client does. If there is no address, the route is refreshed and the request
is tried once more; then it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import attrs
import trio

from rmq_actors.client.client_error import BadAnswer, BrokerUnreachable, ClientError
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.protocols.broker_choice import FindBrokerResult, PullFromWhichNode, find_broker_address_in_subscribe
from rmq_actors.protocols.filter_api import is_tag_type, takes_all, takes_tags
from rmq_actors.protocols.pull_results import PullStatus, pull_status
from rmq_actors.protocols.topic_publish_info import MASTER_ID
from rmq_actors.wire.bodies.clients import GetConsumerListByGroupResponseBody
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.bodies.message_queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.body_compression import COMPRESSED_FLAG, COMPRESSION_TYPE_BITS, DecompressedBodyTooLong
from rmq_actors.wire.headers.clients import GetConsumerListByGroupRequestHeader
from rmq_actors.wire.headers.codec import CommandHeader, Header, decode_header
from rmq_actors.wire.headers.messages import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from rmq_actors.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.plain_record import cut_plain_record
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.record import BODY_MAX_BYTES, MessageIllegal, RecordError, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_BodyT = TypeVar("_BodyT", bound=RemotingSerializable)

#: The first version of a broker that knows expressions other than tags (V4_1_0_SNAPSHOT).
_SQL92_VERSION = 232
_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
#: What a client calls its own producer, for messages that go back (CLIENT_INNER_PRODUCER_GROUP).
_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
_DEFAULT_TOPIC = "TBW102"
#: How long the decompressed bodies of one answer may be together: a few KiB may become thousands of times as many.
_DECOMPRESSED_MAX_BYTES = 16 * 1024 * 1024
#: What a message says of a body that is still compressed.
_COMPRESSION = COMPRESSED_FLAG | COMPRESSION_TYPE_BITS


@attrs.frozen
class PullResult:
    """What a pull has found, where the next one begins, and the queue's bounds."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[MessageExt] = ()
    #: The queue offset of the last message of the answer that was read, subscribed or not; None if there was none.
    last_offset: int | None = None


@attrs.define(eq=False, repr=False)
class ConsumerRequests:
    """The requests of one consumer. All raise `ClientError`s; `deadline_s` is Trio's time."""

    client: MQClientInstance
    group: str
    nodes: PullFromWhichNode

    # --- finding a broker ---------------------------------------------------------------------------------------------

    def _find(self, broker_name: str, broker_id: int, *, only_this_broker: bool) -> FindBrokerResult | None:
        return find_broker_address_in_subscribe(
            self.client.routes.broker_addresses(broker_name),
            broker_id,
            only_this_broker=only_this_broker,
            versions=self.client.heartbeats.versions,
        )

    async def _broker_to_pull(self, queue: MessageQueue, deadline_s: float) -> FindBrokerResult:
        broker_id = self.nodes.recalculate_pull_from_which_node(queue)
        found = self._find(queue.broker_name, broker_id, only_this_broker=False)
        if found is None:
            await self.client.routes.update(queue.topic, deadline_s)
            broker_id = self.nodes.recalculate_pull_from_which_node(queue)
            found = self._find(queue.broker_name, broker_id, only_this_broker=False)
        if found is None:
            raise BrokerUnreachable(f"the broker {queue.broker_name} is on no route of {queue.topic}")
        return found

    async def _broker_with_offsets(self, queue: MessageQueue, deadline_s: float) -> str:
        """The master; only after its route was refreshed in vain any other."""
        found = self._find(queue.broker_name, MASTER_ID, only_this_broker=True)
        if found is None:
            await self.client.routes.update(queue.topic, deadline_s)
            found = self._find(queue.broker_name, MASTER_ID, only_this_broker=False)
        if found is None:
            raise BrokerUnreachable(f"the broker {queue.broker_name} is on no route of {queue.topic}")
        return found.broker_addr

    async def master(self, topic: str, broker_name: str, deadline_s: float) -> str:
        """The master's address: messages and locks go there alone."""
        address = self.client.routes.master_address(broker_name)
        if address is None:
            await self.client.routes.update(topic, deadline_s)
            address = self.client.routes.master_address(broker_name)
        if address is None:
            raise BrokerUnreachable(f"the broker {broker_name} has no master: no route of {topic} names one")
        return address

    # --- pulls --------------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        *,
        max_msg_nums: int,
        suspend_ms: int,
        deadline_s: float,
        commit_offset: int | None = None,
    ) -> PullResult:
        """Pull once. The broker holds the pull for `suspend_ms` if there is nothing; `commit_offset` rides along.

        A slave is not told what to commit. A long pull ends at `deadline_s`: leave more time than `suspend_ms`.
        """
        broker = await self._broker_to_pull(queue, deadline_s)
        if not is_tag_type(subscription.expression_type) and 0 < broker.broker_version < _SQL92_VERSION:
            raise ClientError(
                f"the broker {queue.broker_name}, version {broker.broker_version}, cannot filter by "
                f"{subscription.expression_type}"
            )
        flags = PullSysFlag.SUBSCRIPTION
        if suspend_ms:
            flags |= PullSysFlag.SUSPEND
        if commit_offset is not None and not broker.slave:
            flags |= PullSysFlag.COMMIT_OFFSET
        header = PullMessageRequestHeader(
            self.group,
            queue.topic,
            queue.queue_id,
            offset,
            max_msg_nums,
            int(flags),
            commit_offset or 0,
            suspend_ms,
            subscription.sub_version,
            subscription.sub_string,
            subscription.expression_type,
        )
        response = await self.client.requests.request(
            broker.broker_addr, RequestCode.PULL_MESSAGE, header, deadline_s=deadline_s, accepted=_PULL_CODES
        )
        return self._pulled(queue, offset, subscription, response)

    def _pulled(
        self, queue: MessageQueue, offset: int, subscription: SubscriptionData, response: RemotingCommand
    ) -> PullResult:
        status = pull_status(response.code)
        assert status is not None
        header = _decode(PullMessageResponseHeader, response)
        self.nodes.update_pull_from_which_node(queue, header.suggest_which_broker_id)
        found, next_begin_offset = list[MessageExt](), header.next_begin_offset
        if status is PullStatus.FOUND:
            found, left_out = decode_messages_within(response.body, queue.broker_name, _DECOMPRESSED_MAX_BYTES)
            if left_out is not None:
                at = left_out.queue_offset
                if left_out.topic == queue.topic and offset < at < next_begin_offset:
                    next_begin_offset = at  # the rest is pulled again
                else:
                    # A record of a light queue has the offset of its topic's own queue: it cannot be asked for by that.
                    found = decode_messages(response.body, queue.broker_name)
        return PullResult(
            status,
            next_begin_offset,
            header.min_offset,
            header.max_offset,
            found if takes_all(subscription) else [each for each in found if takes_tags(subscription, each.tags)],
            found[-1].queue_offset if found else None,
        )

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def query_consumer_offset(self, queue: MessageQueue, deadline_s: float) -> int | None:
        """The group's offset; None if the broker has none."""
        address = await self._broker_with_offsets(queue, deadline_s)
        header = QueryConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id)
        response = await self.client.requests.request(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            deadline_s=deadline_s,
            accepted=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if response.code != ResponseCode.SUCCESS:
            return None
        return _decode(QueryConsumerOffsetResponseHeader, response).offset

    async def update_consumer_offset(self, queue: MessageQueue, offset: int, deadline_s: float) -> None:
        """Have the broker know the group's offset."""
        address = await self._broker_with_offsets(queue, deadline_s)
        header = UpdateConsumerOffsetRequestHeader(self.group, queue.topic, queue.queue_id, offset)
        await self.client.requests.request(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, deadline_s=deadline_s)

    async def max_offset(self, queue: MessageQueue, deadline_s: float) -> int:
        """The offset of the next message that the queue gets."""
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queue_id)
        response = await self._ask_master(queue, RequestCode.GET_MAX_OFFSET, header, deadline_s)
        return _decode(GetMaxOffsetResponseHeader, response).offset

    async def min_offset(self, queue: MessageQueue, deadline_s: float) -> int:
        """The offset of the first message that is still there."""
        header = GetMinOffsetRequestHeader(queue.topic, queue.queue_id)
        response = await self._ask_master(queue, RequestCode.GET_MIN_OFFSET, header, deadline_s)
        return _decode(GetMinOffsetResponseHeader, response).offset

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int, deadline_s: float) -> int:
        """The offset of the first message stored at a time (ms since the epoch) or later."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        response = await self._ask_master(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, deadline_s)
        return _decode(SearchOffsetResponseHeader, response).offset

    async def _ask_master(
        self, queue: MessageQueue, code: RequestCode, header: CommandHeader, deadline_s: float
    ) -> RemotingCommand:
        address = await self.master(queue.topic, queue.broker_name, deadline_s)
        return await self.client.requests.request(address, code, header, deadline_s=deadline_s)

    # --- the group ----------------------------------------------------------------------------------------------------

    async def find_consumer_id_list(self, topic: str, deadline_s: float) -> list[str]:
        """The group's members, as one of the topic's brokers knows them; another one is asked if one is silent."""
        route = await self.client.routes.route(topic, deadline_s)
        header = GetConsumerListByGroupRequestHeader(self.group)
        failure: ClientError = BrokerUnreachable(f"topic {topic}: its route names no broker")
        all_addresses = [data.broker_addrs for data in route.broker_datas if data.broker_addrs]
        for number, addresses in enumerate(all_addresses):
            address, now_s = addresses[min(addresses)], trio.current_time()
            share_s = now_s + (deadline_s - now_s) / (len(all_addresses) - number)  # those after it have theirs
            try:
                response = await self.client.requests.request(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, deadline_s=share_s
                )
            except ClientError as error:
                failure = error
            else:
                return _decode_body(GetConsumerListByGroupResponseBody, response).consumer_id_list
        raise failure

    async def lock_batch_mq(
        self, broker_name: str, queues: Sequence[MessageQueue], deadline_s: float
    ) -> set[MessageQueue]:
        """Lock queues of one broker, or renew locks; those that this client has now."""
        address = await self.master(queues[0].topic, broker_name, deadline_s)
        asked = LockBatchRequestBody(client_id=self.client.client_id, consumer_group=self.group, mq_set=list(queues))
        response = await self.client.requests.request(
            address, RequestCode.LOCK_BATCH_MQ, body=encode_body(asked), deadline_s=deadline_s
        )
        return set(_decode_body(LockBatchResponseBody, response).lock_ok_mq_set)

    async def unlock_batch_mq(self, broker_name: str, queues: Sequence[MessageQueue], deadline_s: float) -> None:
        """Give locks back."""
        address = await self.master(queues[0].topic, broker_name, deadline_s)
        asked = UnlockBatchRequestBody(client_id=self.client.client_id, consumer_group=self.group, mq_set=list(queues))
        await self.client.requests.request(
            address, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(asked), deadline_s=deadline_s
        )

    # --- messages that go back ----------------------------------------------------------------------------------------

    async def send_msg_back(
        self, message: MessageExt, topic: str, delay_level: int, max_reconsume_times: int, deadline_s: float
    ) -> None:
        """Have the broker deliver a message to the group again, later. `topic` is that of the queue it came from."""
        address = await self.master(topic, message.broker_name, deadline_s)
        header = ConsumerSendMsgBackRequestHeader(
            message.physical_offset,
            self.group,
            delay_level,
            message.msg_id,
            message.topic,
            max_reconsume_times=max_reconsume_times,
        )
        await self.client.requests.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, deadline_s=deadline_s)

    async def send_to_retry_topic(
        self,
        topic: str,
        message: MessageExt,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        max_reconsume_times: int,
        deadline_s: float,
    ) -> None:
        """Send a message to the group's topic of retries, as a producer would: to any master that has it."""
        info = await self.client.routes.publish_info(topic, deadline_s)
        queue = info.queues[message.queue_offset % len(info.queues)]
        header = SendMessageRequestHeaderV2(
            producer_group=_INNER_PRODUCER,
            topic=topic,
            default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=message.sys_flag & _COMPRESSION if message.is_compressed else 0,
            born_timestamp=self.client.environment.wall_clock.now_ms(),
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        address = await self.master(topic, queue.broker_name, deadline_s)
        accepted = (
            ResponseCode.SUCCESS,
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        )
        await self.client.requests.request(
            address, RequestCode.SEND_MESSAGE_V2, header, message.body, deadline_s=deadline_s, accepted=accepted
        )


def decode_messages(body: bytes, broker_name: str) -> list[MessageExt]:
    """The messages of an answer. Raises `BadAnswer`."""
    return decode_messages_within(body, broker_name, None)[0]


def decode_messages_within(
    body: bytes, broker_name: str, max_decompressed_bytes: int | None
) -> tuple[list[MessageExt], StoredMessage | None]:
    """The messages of an answer up to the first whose body would make decompressed bodies longer than this together.

    That one's record comes with them; None if there is none. The first body may be longer. Raises `BadAnswer`.
    """
    found, view, at, decompressed_bytes = list[MessageExt](), memoryview(body), 0, 0
    while at < len(body):
        size = int.from_bytes(view[at : at + 4], "big")
        if not 0 < size <= len(body) - at:
            raise BadAnswer(f"the broker {broker_name} gives a record of {size} bytes where {len(body) - at} are left")
        plain = cut_plain_record(body, at, size)
        if plain is not None:
            found.append(MessageExt.of_plain(plain, broker_name))
            at += size
            continue
        max_bytes = BODY_MAX_BYTES
        if found and max_decompressed_bytes is not None:
            max_bytes = max(0, max_decompressed_bytes - decompressed_bytes)
        try:
            stored = decode_message(view[at : at + size])
            message = MessageExt.of(stored, broker_name, max_bytes)
        except DecompressedBodyTooLong:
            return found, stored
        except (RecordError, MessageIllegal) as error:
            raise BadAnswer(f"the broker {broker_name} gives what is not a record: {error}") from error
        if stored.sys_flag & COMPRESSED_FLAG and not message.is_compressed:
            decompressed_bytes += len(message.body)
        found.append(message)
        at += size
    return found, None


def _decode(header_type: type[Header], response: RemotingCommand) -> Header:
    try:
        return decode_header(header_type, response)
    except RemotingCommandError as error:
        raise BadAnswer(f"a broker's answer cannot be read: {error}") from error


def _decode_body(body_type: type[_BodyT], response: RemotingCommand) -> _BodyT:
    try:
        return decode_body(body_type, response.body)
    except RemotingCommandError as error:
        raise BadAnswer(f"a broker's answer cannot be read: {error}") from error
