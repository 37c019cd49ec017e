"""What mqadmin asks a broker about topics, groups and clients, and what it changes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.broker.topic_removal import TopicRemoval
from rmq_actors.protocols.slow_consumers import SlowConsumers
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.lifecycle.clean_services import MAX_MANUAL_DELETE_FILE_TIMES
from rmq_actors.testing.thin_client import ThinClient, subscription
from rmq_actors.wire.bodies.broker_stats import BrokerStatsData, QueryConsumeQueueResponseBody
from rmq_actors.wire.bodies.clients import ConsumerConnection, GroupList, ProducerConnection, ProducerTableInfo
from rmq_actors.wire.bodies.consumer_running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicStatsTable,
)
from rmq_actors.wire.bodies.routes import TopicList
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers import CommandHeader, encode_header
from rmq_actors.wire.headers.admin import QueryConsumeQueueRequestHeader, ViewBrokerStatsDataRequestHeader
from rmq_actors.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rmq_actors.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rmq_actors.wire.record import Message, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_send_and_pull import TIMEOUT_MS, Clients, placed, run
from tests.worlds.name_server_world import CLIENT
from tests.worlds.recording import new_recorder

TOPIC, GROUP = "TopicAdministered", "GroupAdministered"
OK = ResponseCode.SUCCESS
Answer = Callable[[RemotingRequest], RemotingCommand | None]


def new_topic(topic: str = TOPIC, read: int = 2, write: int = 2, perm: int = 6) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(topic, "TBW102", read, write, perm, "SINGLE_TAG")


async def create(client: ThinClient, header: CreateTopicRequestHeader) -> RemotingCommand:
    return await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def commit(client: ThinClient, group: str, queue_id: int, offset: int, topic: str = TOPIC) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == OK


async def fill(client: ThinClient, count: int = 3) -> list[str]:
    """So many messages in queue 0; their ids."""
    assert (await create(client, new_topic())).code == OK
    ids = [placed(await client.send(TOPIC, b"%d" % number)).msg_id for number in range(count)]
    await trio.sleep(0.1)
    return ids


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(broker_name="broker-a", queue_id=queue_id, topic=TOPIC)


@attrs.frozen
class Asked:
    """A client that a broker asks; what it was asked, and its answer to each code."""

    answers: dict[int, Answer]
    requests: list[RemotingCommand] = attrs.field(factory=list)


@contextlib.asynccontextmanager
async def consumer(clients: Clients, asked: Asked, client_id: str = "asked") -> AsyncIterator[ThinClient]:
    own, tracer = clients.servers.nodes[CLIENT], clients.servers.recorder.tracer(CLIENT)
    processors, address = ProcessorTable(tracer), clients.servers.brokers["a-0"].address

    def note(request: RemotingRequest) -> RemotingCommand | None:
        asked.requests.append(request.command)
        answer = asked.answers.get(request.command.code)
        return None if answer is None else answer(request)

    codes = (
        *(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET),
        *(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.GET_CONSUMER_RUNNING_INFO),
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
    processors.register(codes, note)
    async with open_actor_system(client_id, tracer, entropy=own.entropy) as system:
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, processors)
        await system.start(remoting)
        client = ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), client_id, GROUP)
        assert (await client.heartbeat(subscription(TOPIC), producers=["PG"])).code == OK
        asked.requests.clear()
        yield client


# --- topics and groups ------------------------------------------------------------------------------------------------


def test_a_topic_is_made_and_changed_and_name_servers_know_it() -> None:
    async def use(clients: Clients) -> None:
        servers = clients.servers
        async with clients.client() as client:
            for read, perm in ((2, 6), (3, 4)):
                answer = await create(client, new_topic(read=read, perm=perm))
                assert (answer.code, answer.remark) == (OK, "not set any response code")
                await trio.sleep(1)
                assert servers.known("ns-1").queues[TOPIC, "broker-a"] == (read, 2, perm, 0)

    run(use)


@pytest.mark.parametrize(
    ("header", "remark"),
    [
        (new_topic("TBW102"), "The topic[TBW102] is conflict with system topic."),
        (new_topic("DefaultCluster"), "The topic[DefaultCluster] is conflict with system topic."),
        (new_topic("rmq_sys_x"), "The topic[rmq_sys_x] is conflict with system topic."),
        (new_topic(" "), "The specified topic is blank."),
        (new_topic("a b"), "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        (new_topic("x" * 128), "The specified topic is longer than topic max length."),
        (new_topic(read=-1), "readQueueNums is -1: a topic has 0 to 16384 queues"),
        (new_topic(write=2**31 - 1), "writeQueueNums is 2147483647: a topic has 0 to 16384 queues"),
        (new_topic(perm=8), "perm is 8: a permission is 0 to 7"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(header: CreateTopicRequestHeader, remark: str) -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            answer = await create(client, header)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)

    run(use)


def test_a_group_is_made_and_deleted_with_its_offsets() -> None:
    async def use(clients: Clients) -> None:
        metadata = clients.servers.controller("a-0").remoting.metadata  # type: ignore[union-attr]
        find = metadata.subscription_groups.find_subscription_group_config
        async with clients.client() as client:
            config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3, consume_enable=False)
            body = encode_body(config)
            assert (await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == OK
            assert find(GROUP) == config
            for remove, left in ((False, 5), (True, -1)):
                await commit(client, GROUP, 0, 5)
                await commit(client, f"{GROUP}2", 0, 6)
                header = DeleteSubscriptionGroupRequestHeader(GROUP, remove)
                assert (await client.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == OK
                assert find(GROUP) is None
                assert metadata.consumer_offsets.query_offset(GROUP, TOPIC, 0) == left
                assert metadata.consumer_offsets.query_offset(f"{GROUP}2", TOPIC, 0) == 6
            for name in ("", "a@b", "x" * 121):
                body = encode_body(SubscriptionGroupConfig(group_name=name))
                answer = await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "specified group" in (answer.remark or "")

    run(use)


def test_a_slave_changes_no_tables() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(node="a-1") as client:
            body = encode_body(SubscriptionGroupConfig(group_name=GROUP))
            for answer in (
                await create(client, new_topic()),
                await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body),
                await client.request(
                    RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("TOOLS_CONSUMER")
                ),
            ):
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert answer.remark == (
                    "Can't modify topic or subscription group from slave broker, please execute it from master broker."
                )

    run(use, slaves=1)


def test_a_topic_s_queues_are_told_with_their_bounds() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(TOPIC))
            table = decode_body(TopicStatsTable, answer.body).offset_table
            assert {each.queue_id: (said.min_offset, said.max_offset) for each, said in table.items()} == {
                0: (0, 3),
                1: (0, 0),
            }
            assert table[queue(0)].last_update_timestamp > 0 == table[queue(1)].last_update_timestamp
            answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("Nowhere"))
            assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist")
            answer = await client.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            assert {"TBW102", "DefaultCluster", "broker-a"} < {*decode_body(TopicList, answer.body).topic_list}

    run(use)


# --- groups' progress -------------------------------------------------------------------------------------------------


def test_how_far_a_group_is_is_told_for_each_queue() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(group=GROUP) as client:
            await fill(client)
            await commit(client, GROUP, 0, 2)
            await commit(client, GROUP, 0, 1, topic="Gone")
            for topic in (None, TOPIC):
                answer = await client.request(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(GROUP, topic))
                table = decode_body(ConsumeStats, answer.body).offset_table
                said = {each.queue_id: (at.broker_offset, at.consumer_offset) for each, at in table.items()}
                assert said == {0: (3, 2), 1: (0, 0)}
                assert table[queue(0)].last_timestamp > 0
            body = encode_body(SubscriptionGroupConfig(group_name=GROUP))
            await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            answer = await client.request(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(False))
            everything = decode_body(ConsumeStatsList, answer.body)
            (of_group,) = [each[GROUP] for each in everything.consume_stats_list if GROUP in each]
            assert (len(of_group), everything.total_diff) == (1, 1)
            answer = await client.request(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(True))
            assert decode_body(ConsumeStatsList, answer.body).total_diff == 0

            header = QueryConsumeTimeSpanRequestHeader(TOPIC, GROUP)
            answer = await client.request(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            spans = decode_body(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set
            first, empty = spans
            assert first.min_time_stamp <= first.consume_time_stamp <= first.max_time_stamp
            assert first.delay_time > 0 == empty.delay_time
            # Once a member subscribes something else, the topic is not the group's any more.
            assert (await client.heartbeat(subscription("Other"))).code == OK
            answer = await client.request(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(GROUP))
            assert decode_body(ConsumeStats, answer.body).offset_table == {}

    run(use)


def test_the_groups_of_a_topic_are_those_online_and_those_with_offsets() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(group="online") as client:
            await fill(client, 0)
            await client.heartbeat(subscription(TOPIC))
            await commit(client, "online", 0, 0)
            await commit(client, "offline", 0, 0)
            header = QueryTopicConsumeByWhoRequestHeader(TOPIC)
            answer = await client.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            assert decode_body(GroupList, answer.body).group_list == ["online", "offline"]

    run(use)


def test_offsets_are_cloned_and_compared_and_none_is_lost_by_it() -> None:
    async def use(clients: Clients) -> None:
        offsets = clients.servers.controller("a-0").remoting.metadata.consumer_offsets  # type: ignore[union-attr]
        async with clients.client() as client:
            await fill(client)
            await commit(client, "source", 0, 2)
            await commit(client, "target", 1, 9)
            for topic in (None, TOPIC):
                header = CloneGroupOffsetRequestHeader("source", "target", topic)
                assert (await client.request(RequestCode.CLONE_GROUP_OFFSET, header)).code == OK
                assert dict(offsets.offsets_of("target", TOPIC)) == {0: 2}
            await commit(client, "source", 0, 3)
            assert dict(offsets.offsets_of("target", TOPIC)) == {0: 2}
            await commit(client, "least", 0, 1)
            for passed_over, compared, least in (
                ("", "none", 1),
                ("least,x", "none", 2),
                ("least", "least", 2**63 - 1),
            ):
                asked = QueryCorrectionOffsetHeader(compared, TOPIC, passed_over)
                answer = await client.request(RequestCode.QUERY_CORRECTION_OFFSET, asked)
                assert decode_body(QueryCorrectionOffsetBody, answer.body).correction_offsets == {0: least}
            assert offsets.query_offset("least", TOPIC, 0) == 1

    run(use)


# --- clients ----------------------------------------------------------------------------------------------------------


def test_connections_are_told_as_long_as_they_last() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client, 0)
            lists: list[tuple[RequestCode, CommandHeader]] = [
                (RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(GROUP)),
                (RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader("PG")),
            ]
            async with consumer(clients, Asked({})):
                consumers, producers = [await client.request(code, header) for code, header in lists]
                said = decode_body(ConsumerConnection, consumers.body)
                (connection,) = said.connection_set
                assert (connection.client_id, [*said.subscription_table]) == ("asked", [TOPIC])
                assert (connection.client_addr or "").startswith(clients.servers.nodes[CLIENT].address)
                assert decode_body(ProducerConnection, producers.body).connection_set == [connection]
                answer = await client.request(RequestCode.GET_ALL_PRODUCER_INFO)
                ((group, (info,)),) = decode_body(ProducerTableInfo, answer.body).data.items()
                assert (group, info.client_id, info.remote_ip) == ("PG", "asked", f"/{connection.client_addr}")
                clock = clients.servers.nodes["a-0"].wall_clock
                assert 0 <= clock.now_ms() - info.last_update_timestamp < 1000
            await trio.sleep(0.1)
            consumers, producers = [await client.request(code, header) for code, header in lists]
            assert consumers.code == ResponseCode.CONSUMER_NOT_ONLINE
            assert consumers.remark == f"the consumer group[{GROUP}] not online"
            assert producers.body == b'{"connectionSet":[]}'  # nobody has left the group: its connection ended

    run(use)


def test_offsets_are_reset_through_the_members_of_a_group() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client, 4)

            async def reset(timestamp: int, *, force: bool = False, language: str = "JAVA") -> RemotingCommand:
                header = encode_header(ResetOffsetRequestHeader(TOPIC, GROUP, timestamp, force))
                return await client.ask(
                    RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, language=language)
                )

            assert (await reset(-1)).remark == f"THe consumer group <{GROUP}> not exist"
            await commit(client, GROUP, 0, 2)
            await commit(client, GROUP, 1, 0)
            answer = await reset(-1)
            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
            assert answer.remark == (
                f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: -1"
            )
            asked = Asked({})
            async with consumer(clients, asked):
                for timestamp, force, expected in ((0, False, 0), (-1, False, 2), (-1, True, 4), (2**60, True, 3)):
                    answer = await reset(timestamp, force=force)
                    assert answer.code == OK, answer.remark
                    table = decode_body(ResetOffsetBody, answer.body).offset_table
                    assert table == {queue(0): expected, queue(1): 0}
                    await trio.sleep(0.1)
                    told = asked.requests.pop()
                    assert (told.code, told.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
                    assert decode_body(ResetOffsetBody, told.body).offset_table == table
                await reset(-1, language="CPP")
                await trio.sleep(0.1)
                listed = decode_body(ResetOffsetBodyForC, asked.requests.pop().body).offset_table
                assert [(each.queue_id, each.offset) for each in listed] == [(0, 2), (1, 0)]
                assert asked.requests == []

    run(use)


def test_a_client_is_asked_through_the_broker() -> None:
    running = encode_body(ConsumerRunningInfo(properties={"a": "b"}))
    consumed = encode_body(ConsumeMessageDirectlyResult(remark="done"))
    status = encode_body(GetConsumerStatusBody(message_queue_table={queue(0): 2}))
    asked = Asked(
        {
            RequestCode.GET_CONSUMER_RUNNING_INFO: lambda each: each.command.response(OK, body=running),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: lambda each: each.command.response(OK, body=consumed),
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: lambda each: each.command.response(OK, body=status),
        }
    )

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            (msg_id,) = await fill(client, 1)
            info = GetConsumerRunningInfoRequestHeader(GROUP, "asked", True)
            directly = ConsumeMessageDirectlyResultRequestHeader(GROUP, "asked", msg_id)
            async with consumer(clients, asked):
                answer = await client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
                assert (answer.code, answer.body) == (OK, running)
                assert (asked.requests.pop().ext_fields or {})["jstackEnable"] == "true"
                answer = await client.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly)
                assert (answer.code, answer.body) == (OK, consumed)
                told = asked.requests.pop()
                assert (told.ext_fields or {})["brokerName"] == "broker-a"
                assert decode_message(memoryview(told.body)).body == b"0"
                for client_id, members in ((None, {"asked"}), ("asked", {"asked"}), ("other", set())):
                    header = GetConsumerStatusRequestHeader(TOPIC, GROUP, client_id)
                    answer = await client.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
                    assert decode_body(GetConsumerStatusBody, answer.body).consumer_table.keys() == members
                for bad in ("", "no id", f"{msg_id[:16]}{999:016X}"):
                    header_of_nothing = ConsumeMessageDirectlyResultRequestHeader(GROUP, "asked", bad)
                    answer = await client.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header_of_nothing)
                    assert answer.code == ResponseCode.SYSTEM_ERROR
            await trio.sleep(0.1)
            answer = await client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{GROUP}> <asked> not online",
            )
            answer = await client.request(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader(TOPIC, GROUP)
            )
            assert answer.remark == f"No Any Consumer online in the consumer group: [{GROUP}]"

    run(use)


def test_a_client_that_does_not_answer_is_waited_for_10_s_and_holds_up_nobody() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client, consumer(clients, Asked({})):
            header = GetConsumerRunningInfoRequestHeader(GROUP, "asked")
            began = trio.current_time()

            async def ask() -> None:
                answer = await client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
                assert trio.current_time() - began == pytest.approx(10, abs=0.1)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(0.1)
                await fill(client)
                assert trio.current_time() - began < 1

    run(use)


# --- statistics -------------------------------------------------------------------------------------------------------


async def stats_of(client: ThinClient, name: str, key: str) -> BrokerStatsData | str | None:
    answer = await client.request(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(name, key))
    return decode_body(BrokerStatsData, answer.body) if answer.code == OK else answer.remark


def minute_of(data: BrokerStatsData | str | None) -> tuple[int, float]:
    assert isinstance(data, BrokerStatsData)
    assert data.stats_minute is not None
    return data.stats_minute.sum, data.stats_minute.tps


def test_statistics_are_what_clients_have_put_and_got_in_the_last_minute() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(group=GROUP) as client:
            assert await stats_of(client, "TOPIC_PUT_NUMS", TOPIC) == f"The stats <TOPIC_PUT_NUMS> <{TOPIC}> not exist"
            await fill(client, 15)
            await client.heartbeat(subscription(TOPIC))
            assert len((await client.pull(TOPIC, 0)).bodies) == 15
            assert (await client.pull(TOPIC, 15)).code != OK
            await trio.sleep(11)
            sent, tps = minute_of(await stats_of(client, "TOPIC_PUT_NUMS", TOPIC))
            assert (sent, 0.5 < tps < 1.6) == (15, True)
            size, _ = minute_of(await stats_of(client, "TOPIC_PUT_SIZE", TOPIC))
            assert size == minute_of(await stats_of(client, "GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"))[0] > 1500
            got, tps = minute_of(await stats_of(client, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"))
            assert got == 15
            assert minute_of(await stats_of(client, "BROKER_PUT_NUMS", "DefaultCluster"))[0] >= 15
            answer = await client.request(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(GROUP, TOPIC))
            assert decode_body(ConsumeStats, answer.body).consume_tps == tps > 0
            await trio.sleep(80)
            assert minute_of(await stats_of(client, "TOPIC_PUT_NUMS", TOPIC)) == (0, 0.0)
            await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
            assert isinstance(await stats_of(client, "TOPIC_PUT_NUMS", TOPIC), str)

    run(use)


def test_what_a_deleted_topic_was_sent_last_is_in_no_statistics() -> None:
    """Puts are counted when statistics are sampled, each 10 s: those of a deleted topic never are."""

    async def use(clients: Clients) -> None:
        async with clients.client(group=GROUP) as client:
            await fill(client)
            await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
            await trio.sleep(11)
            assert isinstance(await stats_of(client, "TOPIC_PUT_NUMS", TOPIC), str)

    run(use)


def test_what_is_expired_is_removed_when_somebody_asks() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
                assert (await client.request(code)).code == OK
            store = clients.servers.controller("a-0").store
            assert store.clean_commit_log_service.manual_delete_file_several_times == MAX_MANUAL_DELETE_FILE_TIMES
            assert len((await client.pull(TOPIC, 0)).bodies) == 3

    run(use)


def test_the_queues_of_topics_that_nobody_has_are_removed() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            broker = clients.servers.controller("a-0")
            await broker.put_message(Message("NobodyHasIt", b""))
            await trio.sleep(0.2)
            assert broker.store.offsets.get_max_offset_in_queue("NobodyHasIt", 0) == 1
            assert (await client.request(RequestCode.CLEAN_UNUSED_TOPIC)).code == OK
            assert broker.store.offsets.get_max_offset_in_queue("NobodyHasIt", 0) == 0
            assert len((await client.pull(TOPIC, 0)).bodies) == 3

    run(use)


def test_a_topic_that_is_being_made_is_not_removed_as_one_that_nobody_has() -> None:
    async def use(clients: Clients) -> None:
        broker = clients.servers.controller("a-0")
        assert broker.remoting is not None
        topics = broker.remoting.metadata.topics
        hold_service = PullRequestHoldService()
        hold_service.answers_through(lambda _: None)
        removal = TopicRemoval(broker.remoting.metadata, hold_service, SlowConsumers(), new_recorder().tracer("a-0"))
        await broker.put_message(Message("NobodyHasIt", b""))
        await broker.put_message(Message("SomebodyMakesIt", b""))
        await trio.sleep(0.2)
        cleaned: list[str] = []

        async def clean() -> None:
            cleaned.extend(await removal.clean_unused(broker.store))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(topics.update_topic_config, TopicConfig(topic_name="SomebodyMakesIt"))
            await trio.lowlevel.checkpoint()
            assert topics.select_topic_config("SomebodyMakesIt") is None
            nursery.start_soon(clean)
        assert cleaned == ["NobodyHasIt"]
        assert broker.store.offsets.get_max_offset_in_queue("SomebodyMakesIt", 0) == 1

    run(use)


def test_transactions_that_were_given_up_are_kept_where_their_topic_cannot_be_made() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            broker = clients.servers.controller("a-0")
            await broker.put_message(Message("TRANS_CHECK_MAX_TIME_TOPIC", b""))
            await trio.sleep(0.2)
            assert (await client.request(RequestCode.CLEAN_UNUSED_TOPIC)).code == OK
            assert broker.store.offsets.get_max_offset_in_queue("TRANS_CHECK_MAX_TIME_TOPIC", 0) == 1

    run(use)


def test_the_entries_of_a_queue_are_shown_as_they_are_stored() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(group=GROUP) as client:

            async def ask(index: int, count: int, group: str | None = None, topic: str = TOPIC) -> RemotingCommand:
                header = QueryConsumeQueueRequestHeader(topic, 0, index, count, group)
                return await client.request(RequestCode.QUERY_CONSUME_QUEUE, header)

            await fill(client, 5)
            await placed_with_tag(client)
            shown = decode_body(QueryConsumeQueueResponseBody, (await ask(1, 3)).body)
            assert (shown.min_queue_index, shown.max_queue_index, shown.filter_data) == (0, 6, None)
            pulled = await client.pull(TOPIC, 1, max_messages=3)
            assert [(each.physic_offset, each.physic_size) for each in shown.queue_data] == [
                (message.physical_offset, len(record))
                for message, record in zip(pulled.messages, pulled.records, strict=True)
            ]
            (tagged,) = decode_body(QueryConsumeQueueResponseBody, (await ask(5, 10)).body).queue_data
            assert tagged.tags_code == 2_567_159  # "TAG1".hashCode()
            offline = decode_body(QueryConsumeQueueResponseBody, (await ask(0, 1, GROUP)).body)
            assert offline.filter_data == f"{GROUP}@{TOPIC} is not online!"
            await client.heartbeat(subscription(TOPIC, "TAG1"))
            online = decode_body(QueryConsumeQueueResponseBody, (await ask(0, 1, GROUP)).body)
            assert online.subscription_data is not None
            assert (online.filter_data, online.subscription_data.sub_string) == ("null", "TAG1")
            for index in (6, -1):
                answer = await ask(index, 1)
                assert (answer.code, answer.remark) == (OK, f"Index {index} of 0@{TOPIC} is not exist!")
            assert decode_body(QueryConsumeQueueResponseBody, (await ask(0, -1)).body).queue_data == []
            answer = await ask(0, 1, topic="NoSuchTopic")
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "0@NoSuchTopic is not exist!")

    run(use)


async def placed_with_tag(client: ThinClient) -> None:
    placed(await client.send(TOPIC, b"tagged", properties={"TAGS": "TAG1"}))
    await trio.sleep(0.1)
