"""This project's remoting client beside real RocketMQ 4.9.7 servers, with typed headers and bodies."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.remoting.connection import RemotingConnectError, RemotingRequest, RemotingTimeoutError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.batch import encode_batch
from rmq_actors.wire.bodies import decode_body, encode_body
from rmq_actors.wire.bodies.clients import GetConsumerListByGroupResponseBody
from rmq_actors.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmq_actors.wire.bodies.routes import BrokerData, ClusterInfo, TopicRouteData
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.clients import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.offsets import (
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, SerializeType
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.interop.conftest import MakeTracer
from tests.interop.remoting_calls import SUBSCRIPTION, SUSPEND, TIMEOUT_MS, Asking, open_client, send_header
from tests.interop.servers import Servers
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_client import decode_records
from tests.worlds.java_name_server import JavaNameServer
from tests.worlds.server_process import free_port

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

SERIALIZE_TYPES = pytest.mark.parametrize("serialize_type", SerializeType, ids=lambda kind: kind.name)


@attrs.frozen
class Cluster:
    """A name server, and a broker that is registered there."""

    name_server: JavaNameServer
    broker: JavaBroker


@pytest.fixture(scope="module")
def cluster(module_servers: Servers) -> Cluster:
    name_server = module_servers.java_name_server("namesrv")
    name_server.start()
    broker = module_servers.java_broker("broker", namesrvAddr=name_server.address)
    broker.start()
    return Cluster(name_server, broker)


def heartbeat(client_id: str, group: str, topic: str) -> bytes:
    subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    consumer = ConsumerData(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        group_name=group,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[subscription],
    )
    producer = ProducerData(group_name="PG_raw")
    return encode_body(HeartbeatData(client_id=client_id, consumer_data_set=[consumer], producer_data_set=[producer]))


@SERIALIZE_TYPES
async def test_a_name_server_tells_routes(
    cluster: Cluster, make_tracer: MakeTracer, serialize_type: SerializeType
) -> None:
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, cluster.name_server.address, serialize_type)
        response = await asking.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="TBW102"))
        route = decode_body(TopicRouteData, response.body)
        broker = BrokerData(broker_addrs={0: cluster.broker.address}, broker_name="broker-a", cluster="DefaultCluster")
        assert route.broker_datas == [broker]
        assert [(queue.broker_name, queue.read_queue_nums, queue.perm) for queue in route.queue_datas] == [
            ("broker-a", 8, 7)
        ]
        response = await asking.get(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        assert decode_body(ClusterInfo, response.body) == ClusterInfo(
            broker_addr_table={"broker-a": broker}, cluster_addr_table={"DefaultCluster": ["broker-a"]}
        )
        response = await asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="unknown"))
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        assert response.remark is not None
        assert response.remark.startswith("No topic route info in name server for the topic: unknown")


@SERIALIZE_TYPES
async def test_messages_are_sent_and_pulled(
    cluster: Cluster, make_tracer: MakeTracer, serialize_type: SerializeType
) -> None:
    topic = f"Topic{serialize_type.name}"
    big = bytes(range(256)) * 400
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, cluster.broker.address, serialize_type)
        sent = await asking.send(topic, b"plain", TAGS="TagA", KEYS="key1 ü")
        assert (sent.queue_id, sent.queue_offset) == (0, 0)
        assert (await asking.send(topic, big)).queue_offset == 1
        items = [(b"first", 0, {"TAGS": "TagB"}), (b"second", 0, {"TAGS": "TagC"})]
        response = await asking.get(
            RequestCode.SEND_BATCH_MESSAGE, send_header(topic, 0, "", batch=True), encode_batch(items)
        )
        batch = decode_header(SendMessageResponseHeader, response)
        assert (batch.queue_offset, len(batch.msg_id.split(","))) == (2, 2)

        response = await asking.pull(topic, 0)
        assert response.code == ResponseCode.SUCCESS, response.remark
        header = decode_header(PullMessageResponseHeader, response)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (4, 0, 4)
        messages = decode_records(response.body)
        assert [message.body for message in messages] == [b"plain", big, b"first", b"second"]
        assert messages[0].properties["KEYS"] == "key1 ü"
        assert [message.properties["TAGS"] for message in messages[2:]] == ["TagB", "TagC"]
        assert (await asking.pull(topic, 9)).code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_held_pull_is_answered_when_a_message_comes_on_the_same_connection(
    cluster: Cluster, make_tracer: MakeTracer
) -> None:
    pulled: list[RemotingCommand] = []
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, cluster.broker.address)
        await asking.send("TopicHeld", b"to make the topic")

        async def pull() -> None:
            pulled.append(await asking.pull("TopicHeld", 1, SUSPEND | SUBSCRIPTION))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            # Ten answers overtake the pull, or the broker has not held it.
            for number in range(10):
                await asking.send("TopicHeld", b"other queue", queue_id=1 + number % 3)
            assert not pulled
            await asking.send("TopicHeld", b"awaited")
        assert len(client.connections) == 1
    (response,) = pulled
    assert response.code == ResponseCode.SUCCESS
    assert [message.body for message in decode_records(response.body)] == [b"awaited"]


@SERIALIZE_TYPES
async def test_a_one_way_request_is_done(
    cluster: Cluster, make_tracer: MakeTracer, serialize_type: SerializeType
) -> None:
    topic, group = f"TopicOneway{serialize_type.name}", f"CG_oneway_{serialize_type.name}"
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, cluster.broker.address, serialize_type)
        await asking.send(topic, b"to make the topic")
        update = UpdateConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=0, commit_offset=1)
        request = asking.request(RequestCode.UPDATE_CONSUMER_OFFSET, update)
        await client.invoke_oneway(cluster.broker.address, request, TIMEOUT_MS)
        query = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=0)
        with trio.fail_after(TIMEOUT_MS / 1000):
            # The broker has a pool of threads: the query may overtake.
            while True:
                response = await asking.get(RequestCode.QUERY_CONSUMER_OFFSET, query)
                if decode_header(QueryConsumerOffsetResponseHeader, response).offset == 1:
                    break
                await trio.sleep(0.05)


async def test_a_broker_tells_consumers_of_one_another_and_asks_them(cluster: Cluster, make_tracer: MakeTracer) -> None:
    """NOTIFY_CONSUMER_IDS_CHANGED is one-way; GET_CONSUMER_RUNNING_INFO, which one client asks another, is answered."""
    notified, told = trio.open_memory_channel[str](10)

    def note_change(request: RemotingRequest) -> None:
        header = decode_header(NotifyConsumerIdsChangedRequestHeader, request.command)
        notified.send_nowait(header.consumer_group)

    def tell_state(request: RemotingRequest) -> RemotingCommand:
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.command)
        return request.command.response(ResponseCode.SUCCESS, body=f"{header.client_id} runs".encode())

    tracer = make_tracer("client")
    processors = ProcessorTable(tracer)
    processors.register([RequestCode.NOTIFY_CONSUMER_IDS_CHANGED], note_change)
    processors.register([RequestCode.GET_CONSUMER_RUNNING_INFO], tell_state)
    async with open_client(tracer, processors) as first, open_client(make_tracer("other")) as second:
        one, other = Asking(first, cluster.broker.address), Asking(second, cluster.broker.address)
        await one.send("TopicNotify", b"to make the topic")
        await one.get(RequestCode.HEART_BEAT, None, heartbeat("client@1", "CG_notify", "TopicNotify"))
        await other.get(RequestCode.HEART_BEAT, None, heartbeat("client@2", "CG_notify", "TopicNotify"))
        with trio.fail_after(TIMEOUT_MS / 1000):
            assert await told.receive() == "CG_notify"

        header = GetConsumerListByGroupRequestHeader(consumer_group="CG_notify")
        response = await one.get(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        members = decode_body(GetConsumerListByGroupResponseBody, response.body).consumer_id_list
        assert sorted(members) == ["client@1", "client@2"]

        ask_first = GetConsumerRunningInfoRequestHeader(consumer_group="CG_notify", client_id="client@1")
        response = await other.get(RequestCode.GET_CONSUMER_RUNNING_INFO, ask_first)
        assert response.body == b"client@1 runs"


async def test_refusals_and_failures_are_told_apart(cluster: Cluster, make_tracer: MakeTracer) -> None:
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, cluster.broker.address)
        response = await asking.ask(9999, None)
        assert (response.code, response.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            " request type 9999 not supported",
        )
        # Once there is a connection: a 4.9 name server does not answer what it does not know.
        await client.invoke(
            cluster.name_server.address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_MS
        )
        with pytest.raises(RemotingTimeoutError, match="no answer to request 9999 within 50 ms"):
            await client.invoke(cluster.name_server.address, RemotingCommand(9999), 50)
        with pytest.raises(RemotingConnectError, match=r"127\.0\.0\.1:\d+: "):
            await client.invoke(f"127.0.0.1:{free_port()}", RemotingCommand(9999), TIMEOUT_MS)


async def test_a_client_connects_again_to_a_broker_that_was_restarted(
    servers: Servers, make_tracer: MakeTracer
) -> None:
    broker = servers.java_broker("restarted")
    await trio.to_thread.run_sync(broker.start)
    async with open_client(make_tracer("client")) as client:
        asking = Asking(client, broker.address)
        await asking.send("TopicAgain", b"before")
        await trio.to_thread.run_sync(broker.kill)
        await trio.to_thread.run_sync(broker.start)
        assert (await asking.send("TopicAgain", b"after")).queue_offset == 1
