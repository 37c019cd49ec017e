"""Errands: what clients do of which it is known what becomes of it, and how soon, where nothing is wrong meanwhile.

Each is a function: it does its steps, and says what was wrong, or "". The table is `ERRANDS`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import attrs
import trio

from rmq_actors.protocols.offset_moved_event import OFFSET_MOVED_EVENT_TOPIC
from rmq_actors.protocols.send_rules import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.errand import AT_ONCE_S, Errand, GivenUp, Visitor, check, is_of_a_clock, minds_all
from rmq_actors.testing.errands_of_clocks import check_at_a_wrong_clock, delays_at_a_wrong_clock
from rmq_actors.testing.errands_of_peers import crowd_of_one_address, queues_change_hands, takes_nothing
from rmq_actors.testing.errands_of_programs import consumer_ends, failing_hook, wrong_arguments
from rmq_actors.testing.errands_of_refusals import refused_deletion, refused_promotion
from rmq_actors.testing.errands_of_settings import (
    in_a_made_topic,
    light_queues,
    long_frames,
    read_while_it_stops,
    slow_group,
    slow_group_of_a_deleted_topic,
    unknown_topic,
)
from rmq_actors.testing.errands_of_tables import (
    deleted_group,
    group_of_two,
    order_of_requests,
    second_life,
    silent_client,
)
from rmq_actors.testing.errands_of_transactions import (
    asked_as_it_was_sent,
    asked_in_time,
    asked_once_somebody_is_there,
    commit_crosses_a_check,
    end_of_a_retried_send,
    ends_at_once,
    halves_of_one_key,
)
from rmq_actors.testing.thin_client import Pulled, ThinClient, make_topic_request, subscription
from rmq_actors.tracing.events.run import ClientTopic, FaultBegin
from rmq_actors.wire.bodies.broker_stats import BrokerStatsData
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS
from rmq_actors.wire.headers.admin import ViewBrokerStatsDataRequestHeader
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader, GetRouteInfoRequestHeader
from rmq_actors.wire.record import StoredMessage
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Pause

#: How long a pull is held: much longer than it may take.
_HOLD_MS = 8_000
#: How late a slave may be.
_AT_A_SLAVE_S = 2.0
#: Slaves copy tables each 10 s.
_COPIED_S = 25.0
#: Statistics are sampled each 10 s.
_SAMPLED_S = 11.0
#: How late a message comes at most that was delayed.
_LATE_S = 2.0
#: For how long routes are looked at. A name server takes a connection for dead after two minutes.
_ROUTES_S = (5, 40, 160)
_ALL_REGISTER_S = 40.0
#: How long a broker may be missing that has another connection now. They register each 30 s.
_MISSING_S = 4.0
#: retryMaxTimes, if nobody sets it.
_RETRY_MAX_TIMES = 16


# --- pulls ------------------------------------------------------------------------------------------------------------


async def held_pull(errand: Errand) -> str:
    """A pull that is held is answered as soon as its message is there."""
    async with errand.visitor() as sender, errand.visitor() as reader:
        await errand.send(sender.client, b"first")
        await errand.read(reader.client)
        return await _held(errand, sender, reader, AT_ONCE_S)


async def held_pull_at_a_slave(errand: Errand) -> str:
    """So it is at a slave that has all."""
    async with errand.visitor() as sender, errand.visitor(errand.a_slave()) as reader:
        await errand.send(sender.client, b"first")
        await errand.read(reader.client, limit_s=_COPIED_S)
        return await _held(errand, sender, reader, _AT_A_SLAVE_S)


async def _held(errand: Errand, sender: Visitor, reader: Visitor, limit_s: float) -> str:
    """What is wrong with a pull that is held for the second message of the topic."""
    answered_s: list[float] = []

    async def hold() -> None:
        pulled = await reader.client.pull(errand.topic, 1, hold_ms=_HOLD_MS)
        if pulled.header is None:
            raise GivenUp
        answered_s.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await trio.sleep(0.2)
        await errand.send(sender.client, b"second")
        sent_s = trio.current_time()
    late_s = answered_s[0] - sent_s
    return f"a held pull was answered {late_s:.3f} s after its message was there" if late_s > limit_s else ""


async def moved_offset(errand: Errand) -> str:
    """Pulls from where the queue is not are told where it is; one message says so."""
    async with errand.visitor() as reader:
        await errand.send(reader.client, b"one")
        await errand.read(reader.client)
        first = 2 + errand.below(20)
        pulled = [await reader.client.pull(errand.topic, first + more) for more in range(3)]
        if any(each.code != ResponseCode.PULL_OFFSET_MOVED or each.header is None for each in pulled):
            return f"pulls from {first} on of a queue with one message are answered {[each.code for each in pulled]}"
        await trio.sleep(AT_ONCE_S)
        told = [each for each in await _moved_events(reader.client) if each["consumerGroup"] == errand.group]
        wanted = [(first, 1)]
        found = [(each["offsetRequest"], each["offsetNew"]) for each in told]
        return "" if found == wanted else f"OFFSET_MOVED_EVENT has {found} for one that should be {wanted}"


async def _moved_events(client: ThinClient) -> list[dict[str, object]]:
    found, offset = list[dict[str, object]](), 0
    while True:
        pulled = await client.pull(OFFSET_MOVED_EVENT_TOPIC, offset)
        if pulled.header is None:
            raise GivenUp
        found += [json.loads(body) for body in pulled.bodies]
        if not pulled.messages and pulled.header.next_begin_offset == offset:
            return found
        offset = pulled.header.next_begin_offset


async def leave_while_waiting(errand: Errand) -> str:
    """Clients go while answers to them are under way: nothing is promised, and nobody else notices."""
    async with errand.visitor() as sender:
        await errand.send(sender.client, b"first")
        await errand.read(sender.client)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(_leave, errand)
            await trio.sleep(0.1)
            await errand.send(sender.client, b"second")
        pulled = await errand.read(sender.client, count=2)
        return "" if len(pulled.messages) == 2 else f"of two messages there are {len(pulled.messages)}"


async def _leave(errand: Errand) -> None:
    async with errand.visitor() as visitor:
        with trio.move_on_after(0.1 + errand.below(60) / 1000):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(_pull_once, visitor.client, errand.topic)


async def _pull_once(client: ThinClient, topic: str) -> None:
    await client.pull(topic, 1, hold_ms=_HOLD_MS)


# --- groups -----------------------------------------------------------------------------------------------------------


async def member_leaves(errand: Errand) -> str:
    """The other members of a group are told at once that one has come, and that one has gone, in whatever way."""
    says_so = bool(errand.below(2))
    async with errand.visitor() as stays:
        check(await stays.client.heartbeat(subscription(errand.topic)))
        async with errand.visitor() as goes:
            before = stays.told
            check(await goes.client.heartbeat(subscription(errand.topic)))
            if not await stays.wait(lambda: stays.told > before, AT_ONCE_S):
                return "a member was not told that another one has come"
            before = stays.told
            if says_so:
                check(await goes.client.leave())
        if not await stays.wait(lambda: stays.told > before, AT_ONCE_S):
            return "a member was not told that another one has gone"
        members = await stays.client.members()
        return "" if members == [stays.client.client_id] else f"a group of one has the members {members}"


async def statistics(errand: Errand) -> str:
    """What a topic was sent, and a group got, in the last minute."""
    count = 1 + errand.below(4)
    async with errand.visitor() as client:
        for number in range(count):
            await errand.send(client.client, f"{number}".encode())
        await trio.sleep(AT_ONCE_S)
        got = len((await client.client.pull(errand.topic, 0)).messages)
        await trio.sleep(_SAMPLED_S)
        said = [
            await _in_a_minute(client.client, "TOPIC_PUT_NUMS", errand.topic),
            await _in_a_minute(client.client, "GROUP_GET_NUMS", f"{errand.topic}@{errand.group}"),
        ]
        return "" if said == [count, got] else f"{count} messages were sent, {got} pulled; the broker says {said}"


async def _in_a_minute(client: ThinClient, name: str, key: str) -> int | None:
    answer = await client.request(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(name, key))
    if answer.code != ResponseCode.SUCCESS:
        return None
    minute = decode_body(BrokerStatsData, answer.body).stats_minute
    return None if minute is None else minute.sum


# --- retries ----------------------------------------------------------------------------------------------------------


async def levels_of_retries(errand: Errand) -> str:
    """The broker chooses how long a message waits that was sent back: longer each time."""
    async with errand.visitor() as consumer:
        message = await _sent_back(errand, consumer.client, 1)
        asked_s = trio.current_time()
        check(await consumer.client.send_back(message))
        wanted_s = DELAY_LEVELS_MS[3 + message.reconsume_times - 1] / 1000
        with trio.move_on_after(wanted_s + _LATE_S):
            while len((await _retry(errand, consumer.client, 1, 5_000)).messages) == 0:  # noqa: ASYNC110 - held
                await trio.sleep(0.1)
        waited_s = trio.current_time() - asked_s
        if wanted_s - 0.1 < waited_s < wanted_s + _LATE_S:
            return ""
        return f"a message that was sent back for the second time comes after {waited_s:.3f} s, not {wanted_s:g}"


async def dead_letters(errand: Errand) -> str:
    """A message that is sent back as often as the group's retryMaxTimes says is one of its dead letters then."""
    async with errand.visitor() as consumer:
        group = SubscriptionGroupConfig(group_name=errand.group, retry_max_times=1)
        made = await consumer.client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(group))
        check(made)
        message = await _sent_back(errand, consumer.client, 1)
        check(await consumer.client.send_back(message, 1))
        return await _is_dead(errand, consumer.client)


