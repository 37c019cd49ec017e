"""What an operator's program does with a cluster (DefaultMQAdminExt): topics, groups, offsets, and single messages.

A change goes to every master that it concerns, one after the other. If one refuses, the error names it, and those
before it have the change: make the call again once that broker can take it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

import attrs
import trio

from rmq_actors.client.client_error import (
    BadAnswer,
    BrokerRefused,
    BrokerUnreachable,
    ClientTimeout,
    MessageRefused,
    NoRoute,
)
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.requests import deadline_after
from rmq_actors.client.topic_routes import DEFAULT_TOPIC
from rmq_actors.protocols.message_checks import check_group
from rmq_actors.protocols.send_rules import check_topic_name
from rmq_actors.protocols.topic_publish_info import MASTER_ID, subscribe_queues
from rmq_actors.settings.argument_checks import checked
from rmq_actors.wire.bodies.clients import GetConsumerListByGroupResponseBody
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.routes import BrokerData, ClusterInfo, TopicList, TopicRouteData
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.body_compression import CompressedBodyError, decompress_body
from rmq_actors.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rmq_actors.wire.headers.codec import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.messages import QueryMessageRequestHeader, ViewMessageRequestHeader
from rmq_actors.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rmq_actors.wire.message_id import MessageIdError, decode_message_id
from rmq_actors.wire.record import BODY_MAX_BYTES, RecordError, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

B = TypeVar("B", bound=RemotingSerializable)
H = TypeVar("H", bound=CommandHeader)

#: A query with this extension field asks for the message with that unique id (MixAll.UNIQUE_MSG_QUERY_FLAG).
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LOOK_EVERY_S = 0.1
_FOR_EVER_MS = 2**63 - 1
_LENGTH_BYTES = 4


@attrs.define(eq=False, repr=False)
class Admin:
    """An administrator's client: see `open_admin`. Each method raises a `ClientError`.

    Every request may take mqClientApiTimeout.
    """

    _instance: MQClientInstance

    # --- the cluster --------------------------------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """Every broker by name, with its addresses, and the names of the brokers of each cluster."""
        return self._body(ClusterInfo, await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def topics(self) -> list[str]:
        """The names of all topics, in their order, brokers' own topics among them."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return sorted(self._body(TopicList, await self._ask_name_server(code)).topic_list)

    @checked
    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic is, as the name servers say now. Raises `NoRoute`."""
        routes, deadline_s = self._instance.routes, self._deadline()
        await routes.update(topic, deadline_s)
        return await routes.route(topic, deadline_s)

    # --- topics -------------------------------------------------------------------------------------------------------

    @checked
    async def create_topic(self, config: TopicConfig, *, cluster: str | None = None) -> None:
        """Make a topic, or change one, at every master of a cluster; of all clusters by default.

        It returns when a name server has heard of it from each of them. `ClientTimeout`: it is made, and none has yet.
        """
        refusal = check_topic_name(config.topic_name)
        if refusal is not None:
            raise MessageRefused(refusal.remark)
        header = CreateTopicRequestHeader(
            config.topic_name,
            DEFAULT_TOPIC,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_filter_type.value,
            config.topic_sys_flag,
            config.order,
        )
        addresses = await self._masters(cluster)
        for address in addresses:
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await self._wait_until_routed(config.topic_name, set(addresses))

    async def _wait_until_routed(self, topic: str, addresses: AbstractSet[str]) -> None:
        with trio.move_on_at(self._deadline()):
            while True:
                with contextlib.suppress(NoRoute):
                    route = await self.route(topic)
                    if addresses <= set(_masters_of(route).values()):
                        return
                await trio.sleep(_LOOK_EVERY_S)
        raise ClientTimeout(f"topic {topic}: it is made, and the name servers do not name all its brokers yet")

    @checked
    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Remove a topic with its messages from every master of a cluster, and from the name servers' routes."""
        for address in await self._masters(cluster):
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
        header = DeleteTopicFromNamesrvRequestHeader(topic)
        for address in self._instance.config.name_servers:
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    @checked
    async def topic_status(self, topic: str) -> Mapping[MessageQueue, TopicOffset]:
        """The bounds of each queue of a topic, and when its last message was stored (ms)."""
        found = dict[MessageQueue, TopicOffset]()
        for address in _addresses(await self.route(topic)):
            header = GetTopicStatsInfoRequestHeader(topic)
            answer = await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            found.update(self._body(TopicStatsTable, answer).offset_table)
        return found

    # --- consumer groups ----------------------------------------------------------------------------------------------

    @checked
    async def create_group(self, config: SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Make a consumer group, or change one, at every master of a cluster; of all clusters by default."""
        why = check_group(config.group_name)
        if why is not None:
            raise MessageRefused(why)
        for address in await self._masters(cluster):
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config))

    @checked
    async def delete_group(self, group: str, *, remove_offsets: bool = False, cluster: str | None = None) -> None:
        """Remove a consumer group from every master of a cluster, with its offsets if that is wanted."""
        header = DeleteSubscriptionGroupRequestHeader(group, remove_offsets)
        for address in await self._masters(cluster):
            await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    @checked
    async def groups(self, *, cluster: str | None = None) -> Mapping[str, SubscriptionGroupConfig]:
        """The consumer groups of all masters, by name."""
        found = dict[str, SubscriptionGroupConfig]()
        for address in await self._masters(cluster):
            answer = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            found.update(self._body(SubscriptionGroupWrapper, answer).subscription_group_table)
        return found

    # --- offsets ------------------------------------------------------------------------------------------------------

    @checked
    async def consume_stats(self, group: str, topic: str) -> Mapping[MessageQueue, OffsetWrapper]:
        """How far a group is in each queue of a topic, and where the queue ends."""
        found = dict[MessageQueue, OffsetWrapper]()
        for address in _addresses(await self.route(topic)):
            header = GetConsumeStatsRequestHeader(group, topic)
            answer = await self._ask(address, RequestCode.GET_CONSUME_STATS, header)
            found.update(self._body(ConsumeStats, answer).offset_table)
        return found

    @checked
    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first message of a queue that a group has not consumed; None if the broker knows of none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        try:
            answer = await self._ask(await self._master_of(queue), RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return self._header(QueryConsumerOffsetResponseHeader, answer).offset

    @checked
    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Let a group go on at `offset` of a queue. Consumers that run overwrite it: stop them first."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        await self._ask(await self._master_of(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header)

    @checked
    async def reset_offset_by_timestamp(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Let a group go on at the messages stored at a time (ms since the epoch) or later; the new offsets.

        Consumers of the group that run are told by their brokers. Without `force` no queue goes forward. Raises
        `MessageRefused` for a name that no group can have.
        """
        why = check_group(group)
        if why is not None:
            raise MessageRefused(why)
        route, found = await self.route(topic), dict[MessageQueue, int]()
        for name, address in _masters_of(route).items():
            queues = [queue for queue in subscribe_queues(topic, route) if queue.broker_name == name]
            # Consumers that are there must be told, or they go on with what they have; a broker tells no others.
            is_told = await self._has_consumers(address, group)
            if is_told:
                header = ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
                await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            for queue in queues:
                if is_told:
                    found[queue] = await self.search_offset(queue, timestamp_ms)
                else:
                    found[queue] = await self._reset_offset(group, queue, timestamp_ms, force=force)
        return found

    @checked
    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The number of the first message of a queue that was stored at a time (ms) or later."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        answer = await self._ask(await self._master_of(queue), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return self._header(SearchOffsetResponseHeader, answer).offset

    @checked
    async def max_offset(self, queue: MessageQueue) -> int:
        """The number that the next message of a queue gets."""
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._ask(await self._master_of(queue), RequestCode.GET_MAX_OFFSET, header)
        return self._header(GetMaxOffsetResponseHeader, answer).offset

    @checked
    async def min_offset(self, queue: MessageQueue) -> int:
        """The number of the first message of a queue that is still there."""
        header = GetMinOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._ask(await self._master_of(queue), RequestCode.GET_MIN_OFFSET, header)
        return self._header(GetMinOffsetResponseHeader, answer).offset

    # --- messages -----------------------------------------------------------------------------------------------------

    @checked
    async def message_by_id(self, offset_msg_id: str) -> StoredMessage:
        """The message with an id that a broker gave, `SendResult.offset_msg_id`. `MessageRefused` for other text."""
        try:
            address, offset = decode_message_id(offset_msg_id)
        except MessageIdError as error:
            raise MessageRefused(str(error)) from error
        answer = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        (message,) = _messages(answer.body, at_most=1)
        return message

    @checked
    async def messages_by_key(
        self, topic: str, key: str, *, max_num: int = 64, begin_ms: int = 0, end_ms: int = _FOR_EVER_MS
    ) -> Sequence[StoredMessage]:
        """Messages of a topic with one of their KEYS, stored between two times; at most `max_num` of each broker."""
        return await self._query(topic, key, max_num, begin_ms, end_ms, {})

    @checked
    async def messages_by_unique_id(self, topic: str, msg_id: str) -> Sequence[StoredMessage]:
        """The message with an id that its producer gave (`SendResult.msg_id`): several if it was sent again."""
        return await self._query(topic, msg_id, 32, 0, _FOR_EVER_MS, {_UNIQUE_KEY_QUERY: "true"})

    async def _query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, ext_fields: Mapping[str, str]
    ) -> list[StoredMessage]:
        found = list[StoredMessage]()
        header = QueryMessageRequestHeader(topic, key, max_num, begin_ms, end_ms)
        for address in _addresses(await self.route(topic)):
            command = RemotingCommand(RequestCode.QUERY_MESSAGE, {**encode_header(header), **ext_fields})
            try:
                answer = await self._instance.requests.invoke(address, command, self._deadline())
            except BrokerRefused as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
            else:
                found += _messages(answer.body, at_most=max_num)
        return found

    # --- who is asked -------------------------------------------------------------------------------------------------

    async def _masters(self, cluster: str | None) -> list[str]:
        """The masters of a cluster, or of all. Raises `NoRoute` if there is none."""
        info = await self.cluster_info()
        names = sorted(info.broker_addr_table) if cluster is None else info.cluster_addr_table.get(cluster, [])
        brokers = [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]
        found = [data.broker_addrs[MASTER_ID] for data in brokers if MASTER_ID in data.broker_addrs]
        if not found:
            raise NoRoute(f"no master of {'any cluster' if cluster is None else f'cluster {cluster}'} is known")
        return found

    async def _master_of(self, queue: MessageQueue) -> str:
        address = _masters_of(await self.route(queue.topic)).get(queue.broker_name)
        if address is None:
            raise BrokerUnreachable(f"topic {queue.topic}: no master of {queue.broker_name} is known")
        return address

    async def _has_consumers(self, address: str, group: str) -> bool:
        header = GetConsumerListByGroupRequestHeader(group)
        try:
            answer = await self._ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        except BrokerRefused:
            return False  # it says so of a group that it does not know
        return bool(self._body(GetConsumerListByGroupResponseBody, answer).consumer_id_list)

    async def _reset_offset(self, group: str, queue: MessageQueue, timestamp_ms: int, *, force: bool) -> int:
        """As the broker would have done it, had consumers been there."""
        offset = await self.search_offset(queue, timestamp_ms)
        if not force:
            present = await self.consumer_offset(group, queue)
            offset = offset if present is None else min(offset, present)
        await self.update_consumer_offset(group, queue, offset)
        return offset

    def _deadline(self) -> float:
        self._instance.check_open()
        return deadline_after(self._instance.config.mq_client_api_timeout_ms)

    async def _ask_name_server(self, code: RequestCode) -> RemotingCommand:
        return await self._instance.routes.ask_name_server(code, deadline_s=self._deadline())

    async def _ask(
        self, address: str, code: RequestCode, header: CommandHeader | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self._instance.requests.request(address, code, header, body, deadline_s=self._deadline())

    @staticmethod
    def _body(body_type: type[B], answer: RemotingCommand) -> B:
        try:
            return decode_body(body_type, answer.body)
        except RemotingCommandError as error:
            raise BadAnswer(f"a {body_type.__name__} cannot be read: {error}") from error

    @staticmethod
    def _header(header_type: type[H], answer: RemotingCommand) -> H:
        try:
            return decode_header(header_type, answer)
        except RemotingCommandError as error:
            raise BadAnswer(str(error)) from error


def _masters_of(route: TopicRouteData) -> dict[str, str]:
    brokers = route.broker_datas
    return {each.broker_name: each.broker_addrs[MASTER_ID] for each in brokers if MASTER_ID in each.broker_addrs}


def _addresses(route: TopicRouteData) -> list[str]:
    """One broker of each name: the master, or a slave if the master is not there."""

    def address(data: BrokerData) -> str:
        return data.broker_addrs[min(data.broker_addrs)]

    return [address(data) for data in route.broker_datas if data.broker_addrs]


def _messages(body: bytes, *, at_most: int) -> list[StoredMessage]:
    """Records, one after the other, with the bodies that producers sent."""
    found, position = list[StoredMessage](), 0
    try:
        while position < len(body) and len(found) < at_most:
            size = int.from_bytes(body[position : position + _LENGTH_BYTES], "big")
            message = decode_message(memoryview(body)[position : position + size])
            plain = decompress_body(message.body, message.sys_flag, BODY_MAX_BYTES)
            found.append(attrs.evolve(message, body=plain))
            position += size
    except (RecordError, CompressedBodyError) as error:
        raise BadAnswer(f"a broker's answer holds a message that cannot be read: {error}") from error
    return found
