"""Errands of operators and clients that change tables: of topics, of groups and of offsets."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.errand import AT_ONCE_S, Errand, GivenUp, Visitor, check
from rmq_actors.testing.thin_client import ThinClient, make_topic_request, subscription
from rmq_actors.tracing.events.run import ClientTopic
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.headers.clients import DeleteSubscriptionGroupRequestHeader, GetConsumerRunningInfoRequestHeader
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.request_code import RequestCode

#: Slaves copy tables each 10 s.
_COPIED_S = 25.0
#: For how long an operator waits for a topic. A client that says nothing is waited for 10 s.
_MADE_S = 5.0
#: How many groups an operator and clients make at once, and how often one is retried that the operator makes.
_GROUPS, _RETRIES = 6, 3


async def deleted_group(errand: Errand) -> str:
    """What a group has consumed is gone at the slaves, too, once an operator has deleted it with its offsets."""
    async with errand.visitor() as consumer, errand.visitor(errand.a_slave()) as at_slave:
        client = consumer.client
        await errand.send(client, b"one")
        check(await client.heartbeat(subscription(errand.topic)))
        check(await client.commit(errand.topic, 1))
        if not await _has(at_slave, errand.topic, 1):
            raise GivenUp
        check(await client.leave())
        gone = DeleteSubscriptionGroupRequestHeader(errand.group, remove_offset=True)
        check(await client.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone))
        if await _has(at_slave, errand.topic, 0):
            return ""
        return f"{_COPIED_S:g} s after {errand.group} was deleted a slave has its offset"


async def second_life(errand: Errand) -> str:
    """A topic that is made again begins at 0, and what a group has consumed of it counts, not what it had before."""
    async with errand.visitor() as consumer, errand.visitor(errand.a_slave()) as at_slave:
        client = consumer.client
        await _create(errand, client)
        for body in (b"one", b"two", b"three"):
            await errand.send(client, body)
        check(await client.commit(errand.topic, 3))
        if not await _has(at_slave, errand.topic, 3):
            raise GivenUp
        told = ClientTopic(status="asked", operation="delete", topic=errand.topic)
        errand.brokers.recorder.record(told, errand.master)
        check(await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(errand.topic)))
        await _create(errand, client)
        await errand.send(client, b"again")
        check(await client.commit(errand.topic, 1))
        if await _has(at_slave, errand.topic, 1):
            return ""
        found = await at_slave.client.committed(errand.topic)
        return (
            f"{errand.group} has consumed 1 of a topic that was made again; {_COPIED_S:g} s later a slave has {found}"
        )


async def group_of_two(errand: Errand) -> str:
    """What an operator says of a group counts, also where a client names it just then."""
    async with errand.visitor() as operator, errand.visitor() as consumer:
        wanted = {f"{errand.group}-{number}": _RETRIES for number in range(_GROUPS)}
        steps = list[Callable[[], Awaitable[None]]]()
        for name in wanted:
            steps += [
                functools.partial(_make_group, operator.client, name),
                functools.partial(_name_group, errand, consumer.client, name),
            ]
        async with trio.open_nursery() as nursery:
            for step in steps:
                nursery.start_soon(step)
                await trio.sleep(errand.below(2) / 1000)
        answer = check(await operator.client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        table = decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table
        found = {name: table[name].retry_max_times for name in wanted if name in table}
        return "" if found == wanted else f"an operator has set the retries of groups to {wanted}; they are {found}"


async def _make_group(client: ThinClient, name: str) -> None:
    group = SubscriptionGroupConfig(group_name=name, retry_max_times=_RETRIES)
    check(await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(group)))


async def _name_group(errand: Errand, client: ThinClient, name: str) -> None:
    check(await attrs.evolve(client, group=name).heartbeat(subscription(errand.topic)))


async def silent_client(errand: Errand) -> str:
    """An operator who asks about a client that says nothing waits; nobody else does."""
    async with errand.visitor() as silent, errand.visitor() as asker, errand.visitor() as admin:
        check(await silent.client.heartbeat(subscription(errand.topic)))
        header = GetConsumerRunningInfoRequestHeader(errand.group, silent.client.client_id)

        async def ask() -> None:
            with contextlib.suppress(RemotingError):
                await asker.client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)

        async with trio.open_nursery() as nursery:
            for _ in range(1 + errand.below(3)):
                nursery.start_soon(ask)
            await trio.sleep(0.1)
            asked_s = trio.current_time()
            await _create(errand, admin.client)
            waited_s = trio.current_time() - asked_s
            nursery.cancel_scope.cancel()
        return "" if waited_s < _MADE_S else f"a topic took {waited_s:.3f} s while a client was asked that says nothing"


async def order_of_requests(errand: Errand) -> str:
    """What one connection sends to a queue stands there in its order, whatever kinds of messages these are."""
    async with errand.visitor() as sender:
        client, sent = sender.client, list[bytes]()
        await errand.send(client, b"first")
        kinds = [errand.below(2) for _ in range(4 + errand.below(12))]

        async def send(number: int, kind: int) -> None:
            body = f"{number}".encode()
            sent.append(body)  # the request is written in this step
            await client.send(errand.topic, body, 0, {"WAIT": "false"} if kind else {})

        async with trio.open_nursery() as nursery:
            for number, kind in enumerate(kinds):
                nursery.start_soon(send, number, kind)
        found = (await errand.read(client, count=len(sent) + 1)).bodies[1:]
        taken = [body for body in sent if body in found]
        return "" if found == taken else f"one connection has sent {taken}; they are stored as {found}"


async def _create(errand: Errand, client: ThinClient) -> None:
    check(await client.ask(make_topic_request(errand.topic)))


async def _has(at_slave: Visitor, topic: str, offset: int) -> bool:
    """Whether a slave comes to have an offset of the group within the time in which it copies tables; 0: none."""
    over_at_s = trio.current_time() + _COPIED_S
    while (await at_slave.client.committed(topic) or 0) != offset:
        if trio.current_time() > over_at_s:
            return False
        await trio.sleep(AT_ONCE_S)
    return True