async def dead_letters_of_senders(errand: Errand) -> str:
    """So is one that its consumer sends to the topic of retries itself."""
    async with errand.visitor() as consumer:
        check(await consumer.client.heartbeat(subscription(errand.topic)))
        topic = f"{RETRY_GROUP_TOPIC_PREFIX}{errand.group}"
        await errand.send(consumer.client, b"bad", topic, reconsume_times=_RETRY_MAX_TIMES)
        return await _is_dead(errand, consumer.client)


async def _sent_back(errand: Errand, client: ThinClient, level: int) -> StoredMessage:
    """A message that has come again."""
    check(await client.heartbeat(subscription(errand.topic)))
    await errand.send(client, b"bad")
    pulled = await errand.read(client)
    if not pulled.messages:
        raise GivenUp
    check(await client.send_back(pulled.messages[0], level))
    again = await _retry(errand, client, 0, _HOLD_MS)
    if not again.messages:
        raise GivenUp
    return again.messages[0]


async def _retry(errand: Errand, client: ThinClient, offset: int, hold_ms: int) -> Pulled:
    return await client.pull(f"{RETRY_GROUP_TOPIC_PREFIX}{errand.group}", offset, hold_ms=hold_ms)


async def _is_dead(errand: Errand, client: ThinClient) -> str:
    found = len((await errand.read(client, f"{DLQ_GROUP_TOPIC_PREFIX}{errand.group}")).messages)
    return "" if found == 1 else f"a message that failed too often is no dead letter: there are {found}"


