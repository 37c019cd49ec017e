"""This project's brokers register with RocketMQ's name server and with this project's, and live with Java brokers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import Message
from rmq_actors.wire.request_code import RequestCode
from tests.interop.conftest import MakeTracer
from tests.interop.java_gateway import JavaGateway
from tests.interop.servers import Servers
from tests.interop.two_name_servers import TwoNameServers
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, commit_log_files
from tests.worlds.java_client import SUCCESS
from tests.worlds.java_name_server import JavaNameServer
from tests.worlds.server_process import POLL_INTERVAL_S, free_broker_port

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

TBW102 = "TBW102"
TOPIC_NOT_EXIST = 17
REGISTER_TIMEOUT_S = 180.0


@asynccontextmanager
async def open_ours(
    store: Path, tracer: Tracer, namesrv_addr: str, name: str, role: BrokerRole = BrokerRole.ASYNC_MASTER
) -> AsyncIterator[BrokerController]:
    """Our broker, once all its name servers have it."""
    config = BrokerConfig(
        broker_name=name,
        broker_id=1 if role is BrokerRole.SLAVE else 0,
        broker_cluster_name=f"cluster-{name}",
        namesrv_addr=namesrv_addr,
        remoting=RemotingServerConfig(listen_port=free_broker_port()),
        store=MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE),
        ha=HaConfig(),
    )
    async with open_broker(config, real_environment(store), tracer) as broker:
        assert broker.remoting is not None
        assert broker.remoting.registration is not None
        with trio.fail_after(REGISTER_TIMEOUT_S):
            await broker.remoting.registration.wait_until_registered()
        yield broker


def address_of(broker: BrokerController) -> str:
    assert broker.remoting is not None
    return broker.remoting.broker_addr


async def wait_for_log(slave: Path, master: Path) -> None:
    """Polled here and not in a thread: a broker of this process that fails ends the wait."""
    with trio.fail_after(REPLICATION_TIMEOUT_S):
        while not (log := commit_log_files(master)) or commit_log_files(slave) != log:
            await trio.sleep(POLL_INTERVAL_S)


async def test_a_broker_is_found_through_either_name_server_until_it_stops(
    two: TwoNameServers, java_gateway: JavaGateway, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    async with open_ours(tmp_path / "store", make_tracer("broker"), two.addresses, "ours") as broker:
        for code, fields in (
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102}),
            (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
        ):
            answers = two.ask(code, fields)
            assert answers.ours == answers.java
            assert address_of(broker).encode() in answers.java.body
        assert address_of(broker) in two.mqadmin(java_gateway, "topicRoute", "-t", TBW102)
    answers = two.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102})
    assert answers.java.code == TOPIC_NOT_EXIST
    answers.check_equal()


async def test_it_has_the_topics_of_a_java_broker(
    two: TwoNameServers, servers: Servers, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    java = servers.java_broker(
        "java", namesrvAddr=two.addresses, brokerName="theirs", brokerClusterName="cluster-theirs"
    )
    await trio.to_thread.run_sync(java.start)
    async with open_ours(tmp_path / "store", make_tracer("broker"), two.addresses, "ours"):
        assert topics_of(two.java, "ours") == topics_of(two.java, "theirs")


def topics_of(name_server: JavaNameServer, name: str) -> dict[str, tuple[int, int, int]]:
    """Queues to read, to write, and the permissions of a broker's topics; its name is left out."""
    topics = {}
    listed = name_server.call(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": f"cluster-{name}"})
    for topic in json.loads(listed.body)["topicList"]:
        route = name_server.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        (queues,) = (data for data in json.loads(route.body)["queueDatas"] if data["brokerName"] == name)
        numbers = queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]
        topics[topic.replace(f"cluster-{name}", "CLUSTER").replace(name, "NAME")] = numbers
    return topics


async def test_our_slave_finds_a_java_master_through_a_java_name_server(
    two: TwoNameServers, servers: Servers, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    java = servers.java_broker("master", namesrvAddr=two.java.address, brokerName="mixed")
    await trio.to_thread.run_sync(java.start)
    store = tmp_path / "slave" / "store"
    async with open_ours(store, make_tracer("slave"), two.java.address, "mixed", BrokerRole.SLAVE) as slave:
        route = two.java.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TBW102})
        addresses = {broker["brokerName"]: broker["brokerAddrs"] for broker in json.loads(route.body)["brokerDatas"]}
        assert addresses["mixed"] == {"0": java.address, "1": address_of(slave)}
        response = await trio.to_thread.run_sync(java.send, "TopicMixed", b"for our slave")
        assert response.code == SUCCESS
        await wait_for_log(store, java.store)


async def test_a_java_slave_finds_our_master_through_a_java_name_server(
    two: TwoNameServers, servers: Servers, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    store = tmp_path / "master" / "store"
    async with open_ours(store, make_tracer("master"), two.java.address, "mixed") as master:
        put = await master.put_message(Message("TopicMixed", b"for a Java slave"))
        assert put.status is PutStatus.PUT_OK
        java = servers.java_broker(
            "slave", namesrvAddr=two.java.address, brokerName="mixed", brokerId=1, brokerRole="SLAVE"
        )
        await trio.to_thread.run_sync(java.start)
        await wait_for_log(java.store, store)
        await trio.to_thread.run_sync(java.kill)
