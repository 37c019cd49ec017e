"""A setting that a running broker is told counts for the next request, without a change of its role."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.testing.thin_client import ThinClient, send_request
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_admin_requests import create, new_topic
from tests.simulation.test_send_and_pull import TOPIC, Clients, placed, run
from tests.worlds.role_world import RoleWorld

OK = ResponseCode.SUCCESS


async def update(client: ThinClient, text: str) -> None:
    """UPDATE_BROKER_CONFIG, as mqadmin sends it."""
    answer = await client.ask(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert answer.code == OK, answer.remark


async def new_topic_of_a_client(client: ThinClient, name: str) -> int:
    return (await client.send(f"Topic{name}", b"x"))[0]


async def new_topic_of_an_operator(client: ThinClient, name: str) -> int:
    return (await create(client, new_topic(f"Topic{name}"))).code


async def new_group(client: ThinClient, name: str) -> int:
    return (await ThinClient(client.ask, group=f"Group{name}").pull(TOPIC, 0, hold_ms=0)).code


async def new_offset(client: ThinClient, name: str) -> int:
    return (await ThinClient(client.ask, group=f"Group{name}").commit(TOPIC, 0, 0)).code


async def half_message(client: ThinClient, name: str) -> int:
    return (await client.prepare(TOPIC, name.encode()))[0]


async def large_message(client: ThinClient, name: str) -> int:
    return (await client.send(TOPIC, name.encode() * 100))[0]


async def pull(client: ThinClient, name: str) -> int:
    return (await ThinClient(client.ask, group=f"Group{name}").pull(TOPIC, 0, hold_ms=0)).code


REQUESTS = {
    "topicsMax=1": (new_topic_of_an_operator, ResponseCode.SYSTEM_ERROR),
    "autoCreateTopicsMax=1": (new_topic_of_a_client, ResponseCode.TOPIC_NOT_EXIST),
    "autoCreateTopicEnable=false": (new_topic_of_a_client, ResponseCode.TOPIC_NOT_EXIST),
    "autoCreateSubscriptionGroupsMax=0": (new_group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "autoCreateSubscriptionGroup=false": (new_group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "consumerOffsetsMax=1": (new_offset, ResponseCode.SYSTEM_ERROR),
    "rejectTransactionMessage=true": (half_message, ResponseCode.NO_PERMISSION),
    "brokerPermission=2": (pull, ResponseCode.NO_PERMISSION),
    "maxMessageSize=50": (large_message, ResponseCode.MESSAGE_ILLEGAL),
    "maxMessageSize=50\nbrokerPermission=2": (pull, ResponseCode.NO_PERMISSION),
}
#: What opens the store again.
REOPENS = {text for text in REQUESTS if "maxMessageSize" in text}


@pytest.mark.parametrize("text", REQUESTS)
def test_a_setting_counts_for_the_next_request(text: str) -> None:
    ask, refusal = REQUESTS[text]

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"x"))
            assert await ask(client, "Before") in {OK, ResponseCode.PULL_NOT_FOUND}
            await update(client, text)
            assert await ask(client, "After") == refusal
            placed(await client.send(TOPIC, b"x"))  # what is there goes on

    servers = run(use)
    statuses = [event.status for event in servers.events(BrokerRoleEvent)]
    assert statuses == (["reopened"] if text in REOPENS else [])


@pytest.mark.parametrize(
    "beside", ["", "\nmaxMessageSize=1000000"], ids=["alone", "with one that opens the store again"]
)
def test_name_servers_are_told_at_once_what_clients_may_do(beside: str) -> None:
    """So a broker is taken out of service: producers leave when they ask for routes."""
    servers = RoleWorld.of(1)

    async def perms() -> set[tuple[str, int]]:
        found = await servers.ask_routes(next(iter(servers.name_servers)))
        return {(topic, queues[2]) for (topic, _), queues in found.queues.items() if topic in {TOPIC, "TBW102"}}

    async def tell(text: str) -> None:
        request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
        assert (await servers.ask_broker("a-0", request)).code == OK

    async def use() -> None:
        await servers.brokers["a-0"].set_topic(TOPIC)
        await trio.sleep(3)
        assert await perms() == {(TOPIC, 6), ("TBW102", 7)}
        await tell(f"brokerPermission=4{beside}")
        await trio.sleep(3)  # the next registration is due after 30 s
        assert await perms() == {(TOPIC, 4), ("TBW102", 4)}
        await tell("brokerPermission=6")
        await trio.sleep(3)
        assert await perms() == {(TOPIC, 6), ("TBW102", 7)}

    servers.run_well(use)


def test_name_servers_are_told_after_an_exchange_of_roles_what_was_set_meanwhile() -> None:
    """The operator was told that it is done, and nothing told them later, either."""
    servers = RoleWorld.of(1)

    async def use() -> None:
        await servers.brokers["a-0"].set_topic(TOPIC)
        await trio.sleep(3)
        broker = servers.controller("a-0")
        await broker.fence("roles are exchanged")
        request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert (await servers.ask_broker("a-0", request)).code == OK
        await trio.sleep(3)
        await broker.fence("")
        await trio.sleep(3)
        found = await servers.ask_routes(next(iter(servers.name_servers)))
        assert {queues[2] for (topic, _), queues in found.queues.items() if topic == TOPIC} == {4}

    servers.run_well(use)


def test_a_slave_keeps_its_masters_topics_and_the_version_of_them() -> None:
    """It serves by its own permission; `test_registration` has what becomes of it when the slave is promoted."""
    servers = RoleWorld.of(1)

    async def tell(text: str) -> None:
        request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
        assert (await servers.ask_broker("a-1", request)).code == OK

    async def use() -> None:
        topics = [servers.controller(name).remoting for name in ("a-0", "a-1")]
        await servers.brokers["a-0"].set_topic(TOPIC)
        await trio.sleep(15)
        master, slave = (remoting.topic_config_manager for remoting in topics if remoting is not None)
        await tell("brokerPermission=4")
        assert slave.broker_permission == 4
        assert slave.data_version == master.data_version
        assert slave.wrapper() == master.wrapper()

    servers.run_well(use)


def test_the_lane_of_plain_messages_takes_a_setting_too() -> None:
    """Its answers say whether producers are to write traces."""

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            for told in ("true", "false", "true"):
                await update(client, f"traceOn={told}")
                for _ in range(2):  # the first one makes the topic, by the general door
                    answer = await client.ask(send_request(TOPIC, b"x"))
                    assert (answer.ext_fields or {})["TRACE_ON"] == told

    run(use)


def test_topics_are_made_again_as_soon_as_that_is_turned_on() -> None:
    """Also by a broker that has started without the topic whose settings they inherit, and whose routes clients use."""

    async def use(clients: Clients) -> None:
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        async with clients.client() as client:
            assert await new_topic_of_a_client(client, "Off") == ResponseCode.TOPIC_NOT_EXIST
            await update(client, "autoCreateTopicEnable=true")
            assert await new_topic_of_a_client(client, "On") == OK
            await update(client, "autoCreateTopicEnable=false")
            assert await new_topic_of_a_client(client, "OffAgain") == ResponseCode.TOPIC_NOT_EXIST
            placed(await client.send("TopicOn", b"x"))

    run(use, settings={"auto_create_topic_enable": False})


def test_a_start_without_auto_create_topic_enable_makes_none_though_its_file_has_the_default_topic() -> None:
    async def use(clients: Clients) -> None:
        servers = clients.servers
        async with clients.client() as client:
            assert await new_topic_of_a_client(client, "On") == OK
        servers.settings = {"auto_create_topic_enable": False}
        servers.nodes["a-0"].kill()
        servers.boot("a-0")
        await servers.converge(10)
        async with clients.client() as client:
            placed(await client.send("TopicOn", b"x"))
            assert await new_topic_of_a_client(client, "Off") == ResponseCode.TOPIC_NOT_EXIST

    run(use)