# --- topics and routes ------------------------------------------------------------------------------------------------


async def deleted_topic(errand: Errand) -> str:
    """Pulls of a deleted topic end at once; its route, statistics and offsets are gone, and do not come back."""
    group_offset, waits = 1, not errand.below(3)
    slave = errand.a_slave()
    async with (
        errand.visitor() as admin,
        errand.visitor() as reader,
        errand.visitor(slave) as reader_of_slave,
        errand.visitor_of_name_server() as asker,
    ):
        await _create(errand, admin.client)
        await errand.send(admin.client, b"first")
        await errand.read(reader.client)
        check(await reader.client.commit(errand.topic, group_offset))
        if waits:
            await trio.sleep(_COPIED_S)
        ended_s: list[float] = []

        async def hold() -> None:
            await reader.client.pull(errand.topic, 1, hold_ms=_HOLD_MS)
            ended_s.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.sleep(0.2)
            await _delete(errand, admin.client)
            deleted_s = trio.current_time()
        if ended_s[0] > deleted_s + AT_ONCE_S:
            return f"a held pull ended {ended_s[0] - deleted_s:.3f} s after its topic was deleted"
        if await _in_a_minute(admin.client, "TOPIC_PUT_NUMS", errand.topic) is not None:
            return "the statistics of a deleted topic are there"
        with trio.move_on_after(AT_ONCE_S):
            while await _route(errand, asker.client):  # noqa: ASYNC110 - asks
                await trio.sleep(0.1)
        if await _route(errand, asker.client):
            return f"a topic that was deleted {AT_ONCE_S:g} s ago has a route"
        await reader.client.commit(errand.topic, group_offset)  # it has not heard of it
        await _create(errand, admin.client)
        if offset := await reader.client.committed(errand.topic):
            return f"a topic that was made again has the offset {offset} of a group"
        if waits:
            await trio.sleep(_COPIED_S)
            if offset := await reader_of_slave.client.committed(errand.topic):
                return f"a topic that was made again has the offset {offset} of a group at {slave}"
        return ""


