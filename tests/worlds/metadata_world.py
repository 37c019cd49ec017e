"""A master and its slaves with remoting, without name servers; and a master that answers as a test tells it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.slave_synchronize import TIMEOUT_MS
from rmq_actors.ha.config import HaConfig
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, SimDisk, World
from tests.worlds.registration_world import LISTEN_PORT, Broker, broker_config, new_recorder

CLIENT = "10.0.0.9:4000"
FIRST_SYNC_S = 3.5
PERIOD_S = 10.5
#: The longest pause after a failure, a time-out, and some.
HEALED_S = 10.0 + TIMEOUT_MS / 1000 * 2 + 6.0
FILES = ("topics", "consumerOffset", "delayOffset", "subscriptionGroup")
PARTS = ("topics", "consumer_offsets", "delay_offsets", "subscription_groups")

#: Topics and groups by name, offsets of groups, delay offsets.
Tables = tuple[TopicConfigSerializeWrapper, SubscriptionGroupWrapper, dict[str, dict[int, int]], dict[int, int]]


def metadata_of(broker: Broker) -> BrokerMetadata:
    assert broker.controller.remoting is not None
    return broker.controller.remoting.metadata


def tables(metadata: BrokerMetadata) -> Tables:
    """Copies of all that a slave takes over."""
    return (
        metadata.topics.wrapper(),
        metadata.subscription_groups.wrapper(),
        {key: dict(offsets) for key, offsets in metadata.consumer_offsets.wrapper().offset_table.items()},
        dict(metadata.delay_offsets.offset_table),
    )


def tables_of(broker: Broker) -> Tables:
    return tables(metadata_of(broker))


def tables_on(disk: SimDisk, config: BrokerConfig) -> Tables:
    """What a broker that starts now would load."""
    from rmq_actors.broker.topics import TOPIC_CHANGES  # noqa: PLC0415 - a channel of its own, which nobody reads

    changes, _ = TOPIC_CHANGES.open()
    return tables(BrokerMetadata.load(config, disk, World(1).node("reader").wall_clock, changes))


def json_on(disk: SimDisk, name: str) -> object:
    """A file below config/, its integer keys as text."""
    file = disk.open(f"config/{name}.json", read_only=True)
    text = bytes(file.map()).decode()
    file.close()
    return json.loads(re.sub(r"([{,])(-?\d+):", r'\1"\2":', text))


async def change_everything(master: Broker, number: int) -> None:
    """One more topic and group, offsets of it, and a delay level that has come further."""
    metadata = metadata_of(master)
    await metadata.topics.update_topic_config(TopicConfig(topic_name=f"Topic-{number}"))
    await metadata.subscription_groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name=f"Group-{number}")
    )
    for queue_id in range(4):
        metadata.consumer_offsets.commit_offset(CLIENT, f"Group-{number}", f"Topic-{number}", queue_id, 10 * number)
    metadata.delay_offsets.offset_table[3] = number


async def delete_everything(master: Broker, number: int) -> None:
    metadata = metadata_of(master)
    assert await metadata.topics.delete_topic_config(f"Topic-{number}")
    assert await metadata.subscription_groups.delete_subscription_group_config(f"Group-{number}")
    metadata.consumer_offsets.remove_offset(f"Group-{number}")


@attrs.define(eq=False)
class MetadataCluster:
    """Node "master", and slaves "slave-1", "slave-2", ... that are told where it is."""

    world: World
    recorder: Recorder
    master: Broker
    slaves: list[Broker]

    @classmethod
    def make(cls, seed: int, slaves: int) -> MetadataCluster:
        world = World(seed, guard_packages=("rmq_actors",))
        recorder = new_recorder(world)
        node = world.node("master")
        master = Broker(node, broker_config(node, None), recorder)
        return cls(world, recorder, master, [
            Broker(slave, slave_config(slave, node, number), recorder)
            for number, slave in enumerate([world.node(f"slave-{number}") for number in range(1, slaves + 1)], 1)
        ])  # fmt: skip

    @property
    def slave(self) -> Broker:
        return self.slaves[0]

    async def start(self) -> None:
        await self.master.start()
        for slave in self.slaves:
            await slave.start()

    def is_synchronized(self) -> bool:
        return all(tables_of(slave) == tables_of(self.master) for slave in self.slaves)

    def statuses(self, part: str, slave: Broker | None = None) -> list[str | None]:
        """How each attempt on a table ended."""
        events = (slave or self.slave).events(BrokerSlaveSynchronize)
        return [event.status for event in events if event.part == part]


def slave_config(slave: Node, master: Node, number: int) -> BrokerConfig:
    ha = HaConfig(ha_listen_host=slave.address, ha_master_address=f"{master.address}:{LISTEN_PORT + 1}")
    config = attrs.evolve(broker_config(slave, None), ha=ha, broker_id=0)
    store = attrs.evolve(config.store, broker_role=BrokerRole.SLAVE)
    return attrs.evolve(config, store=store, broker_id=number, master_addr=f"{master.address}:{LISTEN_PORT}")


def run(main: Callable[[MetadataCluster], Awaitable[None]], *, seed: int = 1, slaves: int = 1) -> MetadataCluster:
    cluster = MetadataCluster.make(seed, slaves)

    async def harness(_: World) -> None:
        await main(cluster)

    cluster.world.run(harness)
    return cluster


@attrs.define(eq=False)
class ScriptedMaster:
    """Answers each request code with a body, or with what a function makes of the request; others with code 3.

    It is RocketMQ's: what it is, its configuration says.
    """

    node: Node
    bodies: dict[int, bytes | Callable[[RemotingRequest], RemotingCommand | None]]
    role: str = "ASYNC_MASTER"
    #: When which code was asked for, but for what it is.
    asked: list[tuple[float, int]] = attrs.field(factory=list)

    def boot(self) -> None:
        self.node.boot(self._serve)

    async def _serve(self, node: Node) -> None:
        tracer = Recorder(RunInfo("test", "master", 0), lambda: (None, 0), keep=False).tracer(node.name)
        processors = ProcessorTable(tracer)
        processors.register_default(self._answer)
        async with open_actor_system(node.name) as system:
            config = RemotingServerConfig(listen_host=node.address, listen_port=LISTEN_PORT)
            await system.start(RemotingServer(config, processors, tracer))
            await trio.sleep_forever()

    def _answer(self, request: RemotingRequest) -> RemotingCommand | None:
        code = request.command.code
        if code in {OwnRequestCode.GET_REPLICATION_STATE, OwnRequestCode.GET_DELETED_TOPICS}:
            return request.command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no")
        if code == RequestCode.GET_BROKER_CONFIG:
            told = f"brokerRole={self.role}\n" if self.role else "brokerId=0\n"
            return request.command.response(ResponseCode.SUCCESS, body=told.encode())
        self.asked.append((trio.current_time(), code))
        body = self.bodies.get(code)
        if callable(body):
            return body(request)
        if body is None:
            return request.command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no")
        return request.command.response(ResponseCode.SUCCESS, body=body)


CODES = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)

#: What a Java master answers, by code.
JAVA_BODIES: dict[int, bytes] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        b'{"dataVersion":{"counter":7,"timestamp":1795224529259},"topicConfigTable":{"T":{"order":false,"perm":6,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}'
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@G":{0:8,1:7}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{1:3,2:9}}',
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        b'{"dataVersion":{"counter":6,"timestamp":1795224529259},"subscriptionGroupTable":{"G":{"brokerId":0,'
        b'"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G",'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    ),
}
