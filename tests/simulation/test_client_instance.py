"""What every client does: routes, heartbeats, errors that say what happened."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.client.client_error import (
    BrokerRefused,
    BrokerUnreachable,
    ClientTimeout,
    ConnectionLost,
    NameServersUnreachable,
    NoRoute,
)
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.requests import deadline_after
from rmq_actors.testing import SimCluster
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from rmq_actors.wire.headers.clients import GetConsumerListByGroupRequestHeader
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Partition
from tests.worlds.client_world import ClientWorld

TOPIC = "BenchmarkTest"


def groups_of(cluster: SimCluster, name: str) -> tuple[set[str], set[str]]:
    """The producer groups and consumer groups that a broker knows."""
    remoting = cluster.broker(name).remoting
    assert remoting is not None
    housekeeping = remoting._housekeeping  # nothing public tells of the clients
    return set(housekeeping.producers.groups), set(housekeeping.consumers.groups)


@attrs.define
class CountedRequests:
    """A hook."""

    codes: list[int] = attrs.field(factory=list)

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        self.codes.append(command.code)

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        pass


def test_a_route_is_asked_for_once_and_kept() -> None:
    async def use(world: ClientWorld) -> None:
        requests = CountedRequests()
        async with world.instance(hooks=[requests]) as instance:
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(instance.routes.route, TOPIC, deadline_after(3_000))
            info = await instance.routes.publish_info(TOPIC, deadline_after(3_000))
            assert {queue.broker_name for queue in info.queues} == {"broker-a"}
            assert len(info.queues) == info.write_queue_nums["broker-a"] == 1024
            assert set(instance.routes.broker_addresses("broker-a")) == {0, 1}
            assert requests.codes == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
            with pytest.raises(NoRoute, match="topic Nothing"):
                await instance.routes.route("Nothing", deadline_after(3_000))

    ClientWorld.run(use)


def test_a_topic_that_no_broker_has_is_sent_as_brokers_will_make_it() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as instance:
            info = await instance.routes.publish_info("New", deadline_after(3_000))
            assert [queue.queue_id for queue in info.queues] == [0, 1, 2, 3]
            assert instance.routes.known_route("New") is None

    ClientWorld.run(use)


def test_without_name_servers_a_call_ends_within_its_time_out() -> None:
    async def use(world: ClientWorld) -> None:
        nowhere = "10.9.9.9:9876"
        async with world.instance(namesrv_addr=f"{nowhere};{nowhere[:-1]}7") as instance:
            begun_s = trio.current_time()
            with pytest.raises((NameServersUnreachable, ClientTimeout)) as caught:
                await instance.routes.route(TOPIC, deadline_after(1_000))
            assert trio.current_time() - begun_s <= 1.0
            assert caught.value.retriable
        async with world.instance(namesrv_addr=f"{nowhere};{world.name_server}") as instance:
            await instance.routes.route(TOPIC, deadline_after(3_000))

    ClientWorld.run(use)


def test_a_broker_that_is_given_as_a_name_server_is_said_to_be_none() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as instance:
            await instance.routes.route(TOPIC, deadline_after(3_000))
            broker = instance.routes.master_address("broker-a")
        assert broker is not None
        async with world.instance(namesrv_addr=broker) as instance:
            with pytest.raises(BrokerRefused, match=f"105 is answered 3: .*: {broker} is no name server$") as caught:
                await instance.routes.route(TOPIC, deadline_after(3_000))
            assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert not caught.value.retriable

    ClientWorld.run(use)


def test_routes_follow_what_the_name_servers_say_and_listeners_hear_of_it() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance(poll_name_server_interval_ms=1_000) as instance:
            changed: list[str] = []
            instance.routes.listeners.append(changed.append)
            await instance.routes.route(TOPIC, deadline_after(3_000))
            await world.cluster.kill("b")
            await trio.sleep(3)
            assert set(instance.routes.broker_addresses("broker-a")) == {0}
            assert changed == [TOPIC, TOPIC]
            await world.cluster.start("b")

    ClientWorld.run(use)


def test_brokers_hear_of_groups_at_once_and_forget_them_at_the_end() -> None:
    async def use(world: ClientWorld) -> None:
        cluster = world.cluster

        def data() -> ConsumerData:
            return ConsumerData(
                group_name="CG",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )

        async with world.instance() as instance, instance.producer_group("PG"):
            await instance.routes.route(TOPIC, deadline_after(3_000))
            await trio.sleep(1)
            assert groups_of(cluster, "a") == ({"PG"}, set())
            assert groups_of(cluster, "b") == (set(), set()), "a slave hears of consumers alone"
            async with instance.consumer_group("CG", data):
                await trio.sleep(1)
                assert groups_of(cluster, "a") == groups_of(cluster, "b") == ({"PG"}, {"CG"})
                assert len(instance.heartbeats.versions) == 2
            await trio.sleep(1)
            assert groups_of(cluster, "a") == ({"PG"}, set())
        await trio.sleep(1)
        assert groups_of(cluster, "a") == (set(), set())

    ClientWorld.run(use)


def test_a_heartbeat_while_a_group_leaves_does_not_bring_it_back() -> None:
    @attrs.define
    class Heartbeats:
        """A hook: a heartbeat goes out while brokers are told that a group is gone."""

        instance: MQClientInstance | None = None

        def before_request(self, remote_address: str, command: RemotingCommand) -> None:
            pass

        def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
            if request.code == RequestCode.UNREGISTER_CLIENT and self.instance is not None:
                self.instance.heartbeats.groups_changed()

    async def use(world: ClientWorld) -> None:
        heartbeats = Heartbeats()
        async with world.instance(hooks=[heartbeats]) as instance, instance.producer_group("PG"):
            heartbeats.instance = instance
            await instance.routes.route(TOPIC, deadline_after(3_000))
            async with instance.producer_group("Leaves"):
                await trio.sleep(1)
                # The other broker is silent: the end of the group takes its time.
                heal = Partition(0.0, 1e9, "b", world.node.name).begin(world.cluster.world)
                instance.heartbeats._told.add(instance.routes.broker_addresses("broker-a")[1])
            await trio.sleep(1)
            heal()
            assert groups_of(world.cluster, "a") == ({"PG"}, set())

    ClientWorld.run(use)


def test_a_broker_that_comes_back_hears_of_groups_with_the_first_connection() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as instance, instance.producer_group("PG"):
            await instance.routes.route(TOPIC, deadline_after(3_000))
            await trio.sleep(1)
            await world.cluster.restart("a")
            address = instance.routes.master_address("broker-a")
            assert address is not None
            header = GetMaxOffsetRequestHeader(TOPIC, 0)
            with pytest.raises(ConnectionLost):
                await instance.requests.request(
                    address, RequestCode.GET_MAX_OFFSET, header, deadline_s=deadline_after(10_000)
                )
            await instance.requests.request(
                address, RequestCode.GET_MAX_OFFSET, header, deadline_s=deadline_after(10_000)
            )
            await trio.sleep(1)
            assert groups_of(world.cluster, "a")[0] == {"PG"}

    ClientWorld.run(use)


def test_errors_say_which_peer_what_happened_and_whether_to_try_again() -> None:
    async def use(world: ClientWorld) -> None:
        async with world.instance() as instance:
            await instance.routes.route(TOPIC, deadline_after(3_000))
            address = instance.routes.master_address("broker-a")
            assert address is not None
            header = GetConsumerListByGroupRequestHeader("nobody")
            with pytest.raises(BrokerRefused, match="is answered 1:") as refused:
                await instance.requests.request(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, deadline_s=deadline_after(3_000)
                )
            assert refused.value.address == address
            with pytest.raises(BrokerUnreachable) as unreachable:
                await instance.requests.request(
                    "10.9.9.9:1", RequestCode.GET_MAX_OFFSET, deadline_s=deadline_after(500)
                )
            assert unreachable.value.retriable
            with pytest.raises(ClientTimeout, match="no time is left"):
                await instance.requests.request(address, RequestCode.GET_MAX_OFFSET, deadline_s=deadline_after(0))

    ClientWorld.run(use)