async def routes_stay(errand: Errand) -> str:
    """Once a name server tells all brokers of a topic, it goes on to, whatever time passes.

    Servers may stand still meanwhile, and connections be replaced: then a broker may be missing for a moment.
    """
    async with errand.visitor() as admin, errand.visitor_of_name_server() as asker:
        try:
            await _create(errand, admin.client)
        except RemotingError as error:
            raise GivenUp from error
        wanted = {errand.brokers.addresses(name).remoting for name in errand.brokers.names}
        over_at_s = trio.current_time() + _ALL_REGISTER_S
        while await _route_if_told(errand, asker.client) != wanted:
            if trio.current_time() > over_at_s:
                raise GivenUp
            await trio.sleep(1)
        over_at_s, well_s = trio.current_time() + _ROUTES_S[errand.below(len(_ROUTES_S))], trio.current_time()
        while trio.current_time() < over_at_s:
            await trio.sleep(1)
            found = await _route_if_told(errand, asker.client)
            if found is None or found == wanted:
                well_s = trio.current_time()
            elif trio.current_time() > well_s + _MISSING_S:
                return f"the route of a topic has {sorted(found)}, without {sorted(wanted - found)}"
        return ""


async def _route_if_told(errand: Errand, client: ThinClient) -> set[str] | None:
    """None: there is no answer, as from a name server that stands still."""
    try:
        return await _route(errand, client)
    except RemotingError:
        return None


async def _create(errand: Errand, client: ThinClient) -> None:
    check(await client.ask(make_topic_request(errand.topic)))


async def _delete(errand: Errand, client: ThinClient) -> None:
    told = ClientTopic(status="asked", operation="delete", topic=errand.topic)
    errand.brokers.recorder.record(told, errand.master)
    check(await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(errand.topic)))


async def _route(errand: Errand, client: ThinClient) -> set[str]:
    """The addresses of the brokers that have the topic."""
    answer = await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(errand.topic))
    if answer.code != ResponseCode.SUCCESS:
        return set()
    route = decode_body(TopicRouteData, answer.body)
    return {address for broker in route.broker_datas for address in broker.broker_addrs.values()}


def _is_pause(fault: FaultBegin) -> bool:
    """One broker stands still for less than it may be silent; or all do, and have heard nobody meanwhile."""
    return fault.fault_kind == Pause.__name__


@attrs.frozen
class ErrandKind:
    """`ignores` says of a fault whether all must be well in spite of it.

    It is run where the case sets `needs`, a key of RocketMQ, or anywhere. `outlives_stops`: brokers may stop in order.
    """

    run: Callable[[Errand], Awaitable[str]]
    ignores: Callable[[FaultBegin], bool] = minds_all
    needs: str = attrs.field(default="", kw_only=True)
    outlives_stops: bool = attrs.field(default=False, kw_only=True)


