"""Groups that are too far behind the end of the log are turned off, durably, until an operator turns them on again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.broker.broker_protection_service import PROTECT_INTERVAL_S
from rmq_actors.ha.followed_master import HA_MASTERS
from rmq_actors.protocols import slow_consumers
from rmq_actors.protocols.slow_consumers import Lag, SlowConsumers
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.headers.clients import DeleteSubscriptionGroupRequestHeader
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_send_and_pull import TOPIC, Clients, placed, run

OK, FORBIDDEN = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
ON = {"disable_consume_if_consumer_read_slowly": True, "consumer_fallbehind_threshold_bytes": 1000}


def test_the_furthest_queue_counts_by_its_last_pull() -> None:
    lags = SlowConsumers()
    lags.pulled("G", "T", 0, 5)
    lags.pulled("G", "T", 1, 9)
    lags.pulled("H", "T", 0, 7)
    assert lags.slower_than(5) == {"G": Lag("T", 1, 9), "H": Lag("T", 0, 7)}
    assert lags.slower_than(9) == {}
    lags.pulled("G", "T", 1, 0)
    assert lags.slower_than(5) == {"H": Lag("T", 0, 7)}
    lags.forget("H")
    lags.forget("nobody")
    assert lags.slower_than(0) == {"G": Lag("T", 0, 5)}


@given(st.lists(st.tuples(st.sampled_from("GH"), st.sampled_from("TU"), st.integers(0, 3), st.booleans())))
def test_no_more_queues_are_noted_than_there_is_room_for(steps: list[tuple[str, str, int, bool]]) -> None:
    lags = SlowConsumers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow_consumers, "QUEUES_MAX", 3)
        for group, topic, queue_id, forgets in steps:
            if forgets:
                lags.forget(group)
            else:
                lags.pulled(group, topic, queue_id, 1)
            assert lags._queues == sum(map(len, lags._lags.values())) <= 3


def test_what_is_noted_of_topics_is_forgotten() -> None:
    lags = SlowConsumers()
    for topic in "TUV":
        lags.pulled("G", topic, 0, 7)
    lags.pulled("H", "T", 0, 7)
    lags.forget_topics({"T", "U", "of nobody"})
    assert lags.slower_than(0) == {"G": Lag("V", 0, 7)}
    assert [lags.behind_bytes("G", topic, 0) for topic in "TV"] == [0, 7]
    lags.forget_all()
    assert lags.slower_than(0) == {}
    assert lags._queues == 0


def with_settings(use: Callable[[ThinClient, ThinClient], Awaitable[None]], settings: dict[str, object]) -> None:
    async def use_clients(clients: Clients) -> None:
        async with clients.client() as slow, clients.client("c-2", "Quick") as quick:
            for number in range(20):
                placed(await slow.send(TOPIC, b"%d" % number))
            await trio.sleep(0.1)
            await use(slow, quick)

    assert run(use_clients, settings=settings).crashes == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_operators_change_of_the_same_time_is_not_lost_when_a_group_is_turned_off(is_deleted: bool) -> None:
    async def use(clients: Clients) -> None:
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        groups, protection = remoting.metadata.subscription_groups, remoting._protection
        async with clients.client() as slow:
            for number in range(20):
                placed(await slow.send(TOPIC, b"%d" % number))
            await trio.sleep(0.1)
            assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
            (lag,) = protection.lags.slower_than(1000).items()
            async with trio.open_nursery() as nursery:
                if is_deleted:
                    nursery.start_soon(groups.delete_subscription_group_config, "CG")
                else:
                    own = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
                    nursery.start_soon(groups.update_subscription_group_config, own)
                await trio.lowlevel.checkpoint()  # it holds the table's lock now
                nursery.start_soon(protection._disable_consume, *lag)
            found = groups.find_subscription_group_config("CG")
            if is_deleted:
                assert found is None
            else:
                assert found is not None
                assert (found.retry_max_times, found.consume_enable) == (3, False)

    run(use, settings=ON)


def test_a_group_that_is_far_behind_is_turned_off_until_an_operator_turns_it_on() -> None:
    async def turn_on(client: ThinClient) -> None:
        body = encode_body(SubscriptionGroupConfig(group_name=client.group, retry_max_times=3))
        assert (await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == OK

    async def use(slow: ThinClient, quick: ThinClient) -> None:
        await turn_on(slow)
        assert len((await quick.pull(TOPIC, 10)).messages) == 10
        assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
        await trio.sleep(PROTECT_INTERVAL_S + 1)
        assert (await quick.pull(TOPIC, 10)).code == OK
        refused = await slow.pull(TOPIC, 1)
        assert (refused.code, refused.remark) == (FORBIDDEN, "subscription group no permission, CG")
        answer = await slow.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = msgspec.json.decode(answer.body)["subscriptionGroupTable"]
        assert (table["CG"]["consumeEnable"], table["CG"]["retryMaxTimes"]) == (False, 3)
        assert table["Quick"]["consumeEnable"]

        await turn_on(slow)  # what it was judged by is forgotten
        await trio.sleep(PROTECT_INTERVAL_S)
        assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
        assert len((await slow.pull(TOPIC, 1)).messages) == 19  # it has caught up
        await trio.sleep(PROTECT_INTERVAL_S)
        assert (await slow.pull(TOPIC, 1)).code == OK
        assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1  # and is behind again
        await trio.sleep(PROTECT_INTERVAL_S)
        assert (await slow.pull(TOPIC, 1)).code == FORBIDDEN

    with_settings(use, {**ON})


@pytest.mark.parametrize("what", ["topic", "topic that is unused", "group", "role"])
def test_what_is_gone_turns_no_group_off(what: str) -> None:
    """A lag of a topic that is deleted, of a group that is made again, or of an earlier life as the master."""

    async def use(clients: Clients) -> None:
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        async with clients.client() as slow:
            for number in range(20):
                placed(await slow.send(TOPIC, b"%d" % number))
            placed(await slow.send("Other", b"x"))
            await trio.sleep(0.1)
            assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
            assert remoting._protection.lags.slower_than(1000).keys() == {"CG"}
            if what == "topic":
                answer = await slow.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
                assert answer.code == OK
            elif what == "topic that is unused":
                assert await remoting.metadata.topics.delete_topic_config(TOPIC)
                assert (await slow.request(RequestCode.CLEAN_UNUSED_TOPIC)).code == OK
            elif what == "group":
                header = DeleteSubscriptionGroupRequestHeader("CG")
                assert (await slow.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == OK
            else:
                await remoting.change_role(remoting.config, "", HA_MASTERS.open()[0])
            assert (await slow.pull("Other", 0)).code == OK
            await trio.sleep(PROTECT_INTERVAL_S + 1)
            assert (await slow.pull("Other", 0)).code == OK

    run(use, settings=ON)


def test_a_topic_that_is_deleted_while_another_group_is_turned_off_turns_none_off() -> None:
    async def use(clients: Clients) -> None:
        remoting = clients.servers.controller("a-0").remoting
        assert remoting is not None
        groups, protection = remoting.metadata.subscription_groups, remoting._protection
        async with clients.client() as slow:
            for number in range(20):
                placed(await slow.send(TOPIC, b"%d" % number))
            await trio.sleep(0.1)
            assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
            (lag,) = protection.lags.slower_than(1000).items()
            async with groups._lock, trio.open_nursery() as nursery:
                nursery.start_soon(protection._disable_consume, *lag)
                await trio.sleep(0.1)
                protection.lags.forget_topics({TOPIC})
                groups._lock.release()
                await trio.sleep(0.1)
                await groups._lock.acquire()
            found = groups.find_subscription_group_config("CG")
            assert found is not None
            assert found.consume_enable

    run(use, settings=ON)


def test_it_is_said_once_that_there_is_no_room_for_more_lags(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_consumers, "QUEUES_MAX", 1)

    async def use(slow: ThinClient, quick: ThinClient) -> None:
        assert (await quick.pull(TOPIC, 10)).code == OK
        for _ in range(3):
            assert (await slow.pull(TOPIC, 0, max_messages=1)).code == OK

    with_settings(use, {**ON})
    (said,) = [each.getMessage() for each in caplog.records if "consumerFallbehindThreshold" in each.getMessage()]
    assert said.startswith("the lag of group CG in TopicOfAClient, queue 0, is not noted: ")


@pytest.mark.parametrize(
    "settings",
    [{}, {"disable_consume_if_consumer_read_slowly": True}, {"consumer_fallbehind_threshold_bytes": 1000}],
)
def test_no_group_is_turned_off_unless_both_settings_say_so(settings: dict[str, object]) -> None:
    async def use(slow: ThinClient, quick: ThinClient) -> None:
        assert len((await slow.pull(TOPIC, 0, max_messages=1)).messages) == 1
        await trio.sleep(PROTECT_INTERVAL_S + 1)
        assert (await slow.pull(TOPIC, 1)).code == OK

    with_settings(use, settings)
