"""Topics, groups and offsets: Java slaves take them over from this project's master, its slave from Java masters."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.request_code import RequestCode
from tests.interop.broker_metadata import KINDS, metadata_in_files
from tests.interop.conftest import MakeTracer
from tests.interop.servers import Servers
from tests.worlds.java_broker import MAPPED_FILE_SIZE, JavaBroker
from tests.worlds.java_client import SUCCESS, JavaClient
from tests.worlds.java_process import JavaRuntime
from tests.worlds.server_process import free_broker_port, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

#: A Java broker registers within 10 s, asks its master every 10 s (5.x: every 60 s), and writes its offsets every 10 s.
SYNC_TIMEOUT_S = 300.0


@pytest.fixture(params=["4.9.7", pytest.param("5.3.1", marks=pytest.mark.long)])
def runtime(request: pytest.FixtureRequest) -> JavaRuntime:
    """Of either RocketMQ."""
    fixture = {"4.9.7": "java_runtime", "5.3.1": "java_runtime_5"}[request.param]
    return request.getfixturevalue(fixture)  # type: ignore[no-any-return]


@asynccontextmanager
async def open_ours(
    store: Path, tracer: Tracer, namesrv_addr: str, role: BrokerRole = BrokerRole.ASYNC_MASTER
) -> AsyncIterator[BrokerController]:
    """Our broker, of the pair "mixed"."""
    config = BrokerConfig(
        broker_name="mixed",
        broker_id=1 if role is BrokerRole.SLAVE else 0,
        namesrv_addr=namesrv_addr,
        remoting=RemotingServerConfig(listen_port=free_broker_port()),
        store=MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE),
    )
    async with open_broker(config, real_environment(store), tracer) as broker:
        yield broker


def metadata_of(broker: BrokerController) -> BrokerMetadata:
    assert broker.remoting is not None
    return broker.remoting.metadata


def read_json(store: Path, name: str) -> Any:
    """What 4.9 knows of a file below config/, integer keys as text; None if it is not there, or half."""
    return metadata_in_files(store)[name] or None


async def wait_for_same_files(ours: Path, theirs: Path, offset: int) -> None:
    """Wait until the files are all there and say the same; and one group has this offset."""

    def differing() -> list[str]:
        both = {name: (read_json(ours, name), read_json(theirs, name)) for name in KINDS}
        different = [name for name, (our, their) in both.items() if our is None or our != their]
        return different if f"{offset}" in str(both["consumerOffset"][0]) else ["consumerOffset"]

    try:
        await trio.to_thread.run_sync(wait_until, lambda: not differing(), SYNC_TIMEOUT_S, "the files say the same")
    except TimeoutError as error:
        texts = [f"{name}:\n{read_json(ours, name)}\n{read_json(theirs, name)}" for name in differing()]
        raise AssertionError("\n".join(texts)) from error


async def test_a_java_slave_has_our_masters_metadata(
    runtime: JavaRuntime, servers: Servers, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    name_server = servers.name_server("namesrv")
    await trio.to_thread.run_sync(name_server.start)
    store = tmp_path / "master" / "store"
    async with open_ours(store, make_tracer("master"), name_server.address) as master:
        ours = metadata_of(master)
        for number in range(2):
            await ours.topics.update_topic_config(TopicConfig(topic_name=f"TopicOfOurs{number}", perm=4))
            await ours.subscription_groups.update_subscription_group_config(
                SubscriptionGroupConfig(group_name=f"GroupOfOurs{number}", retry_max_times=3)
            )
            ours.consumer_offsets.commit_offset("test", f"GroupOfOurs{number}", f"TopicOfOurs{number}", 3, 2**40)
        ours.delay_offsets.offset_table.update({1: 5, 18: 7})
        slave = servers.java_broker(
            "slave", runtime, namesrvAddr=name_server.address, brokerName="mixed", brokerId=1, brokerRole="SLAVE"
        )
        # The slave has been there before: that of 5.x asks a minute after its start for the first time.
        await ours.consumer_offsets.persist()
        await ours.delay_offsets.persist(synced)
        shutil.copytree(store / "config", slave.store / "config")
        assert "TopicOfOurs0" in read_json(slave.store, "topics")["topicConfigTable"]
        # Meanwhile one more, one less, one that has come further.
        await ours.topics.update_topic_config(TopicConfig(topic_name="TopicOfOurs2", read_queue_nums=1))
        await ours.topics.delete_topic_config("TopicOfOurs0")
        await ours.subscription_groups.delete_subscription_group_config("GroupOfOurs0")
        ours.consumer_offsets.commit_offset("test", "GroupOfOurs1", "TopicOfOurs1", 3, 2**41)
        ours.delay_offsets.offset_table[1] = 6
        await trio.to_thread.run_sync(slave.start)
        await wait_for_same_files(store, slave.store, 2**41)
        topics = read_json(slave.store, "topics")["topicConfigTable"]
        assert {"TopicOfOurs1", "TopicOfOurs2"} <= topics.keys()
        assert "TopicOfOurs0" not in topics
        assert "GroupOfOurs0" not in read_json(slave.store, "subscriptionGroup")["subscriptionGroupTable"]
        assert read_json(slave.store, "consumerOffset")["offsetTable"]["TopicOfOurs1@GroupOfOurs1"] == {"3": 2**41}
        await trio.to_thread.run_sync(slave.kill)


async def synced(_: int) -> bool:
    return True


def call(master: JavaBroker, code: int, fields: Mapping[str, object], body: bytes = b"") -> None:
    """A request that an administrator or a consumer makes of a Java broker."""
    with JavaClient.connect(master.listen_port) as client:
        response = client.call(code, fields, body)
    assert response.code == SUCCESS, response


def create_topic(master: JavaBroker, topic: str) -> None:
    call(
        master,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 3,
            "writeQueueNums": 3,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        },
    )


def create_group(master: JavaBroker, group: str) -> None:
    body = json.dumps({"groupName": group, "retryMaxTimes": 5}).encode()
    call(master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


def commit_offset(master: JavaBroker, group: str, topic: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 1, "commitOffset": offset}
    call(master, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def test_our_slave_has_a_java_masters_metadata(
    runtime: JavaRuntime, servers: Servers, tmp_path: Path, make_tracer: MakeTracer
) -> None:
    name_server = servers.name_server("namesrv")
    await trio.to_thread.run_sync(name_server.start)
    master = servers.java_broker("master", runtime, namesrvAddr=name_server.address, brokerName="mixed")

    def first() -> None:
        master.start()
        for number in range(2):
            create_topic(master, f"TopicOfJava{number}")
            create_group(master, f"GroupOfJava{number}")
            commit_offset(master, f"GroupOfJava{number}", f"TopicOfJava{number}", 2**40)
        with JavaClient.connect(master.listen_port) as client:
            client.put("TopicOfJava1", b"delayed", properties={"DELAY": "1"})

    def later() -> None:
        create_topic(master, "TopicOfJava2")
        call(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TopicOfJava0"})
        call(master, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "GroupOfJava0", "removeOffset": "true"})
        commit_offset(master, "GroupOfJava1", "TopicOfJava1", 2**41)

    await trio.to_thread.run_sync(first)
    store = tmp_path / "slave" / "store"
    async with open_ours(store, make_tracer("slave"), name_server.address, BrokerRole.SLAVE):
        await wait_for_same_files(store, master.store, 2**40)
        assert read_json(store, "delayOffset") == {"offsetTable": {"1": 1}}
        await trio.to_thread.run_sync(later)
        await wait_for_same_files(store, master.store, 2**41)
        assert "TopicOfJava2" in read_json(store, "topics")["topicConfigTable"]
        assert "TopicOfJava0" not in read_json(store, "topics")["topicConfigTable"]
        assert "GroupOfJava0" not in read_json(store, "subscriptionGroup")["subscriptionGroupTable"]
        offsets = read_json(store, "consumerOffset")["offsetTable"]
        assert offsets["TopicOfJava1@GroupOfJava1"] == {"1": 2**41}
        assert "TopicOfJava0@GroupOfJava0" not in offsets
        await trio.to_thread.run_sync(master.stop)
    assert master.stopped_in_order()