#: Those that a run begins with.
_FIRST = (
    ErrandKind(held_pull, is_of_a_clock),
    ErrandKind(held_pull_at_a_slave, is_of_a_clock),
    ErrandKind(moved_offset, is_of_a_clock),
    ErrandKind(leave_while_waiting, is_of_a_clock),
    ErrandKind(member_leaves, is_of_a_clock),
    ErrandKind(statistics),
    ErrandKind(levels_of_retries, is_of_a_clock),
    ErrandKind(dead_letters, is_of_a_clock),
    ErrandKind(dead_letters_of_senders, is_of_a_clock),
    ErrandKind(deleted_topic, is_of_a_clock),
    ErrandKind(routes_stay, _is_pause),
    ErrandKind(asked_in_time, is_of_a_clock),
    ErrandKind(asked_once_somebody_is_there, is_of_a_clock),
    ErrandKind(commit_crosses_a_check, is_of_a_clock),
    ErrandKind(ends_at_once, is_of_a_clock),
    ErrandKind(end_of_a_retried_send, is_of_a_clock),
)
#: Those that come after them: what the first ones meet, they do not move.
_FURTHER = (
    ErrandKind(halves_of_one_key, is_of_a_clock),
    ErrandKind(asked_as_it_was_sent, is_of_a_clock),
    ErrandKind(deleted_group, is_of_a_clock),
    ErrandKind(second_life, is_of_a_clock),
    ErrandKind(group_of_two, is_of_a_clock),
    ErrandKind(silent_client, is_of_a_clock),
    ErrandKind(order_of_requests, is_of_a_clock),
    ErrandKind(consumer_ends, is_of_a_clock),
    ErrandKind(wrong_arguments, is_of_a_clock),
    ErrandKind(failing_hook, is_of_a_clock),
    ErrandKind(check_at_a_wrong_clock, is_of_a_clock),
    ErrandKind(delays_at_a_wrong_clock, is_of_a_clock),
)
#: Those at brokers whose settings are drawn, in the scenario `settings` alone.
_OF_SETTINGS = (
    ErrandKind(slow_group, is_of_a_clock, needs="disableConsumeIfConsumerReadSlowly"),
    ErrandKind(slow_group_of_a_deleted_topic, is_of_a_clock, needs="disableConsumeIfConsumerReadSlowly"),
    ErrandKind(long_frames, is_of_a_clock, needs="receivedBytesPerAddressMax"),
    ErrandKind(light_queues, is_of_a_clock, needs="enableLmq"),
    ErrandKind(unknown_topic, is_of_a_clock),
    ErrandKind(queues_change_hands, is_of_a_clock),
    ErrandKind(in_a_made_topic(takes_nothing), is_of_a_clock),
    ErrandKind(crowd_of_one_address, is_of_a_clock),
    ErrandKind(refused_deletion, is_of_a_clock),
    ErrandKind(refused_promotion, is_of_a_clock),
    *(
        ErrandKind(in_a_made_topic(run), is_of_a_clock)
        for run in (held_pull, held_pull_at_a_slave, moved_offset, member_leaves, deleted_topic, second_life)
    ),
)
#: Those that an operator has run while he does something.
_BESIDE_OPERATORS = (ErrandKind(read_while_it_stops, is_of_a_clock, outlives_stops=True),)
#: By the function's name.
ERRANDS: Mapping[str, ErrandKind] = MappingProxyType(
    {kind.run.__name__: kind for kind in (*_FIRST, *_FURTHER, *_OF_SETTINGS, *_BESIDE_OPERATORS)}
)
FIRST_ERRANDS, FURTHER_ERRANDS, ERRANDS_OF_SETTINGS = (
    tuple(kind.run.__name__ for kind in kinds) for kinds in (_FIRST, _FURTHER, _OF_SETTINGS)
)
