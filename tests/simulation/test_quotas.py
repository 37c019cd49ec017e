"""What clients may have a broker keep for them is bounded, and what they would do harm by is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.quotas import CLIENT_ID_CHARS_MAX, Quotas
from rmq_actors.broker.subscription_groups import SYSTEM_GROUPS
from rmq_actors.protocols.send_rules import GROUP_CHARS_MAX, RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.testing.thin_client import ThinClient, subscription
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import LockBatchRequestBody, MessageQueue
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers.offsets import CloneGroupOffsetRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_admin_requests import create, new_topic
from tests.simulation.test_send_and_pull import TOPIC, Clients, placed, run

OK, ERROR = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR


def with_quotas(use: Callable[[ThinClient], Awaitable[None]], **quotas: int) -> None:
    async def use_clients(clients: Clients) -> None:
        async with clients.client() as client:
            await use(client)

    run(use_clients, settings={"quotas": Quotas(**quotas)})


def refused(answer: RemotingCommand, code: int, *parts: str) -> None:
    assert answer.code == code, answer.remark
    for part in parts:
        assert part in (answer.remark or ""), answer.remark


def test_clients_make_topics_up_to_one_quota_and_operators_up_to_the_other() -> None:
    async def use(client: ThinClient) -> None:
        code, remark = await client.send("OfAClient", b"x")
        assert code == ResponseCode.TOPIC_NOT_EXIST
        assert "autoCreateTopicsMax=1: there are " in str(remark)
        made = 0
        while (answer := await create(client, new_topic(f"OfAnOperator{made}"))).code == OK:
            made += 1
        refused(answer, ERROR, f"topic OfAnOperator{made} cannot be changed: topicsMax=20: there are 20 topics")
        assert made > 0
        assert (await create(client, new_topic("OfAnOperator0", 1, 1))).code == OK  # it is there: it may change
        placed(await client.send("OfAnOperator0", b"x"))

    with_quotas(use, topics_max=20, auto_create_topics_max=1)


def test_clients_make_groups_up_to_one_quota_and_operators_up_to_the_other() -> None:
    async def use(client: ThinClient) -> None:
        placed(await client.send(TOPIC, b"x"))
        assert (await client.heartbeat(subscription(TOPIC))).code == OK  # other groups of the client go on
        pulled = await client.pull(TOPIC, 0)
        assert pulled.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "group [CG] does not exist, autoCreateSubscriptionGroupsMax=0: there are " in str(pulled.remark)
        made = {}
        for name in ("one", "two"):
            body = encode_body(SubscriptionGroupConfig(group_name=name))
            made[name] = await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert made["one"].code == OK
        refused(made["two"], ERROR, "group two cannot be changed: subscriptionGroupsMax=")
        assert (await ThinClient(client.ask, group="one").pull(TOPIC, 0)).code == OK

    with_quotas(use, subscription_groups_max=len(SYSTEM_GROUPS) + 1, auto_create_subscription_groups_max=0)


def test_offsets_that_are_new_are_refused_and_the_others_go_on() -> None:
    async def use(client: ThinClient) -> None:
        placed(await client.send(TOPIC, b"x"))
        assert (await client.commit(TOPIC, 1, 0)).code == OK
        assert (await client.commit(TOPIC, 1, 1)).code == OK
        refused(await client.commit(TOPIC, 1, 2), ERROR, "'CG' in 'TopicOfAClient' is not kept: consumerOffsetsMax=2")
        assert (await client.commit(TOPIC, 7, 1)).code == OK
        assert await client.committed(TOPIC, 1) == 7
        pulled = await client.pull(TOPIC, 0, commit=5)
        assert pulled.bodies == [b"x"]
        assert await client.committed(TOPIC, 0) == 5
        assert (await client.pull(TOPIC, 0, 3, commit=5)).code == ResponseCode.PULL_NOT_FOUND  # and its offset is not
        clone = CloneGroupOffsetRequestHeader("CG", "other", TOPIC, offline=True)
        refused(await client.request(RequestCode.CLONE_GROUP_OFFSET, clone), ERROR, "consumerOffsetsMax=2")

    with_quotas(use, consumer_offsets_max=2)


@pytest.mark.parametrize("part", ["group", "topic"])
def test_names_that_no_client_has_are_refused_before_anything_is_kept(part: str) -> None:
    """A few of them, each nearly as long as a frame, filled a table: then no operator could make a group any more."""
    long, longest = {
        "group": ("g" * 256, "g" * 900_000),
        "topic": ("t" * 128, "t" * 900_000),
    }[part]
    why = "longer than group max length 255" if part == "group" else "longer than topic max length"

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"x"))
            for name in (long, longest):
                other = ThinClient(client.ask, group=name) if part == "group" else client
                topic = name if part == "topic" else TOPIC
                queue = MessageQueue(broker_name="broker-a", queue_id=0, topic=topic)
                pulled = await other.pull(topic, 0)
                assert (pulled.code, why in str(pulled.remark)) == (ERROR, True)
                refused(await other.commit(topic, 1), ERROR, why)
                lock = LockBatchRequestBody(client_id="c", consumer_group=other.group, mq_set=[queue])
                refused(await client.request(RequestCode.LOCK_BATCH_MQ, body=encode_body(lock)), ERROR, why)
                if part == "group":
                    clone = CloneGroupOffsetRequestHeader("CG", name, topic, offline=True)
                    refused(await client.request(RequestCode.CLONE_GROUP_OFFSET, clone), ERROR, why)
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        groups = remoting.metadata.subscription_groups
        assert not {long, longest} & groups.wrapper().subscription_group_table.keys()
        assert remoting.metadata.consumer_offsets._entries == remoting._housekeeping.locks.count == 0

    run(use)


def test_the_longest_names_that_clients_have_are_served() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client(group="g" * GROUP_CHARS_MAX) as client:
            topic, retries = "t" * 127, RETRY_GROUP_TOPIC_PREFIX + client.group
            assert (await create(client, new_topic(topic))).code == OK
            assert (await client.heartbeat(subscription(topic))).code == OK
            for name in (topic, retries):
                assert (await client.pull(name, 0)).code == ResponseCode.PULL_NOT_FOUND
                assert (await client.commit(name, 1)).code == OK
                queue = MessageQueue(broker_name="broker-a", queue_id=0, topic=name)
                assert await client.lock(queue) == [queue]

    run(use)


def test_a_heartbeat_that_would_add_too_much_is_refused_as_a_whole() -> None:
    async def use(client: ThinClient) -> None:
        assert (await client.heartbeat(subscription(TOPIC), producers=["P"])).code == OK
        full = await client.heartbeat(subscription(TOPIC), producers=["P", "Q"])
        refused(full, ERROR, "clientGroupsMax=2: there are 2 memberships in groups, and no more")
        assert (await client.heartbeat(subscription(TOPIC), producers=["P"])).code == OK
        long = await client.heartbeat(subscription(TOPIC, "a" * 2000, version=2))
        refused(long, ERROR, "subscriptionsMax=2000: there are ")
        assert (await client.leave()).code == OK
        assert (await client.heartbeat(producers=["P", "Q"])).code == OK
        assert await client.members() is None

    with_quotas(use, client_groups_max=2, subscriptions_max_bytes=2000)


def test_members_whose_heartbeats_add_nothing_go_on_where_there_is_no_room() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client("one") as old, clients.client("two") as new, clients.client("c", "Full") as full:
            assert (await old.heartbeat(subscription(TOPIC, version=1))).code == OK
            assert (await new.heartbeat(subscription(TOPIC, version=2))).code == OK
            refused(await full.heartbeat(subscription(TOPIC, "a" * 2000)), ERROR, "subscriptionsMax=1500: there are ")
            assert (await full.heartbeat(subscription(TOPIC), subscription("Other"))).code == OK
            assert (await old.heartbeat(subscription(TOPIC, version=1))).code == OK  # it is behind the other one
            assert (await new.heartbeat(subscription(TOPIC, version=3))).code == OK  # no longer than before
            assert (await new.heartbeat(subscription("Third", version=4))).code == OK  # instead of what it had
            more = await new.heartbeat(subscription("Third", version=4), subscription(TOPIC, version=4))
            refused(more, ERROR, "subscriptionsMax=1500: there are ")

    run(use, settings={"quotas": Quotas(subscriptions_max_bytes=1500)})


@pytest.mark.parametrize("part", ["group", "producer", "client"])
def test_a_heartbeat_with_a_name_that_no_client_has_is_refused(part: str) -> None:
    async def use(client: ThinClient) -> None:
        if part == "client":
            client = ThinClient(client.ask, "c" * (CLIENT_ID_CHARS_MAX + 1))
        if part == "group":
            client = ThinClient(client.ask, group="g" * (GROUP_CHARS_MAX + 1))
        producers = ["p" * (GROUP_CHARS_MAX + 1)] if part == "producer" else []
        answer = await client.heartbeat(subscription(TOPIC), producers=producers)
        refused(answer, ERROR, " characters, at most ", "are kept")

    with_quotas(use)


# --- what an operator makes at the same time ------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["group", "topic"])
def test_a_client_that_names_what_an_operator_makes_just_then_changes_nothing_of_it(part: str) -> None:
    group = SubscriptionGroupConfig(group_name="Both", retry_max_times=3, consume_enable=False)
    topic = TopicConfig(topic_name="Both", read_queue_nums=1, write_queue_nums=1)

    async def use(clients: Clients) -> None:
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        metadata = remoting.metadata
        async with clients.client(group="Both") as client, trio.open_nursery() as nursery:
            with metadata_held(metadata):
                nursery.start_soon(metadata.subscription_groups.update_subscription_group_config, group)
                nursery.start_soon(metadata.topics.update_topic_config, topic)
                await trio.sleep(0.1)
                if part == "group":
                    nursery.start_soon(client.pull, TOPIC, 0)
                else:
                    nursery.start_soon(client.send, "Both", b"x")
                await trio.sleep(0.1)
        assert metadata.subscription_groups.find_subscription_group_config("Both") == group
        assert metadata.topics.select_topic_config("Both") == topic

    run(use)


@contextlib.contextmanager
def metadata_held(metadata: BrokerMetadata) -> Iterator[None]:
    """Changes of the tables wait, in their order, until the end of the block."""
    locks = [metadata.subscription_groups._lock, metadata.topics._lock]
    for lock in locks:
        lock.acquire_nowait()
    yield
    for lock in locks:
        lock.release()


# --- further queues ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "code", "why"),
    [
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION, "is forbidden"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden"),
        ("%LMQ%a,RMQ_SYS_TRACE_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden"),
        ("Nowhere", ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ("../../etc", ResponseCode.SYSTEM_ERROR, "illegal characters"),
        ("OneQueue", ResponseCode.SYSTEM_ERROR, "queueId[1] is illegal"),
    ],
)
def test_a_message_enters_no_queue_that_its_producer_could_not_send_to(names: str, code: int, why: str) -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic"))
            assert (await create(client, new_topic("OneQueue", 1, 1))).code == OK
            properties = {"INNER_MULTI_DISPATCH": names}
            found, remark = await client.send(TOPIC, b"x", 1, properties)
            assert (found, why in str(remark)) == (code, True), remark
            found, half = await client.prepare(TOPIC, b"x", 1, properties)
            assert (found, why in str(half)) == (code, True), half

    run(use, enable_multi_dispatch=True, enable_lmq=True)


def test_a_message_enters_light_queues_and_those_of_topics_that_are_there() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"makes the topic"))
            assert (await create(client, new_topic("Other"))).code == OK
            placed(await client.send(TOPIC, b"x", 1, {"INNER_MULTI_DISPATCH": "%LMQ%a,Other"}))
            await trio.sleep(0.1)
            assert (await client.pull("Other", 0, 1)).bodies == [b"x"]

    run(use, enable_multi_dispatch=True, enable_lmq=True)


def test_where_further_queues_are_off_the_property_says_nothing() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            placed(await client.send(TOPIC, b"x", 1, {"INNER_MULTI_DISPATCH": "SCHEDULE_TOPIC_XXXX"}))

    run(use)
